//! Tests whether an input of a translation changed.

use std::sync::Arc;

use crate::model::{Config, Kind, PushInputs, kind::KindClass};

/// Kinds that a translation reads besides those of Gateway API and the service APIs.
pub const READS: [Kind; 10] = [
    Kind::ConfigMap,
    Kind::Ingress,
    Kind::IngressClass,
    Kind::MutatingWebhookConfiguration,
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::Secret,
    Kind::Service,
    Kind::ServiceEntry,
];

/// Whether there are objects to translate.
pub fn is_needed(inputs: &PushInputs) -> bool {
    let translated = |kind: Kind| kind.class() == KindClass::GatewayApi || kind == Kind::Ingress;
    inputs.configs.by_kind.iter().any(|(kind, list)| translated(*kind) && !list.is_empty())
}

/// Whether the inputs of a translation, endpoints aside, are the same in `old` and `new`.
pub fn same_basis(old: &PushInputs, new: &PushInputs) -> bool {
    if !is_needed(old) && !is_needed(new) {
        return true;
    }
    let read = |kind: &&Kind| kind.class() == KindClass::GatewayApi || READS.contains(kind);
    (Arc::ptr_eq(&old.mesh, &new.mesh) || old.mesh == new.mesh)
        && (Arc::ptr_eq(&old.features, &new.features) || old.features == new.features)
        && Kind::ALL.iter().filter(read).all(|kind| same_list(old.configs.list(*kind), new.configs.list(*kind)))
        && same_services(old, new)
}

fn same_services(old: &PushInputs, new: &PushInputs) -> bool {
    let (a, b) = (&old.registry.services, &new.registry.services);
    Arc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.stamp == b.stamp))
}

/// Whether both lists hold the same objects.
pub fn same_list(old: &[Arc<Config>], new: &[Arc<Config>]) -> bool {
    std::ptr::eq(old, new)
        || (old.len() == new.len() && old.iter().zip(new).all(|(a, b)| Arc::ptr_eq(a, b) || a.stamp == b.stamp))
}
