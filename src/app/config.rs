//! The store, the handlers and the registry, on a thread of their own.

use std::sync::Arc;

use actix::Arbiter;
use tokio::sync::{oneshot, watch};

use super::{Error, inputs::Publishers, process::Process};
use crate::{
    handlers::{
        ConfigHandler, Decide, HandlerActor, ObjectHandler, ServiceEntryHandler, ServiceHandler, WorkloadEntryHandler,
        WorkloadInstanceHandler,
    },
    model::{RegistryPort, XdsUpdater},
    registry::{RegistryHandle, RegistrySetup, ServiceEntryStoreActor},
    runtime::Supervision,
    sources::SourceId,
    store::{AggregateCacheActor, EventHandler, StoreHandle},
};

/// The config cache and the registry.
pub(super) struct ConfigRooms {
    pub(super) thread: Arbiter,
    pub(super) store: StoreHandle,
    pub(super) registry: RegistryHandle,
    /// The number of full resyncs that the store has requested of every source.
    pub(super) resyncs: watch::Receiver<u64>,
}

/// Starts the store, the handlers and the registry. `order` is the precedence of the sources. The order of the handlers is the
/// order of delivery of each change: the registry has a service before a push of its dependents is requested.
pub(super) async fn start(
    process: &Process,
    publishers: Publishers,
    order: Vec<SourceId>,
    updater: Arc<dyn XdsUpdater>,
) -> Result<ConfigRooms, Error> {
    let thread = Arbiter::new();
    let (supervision, inputs) = (process.supervision.clone(), process.inputs.clone());
    let resync = watch::Sender::new(0);
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
        let registry = ServiceEntryStoreActor::start(&supervision, setup);
        let port: Arc<dyn RegistryPort> = Arc::new(registry.clone());
        let handlers = vec![
            handler(&supervision, ServiceHandler, &port, &updater),
            handler(&supervision, WorkloadInstanceHandler, &port, &updater),
            handler(&supervision, WorkloadEntryHandler, &port, &updater),
            handler(&supervision, ServiceEntryHandler, &port, &updater),
            handler(&supervision, ConfigHandler, &port, &updater),
            handler(&supervision, ObjectHandler, &port, &updater),
        ];
        let ask = Arc::new(move || resync.send_modify(|asked| *asked += 1));
        let store = AggregateCacheActor::start(&supervision, order, publishers.configs, handlers, ask);
        let _ = answer.send((store, registry));
    });
    let (store, registry) = started.await.map_err(|_| Error::Arbiter)?;
    Ok(ConfigRooms { thread, store, registry, resyncs })
}

fn handler<D: Decide>(
    supervision: &Supervision,
    decide: D,
    registry: &Arc<dyn RegistryPort>,
    updater: &Arc<dyn XdsUpdater>,
) -> Arc<dyn EventHandler> {
    Arc::new(HandlerActor::start(supervision, decide, registry.clone(), updater.clone()))
}
