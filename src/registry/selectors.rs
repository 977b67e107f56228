//! Indexes of selectors and of workloads by label, so that neither is searched linearly.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::model::{LabelSet, Labels, WorkloadInstance, labels};

type Pair = (String, String);

fn pair(key: &str, value: &str) -> Pair {
    (key.to_string(), value.to_string())
}

/// An index of selectors, searched by the labels of a workload. Each selector is indexed under its first pair.
#[derive(Debug, Clone)]
pub struct SelectorIndex<K> {
    by_pair: HashMap<Pair, BTreeMap<K, Labels>>,
    empty: BTreeSet<K>,
}

impl<K> Default for SelectorIndex<K> {
    fn default() -> Self {
        Self { by_pair: HashMap::new(), empty: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> SelectorIndex<K> {
    /// Adds a selector.
    pub fn insert(&mut self, selector: &Labels, key: K) {
        match selector.first_key_value() {
            None => {
                self.empty.insert(key);
            }
            Some((k, v)) => {
                self.by_pair.entry((k.clone(), v.clone())).or_default().insert(key, selector.clone());
            }
        }
    }

    /// Removes a selector.
    pub fn remove(&mut self, selector: &Labels, key: &K) {
        let Some((k, v)) = selector.first_key_value() else {
            self.empty.remove(key);
            return;
        };
        let pair = (k.clone(), v.clone());
        if let Some(of_pair) = self.by_pair.get_mut(&pair) {
            of_pair.remove(key);
            if of_pair.is_empty() {
                self.by_pair.remove(&pair);
            }
        }
    }

    /// Keys of selectors with at least one pair that match these labels.
    pub fn selecting<'a>(&'a self, labels: &'a LabelSet) -> impl Iterator<Item = &'a K> {
        labels
            .iter()
            .filter_map(|(k, v)| self.by_pair.get(&pair(k, v)))
            .flatten()
            .filter(|(_, selector)| labels::matches(selector, labels))
            .map(|(key, _)| key)
    }

    /// Whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.by_pair.is_empty() && self.empty.is_empty()
    }

    /// Keys of selectors without pairs.
    pub fn all_selecting(&self) -> impl Iterator<Item = &K> {
        self.empty.iter()
    }
}

/// Identity of a workload inside its namespace. Its order is that of endpoints: Pods first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Whether the workload is a WorkloadEntry, not a Pod.
    pub entry: bool,
    /// Name of the object.
    pub name: Arc<str>,
    /// Id of the cluster.
    pub cluster: Arc<str>,
}

/// The workloads of one namespace, indexed by label.
#[derive(Debug, Clone, Default)]
pub struct LabelledWorkloads {
    instances: BTreeMap<WorkloadKey, Arc<WorkloadInstance>>,
    by_pair: HashMap<Pair, BTreeSet<WorkloadKey>>,
}

impl LabelledWorkloads {
    /// Sets or removes (`None`) a workload; returns the previous one.
    pub fn set(&mut self, key: &WorkloadKey, instance: Option<Arc<WorkloadInstance>>) -> Option<Arc<WorkloadInstance>> {
        let old = self.instances.remove(key);
        for (k, v) in old.iter().flat_map(|o| o.endpoint.labels.iter()) {
            let pair = pair(k, v);
            if let Some(keys) = self.by_pair.get_mut(&pair) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_pair.remove(&pair);
                }
            }
        }
        if let Some(instance) = instance {
            for (k, v) in instance.endpoint.labels.iter() {
                self.by_pair.entry(pair(k, v)).or_default().insert(key.clone());
            }
            self.instances.insert(key.clone(), instance);
        }
        old
    }

    /// The workload with this key.
    pub fn get(&self, key: &WorkloadKey) -> Option<&Arc<WorkloadInstance>> {
        self.instances.get(key)
    }

    /// Whether there are no workloads.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Workloads whose labels match the selector, in key order; an empty selector matches all.
    pub fn matching(&self, selector: &Labels) -> Vec<&Arc<WorkloadInstance>> {
        let sets = selector.iter().map(|(k, v)| self.by_pair.get(&(k.clone(), v.clone())));
        let Some(sets) = sets.collect::<Option<Vec<_>>>() else { return Vec::new() };
        let Some(smallest) = sets.into_iter().min_by_key(|s| s.len()) else { return self.instances.values().collect() };
        let found = smallest.iter().filter_map(|key| self.instances.get(key));
        found.filter(|i| labels::matches(selector, &*i.endpoint.labels)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Endpoint;

    fn labels(text: &str) -> Labels {
        text.split(',').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn workload(name: &str, text: &str) -> Arc<WorkloadInstance> {
        let endpoint = Endpoint { labels: Arc::new((&labels(text)).into()), ..Endpoint::default() };
        Arc::new(WorkloadInstance { name: name.into(), endpoint, ..WorkloadInstance::default() })
    }

    #[test]
    fn both_directions_agree_with_matching_one_by_one() {
        let selectors = ["", "a=1", "a=1,b=2", "b=2", "c=9"];
        let workloads = ["", "a=1", "a=1,b=2", "a=2,b=2", "b=2,c=9,d=1"];
        let mut index = SelectorIndex::default();
        let mut set = LabelledWorkloads::default();
        for (n, s) in selectors.iter().enumerate() {
            index.insert(&labels(s), n);
        }
        for w in workloads {
            let instance = workload(w, w);
            let key = WorkloadKey { entry: true, name: w.into(), cluster: "".into() };
            set.set(&key, Some(instance));
        }
        for (n, s) in selectors.iter().enumerate() {
            let found: BTreeSet<_> = set.matching(&labels(s)).iter().map(|w| w.name.to_string()).collect();
            for w in workloads {
                let matches = labels::matches(&labels(s), &labels(w));
                assert_eq!(found.contains(w), matches, "{s} {w}");
                let of_workload = LabelSet::from(&labels(w));
                let mut selecting = index.selecting(&of_workload).chain(index.all_selecting());
                assert_eq!(selecting.any(|k| *k == n), matches, "{s} {w}");
            }
        }
        index.remove(&labels("a=1"), &1);
        assert_eq!(index.selecting(&LabelSet::from(&labels("a=1"))).count(), 0);
    }
}
