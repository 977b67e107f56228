//! The statuses to write now: those that the server does not hold, paced, and never in a loop.
//!
//! Pure. A status is written when the desired status has changed or when the object's differs; never while our last write
//! has not come back through the watch, and never when the server stored the same after the same write. If another writer
//! reverts us, we back off.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    distribution::is_settled,
    merge::{is_written, merged},
};
use crate::model::{Config, ConfigKey, kind::KindClass};

/// Shortest time between two writes of one object.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before the same status is written again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// After this time without a write, the pauses start from the shortest again.
const FORGET_AFTER: Duration = Duration::from_secs(1800);

/// One status to write.
#[derive(Debug, Clone)]
pub struct Job {
    /// The object, as the watch brought it.
    pub config: Arc<Config>,
    /// The desired status, without transition times.
    pub desired: Value,
    hash: u64,
}

impl Job {
    /// The status to write over `existing`; `None` when the object has it already.
    #[must_use]
    pub fn body(&self, existing: &Value, now: &str) -> Option<Value> {
        let body = merged(&lasting(&self.desired, existing), existing, now);
        (!is_written(&body, existing, is_whole(&self.config))).then_some(body)
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOutcome {
    /// Written; the status as the server stored it.
    Stored(Value),
    /// The object has changed or is gone; the watch brings the change.
    Superseded,
    /// The write was refused, or did not reach the server.
    Failed(String),
}

#[derive(Debug, Default)]
struct Memory {
    /// Hash of the last desired status.
    desired: u64,
    /// Stamp of the object for which nothing is to be written.
    done: u64,
    /// Hash of the status that the server stored after the write.
    stored: Option<u64>,
    /// Consecutive writes of the same status.
    attempts: u32,
    last: Option<Instant>,
    error: String,
    under_way: bool,
}

impl Memory {
    fn not_before(&self) -> Option<Instant> {
        let doubled = SHORTEST_PAUSE * (1 << self.attempts.saturating_sub(1).min(16));
        self.last.map(|at| at + doubled.min(LONGEST_PAUSE))
    }
}

/// The statuses that were written, and those still to write.
#[derive(Debug, Default)]
pub struct Plan {
    memory: HashMap<ConfigKey, Memory>,
    /// Whether a status is still to be written.
    waiting: bool,
    written: u64,
    failed: u64,
    last_failure: Option<Failure>,
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The object.
    pub object: ConfigKey,
    /// Error of the write.
    pub error: String,
}

impl Plan {
    /// Forgets all writes, because another process may have written meanwhile.
    pub fn forget(&mut self) {
        self.memory.clear();
        self.waiting = true;
    }

    /// Whether a status is still to be written, or written again.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// The next writes, at most `limit`, in the order of their keys.
    pub fn due(
        &mut self,
        now: Instant,
        desired: &BTreeMap<ConfigKey, Value>,
        objects: &BTreeMap<ConfigKey, Arc<Config>>,
        limit: usize,
    ) -> Vec<Job> {
        self.memory.retain(|key, _| objects.contains_key(key));
        self.waiting = false;
        let mut jobs = Vec::new();
        for (key, config) in objects {
            let Some(status) = desired.get(key) else { continue };
            let memory = self.memory.entry(key.clone()).or_default();
            let hash = hash(status);
            if memory.desired != hash {
                (memory.desired, memory.stored, memory.attempts, memory.done) = (hash, None, 0, 0);
            }
            if memory.under_way || memory.done == config.stamp {
                continue;
            }
            let job = Job { config: config.clone(), desired: status.clone(), hash };
            // The transition time does not matter for whether there is a difference.
            let same = job.body(&config.status, "").is_none() || memory.stored == Some(self::hash(&config.status));
            if same {
                memory.done = config.stamp;
                memory.error.clear();
                continue;
            }
            if memory.last.is_some_and(|at| now.saturating_duration_since(at) > FORGET_AFTER) {
                memory.attempts = 0;
            }
            if jobs.len() == limit || memory.not_before().is_some_and(|at| at > now) {
                self.waiting = true;
                continue;
            }
            memory.under_way = true;
            jobs.push(job);
        }
        jobs
    }

    /// Records the outcome of a write. Returns the failure when it is new for this object.
    pub fn done(&mut self, now: Instant, job: &Job, outcome: WriteOutcome) -> Option<Failure> {
        let memory = self.memory.get_mut(&job.config.key())?;
        memory.under_way = false;
        memory.last = Some(now);
        memory.attempts = memory.attempts.saturating_add(1);
        match outcome {
            WriteOutcome::Stored(status) => {
                self.written += 1;
                memory.error.clear();
                if memory.desired == job.hash {
                    (memory.stored, memory.done) = (Some(hash(&status)), job.config.stamp);
                }
            }
            WriteOutcome::Superseded => {
                if memory.desired == job.hash {
                    memory.done = job.config.stamp;
                }
            }
            WriteOutcome::Failed(error) => {
                self.failed += 1;
                self.waiting = true;
                let is_news = memory.error != error;
                memory.error.clone_from(&error);
                let failure = Failure { object: job.config.key(), error };
                self.last_failure = Some(failure.clone());
                return Some(failure).filter(|_| is_news);
            }
        }
        None
    }

    /// State of the write of an object, for the pages; `None` when there was nothing to write.
    #[must_use]
    pub fn state(&self, config: &Config) -> Option<Value> {
        let memory = self.memory.get(&config.key())?;
        let state = match memory {
            m if !m.error.is_empty() => "failed",
            m if m.done == config.stamp => "written",
            _ => "waiting",
        };
        let mut shown = json!({"state": state, "attempts": memory.attempts});
        if !memory.error.is_empty() {
            shown["error"] = memory.error.as_str().into();
        }
        Some(shown)
    }

    /// The last write that failed.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Failure> {
        self.last_failure.as_ref()
    }

    /// The numbers of writes that succeeded and that failed, so far.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        (self.written, self.failed)
    }
}

/// The desired status, except for settled conditions: a generation that has reached all proxies stays so, and its count of
/// that time is kept.
fn lasting(desired: &Value, existing: &Value) -> Value {
    let mut desired = desired.clone();
    let known = existing["conditions"].as_array().into_iter().flatten().filter(|c| is_settled(c));
    for settled in known {
        // A condition with a reason is no count: it says that the object is not in force, whatever was true before.
        let ours = desired.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        let ours = ours.filter(|c| c["reason"].is_null());
        let same = |c: &&mut Value| {
            let generation = &c["observedGeneration"];
            c["type"] == settled["type"] && !generation.is_null() && *generation == settled["observedGeneration"]
        };
        ours.filter(same).for_each(|condition| condition.clone_from(settled));
    }
    desired
}

/// Whether all of the status is ours, or only the fields that we name.
fn is_whole(config: &Config) -> bool {
    config.kind().class() != KindClass::Istio
}

/// Hash of a status without its transition times.
fn hash(status: &Value) -> u64 {
    let mut sorted = status.clone();
    drop_times(&mut sorted);
    sorted.sort_all_objects();
    xxh3_64(sorted.to_string().as_bytes())
}

fn drop_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("lastTransitionTime");
            fields.values_mut().for_each(drop_times);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_times),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, decode};

    struct World {
        plan: Plan,
        now: Instant,
        status: Value,
        writes: usize,
    }

    impl World {
        fn object(&self) -> Arc<Config> {
            let document = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": {"name": "c"}, "spec": {"controllerName": "x"}, "status": self.status});
            Arc::new(decode::from_value(&document, Origin::default()).unwrap())
        }

        fn due(&mut self, says: &str) -> Vec<Job> {
            let object = self.object();
            let desired = json!({"conditions": [{"type": "Accepted", "status": says}]});
            let (desired, objects) =
                (BTreeMap::from([(object.key(), desired)]), BTreeMap::from([(object.key(), object)]));
            self.plan.due(self.now, &desired, &objects, 10)
        }

        /// Writes the due statuses, as a server that adds a field of its own.
        fn look(&mut self, says: &str) -> usize {
            let jobs = self.due(says);
            for job in &jobs {
                let mut stored = job.body(&self.status, "t").unwrap();
                stored["added"] = true.into();
                self.status = stored.clone();
                self.plan.done(self.now, job, WriteOutcome::Stored(stored));
                self.writes += 1;
            }
            jobs.len()
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    fn world() -> World {
        World { plan: Plan::default(), now: Instant::now(), status: Value::Null, writes: 0 }
    }

    #[test]
    fn a_status_that_the_server_holds_is_not_written_again() {
        let mut world = world();
        assert_eq!(world.look("True"), 1);
        for _ in 0..50 {
            world.pass(60);
            assert_eq!(world.look("True"), 0, "the server's own field is no reason");
        }
        world.plan.forget();
        assert_eq!(world.look("True"), 1, "a field not known to be the server's own is written once");
        world.pass(60);
        assert_eq!(world.look("True"), 0);
        assert_eq!(world.look("False"), 1);
    }

    #[test]
    fn a_refused_write_is_told_once_for_each_reason() {
        let mut world = world();
        let refuse = |world: &mut World, why: &str| {
            let job = world.due("True").remove(0);
            world.pass(400);
            world.plan.done(world.now - Duration::from_secs(400), &job, WriteOutcome::Failed(why.to_string()))
        };
        let told = refuse(&mut world, "forbidden").unwrap();
        assert_eq!((told.object, told.error.as_str()), (world.object().key(), "forbidden"));
        assert_eq!(refuse(&mut world, "forbidden"), None, "it is known");
        assert!(refuse(&mut world, "too large").is_some());
        assert_eq!(world.plan.last_failure().map(|f| f.error.as_str()), Some("too large"));
        assert_eq!(world.plan.counts(), (0, 3));
    }

    #[test]
    fn a_writer_that_reverts_ours_makes_the_pauses_grow() {
        let mut world = world();
        for second in 0..3600 {
            world.look("True");
            if second % 2 == 0 {
                world.status = json!({"conditions": [], "by": second});
            }
            world.pass(1);
        }
        assert!(world.writes > 10 && world.writes < 30, "{}", world.writes);
    }

    #[test]
    fn a_settled_condition_stays_for_its_generation() {
        let condition = |status: &str, message: &str, generation: i64| {
            json!({"conditions": [{"type": "Reconciled", "status": status, "message": message,
                "observedGeneration": generation, "lastTransitionTime": "t"}]})
        };
        let stored = condition("True", "2/2 proxies up to date.", 3);
        for (status, message) in [("True", "0/0 proxies up to date."), ("False", "1/2 proxies up to date.")] {
            let desired = condition(status, message, 3);
            assert_eq!(lasting(&desired, &stored), stored);
            let next = condition(status, message, 4);
            assert_eq!(lasting(&next, &stored), next);
            assert_eq!(lasting(&desired, &condition("False", "x", 3)), desired);
            let mut without_effect = desired.clone();
            without_effect["conditions"][0]["reason"] = "NotEnforced".into();
            assert_eq!(
                lasting(&without_effect, &stored),
                without_effect,
                "an object that is not in force is never settled"
            );
        }
    }

    #[test]
    fn a_write_under_way_is_not_begun_again_and_a_failed_one_is_after_a_pause() {
        let mut world = world();
        let jobs = world.due("True");
        assert!(world.due("True").is_empty());
        world.plan.done(world.now, &jobs[0], WriteOutcome::Failed("403 no".into()));
        assert!(world.due("True").is_empty() && world.plan.is_waiting());
        assert_eq!(world.plan.state(&world.object()).unwrap()["error"], "403 no");
        world.pass(1);
        assert_eq!(world.look("True"), 1);
        assert_eq!(world.plan.state(&world.object()).unwrap()["state"], "waiting", "the watch has not told yet");
        world.due("True");
        assert_eq!(world.plan.state(&world.object()).unwrap()["state"], "written");
        assert_eq!(world.plan.counts(), (1, 1));
    }
}
