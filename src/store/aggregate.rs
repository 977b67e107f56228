//! The aggregate view of all sources.
//!
//! After a restart the aggregate starts from the snapshot that was published last, and publishes nothing new until every
//! source has sent everything again; then the difference becomes events. So a restart deletes nothing.

use std::{collections::BTreeSet, sync::Arc};

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
        let mut found = Vec::new();
        for (rank, (loser, store)) in self.sources.iter().enumerate() {
            let before: Vec<_> = self.sources[..rank].iter().filter(|(_, store)| !store.is_empty()).collect();
            // One source hides none of its own objects: the usual case costs nothing.
            let hidden = store.iter().filter(|_| !before.is_empty()).filter_map(|config| {
                let key = StoreKey::of(config);
                let (winner, in_force) = before.iter().find_map(|(id, store)| Some((id, store.get(&key)?)))?;
                Some(Shadowed {
                    key,
                    winner: winner.clone(),
                    winner_place: in_force.origin.place(),
                    loser: loser.clone(),
                    loser_place: config.origin.place(),
                })
            });
            found.extend(hidden);
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
            let changes = events.iter().filter(|e| e.current.kind() == kind);
            let old = self.snapshot.by_kind.get(&kind).map_or(&[][..], |list| list);
            let list = changed_list(old, changes);
            if list.is_empty() {
                self.snapshot.by_kind.remove(&kind);
            } else {
                self.snapshot.by_kind.insert(kind, Arc::new(list));
            }
        }
    }
}

/// The order of a kind's list.
fn list_order(config: &Config) -> impl Ord + '_ {
    (config.age_order(), &config.origin.cluster)
}

/// A kind's list after changes. Only their neighbours are compared: a list may be very long and the changes few.
fn changed_list<'e>(old: &[Arc<Config>], changes: impl Iterator<Item = &'e ConfigEvent>) -> Vec<Arc<Config>> {
    let place_of = |config: &Config| old.partition_point(|other| list_order(other) < list_order(config));
    let find = |config: &Config| {
        let near = place_of(config);
        let is_it = |other: &Arc<Config>| other.place() == config.place();
        // The list may hold an older form of the same object.
        if old.get(near).is_some_and(is_it) { Some(near) } else { old.iter().position(is_it) }
    };
    let (mut gone, mut added) = (BTreeSet::new(), Vec::new());
    for event in changes {
        gone.extend(event.old.as_deref().and_then(find));
        if event.kind != EventKind::Delete {
            added.push((place_of(&event.current), &event.current));
        }
    }
    added.sort_by(|(_, a), (_, b)| list_order(a).cmp(&list_order(b)));
    let mut list = Vec::with_capacity(old.len() + added.len());
    let mut from = 0;
    let mut keep = |list: &mut Vec<Arc<Config>>, to: usize| {
        for stop in gone.range(from..to) {
            list.extend_from_slice(&old[from..*stop]);
            from = stop + 1;
        }
        list.extend_from_slice(&old[from.min(to)..to]);
        from = from.max(to);
    };
    for (place, config) in added {
        keep(&mut list, place);
        list.push(config.clone());
    }
    keep(&mut list, old.len());
    list
}

#[cfg(test)]
mod tests;
