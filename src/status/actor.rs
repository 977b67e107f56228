//! The status reporter: observes publications and acknowledgements, and answers with the status of each object.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, Supervised, Supervisor, WrapFuture};
use serde_json::{Value, json};

use super::{
    Leadership, Levels, Report, ReportBoard, Reporter,
    analysis::{Analysis, Pace, analyse},
    desired::{Messages, Omitted},
    plan::{Job, WriteOutcome},
    ports::StatusSink,
    term::Term,
    write::carry_out,
};
use crate::{
    discovery::{Omission, XdsState},
    model::ConfigSnapshot,
    runtime::{ActorHealth, Mailbox, Supervision},
};

/// The pause after a look, which reads the state of each connection: acknowledgements in this time are looked at together.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest time that a writing process waits for an acknowledgement: terms begin and writes are due without one. Other
/// processes report to it at the same interval.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes of one batch: one batch at a time and the pause between two looks bound the load on the API server.
const BATCH: usize = 50;

/// The destination of statuses, and the leadership that permits writing.
pub struct Writing {
    /// Writes statuses to the cluster.
    pub sink: Arc<dyn StatusSink>,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// Reports of other processes; without a board only our own proxies are counted.
    pub board: Option<ReportBoard>,
    /// The effective objects as the store has them.
    pub snapshots: Arc<dyn Fn() -> Arc<ConfigSnapshot> + Send + Sync>,
    /// Requests a publication of the current state, although proxies need none.
    pub publish: Arc<dyn Fn() + Send + Sync>,
}

/// The outcomes of a batch.
#[derive(Message)]
#[rtype(result = "()")]
struct Wrote(Vec<(Job, WriteOutcome)>);

/// The outcome of an analysis; none where it failed.
#[derive(Message)]
#[rtype(result = "()")]
struct Analysed(Option<Analysis>);

/// Requests the report on the leader.
#[derive(Message)]
#[rtype(result = "Value")]
struct AskLeader;

/// Requests every status.
#[derive(Message)]
#[rtype(result = "Vec<Value>")]
struct AskStatuses;

/// The actor that owns the reporter.
pub struct StatusReporterActor {
    xds: XdsState,
    core: Reporter,
    writing: Option<Writing>,
    /// The term in which this process leads.
    term: Option<Term>,
    under_way: bool,
    /// Whether a caller has asked for statuses. Without writing there is no other reason to compute them.
    asked: bool,
    reported: Option<Instant>,
    pace: Pace,
    actor_health: ActorHealth,
}

/// Handle of the reporter for other rooms.
#[derive(Debug, Clone)]
pub struct StatusHandle {
    mailbox: Mailbox<StatusReporterActor>,
}

impl StatusReporterActor {
    /// Starts the actor. Without `writing`, statuses are shown only.
    #[must_use]
    pub fn start(supervision: &Supervision, xds: XdsState, writing: Option<Writing>) -> StatusHandle {
        let actor_health = supervision.admit("status-reporter");
        let queue = actor_health.queue();
        let address = Supervisor::start(move |_| Self {
            xds,
            core: Reporter::default(),
            writing,
            term: None,
            under_way: false,
            asked: false,
            reported: None,
            pace: Pace::default(),
            actor_health,
        });
        StatusHandle { mailbox: Mailbox::new(address, queue) }
    }

    fn look(&mut self, context: &mut Context<Self>) {
        if self.actor_health.is_down() {
            return;
        }
        let now = Instant::now();
        let report = self.reported.is_none_or(|last| now.duration_since(last) >= PATIENCE);
        if report {
            self.reported = Some(now);
        }
        let (core, xds, writing, term) = (&mut self.core, &self.xds, &self.writing, &mut self.term);
        let (free, asked) = (!self.under_way, self.asked);
        let jobs = self.actor_health.run(context, || {
            let Some(writing) = writing else {
                if asked {
                    look(core, xds, &[]);
                }
                return Vec::new();
            };
            let begins = follow_term(term, &writing.leadership);
            let peers = peers_of(writing, term.as_ref());
            look(core, xds, peers.as_deref().unwrap_or_default());
            if begins {
                core.begin_term();
            }
            // A process that has published nothing serves no proxies, so its report is not needed.
            if let Some(board) = writing.board.as_ref().filter(|_| (report || begins) && xds.current().is_some()) {
                let proxies = xds.connections().iter().filter(|c| c.is_proxy()).count();
                let (mine, counts) = core.report(proxies, &(writing.snapshots)());
                board.tell(mine, counts);
            }
            let may = peers.is_some() && term.as_mut().is_some_and(|t| has_caught_up(t, xds, writing));
            if may && free { core.due(Instant::now(), BATCH) } else { Vec::new() }
        });
        self.write(jobs.unwrap_or_default(), context);
        self.analyse(context);
    }

    /// Begins an analysis of the publication in force, if its messages are written or were asked for.
    fn analyse(&mut self, context: &mut Context<Self>) {
        let is_read = self.asked || self.term.is_some();
        let Some(published) = self.xds.current().filter(|p| is_read && p.context.features().enable_analysis) else {
            return;
        };
        if !self.pace.begins(&published.context, Instant::now()) {
            return;
        }
        let mailbox = self.actor_health.mailbox(context);
        actix::spawn(async move {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            let found = tokio::task::spawn_blocking(move || analyse(&published.context, now)).await;
            mailbox.tell(Analysed(found.ok()));
        });
    }

    /// Looks when something may have changed, with a pause between two looks.
    fn follow(&self, context: &mut Context<Self>) {
        let (xds, writes) = (self.xds.clone(), self.writing.is_some());
        let wait = async move {
            tokio::time::sleep(PAUSE).await;
            if writes {
                let _ = tokio::time::timeout(PATIENCE - PAUSE, xds.progress()).await;
            } else {
                xds.progress().await;
            }
        };
        context.spawn(wait.into_actor(self).map(|(), actor, context| {
            actor.look(context);
            actor.follow(context);
        }));
    }

    fn write(&mut self, jobs: Vec<Job>, context: &mut Context<Self>) {
        let Some(writing) = self.writing.as_ref().filter(|_| !jobs.is_empty()) else { return };
        self.under_way = true;
        let carried_out = carry_out(writing.sink.clone(), writing.leadership.clone(), jobs);
        let mailbox = self.actor_health.mailbox(context);
        actix::spawn(async move { mailbox.tell(Wrote(carried_out.await)) });
    }
}

/// Follows the leadership. Returns whether a term of this process begins.
fn follow_term(term: &mut Option<Term>, leadership: &Leadership) -> bool {
    let now = leadership.term();
    let begins = now.is_some_and(|now| term.as_ref().is_none_or(|term| term.number != now));
    if begins || now.is_none() {
        *term = now.map(|number| Term::new(number, Instant::now()));
    }
    begins
}

/// The others' reports to the leader; `None` while it has not read them in its term.
fn peers_of(writing: &Writing, term: Option<&Term>) -> Option<Arc<[Report]>> {
    match &writing.board {
        Some(board) => board.peers(term?.number),
        None => Some(Arc::new([])),
    }
}

fn has_caught_up(term: &mut Term, xds: &XdsState, writing: &Writing) -> bool {
    let Some(published) = xds.current() else { return false };
    let (version, configs) = (published.version, &published.context.inputs.configs);
    term.may_write(Instant::now(), version, configs, || (writing.snapshots)(), || (writing.publish)())
}

fn by_object(omissions: Vec<Omission>) -> Messages {
    let mut all = Messages::new();
    for Omission { object, message, .. } in omissions {
        if let Some(object) = object {
            all.entry(object).or_default().insert(message);
        }
    }
    all
}

/// Looks at the publication in force, once its effects on every proxy are known.
fn look(core: &mut Reporter, xds: &XdsState, peers: &[Report]) -> bool {
    let Some(published) = xds.current().filter(|p| p.version <= xds.propagated_version()) else { return false };
    let found = || {
        let (not_enforced, refused) = xds.omissions().into_iter().partition(Omission::is_not_enforced);
        Omitted { refused: by_object(refused), not_enforced: by_object(not_enforced) }
    };
    core.left_out(xds.omission_changes(), found, by_object(xds.refused_by_clients()));
    let levels = || Levels::of(xds.connections().iter().filter(|c| c.is_proxy()).map(|c| c.held_version()));
    core.look(published.version, &published.context, levels, peers)
}

impl Actor for StatusReporterActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.actor_health.recovered();
        });
        self.follow(context);
    }
}

impl Supervised for StatusReporterActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        self.core = Reporter::default();
        (self.term, self.under_way, self.reported) = (None, false, None);
        self.pace = Pace::default();
    }
}

impl Handler<Wrote> for StatusReporterActor {
    type Result = ();

    fn handle(&mut self, Wrote(outcomes): Wrote, context: &mut Self::Context) {
        self.under_way = false;
        let core = &mut self.core;
        let failures = self.actor_health.guard(context, || core.done(Instant::now(), outcomes));
        // More may be due.
        self.xds.wake_reader();
        for failure in failures.unwrap_or_default() {
            let (object, error) = (failure.object, failure.error);
            tracing::warn!(%object, error, "a status was not written (--write-status), trying again");
        }
    }
}

impl Handler<Analysed> for StatusReporterActor {
    type Result = ();

    fn handle(&mut self, Analysed(found): Analysed, context: &mut Self::Context) {
        let pause = self.pace.ended(Instant::now());
        let core = &mut self.core;
        match found {
            Some(analysis) => self.actor_health.guard(context, || core.analysed(analysis)),
            None => {
                tracing::error!("the analysis of the objects failed");
                None
            }
        };
        self.look(context);
        context.run_later(pause, Self::look);
    }
}

impl Handler<AskLeader> for StatusReporterActor {
    type Result = actix::MessageResult<AskLeader>;

    fn handle(&mut self, _: AskLeader, context: &mut Self::Context) -> Self::Result {
        let (core, leadership) = (&self.core, self.writing.as_ref().map(|w| &w.leadership));
        let shown = self.actor_health.guard(context, || {
            let (written, failed) = core.counts();
            let last = core.last_failure().map(|f| json!({"object": f.object.to_string(), "error": f.error}));
            leadership
                .map(|l| json!({"leader": l.report(), "written": written, "failed": failed, "last_failure": last}))
        });
        actix::MessageResult(shown.flatten().unwrap_or_default())
    }
}

impl Handler<AskStatuses> for StatusReporterActor {
    type Result = Vec<Value>;

    fn handle(&mut self, _: AskStatuses, context: &mut Self::Context) -> Self::Result {
        self.asked = true;
        let (core, xds) = (&mut self.core, &self.xds);
        let peers = self.writing.as_ref().and_then(|w| peers_of(w, self.term.as_ref()));
        let rows = self.actor_health.guard(context, || {
            look(core, xds, peers.as_deref().unwrap_or_default());
            core.rows()
        });
        self.analyse(context);
        rows.unwrap_or_default()
    }
}

impl StatusHandle {
    /// Every object that has a status, with it, in the order of kind, namespace and name; nothing while the reporter is
    /// down.
    pub async fn statuses(&self) -> Vec<Value> {
        self.mailbox.send(AskStatuses).await.unwrap_or_default()
    }

    /// The leader, and the number of statuses that this process has written; `null` where none are written.
    pub async fn leader(&self) -> Value {
        self.mailbox.send(AskLeader).await.unwrap_or_default()
    }
}
