//! The actor that owns the ledger: connections in, tasks out, a few at a time.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, ResponseFuture, Supervised, Supervisor, WrapFuture,
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{oneshot, watch};

use super::{
    ClusterEntries, EntryKey, EntryStore, MemoryEntries, SOURCE,
    cleanup::Gone,
    crowd::Limits,
    entry::{GROUP, wish},
    guest::Guest,
    ledger::{Ledger, Task, TaskOutcome},
    plan::Said,
    work::{Failure, Rules, clean, settle},
};
use crate::{
    discovery::{Arrival, Presence, Registrar, RegistrationRefusal},
    model::{Config, ConfigSnapshot, Features, Kind},
    runtime::{ActorHealth, Mailbox, Supervision},
};

/// The pause after a look: objects that come in force in this time are looked at together.
const PAUSE: Duration = Duration::from_millis(250);
/// How long it waits for other objects: entries are due, and other processes end, without any.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often entries that are not in force are asked for, although nothing has changed.
const MISS_EVERY: Duration = Duration::from_secs(5);

type ArrivalReply = Result<Option<Guest>, RegistrationRefusal>;

/// What the actor works with.
#[derive(Clone)]
pub struct Setup {
    /// The name of this process in entries; no other process may have it.
    pub me: Arc<str>,
    /// Flags.
    pub features: Arc<Features>,
    /// The objects in force, and their changes.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// Whether all sources have delivered: before that a group may seem to be missing.
    pub is_complete: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Entries that no cluster takes.
    pub memory: MemoryEntries,
    /// The cluster, where it may be written to.
    pub cluster: Option<ClusterEntries>,
    /// How many may register.
    pub limits: Limits,
    /// Which other processes have ended, as far as this one has to act on that.
    pub gone: Arc<dyn Fn() -> Gone + Send + Sync>,
}

impl Setup {
    /// The objects in force; `None` before all sources have delivered.
    fn in_force(&self) -> Option<Arc<ConfigSnapshot>> {
        (self.is_complete)().then(|| self.configs.borrow().clone())
    }
}

/// A proxy connects. The answer comes when its entry stands, or cannot.
#[derive(Message)]
#[rtype(result = "ArrivalReply")]
struct Arrive(Guest);

/// A connection ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Leave(EntryKey, u64, Timestamp);

/// A proxy has something to say of its health.
#[derive(Message)]
#[rtype(result = "()")]
struct Listen(Guest);

/// What became of a task.
#[derive(Message)]
#[rtype(result = "()")]
struct Done(EntryKey, Result<TaskOutcome, Failure>);

/// The connections that were accepted; they outlive a restart of the actor.
type Roster = Arc<Mutex<BTreeMap<u64, Guest>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Owns the ledger.
pub struct RegistrationActor {
    setup: Setup,
    rules: Arc<Rules>,
    ledger: Ledger,
    roster: Roster,
    replies: HashMap<u64, oneshot::Sender<ArrivalReply>>,
    seen: Option<Arc<ConfigSnapshot>>,
    gone: Gone,
    /// When entries were missed last.
    missed: Instant,
    /// Why the last task did not reach its store, if it did not.
    outage: Option<String>,
    actor_health: ActorHealth,
}

/// Registers workloads, for the xDS server.
#[derive(Clone)]
pub struct RegistrationHandle {
    mailbox: Mailbox<RegistrationActor>,
    features: Arc<Features>,
    roster: Roster,
    counter: Arc<AtomicU64>,
}

impl RegistrationActor {
    /// Starts the actor.
    #[must_use]
    pub fn start(supervision: &Supervision, setup: Setup) -> RegistrationHandle {
        let actor_health = supervision.admit("registration");
        let (queue, roster, features) = (actor_health.queue(), Roster::default(), setup.features.clone());
        let shared = roster.clone();
        let rules = Arc::new(Rules {
            me: setup.me.clone(),
            grace: features.workload_entry_grace_period,
            validate: features.workload_entry_validate_identity,
            health: features.enable_workload_entry_healthchecks,
        });
        let ledger = Ledger::default().within(setup.limits);
        let address = Supervisor::start(move |_| Self {
            setup,
            rules,
            ledger,
            roster: shared,
            replies: HashMap::new(),
            seen: None,
            gone: Gone::default(),
            missed: Instant::now(),
            outage: None,
            actor_health,
        });
        let counter = Arc::default();
        RegistrationHandle { mailbox: Mailbox::new(address, queue), features, roster, counter }
    }

    /// Runs a change of the ledger and begins what is due after it.
    fn change(&mut self, context: &mut Context<Self>, change: impl FnOnce(&mut Ledger)) {
        let (ledger, now) = (&mut self.ledger, Timestamp::now());
        let due = self.actor_health.run(context, || {
            change(ledger);
            ledger.due(now)
        });
        for (key, task) in due.unwrap_or_default() {
            let work = self.work(key.clone(), task);
            let mailbox = self.actor_health.mailbox(context);
            actix::spawn(async move { mailbox.tell(Done(key, work.await)) });
        }
    }

    /// Looks when other objects are in force, or something may be due.
    fn follow(&self, context: &mut Context<Self>) {
        let mut configs = self.setup.configs.clone();
        configs.mark_unchanged();
        let wait = async move {
            tokio::time::sleep(PAUSE).await;
            let _ = tokio::time::timeout(PATIENCE, configs.changed()).await;
        };
        context.spawn(wait.into_actor(self).map(|(), actor, context| {
            actor.look(context);
            actor.follow(context);
        }));
    }

    fn look(&mut self, context: &mut Context<Self>) {
        if self.actor_health.is_down() {
            return;
        }
        let gone = (self.setup.gone)();
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
        self.change(context, move |ledger| match (&snapshot, &in_force) {
            (Some(configs), _) => {
                ledger.hear(&gone);
                let orphaned = |entry: &Config| is_orphaned(entry, configs);
                ledger.compare(configs, &rules.me, rules.grace, Timestamp::now(), orphaned);
            }
            (None, Some(configs)) if is_time => ledger.miss(configs),
            (None, _) => {}
        });
        self.seen = now.or_else(|| self.seen.take());
    }

    fn group(&self, key: &EntryKey, name: &str) -> Option<Arc<Config>> {
        let snapshot = self.setup.in_force()?;
        let groups = snapshot.list(Kind::WorkloadGroup).iter().filter(|c| c.is_of_main_cluster());
        groups.into_iter().find(|c| *c.meta.namespace == *key.namespace && *c.meta.name == *name).cloned()
    }

    /// Where an entry stands: where its group does, if that is a cluster that we write to.
    fn store(&self, key: &EntryKey, group: Option<&Config>) -> Arc<dyn EntryStore> {
        let cluster = self.setup.cluster.clone().filter(|_| !self.setup.memory.holds(key));
        match (cluster, group) {
            (Some(cluster), Some(group)) if group.origin.source.starts_with("kube:") => Arc::new(cluster),
            (Some(cluster), None) => Arc::new(cluster),
            _ => Arc::new(self.setup.memory.clone()),
        }
    }

    fn work(&self, key: EntryKey, task: Task) -> BoxFuture<'static, Result<TaskOutcome, Failure>> {
        let rules = self.rules.clone();
        match task {
            Task::Settle { guest, .. } if guest.group.is_empty() && self.is_elsewhere(&key) => {
                async { Err(Failure::Ignored) }.boxed()
            }
            Task::Settle { guest, claim, .. } => {
                let group = self.group(&key, &guest.group);
                let store = self.store(&key, group.as_deref());
                async move {
                    let ours = settle(&*store, &guest, &claim, group, &rules).await?;
                    Ok(if ours { TaskOutcome::Settled } else { TaskOutcome::Left })
                }
                .boxed()
            }
            Task::Clean { abandoned } => {
                let store = self.store(&key, None);
                let (orphaned, gone) = (self.is_orphaned_in_memory(&key), self.ledger.gone().clone());
                async move {
                    let seen = (orphaned, abandoned);
                    let waits = clean(&*store, &key, (&rules, &gone), Timestamp::now(), seen).await?;
                    Ok(waits.map_or(TaskOutcome::Left, TaskOutcome::Waits))
                }
                .boxed()
            }
        }
    }

    /// Whether an entry is in force that nobody can write: one of a file, or of another control plane.
    fn is_elsewhere(&self, key: &EntryKey) -> bool {
        let Some(snapshot) = self.setup.in_force() else { return false };
        let mut entries = snapshot.list(Kind::WorkloadEntry).iter().filter(|c| c.is_of_main_cluster());
        let found = entries.find(|c| *c.meta.namespace == *key.namespace && *c.meta.name == *key.name);
        let in_cluster = |source: &str| source.starts_with("kube:") && self.setup.cluster.is_some();
        found.is_some_and(|c| !in_cluster(&c.origin.source) && *c.origin.source != *SOURCE)
    }

    fn is_orphaned_in_memory(&self, key: &EntryKey) -> bool {
        let Some(snapshot) = self.setup.in_force() else { return false };
        let of_key = |c: &&Arc<Config>| *c.meta.namespace == *key.namespace && *c.meta.name == *key.name;
        self.setup.memory.content().iter().find(of_key).is_some_and(|entry| is_orphaned(entry, &snapshot))
    }
}

/// Whether nothing that the ledger looks at has changed.
fn same(seen: &ConfigSnapshot, now: &ConfigSnapshot) -> bool {
    [Kind::WorkloadEntry, Kind::WorkloadGroup].iter().all(|kind| {
        match (seen.by_kind.get(kind), now.by_kind.get(kind)) {
            (Some(seen), Some(now)) => Arc::ptr_eq(seen, now),
            (seen, now) => seen.is_none() && now.is_none(),
        }
    })
}

/// Whether an entry of our own source lost its group; in a cluster the garbage collector looks after that.
fn is_orphaned(entry: &Config, configs: &ConfigSnapshot) -> bool {
    let Some(group) = entry.meta.annotations.get(GROUP).filter(|_| *entry.origin.source == *SOURCE) else {
        return false;
    };
    let mut groups = configs.list(Kind::WorkloadGroup).iter().filter(|c| c.is_of_main_cluster());
    !groups.any(|c| c.meta.namespace == entry.meta.namespace && *c.meta.name == **group)
}

impl Actor for RegistrationActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.ledger = Ledger::of(locked(&actor.roster).values().cloned()).within(actor.setup.limits);
            (actor.seen, actor.gone) = (None, Gone::default());
            actor.actor_health.recovered();
        });
        self.follow(context);
    }
}

impl Supervised for RegistrationActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        self.ledger = Ledger::default();
        self.replies.clear();
    }
}

impl Handler<Arrive> for RegistrationActor {
    type Result = ResponseFuture<ArrivalReply>;

    fn handle(&mut self, Arrive(guest): Arrive, context: &mut Self::Context) -> Self::Result {
        self.actor_health.take_up();
        let (answer, waiting) = oneshot::channel();
        let id = guest.id;
        self.replies.insert(id, answer);
        let (mut refused, key) = (None, guest.key.clone());
        self.change(context, |ledger| refused = ledger.arrive(guest).err());
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

impl Handler<Leave> for RegistrationActor {
    type Result = ();

    fn handle(&mut self, Leave(key, id, at): Leave, context: &mut Self::Context) {
        self.actor_health.take_up();
        self.change(context, |ledger| ledger.leave(&key, id, at));
    }
}

impl Handler<Listen> for RegistrationActor {
    type Result = ();

    fn handle(&mut self, Listen(guest): Listen, context: &mut Self::Context) {
        self.actor_health.take_up();
        self.change(context, |ledger| {
            if let Some(said) = guest.health.take() {
                ledger.say(&guest.key, said);
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
        self.change(context, |ledger| finished = ledger.done(&key, outcome, grace, Timestamp::now()));
        let Some((id, accepted)) = finished else { return };
        let Some(reply) = self.replies.remove(&id) else { return };
        let answer = match (accepted, result) {
            (Some(guest), _) => {
                locked(&self.roster).insert(id, guest.clone());
                Ok(Some(guest))
            }
            (None, Err(Failure::Refused(refusal))) => Err(refusal),
            (None, _) => Ok(None),
        };
        let kept = answer.as_ref().is_ok_and(Option::is_some) && self.setup.memory.holds(&key);
        let memory = kept.then(|| self.setup.memory.clone());
        let (mailbox, roster) = (self.actor_health.mailbox(context), self.roster.clone());
        actix::spawn(async move {
            // What it is told is true after a restart too.
            if let Some(memory) = memory
                && !memory.until_kept().await
            {
                tracing::warn!(entry = %key, "registered, and not saved yet (--state-dir)");
            }
            if reply.send(answer).is_err() {
                locked(&roster).remove(&id);
                mailbox.tell(Leave(key, id, Timestamp::now()));
            }
        });
    }
}

/// A registered connection.
struct Registered {
    guest: Guest,
    handle: RegistrationHandle,
}

impl Presence for Registered {
    fn health(&self, health: Result<(), String>) {
        let said = Said { healthy: health.is_ok(), message: health.err().unwrap_or_default(), at: Timestamp::now() };
        // One that waits already is replaced: only the last word counts.
        if self.guest.health.say(said) {
            self.handle.mailbox.tell(Listen(self.guest.clone()));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        locked(&self.handle.roster).remove(&self.guest.id);
        self.handle.mailbox.tell(Leave(self.guest.key.clone(), self.guest.id, Timestamp::now()));
    }
}

impl Registrar for RegistrationHandle {
    fn arrive(&self, arrival: Arrival) -> BoxFuture<'static, Result<Option<Box<dyn Presence>>, RegistrationRefusal>> {
        let handle = self.clone();
        async move {
            let Some(wish) = wish(&arrival.node, &handle.features)? else { return Ok(None) };
            let guest = Guest {
                id: handle.counter.fetch_add(1, Ordering::Relaxed),
                key: wish.key,
                group: wish.group.into(),
                node: arrival.node,
                identity: arrival.identity,
                peer: arrival.peer.map(|address| address.ip().to_canonical()),
                at: Timestamp::try_from(arrival.at).unwrap_or_default(),
                health: Arc::default(),
            };
            let closed = |_| RegistrationRefusal::Unavailable("registration is not there".to_string());
            let accepted = handle.mailbox.send(Arrive(guest)).await.map_err(closed)??;
            Ok(accepted.map(|guest| Box::new(Registered { guest, handle }) as Box<dyn Presence>))
        }
        .boxed()
    }
}

impl fmt::Debug for RegistrationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrationHandle").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}
