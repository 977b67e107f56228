//! The actor that owns the table of connections and the debounce of pushes: clients that come and go, and requests to
//! push, in; contexts built off the actor threads and published.
//!
//! The actor is the only writer of the table; others read it. One request waits at most: later ones are merged into it. After a
//! fault the published context stays in force and everything is looked at again.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Instant,
};

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised, Supervisor};
use metrics::histogram;
use parking_lot::Mutex;

use super::{
    connection::Connection,
    generator::Generator,
    push_event::Stages,
    push_traces::PushTraces,
    state::{TableOwner, XdsState},
};
use crate::{
    model::{PushRequest, Reason, XdsUpdater},
    push::{Batch, Debounce, DebounceSettings, PushContext, context::PushInputs},
    runtime::{ActorHealth, Mailbox, Panicked, ReadyGuard, Supervision},
    xds::XdsOptions,
};

/// Something waits in the inbox.
#[derive(Message)]
#[rtype(result = "()")]
struct Look;

/// A push was built and published, or failed.
#[derive(Message)]
#[rtype(result = "()")]
struct Built(Result<(), Panicked>);

/// Reads the current inputs of a context.
pub type InputReader = Arc<dyn Fn() -> PushInputs + Send + Sync>;

/// Changes that wait to be taken up. Bounded by the number of clients.
#[derive(Debug, Default)]
struct Pending {
    request: Option<PushRequest>,
    connected: BTreeMap<u64, Arc<Connection>>,
    gone: Vec<u64>,
    /// The actor has been told of it, and has not taken it up: one message at most is under way.
    is_woken: bool,
}

/// Owns the debounce and the table of connections.
pub struct XdsServerActor {
    state: XdsState,
    inputs: InputReader,
    debounce: Debounce,
    settings: DebounceSettings,
    /// Held from the reading of inputs to the publication of their context, so that no older context follows.
    building: Arc<Mutex<()>>,
    inbox: Arc<Inbox>,
    timer: Option<SpawnHandle>,
    ready: Option<ReadyGuard>,
    actor_health: ActorHealth,
}

/// The queue of requests and of connections that came or went, which the actor takes up at once.
#[derive(Debug, Default)]
struct Inbox {
    pending: Mutex<Pending>,
    /// Set when the actor starts.
    mailbox: OnceLock<Mailbox<XdsServerActor>>,
}

impl Inbox {
    /// Adds a change, and wakes the actor unless it is woken already.
    fn put(&self, change: impl FnOnce(&mut Pending)) {
        let mut pending = self.pending.lock();
        change(&mut pending);
        if let Some(mailbox) = self.mailbox.get().filter(|_| !pending.is_woken) {
            pending.is_woken = true;
            mailbox.tell(Look);
        }
    }

    fn take(&self) -> Pending {
        std::mem::take(&mut *self.pending.lock())
    }
}

impl TableOwner for Inbox {
    fn connected(&self, connection: Arc<Connection>) {
        self.put(|pending| drop(pending.connected.insert(connection.number, connection)));
    }

    fn gone(&self, number: u64) {
        self.put(|pending| {
            if pending.connected.remove(&number).is_none() {
                pending.gone.push(number);
            }
        });
    }
}

/// A handle of the server: its state to read, and a place for requests to push.
#[derive(Clone)]
pub struct XdsServerHandle {
    inbox: Arc<Inbox>,
    state: XdsState,
}

impl XdsServerActor {
    /// Starts the actor, which serves the resources of this generator. `ready` is dropped when the first context is published; pushes are
    /// traced where there is a place for traces.
    #[must_use]
    pub fn start(
        supervision: &Supervision,
        generator: Arc<dyn Generator>,
        options: XdsOptions,
        inputs: InputReader,
        settings: DebounceSettings,
        ready: ReadyGuard,
        traces: Option<Arc<PushTraces>>,
    ) -> XdsServerHandle {
        let (actor_health, inbox) = (supervision.admit("xds-server"), Arc::new(Inbox::default()));
        let state = XdsState::with_owner(generator, options, Some(inbox.clone()), traces);
        let handle = XdsServerHandle { inbox: inbox.clone(), state: state.clone() };
        let (queue, shared) = (actor_health.queue(), inbox.clone());
        let address = Supervisor::start(move |_| Self {
            state,
            inputs,
            debounce: Debounce::new(settings),
            settings,
            building: Arc::default(),
            inbox: shared,
            timer: None,
            ready: Some(ready),
            actor_health,
        });
        // The handle has not been given away yet: the inbox is empty.
        let _ = inbox.mailbox.set(Mailbox::new(address, queue));
        handle
    }

    /// Builds the context that is due, and sets the timer for the next.
    fn proceed(&mut self, batch: Option<Batch>, context: &mut Context<Self>) {
        batch.into_iter().for_each(|batch| self.build(batch, context));
        if let Some(timer) = self.timer.take() {
            context.cancel_future(timer);
        }
        if let Some(at) = self.debounce.wake_at() {
            let pause = at.saturating_duration_since(Instant::now());
            self.timer = Some(context.run_later(pause, |actor, context| {
                actor.timer = None;
                let debounce = &mut actor.debounce;
                let batch = actor.actor_health.run(context, || debounce.wake(Instant::now())).flatten();
                actor.proceed(batch, context);
            }));
        }
    }

    fn build(&self, batch: Batch, context: &mut Context<Self>) {
        let (state, inputs, mailbox) = (self.state.clone(), self.inputs.clone(), self.actor_health.mailbox(context));
        let gathered = Some((Instant::now(), batch.events));
        let (building, apart) = (self.building.clone(), self.actor_health.apart());
        histogram!("pilot_debounce_time").record(batch.waited.as_secs_f64());
        tokio::task::spawn_blocking(move || {
            let exclusive = batch.exclusive;
            let _one = building.lock();
            let built = apart.run(|| publish(&state, inputs(), &batch.request, gathered));
            if exclusive || built.is_err() {
                mailbox.tell(Built(built));
            }
        });
    }
}

/// Builds the context of these inputs after the published one, and publishes it. `gathered` is the end of the debounce, with the
/// number of events that it merged.
pub(super) fn publish(state: &XdsState, inputs: PushInputs, request: &PushRequest, gathered: Option<(Instant, u32)>) {
    let began = Instant::now();
    let mut request = request.clone();
    let context = match state.current() {
        Some(before) => {
            let context = before.context.next(inputs);
            request.keys.extend(context.changes_since(&before.context).translated_keys());
            context
        }
        None => PushContext::build(inputs),
    };
    let ended = Instant::now();
    histogram!("pilot_pushcontext_init_seconds").record(ended.saturating_duration_since(began).as_secs_f64());
    state.publish_after(Arc::new(context), &request, Some(Stages { gathered, context: (began, ended) }));
}

impl Actor for XdsServerActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, context| {
            actor.actor_health.up();
            let everything = PushRequest::everything(Reason::Global);
            let batch = actor.debounce.event(Instant::now(), everything);
            actor.proceed(batch, context);
        });
    }
}

impl Supervised for XdsServerActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        self.debounce = Debounce::new(self.settings);
        self.timer = None;
    }
}

impl Handler<Look> for XdsServerActor {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let Pending { request, connected, gone, .. } = self.inbox.take();
        // Also while the actor recovers from a fault: clients are served from the context in force.
        connected.values().for_each(|connection| self.state.enter(connection));
        gone.iter().for_each(|number| self.state.leave(*number));
        let debounce = &mut self.debounce;
        let batch =
            self.actor_health.guard(context, || request.and_then(|request| debounce.event(Instant::now(), request)));
        if let Some(batch) = batch {
            self.proceed(batch, context);
        }
    }
}

impl Handler<Built> for XdsServerActor {
    type Result = ();

    fn handle(&mut self, Built(built): Built, context: &mut Self::Context) {
        let debounce = &mut self.debounce;
        let finished = self.actor_health.guard(context, || debounce.finished(Instant::now()));
        match (built, finished) {
            (Err(panicked), Some(_)) => self.actor_health.fault(context, &panicked),
            (Ok(()), Some(batch)) => {
                self.actor_health.recovered();
                self.ready = None;
                self.proceed(batch, context);
            }
            (_, None) => {}
        }
    }
}

impl XdsUpdater for XdsServerHandle {
    fn config_update(&self, request: PushRequest) {
        self.inbox.put(|pending| match &mut pending.request {
            Some(waiting) => waiting.merge(request),
            None => pending.request = Some(request),
        });
    }
}

impl XdsServerHandle {
    /// The state of the server, to read.
    #[must_use]
    pub const fn state(&self) -> &XdsState {
        &self.state
    }
}
