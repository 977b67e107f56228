//! The store, the handlers and the registry, on a thread of their own.

use std::sync::Arc;

use actix::Arbiter;
use tokio::sync::{oneshot, watch};

use super::{Error, Inputs, inputs::Publishers};
use crate::{
    handlers::{
        ConfigHandler, Decide, HandlerActor, ObjectHandler, ServiceEntryHandler, ServiceHandler, WorkloadEntryHandler,
        WorkloadInstanceHandler,
    },
    model::{RegistryPort, XdsUpdater},
    registry::{RegistryHandle, RegistrySetup, ServiceEntryStoreActor},
    runtime::Wards,
    sources::SourceId,
    store::{AggregateCacheActor, EventHandler, StoreHandle},
};

/// The config cache and the registry.
pub(super) struct ConfigRooms {
    pub(super) thread: Arbiter,
    pub(super) store: StoreHandle,
    pub(super) registry: RegistryHandle,
    /// Counts how often the store has asked every source to send everything again.
    pub(super) resyncs: watch::Receiver<u64>,
}

/// Starts the store, the handlers and the registry. `order` is the precedence of the sources. The order of the handlers is the
/// order in which each change is told: the registry knows of a service before a push of what refers to it is asked for.
pub(super) async fn start(
    wards: &Wards,
    inputs: &Arc<Inputs>,
    publishers: Publishers,
    order: Vec<SourceId>,
    updater: Arc<dyn XdsUpdater>,
) -> Result<ConfigRooms, Error> {
    let thread = Arbiter::new();
    let (wards, inputs, resync) = (wards.clone(), inputs.clone(), watch::Sender::new(0));
    let resyncs = resync.subscribe();
    let (answer, started) = oneshot::channel();
    thread.spawn_fn(move || {
        let setup = RegistrySetup {
            mesh: inputs.mesh(),
            features: inputs.features.clone(),
            configs: inputs.follow_configs(),
            published: publishers.registry,
            updater: updater.clone(),
        };
        let registry = ServiceEntryStoreActor::start(&wards, setup);
        let port: Arc<dyn RegistryPort> = Arc::new(registry.clone());
        let handlers = vec![
            handler(&wards, ServiceHandler, &port, &updater),
            handler(&wards, WorkloadInstanceHandler, &port, &updater),
            handler(&wards, WorkloadEntryHandler, &port, &updater),
            handler(&wards, ServiceEntryHandler, &port, &updater),
            handler(&wards, ConfigHandler, &port, &updater),
            handler(&wards, ObjectHandler, &port, &updater),
        ];
        let ask = Arc::new(move || resync.send_modify(|asked| *asked += 1));
        let store = AggregateCacheActor::start(&wards, order, publishers.configs, handlers, ask);
        let _ = answer.send((store, registry));
    });
    let (store, registry) = started.await.map_err(|_| Error::Arbiter)?;
    Ok(ConfigRooms { thread, store, registry, resyncs })
}

fn handler<D: Decide>(
    wards: &Wards,
    decide: D,
    registry: &Arc<dyn RegistryPort>,
    updater: &Arc<dyn XdsUpdater>,
) -> Arc<dyn EventHandler> {
    Arc::new(HandlerActor::start(wards, decide, registry.clone(), updater.clone()))
}
