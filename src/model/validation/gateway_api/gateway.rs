//! GatewayClass, Gateway and ListenerSet.

use super::{
    reference::{FULL, LOCAL, SECRET},
    rules,
    schema::{Node, may, must},
    shape::{
        ADDRESS, ADDRESS_TYPE, ANY, CONTROLLER, DESCRIPTION, GROUP, HOSTNAME, KIND, LABEL_VALUE, LONG, NAMESPACE,
        OBJECT_NAME, PORT, PROTOCOL, SECTION,
    },
};

const ALL_OR_NONE: Node = Node::Enum(&["All", "None"]);

/// `spec` of a GatewayClass.
pub(super) const CLASS: Node = Node::Object(&[
    must("controllerName", &CONTROLLER),
    may("description", &DESCRIPTION),
    may(
        "parametersRef",
        &Node::Object(&[
            must("group", &GROUP),
            must("kind", &KIND),
            must("name", &OBJECT_NAME),
            may("namespace", &NAMESPACE),
        ]),
    ),
]);

const SELECTOR: Node = Node::Object(&[
    may(
        "matchExpressions",
        &Node::List(
            &Node::Object(&[
                must("key", &ANY),
                must("operator", &ANY),
                may("values", &Node::List(&ANY, 0, usize::MAX)),
            ]),
            0,
            usize::MAX,
        ),
    ),
    may("matchLabels", &Node::Map(&ANY, usize::MAX)),
]);
const LISTENER_NAMESPACES: Node =
    Node::Object(&[may("from", &Node::Enum(&["All", "Selector", "Same", "None"])), may("selector", &SELECTOR)]);
const ROUTE_NAMESPACES: Node =
    Node::Object(&[may("from", &Node::Enum(&["All", "Selector", "Same"])), may("selector", &SELECTOR)]);
const ALLOWED_ROUTES: Node = Node::Object(&[
    may("kinds", &Node::List(&Node::Object(&[may("group", &GROUP), must("kind", &KIND)]), 0, 8)),
    may("namespaces", &ROUTE_NAMESPACES),
]);
const LISTENER_TLS: Node = Node::Checked(
    &Node::Object(&[
        may("certificateRefs", &Node::List(&SECRET, 0, 64)),
        may("mode", &Node::Enum(&["Terminate", "Passthrough"])),
        may("options", &Node::Map(&LONG, 16)),
    ]),
    &[rules::terminating_has_certificates],
);
const LISTENER: Node = Node::Object(&[
    may("allowedRoutes", &ALLOWED_ROUTES),
    may("hostname", &HOSTNAME),
    must("name", &SECTION),
    must("port", &PORT),
    must("protocol", &PROTOCOL),
    may("tls", &LISTENER_TLS),
]);
const LISTENERS: Node = Node::Checked(
    &Node::Unique(&LISTENER, 1, 64, "name"),
    &[rules::listeners_fit_their_protocols, rules::listeners_differ],
);

const ADDRESSES: Node = Node::Checked(
    &Node::List(&Node::Object(&[may("type", &ADDRESS_TYPE), may("value", &ADDRESS)]), 0, 16),
    &[rules::addresses_differ],
);
const INFRASTRUCTURE: Node = Node::Object(&[
    may("annotations", &Node::Checked(&Node::Map(&LONG, 16), &[rules::keys_of_labels])),
    may("labels", &Node::Checked(&Node::Map(&LABEL_VALUE, 8), &[rules::keys_of_labels])),
    may("parametersRef", &LOCAL),
]);
const CLIENT_TLS: Node = Node::Object(&[may(
    "validation",
    &Node::Object(&[
        must("caCertificateRefs", &Node::List(&FULL, 1, 16)),
        may("mode", &Node::Enum(&["AllowValidOnly", "AllowInsecureFallback"])),
    ]),
)]);
const GATEWAY_TLS: Node = Node::Object(&[
    may("backend", &Node::Object(&[may("clientCertificateRef", &SECRET)])),
    may(
        "frontend",
        &Node::Object(&[
            must("default", &CLIENT_TLS),
            may(
                "perPort",
                &Node::Unique(&Node::Object(&[must("port", &PORT), must("tls", &CLIENT_TLS)]), 0, 64, "port"),
            ),
        ]),
    ),
]);

/// `spec` of a Gateway.
pub(super) const GATEWAY: Node = Node::Object(&[
    may("addresses", &ADDRESSES),
    may("allowedListeners", &Node::Object(&[may("namespaces", &LISTENER_NAMESPACES)])),
    may("defaultScope", &ALL_OR_NONE),
    must("gatewayClassName", &OBJECT_NAME),
    may("infrastructure", &INFRASTRUCTURE),
    must("listeners", &LISTENERS),
    may("tls", &GATEWAY_TLS),
]);

/// `spec` of a ListenerSet.
pub(super) const LISTENER_SET: Node = Node::Object(&[must("listeners", &LISTENERS), must("parentRef", &SECRET)]);
