//! Gateway API rules for one object: those that an API server enforces through the CRD, before any controller sees the object.
//!
//! Objects from an API server have already passed the rules of its CRD version; these rules are for objects from other sources.
//! Unknown fields are ignored with a warning, like `kubectl`'s.

mod gateway;
mod policy;
mod reference;
mod route;
mod rules;
mod schema;
mod shape;

use serde_json::Value;

use schema::Node;

use super::{Validation, check::Check};
use crate::model::Kind;

/// Validates a document of this kind. Every text begins with the path of the field. Kinds of other APIs are valid.
pub(super) fn admission(kind: Kind, document: &Value) -> Validation {
    let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let Some(spec) = spec(kind, version.contains("/v1alpha")) else { return Validation::default() };
    let mut walk = Check::new("spec");
    match document.get("spec").filter(|spec| !spec.is_null()) {
        Some(value) => walk.look(value, spec),
        None => walk.error("it is missing"),
    }
    walk.finish()
}

/// The schema of a kind's `spec`; the alpha versions of TCPRoute and TLSRoute have fewer requirements.
fn spec(kind: Kind, alpha: bool) -> Option<&'static Node> {
    Some(match kind {
        Kind::GatewayClass => &gateway::CLASS,
        Kind::KubernetesGateway => &gateway::GATEWAY,
        Kind::ListenerSet => &gateway::LISTENER_SET,
        Kind::HTTPRoute => &route::HTTP,
        Kind::GRPCRoute => &route::GRPC,
        Kind::TLSRoute if alpha => &route::ALPHA_TLS,
        Kind::TLSRoute => &route::TLS,
        Kind::TCPRoute if alpha => &route::ALPHA_TCP,
        Kind::TCPRoute => &route::TCP,
        Kind::ReferenceGrant => &policy::GRANT,
        Kind::BackendTLSPolicy => &policy::BACKEND_TLS,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
