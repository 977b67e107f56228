//! The status reporter: looks at what was published and acknowledged, and answers what became of each object.

use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, Supervised, Supervisor};
use serde_json::Value;

use super::{Levels, Reporter};
use crate::{
    runtime::{Mailbox, Vitals, Wards},
    xds::XdsState,
};

/// How often it looks. Acknowledgements are not told one by one: a look reads what each connection says of itself.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Asks for every status.
#[derive(Message)]
#[rtype(result = "Vec<Value>")]
struct AskStatuses;

/// Owns the reporter.
pub struct StatusReporterActor {
    xds: XdsState,
    core: Reporter,
    vitals: Vitals,
}

/// What others hold of the reporter.
#[derive(Debug, Clone)]
pub struct StatusHandle {
    mailbox: Mailbox<StatusReporterActor>,
}

impl StatusReporterActor {
    /// Starts the actor.
    #[must_use]
    pub fn start(wards: &Wards, xds: XdsState) -> StatusHandle {
        let vitals = wards.admit("status-reporter");
        let queue = vitals.queue();
        let address = Supervisor::start(move |_| Self { xds, core: Reporter::default(), vitals });
        StatusHandle { mailbox: Mailbox::new(address, queue) }
    }

    fn look(&mut self, context: &mut Context<Self>) {
        if self.vitals.is_down() {
            return;
        }
        let (core, xds) = (&mut self.core, &self.xds);
        self.vitals.guard(context, || look(core, xds));
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
}
