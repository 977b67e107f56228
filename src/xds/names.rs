//! Sets of resource names, shared by all streams that ask for the same, and the scope of a subscription.
//!
//! A thousand proxies of one view subscribe to the same thousand clusters: the set is held once and known by its hash.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, LazyLock, Weak},
};

use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

/// An immutable set of names.
#[derive(Debug)]
pub struct NameSet {
    sorted: Vec<Arc<str>>,
    hash: u128,
    sums: Mutex<VecDeque<Sum>>,
}

impl PartialEq for NameSet {
    fn eq(&self, other: &Self) -> bool {
        self.sorted == other.sorted
    }
}

impl Eq for NameSet {}

/// The sets in use by hash. No `views::shared::Table`: the hash is the identity of a set, so a list that meets another one under
/// its hash takes the next free hash, and the search and the insertion are one step. One table for the process, as for any interned value: a set never changes, an entry ends with the
/// last holder of its set, and neither a set nor its hash depends on the server that made it. Every part of the protocol makes
/// sets, so a table of the server's own would be a parameter of all of them and change no answer.
type Table = Mutex<HashMap<u128, Weak<NameSet>>>;
static TABLE: LazyLock<Table> = LazyLock::new(Table::default);
static EMPTY: LazyLock<Arc<NameSet>> =
    LazyLock::new(|| Arc::new(NameSet { sorted: Vec::new(), hash: 0, sums: Mutex::default() }));

impl NameSet {
    /// The set without names.
    #[must_use]
    pub fn empty() -> Arc<Self> {
        EMPTY.clone()
    }

    /// The set of these names; an equal set that is in use is shared.
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = Arc<str>>) -> Arc<Self> {
        let mut sorted: Vec<Arc<str>> = names.into_iter().collect();
        if sorted.is_empty() {
            return Self::empty();
        }
        sorted.sort_unstable();
        sorted.dedup();
        let mut hasher = Xxh3::new();
        for name in &sorted {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        }
        let mut hash = hasher.digest128();
        let mut table = TABLE.lock();
        // A client that finds another list with the same hash must not come to share it.
        while let Some(known) = table.get(&hash).and_then(Weak::upgrade) {
            if known.sorted == sorted {
                return known;
            }
            hash = hash.wrapping_add(1);
        }
        if table.len() == table.capacity() {
            table.retain(|_, set| set.strong_count() > 0);
        }
        let set = Arc::new(Self { sorted, hash, sums: Mutex::default() });
        table.insert(hash, Arc::downgrade(&set));
        set
    }

    /// The names in byte order.
    #[must_use]
    pub fn names(&self) -> &[Arc<str>] {
        &self.sorted
    }

    /// Hash of the content; 0 is the empty set.
    #[must_use]
    pub const fn hash(&self) -> u128 {
        self.hash
    }

    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether the name is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.sorted.binary_search_by(|n| (**n).cmp(name)).is_ok()
    }

    /// The names that are here and not in `other`.
    #[must_use]
    pub fn minus(self: &Arc<Self>, other: &Arc<Self>) -> Arc<Self> {
        if self.is_empty() || other.is_empty() {
            return self.clone();
        }
        self.sum(Operation::Minus, other, || Self::of(self.sorted.iter().filter(|n| !other.contains(n)).cloned()))
    }

    /// The names of either set.
    #[must_use]
    pub fn plus(self: &Arc<Self>, other: &Arc<Self>) -> Arc<Self> {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        self.sum(Operation::Plus, other, || Self::of(self.sorted.iter().chain(&other.sorted).cloned()))
    }

    /// The result of an operation, remembered because the clients of a view request the same one after another.
    fn sum(&self, operation: Operation, other: &Arc<Self>, make: impl FnOnce() -> Arc<Self>) -> Arc<Self> {
        if self.sorted.len() < SUMS_FROM {
            return make();
        }
        let lock = || self.sums.lock();
        let same =
            |sum: &&Sum| sum.operation == operation && sum.other.get().is_some_and(|set| Arc::ptr_eq(&set, other));
        if let Some(result) = lock().iter().find(same).and_then(|sum| sum.result.get()) {
            return result;
        }
        let result = make();
        let mut sums = lock();
        sums.retain(|sum| !same(&sum) && sum.other.get().is_some() && sum.result.get().is_some());
        if sums.len() == SUMS {
            sums.pop_front();
        }
        sums.push_back(Sum { operation, other: Operand::of(other), result: Operand::of(&result) });
        result
    }
}

/// Below this size computing a sum is cheaper than a lookup.
const SUMS_FROM: usize = 16;

/// The number of sums that a set remembers.
const SUMS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Minus,
    Plus,
}

/// A set and another one make a third.
#[derive(Debug)]
struct Sum {
    operation: Operation,
    other: Operand,
    result: Operand,
}

/// A small set, or a large one while it has another holder: large ones remember sums, and must not hold each other.
#[derive(Debug)]
enum Operand {
    Small(Arc<NameSet>),
    Large(Weak<NameSet>),
}

impl Operand {
    fn of(set: &Arc<NameSet>) -> Self {
        if set.sorted.len() < SUMS_FROM { Self::Small(set.clone()) } else { Self::Large(Arc::downgrade(set)) }
    }

    fn get(&self) -> Option<Arc<NameSet>> {
        match self {
            Self::Small(set) => Some(set.clone()),
            Self::Large(set) => set.upgrade(),
        }
    }
}

/// The resources of one type that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Everything there is.
    pub wildcard: bool,
    /// Names asked for by name (with a wildcard they only matter when they do not exist).
    pub names: Arc<NameSet>,
}

impl Scope {
    /// Every resource of a type (a wildcard subscription).
    #[must_use]
    pub fn all() -> Self {
        Self { wildcard: true, names: NameSet::empty() }
    }

    /// Some names.
    #[must_use]
    pub fn of(names: Arc<NameSet>) -> Self {
        Self { wildcard: false, names }
    }

    /// Whether the name is asked for.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// Identity for memo tables.
    #[must_use]
    pub fn key(&self) -> (bool, u128) {
        (self.wildcard, self.names.hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> Arc<NameSet> {
        NameSet::of(names.iter().map(|n| Arc::from(*n)))
    }

    #[test]
    fn equal_sets_are_one() {
        assert_eq!(set(&["b", "a", "b"]), set(&["a", "b"]));
        let held = set(&["x", "y"]);
        assert!(Arc::ptr_eq(&held, &set(&["y", "x", "x"])));
        assert_ne!(set(&["ab", "c"]).hash(), set(&["a", "bc"]).hash());
    }

    #[test]
    fn arithmetic() {
        let (ab, bc) = (set(&["a", "b"]), set(&["b", "c"]));
        assert_eq!(ab.minus(&bc), set(&["a"]));
        assert_eq!(ab.plus(&bc), set(&["a", "b", "c"]));
        assert!(ab.contains("a") && !ab.contains("c"));
        assert!(NameSet::of([]).is_empty());
        assert!(ab.minus(&ab).is_empty());
        assert!(Arc::ptr_eq(&ab, &ab.minus(&NameSet::empty())) && Arc::ptr_eq(&ab, &NameSet::empty().plus(&ab)));
    }

    #[test]
    fn a_sum_is_done_once_while_its_result_is_held() {
        let many: Vec<String> = (0..SUMS_FROM).map(|i| format!("many-{i}")).collect();
        let large = NameSet::of(many.iter().map(|n| n.as_str().into()));
        let small = || set(&["many-1", "another"]);
        let (plus, minus) = (large.plus(&small()), large.minus(&small()));
        assert_eq!((plus.names().len(), minus.names().len()), (SUMS_FROM + 1, SUMS_FROM - 1));
        let done = || -> Arc<NameSet> { panic!("it is done already") };
        assert!(Arc::ptr_eq(&plus, &large.sum(Operation::Plus, &small(), done)));
        assert!(Arc::ptr_eq(&minus, &large.sum(Operation::Minus, &small(), done)));
        let back = plus.minus(&set(&["another"]));
        assert!(Arc::ptr_eq(&large, &back));
        let held = [&large, &plus].map(Arc::downgrade);
        drop((back, large, plus));
        assert!(held.iter().all(|set| set.strong_count() == 0), "sums hold no large set");
    }
}
