//! A client that stayed connected is offered the bytes that a fresh process on the same inputs offers: after edits of every
//! kind of object, for sidecars, gateways and proxyless gRPC, whatever a push knew of its own keys.
//!
//! The pieces are the real ones, without actors and sockets: handlers decide, the registry takes events in, contexts are built
//! incrementally, the server marks its slots. Only the requests that these ask for lead to a publication.

mod documents;
mod families;
mod objects;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{actor, connection::Connection, mesh_generator::MeshGenerator, published::Published, state::XdsState};
use crate::{
    handlers::{
        ConfigHandler, Decide, ObjectHandler, ServiceEntryHandler, ServiceHandler, WorkloadEntryHandler,
        WorkloadInstanceHandler,
    },
    model::{
        Config, ConfigEvent, ConfigKey, ConfigSnapshot, EventKind, Features, Identity, Kind, KindClass, Locality, Mesh,
        Node, PushInputs, PushRequest, Reason, RegistrySnapshot,
    },
    registry::{self, ServiceEntryStore},
    xds::{NameSet, Protocol, ResourceType, Scope, Snapshot, XdsOptions},
};
use objects::{HOSTS, SLOTS, mesh, object};

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime"));

/// The resources of a client: the hash of the bytes, by the client's name, type and resource name.
type Held = BTreeMap<(String, &'static str, String), u128>;

/// A server with connected clients, told of changes as the process tells it.
struct World {
    mesh: Arc<Mesh>,
    objects: BTreeMap<ConfigKey, Arc<Config>>,
    registry: ServiceEntryStore,
    snapshot: RegistrySnapshot,
    state: XdsState,
    clients: Vec<Arc<Connection>>,
    /// Snapshots that the clients were sent last; memo tables keep only held snapshots.
    sent: Vec<Arc<Snapshot>>,
}

impl World {
    fn new(mesh: Arc<Mesh>, objects: BTreeMap<ConfigKey, Arc<Config>>) -> Self {
        let configs = ConfigSnapshot::of(objects.values().cloned());
        let mut registry = ServiceEntryStore::of(mesh.clone(), Arc::new(Features::default()), &configs);
        let state = XdsState::new(Arc::new(MeshGenerator::default()), XdsOptions::default());
        let snapshot = registry.snapshot();
        let mut world = Self { mesh, objects, registry, snapshot, state, clients: Vec::new(), sent: Vec::new() };
        world.publish(&PushRequest::everything(Reason::Global));
        let connect = |(node, identity): (Node, Option<Identity>)| {
            world.state.connect(Arc::new(node), identity, false, None, Protocol::Delta).expect("something is published")
        };
        world.clients = nodes().into_iter().map(connect).collect();
        world.read();
        world
    }

    /// Takes objects in, or out, as one batch; gives the request to push that the process would come to.
    fn change(&mut self, changes: &[(ConfigKey, Option<Arc<Config>>)]) -> Option<PushRequest> {
        let mut events = Vec::new();
        for (key, new) in changes {
            let old = match new {
                Some(new) => self.objects.insert(key.clone(), new.clone()),
                None => self.objects.remove(key),
            };
            let (kind, current) = match (&old, new) {
                (None, None) => continue,
                (None, Some(new)) => (EventKind::Add, new),
                (Some(old), None) => (EventKind::Delete, old),
                (Some(old), Some(new)) if old.stamp == new.stamp => continue,
                (Some(_), Some(new)) => (EventKind::Update, new),
            };
            let current = current.clone();
            events.push(ConfigEvent { old, current, kind });
        }
        let mut request = None;
        decide(&ConfigHandler, &events, &mut request);
        decide(&ServiceHandler, &events, &mut request);
        decide(&WorkloadEntryHandler, &events, &mut request);
        decide(&ServiceEntryHandler, &events, &mut request);
        decide(&WorkloadInstanceHandler, &events, &mut request);
        decide(&ObjectHandler, &events, &mut request);
        let updates = self.registry.apply_all(&events);
        let before = std::mem::replace(&mut self.snapshot, self.registry.snapshot());
        merge(&mut request, registry::push_of(&before, &self.snapshot, updates));
        request
    }

    fn set_mesh(&mut self, mesh: Arc<Mesh>) -> PushRequest {
        let configs = ConfigSnapshot::of(self.objects.values().cloned());
        self.registry = ServiceEntryStore::of(mesh.clone(), Arc::new(Features::default()), &configs);
        self.snapshot = self.registry.snapshot();
        self.mesh = mesh;
        PushRequest::everything(Reason::Global)
    }

    fn publish(&mut self, request: &PushRequest) {
        let configs = ConfigSnapshot::of(self.objects.values().cloned());
        let (mesh, registry) = (self.mesh.clone(), self.snapshot.clone());
        actor::publish(
            &self.state,
            PushInputs { mesh, features: Arc::default(), configs, registry, ..PushInputs::default() },
            request,
            None,
        );
        self.read();
    }

    /// The resources that all clients are offered now.
    fn read(&mut self) -> Held {
        let (mut held, mut sent) = (Held::new(), Vec::new());
        for client in &self.clients {
            for (kind, scope) in asked(client) {
                let current = || -> Arc<Published> { self.state.current().expect("something is published") };
                let view = client.current_view();
                let snapshot = RUNTIME.block_on(view.snapshot(kind, &scope, self.state.builder(), &current));
                let snapshot = snapshot.expect("a snapshot");
                for resource in snapshot.iter() {
                    let key = (client.node.id.to_string(), kind.short(), resource.name().to_string());
                    held.insert(key, resource.hash());
                }
                sent.push(snapshot);
            }
        }
        self.sent = sent;
        held
    }

    /// The resources that clients of a fresh process on the same inputs are offered.
    fn fresh(&self) -> Held {
        Self::new(self.mesh.clone(), self.objects.clone()).read()
    }

    fn differences(&mut self) -> Vec<String> {
        let (stayed, fresh) = (self.read(), self.fresh());
        let names: BTreeSet<_> = stayed.keys().chain(fresh.keys()).collect();
        let told = |key: &&(String, &'static str, String)| {
            let what = match (stayed.get(*key), fresh.get(*key)) {
                (a, b) if a == b => return None,
                (Some(_), Some(_)) => "differs",
                (Some(_), None) => "should be gone",
                (None, _) => "is missing",
            };
            Some(format!("{}: {} {} {what}", key.0, key.1, key.2))
        };
        names.iter().filter_map(told).collect()
    }
}

fn decide<D: Decide>(handler: &D, events: &[ConfigEvent], request: &mut Option<PushRequest>) {
    let wanted: Vec<_> = events.iter().filter(|e| D::wants(e.current.kind())).cloned().collect();
    if !wanted.is_empty() {
        merge(request, handler.decide(&wanted).push);
    }
}

fn merge(all: &mut Option<PushRequest>, next: Option<PushRequest>) {
    match (all.as_mut(), next) {
        (Some(all), Some(next)) => all.merge(next),
        (None, next) => *all = next,
        (_, None) => {}
    }
}

/// Four sidecars, a gateway, a proxyless gRPC client and a reader of config objects.
fn nodes() -> Vec<(Node, Option<Identity>)> {
    let node = |kind: &str, ip: &str, name: &str, namespace: &str, metadata: Value| {
        let id = format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local");
        let locality = Locality { region: "r".into(), zone: "z1".into(), ..Locality::default() };
        Node::from_parts(&id, metadata, locality).expect("a node")
    };
    let identity = Identity::parse("spiffe://cluster.local/ns/edge/sa/gw");
    vec![
        (
            node(
                "sidecar",
                "10.1.0.1",
                "one",
                "shop",
                json!({"LABELS": {"app": "one", "version": "v1"}, "ENABLE_SELF_DISCOVERY": "true"}),
            ),
            None,
        ),
        (node("sidecar", "10.1.0.2", "two", "shop", json!({"LABELS": {"app": "two"}, "DNS_CAPTURE": "true"})), None),
        (
            node("sidecar", "10.1.0.3", "three", "bank", json!({"ISTIO_VERSION": "1.28.0", "LABELS": {"app": "one"}})),
            None,
        ),
        (node("sidecar", "10.1.0.6", "six", "bank", json!({"INTERCEPTION_MODE": "NONE"})), None),
        (node("router", "10.1.0.4", "gw", "edge", json!({"LABELS": {"istio": "gw"}})), identity),
        (node("sidecar", "10.1.0.5", "grpc", "shop", json!({"GENERATOR": "grpc", "LABELS": {"app": "one"}})), None),
        (node("sidecar", "10.1.0.7", "api", "edge", json!({"GENERATOR": "api"})), None),
    ]
}

/// The scopes that a client asks for: always the same, so that memo tables are used for as long as they can be.
fn asked(client: &Connection) -> Vec<(ResourceType, Scope)> {
    let named = |names: Vec<String>| Scope::of(NameSet::of(names.iter().map(|n| Arc::from(n.as_str()))));
    let clusters = || -> Vec<String> {
        let ports = HOSTS.iter().flat_map(|h| [80, 90].map(|port| (h, port)));
        ports.flat_map(|(h, port)| ["", "v1", "v2"].map(|s| format!("outbound|{port}|{s}|{h}"))).collect()
    };
    let of_view = client.current_view();
    match &*client.node.metadata.generator {
        "api" => {
            // Changes of Kubernetes' own objects are announced with the services made of them, not one by one.
            let written = |kind: Kind| matches!(kind.class(), KindClass::Istio | KindClass::GatewayApi);
            let is_told = |k: &ResourceType| match k {
                ResourceType::Objects(objects) => objects.kind().is_none_or(written),
                _ => false,
            };
            of_view.served.iter().filter(is_told).map(|k| (k, Scope::all())).collect()
        }
        "grpc" => vec![
            (ResourceType::Listener, named(HOSTS.iter().map(|h| format!("{h}:80")).chain(grpc_server()).collect())),
            (ResourceType::Route, named(clusters())),
            (ResourceType::Cluster, named(clusters())),
            (ResourceType::Endpoint, named(clusters())),
        ],
        _ => {
            let routes = ["80", "90", "8080", "http.80", "http.8080", "https.443.https.gw.edge"].map(String::from);
            let sniffed = HOSTS.iter().flat_map(|h| [80, 90].map(|port| format!("{h}:{port}")));
            let secrets = ["kubernetes://own", "kubernetes-gateway://edge/own", "kubernetes-gateway://bank/far"];
            vec![
                (ResourceType::Cluster, Scope::all()),
                (ResourceType::Listener, Scope::all()),
                (ResourceType::Endpoint, named(clusters().into_iter().chain(["local_cluster".to_string()]).collect())),
                (ResourceType::Route, named(routes.into_iter().chain(sniffed).collect())),
                (ResourceType::Secret, named(secrets.map(String::from).to_vec())),
                (ResourceType::NameTable, Scope::all()),
                (ResourceType::ProxyConfig, Scope::all()),
            ]
        }
    }
}

fn grpc_server() -> Option<String> {
    Some("xds.istio.io/grpc/lds/inbound/[::]:80".to_string())
}

/// One step: objects that change (a place and its new content), the number of them that the push which reads them all
/// knows of, and now and then other mesh settings.
#[derive(Debug, Clone)]
struct Step {
    edits: Vec<(usize, u8)>,
    known: usize,
    mesh: Option<u8>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let edits = prop::collection::vec((0..SLOTS, 0u8..8), 1..4);
    let mesh = prop_oneof![12 => Just(None), 1 => (0u8..4).prop_map(Some)];
    let step = (edits, 0usize..4, mesh).prop_map(|(edits, known, mesh)| Step { edits, known, mesh });
    prop::collection::vec(step, 1..10)
}

fn play(begin: &[u8], steps: &[Step]) -> Result<(), TestCaseError> {
    let first = begin.iter().enumerate().filter_map(|(slot, variant)| object(slot, *variant).1);
    let mut world = World::new(mesh(0), first.map(|c| (c.key(), c)).collect());
    for (number, step) in steps.iter().enumerate() {
        let mut pending = step.mesh.map(|m| world.set_mesh(mesh(m)));
        let mut late = None;
        for (place, (slot, variant)) in step.edits.iter().enumerate() {
            let request = world.change(&[object(*slot, *variant)]);
            // A push reads the inputs as they stand, and may know of fewer changes than it reads.
            merge(if place < step.known { &mut pending } else { &mut late }, request);
        }
        pending.into_iter().chain(late).for_each(|request| world.publish(&request));
        let differences = world.differences();
        prop_assert!(differences.is_empty(), "after step {number}, {step:?}: {differences:#?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn connected_clients_are_offered_the_bytes_of_a_fresh_process(
        begin in prop::collection::vec(0u8..8, SLOTS),
        steps in steps(),
    ) {
        play(&begin, &steps)?;
    }
}

/// The number of random worlds; `PILOTHOUSE_INCREMENTAL_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PILOTHOUSE_INCREMENTAL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24)
}
