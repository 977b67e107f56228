//! The aggregate view of all sources.
//!
//! After a restart the aggregate starts from the snapshot that was published last, and publishes nothing new until every
//! source has sent everything again; then the difference becomes events. So a restart deletes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{MemoryStore, key::StoreKey};
use crate::{
    model::{Config, ConfigEvent, ConfigSet, ConfigSnapshot, EventKind, FullKey, Kind, Placed},
    sources::{Change, SourceBatch, SourceId},
};

/// An object that another source's object of the same key hides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    /// Identity of both objects.
    pub key: StoreKey,
    /// The source whose object is in force.
    pub winner: SourceId,
    /// Origin of that object, as text.
    pub winner_place: String,
    /// The source whose object is hidden.
    pub loser: SourceId,
    /// Origin of the hidden object, as text.
    pub loser_place: String,
}

/// The merged content of all sources.
#[derive(Debug, Default)]
pub struct Aggregate {
    sources: Vec<(SourceId, MemoryStore)>,
    view: ConfigSet,
    snapshot: ConfigSnapshot,
    missing: BTreeSet<SourceId>,
    /// Sources that were added later and have not delivered; the start does not wait for them.
    late: BTreeSet<SourceId>,
}

impl Aggregate {
    /// An empty aggregate over these sources, highest precedence first.
    #[must_use]
    pub fn new(order: &[SourceId]) -> Self {
        let sources = order.iter().map(|id| (id.clone(), MemoryStore::default())).collect();
        Self { sources, ..Self::default() }
    }

    /// An aggregate after a restart: `published` stays in force until all sources have sent everything again.
    #[must_use]
    pub fn recovering(order: &[SourceId], published: &ConfigSnapshot) -> Self {
        let view = published.by_kind.values().flat_map(|l| l.iter()).cloned().collect();
        let missing = order.iter().cloned().collect();
        Self { view, snapshot: published.clone(), missing, ..Self::new(order) }
    }

    /// Adds a source, with the lowest precedence. The start does not wait for it. A known source stays as it is.
    pub fn add_source(&mut self, id: SourceId) {
        if !self.sources.iter().any(|(known, _)| *known == id) {
            self.late.insert(id.clone());
            self.sources.push((id, MemoryStore::default()));
        }
    }

    /// Forgets a source with its content, and returns the effective changes, by key.
    pub fn remove_source(&mut self, id: &SourceId) -> Vec<ConfigEvent> {
        let events = self.apply(SourceBatch { source: id.clone(), change: Change::Full(Vec::new()) });
        self.sources.retain(|(known, _)| known != id);
        self.late.remove(id);
        events
    }

    /// Whether a source was added later and has not delivered.
    #[must_use]
    pub fn is_late(&self, id: &SourceId) -> bool {
        self.late.contains(id)
    }

    /// Sources that have not delivered: those that are missing, and those that were added later.
    #[must_use]
    pub fn undelivered(&self) -> BTreeSet<SourceId> {
        self.missing.union(&self.late).cloned().collect()
    }

    /// Sources that have not sent everything again since the restart.
    #[must_use]
    pub const fn missing(&self) -> &BTreeSet<SourceId> {
        &self.missing
    }

    /// The effective objects.
    #[must_use]
    pub fn snapshot(&self) -> ConfigSnapshot {
        self.snapshot.clone()
    }

    /// Objects that are hidden by another source's.
    #[must_use]
    pub fn shadowed(&self) -> Vec<Shadowed> {
        let mut winners: BTreeMap<FullKey<'_>, (&SourceId, &Config)> = BTreeMap::new();
        let mut found = Vec::new();
        for (id, store) in &self.sources {
            for config in store.iter() {
                match winners.get(&config.place()) {
                    Some((winner, in_force)) => found.push(Shadowed {
                        key: StoreKey::of(config),
                        winner: (*winner).clone(),
                        winner_place: in_force.origin.place(),
                        loser: id.clone(),
                        loser_place: config.origin.place(),
                    }),
                    None => {
                        winners.insert(config.place(), (id, config));
                    }
                }
            }
        }
        found
    }

    /// The objects of a source, by key; `None` for a source that is unknown or has not sent everything.
    #[must_use]
    pub fn content(&self, source: &SourceId) -> Option<Vec<Arc<Config>>> {
        if self.missing.contains(source) || self.late.contains(source) {
            return None;
        }
        let (_, store) = self.sources.iter().find(|(id, _)| id == source)?;
        Some(store.iter().cloned().collect())
    }

    /// Applies old content of a source, as if the source had sent it. `None`, and nothing changes, when the source has sent
    /// everything since the start, or is not known.
    pub fn seed(&mut self, source: SourceId, configs: Vec<Arc<Config>>) -> Option<Vec<ConfigEvent>> {
        let late = self.missing.contains(&source) || self.late.contains(&source);
        late.then(|| self.apply(SourceBatch { source, change: Change::Full(configs) }))
    }

    /// The number of objects of each source, in order of precedence.
    pub fn sizes(&self) -> impl Iterator<Item = (&SourceId, usize)> {
        self.sources.iter().map(|(id, store)| (id, store.len()))
    }

    /// Applies a batch and returns the effective changes, by key. A batch of an unknown source gives none.
    pub fn apply(&mut self, batch: SourceBatch) -> Vec<ConfigEvent> {
        let Some((_, store)) = self.sources.iter_mut().find(|(id, _)| *id == batch.source) else { return Vec::new() };
        let mut touched = Vec::new();
        let full = matches!(batch.change, Change::Full(_));
        match batch.change {
            Change::Full(configs) => {
                touched.extend(store.iter().map(|c| StoreKey::of(c)));
                *store = MemoryStore::of(configs);
                touched.extend(store.iter().map(|c| StoreKey::of(c)));
            }
            Change::Delta { upserts, deletes } => {
                for config in upserts {
                    touched.push(StoreKey::of(&config));
                    store.put(config);
                }
                let deletes: BTreeSet<FullKey<'_>> = deletes.iter().map(|key| key.within("")).collect();
                let is_gone = |c: &&Arc<Config>| {
                    let (_, kind, namespace, name) = c.place();
                    !deletes.is_empty() && deletes.contains(&("", kind, namespace, name))
                };
                for key in store.iter().filter(is_gone).map(|c| StoreKey::of(c)).collect::<Vec<_>>() {
                    store.take(&key);
                    touched.push(key);
                }
            }
        }
        if full {
            self.late.remove(&batch.source);
        }
        if !self.missing.is_empty() {
            if full {
                self.missing.remove(&batch.source);
            }
            if !self.missing.is_empty() {
                return Vec::new();
            }
            touched = self.view.iter().map(|c| StoreKey::of(c)).collect();
            touched.extend(self.sources.iter().flat_map(|(_, s)| s.iter().map(|c| StoreKey::of(c))));
        }
        self.settle(touched)
    }

    /// A late event brought up to date: the object may have changed or gone since.
    #[must_use]
    pub fn overtaken(&self, event: &ConfigEvent) -> ConfigEvent {
        match (self.view.get(&StoreKey::of(&event.current)), event.kind) {
            (Some(now), EventKind::Add) => ConfigEvent { current: now.clone(), ..event.clone() },
            (Some(now), _) => ConfigEvent { current: now.clone(), kind: EventKind::Update, ..event.clone() },
            (None, _) => ConfigEvent { kind: EventKind::Delete, ..event.clone() },
        }
    }

    /// Recomputes the view of these keys and returns the changes by key.
    fn settle(&mut self, mut touched: Vec<StoreKey>) -> Vec<ConfigEvent> {
        touched.sort_unstable();
        touched.dedup();
        let (mut events, mut added) = (Vec::new(), Vec::new());
        for key in touched {
            let now = self.sources.iter().find_map(|(_, store)| store.get(&key)).cloned();
            let before = self.view.get(&key).cloned();
            let event = match (before, now) {
                (None, Some(now)) => ConfigEvent { old: None, current: now, kind: EventKind::Add },
                (Some(old), Some(now)) if old.stamp != now.stamp || old.origin.source != now.origin.source => {
                    ConfigEvent { old: Some(old), current: now, kind: EventKind::Update }
                }
                (Some(_), Some(now)) => {
                    self.view.insert(now);
                    continue;
                }
                (Some(old), None) => ConfigEvent { old: Some(old.clone()), current: old, kind: EventKind::Delete },
                (None, None) => continue,
            };
            match event.kind {
                EventKind::Delete => drop(self.view.remove(&key)),
                EventKind::Update => drop(self.view.insert(event.current.clone())),
                EventKind::Add => added.push(event.current.clone()),
            }
            events.push(event);
        }
        self.view.extend(added);
        self.refresh(&events);
        events
    }

    /// Brings the snapshot up to the view, after changes in the order of their keys; kinds without a change keep their list.
    fn refresh(&mut self, events: &[ConfigEvent]) {
        let kinds: BTreeSet<Kind> = events.iter().map(|e| e.current.kind()).collect();
        for kind in kinds {
            let changes: Vec<&ConfigEvent> = events.iter().filter(|e| e.current.kind() == kind).collect();
            let is_changed =
                |config: &&Arc<Config>| changes.binary_search_by(|e| e.current.place().cmp(&config.place())).is_ok();
            let old = self.snapshot.by_kind.get(&kind);
            let kept = old.iter().flat_map(|l| l.iter()).filter(|config| !is_changed(config)).cloned();
            let added = changes.iter().filter(|e| e.kind != EventKind::Delete).map(|e| e.current.clone());
            let mut list: Vec<Arc<Config>> = kept.chain(added).collect();
            list.sort_by(|a, b| (a.age_order(), &a.origin.cluster).cmp(&(b.age_order(), &b.origin.cluster)));
            if list.is_empty() {
                self.snapshot.by_kind.remove(&kind);
            } else {
                self.snapshot.by_kind.insert(kind, Arc::new(list));
            }
        }
    }
}

#[cfg(test)]
mod tests;
