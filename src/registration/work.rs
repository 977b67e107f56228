//! Execution of tasks: each on the fresh entry, again when it has changed meanwhile.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    EntryKey, EntryStore,
    cleanup::{Fate, Gone, Lost, Verdict, Viewer},
    entry::{HEALTH_CHECKS, document, may_control},
    plan::{Claim, HEALTHY, Step, annotation, connected, next, with_conditions},
    registrations::{Task, TaskOutcome},
    session::ProxySession,
    setup::Setup,
};
use crate::{discovery::RegistrationRefusal, model::Config, sources::WriteError};

/// The number of attempts on an entry that keeps changing.
const ROUNDS: usize = 8;

/// The reason that a task ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The proxy may not have the entry.
    Refused(RegistrationRefusal),
    /// The entry that it names does not accept reports of proxies.
    Ignored,
    /// The store refused the write, or failed.
    Failed(String),
    /// The store is unreachable.
    Unreached(String),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Unreachable(text) => Self::Unreached(text),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// The settings of this process that tasks read.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Name of this process, as entries record it.
    pub me: Arc<str>,
    /// The time that an entry outlives its connection.
    pub grace: Duration,
    /// Whether identities are checked.
    pub validate: bool,
    /// Whether health is written.
    pub health: bool,
}

impl Rules {
    /// Those of a process.
    pub(super) fn of(setup: &Setup) -> Self {
        let features = &setup.features;
        Self {
            me: setup.me.clone(),
            grace: features.workload_entry_grace_period,
            validate: features.workload_entry_validate_identity,
            health: features.enable_workload_entry_healthchecks,
        }
    }
}

/// A task on the entry as it stands now, where it stands now.
pub(super) fn run(
    setup: &Setup,
    rules: Arc<Rules>,
    gone: &Gone,
    key: EntryKey,
    task: Task,
) -> BoxFuture<'static, Result<TaskOutcome, Failure>> {
    match task {
        Task::Settle { session, .. } if session.group.is_empty() && setup.is_elsewhere(&key) => {
            async { Err(Failure::Ignored) }.boxed()
        }
        Task::Settle { session, claim, .. } => {
            let group = setup.group(&key, &session.group);
            let store = setup.store(&key, group.as_deref());
            async move {
                let ours = settle(&*store, &session, &claim, group, &rules).await?;
                Ok(if ours { TaskOutcome::Settled } else { TaskOutcome::Left })
            }
            .boxed()
        }
        Task::Clean { abandoned } => {
            let store = setup.store(&key, None);
            let lost = Lost { group: setup.is_orphaned_in_memory(&key), connection: abandoned };
            let gone = gone.clone();
            async move {
                let waits = clean(&*store, &key, &rules, &gone, Timestamp::now(), lost).await?;
                Ok(waits.map_or(TaskOutcome::Left, TaskOutcome::Waits))
            }
            .boxed()
        }
    }
}

/// Brings the stored entry in line with a claim. Returns whether the entry is ours in the end.
///
/// # Errors
/// [`Failure`].
pub async fn settle(
    store: &dyn EntryStore,
    session: &ProxySession,
    claim: &Claim,
    group: Option<Arc<Config>>,
    rules: &Rules,
) -> Result<bool, Failure> {
    let key = &session.key;
    let mut stored = store.get(key).await?;
    for _ in 0..ROUNDS {
        if claim.gone_at.is_none() {
            admit(session, stored.as_ref(), rules)?;
        }
        let (written, what) = match (next(claim, stored.as_ref(), &rules.me), &stored) {
            (Step::Leave, None) if !claim.auto && claim.gone_at.is_none() => {
                return Err(Failure::Refused(RegistrationRefusal::Missing(format!("there is no WorkloadEntry {key}"))));
            }
            (Step::Done, _) => return Ok(true),
            (Step::Leave, _) => return Ok(false),
            (Step::Create, _) => {
                let group = match group.clone() {
                    Some(known) => store.group(known).await?,
                    None => None,
                };
                (store.create(new_entry(session, claim, group.as_deref(), rules)?).await, "success")
            }
            (Step::Annotate(annotations), Some(stored)) => {
                let what = if claim.gone_at.is_some() { "unregister" } else { "updates" };
                (store.annotate(stored, annotations).await, what)
            }
            (Step::SetStatus(_), _) if !rules.health => return Ok(true),
            (Step::SetStatus(status), Some(stored)) => (store.set_status(stored, status).await, "health"),
            (Step::Annotate(_) | Step::SetStatus(_), None) => return Ok(false),
        };
        stored = match written {
            Ok(written) => {
                count(what);
                Some(written)
            }
            Err(WriteError::Conflict | WriteError::Gone) => store.get(key).await?,
            Err(error) => return Err(error.into()),
        };
    }
    Err(Failure::Failed("the entry keeps changing".to_string()))
}

/// Whether the proxy may have the stored entry.
fn admit(session: &ProxySession, stored: Option<&Value>, rules: &Rules) -> Result<(), Failure> {
    let Some(stored) = stored else { return Ok(()) };
    if rules.validate {
        may_control(session.identity.as_ref(), stored).map_err(Failure::Refused)?;
    }
    let speaks = !session.group.is_empty() || !stored["metadata"]["annotations"][HEALTH_CHECKS].is_null();
    speaks.then_some(()).ok_or(Failure::Ignored)
}

fn new_entry(session: &ProxySession, claim: &Claim, group: Option<&Config>, rules: &Rules) -> Result<Value, Failure> {
    let Some(group) = group else {
        let (namespace, name) = (&session.key.namespace, &session.group);
        let text = format!("auto-registration failed: cannot find WorkloadGroup {namespace}/{name}");
        return Err(Failure::Refused(RegistrationRefusal::Missing(text)));
    };
    let mut entry = document(&session.key, &session.node, group).map_err(|e| Failure::Failed(e.to_string()))?;
    if rules.validate {
        may_control(session.identity.as_ref(), &entry).map_err(Failure::Refused)?;
    }
    if let Some(annotations) = entry["metadata"]["annotations"].as_object_mut() {
        let connected = connected(&rules.me, claim.connected_at);
        let set = connected.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        annotations.extend(set.map(|(name, value)| (name.clone(), value.clone())));
    }
    let checked = !annotation(&entry, HEALTH_CHECKS).is_empty();
    tracing::info!(entry = %session.key, checked, "registering a WorkloadEntry");
    Ok(entry)
}

/// Releases an entry whose proxy is gone, and cleans it up after the grace period; returns the end of a running grace
/// period.
///
/// # Errors
/// [`Failure`].
pub async fn clean(
    store: &dyn EntryStore,
    key: &EntryKey,
    rules: &Rules,
    gone: &Gone,
    now: Timestamp,
    lost: Lost,
) -> Result<Option<Timestamp>, Failure> {
    let viewer = Viewer { me: &rules.me, grace: rules.grace, gone };
    for _ in 0..ROUNDS {
        let Some(stored) = store.get(key).await? else { return Ok(None) };
        let done = match viewer.verdict(&stored, now, lost) {
            Verdict::Keep => return Ok(None),
            Verdict::Wait(at) => return Ok(Some(at)),
            // The annotations stored then decide the remaining time.
            Verdict::LetGo(annotations) => match store.annotate(&stored, annotations).await {
                Ok(_) | Err(WriteError::Conflict) => continue,
                Err(error) => Err(error),
            },
            Verdict::End(Fate::Delete) => store.delete(&stored).await,
            Verdict::End(Fate::ForgetHealth) => {
                let conditions = stored["status"]["conditions"].as_array().into_iter().flatten();
                let others = conditions.filter(|c| c["type"] != HEALTHY).cloned().collect();
                store.set_status(&stored, with_conditions(&stored, others)).await.map(drop)
            }
        };
        match done {
            Ok(()) => {
                tracing::info!(entry = %key, "entry cleaned up: its proxy did not come back");
                count("deletes");
                return Ok(None);
            }
            Err(WriteError::Gone) => return Ok(None),
            Err(WriteError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Failed("the entry keeps changing".to_string()))
}

/// Counts an operation under Istio's metric name.
fn count(what: &str) {
    metrics::counter!(format!("auto_registration_{what}_total")).increment(1);
}
