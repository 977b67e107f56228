//! The actor that decides when a push is built: requests in, debounced; contexts built off the actor threads and published.
//!
//! One request waits at most: what comes while it waits is merged into it. After a fault the published context stays in
//! force and everything is looked at again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised, Supervisor};
use metrics::histogram;

use super::state::XdsState;
use crate::{
    model::{PushRequest, Reason, XdsUpdater},
    push::{Batch, Debounce, DebounceSettings, PushContext, context::PushInputs},
    runtime::{Mailbox, Panicked, ReadyGuard, Vitals, Wards},
};

/// Something waits in the inbox.
#[derive(Message)]
#[rtype(result = "()")]
struct Look;

/// A push was built and published, or failed.
#[derive(Message)]
#[rtype(result = "()")]
struct Built(Result<(), Panicked>);

/// Reads what a context is built from, as it stands.
pub type InputReader = Arc<dyn Fn() -> PushInputs + Send + Sync>;

/// What waits to be taken up.
type Inbox = Arc<Mutex<Option<PushRequest>>>;

/// Owns the debounce.
pub struct XdsServerActor {
    state: XdsState,
    inputs: InputReader,
    debounce: Debounce,
    settings: DebounceSettings,
    /// Held while inputs are read and what is built from them is published, so that nothing older follows.
    building: Arc<Mutex<()>>,
    inbox: Inbox,
    timer: Option<SpawnHandle>,
    ready: Option<ReadyGuard>,
    vitals: Vitals,
}

/// What others hold of the server: a place for requests to push.
#[derive(Clone)]
pub struct XdsServerHandle {
    mailbox: Mailbox<XdsServerActor>,
    inbox: Inbox,
}

impl XdsServerActor {
    /// Starts the actor. `ready` is dropped when the first context is published.
    #[must_use]
    pub fn start(
        wards: &Wards,
        state: XdsState,
        inputs: InputReader,
        settings: DebounceSettings,
        ready: ReadyGuard,
    ) -> XdsServerHandle {
        let (vitals, inbox) = (wards.admit("xds-server"), Inbox::default());
        let (queue, shared) = (vitals.queue(), inbox.clone());
        let address = Supervisor::start(move |_| Self {
            state,
            inputs,
            debounce: Debounce::new(settings),
            settings,
            building: Arc::default(),
            inbox: shared,
            timer: None,
            ready: Some(ready),
            vitals,
        });
        XdsServerHandle { mailbox: Mailbox::new(address, queue), inbox }
    }

    /// Builds what is due and sets the timer for what is not.
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
                let batch = actor.vitals.run(context, || debounce.wake(Instant::now())).flatten();
                actor.proceed(batch, context);
            }));
        }
    }

    fn build(&self, batch: Batch, context: &mut Context<Self>) {
        let (state, inputs, mailbox) = (self.state.clone(), self.inputs.clone(), self.vitals.mailbox(context));
        let (building, apart) = (self.building.clone(), self.vitals.apart());
        histogram!("pilot_debounce_time").record(batch.waited.as_secs_f64());
        tokio::task::spawn_blocking(move || {
            let exclusive = batch.exclusive;
            let _one = building.lock().unwrap_or_else(PoisonError::into_inner);
            let built = apart.run(|| publish(&state, inputs(), &batch.request));
            if exclusive || built.is_err() {
                mailbox.tell(Built(built));
            }
        });
    }
}

/// Builds the context of these inputs after the published one, and publishes it.
pub(super) fn publish(state: &XdsState, inputs: PushInputs, request: &PushRequest) {
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
    histogram!("pilot_pushcontext_init_seconds").record(began.elapsed().as_secs_f64());
    state.publish(Arc::new(context), &request);
}

impl Actor for XdsServerActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.vitals.started(context, |actor: &mut Self, context| {
            actor.vitals.up();
            let everything = PushRequest::everything(Reason::Global);
            let batch = actor.debounce.event(Instant::now(), everything);
            actor.proceed(batch, context);
        });
    }
}

impl Supervised for XdsServerActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.vitals.restarting();
        self.debounce = Debounce::new(self.settings);
        self.timer = None;
    }
}

impl Handler<Look> for XdsServerActor {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let request = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let debounce = &mut self.debounce;
        let batch = self.vitals.guard(context, || request.and_then(|request| debounce.event(Instant::now(), request)));
        if let Some(batch) = batch {
            self.proceed(batch, context);
        }
    }
}

impl Handler<Built> for XdsServerActor {
    type Result = ();

    fn handle(&mut self, Built(built): Built, context: &mut Self::Context) {
        let debounce = &mut self.debounce;
        let finished = self.vitals.guard(context, || debounce.finished(Instant::now()));
        match (built, finished) {
            (Err(panicked), Some(_)) => self.vitals.fault(context, &panicked),
            (Ok(()), Some(batch)) => {
                self.vitals.recovered();
                self.ready = None;
                self.proceed(batch, context);
            }
            (_, None) => {}
        }
    }
}

impl XdsUpdater for XdsServerHandle {
    fn config_update(&self, request: PushRequest) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *inbox {
            Some(waiting) => waiting.merge(request),
            None => {
                *inbox = Some(request);
                self.mailbox.tell(Look);
            }
        }
    }
}
