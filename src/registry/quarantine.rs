//! Objects that the registry fails on: left out by name, so that one of them cannot stop all others.
//!
//! Pure but for the catching of panics.

use std::{collections::BTreeMap, sync::Arc};

use super::ServiceEntryStore;
use crate::{
    model::{Config, ConfigEvent, ConfigKey, ConfigSnapshot, Features, Mesh},
    runtime::{Panicked, catch},
};

/// More objects than this that fail are a fault of the registry itself.
const MAX_POISON: usize = 64;

/// Objects that are left out, with the stamp of the content that fails.
#[derive(Debug, Clone, Default)]
pub struct Quarantine {
    poison: BTreeMap<ConfigKey, u64>,
}

impl Quarantine {
    /// Whether this content is left out. Other content of the same object is tried again.
    #[must_use]
    pub fn holds(&self, config: &Config) -> bool {
        !self.poison.is_empty() && self.poison.get(&config.key()) == Some(&config.stamp)
    }

    /// The events without those of objects that are left out.
    #[must_use]
    pub fn admit(&self, events: &Arc<[ConfigEvent]>) -> Arc<[ConfigEvent]> {
        if self.poison.is_empty() {
            return events.clone();
        }
        events.iter().filter(|e| !self.holds(&e.current)).cloned().collect()
    }

    /// Keys that are left out.
    pub fn keys(&self) -> impl Iterator<Item = &ConfigKey> {
        self.poison.keys()
    }

    /// Builds a registry anew. Objects that it fails on are found one by one and left out.
    ///
    /// # Errors
    /// [`Panicked`] when it fails for no single object, or for too many.
    pub fn rebuild(
        &mut self,
        mesh: &Arc<Mesh>,
        features: &Arc<Features>,
        configs: &ConfigSnapshot,
    ) -> Result<ServiceEntryStore, Panicked> {
        self.forget(configs);
        loop {
            let sound = self.without(configs);
            let failed = match catch(|| ServiceEntryStore::of(mesh.clone(), features.clone(), &sound)) {
                Ok(store) => return Ok(store),
                Err(panicked) => panicked,
            };
            let culprit = culprit(ServiceEntryStore::new(mesh.clone(), features.clone()), &sound);
            let Some(culprit) = culprit.filter(|_| self.poison.len() < MAX_POISON) else { return Err(failed) };
            tracing::error!(object = %culprit.key(), file = ?culprit.origin.file, error = %failed, "object left out");
            self.poison.insert(culprit.key(), culprit.stamp);
        }
    }

    /// Forgets what is gone or has changed: objects that were mended are not held against those that fail later.
    fn forget(&mut self, configs: &ConfigSnapshot) {
        if self.poison.is_empty() {
            return;
        }
        let all = configs.by_kind.values().flat_map(|l| l.iter());
        let there: BTreeMap<ConfigKey, u64> = all.filter(|c| self.holds(c)).map(|c| (c.key(), c.stamp)).collect();
        self.poison = there;
    }

    fn without(&self, configs: &ConfigSnapshot) -> ConfigSnapshot {
        if self.poison.is_empty() {
            return configs.clone();
        }
        let all = configs.by_kind.values().flat_map(|l| l.iter());
        ConfigSnapshot::of(all.filter(|c| !self.holds(c)).cloned())
    }
}

/// The first object that makes the registry fail when it is added.
fn culprit(store: ServiceEntryStore, configs: &ConfigSnapshot) -> Option<Arc<Config>> {
    let mut store = store;
    for config in configs.by_kind.values().flat_map(|l| l.iter()) {
        let event = ConfigEvent { old: None, current: config.clone(), kind: crate::model::EventKind::Add };
        let tried = catch(move || {
            store.apply(&event);
            store
        });
        match tried {
            Ok(next) => store = next,
            Err(_) => return Some(config.clone()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{EventKind, Origin, decode::from_value};

    #[test]
    fn what_is_left_out_is_left_out_until_it_changes() {
        let entry = |host: &str| {
            let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
                "metadata": {"name": "a", "namespace": "ns"}, "spec": {"hosts": [host]}});
            Arc::new(from_value(&document, Origin::default()).unwrap())
        };
        let poison = Quarantine { poison: BTreeMap::from([(entry("a").key(), entry("a").stamp)]) };
        let event = |c: Arc<Config>| ConfigEvent { old: None, current: c, kind: EventKind::Add };
        let admitted = poison.admit(&vec![event(entry("a")), event(entry("b"))].into());
        assert_eq!(admitted.len(), 1);
        assert!(!poison.holds(&entry("b")));
        assert!(poison.without(&ConfigSnapshot::of([entry("a")])).by_kind.is_empty());
    }

    #[test]
    fn objects_that_were_mended_do_not_count() {
        let entry = |name: &str, host: &str| {
            let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
                "metadata": {"name": name, "namespace": "ns"}, "spec": {"hosts": [host]}});
            Arc::new(from_value(&document, Origin::default()).unwrap())
        };
        let bad = (0..MAX_POISON).map(|n| entry(&n.to_string(), "bad.example"));
        let mut quarantine = Quarantine { poison: bad.map(|c| (c.key(), c.stamp)).collect() };
        let mended = (0..MAX_POISON - 2).map(|n| entry(&n.to_string(), "good.example"));
        let still_bad = entry(&(MAX_POISON - 1).to_string(), "bad.example");
        let configs = ConfigSnapshot::of(mended.chain([still_bad.clone()]));
        quarantine.rebuild(&Arc::default(), &Arc::default(), &configs).unwrap();
        assert_eq!(quarantine.keys().collect::<Vec<_>>(), [&still_bad.key()]);
    }
}
