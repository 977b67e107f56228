//! The actor that owns the registry: events in, a published snapshot and the xDS updates out.
//!
//! After a fault the registry is built anew from the store's published snapshot, and until then the last good one stays.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Message, Supervised, Supervisor};
use futures::{FutureExt, future::BoxFuture};
use metrics::{counter, gauge};
use tokio::sync::watch;

use super::{ServiceEntryStore, XdsUpdate, push_of, quarantine::Quarantine};
use crate::{
    model::{
        ConfigEvent, ConfigSnapshot, EventKind, Features, Interrupted, Mesh, PushRequest, Reason, RegistryPort,
        RegistrySnapshot, XdsUpdater,
    },
    runtime::{ActorHealth, Mailbox, Supervision},
};

/// Takes events in.
#[derive(Message)]
#[rtype(result = "()")]
struct Operate(Arc<[ConfigEvent]>);

/// Takes new mesh settings in.
#[derive(Message)]
#[rtype(result = "()")]
struct SetMesh(Arc<Mesh>);

/// Initial inputs of the registry and the receivers of its events.
pub struct RegistrySetup {
    /// Mesh settings.
    pub mesh: Arc<Mesh>,
    /// Feature flags.
    pub features: Arc<Features>,
    /// The objects that the store publishes.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// Where the registry is published.
    pub published: watch::Sender<Arc<RegistrySnapshot>>,
    /// Takes the updates.
    pub updater: Arc<dyn XdsUpdater>,
}

/// Owns the registry.
pub struct ServiceEntryStoreActor {
    setup: RegistrySetup,
    store: ServiceEntryStore,
    quarantine: Quarantine,
    actor_health: ActorHealth,
}

/// The handle of the registry: a mailbox for changes, and the published snapshot to read.
#[derive(Clone)]
pub struct RegistryHandle {
    mailbox: Mailbox<ServiceEntryStoreActor>,
    published: watch::Receiver<Arc<RegistrySnapshot>>,
}

impl ServiceEntryStoreActor {
    /// Starts the actor with an empty registry.
    #[must_use]
    pub fn start(supervision: &Supervision, setup: RegistrySetup) -> RegistryHandle {
        let actor_health = supervision.admit("service-entry-store");
        let (queue, published) = (actor_health.queue(), setup.published.subscribe());
        let store = ServiceEntryStore::new(setup.mesh.clone(), setup.features.clone());
        let quarantine = Quarantine::default();
        let address = Supervisor::start(move |_| Self { setup, store, quarantine, actor_health });
        RegistryHandle { mailbox: Mailbox::new(address, queue), published }
    }

    fn publish(&self, snapshot: RegistrySnapshot, updates: Vec<XdsUpdate>) {
        gauge!("pilot_services").set(snapshot.services.len() as f64);
        for update in &updates {
            if !matches!(update, XdsUpdate::Push(_) | XdsUpdate::ProxyUpdate { .. }) {
                counter!("pilot_inbound_updates", "type" => inbound(update)).increment(1);
            }
        }
        let push = push_of(&self.setup.published.borrow(), &snapshot, updates);
        self.setup.published.send_replace(Arc::new(snapshot));
        push.into_iter().for_each(|request| self.setup.updater.config_update(request));
    }

    /// Builds the registry from the snapshot that the store has published.
    fn rebuild(&mut self, context: &mut Context<Self>) {
        let configs = self.setup.configs.borrow().clone();
        match self.quarantine.rebuild(&self.setup.mesh, &self.setup.features, &configs) {
            Ok(mut store) => {
                let snapshot = store.snapshot();
                self.store = store;
                self.actor_health.recovered();
                self.publish(snapshot, vec![XdsUpdate::Push(PushRequest::everything(Reason::Global))]);
            }
            Err(panicked) => self.actor_health.fault(context, &panicked),
        }
    }
}

const fn inbound(update: &XdsUpdate) -> &'static str {
    match update {
        XdsUpdate::Service { event: EventKind::Delete, .. } => "svcdelete",
        XdsUpdate::Service { .. } => "svc",
        _ => "eds",
    }
}

impl Actor for ServiceEntryStoreActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, context| {
            actor.actor_health.up();
            actor.rebuild(context);
        });
    }
}

impl Supervised for ServiceEntryStoreActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        self.store = ServiceEntryStore::new(self.setup.mesh.clone(), self.setup.features.clone());
    }
}

impl Handler<Operate> for ServiceEntryStoreActor {
    type Result = ();

    /// Events that are not taken in because of a fault are in the store's snapshot, from which the registry is built anew.
    fn handle(&mut self, Operate(events): Operate, context: &mut Self::Context) {
        let (store, events) = (&mut self.store, self.quarantine.admit(&events));
        let done = self.actor_health.guard(context, || {
            let updates = store.apply_all(&events);
            (store.snapshot(), updates, store.is_outdated())
        });
        match done {
            Some((.., true)) => self.rebuild(context),
            Some((snapshot, updates, false)) => self.publish(snapshot, updates),
            None => {}
        }
    }
}

impl Handler<SetMesh> for ServiceEntryStoreActor {
    type Result = ();

    fn handle(&mut self, SetMesh(mesh): SetMesh, context: &mut Self::Context) {
        self.setup.mesh = mesh;
        if self.actor_health.guard(context, || ()).is_some() {
            self.rebuild(context);
        }
    }
}

impl RegistryHandle {
    /// The registry as last published.
    #[must_use]
    pub fn snapshot(&self) -> Arc<RegistrySnapshot> {
        self.published.borrow().clone()
    }

    /// Brings the registry to new mesh settings; the reply comes when it is there.
    ///
    /// # Errors
    /// [`Interrupted`] when the actor is gone.
    pub async fn set_mesh(&self, mesh: Arc<Mesh>) -> Result<(), Interrupted> {
        self.mailbox.send(SetMesh(mesh)).await.map_err(|_| Interrupted)
    }
}

impl RegistryPort for RegistryHandle {
    fn operate(&self, events: Arc<[ConfigEvent]>) -> BoxFuture<'static, Result<(), Interrupted>> {
        let mailbox = self.mailbox.clone();
        async move { mailbox.send(Operate(events)).await.map_err(|_| Interrupted) }.boxed()
    }
}
