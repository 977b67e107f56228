//! Quarantine for objects on which the registry panics: they are excluded by name, so that one object cannot stop the others.
//!
//! The code is pure except that it catches panics.

use std::{collections::BTreeMap, sync::Arc};

use super::ServiceEntryStore;
use crate::{
    model::{Config, ConfigEvent, ConfigKey, ConfigSnapshot, Features, Mesh},
    runtime::{Panicked, catch},
};

/// Maximum number of quarantined objects; beyond it the fault is in the registry itself.
const MAX_POISON: usize = 64;

/// Quarantined objects, with the stamp of the content that panics.
#[derive(Debug, Clone, Default)]
pub struct Quarantine {
    poison: BTreeMap<ConfigKey, u64>,
}

impl Quarantine {
    /// Whether this content is quarantined. Other content of the same object is tried again.
    #[must_use]
    pub fn holds(&self, config: &Config) -> bool {
        !self.poison.is_empty() && self.poison.get(&config.key()) == Some(&config.stamp)
    }

    /// The events without those of quarantined objects.
    #[must_use]
    pub fn admit(&self, events: &Arc<[ConfigEvent]>) -> Arc<[ConfigEvent]> {
        if self.poison.is_empty() {
            return events.clone();
        }
        events.iter().filter(|e| !self.holds(&e.current)).cloned().collect()
    }

    /// Keys of quarantined objects.
    pub fn keys(&self) -> impl Iterator<Item = &ConfigKey> {
        self.poison.keys()
    }

    /// Builds a registry anew. Objects on which it panics are found one by one and quarantined.
    ///
    /// # Errors
    /// [`Panicked`] when no single object causes the panic, or too many do.
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
            tracing::error!(object = %culprit.key(), file = ?culprit.origin.file, error = %failed, "object quarantined");
            self.poison.insert(culprit.key(), culprit.stamp);
        }
    }

    /// Removes entries of deleted and changed objects, so that they do not count towards the maximum.
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

/// The first object on whose addition the registry panics.
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
    fn a_quarantined_object_stays_out_until_it_changes() {
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
