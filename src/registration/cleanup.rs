//! The entries that outlived their proxies. Pure.
//!
//! A killed process cannot report that its proxies are gone. The leader knows from the other processes' leases that a
//! process has ended, and releases the entries that name it: then the grace period starts, in which a proxy may come back to
//! any process, and a process that still holds a connection takes its entry back. Taking one back proves that the process is
//! alive, whatever its lease says, and it is not doubted again. A process that is cut off from the API server for so long
//! cannot be told from a dead one: its machines come back to the mesh as soon as it reaches the API server again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    EntryKey,
    entry::{CONNECTED_AT, CONTROLLER, DISCONNECTED_AT, GROUP},
    plan::{HEALTHY, annotation, disconnected, time},
};
use crate::model::{Config, ConfigSnapshot, Kind, Labels};

/// The number of grace periods before this process cleans up an entry of a live other process, which normally does so itself
/// (Istio's periodic sweep).
const OF_OTHERS: u32 = 10;

/// Processes that are known to have ended, by their names in entries.
pub type Gone = Arc<BTreeSet<String>>;

/// The cleanup of an entry whose proxy did not come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The entry was made for the proxy, and is deleted.
    Delete,
    /// The entry existed before; only its health condition is removed.
    ForgetHealth,
}

/// The parts that an entry was made for and that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Its group.
    pub group: bool,
    /// Every connection of this process that stood for it.
    pub connection: bool,
}

/// The action on an entry now.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// None: its proxy is connected, or it is not ours to clean up.
    Keep,
    /// None before this time.
    Wait(Timestamp),
    /// Its proxy is gone but the entry does not record it yet: these annotations are to be changed.
    LetGo(Value),
    /// Its grace period is over.
    End(Fate),
}

/// The process that judges an entry.
#[derive(Debug, Clone, Copy)]
pub struct Viewer<'a> {
    /// Name of this process.
    pub me: &'a str,
    /// The time that an entry outlives its connection.
    pub grace: Duration,
    /// Processes that have ended.
    pub gone: &'a BTreeSet<String>,
}

fn kind_of(annotations: &Labels, status: &Value) -> Option<Fate> {
    let has = |name: &str| annotations.get(name).is_some_and(|text| !text.is_empty());
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    match () {
        () if has(GROUP) => Some(Fate::Delete),
        () if has(CONTROLLER) && conditions.any(|c| c["type"] == HEALTHY) => Some(Fate::ForgetHealth),
        () => None,
    }
}

impl Viewer<'_> {
    /// The cleanup of an entry and its time; `None` while its proxy is connected, or when it is not ours to clean up.
    #[must_use]
    pub fn fate(&self, annotations: &Labels, status: &Value) -> Option<(Timestamp, Fate)> {
        let text = |name: &str| annotations.get(name).map_or("", String::as_str);
        let fate = kind_of(annotations, status)?;
        if !text(CONNECTED_AT).is_empty() || text(DISCONNECTED_AT).is_empty() {
            return None;
        }
        let since: Timestamp = text(DISCONNECTED_AT).parse().unwrap_or_default();
        let controller = text(CONTROLLER);
        let looked_after = controller != self.me && !self.gone.contains(controller);
        let pause = if looked_after { self.grace.saturating_mul(OF_OTHERS) } else { self.grace };
        Some((since.checked_add(pause).unwrap_or(Timestamp::MAX), fate))
    }

    /// The action on a stored entry.
    #[must_use]
    pub fn verdict(&self, stored: &Value, now: Timestamp, lost: Lost) -> Verdict {
        let annotations = stored["metadata"]["annotations"].as_object().into_iter().flatten();
        let annotations = annotations.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect();
        if lost.group && !annotation(stored, GROUP).is_empty() {
            return Verdict::End(Fate::Delete);
        }
        let controller = annotation(stored, CONTROLLER);
        let left = (controller == self.me && lost.connection)
            || (self.gone.contains(controller) && kind_of(&annotations, &stored["status"]).is_some());
        if left && !annotation(stored, CONNECTED_AT).is_empty() {
            return Verdict::LetGo(disconnected(now, time(stored, CONNECTED_AT)));
        }
        match self.fate(&annotations, &stored["status"]) {
            None => Verdict::Keep,
            Some((at, _)) if at > now => Verdict::Wait(at),
            Some((_, fate)) => Verdict::End(fate),
        }
    }
}

/// Whether an entry names this process and would be cleaned up if the process had ended. While there is one, other processes
/// must be able to detect that the process has ended.
#[must_use]
pub fn stands_for(configs: &ConfigSnapshot, process: &str) -> bool {
    let mut entries = configs.list(Kind::WorkloadEntry).iter().filter(|c| c.is_of_main_cluster());
    entries.any(|c| {
        c.meta.annotations.get(CONTROLLER).is_some_and(|name| name == process)
            && kind_of(&c.meta.annotations, &c.status).is_some()
    })
}

/// Processes that have ended, without those that proved to be alive.
#[derive(Debug, Default)]
pub struct Departures {
    told: Gone,
    /// Released entries: the process that each named and its time of connection.
    let_go: BTreeMap<EntryKey, (String, String)>,
    alive: BTreeSet<String>,
    gone: Gone,
}

impl Departures {
    /// Sets the processes whose leases have expired.
    pub fn take(&mut self, told: &Gone) {
        self.alive.retain(|name| told.contains(name));
        self.let_go.retain(|_, (name, _)| told.contains(name));
        self.told = told.clone();
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.gone = Arc::new(self.told.difference(&self.alive).cloned().collect());
    }

    /// Processes that have ended.
    #[must_use]
    pub const fn gone(&self) -> &Gone {
        &self.gone
    }

    /// Whether an entry names a connection to an ended process. An entry that was released before and is connected to the
    /// same process again proves that the process is alive.
    pub fn is_left(&mut self, key: &EntryKey, entry: &Config) -> bool {
        let text = |name: &str| entry.meta.annotations.get(name).map_or("", String::as_str);
        let (controller, since) = (text(CONTROLLER), text(CONNECTED_AT));
        let doubted = !since.is_empty() && self.gone.contains(controller);
        if !doubted || kind_of(&entry.meta.annotations, &entry.status).is_none() {
            return false;
        }
        let before = self.let_go.insert(key.clone(), (controller.to_string(), since.to_string()));
        let taken_back = before.is_some_and(|(name, at)| name == controller && at != since);
        if taken_back {
            self.alive.insert(controller.to_string());
            self.sum_up();
        }
        !taken_back
    }
}

#[cfg(test)]
mod tests;
