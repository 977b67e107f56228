//! The store of one source: objects by key, with create, update, patch and delete under optimistic concurrency.
//!
//! Follows Istio's memory store, except that a stale resource version is always refused and a patch of a missing object is
//! an error, not an upsert.

use std::sync::Arc;

use super::{key::StoreKey, patch::Patch};
use crate::model::{Config, ConfigSet, decode, validation};

/// The reason that a write is refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Create of a key that exists.
    #[error("{0}: item already exists")]
    AlreadyExists(StoreKey),
    /// Update, patch or delete of a key that does not exist.
    #[error("{0}: item not found")]
    NotFound(StoreKey),
    /// The object changed since the caller read it.
    #[error("{key}: conflicting resource version, try again (given {given:?}, stored {stored:?})")]
    Conflict {
        /// Key of the object.
        key: StoreKey,
        /// The caller's resource version.
        given: String,
        /// The stored resource version.
        stored: String,
    },
    /// The object does not pass validation.
    #[error("{key}: {errors}")]
    Invalid {
        /// Key of the object.
        key: StoreKey,
        /// All reasons, joined by `; `.
        errors: String,
    },
    /// The patch does not apply.
    #[error("{key}: {reason}")]
    BadPatch {
        /// Key of the object.
        key: StoreKey,
        /// The reason.
        reason: String,
    },
}

/// The objects of one source.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    objects: ConfigSet,
    writes: u64,
}

impl MemoryStore {
    /// The object of a key.
    #[must_use]
    pub fn get(&self, key: &StoreKey) -> Option<&Arc<Config>> {
        self.objects.get(key)
    }

    /// A store of objects that their source has validated; of several with one key the last stays.
    pub(super) fn of(configs: Vec<Arc<Config>>) -> Self {
        Self { objects: configs.into_iter().collect(), ..Self::default() }
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Config>> {
        self.objects.iter()
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the store is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Inserts an object that its source has validated; returns the previous one.
    pub(super) fn put(&mut self, config: Arc<Config>) -> Option<Arc<Config>> {
        self.objects.insert(config)
    }

    /// Removes an object and returns it.
    pub(super) fn take(&mut self, key: &StoreKey) -> Option<Arc<Config>> {
        self.objects.remove(key)
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The key is taken, or the object is invalid.
    pub fn create(&mut self, config: Config) -> Result<Arc<Config>, StoreError> {
        let key = StoreKey::of(&config);
        check(&key, &config)?;
        if self.objects.contains(&key) {
            return Err(StoreError::AlreadyExists(key));
        }
        Ok(self.write(config))
    }

    /// Replaces an object. A resource version that is given must be the stored one.
    ///
    /// # Errors
    /// No such object, a conflict, or the object is invalid.
    pub fn update(&mut self, config: Config) -> Result<Arc<Config>, StoreError> {
        let key = StoreKey::of(&config);
        check(&key, &config)?;
        self.check_version(&key, &config.meta.resource_version)?;
        Ok(self.write(config))
    }

    /// Changes an object by a merge patch (RFC 7386) of its document.
    ///
    /// # Errors
    /// No such object, a patch that does not apply, or an invalid result.
    pub fn patch(&mut self, key: &StoreKey, patch: &Patch) -> Result<Arc<Config>, StoreError> {
        let stored = self.objects.get(key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
        let bad = |reason: String| StoreError::BadPatch { key: key.clone(), reason };
        let document = patch.apply(stored).map_err(bad)?;
        let patched = decode::from_value(&document, stored.origin.clone()).map_err(|e| bad(e.to_string()))?;
        if StoreKey::of(&patched) != *key {
            return Err(bad("a patch may not change kind, namespace or name".to_string()));
        }
        check(key, &patched)?;
        Ok(self.write(patched))
    }

    /// Deletes an object. A resource version that is given must be the stored one.
    ///
    /// # Errors
    /// No such object, or a conflict.
    pub fn delete(&mut self, key: &StoreKey, resource_version: Option<&str>) -> Result<Arc<Config>, StoreError> {
        self.check_version(key, resource_version.unwrap_or_default())?;
        self.objects.remove(key).ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    fn check_version(&self, key: &StoreKey, given: &str) -> Result<(), StoreError> {
        let stored = self.objects.get(key).ok_or_else(|| StoreError::NotFound(key.clone()))?;
        if given.is_empty() || *given == *stored.meta.resource_version {
            return Ok(());
        }
        Err(StoreError::Conflict {
            key: key.clone(),
            given: given.to_string(),
            stored: stored.meta.resource_version.to_string(),
        })
    }

    fn write(&mut self, mut config: Config) -> Arc<Config> {
        self.writes += 1;
        config.meta.resource_version = self.writes.to_string().into();
        let config = Arc::new(config);
        self.objects.insert(config.clone());
        config
    }
}

fn check(key: &StoreKey, config: &Config) -> Result<(), StoreError> {
    let errors = validation::validate(config).errors;
    if errors.is_empty() {
        return Ok(());
    }
    Err(StoreError::Invalid { key: key.clone(), errors: errors.join("; ") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Origin;

    fn entry(name: &str, host: &str) -> Config {
        let document = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
        });
        decode::from_value(&document, Origin::default()).unwrap()
    }

    #[test]
    fn a_key_is_created_once() {
        let mut store = MemoryStore::default();
        store.create(entry("a", "a.example")).unwrap();
        assert!(matches!(store.create(entry("a", "b.example")), Err(StoreError::AlreadyExists(_))));
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_stale_resource_version_is_refused() {
        let mut store = MemoryStore::default();
        let first = store.create(entry("a", "a.example")).unwrap();
        let mut change = entry("a", "b.example");
        change.meta.resource_version = first.meta.resource_version.clone();
        store.update(change.clone()).unwrap();
        assert!(matches!(store.update(change), Err(StoreError::Conflict { .. })));
        let key = StoreKey::of(&first);
        assert!(matches!(store.delete(&key, Some(&first.meta.resource_version)), Err(StoreError::Conflict { .. })));
        store.delete(&key, None).unwrap();
        assert!(matches!(store.delete(&key, None), Err(StoreError::NotFound(_))));
    }

    #[test]
    fn a_patch_changes_the_named_fields_and_nothing_else() {
        let mut store = MemoryStore::default();
        let key = StoreKey::of(&store.create(entry("a", "a.example")).unwrap());
        let patched = store.patch(&key, &Patch::merge(json!({"spec": {"hosts": ["b.example"]}}))).unwrap();
        let spec = patched.service_entry().unwrap();
        assert_eq!((spec.hosts.as_slice(), spec.ports.len()), (&["b.example".to_string()][..], 1));
        assert!(matches!(
            store.patch(&key, &Patch::merge(json!({"metadata": {"name": "other"}}))),
            Err(StoreError::BadPatch { .. })
        ));
    }
}
