//! Gateway API's rules for one object: what an API server refuses by the kind's definition, before any controller sees it.
//!
//! Objects that come from an API server have passed these rules, of its version; they are for objects that come from
//! elsewhere. Fields that a kind does not have are passed over with a warning, as `kubectl` warns of them.

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

/// Checks a document of this kind; every text begins with the path of the field. Kinds of other APIs have no rules here.
#[must_use]
pub fn admission(kind: Kind, document: &Value) -> Validation {
    let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let Some(spec) = spec(kind, version.contains("/v1alpha")) else { return Validation::default() };
    let mut walk = Check::new("spec");
    match document.get("spec").filter(|spec| !spec.is_null()) {
        Some(value) => walk.look(value, spec),
        None => walk.error("it is missing"),
    }
    walk.finish()
}

/// The rules of a kind's `spec`; the first versions of TCPRoute and TLSRoute asked for less.
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
