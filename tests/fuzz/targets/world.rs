//! A mesh to generate from, and bytes as choices.

use std::{
    any::type_name,
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use pilothouse::{
    discovery::{Composer, Resources},
    model::{
        Config, ConfigSnapshot, Features, Identity, Kind, Locality, Mesh, Node, Origin, PushInputs, Timestamp, decode,
        validation,
    },
    push::PushContext,
    registry::ServiceEntryStore,
    simulate::{Call, Proxy},
};
use prost::Message;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// Objects of every kind, one a line: together they hold every field of the recorded scenarios' inputs.
const OBJECTS: &str = include_str!("../objects.jsonl");

/// The objects as documents.
pub static DOCUMENTS: LazyLock<Vec<Value>> =
    LazyLock::new(|| OBJECTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect());

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().enable_io().build().unwrap());

/// Bytes of everything that one proxy is sent, for each byte of the objects that it is made from.
const MOST_FOR_A_BYTE: usize = 4096;

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// Bytes as choices; when they are used up, every choice is the first.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub const fn of(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let low = usize::from(self.byte());
        let number = if bound > 256 { low << 8 | usize::from(self.byte()) } else { low };
        number % bound.max(1)
    }

    /// True once in so many times.
    pub fn chance(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// Up to so many of the bytes that are left.
    pub fn rest(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(self.0.len().min(most));
        self.0 = rest;
        head
    }

    /// The bytes that are left.
    pub const fn all(&self) -> &'a [u8] {
        self.0
    }
}

/// Pieces of the bytes, each behind two bytes with its length.
pub fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = data;
    std::iter::from_fn(move || {
        let (head, rest) = left.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*head)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        left = rest;
        Some(piece)
    })
}

/// The object of a document, if it would be taken.
pub fn taken(document: &Value) -> Option<Arc<Config>> {
    let mut config = decode::from_value(document, Origin { source: "fuzz".into(), ..Origin::default() }).ok()?;
    if config.meta.name.is_empty() {
        return None;
    }
    if config.meta.namespace.is_empty() {
        config.meta.namespace = config.kind().namespace("").into();
    }
    if config.meta.creation == Timestamp::default() {
        config.meta.creation = Timestamp(1_735_689_600);
    }
    let valid = validation::validate(&config).is_valid() && validation::admission(config.kind(), document).is_valid();
    valid.then(|| Arc::new(config))
}

/// The inputs of a context of these objects.
pub fn inputs(configs: Vec<Arc<Config>>, mesh: Mesh) -> PushInputs {
    let (mesh, features) = (Arc::new(mesh), Arc::new(Features::default()));
    let configs = ConfigSnapshot::of(configs);
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushInputs { mesh, features, configs, registry, ..PushInputs::default() }
}

/// Proxies of every kind, and their proven identities.
pub fn nodes() -> Vec<(Node, Option<Identity>)> {
    let node = |id: &str, metadata: Value| {
        let node = Node::from_parts(id, metadata, Locality::default()).unwrap();
        let identity = Identity::parse(&format!("spiffe://cluster.local/ns/{}/sa/default", node.namespace));
        (node, identity)
    };
    let sidecar = "sidecar~10.1.0.9~web-0.shop~shop.svc.cluster.local";
    vec![
        node(sidecar, json!({"LABELS": {"app": "web"}, "NAMESPACE": "shop"})),
        node(sidecar, json!({"LABELS": {"app": "web"}, "ISTIO_VERSION": "1.32.0", "DNS_CAPTURE": "true"})),
        node(
            "router~10.1.0.20~edge-0.istio-system~istio-system.svc.cluster.local",
            json!({"LABELS": {"istio": "ingressgateway", "app": "istio-ingressgateway"}}),
        ),
        node("sidecar~10.1.0.9~client-0.shop~shop.svc.cluster.local", json!({"GENERATOR": "grpc"})),
        node(
            "sidecar~10.1.0.1,fd00::9~api-0.shop~shop.svc.cluster.local",
            json!({"LABELS": {"app": "api", "version": "v1"}, "INTERCEPTION_MODE": "TPROXY", "ISTIO_VERSION": "1.32.0"}),
        ),
        node(
            "waypoint~10.1.0.30~way-0.shop~shop.svc.cluster.local",
            json!({"LABELS": {"gateway.networking.k8s.io/gateway-name": "way"}}),
        ),
    ]
}

/// A mesh, and its proxies.
pub struct World {
    pub context: PushContext,
    pub nodes: Vec<(Node, Option<Identity>)>,
    size: usize,
}

impl World {
    pub fn of(configs: Vec<Arc<Config>>, mesh: Mesh, size: usize) -> Self {
        Self::with(PushContext::build(inputs(configs, mesh)), size)
    }

    pub fn with(context: PushContext, size: usize) -> Self {
        Self { context, nodes: nodes(), size }
    }

    /// Everything that a proxy is sent.
    pub fn all(&self, node: &Node, identity: Option<&Identity>, asked: &[String]) -> Resources {
        Composer::new(&self.context, self.context.view_of(node), identity).all(asked).unwrap()
    }

    /// Everything that a proxy is sent: twice the same, well formed, of bounded size.
    pub fn sent(&self, node: &Node, identity: Option<&Identity>) -> Resources {
        let asked: Vec<String> = targets(&self.context);
        let made = self.all(node, identity, &asked);
        assert_eq!(made, self.all(node, identity, &asked), "not the same twice");
        let most = MOST_FOR_A_BYTE * (self.size + node.raw_metadata.to_string().len() + 4096);
        let size = read_back(&made.clusters, |c| &c.name)
            + read_back(&made.endpoints, |e| &e.cluster_name)
            + read_back(&made.listeners, |l| &l.name)
            + read_back(&made.routes, |r| &r.name)
            + read_back(&made.secrets, |s| &s.name);
        assert!(size <= most, "{size} bytes for one proxy, of {} bytes of objects", self.size);
        made
    }

    pub fn serve(&self, node: &Node) {
        self.sent(node, None);
    }

    /// Every proxy.
    pub fn serve_all(&self) {
        for (node, identity) in &self.nodes {
            self.sent(node, identity.as_ref());
        }
    }

    /// Where a call of one of its proxies goes.
    pub fn call(&self, proxy: usize, call: &Call) {
        let (node, identity) = &self.nodes[proxy % self.nodes.len()];
        let made = self.all(node, identity.as_ref(), &[]);
        let routes = made.routes.into_iter().map(|r| (r.name.clone(), r)).collect();
        let proxy = Proxy { listeners: made.listeners, routes };
        let outcome = proxy.call(call);
        assert!(outcome.error.is_some() || !outcome.filter_chain.is_empty() || !outcome.listener.is_empty());
        assert_eq!(outcome, proxy.call(call));
    }
}

/// Demands that each message decodes as itself and that no name is there twice. Returns the encoded size.
fn read_back<M: Message + Default + PartialEq + std::fmt::Debug>(made: &[M], name: fn(&M) -> &String) -> usize {
    let mut names = BTreeSet::new();
    let mut size = 0;
    for message in made {
        assert!(!name(message).is_empty(), "a resource without a name: {message:?}");
        assert!(names.insert(name(message)), "{:?} is there twice: {}", name(message), type_name::<M>());
        let bytes = message.encode_to_vec();
        size += bytes.len();
        assert!(M::decode(bytes.as_slice()).as_ref() == Ok(message), "{:?} does not read back", name(message));
    }
    size
}

/// The listeners that a gRPC client requests: a target for each service, and a server.
fn targets(context: &PushContext) -> Vec<String> {
    // Two services may have one host.
    let services = context.inputs.registry.services.iter().take(8);
    let targets = services.flat_map(|s| s.ports.iter().take(2).map(|p| format!("{}:{}", s.hostname, p.port)));
    let names: BTreeSet<String> = targets.chain(["xds.istio.io/grpc/lds/inbound/0.0.0.0:8080".to_string()]).collect();
    names.into_iter().collect()
}

/// The mesh of all objects.
pub fn fixed() -> &'static World {
    static WORLD: LazyLock<World> = LazyLock::new(|| {
        let mesh = json!({"enablePrometheusMerge": true, "rootNamespace": "istio-system"});
        let mesh = Mesh::from_values(&mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap();
        World::of(DOCUMENTS.iter().filter_map(taken).collect(), mesh, OBJECTS.len())
    });
    &WORLD
}

/// A few objects under these mesh settings.
pub fn serve_with(mesh: Mesh) {
    const EACH: usize = 8;
    static FEW: LazyLock<Vec<Arc<Config>>> =
        LazyLock::new(|| DOCUMENTS.iter().step_by(EACH).filter_map(taken).collect());
    World::of(FEW.clone(), mesh, OBJECTS.len()).serve_all();
}

/// The object kinds of a family.
pub fn is_of(kinds: &[Kind], document: &Value) -> bool {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    Kind::parse(text("apiVersion"), text("kind")).is_some_and(|kind| kinds.contains(&kind))
}
