//! The connections of this process and the pending tasks on their entries: one task at a time for each entry, a limited
//! number at a time for all. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::{
    EntryKey,
    cleanup::{Departures, Gone, Viewer},
    counts::{Counts, Limits},
    entry::{CONNECTED_AT, CONTROLLER, GROUP},
    plan::{Claim, HealthReport},
    session::ProxySession,
};
use crate::{
    discovery::RegistrationRefusal,
    model::{Config, ConfigSnapshot, Kind},
};

/// The number of concurrent tasks.
const TOGETHER: usize = 16;
/// Pause before a task that failed is tried again; it doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The same while the store is unreachable: then a trial is cheap, and all registrations wait for its success.
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_secs(8);

/// A task on an entry.
#[derive(Debug, Clone)]
pub enum Task {
    /// Bring the stored entry in line with a claim.
    Settle {
        /// The connection that makes the claim.
        session: ProxySession,
        /// The claim on the entry.
        claim: Claim,
        /// Number of the connection that waits for the result.
        arrival: Option<u64>,
    },
    /// Check whether the entry outlived its proxy.
    Clean {
        /// Whether no connection of ours represents it.
        abandoned: bool,
    },
}

/// The outcome of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskOutcome {
    /// The entry matches the claim.
    Settled,
    /// The entry is gone, or is not ours.
    Left,
    /// The entry stays until this time.
    Waits(Timestamp),
    /// The proxy may not have the entry, or does not represent it.
    Refused,
    /// The task failed and is retried.
    Failed,
    /// The store is unreachable; the task is retried.
    Unreached,
}

impl TaskOutcome {
    /// The longest pause before a retry; `None` for an outcome without one.
    const fn longest_pause(self) -> Option<Duration> {
        match self {
            Self::Failed => Some(LONGEST_PAUSE),
            Self::Unreached => Some(LONGEST_OUTAGE_PAUSE),
            Self::Settled | Self::Left | Self::Waits(_) | Self::Refused => None,
        }
    }
}

#[derive(Debug, Default)]
struct Lane {
    /// The last proxy, and its claim.
    holder: Option<(ProxySession, Claim)>,
    live: Vec<u64>,
    arriving: VecDeque<ProxySession>,
    /// The task that runs, with the connection that waits for it.
    running: Option<Option<u64>>,
    dirty: bool,
    clean_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    failures: u32,
    /// Whether the last task left the entry as claimed.
    settled: bool,
    /// The group that the entry counts for.
    group: Option<(Arc<str>, Arc<str>)>,
}

impl Lane {
    fn is_idle(&self) -> bool {
        let unused = self.live.is_empty() && self.arriving.is_empty() && self.holder.is_none();
        unused && self.running.is_none() && !self.dirty && self.clean_at.is_none()
    }
}

/// Entries, connections and tasks of this process.
#[derive(Debug, Default)]
pub struct Registrations {
    lanes: BTreeMap<EntryKey, Lane>,
    running: usize,
    departures: Departures,
    counts: Counts,
}

impl Registrations {
    /// The registrations of these connections, all of them accepted before.
    pub fn of(sessions: impl IntoIterator<Item = ProxySession>) -> Self {
        let mut registrations = Self::default();
        for session in sessions {
            let (key, report) = (session.key.clone(), session.health.take());
            registrations.accept(session);
            if let Some(report) = report {
                registrations.say(&key, report);
            }
        }
        registrations
    }

    /// The registrations with these bounds.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.counts.limits = limits;
        self
    }

    /// The lane of an entry, which counts for this group if there is one.
    fn lane(&mut self, key: EntryKey, group: &str) -> &mut Lane {
        let counts = &mut self.counts;
        let counted = (!group.is_empty()).then(|| (key.namespace.clone(), Arc::from(group)));
        let lane = self.lanes.entry(key).or_default();
        if lane.group.is_none() {
            lane.group = counted;
            lane.group.iter().for_each(|group| counts.begin(group.clone()));
        }
        lane
    }

    /// Sets the processes that have ended.
    pub fn hear(&mut self, gone: &Gone) {
        self.departures.take(gone);
    }

    /// Processes that have ended.
    #[must_use]
    pub const fn gone(&self) -> &Gone {
        self.departures.gone()
    }

    /// A proxy connects. The outcome of its task answers it.
    ///
    /// # Errors
    /// [`RegistrationRefusal`] when a bound is reached.
    pub fn arrive(&mut self, session: ProxySession) -> Result<(), RegistrationRefusal> {
        self.counts.admits(&session, self.lanes.get(&session.key).is_none_or(|lane| lane.group.is_none()))?;
        self.counts.join(&session);
        self.lane(session.key.clone(), &session.group).arriving.push_back(session);
        Ok(())
    }

    fn accept(&mut self, session: ProxySession) {
        self.counts.join(&session);
        let lane = self.lane(session.key.clone(), &session.group);
        let report = lane.holder.take().and_then(|(_, claim)| claim.report);
        let claim = Claim { auto: !session.group.is_empty(), connected_at: session.at, gone_at: None, report };
        lane.live.push(session.id);
        lane.holder = Some((session, claim));
        lane.clean_at = None;
    }

    /// A connection ended.
    pub fn leave(&mut self, key: &EntryKey, id: u64, now: Timestamp) {
        self.counts.leave(id);
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.live.retain(|live| *live != id);
        if lane.live.is_empty()
            && let Some((_, claim)) = &mut lane.holder
        {
            claim.gone_at = Some(now);
            lane.dirty = true;
        }
    }

    /// A proxy reports its health.
    pub fn say(&mut self, key: &EntryKey, report: HealthReport) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if let Some((_, claim)) = &mut lane.holder {
            claim.report = Some(report);
            lane.dirty = true;
        }
    }

    /// Compares with the configuration in force and finds entries of connected proxies that are missing or look abandoned,
    /// entries of ours without a connection, entries of ended processes, and entries to clean up. `orphaned` tells whether
    /// an entry lost its group.
    pub fn compare(
        &mut self,
        configs: &ConfigSnapshot,
        me: &str,
        grace: Duration,
        now: Timestamp,
        orphaned: impl Fn(&Config) -> bool,
    ) {
        for config in configs.list(Kind::WorkloadEntry).iter().filter(|c| c.is_of_main_cluster()) {
            let key = key_of(config);
            let left = self.departures.is_left(&key, config);
            let viewer = Viewer { me, grace, gone: self.departures.gone() };
            let fate = viewer.fate(&config.meta.annotations, &config.status);
            let mine = config.meta.annotations.get(CONTROLLER).is_some_and(|c| c == me);
            let connected = config.meta.annotations.contains_key(CONNECTED_AT);
            let known = self.lanes.get(&key);
            let group = config.meta.annotations.get(GROUP).map_or("", String::as_str);
            if orphaned(config) || left {
                self.lane(key, group).clean_at = Some(now);
            } else if known.is_some_and(|l| !l.live.is_empty()) {
                // Its grace period runs although its proxy is connected to us.
                if let Some(lane) = self.lanes.get_mut(&key).filter(|_| fate.is_some()) {
                    lane.dirty = true;
                }
            } else if let Some((at, _)) = fate {
                self.lane(key, group).clean_at = Some(at);
            } else if mine && connected && known.is_none() {
                let lane = self.lane(key, group);
                (lane.clean_at, lane.dirty) = (Some(now), false);
            }
        }
        self.missing(configs).for_each(|lane| lane.dirty = true);
    }

    /// Checks settled entries that are not in force again: one that was created and deleted between two looks leaves no
    /// trace in the configuration in force.
    pub fn miss(&mut self, configs: &ConfigSnapshot) {
        self.missing(configs).for_each(|lane| lane.dirty |= lane.settled);
    }

    /// Lanes of connected proxies whose entries are not in force.
    fn missing(&mut self, configs: &ConfigSnapshot) -> impl Iterator<Item = &mut Lane> {
        let live = self.lanes.iter().filter(|(_, lane)| !lane.live.is_empty());
        let mut missing: BTreeSet<EntryKey> = live.map(|(key, _)| key.clone()).collect();
        // Skips the walk over all entries in processes without registered proxies.
        if !missing.is_empty() {
            for config in configs.list(Kind::WorkloadEntry).iter().filter(|c| c.is_of_main_cluster()) {
                missing.remove(&key_of(config));
            }
        }
        self.lanes.iter_mut().filter(move |(key, _)| missing.contains(*key)).map(|(_, lane)| lane)
    }

    /// The tasks that may begin now.
    pub fn due(&mut self, now: Timestamp) -> Vec<(EntryKey, Task)> {
        let mut tasks = Vec::new();
        for (key, lane) in &mut self.lanes {
            if self.running == TOGETHER {
                break;
            }
            if lane.running.is_some() {
                continue;
            }
            let task = match (lane.arriving.front(), &lane.holder) {
                (Some(session), _) => {
                    let auto = !session.group.is_empty();
                    let claim = Claim { auto, connected_at: session.at, gone_at: None, report: None };
                    Task::Settle { session: session.clone(), claim, arrival: Some(session.id) }
                }
                _ if lane.not_before.is_some_and(|at| at > now) => continue,
                (None, Some((session, claim))) if lane.dirty => {
                    lane.dirty = false;
                    Task::Settle { session: session.clone(), claim: claim.clone(), arrival: None }
                }
                _ if lane.clean_at.is_some_and(|at| at <= now) => {
                    lane.clean_at = None;
                    Task::Clean { abandoned: lane.live.is_empty() }
                }
                _ => continue,
            };
            let waits = if let Task::Settle { arrival, .. } = &task { *arrival } else { None };
            lane.running = Some(waits);
            self.running += 1;
            tasks.push((key.clone(), task));
        }
        tasks
    }

    /// The time at which a task becomes due although nothing happens until then; `None` without one. Tasks that are due already
    /// begin when one that runs has ended.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        if self.running == TOGETHER {
            return None;
        }
        let of_lane = |lane: &Lane| match lane {
            Lane { running: Some(_), .. } => None,
            Lane { holder: Some(_), dirty: true, .. } => lane.not_before,
            _ => lane.clean_at.map(|at| lane.not_before.map_or(at, |not_before| at.max(not_before))),
        };
        self.lanes.values().filter_map(of_lane).min()
    }

    /// Whether proxies are connected, whose entries may come to be missing.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        self.lanes.values().any(|lane| !lane.live.is_empty())
    }

    /// Records the outcome of a task; returns the number of the connection that waited for it, and its proxy if that is
    /// registered now.
    pub fn done(
        &mut self,
        key: &EntryKey,
        outcome: TaskOutcome,
        grace: Duration,
        now: Timestamp,
    ) -> Option<(u64, Option<ProxySession>)> {
        let lane = self.lanes.get_mut(key)?;
        let arrival = lane.running.take()?;
        self.running -= 1;
        lane.settled = outcome == TaskOutcome::Settled;
        let failed = outcome.longest_pause();
        if let Some(longest) = failed {
            let pause = FIRST_PAUSE.saturating_mul(1 << lane.failures.min(10)).min(longest);
            lane.failures = lane.failures.saturating_add(1);
            lane.not_before = now.checked_add(pause).ok();
        } else {
            (lane.failures, lane.not_before) = (0, None);
        }
        let session = arrival.and_then(|_| lane.arriving.pop_front());
        if let Some(session) = session {
            if outcome == TaskOutcome::Refused {
                self.counts.leave(session.id);
                self.forget(key);
                return Some((session.id, None));
            }
            // A proxy that cannot be registered now is served all the same, and registered later.
            self.accept(session.clone());
            if let Some(lane) = self.lanes.get_mut(key) {
                lane.dirty |= failed.is_some();
            }
            return Some((session.id, Some(session)));
        }
        let gone = lane.holder.as_ref().and_then(|(_, claim)| claim.gone_at);
        match (outcome, gone) {
            _ if failed.is_some() && lane.holder.is_some() => lane.dirty = true,
            _ if failed.is_some() => lane.clean_at = lane.not_before,
            (TaskOutcome::Settled, Some(gone)) if !lane.dirty => {
                lane.holder = None;
                lane.clean_at = gone.checked_add(grace).ok();
            }
            (TaskOutcome::Waits(at), _) => lane.clean_at = Some(at),
            (TaskOutcome::Left | TaskOutcome::Refused, Some(_)) => (lane.holder, lane.dirty) = (None, false),
            _ => {}
        }
        self.forget(key);
        None
    }

    fn forget(&mut self, key: &EntryKey) {
        if self.lanes.get(key).is_some_and(Lane::is_idle)
            && let Some(group) = self.lanes.remove(key).and_then(|lane| lane.group)
        {
            self.counts.end(&group);
        }
    }
}

fn key_of(entry: &Config) -> EntryKey {
    EntryKey { namespace: entry.meta.namespace.clone(), name: entry.meta.name.clone() }
}

#[cfg(test)]
mod tests;
