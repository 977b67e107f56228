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
}
