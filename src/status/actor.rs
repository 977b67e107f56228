//! The status reporter: looks at what was published and acknowledged, and answers what became of each object.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, AsyncContext, Context, Handler, Message, Supervised, Supervisor};
use serde_json::{Value, json};

use super::{
    Leadership, Levels, Reporter,
    plan::{Job, Outcome},
    ports::StatusSink,
    write::carry_out,
};
use crate::{
    runtime::{Mailbox, Vitals, Wards},
    xds::XdsState,
};

/// How often it looks. Acknowledgements are not told one by one: a look reads what each connection says of itself.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Writes of one batch: one batch at a time and four looks a second bound what the API server gets from us.
const BATCH: usize = 50;

/// Where statuses are written, and whether by us.
pub struct Writing {
    /// Takes them.
    pub sink: Arc<dyn StatusSink>,
    /// Whether this process may write.
    pub leadership: Leadership,
}

/// What became of a batch.
#[derive(Message)]
#[rtype(result = "()")]
struct Wrote(Vec<(Job, Outcome)>);

/// Asks who writes.
#[derive(Message)]
#[rtype(result = "Value")]
struct AskLeader;

/// Asks for every status.
#[derive(Message)]
#[rtype(result = "Vec<Value>")]
struct AskStatuses;

/// Owns the reporter.
pub struct StatusReporterActor {
    xds: XdsState,
    core: Reporter,
    writing: Option<Writing>,
    /// The term in which this process last wrote.
    term: Option<u64>,
    under_way: bool,
    vitals: Vitals,
}

/// What others hold of the reporter.
#[derive(Debug, Clone)]
pub struct StatusHandle {
    mailbox: Mailbox<StatusReporterActor>,
}

impl StatusReporterActor {
    /// Starts the actor. Without a place to write to, statuses are shown only.
    #[must_use]
    pub fn start(wards: &Wards, xds: XdsState, writing: Option<Writing>) -> StatusHandle {
        let vitals = wards.admit("status-reporter");
        let queue = vitals.queue();
        let address = Supervisor::start(move |_| Self {
            xds,
            core: Reporter::default(),
            writing,
            term: None,
            under_way: false,
            vitals,
        });
        StatusHandle { mailbox: Mailbox::new(address, queue) }
    }

    fn look(&mut self, context: &mut Context<Self>) {
        if self.vitals.is_down() {
            return;
        }
        let term = self.writing.as_ref().and_then(|w| w.leadership.term());
        let begins = term.is_some() && term != self.term;
        let limit = if term.is_some() && !self.under_way { BATCH } else { 0 };
        let (core, xds) = (&mut self.core, &self.xds);
        let jobs = self.vitals.guard(context, || {
            look(core, xds);
            if begins {
                core.begin_term();
            }
            if limit > 0 { core.due(Instant::now(), limit) } else { Vec::new() }
        });
        self.term = term;
        self.write(jobs.unwrap_or_default(), context);
    }

    fn write(&mut self, jobs: Vec<Job>, context: &mut Context<Self>) {
        let Some(writing) = self.writing.as_ref().filter(|_| !jobs.is_empty()) else { return };
        self.under_way = true;
        let carried_out = carry_out(writing.sink.clone(), writing.leadership.clone(), jobs);
        let address = context.address();
        actix::spawn(async move { address.do_send(Wrote(carried_out.await)) });
    }
}

/// Looks at the publication in force, once its effects on every proxy are known.
fn look(core: &mut Reporter, xds: &XdsState) -> bool {
    let Some(published) = xds.current().filter(|p| p.version <= xds.swept()) else { return false };
    let levels = || Levels::of(xds.connections().iter().filter(|c| c.is_proxy()).map(|c| c.level()));
    core.look(published.version, &published.context, levels)
}

impl Actor for StatusReporterActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.vitals.started(context, |actor: &mut Self, _| {
            actor.vitals.up();
            actor.vitals.recovered();
        });
        context.run_interval(LOOK_EVERY, Self::look);
    }
}

impl Supervised for StatusReporterActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.vitals.restarting();
        self.core = Reporter::default();
        (self.term, self.under_way) = (None, false);
    }
}

impl Handler<Wrote> for StatusReporterActor {
    type Result = ();

    fn handle(&mut self, Wrote(outcomes): Wrote, context: &mut Self::Context) {
        self.under_way = false;
        let core = &mut self.core;
        self.vitals.guard(context, || core.done(Instant::now(), outcomes));
    }
}

impl Handler<AskLeader> for StatusReporterActor {
    type Result = actix::MessageResult<AskLeader>;

    fn handle(&mut self, _: AskLeader, context: &mut Self::Context) -> Self::Result {
        let (core, leadership) = (&self.core, self.writing.as_ref().map(|w| &w.leadership));
        let shown = self.vitals.guard(context, || {
            let (written, failed) = core.counts();
            leadership.map(|l| json!({"leader": l.report(), "written": written, "failed": failed}))
        });
        actix::MessageResult(shown.flatten().unwrap_or_default())
    }
}

impl Handler<AskStatuses> for StatusReporterActor {
    type Result = Vec<Value>;

    fn handle(&mut self, _: AskStatuses, context: &mut Self::Context) -> Self::Result {
        let (core, xds) = (&mut self.core, &self.xds);
        let rows = self.vitals.guard(context, || {
            look(core, xds);
            core.rows()
        });
        rows.unwrap_or_default()
    }
}

impl StatusHandle {
    /// Every object that has a status, with it, in the order of kind, namespace and name; nothing while the reporter is
    /// down.
    pub async fn statuses(&self) -> Vec<Value> {
        self.mailbox.send(AskStatuses).await.unwrap_or_default()
    }

    /// Who writes statuses, and how many this process has written; `null` where none are written.
    pub async fn leader(&self) -> Value {
        self.mailbox.send(AskLeader).await.unwrap_or_default()
    }
}
