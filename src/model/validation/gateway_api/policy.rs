//! ReferenceGrant and BackendTLSPolicy.

use super::{
    reference::LOCAL,
    rules,
    schema::{Node, may, must},
    shape::{GROUP, HOSTNAME, KIND, LONG, NAMESPACE, OBJECT_NAME, PRECISE_HOSTNAME, SAN_URI, SECTION, WELL_KNOWN},
};

const FROM: Node = Node::Object(&[must("group", &GROUP), must("kind", &KIND), must("namespace", &NAMESPACE)]);
const TO: Node = Node::Object(&[must("group", &GROUP), must("kind", &KIND), may("name", &OBJECT_NAME)]);

/// `spec` of a ReferenceGrant.
pub(super) const GRANT: Node =
    Node::Object(&[must("from", &Node::List(&FROM, 1, 16)), must("to", &Node::List(&TO, 1, 16))]);

const TARGET: Node = Node::Object(&[
    must("group", &GROUP),
    must("kind", &KIND),
    must("name", &OBJECT_NAME),
    may("sectionName", &SECTION),
]);
const SUBJECT: Node = Node::Checked(
    &Node::Object(&[must("type", &Node::Enum(&["Hostname", "URI"])), may("hostname", &HOSTNAME), may("uri", &SAN_URI)]),
    &[rules::subject_fits_its_type],
);
const VALIDATION: Node = Node::Checked(
    &Node::Object(&[
        may("caCertificateRefs", &Node::List(&LOCAL, 0, 8)),
        must("hostname", &PRECISE_HOSTNAME),
        may("subjectAltNames", &Node::List(&SUBJECT, 0, 5)),
        may("wellKnownCACertificates", &WELL_KNOWN),
    ]),
    &[rules::one_source_of_trust],
);

/// `spec` of a BackendTLSPolicy.
pub(super) const BACKEND_TLS: Node = Node::Object(&[
    may("options", &Node::Map(&LONG, 16)),
    must("targetRefs", &Node::Checked(&Node::List(&TARGET, 1, 16), &[rules::targets_differ])),
    must("validation", &VALIDATION),
]);
