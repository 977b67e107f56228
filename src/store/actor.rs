//! The actor that owns the aggregate: batches in, events out to the handlers in the order of their registration.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use actix::{
    Actor, ActorFutureExt, ActorTryFutureExt, AsyncContext, AtomicResponse, Context, Handler, Message, MessageResult,
    Supervised, Supervisor, WrapFuture, fut,
};
use futures::{FutureExt, future::BoxFuture};
use tokio::sync::watch;

use super::{Aggregate, Shadowed};
use crate::{
    model::{Config, ConfigEvent, ConfigSnapshot, EventKind, Interrupted, Kind},
    runtime::{ActorHealth, Mailbox, Supervision},
    sources::{Applied, ConfigSink, SourceBatch, SourceId},
};

/// A failed handler is tried again after this time, for ever (Istio's config queue).
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a handler could not take events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandlerError(pub String);

/// Takes events of some kinds. Called with one batch at a time, in order; a batch that fails comes again later.
pub trait EventHandler: Send + Sync + 'static {
    /// Its name, for logs.
    fn name(&self) -> &str;

    /// Whether it wants events of this kind.
    fn wants(&self, kind: Kind) -> bool;

    /// Takes events, by key.
    fn handle(&self, events: Arc<[ConfigEvent]>) -> BoxFuture<'static, Result<(), HandlerError>>;
}

/// Takes in a batch of a source.
#[derive(Message)]
#[rtype(result = "Result<Applied, Interrupted>")]
struct Apply(SourceBatch);

/// Requests the objects that precedence hides.
#[derive(Message)]
#[rtype(result = "Vec<Shadowed>")]
struct AskShadowed;

/// Takes in the old content of a source that has not delivered yet.
#[derive(Message)]
#[rtype(result = "bool")]
struct Seed(SourceId, Vec<Arc<Config>>);

/// Adds a source.
#[derive(Message)]
#[rtype(result = "Result<(), Interrupted>")]
struct AddSource(SourceId);

/// Forgets a source with everything that it holds.
#[derive(Message)]
#[rtype(result = "Result<(), Interrupted>")]
struct RemoveSource(SourceId);

/// Requests the objects of a source.
#[derive(Message)]
#[rtype(result = "Option<Vec<Arc<Config>>>")]
struct AskContent(SourceId);

/// Asks which sources have not delivered yet.
#[derive(Message)]
#[rtype(result = "BTreeSet<SourceId>")]
struct AskUndelivered;

/// Tells a handler events that it failed to take.
#[derive(Message)]
#[rtype(result = "()")]
struct Retry(usize, Arc<[ConfigEvent]>);

/// Owns the aggregate.
pub struct AggregateCacheActor {
    order: Vec<SourceId>,
    aggregate: Aggregate,
    handlers: Arc<[Arc<dyn EventHandler>]>,
    published: watch::Sender<Arc<ConfigSnapshot>>,
    resync: Arc<dyn Fn() + Send + Sync>,
    actor_health: ActorHealth,
}

/// The handle of the store: a mailbox for changes, and the published snapshot to read.
#[derive(Clone)]
pub struct StoreHandle {
    mailbox: Mailbox<AggregateCacheActor>,
    published: watch::Receiver<Arc<ConfigSnapshot>>,
}

impl AggregateCacheActor {
    /// Starts the actor. `order` is the precedence; the effective objects are published to `published`; `resync` asks all sources
    /// to send everything again.
    #[must_use]
    pub fn start(
        supervision: &Supervision,
        order: Vec<SourceId>,
        published: watch::Sender<Arc<ConfigSnapshot>>,
        handlers: Vec<Arc<dyn EventHandler>>,
        resync: Arc<dyn Fn() + Send + Sync>,
    ) -> StoreHandle {
        let actor_health = supervision.admit("aggregate-cache");
        let queue = actor_health.queue();
        // Nothing is published before every source has spoken, or proxies that reconnect would lose the objects still to come.
        let aggregate = Aggregate::recovering(&order, &published.borrow());
        let (handlers, reader) = (handlers.into(), published.subscribe());
        let address = Supervisor::start(move |_| Self { order, aggregate, handlers, published, resync, actor_health });
        StoreHandle { mailbox: Mailbox::new(address, queue), published: reader }
    }

    /// Publishes the snapshot, then tells the handlers; those that fail are told again later.
    fn tell(&self, events: Vec<ConfigEvent>) -> impl actix::ActorFuture<Self, Output = ()> + 'static {
        if !events.is_empty() {
            self.published.send_replace(Arc::new(self.aggregate.snapshot()));
            count(&events);
        }
        let (handlers, events): (_, Arc<[ConfigEvent]>) = (self.handlers.clone(), events.into());
        async move {
            let mut failed = Vec::new();
            for (index, handler) in handlers.iter().enumerate() {
                let wanted = wanted(handler.as_ref(), &events);
                if !wanted.is_empty() && !run(handler.as_ref(), wanted.clone()).await {
                    failed.push((index, wanted));
                }
            }
            failed
        }
        .into_actor(self)
        .map(|failed, _, context: &mut Context<Self>| {
            for (index, events) in failed {
                context.notify_later(Retry(index, events), RETRY_AFTER);
            }
        })
    }
}

/// Counts changes under Istio's name; those of the registry's kinds have a metric of their own.
fn count(events: &[ConfigEvent]) {
    let of_registry = |kind: Kind| matches!(kind, Kind::Service | Kind::Pod | Kind::Node | Kind::EndpointSlice);
    for event in events.iter().filter(|e| !of_registry(e.current.kind())) {
        let what = match event.kind {
            EventKind::Add => "add",
            EventKind::Update => "update",
            EventKind::Delete => "delete",
        };
        metrics::counter!("pilot_k8s_cfg_events", "type" => event.current.kind().as_str(), "event" => what)
            .increment(1);
    }
}

fn wanted(handler: &dyn EventHandler, events: &Arc<[ConfigEvent]>) -> Arc<[ConfigEvent]> {
    let kinds: BTreeSet<Kind> = events.iter().map(|e| e.current.kind()).collect();
    if kinds.iter().all(|k| handler.wants(*k)) {
        return events.clone();
    }
    events.iter().filter(|e| handler.wants(e.current.kind())).cloned().collect()
}

async fn run(handler: &dyn EventHandler, events: Arc<[ConfigEvent]>) -> bool {
    match handler.handle(events).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(handler = handler.name(), %error, "handler failed, trying again");
            false
        }
    }
}

impl Actor for AggregateCacheActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor, _| {
            actor.actor_health.up();
            (actor.resync)();
        });
    }
}

impl Supervised for AggregateCacheActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        let (late, waited): (Vec<_>, Vec<_>) = self.order.iter().cloned().partition(|s| self.aggregate.is_late(s));
        self.aggregate = Aggregate::recovering(&waited, &self.published.borrow());
        late.into_iter().for_each(|source| self.aggregate.add_source(source));
    }
}

impl Handler<Apply> for AggregateCacheActor {
    type Result = AtomicResponse<Self, Result<Applied, Interrupted>>;

    fn handle(&mut self, Apply(batch): Apply, context: &mut Self::Context) -> Self::Result {
        let aggregate = &mut self.aggregate;
        let Some(events) = self.actor_health.guard(context, || aggregate.apply(batch)) else {
            return AtomicResponse::new(Box::pin(fut::ready(Err(Interrupted))));
        };
        if self.aggregate.missing().is_empty() {
            self.actor_health.recovered();
        }
        let changes = events.len();
        AtomicResponse::new(Box::pin(self.tell(events).map(move |(), _, _| Ok(Applied { changes }))))
    }
}

impl Handler<Retry> for AggregateCacheActor {
    type Result = ();

    fn handle(&mut self, Retry(index, events): Retry, context: &mut Self::Context) {
        let Some(handler) = self.handlers.get(index).cloned() else { return };
        let events: Arc<[ConfigEvent]> = events.iter().map(|e| self.aggregate.overtaken(e)).collect();
        let told = async move { if run(handler.as_ref(), events.clone()).await { Ok(()) } else { Err(events) } };
        context.wait(
            told.into_actor(self)
                .map_err(move |events, _, context| {
                    context.notify_later(Retry(index, events), RETRY_AFTER);
                })
                .map(|_, _, _| ()),
        );
    }
}

impl Handler<AskShadowed> for AggregateCacheActor {
    type Result = Vec<Shadowed>;

    fn handle(&mut self, _: AskShadowed, context: &mut Self::Context) -> Self::Result {
        let aggregate = &self.aggregate;
        self.actor_health.guard(context, || aggregate.shadowed()).unwrap_or_default()
    }
}

impl Handler<Seed> for AggregateCacheActor {
    type Result = AtomicResponse<Self, bool>;

    fn handle(&mut self, Seed(source, configs): Seed, context: &mut Self::Context) -> Self::Result {
        let aggregate = &mut self.aggregate;
        let Some(Some(events)) = self.actor_health.guard(context, || aggregate.seed(source, configs)) else {
            return AtomicResponse::new(Box::pin(fut::ready(false)));
        };
        AtomicResponse::new(Box::pin(self.tell(events).map(|(), _, _| true)))
    }
}

impl Handler<AddSource> for AggregateCacheActor {
    type Result = Result<(), Interrupted>;

    fn handle(&mut self, AddSource(source): AddSource, context: &mut Self::Context) -> Self::Result {
        if !self.order.contains(&source) {
            self.order.push(source.clone());
        }
        let aggregate = &mut self.aggregate;
        self.actor_health.guard(context, || aggregate.add_source(source)).ok_or(Interrupted)
    }
}

impl Handler<RemoveSource> for AggregateCacheActor {
    type Result = AtomicResponse<Self, Result<(), Interrupted>>;

    fn handle(&mut self, RemoveSource(source): RemoveSource, context: &mut Self::Context) -> Self::Result {
        self.order.retain(|known| *known != source);
        let aggregate = &mut self.aggregate;
        let Some(events) = self.actor_health.guard(context, || aggregate.remove_source(&source)) else {
            return AtomicResponse::new(Box::pin(fut::ready(Err(Interrupted))));
        };
        AtomicResponse::new(Box::pin(self.tell(events).map(|(), _, _| Ok(()))))
    }
}

impl Handler<AskContent> for AggregateCacheActor {
    type Result = Option<Vec<Arc<Config>>>;

    fn handle(&mut self, AskContent(source): AskContent, context: &mut Self::Context) -> Self::Result {
        let aggregate = &self.aggregate;
        self.actor_health.guard(context, || aggregate.content(&source)).flatten()
    }
}

impl Handler<AskUndelivered> for AggregateCacheActor {
    type Result = MessageResult<AskUndelivered>;

    fn handle(&mut self, _: AskUndelivered, _: &mut Self::Context) -> Self::Result {
        self.actor_health.take_up();
        MessageResult(self.aggregate.undelivered())
    }
}

impl StoreHandle {
    /// Puts old content of a source in force, unless the source has delivered. Whether it was taken.
    pub async fn seed(&self, source: SourceId, configs: Vec<Arc<Config>>) -> bool {
        self.mailbox.send(Seed(source, configs)).await.unwrap_or_default()
    }

    /// Adds a source with the lowest precedence; nothing waits for its content.
    ///
    /// # Errors
    /// [`Interrupted`] when the store restarts; the call has to be repeated.
    pub async fn add_source(&self, source: SourceId) -> Result<(), Interrupted> {
        self.mailbox.send(AddSource(source)).await.map_err(|_| Interrupted)?
    }

    /// Forgets a source with all its objects.
    ///
    /// # Errors
    /// [`Interrupted`] when the store restarts; the call has to be repeated.
    pub async fn remove_source(&self, source: SourceId) -> Result<(), Interrupted> {
        self.mailbox.send(RemoveSource(source)).await.map_err(|_| Interrupted)?
    }

    /// The objects of a source; `None` for a source that is unknown or has not delivered since the store began.
    pub async fn content(&self, source: &SourceId) -> Option<Vec<Arc<Config>>> {
        self.mailbox.send(AskContent(source.clone())).await.ok().flatten()
    }

    /// Sources that have not delivered since the store began.
    pub async fn undelivered(&self) -> BTreeSet<SourceId> {
        self.mailbox.send(AskUndelivered).await.unwrap_or_default()
    }

    /// The effective objects as last published.
    #[must_use]
    pub fn snapshot(&self) -> Arc<ConfigSnapshot> {
        self.published.borrow().clone()
    }

    /// Objects that are hidden by another source's.
    pub async fn shadowed(&self) -> Vec<Shadowed> {
        self.mailbox.send(AskShadowed).await.unwrap_or_default()
    }
}

impl ConfigSink for StoreHandle {
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        let mailbox = self.mailbox.clone();
        async move { mailbox.send(Apply(batch)).await.map_err(|_| Interrupted)? }.boxed()
    }
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHandle").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}
