//! The composition root: every room is started and joined to the next here, a line or two each, in the order of the flow.
//!
//! Start-up is bottom up, so that nobody speaks into the void; the end is top down. Only this room, `cli` and tests know
//! all the others.

mod inputs;
mod last_good;
mod limits;
mod registration;
mod remotes;
mod running;
mod sources;
mod status;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use actix::Arbiter;
use tokio::{
    net::TcpListener,
    sync::{Mutex, oneshot},
};

pub use inputs::Inputs;
use remotes::Remotes;
pub use running::{Addresses, Running};

use crate::{
    admin::{AdminState, Building, PagesOverXds},
    discovery::{MeshGenerator, XdsServerActor, XdsState},
    handlers::{
        ConfigHandler, Decide, HandlerActor, ObjectHandler, ServiceEntryHandler, ServiceHandler, WorkloadEntryHandler,
        WorkloadInstanceHandler,
    },
    model::{PushRequest, Reason, RegistryPort, XdsUpdater},
    push::DebounceSettings,
    registry::{RegistryHandle, RegistrySetup, ServiceEntryStoreActor},
    runtime::{Readiness, RestartBudget, Shutdown, Wards},
    settings::{ListenAddress, Settings},
    sources::{Source, SourceId, SourceList, kube::Cluster, read_mesh},
    status::{ReportBoard, StatusReporterActor},
    store::{AggregateCacheActor, EventHandler, StoreHandle},
    telemetry::{Metrics, SetupError},
    xds::XdsOptions,
};

/// Why the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address as it was given.
        address: ListenAddress,
        /// Why.
        error: std::io::Error,
    },
    /// The mesh settings cannot be read.
    #[error("{0}")]
    Mesh(String),
    /// A source that is named does not exist or is not of a kind that we read.
    #[error("{0}")]
    Source(String),
    /// The folder for the last good content cannot be had.
    #[error("--state-dir {0}")]
    State(String),
    /// An arbiter did not start.
    #[error("the config thread did not start")]
    Arbiter,
    /// The system refuses something that the servers need.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The recorder of metrics cannot be installed.
    #[error("{0}")]
    Metrics(#[from] SetupError),
}

/// Starts everything. Must run inside an actix `System` whose runtime has worker threads; `shutdown` ends it.
///
/// # Errors
/// [`Error`]; what was started by then ends with `shutdown`.
pub async fn build(settings: Settings, shutdown: Shutdown) -> Result<Running, Error> {
    build_with(settings, Vec::new(), shutdown).await
}

/// As [`build`], with sources of the caller's after those that the settings name.
///
/// # Errors
/// As [`build`].
pub async fn build_with(settings: Settings, more: Vec<Arc<dyn Source>>, shutdown: Shutdown) -> Result<Running, Error> {
    let Settings { sources, state: kept, mesh, xds, registration: registering, admin, runtime, features } = settings;
    let readiness = Readiness::default();
    let budget = RestartBudget::new(runtime.max_restarts_per_minute, shutdown.clone());
    let wards = Wards::new(budget, runtime.first_pause, runtime.longest_pause);

    let grpc = bind(&xds.grpc_address).await?;
    let mut pages = Vec::new();
    for address in std::iter::once(&admin.http_address).chain(&admin.monitoring_address) {
        pages.push(bind(address).await?.into_std()?);
    }
    let addresses = Addresses::of(&grpc, &pages)?;

    let settings_in_force = Arc::new(read_mesh(&mesh, sources.max_file_bytes).map_err(Error::Mesh)?);
    let inputs = Arc::new(Inputs::new(settings_in_force, Arc::new(features)));
    let cluster = sources.kubernetes.clone().map(|k| Cluster::new(&mesh.cluster_id, k, inputs.follow_mesh()));
    sources::check_files(&inputs.mesh(), &sources, kept.folder.is_some()).await?;
    let mesh_is_known = match &cluster {
        Some(cluster) => sources::mesh_of_cluster(cluster, &mesh, &kept, &inputs).await,
        None => true,
    };
    let mut named = sources::named(&inputs, &mesh, &sources, cluster.as_ref(), kept.folder.is_some())?;
    named.extend(more);
    let me = status::identity();
    let (entries, entries_folder) = registration::open(&kept, &me)?;
    named.push(Arc::new(entries.clone()));

    let state = XdsState::new(
        Arc::<MeshGenerator>::default(),
        XdsOptions {
            drain: runtime.shutdown / 4,
            // Plain text proves nothing.
            trust_nodes: grpc.local_addr()?.ip().is_loopback(),
            secrets_by_node: xds.loopback_secrets.unwrap_or_else(|| sources::secrets_are_of_folders(&sources)),
            cluster_aliases: mesh
                .cluster_aliases
                .iter()
                .map(|a| (a.alias.clone(), a.cluster.as_str().into()))
                .collect(),
            ..limits::options(&inputs.features, &xds)
        },
    );
    let debounce = DebounceSettings::of(&inputs.features, |name| std::env::var_os(name).is_some());
    let xds_server =
        XdsServerActor::start(&wards, state.clone(), inputs.reader(), debounce, readiness.guard("first push"));

    let order: Vec<SourceId> = named.iter().map(|s| s.id()).collect();
    let resync = Arc::new(sources::ResyncAll::default());
    let updater: Arc<dyn XdsUpdater> = Arc::new(xds_server.clone());
    let config_thread = Arbiter::new();
    let (store, registry) = start_config(&config_thread, &wards, &inputs, order, resync.clone(), updater).await?;

    let keeper = last_good::open(&kept, &store)?;
    let board = ReportBoard::default();
    registration::start(
        &me,
        (&store, &state),
        (&inputs, &wards),
        entries.clone(),
        (cluster.as_ref(), &board),
        &registering,
    );
    let sinks = sources::Sinks {
        configs: last_good::sink(keeper.as_ref(), &store),
        direct: Arc::new(store.clone()),
        registry: registry.clone(),
        inputs: inputs.clone(),
        xds: xds_server.clone(),
    };
    let writes_to = cluster.clone();
    let starter = sources::Starter {
        configs: sinks.configs.clone(),
        direct: sinks.direct.clone(),
        wards: wards.clone(),
        silence: sources.silence.max(sources.rescan * 3),
    };
    let (flagged, deletion_hold) = (sources.remote_clusters.clone(), sources.deletion_hold);
    let found = (sources.remotes.clone(), sources.kubernetes.as_ref().map(|k| k.revision.clone()).unwrap_or_default());
    let started =
        sources::start(named, (mesh, sources), (cluster, mesh_is_known), &sinks, &starter, &shutdown, &readiness);
    let (writing, candidate) =
        status::stand(writes_to.as_ref(), &me, (&store, &xds_server, &board), &inputs.features, &shutdown).unzip();
    let keeping = [
        last_good::start(keeper.clone(), &started.kept, &kept, &shutdown),
        registration::keep(entries, entries_folder, &shutdown),
    ];
    let list = SourceList::default();
    list.add(&started.handles);
    resync.set(list.clone(), keeper.clone());
    let remotes = Arc::new(Remotes {
        starter,
        thread: Arbiter::current(),
        store: store.clone(),
        keeper: keeper.map(|keeper| (keeper, kept.grace)),
        list: list.clone(),
        mesh: inputs.follow_mesh(),
        settings: found.0,
        revision: found.1,
        deletion_hold,
        shutdown: shutdown.clone(),
        of_secrets: Mutex::default(),
        began: AtomicBool::new(false),
    });
    let remotes_synced = remotes.begin(&flagged, writes_to, &readiness).await;
    let synced = started.synced;
    let asked = xds_server.clone();
    tokio::spawn(async move {
        // Even nothing is something to publish: a mesh without objects has proxies too.
        tokio::join!(synced, remotes_synced);
        xds_server.config_update(PushRequest::everything(Reason::Global));
    });

    let grpc_server = tokio::spawn(crate::discovery::serve(grpc, state.clone(), shutdown.child()));
    let shown = AdminState {
        xds: state.clone(),
        store: store.clone(),
        sources: list.clone(),
        status: StatusReporterActor::start(&wards, state.clone(), writing),
        wards: wards.clone(),
        readiness: readiness.clone(),
        metrics: Metrics::install()?,
        building: Building::on(&tokio::runtime::Handle::current()),
        push: Arc::new(move || asked.config_update(PushRequest::everything(Reason::Debug))),
        open_debug: admin.open_debug,
        started: Instant::now(),
    };
    state.set_debug(Arc::new(PagesOverXds { state: shown.clone(), instance: status::instance(&me) }));
    let pages = crate::admin::serve(pages, shown).map_err(Error::System)?;
    actix::spawn(pages.server);
    Ok(Running {
        addresses,
        readiness,
        shutdown,
        drain: runtime.shutdown,
        wards,
        state,
        store,
        registry,
        inputs,
        sources: started.handles,
        all_sources: list,
        tasks: running::Tasks {
            grpc_server,
            pages: pages.handle,
            keeping: keeping.into_iter().flatten().collect(),
            candidate,
            config_thread,
        },
    })
}

async fn bind(address: &ListenAddress) -> Result<TcpListener, Error> {
    crate::xds::listen(address.as_str()).await.map_err(|error| Error::Bind { address: address.clone(), error })
}

/// Starts the store, the handlers and the registry on the config thread. The order of the handlers is the order in which
/// each change is told: the registry knows of a service before a push of what refers to it is asked for.
async fn start_config(
    thread: &Arbiter,
    wards: &Wards,
    inputs: &Arc<Inputs>,
    order: Vec<SourceId>,
    resync: Arc<sources::ResyncAll>,
    updater: Arc<dyn XdsUpdater>,
) -> Result<(StoreHandle, RegistryHandle), Error> {
    let (wards, inputs) = (wards.clone(), inputs.clone());
    let (answer, started) = oneshot::channel();
    thread.spawn_fn(move || {
        let setup = RegistrySetup {
            mesh: inputs.mesh(),
            features: inputs.features.clone(),
            configs: inputs.config_reader(),
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
        let store = AggregateCacheActor::start(&wards, order, None, handlers, Arc::new(move || resync.ask()));
        inputs.join(store.clone(), registry.clone());
        let _ = answer.send((store, registry));
    });
    started.await.map_err(|_| Error::Arbiter)
}

fn handler<D: Decide>(
    wards: &Wards,
    decide: D,
    registry: &Arc<dyn RegistryPort>,
    updater: &Arc<dyn XdsUpdater>,
) -> Arc<dyn EventHandler> {
    Arc::new(HandlerActor::start(wards, decide, registry.clone(), updater.clone()))
}
