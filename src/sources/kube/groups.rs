//! The kinds of each source, and the request for each kind.

use kube::core::{ApiResource, GroupVersionKind};

use crate::model::{Kind, KindClass};

/// The sources of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Istio's kinds, which are defined by CRDs.
    Crd,
    /// Gateway API, the service APIs that came before it, and webhooks for their names of revisions.
    GatewayApi,
    /// Ingress and its classes.
    Ingress,
    /// The kinds that the service registry and credentials are made of.
    Registry,
    /// The kinds that are read of a remote cluster: services, workloads, Secrets, Gateways between networks, and its mesh
    /// settings.
    RemoteRegistry,
    /// Namespaces and CRDs, which the other sources of the cluster go by.
    Discovery,
}

impl Group {
    /// The name, as in the source's id.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crd => "crd",
            Self::GatewayApi => "gateway-api",
            Self::Ingress => "ingress",
            Self::Registry | Self::RemoteRegistry => "registry",
            Self::Discovery => "discovery",
        }
    }

    /// The kinds of the group.
    #[must_use]
    pub fn kinds(self) -> Vec<Kind> {
        let of = |class: KindClass| -> Vec<Kind> { Kind::ALL.iter().copied().filter(|k| k.class() == class).collect() };
        match self {
            Self::Crd => of(KindClass::Istio),
            Self::GatewayApi => {
                let mut kinds = of(KindClass::GatewayApi);
                kinds.push(Kind::MutatingWebhookConfiguration);
                kinds
            }
            Self::Ingress => vec![Kind::Ingress, Kind::IngressClass],
            Self::Registry => {
                vec![Kind::Service, Kind::EndpointSlice, Kind::Pod, Kind::Node, Kind::Secret, Kind::ConfigMap]
            }
            Self::RemoteRegistry => {
                let mut kinds = vec![Kind::Service, Kind::EndpointSlice, Kind::Pod, Kind::Node, Kind::Secret];
                kinds.extend([Kind::KubernetesGateway, Kind::WorkloadEntry, Kind::ConfigMap]);
                kinds
            }
            Self::Discovery => vec![Kind::Namespace],
        }
    }
}

/// Whether a kind exists only while its CRD does.
pub(super) fn is_custom(kind: Kind) -> bool {
    !matches!(kind.class(), KindClass::Kubernetes)
}

/// The name of a kind's CRD.
pub(super) fn crd_name(kind: Kind) -> String {
    format!("{}.{}", kind.plural(), kind.group())
}

/// The resource of a kind in this version.
pub(super) fn resource(kind: Kind, version: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(kind.group(), version, kind.as_str()), kind.plural())
}

/// Which objects of a kind are asked for at all. Helm's releases and tokens of service accounts are large, and never
/// credentials of a gateway (Istio's `SecretsFieldSelector`; users give other secrets any type).
pub(super) const fn field_selector(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Secret => Some("type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"),
        _ => None,
    }
}

/// Which objects of a kind are asked for, by label: of webhooks those that tag a revision.
pub(super) const fn label_selector(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::MutatingWebhookConfiguration => Some("istio.io/tag"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_watched_once() {
        let groups = [Group::Crd, Group::GatewayApi, Group::Ingress, Group::Registry, Group::Discovery];
        let mut kinds: Vec<Kind> = groups.into_iter().flat_map(Group::kinds).collect();
        let all = kinds.len();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), all);
        assert!(kinds.iter().all(|k| k.class() != KindClass::Retired));
    }
}
