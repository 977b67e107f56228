//! What we do to the API server, as a table: the least rights that work, which `config/kubernetes/rbac.yaml` grants.

use super::{Group, crds::CrdFollower};

/// A right on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group; empty for core.
    pub group: String,
    /// Plural.
    pub resource: String,
    /// What is done to it.
    pub verb: &'static str,
}

/// Every right that reading a cluster takes.
#[must_use]
pub fn rights() -> Vec<Right> {
    let right = |group: &str, resource: &str, verb: &'static str| Right {
        group: group.to_string(),
        resource: resource.to_string(),
        verb,
    };
    let mut rights = Vec::new();
    for group in [Group::Crd, Group::GatewayApi, Group::Ingress, Group::Registry, Group::Discovery] {
        for kind in group.kinds() {
            rights.extend(["list", "watch"].map(|verb| right(kind.group(), kind.plural(), verb)));
        }
    }
    let crds = CrdFollower::resource();
    rights.extend(["get", "list", "watch"].map(|verb| right(&crds.group, &crds.plural, verb)));
    // The mesh settings, before anything is watched.
    rights.push(right("", "configmaps", "get"));
    rights.sort();
    rights
}
