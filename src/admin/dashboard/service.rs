//! Services: the list, one of them, and the calls to it and from it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    listing::{Query, has, page, text},
    peers::Peer,
    refusal::{Refusal, context, missing},
};
use crate::{
    admin::{
        AdminState,
        describe::{service::describe, services_of, workload::mode},
    },
    model::{HealthStatus, Registry, Service},
    push::PushContext,
};

/// The list.
pub(super) fn services(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let context = context(state)?;
    let (searched, namespace) = (text(query, "q"), text(query, "namespace"));
    let is_shown = |service: &&Arc<Service>| {
        (namespace.is_empty() || *service.namespace == *namespace)
            && has(searched, &[&service.hostname, &service.namespace, &service.object_name])
    };
    let mut all: Vec<&Arc<Service>> = context.services.all.iter().filter(is_shown).collect();
    all.sort_by(|a, b| (&a.namespace, &*a.hostname).cmp(&(&b.namespace, &*b.hostname)));
    Ok(page(&all, query, |service| row(&context, service)))
}

fn row(context: &PushContext, service: &Arc<Service>) -> Value {
    let peer = Peer::of(context, service);
    let (all, healthy, localities) = endpoints(context, service);
    let ports: Vec<String> = service.ports.iter().map(|p| format!("{} {}", p.port, p.protocol.as_str())).collect();
    json!({
        "host": &*service.hostname, "namespace": &*service.namespace, "object": &*service.object_name,
        "kind": kind(service), "external": service.mesh_external, "ports": ports, "endpoints": all,
        "healthy": healthy, "localities": localities, "hasProxy": peer.has_proxy(),
        "mutualTls": mode(peer.accepts(context)), "restricted": restriction(context, &peer),
    })
}

/// The kind of a service's object.
pub(super) fn kind(service: &Service) -> &'static str {
    if service.registry == Registry::Kubernetes { "Service" } else { "ServiceEntry" }
}

/// The numbers of all and of usable endpoints, and the number by locality.
pub(super) fn endpoints(context: &PushContext, service: &Service) -> (usize, usize, BTreeMap<String, usize>) {
    let set = context.endpoints().get(&service.hostname, &service.namespace);
    let (mut all, mut healthy, mut localities) = (0, 0, BTreeMap::new());
    for endpoint in set.iter().flat_map(|set| set.iter()) {
        all += 1;
        // A ServiceEntry says nothing of health, and Envoy takes its endpoints for healthy.
        healthy += usize::from(matches!(endpoint.health, HealthStatus::Healthy | HealthStatus::Unknown));
        *localities.entry(endpoint.locality.label()).or_default() += 1;
    }
    (all, healthy, localities)
}

/// Whether AuthorizationPolicies restrict the callers.
pub(super) fn restriction(context: &PushContext, peer: &Peer) -> &'static str {
    let policies = peer.policies(context);
    match () {
        () if !peer.has_proxy() => "not enforced",
        () if !policies.allow.is_empty() => "listed callers",
        () if !policies.deny.is_empty() || !policies.custom.is_empty() => "all but some",
        () => "all",
    }
}

/// The service that a question is about.
pub(super) fn asked(query: &Query, context: &PushContext) -> Result<Arc<Service>, Refusal> {
    let (host, namespace) = (text(query, "host"), text(query, "namespace"));
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    let found = services_of(context, host, namespace).into_iter().next();
    found.ok_or_else(|| missing(&format!("no service {host:?} in namespace {:?}", namespace.unwrap_or("any"))))
}

/// One service.
pub(super) fn service(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let context = context(state)?;
    let service = asked(query, &context)?;
    let mut shown = describe(&context, &service);
    let row = row(&context, &service);
    if let (Value::Object(fields), Value::Object(row)) = (&mut shown, row) {
        fields.insert("row".to_string(), row.into());
        let key = json!({"kind": kind(&service), "namespace": &*service.namespace, "name": &*service.object_name});
        fields.insert("key".to_string(), key);
    }
    Ok(shown)
}

/// The services whose workloads may call this one: a page of them, each with the answer.
pub(super) fn callers(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let context = context(state)?;
    let asked = asked(query, &context)?;
    let (called, port) = (Peer::of(&context, &asked), first_port(&asked));
    Ok(page(&others(&context, &asked, query), query, |service| {
        let caller = Peer::of(&context, service);
        shown(service, caller.calls(&context, &called, port).shown())
    }))
}

/// The services that this one's workload may call: a page of them, each with the answer.
pub(super) fn callees(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let context = context(state)?;
    let asked = asked(query, &context)?;
    let caller = Peer::of(&context, &asked);
    Ok(page(&others(&context, &asked, query), query, |service| {
        let called = Peer::of(&context, service);
        shown(service, caller.calls(&context, &called, first_port(service)).shown())
    }))
}

fn others<'a>(context: &'a PushContext, of: &Service, query: &Query) -> Vec<&'a Arc<Service>> {
    let searched = text(query, "q");
    let is_other = |s: &&Arc<Service>| s.hostname != of.hostname || s.namespace != of.namespace;
    let all = context.services.all.iter().filter(is_other);
    all.filter(|service| has(searched, &[&service.hostname, &service.namespace])).collect()
}

pub(super) fn first_port(service: &Service) -> u32 {
    service.ports.first().map_or(0, |port| port.port)
}

fn shown(service: &Service, mut call: Value) -> Value {
    call["host"] = (&*service.hostname).into();
    call["namespace"] = (&*service.namespace).into();
    call
}
