//! The content of one feed: sound objects, refused ones, and the changes since they were last taken. Pure: the caller
//! brings the time.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::FeedReport;
use crate::{
    model::{Config, ConfigKey, ConfigSet, FullKey, Placed},
    sources::{MassDeletionGuard, Refused, Warned},
};

/// The outcome of an object's text.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The same text as before.
    Same,
    /// The object is sound and is taken.
    Taken {
        /// The object.
        config: Arc<Config>,
        /// Its warnings.
        warnings: Vec<Warned>,
    },
    /// Not taken; its last good version stays.
    Refused(Box<Refused>),
}

/// An object that was read.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its key.
    pub key: ConfigKey,
    /// Hash of its text.
    pub hash: u64,
    /// The outcome of its text.
    pub verdict: Verdict,
}

#[derive(Debug)]
struct Held {
    config: Arc<Config>,
    hash: u64,
}

/// A feed is of one cluster.
impl Placed for Held {
    fn place(&self) -> FullKey<'_> {
        let meta = &self.config.meta;
        ("", self.config.kind(), &meta.namespace, &meta.name)
    }
}

/// The content of one feed.
#[derive(Debug)]
pub struct Content {
    objects: ConfigSet<Held>,
    refused: BTreeMap<ConfigKey, Refused>,
    warned: BTreeMap<ConfigKey, Vec<Warned>>,
    changed: BTreeSet<ConfigKey>,
    /// In force although the last list did not have them.
    missing: BTreeSet<ConfigKey>,
    guard: MassDeletionGuard,
    answered: bool,
    /// Saved objects were looked for: at the first list.
    recalled: bool,
    findings_changed: bool,
    /// The state of the feed.
    pub report: FeedReport,
}

impl Content {
    /// Nothing yet. A mass deletion that only a list shows is held for `hold`.
    #[must_use]
    pub fn new(hold: Duration, report: FeedReport) -> Self {
        Self {
            objects: ConfigSet::default(),
            refused: BTreeMap::new(),
            warned: BTreeMap::new(),
            changed: BTreeSet::new(),
            missing: BTreeSet::new(),
            guard: MassDeletionGuard::new(hold),
            answered: false,
            recalled: false,
            findings_changed: false,
            report,
        }
    }

    fn get(&self, key: &ConfigKey) -> Option<&Held> {
        self.objects.get(&key.within(""))
    }

    /// Whether this is the text that the object in force was read from.
    #[must_use]
    pub fn is_same(&self, key: &ConfigKey, hash: u64) -> bool {
        self.get(key).is_some_and(|h| h.hash == hash) && !self.refused.contains_key(key)
    }

    /// Marks the kind as listed, possibly empty: the first snapshot does not wait for it.
    pub const fn answer(&mut self) {
        self.answered = true;
    }

    /// Whether the server has answered for this kind.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.answered
    }

    /// An object is there, new or different or not.
    pub fn put(&mut self, item: Item) {
        if let Some(held) = self.judge(item) {
            self.objects.insert(held);
        }
    }

    /// Notes the outcome of an object; gives it when it is to be taken.
    fn judge(&mut self, item: Item) -> Option<Held> {
        let Item { key, hash, verdict } = item;
        self.missing.remove(&key);
        match verdict {
            Verdict::Same => None,
            Verdict::Taken { config, warnings } => {
                self.findings_changed |= self.refused.remove(&key).is_some() || self.warned.remove(&key).is_some();
                if !warnings.is_empty() {
                    self.warned.insert(key.clone(), warnings);
                    self.findings_changed = true;
                }
                self.changed.insert(key);
                Some(Held { config, hash })
            }
            Verdict::Refused(refused) => {
                self.findings_changed |= self.refused.get(&key) != Some(&*refused);
                self.refused.insert(key, *refused);
                None
            }
        }
    }

    /// An object was deleted on the server.
    pub fn remove(&mut self, key: &ConfigKey) {
        self.missing.remove(key);
        self.findings_changed |= self.refused.remove(key).is_some() | self.warned.remove(key).is_some();
        if self.objects.remove(&key.within("")).is_some() {
            self.changed.insert(key.clone());
        }
    }

    /// Whether a list that has only these objects lacks one that is in force.
    #[must_use]
    pub fn would_lose(&self, list: &[Item]) -> bool {
        let listed = places(list);
        self.objects.iter().any(|h| !listed.contains(&h.place()))
    }

    /// A list is complete: objects that it lacks are removed, unless that is a mass deletion, which is held.
    pub fn replace(&mut self, list: Vec<Item>, now: Instant) {
        let listed = places(&list);
        let missing = self.objects.iter().filter(|h| !listed.contains(&h.place())).map(|h| h.config.key()).collect();
        let refusals = self.refused.len();
        self.refused.retain(|key, _| listed.contains(&key.within("")));
        self.findings_changed |= self.refused.len() < refusals;
        drop(listed);
        let taken: Vec<Held> = list.into_iter().filter_map(|item| self.judge(item)).collect();
        self.objects.extend(taken);
        self.missing = missing;
        self.answered = true;
        self.settle(now);
    }

    /// Objects of the first list that are refused and have no version in force: an earlier process may have saved one. Asked
    /// once.
    pub fn take_forgotten(&mut self) -> Vec<ConfigKey> {
        if self.recalled || self.report.lists == 0 {
            return Vec::new();
        }
        self.recalled = true;
        self.refused.keys().filter(|key| self.get(key).is_none()).cloned().collect()
    }

    /// Puts the saved version of a refused object in force.
    pub fn recall(&mut self, config: Arc<Config>) {
        let key = config.key();
        if self.refused.contains_key(&key) && self.get(&key).is_none() {
            self.objects.insert(Held { config, hash: 0 });
            self.changed.insert(key);
        }
    }

    /// Removes the objects that the last list lacked, unless their deletion is held.
    pub fn settle(&mut self, now: Instant) {
        if !self.missing.is_empty() && self.guard.allow(self.missing.len(), self.objects.len(), false, now) {
            for key in mem::take(&mut self.missing) {
                self.remove(&key);
            }
        }
    }

    /// Confirms a held deletion.
    pub fn confirm(&mut self, now: Instant) {
        self.guard.confirm();
        self.settle(now);
    }

    /// The time at which a held deletion takes effect without a confirmation.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        self.guard.until().filter(|_| !self.missing.is_empty())
    }

    /// Objects whose deletion is held.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Config>> {
        self.missing.iter().filter_map(|k| self.get(k)).map(|h| &h.config)
    }

    /// All sound objects.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Config>> {
        self.objects.iter().map(|h| &h.config)
    }

    /// The number of sound objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no sound object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The changes since the last call: the object now, or `None` when it was removed.
    pub fn take_changes(&mut self) -> Vec<(ConfigKey, Option<Arc<Config>>)> {
        let changed = mem::take(&mut self.changed);
        let now = |key: &ConfigKey| self.get(key).map(|h| h.config.clone());
        changed.into_iter().map(|key| (key.clone(), now(&key))).collect()
    }

    /// Whether findings changed since the last call.
    pub const fn take_findings_changed(&mut self) -> bool {
        mem::replace(&mut self.findings_changed, false)
    }

    /// Refused objects, each with its older version if one is in force.
    pub fn refused(&self) -> impl Iterator<Item = (&Refused, Option<&Arc<Config>>)> {
        self.refused.iter().map(|(key, refused)| (refused, self.get(key).map(|h| &h.config)))
    }

    /// Warnings about objects in force.
    pub fn warned(&self) -> impl Iterator<Item = &Warned> {
        self.warned.values().flatten()
    }
}

fn places(list: &[Item]) -> HashSet<FullKey<'_>> {
    list.iter().map(|item| item.key.within("")).collect()
}

#[cfg(test)]
mod tests;
