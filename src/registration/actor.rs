//! The actor that owns the registrations: connections in, tasks out, a few at a time.

mod handle;

pub use handle::RegistrationHandle;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, ResponseFuture, SpawnHandle, Supervised,
    Supervisor, WrapFuture,
};
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::{
    EntryKey, Setup,
    cleanup::Gone,
    registrations::{Registrations, TaskOutcome},
    session::ProxySession,
    setup::{is_orphaned, same},
    work::{self, Failure, Rules},
};
use crate::{
    discovery::RegistrationRefusal,
    model::{Config, ConfigSnapshot},
    runtime::{ActorHealth, Mailbox, Supervision},
};

/// The pause after a look: objects that come in force in this time are looked at together.
const PAUSE: Duration = Duration::from_millis(250);
/// The interval at which entries of connected proxies that are not in force are requested again although no object has changed:
/// an entry that was created and deleted between two publications brings no event.
const MISS_EVERY: Duration = Duration::from_secs(5);
/// The longest wait for a deadline: it is one of the wall clock, which may be set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

type ArrivalReply = Result<Option<ProxySession>, RegistrationRefusal>;

/// A proxy connects. The reply comes when its entry is stored, or cannot be.
#[derive(Message)]
#[rtype(result = "ArrivalReply")]
struct Connect(ProxySession);

/// A connection ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Disconnect(EntryKey, u64, Timestamp);

/// A proxy has reported its health; the report is in the session.
#[derive(Message)]
#[rtype(result = "()")]
struct ReadHealth(ProxySession);

/// The end of a task, with its outcome.
#[derive(Message)]
#[rtype(result = "()")]
struct Done(EntryKey, Result<TaskOutcome, Failure>);

/// The accepted sessions by number; they outlive a restart of the actor.
type SessionTable = Arc<Mutex<BTreeMap<u64, ProxySession>>>;

/// Owns the registrations.
pub struct RegistrationActor {
    setup: Setup,
    rules: Arc<Rules>,
    registrations: Registrations,
    session_table: SessionTable,
    replies: HashMap<u64, oneshot::Sender<ArrivalReply>>,
    seen: Option<Arc<ConfigSnapshot>>,
    gone: Gone,
    /// When entries were missed last.
    missed: Instant,
    /// Why the last task did not reach its store, if it did not.
    outage: Option<String>,
    /// Wakes the actor when a task is due.
    timer: Option<SpawnHandle>,
    actor_health: ActorHealth,
}

impl RegistrationActor {
    /// Starts the actor.
    #[must_use]
    pub fn start(supervision: &Supervision, setup: Setup) -> RegistrationHandle {
        let actor_health = supervision.admit("registration");
        let (queue, session_table, features) = (actor_health.queue(), SessionTable::default(), setup.features.clone());
        let shared = session_table.clone();
        let rules = Arc::new(Rules::of(&setup));
        let registrations = Registrations::default().within(setup.limits);
        let address = Supervisor::start(move |_| Self {
            setup,
            rules,
            registrations,
            session_table: shared,
            replies: HashMap::new(),
            seen: None,
            gone: Gone::default(),
            missed: Instant::now(),
            outage: None,
            timer: None,
            actor_health,
        });
        let counter = Arc::default();
        RegistrationHandle { mailbox: Mailbox::new(address, queue), features, session_table, counter }
    }

    /// Runs a change of the registrations and begins the tasks that are due after it.
    fn change(&mut self, context: &mut Context<Self>, change: impl FnOnce(&mut Registrations)) {
        let (registrations, now) = (&mut self.registrations, Timestamp::now());
        let due = self.actor_health.run(context, || {
            change(registrations);
            registrations.due(now)
        });
        for (key, task) in due.unwrap_or_default() {
            let work = work::run(&self.setup, self.rules.clone(), self.registrations.gone(), key.clone(), task);
            let mailbox = self.actor_health.mailbox(context);
            actix::spawn(async move { mailbox.tell(Done(key, work.await)) });
        }
        self.wait(context);
    }

    /// Sets the timer to the next time at which something is due without an event.
    fn wait(&mut self, context: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            context.cancel_future(timer);
        }
        let task = self
            .registrations
            .next()
            .map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        let miss = self.registrations.has_sessions().then(|| MISS_EVERY.saturating_sub(self.missed.elapsed()));
        let Some(pause) = task.into_iter().chain(miss).min() else { return };
        self.timer = Some(context.run_later(pause.min(LONGEST_WAIT), |actor, context| {
            actor.timer = None;
            actor.look(context);
        }));
    }

    /// Looks when other objects are in force, other processes have ended, or the sources are complete.
    fn follow(&self, context: &mut Context<Self>) {
        let Setup { mut configs, mut gone, mut publications, .. } = self.setup.clone();
        let is_complete = self.seen.is_some();
        let wait = async move {
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                changed = configs.changed() => changed.is_ok(),
                () = next(&mut gone) => true,
                () = next(&mut publications), if !is_complete => true,
            }
        };
        context.spawn(wait.into_actor(self).map(|goes_on, actor, context| {
            // Without a store the process ends.
            if goes_on {
                actor.look(context);
                actor.follow(context);
            }
        }));
    }

    fn look(&mut self, context: &mut Context<Self>) {
        // A change after this point wakes the actor again.
        self.setup.configs.mark_unchanged();
        self.setup.gone.mark_unchanged();
        self.setup.publications.mark_unchanged();
        if self.actor_health.is_down() {
            return;
        }
        let gone = self.setup.gone.borrow().clone();
        let news = gone != self.gone;
        let is_new = |now: &Arc<ConfigSnapshot>| news || !self.seen.as_ref().is_some_and(|seen| same(seen, now));
        let in_force = self.setup.in_force();
        let now = in_force.clone().filter(is_new);
        if now.is_some() {
            self.gone = gone.clone();
        }
        let is_time = self.missed.elapsed() >= MISS_EVERY;
        if is_time {
            self.missed = Instant::now();
        }
        let (rules, snapshot) = (self.rules.clone(), now.clone());
        self.change(context, move |registrations| match (&snapshot, &in_force) {
            (Some(configs), _) => {
                registrations.hear(&gone);
                let orphaned = |entry: &Config| is_orphaned(entry, configs);
                registrations.compare(configs, &rules.me, rules.grace, Timestamp::now(), orphaned);
            }
            (None, Some(configs)) if is_time => registrations.miss(configs),
            (None, _) => {}
        });
        self.seen = now.or_else(|| self.seen.take());
    }
}

/// Waits for the next value; without end where none comes any more, as without a cluster that tells of other processes.
async fn next<T>(values: &mut watch::Receiver<T>) {
    if values.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Actor for RegistrationActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, context| {
            actor.actor_health.up();
            actor.registrations =
                Registrations::of(actor.session_table.lock().values().cloned()).within(actor.setup.limits);
            (actor.seen, actor.gone) = (None, Gone::default());
            actor.actor_health.recovered();
            actor.look(context);
        });
        self.follow(context);
    }
}

impl Supervised for RegistrationActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        self.registrations = Registrations::default();
        self.replies.clear();
        self.timer = None;
    }
}

impl Handler<Connect> for RegistrationActor {
    type Result = ResponseFuture<ArrivalReply>;

    fn handle(&mut self, Connect(session): Connect, context: &mut Self::Context) -> Self::Result {
        self.actor_health.take_up();
        let (answer, waiting) = oneshot::channel();
        let id = session.id;
        self.replies.insert(id, answer);
        let (mut refused, key) = (None, session.key.clone());
        self.change(context, |registrations| refused = registrations.arrive(session).err());
        if let Some(refusal) = refused {
            self.replies.remove(&id);
            metrics::counter!("auto_registration_errors_total").increment(1);
            tracing::warn!(entry = %key, %refusal, "a workload may not register");
            return async move { Err(refusal) }.boxed_local();
        }
        if self.actor_health.is_down() {
            self.replies.clear();
        }
        let restarting = || Err(RegistrationRefusal::Unavailable("registration restarts".to_string()));
        async move { waiting.await.unwrap_or_else(|_| restarting()) }.boxed_local()
    }
}

impl Handler<Disconnect> for RegistrationActor {
    type Result = ();

    fn handle(&mut self, Disconnect(key, id, at): Disconnect, context: &mut Self::Context) {
        self.actor_health.take_up();
        self.change(context, |registrations| registrations.leave(&key, id, at));
    }
}

impl Handler<ReadHealth> for RegistrationActor {
    type Result = ();

    fn handle(&mut self, ReadHealth(session): ReadHealth, context: &mut Self::Context) {
        self.actor_health.take_up();
        self.change(context, |registrations| {
            if let Some(report) = session.health.take() {
                registrations.say(&session.key, report);
            }
        });
    }
}

impl Handler<Done> for RegistrationActor {
    type Result = ();

    fn handle(&mut self, Done(key, result): Done, context: &mut Self::Context) {
        self.actor_health.take_up();
        let outcome = match &result {
            Ok(outcome) => {
                self.outage = None;
                *outcome
            }
            Err(Failure::Refused(refusal)) => {
                tracing::warn!(entry = %key, %refusal, "a workload may not register");
                TaskOutcome::Refused
            }
            Err(Failure::Ignored) => TaskOutcome::Refused,
            Err(Failure::Unreached(error)) => {
                metrics::counter!("auto_registration_errors_total").increment(1);
                // Once for all entries: an outage meets them all.
                if self.outage.as_ref() != Some(error) {
                    tracing::warn!(error, "WorkloadEntries cannot be written now, trying again");
                    self.outage = Some(error.clone());
                }
                TaskOutcome::Unreached
            }
            Err(Failure::Failed(error)) => {
                metrics::counter!("auto_registration_errors_total").increment(1);
                tracing::warn!(entry = %key, error, "the WorkloadEntry cannot be written now, trying again");
                TaskOutcome::Failed
            }
        };
        let (grace, mut finished) = (self.rules.grace, None);
        self.change(context, |registrations| finished = registrations.done(&key, outcome, grace, Timestamp::now()));
        let Some((id, accepted)) = finished else { return };
        let Some(reply) = self.replies.remove(&id) else { return };
        let answer = match (accepted, result) {
            (Some(session), _) => {
                self.session_table.lock().insert(id, session.clone());
                Ok(Some(session))
            }
            (None, Err(Failure::Refused(refusal))) => Err(refusal),
            (None, _) => Ok(None),
        };
        let kept = answer.as_ref().is_ok_and(Option::is_some) && self.setup.memory.holds(&key);
        let memory = kept.then(|| self.setup.memory.clone());
        let (mailbox, session_table) = (self.actor_health.mailbox(context), self.session_table.clone());
        actix::spawn(async move {
            // The reply has to hold after a restart too.
            if let Some(memory) = memory
                && !memory.until_kept().await
            {
                tracing::warn!(entry = %key, "registered, and not saved yet (--state-dir)");
            }
            if reply.send(answer).is_err() {
                session_table.lock().remove(&id);
                mailbox.tell(Disconnect(key, id, Timestamp::now()));
            }
        });
    }
}

#[cfg(test)]
mod tests;
