//! The supervised actor of one source: owns its task, restarts it when it fails, ends or goes silent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Supervised, Supervisor, WrapFuture,
};
use tokio::task::JoinHandle;

use super::{Source, SourcePort, SourceState};
use crate::runtime::{ActorHealth, Mailbox, Panicked, catch_task};

/// A run that lasts this long has recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(30);

/// The task of a run has ended, with the reason.
#[derive(Message)]
#[rtype(result = "()")]
struct SourceEnded {
    run: u64,
    reason: String,
}

/// Ends the run and begins a new one.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Restart;

/// Requests a full snapshot: the receiver lost its state.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Resync;

/// Confirms the mass deletion that is held.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct ConfirmDeletion;

/// The actor of one source. Its task dies with it and begins anew with it; its address lives on.
pub struct SourceActor {
    source: Arc<dyn Source>,
    port: SourcePort,
    actor_health: ActorHealth,
    silence: Duration,
    run: u64,
    began: Instant,
    task: Option<JoinHandle<()>>,
}

impl SourceActor {
    /// Starts the actor. A run that gives no sign of life for `silence` is restarted.
    #[must_use]
    pub fn start(
        source: Arc<dyn Source>,
        port: SourcePort,
        actor_health: ActorHealth,
        silence: Duration,
    ) -> Mailbox<Self> {
        let queue = actor_health.queue();
        let actor = Self { source, port, actor_health, silence, run: 0, began: Instant::now(), task: None };
        Mailbox::new(Supervisor::start(|_| actor), queue)
    }

    fn begin(&mut self, mailbox: Mailbox<Self>) {
        self.run += 1;
        self.began = Instant::now();
        self.port.board.beat();
        let (run, stop) = (self.run, self.port.stop.clone());
        let (source, port) = (self.source.clone(), self.port.clone());
        self.task = Some(tokio::spawn(async move {
            let reason = match catch_task(async move { source.run(port).await }).await {
                Ok(Ok(())) => "it ended".to_string(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(panicked) => panicked.to_string(),
            };
            if !stop.is_cancelled() {
                mailbox.tell(SourceEnded { run, reason });
            }
        }));
    }

    fn fail(&mut self, context: &mut Context<Self>, reason: String) {
        self.port.board.write(|r| {
            // A source that never delivered has no content that could be old: it is not ready.
            if r.state != SourceState::Starting {
                r.state = SourceState::Stale;
            }
            r.last_error.clone_from(&reason);
        });
        self.actor_health.fault(context, &Panicked(reason));
    }

    /// Looks again and again until the source is stopped: an actor with a timer would outlive its last handle.
    fn watch_over(&self, context: &mut Context<Self>) {
        let (stop, pause) = (self.port.stop.clone(), self.silence / 4);
        let wait = async move { stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() };
        context.spawn(wait.into_actor(self).map(|goes_on, actor, context| {
            if goes_on {
                actor.look_after(context);
                actor.watch_over(context);
            }
        }));
    }

    fn look_after(&mut self, context: &mut Context<Self>) {
        if self.port.stop.is_cancelled() || self.actor_health.is_down() {
            return;
        }
        let silence = self.port.board.silence();
        if silence > self.silence {
            self.fail(context, format!("no sign of life for {} s", silence.as_secs()));
        } else if self.began.elapsed() > RECOVERED_AFTER {
            self.actor_health.recovered();
        }
    }
}

impl Actor for SourceActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.watch_over(context);
        if self.actor_health.is_down() {
            self.actor_health.started(context, |actor: &mut Self, context| {
                actor.actor_health.up();
                actor.begin(actor.actor_health.mailbox(context));
            });
        } else {
            self.begin(self.actor_health.mailbox(context));
        }
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Supervised for SourceActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.port.board.write(|r| r.restarts += 1);
        self.actor_health.restarting();
    }
}

impl Handler<SourceEnded> for SourceActor {
    type Result = ();

    fn handle(&mut self, ended: SourceEnded, context: &mut Self::Context) {
        self.actor_health.take_up();
        if ended.run == self.run {
            self.fail(context, ended.reason);
        }
    }
}

impl Handler<Restart> for SourceActor {
    type Result = ();

    fn handle(&mut self, _: Restart, context: &mut Self::Context) {
        if self.actor_health.guard(context, || ()).is_some() {
            context.stop();
        }
    }
}

impl Handler<Resync> for SourceActor {
    type Result = ();

    fn handle(&mut self, _: Resync, context: &mut Self::Context) {
        let resync = &self.port.resync;
        self.actor_health.guard(context, || resync.notify_one());
    }
}

impl Handler<ConfirmDeletion> for SourceActor {
    type Result = ();

    fn handle(&mut self, _: ConfirmDeletion, context: &mut Self::Context) {
        let confirm = &self.port.confirm;
        self.actor_health.guard(context, || confirm.notify_one());
    }
}

#[cfg(test)]
mod tests;
