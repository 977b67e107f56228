//! Gateways that route to a backend: they are the ancestors in the statuses of the backend's policies.

use super::{
    reference::GroupKind,
    route::Routes,
    types::{ParentReference, route::BackendReference},
};
use crate::model::Kind;

impl Routes {
    /// Records the Gateways of a route as ancestors of its backends, whether or not the route is bound to them.
    pub(super) fn note_ancestors<'a>(
        &mut self,
        namespace: &str,
        parents: &[ParentReference],
        backends: impl Iterator<Item = &'a BackendReference>,
    ) {
        let is_gateway = |p: &&ParentReference| {
            GroupKind::normalized(p.group.as_deref(), p.kind.as_deref(), Kind::KubernetesGateway)
                .is(Kind::KubernetesGateway)
        };
        let gateways: Vec<(String, String)> = parents
            .iter()
            .filter(is_gateway)
            .map(|p| (p.namespace.clone().unwrap_or_else(|| namespace.to_string()), p.name.clone()))
            .collect();
        for backend in backends {
            let named = GroupKind::normalized(backend.group.as_deref(), backend.kind.as_deref(), Kind::Service);
            let Some(kind) = Kind::ALL.iter().find(|k| named.is(**k)) else { continue };
            let of = backend.namespace.clone().unwrap_or_else(|| namespace.to_string());
            self.ancestors.entry((*kind, of, backend.name.clone())).or_default().extend(gateways.iter().cloned());
        }
    }
}
