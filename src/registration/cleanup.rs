//! Which entries outlived their proxies. Pure.
//!
//! A process that is killed cannot say that its proxies are gone. Whoever writes statuses knows by the other processes'
//! leases which of them have ended, and lets the entries go that name one of these: from then on the grace period runs, in
//! which a proxy may come back to any process, and who still holds a connection takes its entry back. Who takes one back
//! lives, whatever its lease says, and is not doubted again. Nobody else can tell a process that is cut off from the API
//! server for so long from a dead one: its machines come back to the mesh with it, as soon as it reaches the API server again.

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

/// How many grace periods an entry is given that another process let go: it looks after its own (Istio's periodic sweep).
const OF_OTHERS: u32 = 10;

/// Processes that are known to have ended, by the names that entries have for them.
pub type Gone = Arc<BTreeSet<String>>;

/// What becomes of an entry whose proxy did not come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was made for the proxy, and goes.
    Delete,
    /// It was there before, and what is known of its health goes.
    ForgetHealth,
}

/// What is to be done about an entry now.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing: its proxy is connected, or it is none of ours to clean up.
    Keep,
    /// Nothing before this time.
    Wait(Timestamp),
    /// Its proxy is gone and it does not say so yet: these annotations are to be changed.
    LetGo(Value),
    /// Its time is over.
    End(Fate),
}

/// Who looks at an entry.
#[derive(Debug, Clone, Copy)]
pub struct Viewer<'a> {
    /// The name of this process.
    pub me: &'a str,
    /// How long an entry outlives its connection.
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
    /// What becomes of an entry, and when; `None` while its proxy is connected, or when it is none of ours to clean up.
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

    /// What to do about an entry as it is stored. `abandoned`: no connection of ours stands for it; `orphaned`: its group is
    /// gone.
    #[must_use]
    pub fn verdict(&self, stored: &Value, now: Timestamp, (orphaned, abandoned): (bool, bool)) -> Verdict {
        let annotations = stored["metadata"]["annotations"].as_object().into_iter().flatten();
        let annotations = annotations.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect();
        if orphaned && !annotation(stored, GROUP).is_empty() {
            return Verdict::End(Fate::Delete);
        }
        let controller = annotation(stored, CONTROLLER);
        let left = (controller == self.me && abandoned)
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

/// Whether an entry says that its proxy is connected to this process, and would be cleaned up if the process had ended.
/// For as long as there is one, it must be known that the process has ended.
#[must_use]
pub fn stands_for(configs: &ConfigSnapshot, process: &str) -> bool {
    let mut entries = configs.list(Kind::WorkloadEntry).iter().filter(|c| c.is_of_main_cluster());
    entries.any(|c| {
        c.meta.annotations.get(CONTROLLER).is_some_and(|name| name == process)
            && kind_of(&c.meta.annotations, &c.status).is_some()
    })
}

/// Which processes have ended, and which only seem to have.
#[derive(Debug, Default)]
pub struct Departures {
    told: Gone,
    /// What was let go: by the process that it names and since when it said to be connected.
    let_go: BTreeMap<EntryKey, (String, String)>,
    alive: BTreeSet<String>,
    gone: Gone,
}

impl Departures {
    /// Takes in what is known of other processes.
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

    /// Whether an entry says that it is connected to a process that has ended. One that was let go before and is connected
    /// to the same process again proves that this one lives.
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
