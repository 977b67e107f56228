//! Invariants in the middle of a publication.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::FutureExt;
use serde_json::json;

use super::*;
use crate::{
    discovery::generator::{Layout, Part, Slot},
    model::{Locality, Reason},
    push::{ProxyView, context::PushInputs},
    runtime::Backoff,
    xds::{NameSet, Protocol, Resource, ResourceType, Scope, Snapshot, TypeSet},
};

/// Gives every node another view with each generation, and counts, in the middle of a publication, the nodes that know theirs.
#[derive(Default)]
struct Moving {
    generation: AtomicU64,
    state: OnceLock<XdsState>,
    /// Connections that were told of a view before its content counted for them.
    early: Mutex<Vec<String>>,
    /// The number of connections with another view that were found in the middle of a publication.
    looks: AtomicU64,
    /// The number of next looks at a node that are overtaken by a publication.
    overtaken: AtomicU64,
}

/// Publishes the next generation.
fn publish(state: &XdsState, generator: &Moving) -> u64 {
    generator.generation.fetch_add(1, Ordering::Relaxed);
    let context = Arc::new(PushContext::build(PushInputs::default()));
    state.publish(context, &PushRequest::everything(Reason::Global))
}

impl Moving {
    fn look(&self) {
        let Some(state) = self.state.get().filter(|state| state.current().is_some()) else { return };
        let version = state.current().unwrap().version;
        let moved = |c: &Arc<Connection>| c.moved_at.load(Ordering::Acquire) == version;
        for connection in state.connections().into_iter().filter(moved) {
            self.looks.fetch_add(1, Ordering::Relaxed);
            if connection.moved.notified().now_or_never().is_some() && state.propagated_version() < version {
                self.early.lock().unwrap().push(connection.id.clone());
            }
        }
    }
}

impl Generator for Moving {
    fn audience(&self, _: &PushContext, node: &Node, claim: Claim<'_>) -> Audience {
        self.look();
        let mut view = ProxyView::of_node(node);
        view.cluster_id = self.generation.load(Ordering::Relaxed).to_string().into();
        let view = Arc::new(view);
        // A publication looks at nodes too, and none begins within another.
        let publications = self.overtaken.swap(0, Ordering::Relaxed);
        if publications > 0 {
            publish(self.state.get().unwrap(), self);
            self.overtaken.store(publications - 1, Ordering::Relaxed);
        }
        Audience::new(view.clone(), view.clone(), view, claim.identity.cloned())
    }

    fn layout(&self, _: &Slot, _: ResourceType) -> Layout {
        Layout { parts: &[], listed: true }
    }

    fn list(&self, _: &PushContext, _: &Slot, _: ResourceType) -> Vec<Arc<Resource>> {
        Vec::new()
    }

    fn named(&self, _: &PushContext, _: &Slot, _: ResourceType, _: &[Arc<str>]) -> Vec<Arc<Resource>> {
        Vec::new()
    }

    fn affects<'a>(&self, _: &Change<'_>, _: &Slot) -> Affected<'a> {
        Affected::whole(TypeSet::ALL)
    }

    fn moves<'a>(&self, _: &'a Change<'_>) -> Cow<'a, MovedNodes> {
        Cow::Owned(MovedNodes::all())
    }
}

fn connect(state: &XdsState, number: u8) -> Arc<Connection> {
    let id = format!("sidecar~10.0.0.{number}~p{number}.a~a.svc.cluster.local");
    let node = Node::from_parts(&id, json!({}), Locality::default()).unwrap();
    state.connect(Arc::new(node), None, false, None, Protocol::Delta).unwrap()
}

/// A stream that takes its view notes the last propagated publication as the one that it was served as of. Were it told of
/// the view before, its client would count as behind that publication for ever.
#[test]
fn a_new_view_is_told_only_once_it_counts() {
    let generator = Arc::new(Moving::default());
    let state = XdsState::new(generator.clone(), XdsOptions::default());
    publish(&state, &generator);
    let connections = [1, 2, 3].map(|number| connect(&state, number));
    let views = connections.each_ref().map(|c| c.view_key());
    assert!(generator.state.set(state.clone()).is_ok());
    let version = publish(&state, &generator);
    assert!(generator.looks.load(Ordering::Relaxed) > 0, "no node had moved when others were looked at");
    assert_eq!(*generator.early.lock().unwrap(), Vec::<String>::new());
    assert_eq!(state.propagated_version(), version);
    for (connection, before) in connections.iter().zip(views) {
        assert_ne!(connection.view_key(), before);
        assert!(connection.moved.notified().now_or_never().is_some(), "its stream is told");
    }
}

/// The first publication comes before the connection is known, so it misses it. The others come while the connection is given
/// the view that it missed: each moves it on, to a view that must not be lost.
#[test]
fn a_client_that_connects_during_publications_has_the_view_of_the_last_one() {
    for publications in 0..4 {
        let generator = Arc::new(Moving::default());
        let state = XdsState::new(generator.clone(), XdsOptions::default());
        assert!(generator.state.set(state.clone()).is_ok());
        publish(&state, &generator);
        generator.overtaken.store(publications, Ordering::Relaxed);
        let connection = connect(&state, 1);
        assert_eq!(state.current().unwrap().version, 1 + publications);
        assert_eq!(connection.moved.notified().now_or_never().is_some(), publications > 0);
        assert_eq!(
            connection.view_key(),
            state.view_of(&connection.node, Claim::default()).unwrap().key,
            "after {publications}"
        );
    }
}

/// A later client is sent the content published before, and says nothing of the duration of that push.
#[test]
fn a_push_counts_the_clients_that_it_was_for() {
    let generator = Arc::new(Moving::default());
    let state = XdsState::new(generator.clone(), XdsOptions::default());
    publish(&state, &generator);
    let _early = [1, 2].map(|number| connect(&state, number));
    publish(&state, &generator);
    let late = connect(&state, 3);
    let targets: Vec<u64> = state.events().iter().map(|e| e.connections).collect();
    assert_eq!(targets, [2, 0], "last one first");
    let record = &state.current().unwrap().record;
    assert!(record.reaches(2) && !record.reaches(late.number));
}

/// Its resources say of which context they are, in two parts. Whenever it is asked whether a part changed, another reader looks
/// up the resources.
#[derive(Default)]
struct Parts {
    generation: AtomicU64,
    looking: OnceLock<(tokio::runtime::Runtime, XdsState, Arc<View>)>,
    /// The last snapshot that was looked up, kept alive here: the table holds weak references.
    last: Mutex<Option<Arc<Snapshot>>>,
}

impl Parts {
    fn held(&self) -> Option<Vec<String>> {
        let (runtime, state, view) = self.looking.get()?;
        let current = || state.current().unwrap();
        let made = runtime.block_on(view.snapshot(ResourceType::Cluster, &Scope::all(), state.builder(), &current));
        let snapshot = made.unwrap();
        let names = snapshot.iter().map(|r| r.name().to_string()).collect();
        *self.last.lock().unwrap() = Some(snapshot);
        Some(names)
    }
}

impl Generator for Parts {
    fn audience(&self, _: &PushContext, node: &Node, claim: Claim<'_>) -> Audience {
        let view = Arc::new(ProxyView::of_node(node));
        Audience::new(view.clone(), view.clone(), view, claim.identity.cloned())
    }

    fn layout(&self, _: &Slot, kind: ResourceType) -> Layout {
        Layout { parts: &[Part::Routing, Part::Own], listed: kind == ResourceType::Cluster }
    }

    fn list(&self, _: &PushContext, slot: &Slot, _: ResourceType) -> Vec<Arc<Resource>> {
        let name = format!("{:?} {}", slot.part, self.generation.load(Ordering::Relaxed));
        vec![Arc::new(Resource::of_parts(name.as_str(), "t/x", b""))]
    }

    fn named(&self, _: &PushContext, slot: &Slot, _: ResourceType, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let own = names.iter().filter(|name| name.starts_with(&format!("{:?}", slot.part)));
        own.map(|name| Arc::new(Resource::of_parts(name.clone(), "t/x", b"named"))).collect()
    }

    fn affects<'a>(&self, _: &Change<'_>, _: &Slot) -> Affected<'a> {
        self.held();
        Affected::whole(TypeSet::MESH)
    }

    fn moves<'a>(&self, _: &'a Change<'_>) -> Cow<'a, MovedNodes> {
        Cow::Owned(MovedNodes::default())
    }
}

/// A publication marks one part after another, and clients ask meanwhile.
#[test]
fn a_look_up_while_parts_are_marked_is_not_final() {
    let generator = Arc::new(Parts::default());
    let state = XdsState::new(generator.clone(), XdsOptions::default());
    let publish = || {
        let generation = generator.generation.fetch_add(1, Ordering::Relaxed) + 1;
        let context = PushContext::build(PushInputs::default());
        state.publish(Arc::new(context), &PushRequest::quiet(Reason::Config));
        vec![format!("Own {generation}"), format!("Routing {generation}")]
    };
    publish();
    let view = connect(&state, 1).current_view();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    assert!(generator.looking.set((runtime, state.clone(), view)).is_ok());
    for _ in 0..3 {
        let expected = publish();
        let mut held = generator.held().unwrap();
        held.sort();
        assert_eq!(held, expected);
    }
}

/// Where resources are made when they are asked for, a wildcard is the list of the generator, and names may be asked for beside
/// it.
#[test]
fn names_beside_everything_are_answered() {
    let generator = Arc::new(Parts::default());
    let state = XdsState::new(generator, XdsOptions::default());
    state.publish(Arc::new(PushContext::build(PushInputs::default())), &PushRequest::everything(Reason::Global));
    let view = connect(&state, 1).current_view();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (names, expected) in [
        (&[][..], vec!["Own 0", "Routing 0"]),
        (&["Own x", "Own 0", "nobody's"], vec!["Own 0", "Own x", "Routing 0"]),
        (&["Routing y", "Own x"], vec!["Own 0", "Own x", "Routing 0", "Routing y"]),
    ] {
        let scope = Scope { wildcard: true, names: NameSet::of(names.iter().map(|name| Arc::from(*name))) };
        let current = || state.current().unwrap();
        let made = runtime.block_on(view.snapshot(ResourceType::Endpoint, &scope, state.builder(), &current)).unwrap();
        let mut held: Vec<&str> = made.iter().map(|r| &**r.name()).collect();
        held.sort_unstable();
        assert_eq!(held, expected);
        let listed = made.get("Own 0").unwrap();
        assert!(!listed.any().windows(5).any(|bytes| bytes == b"named"), "the one of the list counts");
    }
}

/// Lists its generation, or panics.
#[derive(Default)]
struct Failing {
    generation: AtomicU64,
    /// So many calls fail.
    faults: AtomicU64,
}

impl Generator for Failing {
    fn audience(&self, _: &PushContext, node: &Node, claim: Claim<'_>) -> Audience {
        let view = Arc::new(ProxyView::of_node(node));
        Audience::new(view.clone(), view.clone(), view, claim.identity.cloned())
    }

    fn layout(&self, _: &Slot, kind: ResourceType) -> Layout {
        Layout { parts: &[Part::Own], listed: kind == ResourceType::Cluster }
    }

    fn list(&self, context: &PushContext, slot: &Slot, kind: ResourceType) -> Vec<Arc<Resource>> {
        self.named(context, slot, kind, &["listed".into()])
    }

    fn named(&self, _: &PushContext, _: &Slot, _: ResourceType, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let faults = self.faults.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(faults.is_err(), "as the test wants");
        let content = self.generation.load(Ordering::Relaxed).to_string();
        names.iter().map(|name| Arc::new(Resource::of_parts(name.clone(), "t/x", content.as_bytes()))).collect()
    }

    fn affects<'a>(&self, _: &Change<'_>, _: &Slot) -> Affected<'a> {
        Affected::whole(TypeSet::MESH)
    }

    fn moves<'a>(&self, _: &'a Change<'_>) -> Cow<'a, MovedNodes> {
        Cow::Owned(MovedNodes::default())
    }
}

/// A generator that fails once must not leave its clients with old resources until something else changes.
#[tokio::test]
async fn a_failed_build_is_repeated_without_another_change() {
    let generator = Arc::new(Failing::default());
    let state = XdsState::new(generator.clone(), XdsOptions::default());
    let publish = || {
        generator.generation.fetch_add(1, Ordering::Relaxed);
        let context = PushContext::build(PushInputs::default());
        state.publish(Arc::new(context), &PushRequest::quiet(Reason::Config))
    };
    publish();
    let view = connect(&state, 1).current_view();
    let (stop, pauses) = (CancellationToken::new(), Backoff::new(Duration::from_millis(1), Duration::from_millis(4)));
    let again = tokio::spawn(crate::discovery::rebuild::rebuild(state.clone(), pauses, stop.clone()));
    let names = NameSet::of([Arc::from("listed"), Arc::from("also")]);
    for (kind, scope) in
        [(ResourceType::Cluster, Scope::all()), (ResourceType::Endpoint, Scope { wildcard: false, names })]
    {
        let current = || state.current().unwrap();
        let snapshot = async || view.snapshot(kind, &scope, state.builder(), &current).await.unwrap();
        let content = |snapshot: &Snapshot| snapshot.get("listed").unwrap().version();
        let first = snapshot().await;
        generator.faults.store(3, Ordering::Relaxed);
        publish();
        let mut ticks = view.subscribe();
        assert_eq!(content(&*snapshot().await), content(&first), "the earlier resources stand in");
        let news = async {
            while content(&*snapshot().await) == content(&first) {
                ticks.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), news).await.unwrap();
        assert_eq!(generator.faults.load(Ordering::Relaxed), 0, "each failure is followed by another trial");
    }
    stop.cancel();
    again.await.unwrap();
}
