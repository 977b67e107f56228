//! `/debug/describez`: one service or one workload with the objects that are in force for it.
//!
//! The answers come from the indices that generation reads, so an object is named here exactly where it has an effect.

pub(super) mod client_tls;
pub(super) mod service;
pub(super) mod workload;

use std::{collections::BTreeMap, sync::Arc};

use actix_web::http::StatusCode;
use serde_json::{Value, json};

use super::AdminState;
use crate::{
    model::{Config, Locality, Node, Service},
    push::PushContext,
};

/// The page for `?service=NAME[&namespace=NAMESPACE]` (NAME is a host, or the name of an object) or `?proxy=NAME.NAMESPACE`
/// (a connected proxy, or a workload that the registry knows).
pub(super) fn page(query: &BTreeMap<String, String>, state: &AdminState) -> Result<Value, (StatusCode, String)> {
    let refusal = |status, text: String| (status, format!("{text}\n"));
    let Some(context) = state.context() else {
        return Err(refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the first configuration is not complete yet".to_string(),
        ));
    };
    let namespace = query.get("namespace").map(String::as_str);
    if let Some(name) = query.get("service") {
        let found = services_of(&context, name, namespace);
        return match &found[..] {
            [] => Err(refusal(StatusCode::NOT_FOUND, format!("no service {name:?}"))),
            [one] => Ok(service::describe(&context, one)),
            several => {
                let names: Vec<String> = several.iter().map(|s| format!("{}/{}", s.namespace, s.hostname)).collect();
                let text = format!("service {name:?} is any of {}; name one with its namespace", names.join(", "));
                Err(refusal(StatusCode::CONFLICT, text))
            }
        };
    }
    let Some(name) = query.get("proxy") else {
        return Err(refusal(StatusCode::BAD_REQUEST, "the query has service= or proxy=".to_string()));
    };
    if let Some(connection) = state.xds.connection(name) {
        return Ok(workload::describe(&context, &connection.node, true));
    }
    let node = node_of_workload(&context, name);
    node.map(|node| workload::describe(&context, &node, false))
        .ok_or_else(|| refusal(StatusCode::NOT_FOUND, format!("no proxy and no workload {name:?}")))
}

/// The services that a user may mean: by host first, then by the name of the object.
pub(super) fn services_of(context: &PushContext, name: &str, namespace: Option<&str>) -> Vec<Arc<Service>> {
    let is_in = |service: &&Arc<Service>| namespace.is_none_or(|namespace| *service.namespace == *namespace);
    let by_host: Vec<Arc<Service>> = context.services.of_host(name).iter().filter(is_in).cloned().collect();
    if !by_host.is_empty() {
        return by_host;
    }
    let is_named = |service: &&Arc<Service>| *service.object_name == *name || *service.name == *name;
    context.services.all.iter().filter(is_in).filter(is_named).cloned().collect()
}

/// A workload without a proxy, by the endpoints that it has.
fn node_of_workload(context: &PushContext, name: &str) -> Option<Node> {
    let (workload, namespace) = name.rsplit_once('.')?;
    let endpoints = context.services.all.iter().filter_map(|s| context.endpoints().get(&s.hostname, &s.namespace));
    let mut endpoints = endpoints.flat_map(|set| set.iter());
    let found = endpoints.find(|e| *e.workload_name == *workload && *e.namespace == *namespace)?;
    node_of(context, found)
}

/// The node that a proxy beside an endpoint would have.
pub(super) fn node_of(context: &PushContext, endpoint: &crate::model::Endpoint) -> Option<Node> {
    let (namespace, domain) = (&endpoint.namespace, &context.mesh().domain);
    let ip = endpoint.addresses.first().filter(|a| a.parse::<std::net::IpAddr>().is_ok()).map_or("127.0.0.1", |a| a);
    let id = format!("sidecar~{ip}~{}.{namespace}~{namespace}.svc.{domain}", endpoint.workload_name);
    let metadata = json!({
        "NAMESPACE": namespace.to_string(), "CLUSTER_ID": endpoint.cluster.to_string(),
        "LABELS": endpoint.labels.to_labels(),
    });
    Node::from_parts(&id, metadata, Locality::default()).ok()
}

/// An object by name, with the place that it was read from.
pub(super) fn object(config: &Config) -> Value {
    json!({"name": full_name(config), "kind": config.kind().as_str(), "place": config.origin.place()})
}

pub(super) fn full_name(config: &Config) -> String {
    format!("{}.{}", config.meta.name, config.meta.namespace)
}
