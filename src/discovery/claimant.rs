//! The client of a stream: the node that it sends, and the services that its proven identity permits. Pure.

use std::sync::Arc;

use http::Request as HttpRequest;
use prost::Message;
use tonic::{Status, body::Body};

use super::state::XdsState;
use crate::{
    generate::api,
    identity::{Presented, Unauthenticated},
    model::{Config, Identity, Kind, Node},
    proto::{envoy::config::core::v3 as core, wkt},
    push::PushContext,
    xds::{self, wire::request::Request},
};

/// Values in the metadata of a node: each takes a hundred bytes for as long as the stream lasts. Istio's agent sends a few
/// hundred.
const MAX_NODE_VALUES: usize = 4096;

/// The proofs of its identity that the client of a request presents.
pub(super) fn presented(request: &HttpRequest<Body>) -> Presented {
    let tls = xds::peer_tls(request);
    Presented {
        secure: tls.is_some(),
        certificate: tls.and_then(|tls| tls.certificate.clone()),
        intermediates: tls.map(|tls| tls.intermediates.clone()).unwrap_or_default(),
        peer: xds::peer_address(request),
        user: xds::peer_user(request),
        ..Presented::of_headers(|name| request.headers().get(name)?.to_str().ok())
    }
}

/// The status of a client whose proof does not hold, or cannot be checked now.
pub(super) fn unauthenticated(error: &Unauthenticated) -> Status {
    match error {
        Unauthenticated::Unavailable(_) => Status::unavailable(error.to_string()),
        _ => Status::unauthenticated(error.to_string()),
    }
}

/// The number of values, at any depth.
fn values(fields: &wkt::Struct) -> usize {
    fields.fields.values().map(|value| 1 + value.kind.as_ref().map_or(0, values_in)).sum()
}

fn values_in(kind: &wkt::value::Kind) -> usize {
    match kind {
        wkt::value::Kind::StructValue(inner) => values(inner),
        wkt::value::Kind::ListValue(list) => {
            list.values.iter().map(|value| 1 + value.kind.as_ref().map_or(0, values_in)).sum()
        }
        _ => 0,
    }
}

/// The node of a first request.
pub(super) fn read_node(request: &Request<'_>) -> Result<Node, Status> {
    let node = core::Node::decode(request.node).map_err(|_| Status::invalid_argument("the node is malformed"))?;
    if node.id.is_empty() {
        return Err(Status::invalid_argument("missing node information"));
    }
    if node.metadata.as_ref().is_some_and(|metadata| values(metadata) > MAX_NODE_VALUES) {
        return Err(Status::invalid_argument(format!(
            "more than {MAX_NODE_VALUES} values in the metadata of the node"
        )));
    }
    Node::parse(&node).map_err(|e| Status::invalid_argument(e.to_string()))
}

/// The node of a client has to agree with its proven identity (Istio's `checkConnectionIdentity`).
pub(super) fn authorize(node: &Node, identity: Option<&Identity>) -> Result<(), Status> {
    let Some(identity) = identity else { return Ok(()) };
    let account = &node.metadata.service_account;
    if identity.namespace != node.namespace || !(account.is_empty() || *account == identity.service_account) {
        return Err(Status::permission_denied(format!(
            "{identity} may not claim to be in namespace {}",
            node.namespace
        )));
    }
    Ok(())
}

/// Config objects are for control planes: clients that proved to be in the root namespace (Istio's `APIGenerator`).
pub(super) fn authorize_objects(state: &XdsState, node: &Node, identity: Option<&Identity>) -> Result<(), Status> {
    let Some(published) = state.current().filter(|_| &*node.metadata.generator == api::GENERATOR) else {
        return Ok(());
    };
    let context = &published.context;
    if !context.features().enable_xds_api_generator_auth {
        return Ok(());
    }
    let Some(identity) = identity else {
        return Err(Status::unauthenticated("config objects are served to authenticated control planes only"));
    };
    let root = &context.mesh().config.root_namespace;
    if *identity.namespace != **root {
        return Err(Status::permission_denied(format!("config objects are served to the namespace {root} only")));
    }
    Ok(())
}

/// Whether the entry of a workload that registers itself is in force. One that names an entry of its own has it already.
pub(super) fn is_registered(node: &Node, context: &PushContext) -> bool {
    if node.raw_metadata["AUTO_REGISTER_GROUP"].as_str().unwrap_or_default().is_empty() {
        return true;
    }
    let is_own = |entry: &Arc<Config>| {
        let address = entry.workload_entry().map_or("", |e| e.address.as_str());
        entry.meta.namespace == node.namespace && node.ips.iter().any(|ip| **ip == *address)
    };
    context.inputs.configs.list(Kind::WorkloadEntry).iter().any(is_own)
}
