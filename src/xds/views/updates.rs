//! Differences between snapshots, computed and encoded once for all clients that go the same way.
//!
//! All clients of a view move between the same snapshots, one after another. The difference of two snapshots is kept with the
//! older one, for as long as that one has a holder: however many views and types there are, none drives out the differences
//! that clients of another will ask for next. A difference from nothing has no such end: it is remembered while it is being
//! sent, and some megabytes of such differences a little longer.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use super::{
    claims::Claims,
    outgoing::UpdateKey,
    resource::{Block, Resource},
    shared::Table,
    snapshot::{Difference, Snapshot},
    update::{EncodedBudget, Protocol, Update},
};
use crate::xds::{names::NameSet, resource_type::ResourceType};

fn sum(names: &[Arc<NameSet>]) -> u128 {
    names.iter().fold(0, |sum, set| sum.wrapping_add(set.hash()))
}

/// Makes updates, and finds those that are made already.
#[derive(Debug, Default)]
pub struct Updates {
    budget: Arc<EncodedBudget>,
    first: Table<UpdateKey, Update>,
    /// With their weights, which are sums over all their resources.
    recent: Mutex<VecDeque<(Arc<Update>, usize)>>,
}

/// Encoded bytes that are kept while they are not being sent.
const RECENT_BYTES: usize = 8 << 20;
const RECENT_COUNT: usize = 128;

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
        let way = UpdateKey { again: sum(again), ..UpdateKey::to(new, kind, protocol) };
        let make = || {
            let mut difference = Difference::between(old, new);
            add_again(&mut difference, new, again);
            Arc::new(Update::new(kind, protocol, difference, new).counted(&self.budget))
        };
        match old {
            Some(old) => old.outgoing().update(way, make),
            None => self.fresh(way, make),
        }
    }

    /// The part of `new` that delta clients with resources of an earlier stream lack, without `spared`, plus the names in
    /// `again`.
    pub fn from_claims(
        &self,
        kind: ResourceType,
        claims: &Claims,
        new: &Snapshot,
        spared: &NameSet,
        again: &[Arc<NameSet>],
    ) -> Arc<Update> {
        let to = UpdateKey::to(new, kind, Protocol::Delta);
        self.fresh(UpdateKey { claims: claims.id(), spared: spared.hash(), again: sum(again), ..to }, || {
            let mut difference = claims.difference(new).sparing(spared);
            add_again(&mut difference, new, again);
            Arc::new(Update::new(kind, Protocol::Delta, difference, new).counted(&self.budget))
        })
    }

    /// All of `new`, for clients that hold `old`.
    pub fn whole(&self, kind: ResourceType, protocol: Protocol, old: Option<&Snapshot>, new: &Snapshot) -> Arc<Update> {
        let make = || self.between(kind, protocol, None, new, &[]);
        match old {
            Some(old) => old.outgoing().update(UpdateKey { whole: true, ..UpdateKey::to(new, kind, protocol) }, make),
            None => make(),
        }
    }

    /// `new`, but with the resources of these names as `old` has them. `None` when that makes no difference.
    pub fn keeping(&self, old: &Snapshot, new: &Arc<Snapshot>, names: &NameSet) -> Option<Arc<Snapshot>> {
        if names.is_empty() {
            return None;
        }
        old.outgoing().kept((new.id(), names.hash()), || {
            let differs = |r: &&Arc<Resource>| new.get(r.name()).is_none_or(|now| now.hash() != r.hash());
            let wanted = names.names().iter().filter(|n| new.scope().contains(n));
            let mut kept = wanted.filter_map(|name| old.get(name)).filter(differs).peekable();
            kept.peek()?;
            Some(Snapshot::before(new, Block::build(kept.cloned(), None)))
        })
    }

    fn fresh(&self, way: UpdateKey, make: impl FnOnce() -> Arc<Update>) -> Arc<Update> {
        if let Some(known) = self.first.get(&way) {
            return known;
        }
        self.first.prune();
        let made = make();
        let update = self.first.one(way, made.clone(), |_, _| true);
        if Arc::ptr_eq(&update, &made) {
            self.remember(made);
        }
        update
    }

    fn remember(&self, update: Arc<Update>) {
        let mut recent = self.recent.lock();
        let weight = update.weight();
        recent.push_back((update, weight));
        let mut bytes: usize = recent.iter().map(|(_, weight)| weight).sum();
        while recent.len() > RECENT_COUNT || bytes > RECENT_BYTES {
            bytes -= recent.pop_front().map_or(0, |(_, weight)| weight);
        }
    }
}

/// Adds names that are to be sent although they may not have changed.
pub(crate) fn add_again(difference: &mut Difference, new: &Snapshot, again: &[Arc<NameSet>]) {
    let mut extra = Vec::new();
    for name in again.iter().flat_map(|set| set.names()).filter(|n| new.scope().contains(n)) {
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
    use std::sync::Weak;

    use prost::Message;

    use super::*;
    use crate::{proto::envoy::service::discovery::v3 as discovery, xds::names::Scope};
    use ResourceType::{Cluster, Endpoint};

    fn snapshot(content: &[(&str, &str)]) -> Arc<Snapshot> {
        let resources = content.iter().map(|(n, v)| Arc::new(Resource::of_parts(*n, "t/x", v.as_bytes())));
        Snapshot::new(vec![Block::build(resources, None)], Scope::all())
    }

    fn set(names: &[&str]) -> Arc<NameSet> {
        NameSet::of(names.iter().map(|n| Arc::from(*n)))
    }

    #[test]
    fn updates_are_made_once() {
        let updates = Updates::default();
        let (old, new) = (snapshot(&[("a", "1"), ("b", "1")]), snapshot(&[("a", "2"), ("b", "1")]));
        let make = |again: &[Arc<NameSet>]| updates.between(Endpoint, Protocol::Delta, Some(&old), &new, again);
        let first = make(&[]);
        assert!(Arc::ptr_eq(&first, &make(&[])));
        let again = make(&[set(&["b", "zz"])]);
        let names: Vec<&str> = again.difference.changed.iter().map(|r| &**r.name()).collect();
        assert_eq!(names, ["a", "b"]);
        let decoded = discovery::DeltaDiscoveryResponse::decode(again.body()).unwrap();
        assert_eq!(decoded.removed_resources, ["zz"]);
        assert_eq!(decoded.resources.len(), 2);
        assert_eq!((decoded.type_url.as_str(), decoded.system_version_info), (Endpoint.url(), new.version()));
    }

    #[test]
    fn no_view_drives_out_the_updates_of_another() {
        let updates = Updates::default();
        let large = Arc::new(Resource::of_parts("large", "t/x", &vec![7; RECENT_BYTES / 4]));
        let with_large = |value: String| {
            let small = Arc::new(Resource::of_parts("small", "t/x", value.as_bytes()));
            Snapshot::new(vec![Block::build([small, large.clone()], None)], Scope::all())
        };
        let views: Vec<_> =
            (0..200).map(|view| (with_large(format!("{view}")), with_large(format!("{view}, changed")))).collect();
        let made = || {
            let of = |(old, new): &(Arc<Snapshot>, Arc<Snapshot>)| {
                let whole = updates.whole(Cluster, Protocol::Sotw, Some(old), new);
                [updates.between(Cluster, Protocol::Sotw, Some(old), new, &[]), whole].map(|u| Arc::downgrade(&u))
            };
            views.iter().map(of).collect::<Vec<_>>()
        };
        // The second client of a view comes when all that the first was sent is acknowledged.
        let (first, second) = (made(), made());
        for (first, second) in first.iter().flatten().zip(second.iter().flatten()) {
            assert!(Weak::ptr_eq(first, second) && first.strong_count() > 0);
        }
    }

    #[test]
    fn updates_between_snapshots_end_with_the_first() {
        let updates = Updates::default();
        let (old, new) = (snapshot(&[("a", "1")]), snapshot(&[("a", "2")]));
        let made = Arc::downgrade(&updates.between(Cluster, Protocol::Delta, Some(&old), &new, &[]));
        assert!(made.upgrade().is_some());
        drop(old);
        assert!(made.upgrade().is_none());
    }

    #[test]
    fn clients_that_keep_the_same_names_share_one_snapshot() {
        let updates = Updates::default();
        let (old, new) = (snapshot(&[("a", "1"), ("b", "1")]), snapshot(&[("b", "1"), ("c", "1")]));
        let kept = updates.keeping(&old, &new, &set(&["a", "b"])).unwrap();
        assert_eq!(kept.iter().map(|r| &**r.name()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(Arc::ptr_eq(&kept, &updates.keeping(&old, &new, &set(&["a", "b"])).unwrap()));
        assert!(updates.keeping(&old, &new, &set(&["b"])).is_none());
        assert!(updates.keeping(&old, &new, &NameSet::empty()).is_none());
        let next = Arc::downgrade(&new);
        drop(new);
        assert!(next.upgrade().is_some(), "a kept snapshot leads on to the next");
        drop(kept);
        assert!(next.upgrade().is_none());
    }
}
