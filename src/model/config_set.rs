//! Objects in an ordered set, found by the identity inside each object: no key is stored beside an object.

use std::{borrow::Borrow, cmp::Ordering, collections::BTreeSet, fmt, sync::Arc};

use super::{Config, ConfigKey, Kind};

/// The full identity of an object: cluster, kind, namespace and name.
pub type FullKey<'a> = (&'a str, Kind, &'a str, &'a str);

/// A type that carries the identity of an object.
pub trait Placed {
    /// The identity of this value.
    fn place(&self) -> FullKey<'_>;
}

impl Placed for Config {
    fn place(&self) -> FullKey<'_> {
        (&self.origin.cluster, self.kind(), &self.meta.namespace, &self.meta.name)
    }
}

impl<T: Placed> Placed for Arc<T> {
    fn place(&self) -> FullKey<'_> {
        (**self).place()
    }
}

impl Placed for FullKey<'_> {
    fn place(&self) -> FullKey<'_> {
        *self
    }
}

impl ConfigKey {
    /// The full identity of this key in a cluster.
    #[must_use]
    pub fn within<'a>(&'a self, cluster: &'a str) -> FullKey<'a> {
        (cluster, self.kind, &self.namespace, &self.name)
    }
}

/// An element that is compared by its identity only.
#[derive(Clone)]
struct Element<T>(T);

impl<'a, T: Placed + 'a> Borrow<dyn Placed + 'a> for Element<T> {
    fn borrow(&self) -> &(dyn Placed + 'a) {
        &self.0
    }
}

impl<T: Placed> Ord for Element<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.place().cmp(&other.0.place())
    }
}

impl<T: Placed> PartialOrd for Element<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Placed> PartialEq for Element<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Placed> Eq for Element<T> {}

impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Placed + '_ {}

/// A set of objects, or of values that hold one, ordered by identity. An element takes its own size and a tenth of a tree node.
#[derive(Clone)]
pub struct ConfigSet<T = Arc<Config>>(BTreeSet<Element<T>>);

impl<T> Default for ConfigSet<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: fmt::Debug> fmt::Debug for ConfigSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|e| &e.0)).finish()
    }
}

impl<T: Placed> ConfigSet<T> {
    /// The element with this identity.
    #[must_use]
    pub fn get(&self, place: &impl Placed) -> Option<&T> {
        self.0.get(place as &dyn Placed).map(|e| &e.0)
    }

    /// Whether the set has an element with this identity.
    #[must_use]
    pub fn contains(&self, place: &impl Placed) -> bool {
        self.get(place).is_some()
    }

    /// Inserts an element; returns the replaced element with the same identity.
    pub fn insert(&mut self, element: T) -> Option<T> {
        self.0.replace(Element(element)).map(|e| e.0)
    }

    /// Removes and returns the element with this identity.
    pub fn remove(&mut self, place: &impl Placed) -> Option<T> {
        self.0.take(place as &dyn Placed).map(|e| e.0)
    }

    /// All elements, ordered by identity.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.iter().map(|e| &e.0)
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of several elements with one identity the last one stays.
impl<T: Placed> FromIterator<T> for ConfigSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::default();
        set.extend(elements);
        set
    }
}

/// A new element replaces the one with its identity. A bulk insert rebuilds the tree with full nodes, which take half the
/// memory of grown ones.
impl<T: Placed> Extend<T> for ConfigSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        let mut elements: Vec<Element<T>> = elements.into_iter().map(Element).collect();
        if elements.len() <= self.len() {
            for element in elements {
                self.0.replace(element);
            }
            return;
        }
        let old = std::mem::take(&mut self.0);
        elements.splice(0..0, old);
        elements.sort();
        // `dedup` keeps the first of equal elements: reversed, that is the last one inserted.
        elements.reverse();
        elements.dedup();
        elements.reverse();
        self.0 = elements.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// An identity, and a number that distinguishes items with the same identity.
    #[derive(Debug, Clone, PartialEq)]
    struct Item(String, u32);

    impl Placed for Item {
        fn place(&self) -> FullKey<'_> {
            ("", Kind::Sidecar, "n", &self.0)
        }
    }

    fn items() -> impl Strategy<Value = Vec<Item>> {
        proptest::collection::vec((0..20u8, any::<u32>()).prop_map(|(n, v)| Item(n.to_string(), v)), 0..60)
    }

    proptest! {
        #[test]
        fn a_set_is_a_map_by_place(first in items(), second in items(), third in items()) {
            let mut set: ConfigSet<Item> = first.iter().cloned().collect();
            let mut map: BTreeMap<String, Item> = first.into_iter().map(|i| (i.0.clone(), i)).collect();
            set.extend(second.clone());
            map.extend(second.into_iter().map(|i| (i.0.clone(), i)));
            for item in third {
                if item.1 % 2 == 0 {
                    prop_assert_eq!(set.remove(&item), map.remove(&item.0));
                } else {
                    prop_assert_eq!(set.get(&item), map.get(&item.0));
                    prop_assert_eq!(set.insert(item.clone()), map.insert(item.0.clone(), item));
                }
            }
            prop_assert_eq!(set.len(), map.len());
            prop_assert!(set.iter().eq(map.values()));
        }
    }
}
