//! The difference between the inputs of two contexts: it decides the parts of a context to build again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::model::{Identity, Kind, PushInputs, difference, key_set::KeyLocation};

/// `(namespace, name)`.
type ObjectName = (Arc<str>, Arc<str>);

/// The inputs of a context that differ from those of the context before.
#[derive(Debug, Default)]
pub struct InputChanges {
    /// Mesh settings or feature flags: everything depends on these.
    pub settings: bool,
    /// Services, before aliases are resolved.
    pub services: bool,
    /// Addresses of host names.
    pub names: bool,
    /// Roots, or the list of revoked certificates.
    pub roots: bool,
    /// Identities whose issued certificates differ.
    pub certificates: BTreeSet<Identity>,
    /// Identities that may read Secrets of the cluster, and did not, or the other way round.
    pub secret_access: BTreeSet<Identity>,
    /// Fetched key sets, by location.
    pub keys: BTreeSet<KeyLocation>,
    /// Objects by kind.
    kinds: BTreeMap<Kind, BTreeSet<ObjectName>>,
}

impl InputChanges {
    /// Compares the inputs of two contexts by their stamps.
    pub fn between(old: &PushInputs, new: &PushInputs) -> Self {
        let same_mesh = Arc::ptr_eq(&old.mesh, &new.mesh) || old.mesh == new.mesh;
        let same_features = Arc::ptr_eq(&old.features, &new.features) || old.features == new.features;
        let services = difference::of_lists(&old.registry.services, &new.registry.services, |s| s.stamp);
        let kinds: BTreeSet<Kind> = old.configs.by_kind.keys().chain(new.configs.by_kind.keys()).copied().collect();
        let changed = |kind: Kind| {
            let list = difference::of_lists(old.configs.list(kind), new.configs.list(kind), |c| c.stamp);
            let names: BTreeSet<_> =
                list.into_iter().map(|c| (c.meta.namespace.clone(), c.meta.name.clone())).collect();
            (!names.is_empty()).then_some((kind, names))
        };
        let (old_keys, new_keys) = (&*old.registry.keys, &*new.registry.keys);
        let differs = |at: &&KeyLocation| old_keys.get(*at) != new_keys.get(*at);
        let keys = match std::ptr::eq(old_keys, new_keys) {
            true => BTreeSet::new(),
            false => old_keys.keys().chain(new_keys.keys()).filter(differs).cloned().collect(),
        };
        let roots = old.anchors != new.anchors || !old.certificates.trusts_as(&new.certificates);
        Self {
            roots,
            settings: !same_mesh || !same_features,
            services: !services.is_empty(),
            names: old.registry.names != new.registry.names,
            certificates: if roots {
                new.certificates.by_identity.keys().chain(old.certificates.by_identity.keys()).cloned().collect()
            } else if Arc::ptr_eq(&old.certificates, &new.certificates) {
                BTreeSet::new()
            } else {
                new.certificates.differing(&old.certificates).into_iter().collect()
            },
            secret_access: if Arc::ptr_eq(&old.secret_access, &new.secret_access) {
                BTreeSet::new()
            } else {
                new.secret_access.differing(&old.secret_access)
            },
            keys,
            kinds: kinds.into_iter().filter_map(changed).collect(),
        }
    }

    /// Whether objects of one of these kinds differ.
    pub fn any(&self, kinds: &[Kind]) -> bool {
        kinds.iter().any(|kind| self.kinds.contains_key(kind))
    }

    /// The kinds that differ.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.kinds.keys().copied()
    }

    /// The objects of a kind that differ.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &ObjectName> {
        self.kinds.get(&kind).into_iter().flatten()
    }

    /// Whether the inputs are equal.
    pub fn is_empty(&self) -> bool {
        let plain = !self.settings && !self.services && !self.names && !self.roots;
        let identities = self.certificates.is_empty() && self.secret_access.is_empty();
        plain && identities && self.keys.is_empty() && self.kinds.is_empty()
    }
}
