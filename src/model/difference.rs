//! Differences between two versions of a collection, of which the later one began as a copy of the earlier one.
//!
//! Shared elements are recognised by pointer, so a comparison costs little more than one walk over pointers.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hash},
    sync::Arc,
};

/// The elements that only one of two lists has, compared by stamp. If common elements changed their order, all elements between
/// the first and the last moved one.
pub fn of_lists<'a, T>(old: &'a [Arc<T>], new: &'a [Arc<T>], stamp: impl Fn(&T) -> u64) -> Vec<&'a Arc<T>> {
    if std::ptr::eq(old, new) {
        return Vec::new();
    }
    let same = |(a, b): &(&Arc<T>, &Arc<T>)| Arc::ptr_eq(a, b) || stamp(a) == stamp(b);
    let head = old.iter().zip(new).take_while(same).count();
    let (old, new) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let old = old.get(..old.len() - tail).unwrap_or_default();
    let new = new.get(..new.len() - tail).unwrap_or_default();
    let stamps = |list: &[Arc<T>]| -> HashSet<u64> { list.iter().map(|e| stamp(e)).collect() };
    let (before, now) = (stamps(old), stamps(new));
    let gone = old.iter().filter(|e| !now.contains(&stamp(e)));
    let changed: Vec<_> = gone.chain(new.iter().filter(|e| !before.contains(&stamp(e)))).collect();
    let stayed = |list: &'a [Arc<T>], other: &HashSet<u64>| -> Vec<u64> {
        list.iter().map(|e| stamp(e)).filter(|s| other.contains(s)).collect()
    };
    if stayed(old, &now) == stayed(new, &before) { changed } else { old.iter().chain(new).collect() }
}

/// A key whose values differ in two maps, with the previous and the current value.
pub type Differing<'a, K, V> = (&'a K, Option<&'a V>, Option<&'a V>);

/// The keys whose values differ in two maps, or that only one of them has.
pub fn of_maps<'a, K: Eq + Hash, V, S: BuildHasher>(
    old: &'a HashMap<K, V, S>,
    new: &'a HashMap<K, V, S>,
    same: impl Fn(&V, &V) -> bool,
) -> Vec<Differing<'a, K, V>> {
    let mut found = Vec::new();
    if std::ptr::eq(old, new) {
        return found;
    }
    let (mut before, mut now) = (old.iter().peekable(), new.iter().peekable());
    // A copy keeps its iteration order until it grows: while both orders agree, no lookup is needed.
    while let (Some((a, _)), Some((b, _))) = (before.peek(), now.peek()) {
        if a != b {
            break;
        }
        if let (Some((key, a)), Some((_, b))) = (before.next(), now.next())
            && !same(a, b)
        {
            found.push((key, Some(a), Some(b)));
        }
    }
    for (key, a) in before {
        let b = new.get(key);
        if b.is_none_or(|b| !same(a, b)) {
            found.push((key, Some(a), b));
        }
    }
    found.extend(now.filter(|(key, _)| !old.contains_key(*key)).map(|(key, b)| (key, None, Some(b))));
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn list(values: &[u64]) -> Vec<Arc<u64>> {
        values.iter().copied().map(Arc::new).collect()
    }

    fn changed(old: &[u64], new: &[u64]) -> Vec<u64> {
        of_lists(&list(old), &list(new), |v| *v).into_iter().map(|v| **v).collect()
    }

    #[test]
    fn lists() {
        assert!(changed(&[1, 2, 3], &[1, 2, 3]).is_empty());
        assert_eq!(changed(&[1, 2, 3], &[1, 4, 3]), [2, 4]);
        assert_eq!(changed(&[1, 2, 3], &[1, 3]), [2]);
        assert_eq!(changed(&[], &[1]), [1]);
        assert_eq!(changed(&[1, 2, 3, 9], &[1, 3, 2, 9]), [2, 3, 3, 2], "another order");
        let one = list(&[1, 2]);
        assert!(of_lists(&one, &one, |v| *v).is_empty());
    }

    proptest! {
        #[test]
        fn maps(
            begin in prop::collection::btree_map(0u8..40, 0u8..3, 0..40),
            edits in prop::collection::vec((0u8..40, prop::option::of(0u8..3)), 0..12),
        ) {
            let old: HashMap<u8, u8> = begin.into_iter().collect();
            let mut new = old.clone();
            for (key, value) in edits {
                match value {
                    Some(value) => new.insert(key, value),
                    None => new.remove(&key),
                };
            }
            let found: BTreeMap<_, _> =
                of_maps(&old, &new, |a, b| a == b).into_iter().map(|(k, a, b)| (*k, (a.copied(), b.copied()))).collect();
            let all = (0u8..40).map(|k| (k, (old.get(&k).copied(), new.get(&k).copied())));
            prop_assert_eq!(found, all.filter(|(_, (a, b))| a != b).collect::<BTreeMap<_, _>>());
        }
    }
}
