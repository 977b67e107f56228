//! Valid objects that Envoy would refuse: found by generating what a stock Envoy would be sent for them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use serde_json::json;

use crate::{
    generate::{
        check::{self, Refusal},
        cluster::OutboundPlan,
        endpoint::{EndpointInputs, EndpointPlan},
        listener,
        route::{self, VirtualHostMemo},
    },
    model::{Config, ConfigKey, ConfigSnapshot, Features, Kind, Locality, Mesh, Node},
    push::{ProxyView, PushContext, context::PushInputs},
    registry::ServiceEntryStore,
    sources::Warned,
};

/// A warning for each object of which Envoy would refuse something.
pub(super) fn warnings(configs: &[Arc<Config>]) -> Vec<Warned> {
    let Some(context) = context(configs) else { return Vec::new() };
    let mut refused: BTreeSet<Refusal> = BTreeSet::new();
    let of_kind = |kind: Kind| configs.iter().filter(move |c| c.kind() == kind);
    // Those among them that were translated from Gateway API and Ingress, too.
    for config in context.inputs.configs.list(Kind::VirtualService) {
        refused.extend(route::refusals(config, context.features()));
    }
    let generated_from =
        [Kind::VirtualService, Kind::DestinationRule, Kind::ServiceEntry, Kind::Sidecar, Kind::Service];
    let with_resources = configs.iter().filter(|c| generated_from.contains(&c.kind()));
    let namespaces: BTreeSet<&str> = with_resources.map(|c| &*c.meta.namespace).collect();
    let mut sidecars = Sidecars { context: &context, seen: HashSet::new(), hosts: VirtualHostMemo::default() };
    for namespace in namespaces {
        if let Some(node) = node("sidecar", namespace, &json!({})) {
            refused.extend(sidecars.refusals(&context.view_of(&node)));
        }
    }
    for config in of_kind(Kind::Gateway) {
        let selector = config.gateway().map(|gateway| json!(gateway.selector)).unwrap_or_default();
        let Some(node) = node("router", &config.meta.namespace, &json!({ "LABELS": selector })) else { continue };
        let built = listener::gateway(&context, &context.view_of(&node));
        refused.extend(built.into_iter().flat_map(|listener| check::listener(listener, |_| Some(config.key())).1));
    }
    // One warning for each object: a fault shows at each port and for each proxy.
    let mut by_object: BTreeMap<ConfigKey, Vec<String>> = BTreeMap::new();
    for Refusal { object, message } in refused {
        if let Some(key) = object {
            by_object.entry(key).or_default().push(message);
        }
    }
    let find = |key: &ConfigKey| configs.iter().find(|c| c.key() == *key);
    by_object.iter().filter_map(|(key, messages)| Some(warning(find(key)?, key, messages.first()?))).collect()
}

/// Checks the outbound resources of sidecars. What several of them have in common is checked once.
struct Sidecars<'a> {
    context: &'a PushContext,
    /// Keys of clusters.
    seen: HashSet<u128>,
    hosts: VirtualHostMemo,
}

impl Sidecars<'_> {
    /// What would be refused of one.
    fn refusals(&mut self, own: &ProxyView) -> Vec<Refusal> {
        let context = self.context;
        let (routing, outbound) = (context.routing_view(own), context.outbound_view(own));
        let plan = OutboundPlan::of(context, &routing);
        let endpoints = EndpointPlan::of(context, &routing);
        let mut refused = Vec::new();
        for inputs in plan.inputs() {
            if self.seen.insert(inputs.key()) {
                refused.extend(inputs.checked().err().map(|refusal| *refusal));
                let check = |i: &EndpointInputs<'_>| check::load_assignment(i.load_assignment(), || i.object()).refused;
                refused.extend(endpoints.with(&inputs.name(), check).into_iter().flatten());
            }
        }
        let listeners = listener::sidecar_outbound(context, &outbound);
        let names = listener::route_names(&listeners);
        let routes = route::encoded(context, &routing, &names, &self.hosts);
        refused.extend(routes.into_iter().flat_map(|(_, refused)| refused));
        let object = |names: &[String]| listener::object_of(context, own, "", names);
        refused.extend(listeners.into_iter().flat_map(|listener| check::listener(listener, object).1));
        refused
    }
}

/// The context that a server with default settings would have of these objects.
fn context(configs: &[Arc<Config>]) -> Option<PushContext> {
    let mesh = Arc::new(Mesh::from_values(&json!({}), &json!({}), "cluster.local", "Kubernetes").ok()?);
    let features = Arc::new(Features::default());
    let configs = ConfigSnapshot::of(configs.iter().cloned());
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    Some(PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() }))
}

fn node(kind: &str, namespace: &str, metadata: &serde_json::Value) -> Option<Node> {
    let id = format!("{kind}~127.0.0.1~any.{namespace}~{namespace}.svc.cluster.local");
    Node::from_parts(&id, metadata.clone(), Locality::default()).ok()
}

fn warning(config: &Config, key: &ConfigKey, message: &str) -> Warned {
    Warned {
        file: config.origin.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        line: config.origin.line,
        column: 0,
        kind: key.kind.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        warning: format!("Envoy would refuse a part of it, which is left out: {message}"),
    }
}
