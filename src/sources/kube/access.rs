//! The requests to the API server, as a table: the least rights that work, which `config/kubernetes/rbac.yaml` grants.

use super::{Group, presence};
use crate::model::Kind;

/// No status is written for kinds of the service APIs, as in Istio.
fn is_of_service_apis(kind: Kind) -> bool {
    kind.group() == Kind::ServiceApisGateway.group()
}

/// A right on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group; empty for core.
    pub group: String,
    /// Plural name of the resource, with the subresource if one is meant.
    pub resource: String,
    /// Verb, such as `get`.
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
    let crds = presence::resource();
    rights.extend(["get", "list", "watch"].map(|verb| right(&crds.group, &crds.plural, verb)));
    // The mesh settings, before anything is watched.
    rights.push(right("", "configmaps", "get"));
    rights.sort();
    rights
}

/// Every right that writing statuses takes, beside those of [`rights`].
#[must_use]
pub fn status_rights() -> Vec<Right> {
    let written = |kind: &Kind| {
        let read_only = matches!(kind, Kind::ReferenceGrant | Kind::IngressClass | Kind::MutatingWebhookConfiguration);
        !read_only && !is_of_service_apis(*kind)
    };
    let groups = [Group::Crd, Group::GatewayApi, Group::Ingress];
    let kinds = groups.into_iter().flat_map(Group::kinds).filter(written);
    let right = |kind: Kind, resource: String, verb| Right { group: kind.group().to_string(), resource, verb };
    let mut rights: Vec<Right> = kinds
        .flat_map(|kind| {
            // After a conflict the fresh object is read.
            [right(kind, format!("{}/status", kind.plural()), "patch"), right(kind, kind.plural().to_string(), "get")]
        })
        .collect();
    rights.sort();
    rights
}

/// Every right that registering workloads takes, where their WorkloadGroups stand in the cluster.
#[must_use]
pub fn registration_rights() -> Vec<Right> {
    let kind = Kind::WorkloadEntry;
    let right = |resource: &str, verb| Right { group: kind.group().to_string(), resource: resource.to_string(), verb };
    let status = format!("{}/status", kind.plural());
    let mut rights: Vec<Right> =
        ["create", "delete", "get", "patch"].into_iter().map(|verb| right(kind.plural(), verb)).collect();
    rights.push(right(&status, "patch"));
    // The objects that an entry is made of are read when it is made.
    rights.push(right(Kind::WorkloadGroup.plural(), "get"));
    rights
}

/// Every right on the lease of the writer, and on those that hold the processes' reports, in the control plane's
/// namespace.
#[must_use]
pub fn lease_rights() -> Vec<Right> {
    let right = |verb| Right { group: "coordination.k8s.io".to_string(), resource: "leases".to_string(), verb };
    ["create", "delete", "get", "list", "update"].map(right).to_vec()
}

/// Every right that proving identities and telling the roots takes, where there is a secure listener.
#[must_use]
pub fn identity_rights() -> Vec<Right> {
    let right =
        |group: &str, resource: &str, verb| Right { group: group.to_string(), resource: resource.to_string(), verb };
    vec![
        // `istio-ca-root-cert` and `istio-ca-crl` of each namespace; to apply a missing one takes both.
        right("", "configmaps", "create"),
        right("", "configmaps", "patch"),
        right("authentication.k8s.io", "tokenreviews", "create"),
        right("authorization.k8s.io", "subjectaccessreviews", "create"),
    ]
}

/// Every right on the Secrets of the certificate authority, in the control plane's namespace.
#[must_use]
pub fn authority_rights() -> Vec<Right> {
    let right = |verb| Right { group: String::new(), resource: "secrets".to_string(), verb };
    ["create", "get", "update"].map(right).to_vec()
}
