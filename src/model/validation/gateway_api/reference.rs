//! References to other objects.

use super::{
    rules,
    schema::{Field, Node, may, must},
    shape::{GROUP, KIND, NAMESPACE, OBJECT_NAME, PORT, SECTION},
};

const LOCAL_FIELDS: &[Field] = &[must("group", &GROUP), must("kind", &KIND), must("name", &OBJECT_NAME)];

/// An object in the same namespace, with group and kind.
pub(super) const LOCAL: Node = Node::Object(LOCAL_FIELDS);
/// An object in any namespace, with group and kind.
pub(super) const FULL: Node = Node::Object(&[
    must("group", &GROUP),
    must("kind", &KIND),
    must("name", &OBJECT_NAME),
    may("namespace", &NAMESPACE),
]);
/// An object in any namespace; group and kind have defaults.
pub(super) const SECRET: Node =
    Node::Object(&[may("group", &GROUP), may("kind", &KIND), must("name", &OBJECT_NAME), may("namespace", &NAMESPACE)]);
/// Parents of a route.
pub(super) const PARENTS: Node = Node::Checked(&Node::List(&PARENT, 0, 32), &[rules::parents_differ]);
const PARENT: Node = Node::Object(&[
    may("group", &GROUP),
    may("kind", &KIND),
    must("name", &OBJECT_NAME),
    may("namespace", &NAMESPACE),
    may("port", &PORT),
    may("sectionName", &SECTION),
]);
/// A backend without a weight.
pub(super) const BACKEND: Node = Node::Checked(
    &Node::Object(&[
        may("group", &GROUP),
        may("kind", &KIND),
        must("name", &OBJECT_NAME),
        may("namespace", &NAMESPACE),
        may("port", &PORT),
    ]),
    &[rules::services_have_ports],
);
/// A backend with a weight.
pub(super) const WEIGHTED: Node = Node::Checked(
    &Node::Object(&[
        may("group", &GROUP),
        may("kind", &KIND),
        must("name", &OBJECT_NAME),
        may("namespace", &NAMESPACE),
        may("port", &PORT),
        may("weight", &WEIGHT),
    ]),
    &[rules::services_have_ports],
);
/// The weight of a backend.
pub(super) const WEIGHT: Node = Node::Integer(0, 1_000_000);
