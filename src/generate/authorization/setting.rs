//! The target of a rule's translation.

use crate::proto::envoy::config::rbac::v3::rbac::Action;

/// The traffic that a rule is to be evaluated on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// HTTP requests in an Envoy.
    Http,
    /// TCP connections in an Envoy.
    Tcp,
    /// Requests to a gRPC server, whose engine has no metadata of other filters, no path templates and no server name.
    Grpc,
}

/// The target of a rule's translation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// The traffic.
    pub traffic: Traffic,
    /// The effect of a match.
    pub action: Action,
    /// Namespace of the policy.
    pub namespace: &'a str,
    /// The trust domain of the mesh and its aliases.
    pub trust_domains: &'a [&'a str],
}
