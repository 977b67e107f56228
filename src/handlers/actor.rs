//! The actor around a handler's decision.

use std::sync::Arc;

use actix::{
    Actor, ActorFutureExt, AtomicResponse, Context, Handler, Message, Supervised, Supervisor, WrapFuture, fut,
};
use futures::{FutureExt, future::BoxFuture};

use super::Decide;
use crate::{
    model::{ConfigEvent, Kind, RegistryPort, XdsUpdater},
    runtime::{ActorHealth, Mailbox, Supervision},
    store::{EventHandler, HandlerError},
};

/// A batch of events for the handler. After an error the sender has to send them again.
#[derive(Message)]
#[rtype(result = "Result<(), HandlerError>")]
struct Take(Arc<[ConfigEvent]>);

/// The actor of one handler. For each batch it decides, updates the registry, and then requests the push.
pub struct HandlerActor<D: Decide> {
    decide: D,
    registry: Arc<dyn RegistryPort>,
    updater: Arc<dyn XdsUpdater>,
    actor_health: ActorHealth,
}

/// The store's end of a handler: sends events to the actor.
pub struct HandlerPort<D: Decide> {
    mailbox: Mailbox<HandlerActor<D>>,
}

impl<D: Decide> HandlerActor<D> {
    /// Starts the actor.
    pub fn start(
        supervision: &Supervision,
        decide: D,
        registry: Arc<dyn RegistryPort>,
        updater: Arc<dyn XdsUpdater>,
    ) -> HandlerPort<D> {
        let actor_health = supervision.admit(D::NAME);
        let queue = actor_health.queue();
        let address = Supervisor::start(move |_| Self { decide, registry, updater, actor_health });
        HandlerPort { mailbox: Mailbox::new(address, queue) }
    }
}

impl<D: Decide> Actor for HandlerActor<D> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| actor.actor_health.up());
    }
}

impl<D: Decide> Supervised for HandlerActor<D> {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
    }
}

impl<D: Decide> Handler<Take> for HandlerActor<D> {
    type Result = AtomicResponse<Self, Result<(), HandlerError>>;

    fn handle(&mut self, Take(events): Take, context: &mut Self::Context) -> Self::Result {
        let decide = &self.decide;
        let decided = self.actor_health.guard(context, || decide.decide(&events));
        let Some(decision) = decided else {
            let error = HandlerError(format!("{} was interrupted", D::NAME));
            return AtomicResponse::new(Box::pin(fut::ready(Err(error))));
        };
        let operation: BoxFuture<'static, _> = match decision.registry {
            true => self.registry.operate(events),
            false => async { Ok(()) }.boxed(),
        };
        AtomicResponse::new(Box::pin(operation.into_actor(self).map(move |done, actor, _| {
            done.map_err(|e| HandlerError(e.to_string()))?;
            actor.actor_health.recovered();
            decision.push.into_iter().for_each(|push| actor.updater.config_update(push));
            Ok(())
        })))
    }
}

impl<D: Decide> EventHandler for HandlerPort<D> {
    fn name(&self) -> &str {
        D::NAME
    }

    fn wants(&self, kind: Kind) -> bool {
        D::wants(kind)
    }

    fn handle(&self, events: Arc<[ConfigEvent]>) -> BoxFuture<'static, Result<(), HandlerError>> {
        let mailbox = self.mailbox.clone();
        async move { mailbox.send(Take(events)).await.unwrap_or_else(|e| Err(HandlerError(e.to_string()))) }.boxed()
    }
}

#[cfg(test)]
mod tests;
