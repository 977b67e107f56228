//! The resources that delta clients kept from an earlier stream, as they say: versions by name.
//!
//! A thousand clients of a view come back with the same list, each in an order of its own, since it is a map on the wire. The
//! first list is parsed, the others are compared with it, and its difference to a snapshot is made once.
//!
//! A hash finds a candidate and every entry is compared, so no client gets the list of another by a chosen hash.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    shared::Table,
    snapshot::{Difference, Snapshot},
};
use crate::xds::{
    names::NameSet,
    wire::{
        Field, Fields,
        request::{MAX_NAME, MAX_NAMES, RequestError},
    },
};

/// Names of lists that are kept without a holder: clients come back one after another.
const RECENT_NAMES: usize = 1 << 15;
/// Snapshots with a remembered difference.
const TARGETS: usize = 4;

/// Numbers lists, so that no update is made for two of them.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The lists that clients of one server told.
#[derive(Debug, Default)]
pub(crate) struct KnownClaims {
    by_sum: Table<u128, Claims>,
    recent: Mutex<VecDeque<Arc<Claims>>>,
}

/// A list of names with their versions, as one or more clients told it. It is not empty.
#[derive(Debug)]
pub struct Claims {
    id: u64,
    names: Arc<NameSet>,
    /// The version of each name; `None` is none of ours.
    versions: Box<[Option<u64>]>,
    /// Position of each entry, by its hash.
    places: HashMap<u64, u32>,
    /// By the id of a snapshot.
    gone: Mutex<VecDeque<(u64, Arc<NameSet>)>>,
}

impl Claims {
    fn parse(entries: &[&[u8]], hashes: &[u128]) -> Result<Self, RequestError> {
        let mut list = Vec::with_capacity(entries.len());
        for (entry, hash) in entries.iter().zip(hashes) {
            let (name, version) = parts(entry)?;
            list.push((Arc::<str>::from(name), own_version(version), *hash as u64));
        }
        // Of several entries with one name the last counts; the sort is stable.
        list.reverse();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list.dedup_by(|next, first| next.0 == first.0);
        let places = list.iter().zip(0..).map(|((_, _, hash), at)| (*hash, at)).collect();
        let versions = list.iter().map(|(_, version, _)| *version).collect();
        let names = NameSet::of(list.into_iter().map(|(name, ..)| name));
        Ok(Self { id: NEXT_ID.fetch_add(1, Relaxed), names, versions, places, gone: Mutex::default() })
    }

    /// Whether these are the entries that it was made of, in any order.
    fn is_of(&self, entries: &[&[u8]], hashes: &[u128]) -> bool {
        if entries.len() != self.versions.len() {
            return false;
        }
        let mut met = vec![false; entries.len()];
        entries.iter().zip(hashes).all(|(entry, hash)| {
            let Some(at) = self.places.get(&(*hash as u64)).map(|at| *at as usize) else { return false };
            let Ok((name, version)) = parts(entry) else { return false };
            let same = self.names.names().get(at).is_some_and(|n| **n == *name)
                && self.versions.get(at) == Some(&own_version(version));
            same && met.get_mut(at).is_some_and(|met| !std::mem::replace(met, true))
        })
    }

    /// Tells it from all other lists.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// The names.
    #[must_use]
    pub const fn names(&self) -> &Arc<NameSet> {
        &self.names
    }

    /// Names that are not in `target`, where they are asked for.
    #[must_use]
    pub fn gone(&self, target: &Snapshot) -> Arc<NameSet> {
        let known = self.gone.lock().iter().find(|(id, _)| *id == target.id()).map(|(_, gone)| gone.clone());
        known.unwrap_or_else(|| {
            let gone = self.names.names().iter().filter(|n| target.scope().contains(n) && target.get(n).is_none());
            let gone = NameSet::of(gone.cloned());
            let mut kept = self.gone.lock();
            kept.truncate(TARGETS - 1);
            kept.push_front((target.id(), gone.clone()));
            gone
        })
    }

    /// The difference between this list and `target`.
    #[must_use]
    pub fn difference(&self, target: &Snapshot) -> Difference {
        let mut difference = Difference::between(None, target);
        let held = |name: &str| {
            let at = self.names.names().binary_search_by(|n| (**n).cmp(name)).ok()?;
            self.versions.get(at).copied().flatten()
        };
        difference.changed.retain(|r| held(r.name()) != Some(r.hash() as u64));
        difference.gone.extend(self.gone(target).names().iter().cloned());
        difference
    }
}

impl KnownClaims {
    /// The list of these entries of a protobuf map; an equal one that is known is shared. `None` where there is no entry.
    ///
    /// # Errors
    /// [`RequestError`] for entries that are malformed or too many.
    pub(crate) fn read(&self, entries: &[&[u8]]) -> Result<Option<Arc<Claims>>, RequestError> {
        if entries.len() > MAX_NAMES {
            return Err(RequestError::TooMany { what: "initial resource versions", limit: MAX_NAMES });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let hashes: Vec<u128> = entries.iter().map(|e| xxh3_128(e)).collect();
        let sum = hashes.iter().fold(0u128, |sum, hash| sum.wrapping_add(*hash));
        if let Some(known) = self.by_sum.get(&sum).filter(|known| known.is_of(entries, &hashes)) {
            return Ok(Some(known));
        }
        self.by_sum.prune();
        // A list with the same sum that is not this one gives way: the next client finds the newer one.
        let claims = self.by_sum.one(sum, Arc::new(Claims::parse(entries, &hashes)?), |_, _| false);
        self.remember(&claims);
        Ok(Some(claims))
    }

    fn remember(&self, claims: &Arc<Claims>) {
        let mut recent = self.recent.lock();
        recent.push_back(claims.clone());
        let mut names: usize = recent.iter().map(|c| c.versions.len()).sum();
        while names > RECENT_NAMES {
            names -= recent.pop_front().map_or(names, |oldest| oldest.versions.len());
        }
    }
}

fn parts(entry: &[u8]) -> Result<(&str, &[u8]), RequestError> {
    let (mut name, mut version) = (&b""[..], &b""[..]);
    for part in Fields::of(entry) {
        match part? {
            Field::Bytes(1, value) => name = value,
            Field::Bytes(2, value) => version = value,
            _ => {}
        }
    }
    if name.len() > MAX_NAME {
        return Err(RequestError::TooMany { what: "bytes in a resource name", limit: MAX_NAME });
    }
    Ok((std::str::from_utf8(name).map_err(|_| RequestError::NotText("a resource name"))?, version))
}

/// The number that a version of ours is: 16 hexadecimal digits, as [`super::wire::version`] writes them.
fn own_version(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(text).ok().filter(|t| t.len() == 16 && digits)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::xds::{
        names::Scope,
        views::resource::{Block, Resource},
        wire,
    };

    fn entry(name: &str, version: &str) -> Vec<u8> {
        let mut out = BytesMut::new();
        wire::put_bytes(&mut out, 1, name.as_bytes());
        wire::put_bytes(&mut out, 2, version.as_bytes());
        out.to_vec()
    }

    fn read(known: &KnownClaims, entries: &[Vec<u8>]) -> Option<Arc<Claims>> {
        known.read(&entries.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn equal_lists_are_one_in_any_order_and_no_other() {
        let version = wire::version(0xfeed);
        let mut list: Vec<_> = (0..40).map(|n| entry(&format!("claims-{n}"), &version)).collect();
        let known = KnownClaims::default();
        let first = read(&known, &list).unwrap();
        list.reverse();
        assert!(Arc::ptr_eq(&first, &read(&known, &list).unwrap()));
        let other = read(&KnownClaims::default(), &list).unwrap();
        assert!(!Arc::ptr_eq(&first, &other) && first.id() != other.id(), "another server's");
        list[7] = entry("claims-7", "0");
        assert!(!Arc::ptr_eq(&first, &read(&known, &list).unwrap()));
        let hashes = [xxh3_128(&list[0]); 40];
        let twice = vec![list[0].as_slice(); 40];
        assert!(!first.is_of(&twice, &hashes), "one entry forty times is not forty entries");
        assert!(read(&known, &[]).is_none());
    }

    #[test]
    fn only_versions_as_they_are_written_are_ours() {
        let hash = 0x0123_4567_89ab_cdef_u128;
        assert_eq!(own_version(wire::version(hash).as_bytes()), Some(hash as u64));
        for other in ["", "1", "+123456789abcdef", "0123456789ABCDEF", "00123456789abcdef0"] {
            assert_eq!(own_version(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn lacking_names_are_those_of_a_map_of_the_list(
            kept in proptest::collection::vec((0..12u8, 0..3u8), 0..14),
            now in proptest::collection::btree_map(0..12u8, 0..3u8, 0..12),
            asked in proptest::option::of(proptest::collection::btree_set(0..12u8, 0..12)),
        ) {
            let name = |n: &u8| Arc::<str>::from(format!("n{n:02}"));
            let resource = |(n, v): (&u8, &u8)| Arc::new(Resource::of_parts(name(n), "t/x", &[*v]));
            let scope = asked.as_ref().map_or_else(Scope::all, |names| Scope::of(NameSet::of(names.iter().map(name))));
            let wanted = |n: &u8| asked.as_ref().is_none_or(|names| names.contains(n));
            let content = now.iter().filter(|(n, _)| wanted(n));
            let target = Snapshot::new(vec![Block::build(content.clone().map(resource), None)], scope);
            let entries: Vec<_> = kept.iter().map(|(n, v)| entry(&name(n), &resource((n, v)).version())).collect();
            let map: std::collections::BTreeMap<u8, u8> = kept.iter().copied().collect();
            let Some(claims) = read(&KnownClaims::default(), &entries) else { return Ok(()) };
            let found = claims.difference(&target);
            let changed: Vec<_> = content.filter(|(n, v)| map.get(n) != Some(v)).map(|(n, _)| name(n)).collect();
            prop_assert_eq!(found.changed.iter().map(|r| r.name().clone()).collect::<Vec<_>>(), changed);
            let missing = |n: &&u8| wanted(n) && !now.contains_key(n);
            let asked_for = asked.iter().flatten().chain(map.keys()).filter(missing).map(name);
            prop_assert_eq!(found.gone, asked_for.collect());
            prop_assert_eq!(claims.gone(&target), NameSet::of(map.keys().filter(missing).map(name)));
        }
    }
}
