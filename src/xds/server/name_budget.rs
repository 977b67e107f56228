//! Bounds on the names that clients ask for: one for each connection and one for all together.
//!
//! Equal lists are held once, however many streams have them, and count once: ten thousand proxies of one view hold the names of
//! one. Near the bound of all, the connections with the most names are refused first, as in [`Budget`](super::budget::Budget).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::xds::{names::NameSet, resource_type::ResourceType};

/// Lists with the number of their holders, by hash; lists that are held have different hashes.
#[derive(Debug, Default)]
struct Lists {
    holders: HashMap<u128, usize>,
    names: usize,
}

impl Lists {
    /// One more holder. True for the first one.
    fn enter(&mut self, list: &NameSet) -> bool {
        let holders = self.holders.entry(list.hash()).or_default();
        *holders += 1;
        let first = *holders == 1;
        if first {
            self.names += list.names().len();
        }
        first
    }

    fn leave(&mut self, list: &NameSet) {
        let Some(holders) = self.holders.get_mut(&list.hash()) else { return };
        *holders -= 1;
        if *holders == 0 {
            self.holders.remove(&list.hash());
            self.names -= list.names().len();
            // A map keeps its room otherwise.
            if self.holders.len() * 4 < self.holders.capacity() {
                self.holders.shrink_to_fit();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bound on all connections.
#[derive(Debug)]
pub(crate) struct NameBudget {
    all: usize,
    each: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    lists: Lists,
    /// Connections that hold a list.
    connections: usize,
}

impl NameBudget {
    /// At most `all` names together and `each` on one connection.
    pub(crate) fn new((all, each): (usize, usize)) -> Arc<Self> {
        Arc::new(Self { all, each, held: Mutex::default() })
    }

    /// The part of one connection.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<NameShare> {
        Arc::new(NameShare { budget: self.clone(), lists: Mutex::default() })
    }

    /// The number of names that are held.
    pub(crate) fn held(&self) -> usize {
        lock(&self.held).lists.names
    }
}

/// The part of one connection in a [`NameBudget`].
#[derive(Debug)]
pub(crate) struct NameShare {
    budget: Arc<NameBudget>,
    lists: Mutex<Lists>,
}

impl NameShare {
    fn take(&self, list: &NameSet) -> bool {
        let mut own = lock(&self.lists);
        if own.names == 0 {
            lock(&self.budget.held).connections += 1;
        }
        let admitted = !own.enter(list) || self.admits(&own, list);
        if !admitted {
            own.leave(list);
        }
        if own.names == 0 {
            lock(&self.budget.held).connections -= 1;
        }
        admitted
    }

    /// Whether a list that is new on the connection fits into both bounds; it counts among all then.
    fn admits(&self, own: &Lists, list: &NameSet) -> bool {
        let NameBudget { all, each, held } = &*self.budget;
        let mut held = lock(held);
        let fair = all / held.connections.max(1);
        let is_known = !held.lists.enter(list);
        let of_all = held.lists.names;
        let fits = is_known || of_all <= *all || (own.names <= fair && of_all <= all.saturating_mul(2));
        let admitted = own.names <= *each && fits;
        if !admitted {
            held.lists.leave(list);
        }
        admitted
    }

    fn give(&self, list: &NameSet) {
        let mut own = lock(&self.lists);
        own.leave(list);
        let mut held = lock(&self.budget.held);
        if !own.holders.contains_key(&list.hash()) {
            held.lists.leave(list);
        }
        if own.names == 0 {
            held.connections -= 1;
        }
    }
}

/// The lists of one stream; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct NameHold {
    share: Arc<NameShare>,
    lists: HashMap<ResourceType, Arc<NameSet>>,
}

impl NameHold {
    /// Nothing yet, of this part.
    pub(crate) fn new(share: Arc<NameShare>) -> Self {
        Self { share, lists: HashMap::new() }
    }

    /// Asks for these names of a type from now on. False when they are too many: the type has no names then.
    pub(crate) fn set(&mut self, kind: ResourceType, list: Option<&Arc<NameSet>>) -> bool {
        let list = list.filter(|list| !list.is_empty());
        if self.lists.get(&kind).map(Arc::as_ptr) == list.map(Arc::as_ptr) {
            return true;
        }
        if let Some(before) = self.lists.remove(&kind) {
            self.share.give(&before);
        }
        let Some(list) = list else { return true };
        let admitted = self.share.take(list);
        if admitted {
            self.lists.insert(kind, list.clone());
        }
        admitted
    }
}

impl Drop for NameHold {
    fn drop(&mut self) {
        for list in self.lists.values() {
            self.share.give(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(prefix: &str, count: usize) -> Arc<NameSet> {
        NameSet::of((0..count).map(|number| Arc::from(format!("budget-{prefix}-{number}"))))
    }

    const CDS: ResourceType = ResourceType::Cluster;
    const EDS: ResourceType = ResourceType::Endpoint;

    #[test]
    fn equal_lists_count_once_and_others_are_bound() {
        let budget = NameBudget::new((100, 60));
        let shares = [budget.share(), budget.share(), budget.share()];
        let hold = |at: usize| NameHold::new(shares[at].clone());
        let (mut first, mut same, mut other) = (hold(0), hold(0), hold(1));
        let (a, b, c) = (list("a", 50), list("b", 20), list("c", 45));
        assert!(first.set(EDS, Some(&a)) && same.set(EDS, Some(&a)) && other.set(EDS, Some(&a)));
        assert_eq!(budget.held(), 50);
        assert!(!same.set(CDS, Some(&b)), "a connection has room for 60");
        assert!(other.set(EDS, Some(&c)), "the list before does not count beside the new one");
        let mut third = hold(2);
        assert!(!third.set(EDS, Some(&list("d", 40))), "more than is left, and more than a fair part");
        assert!(third.set(EDS, Some(&b)), "less than a fair part is let through");
        assert!(!third.set(CDS, Some(&a)), "a list that others have counts on the connection");
        drop(first);
        assert_eq!(budget.held(), 50 + 45 + 20, "the other stream has the list still");
        assert!(same.set(EDS, None));
        assert_eq!(budget.held(), 45 + 20);
        drop((same, other, third));
        assert_eq!(budget.held(), 0);
        let held = lock(&budget.held);
        assert!(held.connections == 0 && held.lists.holders.is_empty());
    }

    #[test]
    fn all_together_hold_twice_the_bound_at_most() {
        let budget = NameBudget::new((1000, 1000));
        let holds: Vec<_> = (0..100)
            .map(|number| {
                let mut hold = NameHold::new(budget.share());
                (1..=100).take_while(|count| hold.set(EDS, Some(&list(&format!("all-{number}"), *count)))).count();
                hold
            })
            .collect();
        assert!(budget.held() >= 1000 && budget.held() <= 2000, "{}", budget.held());
        drop(holds);
        assert_eq!(budget.held(), 0);
    }
}
