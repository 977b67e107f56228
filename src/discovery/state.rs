//! The state of the server: the published context, the views, the connections, behind one handle.

mod table;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::Xxh3;

use super::{
    build::{Builder, Failure, SlotCache},
    causes::Subject,
    connection::{Connection, Load, ViewSummary},
    debug::DebugThrottle,
    generator::{Affected, Audience, Claim, Generator},
    history::{History, PushRecord, Traced},
    loads::{LoadTable, Loads},
    omission::Omission,
    published::Published,
    push_event::{PushEvent, Stages},
    push_traces::PushTraces,
    view::View,
};
use crate::{
    model::{MovedNodes, Node, PushRequest, Reason},
    push::{Change, PushContext},
    runtime::catch,
    xds::{Admission, ClientLists, Clients, Resource, ResourceType, Table, TableEntry, Updates, XdsOptions},
};
pub(super) use table::TableOwner;

/// Refusals of clients that are shown.
const MOST_REFUSED: usize = 1000;

/// Handle to the server's state; cheap to clone.
#[derive(Debug, Clone)]
pub struct XdsState {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: XdsOptions,
    /// Writes the table of connections.
    owner: Option<Arc<dyn TableOwner>>,
    /// Wakes the reader of the versions that clients hold.
    progress: Notify,
    builder: Builder,
    admission: Admission,
    clients: Arc<Clients>,
    current: ArcSwapOption<Published>,
    /// Number of the last publication whose effects on every view are marked.
    propagated_version: AtomicU64,
    publishing: Mutex<()>,
    /// Caches and views by key. No `Table`: every publication walks them, and each value takes its own entry out when it is
    /// dropped.
    slot_caches: Arc<DashMap<u128, Weak<SlotCache>>>,
    views: Arc<DashMap<u128, Weak<View>>>,
    connections: DashMap<u64, Arc<Connection>>,
    updates: Updates,
    lists: Arc<ClientLists>,
    loads: LoadTable,
    history: History,
    traces: Option<Arc<PushTraces>>,
    counter: AtomicU64,
    publications: watch::Sender<u64>,
    shutdown: CancellationToken,
    debug_throttle: DebugThrottle,
    nodes: Table<u128, Node>,
}

impl XdsState {
    /// A server that generates with this generator. Streams are refused until the first [`XdsState::publish`].
    #[must_use]
    pub fn new(generator: Arc<dyn Generator>, options: XdsOptions) -> Self {
        Self::with_owner(generator, options, None, None)
    }

    /// As [`XdsState::new`], with an owner of the table of connections and a place for traces. Without an owner the table has as
    /// many writers as there are streams.
    pub(super) fn with_owner(
        generator: Arc<dyn Generator>,
        options: XdsOptions,
        owner: Option<Arc<dyn TableOwner>>,
        traces: Option<Arc<PushTraces>>,
    ) -> Self {
        let inner = Inner {
            builder: Builder::new(generator, options.build_threads),
            admission: Admission::new(options.max_requests_per_second),
            clients: Arc::new(Clients::new(&options)),
            options,
            owner,
            progress: Notify::new(),
            current: ArcSwapOption::empty(),
            propagated_version: AtomicU64::new(0),
            publishing: Mutex::default(),
            slot_caches: Arc::default(),
            views: Arc::default(),
            connections: DashMap::new(),
            updates: Updates::default(),
            lists: Arc::default(),
            loads: LoadTable::default(),
            history: History::default(),
            traces,
            counter: AtomicU64::new(0),
            publications: watch::Sender::new(0),
            shutdown: CancellationToken::new(),
            debug_throttle: DebugThrottle::default(),
            nodes: Table::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Publishes a context for every connection. The changes are found by comparing it with the context before, whatever the keys
    /// of `request` say; a forced request marks everything as changed. Blocks for as long as it takes to look at each view: call it
    /// off the async threads. Returns the number of the publication.
    pub fn publish(&self, context: Arc<PushContext>, request: &PushRequest) -> u64 {
        self.publish_after(context, request, None)
    }

    /// As [`XdsState::publish`], after these stages.
    pub(super) fn publish_after(
        &self,
        context: Arc<PushContext>,
        request: &PushRequest,
        stages: Option<Stages>,
    ) -> u64 {
        let inner = &*self.inner;
        let _one = inner.publishing.lock();
        let before = inner.current.load_full();
        let published = self.put_in_force(context, request, stages);
        let change = before.as_ref().filter(|_| !request.forced);
        let change = change.map(|before| Change::between(&before.context, &published.context));
        self.invalidate(change.as_ref(), published.version);
        let moved = match &change {
            Some(change) => self.move_connections(&published, &inner.builder.generator.moves(change)),
            None => self.move_connections(&published, &MovedNodes::all()),
        };
        self.propagate(&published, &moved, request);
        published.version
    }

    /// Publishes the context in force once more, for the resources whose generator failed; nothing else is affected.
    pub(super) fn publish_again(&self, failed: &[Failure]) {
        let failed: Vec<_> = failed.iter().filter_map(|f| Some((f.slot_cache.upgrade()?, f.kind))).collect();
        let _one = self.inner.publishing.lock();
        let Some(current) = self.inner.current.load_full().filter(|_| !failed.is_empty()) else { return };
        let request = PushRequest::quiet(Reason::Unknown);
        let published = self.put_in_force(current.context.clone(), &request, None);
        for (slot_cache, kind) in failed {
            slot_cache.invalidate(kind, published.version, |_, _| true);
        }
        self.propagate(&published, &[], &request);
    }

    /// Makes a context the one in force; its effects are not known yet.
    fn put_in_force(&self, context: Arc<PushContext>, request: &PushRequest, stages: Option<Stages>) -> Arc<Published> {
        let (inner, before) = (&*self.inner, self.inner.current.load_full());
        let version = before.as_ref().map_or(0, |p| p.version) + 1;
        let subject = |keys| Subject { keys, now: context.clone(), before: before.as_ref().map(|p| p.context.clone()) };
        let traced = inner.traces.as_ref().map(|_| Traced::new(request, stages, subject));
        let record = Arc::new(PushRecord::new(version, request, inner.counter.load(Ordering::Relaxed), stages, traced));
        if let Some(traces) = &inner.traces {
            traces.follow(record.clone());
        }
        let published = Arc::new(Published { version, context, record: record.clone() });
        inner.current.store(Some(published.clone()));
        inner.publications.send_replace(version);
        inner.history.push(record);
        published
    }

    /// Wakes the clients of the views that a publication may have changed, and those that got another view.
    fn propagate(&self, published: &Published, moved: &[Arc<Connection>], request: &PushRequest) {
        let (inner, version) = (&*self.inner, published.version);
        inner.propagated_version.store(version, Ordering::Release);
        // Not before the line above: responses from the new view have to count as of this publication.
        moved.iter().for_each(|connection| connection.moved.notify_one());
        let dirty = |view: &View| view.served.iter().any(|kind| view.dirty(kind) == version);
        let mut views: Vec<u128> = Vec::new();
        for view in self.live_views().iter().filter(|view| dirty(view)) {
            views.push(view.key);
            view.wake(version);
        }
        views.sort_unstable();
        let told = |c: &Connection| {
            c.moved_at.load(Ordering::Acquire) == version || views.binary_search(&c.view_key()).is_ok()
        };
        self.wake_reader();
        published.record.targets(views.len(), inner.connections.iter().filter(|c| told(c)).count());
        for (reason, count) in &request.reasons {
            metrics::counter!("pilot_push_triggers", "type" => reason.as_str()).increment(u64::from(*count));
        }
    }

    /// Marks the parts of views that a publication may have changed.
    fn invalidate(&self, change: Option<&Change<'_>>, version: u64) {
        let generator = &*self.inner.builder.generator;
        self.inner.slot_caches.retain(|_, slot_cache| slot_cache.strong_count() > 0);
        let slot_caches: Vec<Arc<SlotCache>> = self.inner.slot_caches.iter().filter_map(|h| h.upgrade()).collect();
        for slot_cache in slot_caches {
            let whole = || Affected::whole(slot_cache.served);
            let affected = match change {
                Some(change) => catch(|| generator.affects(change, &slot_cache.slot)).unwrap_or_else(|_| whole()),
                None => whole(),
            };
            affected.types.iter().for_each(|kind| slot_cache.invalidate(kind, version, &affected.names));
        }
    }

    /// Gives connections of these nodes the view that they have in this context. Returns those that got another one and do not know
    /// it yet.
    fn move_connections(&self, published: &Published, nodes: &MovedNodes) -> Vec<Arc<Connection>> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let mut connections: Vec<Arc<Connection>> = self.inner.connections.iter().map(|c| c.clone()).collect();
        connections.retain(|connection| {
            if !nodes.touch(&connection.node, || published.context.labels_of(&connection.node)) {
                return false;
            }
            let (node, claim) = (&connection.node, connection.claim());
            // One proxy whose view cannot be found keeps the view that it has; the others must not miss the publication.
            let found = catch(|| self.inner.builder.generator.audience(&published.context, node, claim));
            let Ok(audience) = found else {
                metrics::counter!("pilot_total_xds_internal_errors").increment(1);
                return false;
            };
            let other = audience_key(&audience) != connection.view_key();
            if other {
                connection.move_to(self.view(audience), published.version);
            }
            other
        });
        connections
    }

    fn live_views(&self) -> Vec<Arc<View>> {
        self.inner.views.retain(|_, view| view.strong_count() > 0);
        self.inner.views.iter().filter_map(|v| v.upgrade()).collect()
    }

    fn view(&self, audience: Audience) -> Arc<View> {
        let key = audience_key(&audience);
        if let Some(view) = self.inner.views.get(&key).and_then(|v| v.upgrade()) {
            return view;
        }
        let slot_caches = audience.slots.map(|slot| {
            let key = slot.key();
            let mut entry = self.inner.slot_caches.entry(key).or_default();
            if let Some(slot_cache) = entry.upgrade() {
                return slot_cache;
            }
            let served = self.inner.builder.generator.serves(&slot);
            let slot_cache = Arc::new(SlotCache::new(slot, served, TableEntry::new(&self.inner.slot_caches, key)));
            *entry = Arc::downgrade(&slot_cache);
            slot_cache
        });
        let mut entry = self.inner.views.entry(key).or_default();
        if let Some(view) = entry.upgrade() {
            return view;
        }
        let view = Arc::new(View::new(
            key,
            slot_caches,
            &*self.inner.builder.generator,
            TableEntry::new(&self.inner.views, key),
        ));
        *entry = Arc::downgrade(&view);
        view
    }

    /// The view of a client that connects now, without registering it.
    pub(super) fn view_of(&self, node: &Node, claim: Claim<'_>) -> Option<Arc<View>> {
        let published = self.current()?;
        Some(self.view_in(&published, node, claim))
    }

    fn view_in(&self, published: &Published, node: &Node, claim: Claim<'_>) -> Arc<View> {
        self.view(self.inner.builder.generator.audience(&published.context, node, claim))
    }

    pub(super) fn builder(&self) -> &Builder {
        &self.inner.builder
    }

    pub(super) fn updates(&self) -> &Updates {
        &self.inner.updates
    }

    pub(super) fn lists(&self) -> &Arc<ClientLists> {
        &self.inner.lists
    }

    pub(super) fn loads(&self) -> &LoadTable {
        &self.inner.loads
    }

    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.inner.shutdown
    }

    pub(super) fn clients(&self) -> &Arc<Clients> {
        &self.inner.clients
    }

    pub(super) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// Settings of the server.
    #[must_use]
    pub fn options(&self) -> &XdsOptions {
        &self.inner.options
    }

    /// The last publication; `None` before the first one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Published>> {
        self.inner.current.load_full()
    }

    /// Waits until the published state holds this, or the time is over.
    pub(super) async fn until(&self, patience: Duration, holds: impl Fn(&PushContext) -> bool) {
        let mut publications = self.inner.publications.subscribe();
        let waiting = publications.wait_for(|_| self.current().is_some_and(|published| holds(&published.context)));
        let _ = tokio::time::timeout(patience, waiting).await;
    }

    /// The number of the last publication, and its changes.
    #[must_use]
    pub fn publications(&self) -> watch::Receiver<u64> {
        self.inner.publications.subscribe()
    }

    /// Number of the last publication whose effects on every connected client are known; [`Connection::held_version`]
    /// holds for publications up to this one.
    #[must_use]
    pub fn propagated_version(&self) -> u64 {
        self.inner.propagated_version.load(Ordering::Acquire)
    }

    /// All connections, ordered by when they came.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let mut all: Vec<_> = self.inner.connections.iter().map(|c| c.clone()).collect();
        all.sort_by_key(|c| c.number);
        all
    }

    /// The connection of an id, or the newest one of a proxy id (`pod.namespace`) or node id: a client that comes back may be
    /// there before its last connection is known to be gone.
    #[must_use]
    pub fn connection(&self, id: &str) -> Option<Arc<Connection>> {
        let all = self.connections();
        let of = |fits: &dyn Fn(&Connection) -> bool| all.iter().rfind(|c| fits(c)).cloned();
        of(&|c| c.id == id).or_else(|| of(&|c| &*c.node.id == id)).or_else(|| of(&|c| &*c.node.raw_id == id))
    }

    /// The last pushes, last one first.
    #[must_use]
    pub fn events(&self) -> Vec<PushEvent> {
        self.inner.history.events()
    }

    /// The views that connections share.
    #[must_use]
    pub fn views(&self) -> Vec<ViewSummary> {
        let summary = |v: Arc<View>| ViewSummary { key: format!("{:032x}", v.key), connections: v.connections() };
        let mut all: Vec<_> = self.live_views().into_iter().map(summary).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// Requests that clients reported over LRS.
    #[must_use]
    pub fn reported_loads(&self) -> Loads {
        self.inner.loads.all()
    }

    /// Resources that clients occupy now.
    #[must_use]
    pub fn load(&self) -> Load {
        let (unfinished_bytes, unknown_names, names, node_bytes) = self.inner.clients.held();
        Load {
            connections: self.inner.clients.count(),
            unfinished_bytes,
            unknown_names,
            names,
            node_bytes,
            unread_bytes: self.inner.clients.unread(),
            views: self.inner.views.len(),
            slots: self.inner.slot_caches.len(),
        }
    }

    /// The number of calls of the generator, and of encoded resources that are held.
    #[must_use]
    pub fn build_counts(&self) -> (u64, usize) {
        (self.inner.builder.builds.load(Ordering::Relaxed), self.inner.builder.resources())
    }

    /// The generated resources that views hold, by type; each once.
    #[must_use]
    pub fn cached(&self) -> Vec<(ResourceType, Arc<Resource>)> {
        self.inner.builder.cached()
    }

    /// Reads of generated resources that found them, and those that had to generate them.
    #[must_use]
    pub fn cache_reads(&self) -> (u64, u64) {
        let (hits, misses) = &self.inner.builder.reads;
        (hits.load(Ordering::Relaxed), misses.load(Ordering::Relaxed))
    }

    pub(super) fn debug_throttle(&self) -> &DebugThrottle {
        &self.inner.debug_throttle
    }

    /// The node, or the equal one that another stream has. `key` is a hash of it as it was sent.
    pub(super) fn shared_node(&self, key: u128, node: Node) -> Arc<Node> {
        self.inner.nodes.prune();
        self.inner.nodes.one(key, Arc::new(node), |known, new| known == new)
    }

    /// Content of objects that proxies are not sent.
    #[must_use]
    pub fn omissions(&self) -> Vec<Omission> {
        self.inner.builder.generator.omissions()
    }

    /// Grows when [`Self::omissions`] may have changed.
    #[must_use]
    pub fn omission_changes(&self) -> u64 {
        self.inner.builder.generator.omission_changes()
    }

    /// Resources that clients refuse and are left without, each once, with the complaint of one of them.
    #[must_use]
    pub fn refused_by_clients(&self) -> Vec<Omission> {
        let Some(published) = self.current() else { return Vec::new() };
        let mut all = BTreeMap::new();
        let refused =
            self.connections().into_iter().flat_map(|c| c.held_back().into_iter().map(move |r| (c.clone(), r)));
        for (connection, (kind, name, complaint)) in refused.take(MOST_REFUSED) {
            all.entry((kind, name.clone())).or_insert_with(|| {
                let view = connection.current_view();
                let generator = &self.inner.builder.generator;
                let mut parts = view.parts(kind);
                Omission {
                    metric: kind.refusals(),
                    resource: name.to_string(),
                    message: format!("{} refuses it: {complaint}", connection.id),
                    object: parts.find_map(|part| generator.origin(&published.context, &part.slot, kind, &name)),
                }
            });
        }
        all.into_values().collect()
    }

    /// The omissions of one client: parts of objects that it is not sent.
    #[must_use]
    pub fn omissions_of(&self, connection: &Connection) -> Vec<Omission> {
        let view = connection.current_view();
        view.slot_caches.iter().flat_map(|c| self.inner.builder.generator.omissions_of(&c.slot)).collect()
    }

    /// Ends all streams, spread over [`XdsOptions::drain`], and refuses new ones.
    pub fn shut_down(&self) {
        self.inner.shutdown.cancel();
    }

    /// Whether the server is shutting down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.inner.shutdown.is_cancelled()
    }
}

fn audience_key(audience: &Audience) -> u128 {
    let mut hasher = Xxh3::new();
    for slot in &audience.slots {
        hasher.update(&slot.key().to_le_bytes());
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests;
