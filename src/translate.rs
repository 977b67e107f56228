//! Translation of other APIs into Istio's: objects of Gateway API, of its predecessor, the service APIs, and Ingresses become
//! Istio Gateways, VirtualServices and DestinationRules. Every translated object gets the status that Istio would write.
//!
//! A pure room: objects and services in, objects and statuses out. Invariants: the result depends on the inputs alone; a
//! translated object with unchanged content keeps its `Arc` across translations; a user's object overrides a translated one of
//! the same name (Istio's store order: CRDs, Gateway API, Ingress). It never does I/O, never reads a clock (the status writer
//! sets transition times), and never sees a proxy.

mod changes;
mod decoded;
mod draft;
mod gateway_api;
pub mod ingress;
mod objects;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod revision;
mod selector;
mod service_apis;

use std::{collections::BTreeMap, sync::Arc};

pub use changes::READS;
use changes::same_basis;
use draft::Output;
pub use draft::PoolRule;
use gateway_api::Grants;
use objects::{Objects, ReadEndpoints};
use revision::Revisions;
use serde_json::Value;

use crate::model::{Config, ConfigKey, ConfigSnapshot, Credential, Kind, PushInputs};

/// A message to the user about an object, for problems without a place in a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Identity of the object.
    pub key: ConfigKey,
    /// The problem, with the path of the field.
    pub message: String,
}

/// The result of a translation: Istio objects, statuses and reports.
#[derive(Debug, Default)]
pub struct Translation {
    /// Translated Istio Gateways, oldest first.
    pub gateways: Vec<Arc<Config>>,
    /// Translated VirtualServices, oldest first.
    pub virtual_services: Vec<Arc<Config>>,
    /// Translated DestinationRules, oldest first.
    pub destination_rules: Vec<Arc<Config>>,
    /// Statuses of all objects that this control plane owns, without transition times.
    pub statuses: BTreeMap<ConfigKey, Value>,
    /// Reports of refused objects and of settings without effect.
    pub reports: Vec<Report>,
    /// Endpoint pickers of the rules of translated VirtualServices, by rule name.
    pub pools: BTreeMap<ConfigKey, BTreeMap<String, PoolRule>>,
    /// Permissions given by ReferenceGrants.
    grants: Arc<Grants>,
    /// Services whose endpoints the translation read.
    endpoints: ReadEndpoints,
    /// The inputs of the translation.
    basis: PushInputs,
    /// Configs of the user merged with translated ones.
    effective: ConfigSnapshot,
}

impl Translation {
    /// Translates all objects.
    #[must_use]
    pub fn build(basis: PushInputs) -> Self {
        Self::made(basis, None)
    }

    /// Translates again after a change. If no input of a translation changed, the result shares all parts with this one.
    #[must_use]
    pub fn next(&self, basis: PushInputs) -> Self {
        if !same_basis(&self.basis, &basis) || !self.endpoints.are_those_of(&basis.registry.endpoints) {
            return Self::made(basis, Some(self));
        }
        let mut next = Self {
            gateways: self.gateways.clone(),
            virtual_services: self.virtual_services.clone(),
            destination_rules: self.destination_rules.clone(),
            statuses: self.statuses.clone(),
            reports: self.reports.clone(),
            pools: self.pools.clone(),
            grants: self.grants.clone(),
            endpoints: self.endpoints.clone(),
            effective: ConfigSnapshot::default(),
            basis,
        };
        next.effective = next.merged(Some(self));
        next
    }

    /// The inputs with translated configs merged into those of the user.
    #[must_use]
    pub fn effective(&self) -> PushInputs {
        PushInputs { configs: self.effective.clone(), ..self.basis.clone() }
    }

    /// Whether a ReferenceGrant lets a Gateway or ListenerSet (`from`) in a namespace refer to the Secret or ConfigMap.
    #[must_use]
    pub fn permits_secret(&self, from: Kind, namespace: &str, credential: &Credential) -> bool {
        self.grants.allow_credential((from, namespace), credential)
    }

    /// Whether the ReferenceGrants give the same permissions as in `before`.
    #[must_use]
    pub fn grants_as(&self, before: &Self) -> bool {
        Arc::ptr_eq(&self.grants, &before.grants) || self.grants == before.grants
    }

    fn made(basis: PushInputs, before: Option<&Self>) -> Self {
        let mut output = Output::default();
        let (objects, mut grants) = (Objects::of(&basis), Grants::default());
        if basis.features.enable_gateway_api {
            grants = gateway_api::translate(&objects, &mut output);
            service_apis::translate(&objects, &mut output);
        }
        ingress::translate(&objects, &mut output);
        let revisions = Revisions::of(&objects);
        output.statuses.retain(|key, _| revisions.own(key));
        let known = before.map(|b| [&b.gateways, &b.virtual_services, &b.destination_rules]);
        let known: BTreeMap<ConfigKey, &Arc<Config>> =
            known.into_iter().flatten().flatten().map(|c| (c.key(), c)).collect();
        let endpoints = objects.into_read_endpoints();
        let mut lists = output.configs(&known);
        let mut take = |kind| lists.remove(&kind).unwrap_or_default();
        let mut made = Self {
            gateways: take(Kind::Gateway),
            virtual_services: take(Kind::VirtualService),
            destination_rules: take(Kind::DestinationRule),
            statuses: output.statuses,
            reports: output.reports,
            pools: output.pools,
            grants: Arc::new(grants),
            endpoints,
            effective: ConfigSnapshot::default(),
            basis,
        };
        made.effective = made.merged(before);
        made
    }

    /// Merges translated configs into the user's. Unchanged lists are shared with `before`.
    fn merged(&self, before: Option<&Self>) -> ConfigSnapshot {
        let mut all = self.basis.configs.clone();
        let lists = [
            (Kind::Gateway, &self.gateways, before.map(|b| &b.gateways)),
            (Kind::VirtualService, &self.virtual_services, before.map(|b| &b.virtual_services)),
            (Kind::DestinationRule, &self.destination_rules, before.map(|b| &b.destination_rules)),
        ];
        for (kind, translated, old) in lists {
            if translated.is_empty() {
                continue;
            }
            let same = |b: &&Self| {
                old.is_some_and(|old| changes::same_list(old, translated))
                    && changes::same_list(b.basis.configs.list(kind), self.basis.configs.list(kind))
            };
            let list = match before.filter(same).and_then(|b| b.effective.by_kind.get(&kind)) {
                Some(list) => list.clone(),
                None => joined(self.basis.configs.list(kind), translated),
            };
            all.by_kind.insert(kind, list);
        }
        all
    }
}

/// Both lists merged, oldest first; of two objects with the same name the user's.
fn joined(users: &[Arc<Config>], translated: &[Arc<Config>]) -> Arc<Vec<Arc<Config>>> {
    let all = translated.iter().chain(users).map(|c| (c.key(), c.clone()));
    let mut list: Vec<Arc<Config>> = all.collect::<BTreeMap<_, _>>().into_values().collect();
    list.sort_by(|a, b| a.age_order().cmp(&b.age_order()));
    Arc::new(list)
}

#[cfg(test)]
mod tests;
