//! The graph of services: calls that an object states. A route sends the calls of one host to another, a Gateway lets calls in, a
//! Sidecar names the services that it imports, an ALLOW policy names its callers.
//!
//! A mesh without such objects lets everyone call everyone; drawing that says nothing, so the graph has no such lines. A large mesh is
//! shown around one service.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::{
    calls::fits,
    listing::{Query, text},
    peers::{Peer, named},
    refusal::{Refusal, context},
    service::{asked, endpoints, first_port, kind, restriction},
};
use crate::{
    admin::{
        AdminState,
        describe::workload::{dotted, mode},
    },
    model::{Config, Identity, Kind, Service, host},
    proto::istio::security::v1beta1::{Source, authorization_policy::Action},
    push::{
        PushContext,
        virtual_services::{MESH_GATEWAY, destinations},
    },
};

/// Services of the largest mesh that is drawn as a whole.
const WHOLE: usize = 60;
/// Nodes of a drawing.
const MOST_NODES: usize = 80;
/// Callers that one statement is drawn for.
const MOST_OF_ONE: usize = 20;

/// Services that are searched for those that one policy is for.
const MOST_SEARCHED: usize = 1000;

/// The graph around `?host=&namespace=`, or of the whole mesh where it is small.
pub(super) fn graph(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let context = context(state)?;
    if !text(query, "host").is_empty() {
        let service = asked(query, &context)?;
        let mut draft = Draft::of(&context);
        draft.around(&service);
        return Ok(draft.shown(Some(&service)));
    }
    let services = &context.services.all;
    if services.len() > WHOLE {
        return Ok(json!({"tooLarge": services.len(), "most": WHOLE, "nodes": [], "edges": []}));
    }
    let mut kept = state.dashboard.shared().graph.lock();
    if let Some((of, shown)) = &*kept
        && Arc::ptr_eq(of, &context)
    {
        return Ok(shown.clone());
    }
    let mut draft = Draft::of(&context);
    for service in services {
        draft.node_of(service);
        draft.around(service);
    }
    let shown = draft.shown(None);
    *kept = Some((context.clone(), shown.clone()));
    Ok(shown)
}

/// A statement: the word for it and the object that makes it.
type Statement = (&'static str, Value);

struct Draft<'a> {
    context: &'a PushContext,
    nodes: IndexMap<String, Value>,
    services: BTreeMap<String, Arc<Service>>,
    edges: IndexMap<(String, String), Vec<Statement>>,
    left_out: usize,
}

fn id_of(service: &Service) -> String {
    format!("{}/{}", service.namespace, service.hostname)
}

impl<'a> Draft<'a> {
    fn of(context: &'a PushContext) -> Self {
        Self { context, nodes: IndexMap::new(), services: BTreeMap::new(), edges: IndexMap::new(), left_out: 0 }
    }

    fn node_of(&mut self, service: &Arc<Service>) -> Option<String> {
        let id = id_of(service);
        if self.nodes.contains_key(&id) {
            return Some(id);
        }
        if self.nodes.len() >= MOST_NODES {
            self.left_out += 1;
            return None;
        }
        let peer = Peer::of(self.context, service);
        let (all, healthy, localities) = endpoints(self.context, service);
        let node = json!({
            "id": id, "type": "service", "label": &*service.hostname, "host": &*service.hostname,
            "namespace": &*service.namespace, "kind": kind(service), "external": service.mesh_external,
            "endpoints": all, "healthy": healthy, "localities": localities, "hasProxy": peer.has_proxy(),
            "mutualTls": mode(peer.accepts(self.context)), "restricted": restriction(self.context, &peer),
        });
        self.nodes.insert(id.clone(), node);
        self.services.insert(id.clone(), service.clone());
        Some(id)
    }

    fn other_node(&mut self, sort: &str, label: &str) -> Option<String> {
        let id = format!("{sort} {label}");
        if !self.nodes.contains_key(&id) && self.nodes.len() >= MOST_NODES {
            self.left_out += 1;
            return None;
        }
        self.nodes.entry(id.clone()).or_insert_with(|| json!({"id": id, "type": sort, "label": label}));
        Some(id)
    }

    fn edge(&mut self, from: Option<String>, to: Option<String>, word: &'static str, by: &Config) {
        let (Some(from), Some(to)) = (from, to) else { return };
        if from == to {
            return;
        }
        let statements = self.edges.entry((from, to)).or_default();
        let by = named(by);
        if !statements.iter().any(|(known, of)| *known == word && *of == by) {
            statements.push((word, by));
        }
    }

    /// Adds everything that states a call to or from a service.
    fn around(&mut self, service: &Arc<Service>) {
        let Some(id) = self.node_of(service) else { return };
        self.routes(service, &id);
        let peer = Peer::of(self.context, service);
        self.named_callers(&peer, &id);
        self.importers(service, &id);
        self.imports(&peer, &id);
        self.names_it_as_caller(&peer, &id);
    }

    fn routes(&mut self, service: &Arc<Service>, id: &str) {
        let context = self.context;
        for config in &context.virtual_services.all {
            let Some(spec) = config.virtual_service() else { continue };
            let targets = destinations(spec, "");
            let in_mesh = spec.gateways.is_empty() || spec.gateways.iter().any(|gateway| gateway == MESH_GATEWAY);
            let is_source = in_mesh && spec.hosts.iter().any(|name| host::matches(name, &service.hostname));
            if is_source {
                for target in targets.keys().filter_map(|target| context.services.of_host(target).first()) {
                    let to = self.node_of(target);
                    self.edge(Some(id.to_string()), to, "route", config);
                }
            }
            if !targets.contains_key(&*service.hostname) {
                continue;
            }
            for from in spec.hosts.iter().filter(|_| in_mesh).filter_map(|name| context.services.of_host(name).first())
            {
                let from = self.node_of(from);
                self.edge(from, Some(id.to_string()), "route", config);
            }
            for gateway in spec.gateways.iter().filter(|gateway| *gateway != MESH_GATEWAY) {
                let from = self.other_node("gateway", &dotted(gateway));
                self.edge(from, Some(id.to_string()), "gateway", config);
            }
        }
    }

    /// The callers that ALLOW policies of the service name.
    fn named_callers(&mut self, called: &Peer, id: &str) {
        if !called.has_proxy() {
            return;
        }
        for config in called.policies(self.context).allow {
            let rules = config.authorization_policy().into_iter().flat_map(|policy| &policy.rules);
            let sources: Vec<&Source> =
                rules.flat_map(|rule| &rule.from).filter_map(|from| from.source.as_ref()).collect();
            for source in sources {
                for from in self.callers_of(source, &config.meta.namespace) {
                    self.edge(Some(from), Some(id.to_string()), "policy", &config);
                }
            }
        }
    }

    /// The nodes of the callers that a source names.
    fn callers_of(&mut self, source: &Source, namespace: &str) -> Vec<String> {
        let mut nodes = Vec::new();
        if source.principals.is_empty() && source.service_accounts.is_empty() {
            for named in &source.namespaces {
                nodes.extend(self.other_node("namespace", named));
            }
            return nodes;
        }
        let mut found: Vec<Arc<Service>> = Vec::new();
        for service in &self.context.services.all {
            if found.len() > MOST_OF_ONE {
                break;
            }
            if is_named(Peer::identity_of(self.context, service).as_ref(), source, namespace) {
                found.push(service.clone());
            }
        }
        self.left_out += found.len().saturating_sub(MOST_OF_ONE);
        for service in found.iter().take(MOST_OF_ONE) {
            nodes.extend(self.node_of(service));
        }
        if found.is_empty() {
            for named in source.principals.iter().chain(&source.service_accounts) {
                nodes.extend(self.other_node("principal", named));
            }
        }
        nodes
    }

    /// Services whose Sidecar names this one.
    fn importers(&mut self, service: &Arc<Service>, id: &str) {
        let context = self.context;
        for config in context.inputs.configs.list(Kind::Sidecar) {
            if !imported(config).any(|(namespace, name)| is_meant(config, namespace, name, service)) {
                continue;
            }
            let of_namespace = context.services.all.iter().filter(|s| s.namespace == config.meta.namespace);
            for from in of_namespace.take(MOST_OF_ONE) {
                let peer = Peer::of(context, from);
                let is_its = peer
                    .view()
                    .and_then(|view| context.sidecars.sidecar_of(view))
                    .is_some_and(|sidecar| Arc::ptr_eq(sidecar, config));
                if is_its {
                    let from = self.node_of(from);
                    self.edge(from, Some(id.to_string()), "sidecar", config);
                }
            }
        }
    }

    /// Services that its Sidecar names.
    fn imports(&mut self, peer: &Peer, id: &str) {
        let context = self.context;
        let Some(config) = peer.view().and_then(|view| context.sidecars.sidecar_of(view)).cloned() else { return };
        for (namespace, name) in imported(&config) {
            let meant = context.services.of_host(name).iter().find(|s| is_meant(&config, namespace, name, s));
            if let Some(service) = meant {
                let to = self.node_of(service);
                self.edge(Some(id.to_string()), to, "sidecar", &config);
            }
        }
    }

    /// Services whose ALLOW policies name it by its identity.
    fn names_it_as_caller(&mut self, caller: &Peer, id: &str) {
        let (context, identity) = (self.context, caller.identity());
        for config in context.inputs.configs.list(Kind::AuthorizationPolicy) {
            let Some(policy) = config.authorization_policy().filter(|policy| policy.action() == Action::Allow) else {
                continue;
            };
            let mut sources = policy.rules.iter().flat_map(|rule| &rule.from).filter_map(|from| from.source.as_ref());
            if !sources.any(|source| is_named(identity.as_ref(), source, &config.meta.namespace)) {
                continue;
            }
            let root = context.mesh().config.root_namespace.as_str();
            let is_near = |s: &&Arc<Service>| s.namespace == config.meta.namespace || *config.meta.namespace == *root;
            let mut drawn = 0;
            for service in context.services.all.iter().filter(is_near).take(MOST_SEARCHED) {
                let called = Peer::of(context, service);
                if called.has_proxy() && called.policies(context).allow.iter().any(|known| Arc::ptr_eq(known, config)) {
                    drawn += 1;
                    if drawn > MOST_OF_ONE {
                        self.left_out += 1;
                        break;
                    }
                    let to = self.node_of(service);
                    self.edge(Some(id.to_string()), to, "policy", config);
                }
            }
        }
    }

    fn shown(self, center: Option<&Arc<Service>>) -> Value {
        let mut peers: BTreeMap<&str, Peer> = BTreeMap::new();
        for (id, service) in &self.services {
            peers.insert(id, Peer::of(self.context, service));
        }
        let edge = |((from, to), statements): (&(String, String), &Vec<Statement>)| {
            let call = peers.get(from.as_str()).zip(peers.get(to.as_str()));
            let call =
                call.map(|(caller, called)| caller.calls(self.context, called, first_port(&called.service)).shown());
            let said: Vec<Value> = statements.iter().map(|(word, by)| json!({"word": word, "by": by})).collect();
            json!({"from": from, "to": to, "statements": said, "call": call})
        };
        json!({
            "center": center.map(|service| id_of(service)),
            "nodes": self.nodes.values().collect::<Vec<_>>(),
            "edges": self.edges.iter().map(edge).collect::<Vec<_>>(),
            "leftOut": self.left_out,
        })
    }
}

/// Whether a source names a workload by its certificate's identity.
fn is_named(identity: Option<&Identity>, source: &Source, namespace: &str) -> bool {
    let Some(identity) = identity else { return false };
    let path = format!("/ns/{}/sa/{}", identity.namespace, identity.service_account);
    let principal = |pattern: &String| {
        pattern != "*"
            && (fits(pattern, &format!("{}{path}", identity.trust_domain))
                || fits(pattern, &format!("cluster.local{path}")))
    };
    let account = |pattern: &String| match pattern.split_once('/') {
        Some((of, account)) => *identity.namespace == *of && *identity.service_account == *account,
        None => *identity.namespace == *namespace && *identity.service_account == **pattern,
    };
    source.principals.iter().any(principal) || source.service_accounts.iter().any(account)
}

/// The hosts that a Sidecar imports by their whole names, each with its namespace as written.
fn imported(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let listeners = config.sidecar().into_iter().flat_map(|sidecar| &sidecar.egress);
    let hosts = listeners.flat_map(|listener| &listener.hosts).filter_map(|host| host.split_once('/'));
    hosts.filter(|(_, name)| !name.starts_with('*'))
}

fn is_meant(config: &Config, namespace: &str, name: &str, service: &Service) -> bool {
    let is_there = match namespace {
        "*" => true,
        "." => service.namespace == config.meta.namespace,
        named => *service.namespace == *named,
    };
    is_there && *service.hostname == *name
}
