//! Lists of names as clients write them. A state-of-the-world client repeats its whole list whenever one name comes or goes, and
//! a thousand clients of a view write the same list: the first is parsed, sorted and made a set, the others are compared with it.
//!
//! A hash finds a candidate and every name is compared, so no client gets the list of another by a chosen hash.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::{Mutex, MutexGuard};

use crate::xds::names::NameSet;

/// Shorter lists are parsed sooner than looked up.
pub(crate) const LOOKED_UP_FROM: usize = 32;

/// Stands for `*`, which is in no set.
const STAR: u32 = u32::MAX;

#[derive(Debug)]
struct Written {
    set: Weak<NameSet>,
    /// Position in the set of each name, in the order of the list.
    order: Arc<[u32]>,
}

/// The lists of names that clients of one server wrote, for as long as their sets are held.
#[derive(Debug, Default)]
pub struct WrittenLists(Mutex<HashMap<u128, Written>>);

impl WrittenLists {
    fn known(&self) -> MutexGuard<'_, HashMap<u128, Written>> {
        self.0.lock()
    }

    /// The set of a list with this hash, and whether `*` was in the list, if the set of an equal list is held.
    pub(crate) fn recall<'a>(&self, hash: u128, list: impl Iterator<Item = &'a [u8]>) -> Option<(bool, Arc<NameSet>)> {
        let (set, order) = {
            let known = self.known();
            let written = known.get(&hash)?;
            (written.set.upgrade()?, written.order.clone())
        };
        let (mut at, mut star) = (order.iter(), false);
        for name in list {
            let position = *at.next()?;
            if position == STAR {
                star = true;
            }
            let expected = if position == STAR { "*" } else { set.names().get(position as usize)? };
            if expected.as_bytes() != name {
                return None;
            }
        }
        at.next().is_none().then_some((star, set))
    }

    /// Remembers the set of a list for as long as it is held.
    pub(crate) fn remember(&self, hash: u128, list: &[Arc<str>], set: &Arc<NameSet>) {
        let position = |name: &Arc<str>| match set.names().binary_search(name) {
            Ok(at) => u32::try_from(at).ok(),
            Err(_) => (&**name == "*").then_some(STAR),
        };
        let Some(order) = list.iter().map(position).collect() else { return };
        let mut known = self.known();
        if known.len() == known.capacity() {
            known.retain(|_, written| written.set.strong_count() > 0);
        }
        known.insert(hash, Written { set: Arc::downgrade(set), order });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|n| Arc::from(*n)).collect()
    }

    #[test]
    fn an_equal_list_is_recalled_and_no_other_of_its_hash() {
        const HASH: u128 = 0x7e57;
        // Equal sets are one set: no other test may hold this one.
        let names = ["written-c", "written-a", "*", "written-b", "written-a"];
        let set = NameSet::of(list(&["written-a", "written-b", "written-c"]));
        let known = WrittenLists::default();
        let ask = |hash, names: &[&str]| known.recall(hash, names.iter().map(|n| n.as_bytes()));
        assert!(ask(HASH, &names).is_none());
        known.remember(HASH, &list(&names), &set);
        let (star, found) = ask(HASH, &names).unwrap();
        assert!(star && Arc::ptr_eq(&found, &set));
        assert!(WrittenLists::default().recall(HASH, names.iter().map(|n| n.as_bytes())).is_none(), "another server");
        for other in [
            &["written-c", "written-a", "*", "written-b"][..],
            &["written-c", "written-a", "*", "written-b", "written-a", "written-a"],
            &["written-c", "written-a", "written-b", "written-b", "written-a"],
            &["written-x", "written-a", "*", "written-b", "written-a"],
        ] {
            assert!(ask(HASH, other).is_none(), "{other:?}");
        }
        drop((found, set));
        assert!(ask(HASH, &names).is_none(), "no client holds it any more");
    }
}
