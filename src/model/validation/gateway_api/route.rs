//! Routes: HTTPRoute, GRPCRoute, TLSRoute and TCPRoute.

use super::{
    reference::{BACKEND, LOCAL, PARENTS, WEIGHT, WEIGHTED},
    rules,
    schema::{Field, Node, may, must},
    shape::{
        ANY, AUTH_PATH, DURATION, GROUP, HEADER_NAME, HEADER_VALUE, HOSTNAME, KIND, MATCH_VALUE, NAMESPACE,
        OBJECT_NAME, ORIGIN, PATH_TEXT, PORT, PRECISE_HOSTNAME, QUERY_VALUE, SECTION,
    },
};

const NUMBER: i64 = i32::MAX as i64;
const DEFAULT_GATEWAYS: Node = Node::Enum(&["All", "None"]);
const HOSTNAMES: Node = Node::List(&HOSTNAME, 0, 16);
const HEADER: Node = Node::Object(&[must("name", &HEADER_NAME), must("value", &HEADER_VALUE)]);
const MATCH_TYPE: Node = Node::Enum(&["Exact", "RegularExpression"]);

const MODIFIER: Node = Node::Object(&[
    may("add", &Node::Unique(&HEADER, 0, 16, "name")),
    may("remove", &Node::Unique(&ANY, 0, 16, "")),
    may("set", &Node::Unique(&HEADER, 0, 16, "name")),
]);
const MIRROR: Node = Node::Checked(
    &Node::Object(&[
        must("backendRef", &BACKEND),
        may(
            "fraction",
            &Node::Checked(
                &Node::Object(&[
                    may("denominator", &Node::Integer(1, NUMBER)),
                    must("numerator", &Node::Integer(0, NUMBER)),
                ]),
                &[rules::fraction_is_at_most_one],
            ),
        ),
        may("percent", &Node::Integer(0, 100)),
    ]),
    &[rules::percent_or_fraction],
);
const REPLACED_PATH: Node = Node::Checked(
    &Node::Object(&[
        may("replaceFullPath", &PATH_TEXT),
        may("replacePrefixMatch", &PATH_TEXT),
        must("type", &Node::Enum(&["ReplaceFullPath", "ReplacePrefixMatch"])),
    ]),
    &[rules::path_fits_its_type],
);
const REDIRECT: Node = Node::Object(&[
    may("hostname", &PRECISE_HOSTNAME),
    may("path", &REPLACED_PATH),
    may("port", &PORT),
    may("scheme", &Node::Enum(&["http", "https"])),
    may("statusCode", &Node::Code(&[301, 302, 303, 307, 308])),
]);
const REWRITE: Node = Node::Object(&[may("hostname", &PRECISE_HOSTNAME), may("path", &REPLACED_PATH)]);
const CORS: Node = Node::Object(&[
    may("allowCredentials", &Node::Bool),
    may("allowHeaders", &Node::Checked(&Node::Unique(&HEADER_NAME, 0, 64, ""), &[rules::star_is_alone])),
    may(
        "allowMethods",
        &Node::Checked(
            &Node::Unique(
                &Node::Enum(&["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"]),
                0,
                9,
                "",
            ),
            &[rules::star_is_alone],
        ),
    ),
    may("allowOrigins", &Node::Checked(&Node::Unique(&ORIGIN, 0, 64, ""), &[rules::star_is_alone])),
    may("exposeHeaders", &Node::Unique(&HEADER_NAME, 0, 64, "")),
    may("maxAge", &Node::Integer(1, NUMBER)),
]);
const HEADER_LIST: Node = Node::Unique(&ANY, 0, 64, "");
const EXTERNAL_AUTH: Node = Node::Checked(
    &Node::Object(&[
        must("backendRef", &BACKEND),
        may("forwardBody", &Node::Object(&[may("maxSize", &Node::Integer(0, NUMBER))])),
        may("grpc", &Node::Object(&[may("allowedHeaders", &HEADER_LIST)])),
        may(
            "http",
            &Node::Object(&[
                may("allowedHeaders", &HEADER_LIST),
                may("allowedResponseHeaders", &HEADER_LIST),
                may("path", &AUTH_PATH),
            ]),
        ),
        must("protocol", &Node::Enum(&["HTTP", "GRPC"])),
    ]),
    &[rules::auth_fits_its_protocol],
);

const HTTP_FILTER: Node = Node::Checked(
    &Node::Object(&[
        may("cors", &CORS),
        may("extensionRef", &LOCAL),
        may("externalAuth", &EXTERNAL_AUTH),
        may("requestHeaderModifier", &MODIFIER),
        may("requestMirror", &MIRROR),
        may("requestRedirect", &REDIRECT),
        may("responseHeaderModifier", &MODIFIER),
        may("urlRewrite", &REWRITE),
        must(
            "type",
            &Node::Enum(&[
                "RequestHeaderModifier",
                "ResponseHeaderModifier",
                "RequestMirror",
                "RequestRedirect",
                "URLRewrite",
                "ExtensionRef",
                "CORS",
                "ExternalAuth",
            ]),
        ),
    ]),
    &[rules::filter_fits_its_type],
);
const HTTP_FILTERS: Node = Node::Checked(&Node::List(&HTTP_FILTER, 0, 16), &[rules::filters_come_once]);
const HTTP_BACKEND: Node = Node::Checked(
    &Node::Object(&[
        may("filters", &HTTP_FILTERS),
        may("group", &GROUP),
        may("kind", &KIND),
        must("name", &OBJECT_NAME),
        may("namespace", &NAMESPACE),
        may("port", &PORT),
        may("weight", &WEIGHT),
    ]),
    &[rules::services_have_ports],
);
const HTTP_PATH: Node = Node::Checked(
    &Node::Object(&[may("type", &Node::Enum(&["Exact", "PathPrefix", "RegularExpression"])), may("value", &PATH_TEXT)]),
    &[rules::path_is_plain],
);
const HTTP_MATCH: Node = Node::Object(&[
    may(
        "headers",
        &Node::Unique(
            &Node::Object(&[must("name", &HEADER_NAME), may("type", &MATCH_TYPE), must("value", &HEADER_VALUE)]),
            0,
            16,
            "name",
        ),
    ),
    may("method", &Node::Enum(&["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"])),
    may("path", &HTTP_PATH),
    may(
        "queryParams",
        &Node::Unique(
            &Node::Object(&[must("name", &HEADER_NAME), may("type", &MATCH_TYPE), must("value", &QUERY_VALUE)]),
            0,
            16,
            "name",
        ),
    ),
]);
const SESSION: Node = Node::Checked(
    &Node::Object(&[
        may("absoluteTimeout", &DURATION),
        may(
            "cookie",
            &Node::Object(&[
                may("lifetimeType", &Node::Enum(&["Permanent", "Session"])),
                may("name", &HEADER_NAME),
                may("path", &PATH_TEXT),
            ]),
        ),
        may("header", &Node::Object(&[must("name", &HEADER_NAME)])),
        // Field names in earlier versions of the CRD.
        may("sessionName", &HEADER_NAME),
        may("idleTimeout", &DURATION),
        may("type", &Node::Enum(&["Cookie", "Header"])),
    ]),
    &[rules::session_fits_its_type],
);
const TIMEOUTS: Node = Node::Checked(
    &Node::Object(&[may("backendRequest", &DURATION), may("request", &DURATION)]),
    &[rules::backend_timeout_is_shorter],
);
const RETRY: Node = Node::Object(&[
    may("attempts", &Node::Integer(1, NUMBER)),
    may("backoff", &DURATION),
    may("codes", &Node::Unique(&Node::Integer(400, 599), 0, usize::MAX, "")),
]);
const HTTP_RULE: Node = Node::Checked(
    &Node::Object(&[
        may("backendRefs", &Node::List(&HTTP_BACKEND, 0, 16)),
        may("filters", &HTTP_FILTERS),
        may("matches", &Node::List(&HTTP_MATCH, 0, 64)),
        may("name", &SECTION),
        may("retry", &RETRY),
        may("sessionPersistence", &SESSION),
        may("timeouts", &TIMEOUTS),
    ]),
    &[rules::no_backends_beside_redirect, rules::prefix_is_replaced_where_one_matches],
);

/// `spec` of an HTTPRoute.
pub(super) const HTTP: Node = Node::Object(&[
    may("hostnames", &HOSTNAMES),
    may("parentRefs", &PARENTS),
    may(
        "rules",
        &Node::Checked(&Node::List(&HTTP_RULE, 1, 16), &[rules::few_matches_in_all, rules::rules_have_own_names]),
    ),
    may("useDefaultGateways", &DEFAULT_GATEWAYS),
]);

const GRPC_FILTER: Node = Node::Checked(
    &Node::Object(&[
        may("extensionRef", &LOCAL),
        may("requestHeaderModifier", &MODIFIER),
        may("requestMirror", &MIRROR),
        may("responseHeaderModifier", &MODIFIER),
        must(
            "type",
            &Node::Enum(&["ResponseHeaderModifier", "RequestHeaderModifier", "RequestMirror", "ExtensionRef"]),
        ),
    ]),
    &[rules::filter_fits_its_type],
);
const GRPC_FILTERS: Node = Node::Checked(&Node::List(&GRPC_FILTER, 0, 16), &[rules::filters_come_once]);
const GRPC_BACKEND: Node = Node::Checked(
    &Node::Object(&[
        may("filters", &GRPC_FILTERS),
        may("group", &GROUP),
        may("kind", &KIND),
        must("name", &OBJECT_NAME),
        may("namespace", &NAMESPACE),
        may("port", &PORT),
        may("weight", &WEIGHT),
    ]),
    &[rules::services_have_ports],
);
const GRPC_METHOD: Node = Node::Checked(
    &Node::Object(&[may("method", &PATH_TEXT), may("service", &PATH_TEXT), may("type", &MATCH_TYPE)]),
    &[rules::method_is_named],
);
const GRPC_MATCH: Node = Node::Object(&[
    may(
        "headers",
        &Node::Unique(
            &Node::Object(&[must("name", &HEADER_NAME), may("type", &MATCH_TYPE), must("value", &MATCH_VALUE)]),
            0,
            16,
            "name",
        ),
    ),
    may("method", &GRPC_METHOD),
]);
const GRPC_RULE: Node = Node::Object(&[
    may("backendRefs", &Node::List(&GRPC_BACKEND, 0, 16)),
    may("filters", &GRPC_FILTERS),
    may("matches", &Node::List(&GRPC_MATCH, 0, 64)),
    may("name", &SECTION),
    may("sessionPersistence", &SESSION),
]);

/// `spec` of a GRPCRoute.
pub(super) const GRPC: Node = Node::Object(&[
    may("hostnames", &HOSTNAMES),
    may("parentRefs", &PARENTS),
    may(
        "rules",
        &Node::Checked(&Node::List(&GRPC_RULE, 0, 16), &[rules::few_matches_in_all, rules::rules_have_own_names]),
    ),
    may("useDefaultGateways", &DEFAULT_GATEWAYS),
]);

const STREAM_RULE: Node = Node::Object(&[must("backendRefs", &Node::List(&WEIGHTED, 1, 16)), may("name", &SECTION)]);
const ALPHA_STREAM_RULE: Node =
    Node::Object(&[may("backendRefs", &Node::List(&WEIGHTED, 0, 16)), may("name", &SECTION)]);
const ALPHA_STREAM: &[Field] = &[
    may("hostnames", &HOSTNAMES),
    may("parentRefs", &PARENTS),
    must("rules", &Node::List(&ALPHA_STREAM_RULE, 1, 16)),
    may("useDefaultGateways", &DEFAULT_GATEWAYS),
];

/// `spec` of a TLSRoute.
pub(super) const TLS: Node = Node::Object(&[
    must("hostnames", &Node::Checked(&Node::List(&HOSTNAME, 1, 1024), &[rules::no_addresses])),
    may("parentRefs", &PARENTS),
    must("rules", &Node::List(&STREAM_RULE, 1, 1)),
    may("useDefaultGateways", &DEFAULT_GATEWAYS),
]);
/// `spec` of a TLSRoute of an alpha version.
pub(super) const ALPHA_TLS: Node = Node::Object(ALPHA_STREAM);
/// `spec` of a TCPRoute.
pub(super) const TCP: Node = Node::Object(&[
    may("parentRefs", &PARENTS),
    must("rules", &Node::List(&STREAM_RULE, 1, 1)),
    may("useDefaultGateways", &DEFAULT_GATEWAYS),
]);
/// `spec` of a TCPRoute of an alpha version.
pub(super) const ALPHA_TCP: Node = Node::Object(ALPHA_STREAM);
