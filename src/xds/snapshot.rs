//! What a client of a view should hold of one type, and the difference between two such snapshots.
//!
//! A connection keeps a pointer to the snapshot that its client acknowledged. All clients of a view move between the same
//! two snapshots, so the difference and its encoding are made once and shared ([`Updates`]).

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{
    names::{NameSet, Scope},
    resource::{Block, Resource},
    resource_type::ResourceType,
    wire,
};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// All resources of one type within one scope.
#[derive(Debug)]
pub struct Snapshot {
    id: u64,
    blocks: Vec<Arc<Block>>,
    scope: Scope,
    digest: u128,
}

impl Snapshot {
    /// Arranges blocks. A name that two blocks hold counts in the first one only.
    #[must_use]
    pub fn new(mut blocks: Vec<Arc<Block>>, scope: Scope) -> Arc<Self> {
        for at in 1..blocks.len() {
            let (before, rest) = blocks.split_at_mut(at);
            let Some(block) = rest.first_mut() else { continue };
            let taken = |r: &Arc<Resource>| before.iter().any(|b| b.get(r.name()).is_some());
            if block.resources().iter().any(taken) {
                *block = Block::build(block.resources().iter().filter(|r| !taken(r)).cloned(), None);
            }
        }
        let digest = blocks.iter().fold(0, |digest, block| match (digest, block.digest()) {
            (0, first) => first,
            (before, next) => xxh3_128_with_seed(&before.to_le_bytes(), next as u64) ^ next,
        });
        Arc::new(Self { id: NEXT_ID.fetch_add(1, Relaxed), blocks, scope, digest })
    }

    /// What it was made for.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Arc<Block>] {
        &self.blocks
    }

    /// Hash of names and content.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.digest
    }

    /// The version that clients see.
    #[must_use]
    pub fn version(&self) -> String {
        wire::version(self.digest)
    }

    /// The resource of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.blocks.iter().find_map(|b| b.get(name))
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|b| b.resources().len()).sum()
    }

    /// Whether there is no resource.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All resources, block by block.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.blocks.iter().flat_map(|b| b.resources())
    }

    fn sorted_without<'a>(&'a self, shared: &[Arc<Block>]) -> Vec<&'a Arc<Resource>> {
        let own = self.blocks.iter().filter(|b| !shared.iter().any(|s| Arc::ptr_eq(s, b)));
        let mut list: Vec<_> = own.flat_map(|b| b.resources()).collect();
        if self.blocks.len() > 1 {
            list.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        }
        list
    }
}

/// What has changed from one snapshot to another, as far as the second one's scope reaches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Difference {
    /// New and changed resources, in order of their names.
    pub changed: Vec<Arc<Resource>>,
    /// Names that no longer exist, or that were asked for and never existed.
    pub gone: BTreeSet<Arc<str>>,
}

impl Difference {
    /// What a client that holds `old` lacks to hold `new`.
    #[must_use]
    pub fn between(old: Option<&Snapshot>, new: &Snapshot) -> Self {
        let mut difference = Self::default();
        let Some(old) = old else {
            difference.changed = new.sorted_without(&[]).into_iter().cloned().collect();
            difference.gone = new.scope.names.names().iter().filter(|n| new.get(n).is_none()).cloned().collect();
            return difference;
        };
        let (mut left, mut right) = (
            old.sorted_without(&new.blocks).into_iter().peekable(),
            new.sorted_without(&old.blocks).into_iter().peekable(),
        );
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.name().cmp(b.name()),
            };
            match order {
                Ordering::Less => {
                    let name = left.next().map(|r| r.name());
                    difference.gone.extend(name.filter(|n| new.scope.contains(n) && new.get(n).is_none()).cloned());
                }
                Ordering::Greater => difference.changed.extend(right.next().filter(|r| !holds(old, r)).cloned()),
                Ordering::Equal => {
                    let before = left.next().map(|r| r.hash());
                    difference.changed.extend(right.next().filter(|r| Some(r.hash()) != before).cloned());
                }
            }
        }
        if !Arc::ptr_eq(&old.scope.names, &new.scope.names) {
            let fresh = new.scope.names.names().iter().filter(|n| !old.scope.names.contains(n) && new.get(n).is_none());
            difference.gone.extend(fresh.cloned());
        }
        difference
    }

    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }
}

/// A resource that moved from one block to another is not new.
fn holds(old: &Snapshot, resource: &Resource) -> bool {
    old.blocks.len() > 1 && old.get(resource.name()).is_some_and(|r| r.hash() == resource.hash())
}

/// The two variants of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Protocol {
    /// State of the world.
    Sotw,
    /// Incremental.
    Delta,
}

/// The content of a response: everything of it but the nonce, for any number of clients.
#[derive(Debug)]
pub struct Update {
    /// What is sent: for state-of-the-world types that are sent whole this is all there is.
    pub difference: Arc<Difference>,
    kind: ResourceType,
    protocol: Protocol,
    version: String,
    body: OnceLock<Bytes>,
    names: OnceLock<Arc<NameSet>>,
    gone: OnceLock<Arc<NameSet>>,
}

impl Update {
    /// The content of a response that brings a client to `target`.
    #[must_use]
    pub fn new(kind: ResourceType, protocol: Protocol, difference: Difference, target: &Snapshot) -> Self {
        let version = target.version();
        Self {
            difference: Arc::new(difference),
            kind,
            protocol,
            version,
            body: OnceLock::new(),
            names: OnceLock::new(),
            gone: OnceLock::new(),
        }
    }

    /// Names of the resources that are sent.
    pub fn names(&self) -> &Arc<NameSet> {
        self.names.get_or_init(|| NameSet::of(self.difference.changed.iter().map(|r| r.name().clone())))
    }

    /// Names that are gone.
    pub fn gone(&self) -> &Arc<NameSet> {
        self.gone.get_or_init(|| NameSet::of(self.difference.gone.iter().cloned()))
    }

    /// The encoded response without its nonce.
    pub fn body(&self) -> &Bytes {
        self.body.get_or_init(|| {
            let resources: usize = self.difference.changed.iter().map(|r| r.wire_len()).sum();
            let gone: usize = self.difference.gone.iter().map(|n| n.len() + 8).sum();
            let mut out = BytesMut::with_capacity(resources + gone + 128);
            wire::put_bytes(&mut out, 1, self.version.as_bytes());
            wire::put_bytes(&mut out, 4, self.kind.url().as_bytes());
            match self.protocol {
                Protocol::Sotw => self.difference.changed.iter().for_each(|r| r.put_sotw(&mut out)),
                Protocol::Delta => {
                    self.difference.changed.iter().for_each(|r| r.put_delta(&mut out));
                    self.difference.gone.iter().for_each(|n| wire::put_bytes(&mut out, 6, n.as_bytes()));
                }
            }
            out.freeze()
        })
    }

    /// Bytes of the encoded response, whether it is encoded yet or not; the names that are gone do not count.
    fn weight(&self) -> usize {
        self.difference.changed.iter().map(|r| r.wire_len()).sum()
    }
}

type UpdateKey = (u64, u64, u128, ResourceType, Protocol);

/// Remembers updates while somebody sends them, and the last few (up to some megabytes) a little longer.
#[derive(Debug, Default)]
pub struct Updates {
    table: Mutex<Memo>,
}

#[derive(Debug, Default)]
struct Memo {
    known: HashMap<UpdateKey, Weak<Update>>,
    kept: HashMap<(u64, u64, u128), Weak<Snapshot>>,
    /// With their weights, which are sums over all their resources.
    recent: VecDeque<(Arc<Update>, usize)>,
}

/// Encoded bytes that are kept although nobody sends them at the moment.
const RECENT_BYTES: usize = 8 << 20;
const RECENT_COUNT: usize = 32;

impl Updates {
    /// The difference between two snapshots, plus the names in `again` although they may not have changed.
    pub fn between(
        &self,
        kind: ResourceType,
        protocol: Protocol,
        old: Option<&Snapshot>,
        new: &Snapshot,
        again: &[Arc<NameSet>],
    ) -> Arc<Update> {
        let again_hash = again.iter().fold(0u128, |hash, set| hash.wrapping_add(set.hash()));
        let key = (old.map_or(0, |s| s.id), new.id, again_hash, kind, protocol);
        let mut memo = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = memo.known.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        drop(memo);
        let mut difference = Difference::between(old, new);
        add_again(&mut difference, new, again);
        let update = Arc::new(Update::new(kind, protocol, difference, new));
        memo = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        memo.remember(key, update)
    }

    /// `new`, but with the resources of these names as `old` has them. `None` when that makes no difference.
    pub fn keeping(&self, old: &Arc<Snapshot>, new: &Arc<Snapshot>, names: &Arc<NameSet>) -> Option<Arc<Snapshot>> {
        let differs = |r: &&Arc<Resource>| new.get(r.name()).is_none_or(|now| now.hash() != r.hash());
        let wanted = names.names().iter().filter(|n| new.scope.contains(n));
        let mut kept = wanted.filter_map(|name| old.get(name)).filter(differs).peekable();
        kept.peek()?;
        let key = (old.id, new.id, names.hash());
        let mut memo = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = memo.kept.get(&key).and_then(Weak::upgrade) {
            return Some(known);
        }
        let block = Block::build(kept.cloned(), None);
        let blocks = std::iter::once(block).chain(new.blocks.iter().cloned()).collect();
        let snapshot = Snapshot::new(blocks, new.scope.clone());
        memo.kept.retain(|_, known| known.strong_count() > 0);
        memo.kept.insert(key, Arc::downgrade(&snapshot));
        Some(snapshot)
    }

    /// How many updates are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).known.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Memo {
    fn remember(&mut self, key: UpdateKey, update: Arc<Update>) -> Arc<Update> {
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        if self.known.len() == self.known.capacity() {
            self.known.retain(|_, u| u.strong_count() > 0);
        }
        self.known.insert(key, Arc::downgrade(&update));
        self.recent.push_back((update.clone(), update.weight()));
        let mut bytes: usize = self.recent.iter().map(|(_, weight)| weight).sum();
        while self.recent.len() > RECENT_COUNT || bytes > RECENT_BYTES {
            bytes -= self.recent.pop_front().map_or(0, |(_, weight)| weight);
        }
        update
    }
}

/// Adds names that are to be sent although they may not have changed.
pub fn add_again(difference: &mut Difference, new: &Snapshot, again: &[Arc<NameSet>]) {
    let mut extra = Vec::new();
    for name in again.iter().flat_map(|set| set.names()).filter(|n| new.scope.contains(n)) {
        match new.get(name) {
            Some(resource) => extra.push(resource.clone()),
            None => {
                difference.gone.insert(name.clone());
            }
        }
    }
    if !extra.is_empty() {
        difference.changed.extend(extra);
        difference.changed.sort_by(|a, b| a.name().cmp(b.name()));
        difference.changed.dedup_by(|a, b| a.name() == b.name());
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::envoy::service::discovery::v3 as discovery;

    fn block(content: &[(&str, &str)]) -> Arc<Block> {
        Block::build(content.iter().map(|(n, v)| Arc::new(Resource::of_parts(*n, "t/x", v.as_bytes()))), None)
    }

    fn names(difference: &Difference) -> (Vec<&str>, Vec<&str>) {
        (difference.changed.iter().map(|r| &**r.name()).collect(), difference.gone.iter().map(|n| &**n).collect())
    }

    fn set(names: &[&str]) -> Arc<NameSet> {
        NameSet::of(names.iter().map(|n| Arc::from(*n)))
    }

    #[test]
    fn differences_of_wildcards() {
        let shared = block(&[("m", "1"), ("n", "1")]);
        let old = Snapshot::new(vec![shared.clone(), block(&[("a", "1"), ("b", "1"), ("c", "1")])], Scope::all());
        let new = Snapshot::new(vec![shared, block(&[("b", "2"), ("c", "1"), ("d", "1")])], Scope::all());
        assert_eq!(names(&Difference::between(Some(&old), &new)), (vec!["b", "d"], vec!["a"]));
        assert_eq!(names(&Difference::between(None, &new)).0, ["b", "c", "d", "m", "n"]);
        assert!(Difference::between(Some(&new), &new).is_empty());
    }

    #[test]
    fn a_resource_may_move_between_blocks() {
        let old = Snapshot::new(vec![block(&[("a", "1")]), block(&[("b", "1")])], Scope::all());
        let new = Snapshot::new(vec![block(&[("a", "1"), ("b", "1")]), block(&[])], Scope::all());
        assert!(Difference::between(Some(&old), &new).is_empty());
        let twice = Snapshot::new(vec![block(&[("a", "1")]), block(&[("a", "2"), ("b", "1")])], Scope::all());
        assert_eq!(twice.len(), 2);
        assert!(Difference::between(Some(&old), &twice).is_empty());
    }

    #[test]
    fn differences_of_named_scopes_stay_inside() {
        let old = Snapshot::new(vec![block(&[("a", "1"), ("b", "1")])], Scope::of(set(&["a", "b"])));
        let new = Snapshot::new(vec![block(&[("a", "1")])], Scope::of(set(&["a", "x"])));
        assert_eq!(names(&Difference::between(Some(&old), &new)), (vec![], vec!["x"]), "b was given up, x is unknown");
        let none = Snapshot::new(vec![block(&[])], Scope::of(set(&["a", "b"])));
        assert_eq!(names(&Difference::between(Some(&old), &none)), (vec![], vec!["a", "b"]));
    }

    #[test]
    fn updates_are_made_once() {
        let updates = Updates::default();
        let old = Snapshot::new(vec![block(&[("a", "1"), ("b", "1")])], Scope::all());
        let new = Snapshot::new(vec![block(&[("a", "2"), ("b", "1")])], Scope::all());
        let make =
            |again: &[Arc<NameSet>]| updates.between(ResourceType::Endpoint, Protocol::Delta, Some(&old), &new, again);
        let first = make(&[]);
        assert!(Arc::ptr_eq(&first, &make(&[])));
        let again = make(&[set(&["b", "zz"])]);
        assert_eq!(names(&again.difference), (vec!["a", "b"], vec!["zz"]));
        let decoded = discovery::DeltaDiscoveryResponse::decode(again.body().clone()).unwrap();
        assert_eq!(decoded.removed_resources, ["zz"]);
        assert_eq!(decoded.resources.len(), 2);
        assert_eq!(
            (decoded.type_url.as_str(), decoded.system_version_info),
            (ResourceType::Endpoint.url(), new.version())
        );
    }
}
