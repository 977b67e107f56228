//! The hot parts one by one: `cargo bench --features testing`. README.md in this folder says how the whole server is measured.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench fails by panicking")]

mod connections;
mod mesh;

use std::{
    cell::LazyCell,
    hint::black_box,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use mesh::{World, sidecar};
use pilothouse::{
    discovery::{Claim, Generator, MeshGenerator, Part, Slot},
    generate::check::violations,
    identity::{Authority, CertificateRequest, authority::new_root},
    model::{Features, Identity, Mesh, Origin},
    proto::{envoy::service::discovery::v3::DiscoveryRequest, wkt::Any},
    push::{PushContext, context::PushInputs},
    registry::ServiceEntryStore,
    sources::{Change, SourceBatch, file::parse::parse_text},
    store::{
        Aggregate,
        last_good::{decode, encode},
    },
    xds::{
        Backoff, Block, NameSet, Protocol, Resource, ResourceType, Scope, Session, Snapshot, Updates,
        wire::request::Request,
    },
};
use prost::Message;

const THOUSAND: usize = 1_000;
const TEN_THOUSAND: usize = 10_000;

fn slot(context: &PushContext, part: Part, namespace: usize) -> Slot {
    MeshGenerator::default().audience(context, &sidecar(namespace), Claim::default()).slots[part.index()].clone()
}

fn names(resources: &[Arc<Resource>]) -> Vec<Arc<str>> {
    resources.iter().map(|r| r.name().clone()).filter(|n| n.starts_with("outbound|")).collect()
}

/// From text to the store's events.
fn reading(c: &mut Criterion) {
    let text = mesh::yaml(THOUSAND);
    let path = Arc::new(PathBuf::from("mesh.yaml"));
    c.bench_function("yaml: 1,200 documents", |b| b.iter(|| parse_text(&Origin::default(), &path, black_box(&text))));
    let objects = mesh::objects(&mesh::yaml(TEN_THOUSAND));
    let source: Arc<str> = "file:mesh".into();
    c.bench_function("store: all of 12,000 objects", |b| {
        b.iter_batched(
            || SourceBatch { source: source.clone(), change: Change::Full(objects.clone()) },
            |batch| Aggregate::new(std::slice::from_ref(&source)).apply(batch),
            BatchSize::LargeInput,
        );
    });
    let saved = encode(&source, 0, &objects[..TEN_THOUSAND]).unwrap();
    c.bench_function("store: 10,000 saved objects", |b| b.iter(|| decode(black_box(&saved)).unwrap()));
}

/// From objects to services and endpoints.
fn registry(c: &mut Criterion) {
    let mut world = World::of(TEN_THOUSAND);
    let (mesh, features) = (Arc::new(Mesh::default()), Arc::new(Features::default()));
    c.bench_function("registry: all of 10,000 services", |b| {
        b.iter(|| ServiceEntryStore::of(mesh.clone(), features.clone(), &world.configs).snapshot());
    });
    let mut state = 1;
    world.move_endpoint(state);
    c.bench_function("registry: one endpoint of 10,000 services", |b| {
        b.iter(|| {
            state = state % 200 + 1;
            world.move_endpoint(state)
        });
    });
}

/// From configs and services to the context that generation reads.
fn context(c: &mut Criterion) {
    let mut world = World::of(TEN_THOUSAND);
    let inputs = world.inputs();
    c.bench_function("context: all of 10,000 services", |b| {
        b.iter_batched(|| inputs.clone(), PushContext::build, BatchSize::LargeInput);
    });
    let before = PushContext::build(inputs);
    let shifted = world.shifted(60);
    c.bench_function("context: next after a weight, 10,000 services", |b| {
        b.iter_batched(|| shifted.clone(), |inputs| before.next(inputs), BatchSize::LargeInput);
    });
    let view = slot(&before, Part::Routing, 1).view;
    c.bench_function("context: scope of a namespace, 10,000 services", |b| {
        b.iter_batched(|| before.next(shifted.clone()), |context| context.scope(&view), BatchSize::LargeInput);
    });
}

/// From the context to bytes.
fn generation(c: &mut Criterion) {
    let context = World::of(THOUSAND).context();
    let (routing, other) = (slot(&context, Part::Routing, 1), slot(&context, Part::Routing, 2));
    let outbound = slot(&context, Part::Outbound, 1);
    let warm = MeshGenerator::default();
    let clusters = warm.list(&context, &routing, ResourceType::Cluster);
    let names = names(&clusters);
    let _endpoints = warm.named(&context, &routing, ResourceType::Endpoint, &names);
    c.bench_function("clusters: first view, 1,000 services", |b| {
        b.iter_batched(
            MeshGenerator::default,
            |fresh| fresh.list(&context, &routing, ResourceType::Cluster),
            BatchSize::LargeInput,
        );
    });
    c.bench_function("clusters: another view, 1,000 services", |b| {
        b.iter(|| warm.list(&context, &other, ResourceType::Cluster));
    });
    c.bench_function("endpoints: first view, 1,000 services", |b| {
        b.iter_batched(
            MeshGenerator::default,
            |fresh| fresh.named(&context, &routing, ResourceType::Endpoint, &names),
            BatchSize::LargeInput,
        );
    });
    c.bench_function("endpoints: another view, 1,000 services", |b| {
        b.iter(|| warm.named(&context, &other, ResourceType::Endpoint, &names));
    });
    c.bench_function("listeners: outbound of a view, 1,000 services", |b| {
        b.iter(|| warm.list(&context, &outbound, ResourceType::Listener));
    });
    let ports: Vec<Arc<str>> = ["80", "8080", "9080"].map(Arc::from).to_vec();
    c.bench_function("routes: first view, 1,000 services", |b| {
        b.iter_batched(
            MeshGenerator::default,
            |fresh| fresh.named(&context, &routing, ResourceType::Route, &ports),
            BatchSize::LargeInput,
        );
    });
    c.bench_function("routes: another view, 1,000 services", |b| {
        b.iter(|| warm.named(&context, &other, ResourceType::Route, &ports));
    });
}

/// A mesh without EnvoyFilters or with fifty, and the generator of a server that has given a view its resources.
struct Patched {
    inputs: PushInputs,
    shifted: PushInputs,
    context: PushContext,
    warm: MeshGenerator,
    _held: [Vec<Arc<Resource>>; 3],
}

impl Patched {
    fn of(filters: usize) -> Self {
        let mut world = World::of(THOUSAND);
        world.add(mesh::envoy_filters(filters));
        let (inputs, shifted) = (world.inputs(), world.shifted(60));
        let (context, warm) = (PushContext::build(inputs.clone()), MeshGenerator::default());
        let held = Self::view(&warm, &context, 1);
        Self { inputs, shifted, context, warm, _held: held }
    }

    /// Clusters, outbound listeners and routes of a view.
    fn view(generator: &MeshGenerator, context: &PushContext, namespace: usize) -> [Vec<Arc<Resource>>; 3] {
        let [routing, outbound] = [Part::Routing, Part::Outbound].map(|part| slot(context, part, namespace));
        let ports: Vec<Arc<str>> = ["80", "8080", "9080"].map(Arc::from).to_vec();
        [
            generator.list(context, &routing, ResourceType::Cluster),
            generator.list(context, &outbound, ResourceType::Listener),
            generator.named(context, &routing, ResourceType::Route, &ports),
        ]
    }
}

/// The cost of EnvoyFilters: each row is that of fifty, and its line below compares the CPU time with that of none, taken in turn.
fn patches(c: &mut Criterion) {
    type Work = fn(&Patched);
    let rows: [(&str, Work); 4] = [
        ("context", |mesh| drop(PushContext::build(mesh.inputs.clone()))),
        ("first view", |mesh| drop(Patched::view(&MeshGenerator::default(), &mesh.context, 1))),
        ("another view", |mesh| drop(Patched::view(&mesh.warm, &mesh.context, 2))),
        ("a weight, with its context", |mesh| {
            drop(Patched::view(&mesh.warm, &mesh.context.next(mesh.shifted.clone()), 1));
        }),
    ];
    let meshes = LazyCell::new(|| [0, 50].map(Patched::of));
    for (row, work) in rows {
        let mut spent = [Duration::ZERO; 2];
        c.bench_function(&format!("patches: {row}, 1,000 services, 50 EnvoyFilters"), |b| {
            b.iter_custom(|times| {
                let mut wall = Duration::ZERO;
                for (mesh, spent) in meshes.iter().zip(&mut spent) {
                    let (cpu, start) = (connections::cpu_of("self"), Instant::now());
                    (0..times).for_each(|_| work(black_box(mesh)));
                    wall = start.elapsed();
                    *spent += connections::cpu_of("self") - cpu;
                }
                wall
            });
        });
        let [without, with] = spent.map(|spent| spent.as_secs_f64());
        if without > 0.0 {
            println!("patches: {row}: 50 EnvoyFilters cost {:.2} times none in CPU time", with / without);
        }
    }
}

/// The cost that the check for refusals by Envoy adds to generation.
fn checking(c: &mut Criterion) {
    let context = World::of(THOUSAND).context();
    let (routing, outbound) = (slot(&context, Part::Routing, 1), slot(&context, Part::Outbound, 1));
    let generator = MeshGenerator::default();
    let clusters = generator.list(&context, &routing, ResourceType::Cluster);
    let ports: Vec<Arc<str>> = ["80", "8080", "9080"].map(Arc::from).to_vec();
    for (what, made) in [
        ("clusters", clusters.clone()),
        ("endpoints", generator.named(&context, &routing, ResourceType::Endpoint, &names(&clusters))),
        ("listeners", generator.list(&context, &outbound, ResourceType::Listener)),
        ("routes", generator.named(&context, &routing, ResourceType::Route, &ports)),
    ] {
        let any = |resource: &Arc<Resource>| Any::decode(resource.any().clone()).unwrap();
        let encoded: Vec<Any> = made.iter().map(any).collect();
        c.bench_function(&format!("checks: {what} of a view, 1,000 services"), |b| {
            b.iter(|| {
                let found = |any: &Any| violations(any.type_url.rsplit('/').next().unwrap_or_default(), &any.value);
                assert!(encoded.iter().all(|any| found(any).is_empty()));
            });
        });
    }
}

/// A request in two parts, which make one when they follow each other.
fn subscription(kind: ResourceType, names: &NameSet) -> Vec<u8> {
    let resource_names = names.names().iter().map(ToString::to_string).collect();
    DiscoveryRequest { type_url: kind.url().to_string(), resource_names, ..Default::default() }.encode_to_vec()
}

fn nonce(nonce: &str) -> Vec<u8> {
    DiscoveryRequest { response_nonce: nonce.to_string(), ..Default::default() }.encode_to_vec()
}

/// From a snapshot to the responses for a thousand clients, and their answers.
fn clients(c: &mut Criterion) {
    let context = World::of(THOUSAND).context();
    let routing = slot(&context, Part::Routing, 1);
    let generator = MeshGenerator::default();
    let names = names(&generator.list(&context, &routing, ResourceType::Cluster));
    let endpoints = generator.named(&context, &routing, ResourceType::Endpoint, &names);
    let kind = ResourceType::Endpoint;
    let set = NameSet::of(names);
    let snapshot = |value: &str| {
        let changed = Arc::new(Resource::of_parts(set.names()[0].clone(), kind.url(), value.as_bytes()));
        let resources = std::iter::once(changed).chain(endpoints.iter().skip(1).cloned());
        Snapshot::new(vec![Block::build(resources, None)], Scope::of(set.clone()))
    };
    let states = [snapshot("one"), snapshot("two")];
    let updates = Updates::default();
    let first = subscription(kind, &set);
    let mut sessions: Vec<Session> = (0..1_000)
        .map(|i| {
            let mut session = Session::new(Protocol::Sotw, i, Backoff::default(), Instant::now());
            session.receive(kind, &Request::sotw(&first).unwrap()).unwrap();
            session
        })
        .collect();
    let mut turn = 0;
    c.bench_function("clients: one endpoint change to 1,000 clients, SotW, with their ACKs", |b| {
        b.iter(|| {
            turn += 1;
            for session in &mut sessions {
                let Some(response) = session.offer(kind, &states[turn % 2], &updates) else { continue };
                black_box(response.frames());
                let ack = [first.as_slice(), &nonce(&response.nonce)].concat();
                session.receive(kind, &Request::sotw(&ack).unwrap()).unwrap();
            }
        });
    });
}

/// Certificates of workloads: with keys of our own, and for requests of clients.
fn certificates(c: &mut Criterion) {
    let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
    let authority = Authority::new(&new_root("cluster.local", now, 10 * day).unwrap(), now).unwrap();
    let identity = |n: usize| Identity::parse(&format!("spiffe://cluster.local/ns/ns-{n}/sa/default")).unwrap();
    let identities: Vec<Identity> = (0..THOUSAND).map(identity).collect();
    c.bench_function("certificates: 1,000 issued, ECDSA P-256", |b| {
        b.iter(|| identities.iter().all(|id| authority.issue(black_box(id), day, now).is_ok()));
    });
    let request = CertificateRequest::new().unwrap();
    c.bench_function("certificates: 1,000 requests signed, ECDSA P-256", |b| {
        b.iter(|| identities.iter().all(|id| authority.sign(black_box(request.text()), id, day, now).is_ok()));
    });
}

fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
}

criterion_group!(name = benches; config = criterion(); targets = reading, registry, context, generation, patches, checking, clients, certificates, connections::rows);
criterion_main!(benches);
