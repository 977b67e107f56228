//! The composition root: every room is started here, in the order of the data flow, each with a line that names its inputs and
//! its consumers.
//!
//! The published parts have readers before anything is started, so no room is connected later. Consumers start before producers,
//! and end after them. Only this room, `cli` and tests know all the others.

mod config;
mod discovery;
mod identity;
mod inputs;
mod keys;
mod last_good;
mod names;
mod registration;
mod remotes;
mod running;
mod sockets;
mod sources;
mod status;
mod trust_bundles;

use std::{sync::Arc, time::Instant};

use config::ConfigRooms;
pub use inputs::Inputs;
pub use running::Running;
pub use sockets::Addresses;
use sockets::Sockets;

use crate::{
    admin::{AdminState, Building, DebugAccess, PagesOverXds},
    discovery::{ListeningSockets, Ports, serve},
    model::{PushRequest, Reason, XdsUpdater},
    runtime::{Readiness, RestartBudget, Shutdown, Supervision},
    settings::{ListenAddress, Settings},
    sources::{Source, SourceId, SourceList, SourceStarter, kube::Cluster, read_mesh},
    status::{ReportBoard, StatusReporterActor},
    store::StoreRegister,
    telemetry::{Metrics, SetupError},
};

/// A reason that the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address as it was given.
        address: ListenAddress,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The Unix socket cannot be made.
    #[error("--grpc-unix-socket {path}: {error}", path = .path.display())]
    Unix {
        /// Its path.
        path: std::path::PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The mesh settings cannot be read.
    #[error("{0}")]
    Mesh(String),
    /// A configured source does not exist, or is of a kind that cannot be read.
    #[error("{0}")]
    Source(String),
    /// The folder for the last good content cannot be created or opened.
    #[error("--state-dir {0}")]
    State(String),
    /// The certificate authority or the TLS of the secure listener cannot be set up.
    #[error("{0}")]
    Identity(String),
    /// An arbiter did not start.
    #[error("the config thread did not start")]
    Arbiter,
    /// The operating system refuses a resource that the servers need.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The recorder of metrics cannot be installed.
    #[error("{0}")]
    Metrics(#[from] SetupError),
}

/// Starts everything. Must run inside an actix `System` whose runtime has worker threads; `shutdown` ends it.
///
/// # Errors
/// [`Error`]; the parts that were started by then end with `shutdown`.
pub async fn build(settings: Settings, shutdown: Shutdown) -> Result<Running, Error> {
    build_with(settings, Vec::new(), shutdown).await
}

/// As [`build`], with the sources of the caller after the configured ones.
///
/// # Errors
/// As [`build`].
pub async fn build_with(settings: Settings, more: Vec<Arc<dyn Source>>, shutdown: Shutdown) -> Result<Running, Error> {
    let Settings {
        sources,
        state: kept,
        mesh,
        xds,
        identity: identities,
        registration: registering,
        admin,
        runtime,
        features,
    } = settings;
    let (readiness, me) = (Readiness::default(), status::identity());
    let budget = RestartBudget::new(runtime.max_restarts_per_minute, shutdown.clone());
    let supervision = Supervision::new(budget, runtime.first_pause, runtime.longest_pause);
    let sockets = Sockets::bind(&xds, &admin).await?;

    // Readers of the published parts, beginning with the mesh settings of the start.
    let mesh_of_files = Arc::new(read_mesh(&mesh, sources.max_file_bytes).map_err(Error::Mesh)?);
    let (inputs, publishers) = Inputs::new(mesh_of_files, Arc::new(features));
    let issued = identity::issuer(&inputs)?;
    let cluster = sources.kubernetes.clone().map(|k| Cluster::new(&mesh.cluster_id, k, inputs.follow_mesh()));
    sources::check_files(&inputs.mesh(), &sources, kept.folder.is_some()).await?;
    let mesh_is_known = match &cluster {
        Some(cluster) => sources::mesh_of_cluster(cluster, &mesh, &kept, &inputs).await,
        None => true,
    };
    let mut named = sources::named(&inputs, &mesh, &sources, cluster.as_ref(), kept.folder.is_some())?;
    named.extend(more);
    let (entries, entries_folder) = registration::open(&kept, &me)?;
    named.push(Arc::new(entries.clone()));

    // The xDS server reads the inputs when it is asked to push, and feeds connected clients.
    let is_loopback = sockets.addresses.grpc.ip().is_loopback();
    let xds_server =
        discovery::start((&supervision, &readiness), &inputs, &xds, (&mesh, &sources), (&runtime, is_loopback));
    let state = xds_server.state().clone();

    // The store reads batches of sources; it feeds the handlers, these the registry, and all of them the xDS server.
    let order: Vec<SourceId> = named.iter().map(|s| s.id()).collect();
    let ConfigRooms { thread: config_thread, store, registry, resyncs } =
        config::start(&supervision, &inputs, publishers, order, Arc::new(xds_server.clone())).await?;

    // Registration reads clients that connect, and feeds the source of registered workloads.
    let board = ReportBoard::default();
    let registrar = registration::start(
        &me,
        &state,
        (&inputs, &supervision),
        entries.clone(),
        (cluster.as_ref(), &board),
        &registering,
    );

    // Sources read the outside, and feed the store by way of the folder for the last good content.
    let keeper = last_good::open(&kept, &store)?;
    let sinks = sources::Sinks {
        configs: last_good::sink(keeper.as_ref(), &store),
        direct: Arc::new(store.clone()),
        registry: registry.clone(),
        inputs: inputs.clone(),
        xds: xds_server.clone(),
    };
    let starter = SourceStarter {
        sink: sinks.configs.clone(),
        supervision: supervision.clone(),
        silence: sources.silence.max(sources.rescan * 3),
    };
    // Polled sources read the context in force (host names of gateways between networks, locations of key sets), and feed
    // the next one.
    let names = names::source(&sources.names, &state, &inputs, &xds_server);
    let (keys, issuer_keys) = (
        keys::source(&state, &inputs, &xds_server),
        issued.as_ref().and_then(|issued| keys::of_issuer(issued, &inputs)),
    );
    let (has_remotes, aliases) = (remotes::may_be(&sources), mesh.cluster_aliases.clone());
    let bundles = trust_bundles::source(&state, &inputs, &xds_server);
    let (of_cluster, settings) = ((cluster.clone(), mesh_is_known), (mesh, sources.clone()));
    let started = sources::start(named, settings, of_cluster, &sinks, &starter, &shutdown, &readiness);
    let mut all = started.handles.clone();
    all.push(starter.start(names.clone(), shutdown.child()));
    all.push(starter.start(keys.clone(), shutdown.child()));
    all.extend(issuer_keys.map(|keys| starter.start(keys, shutdown.child())));
    all.push(starter.start(bundles, shutdown.child()));

    // Remote clusters read the Secrets or files that name them, and feed the list of sources.
    let register = StoreRegister::new(store.clone(), keeper.clone().map(|keeper| (keeper, kept.grace)));
    let of_cluster = (cluster.clone(), &*started.handles);
    let remotes =
        remotes::start((&supervision, &shutdown), sources, of_cluster, (starter, register), inputs.follow_mesh());
    let list = SourceList::new(all, remotes.follow());

    // Credentials of clients are checked against files, clusters and the keys of an issuer.
    let reviewing = identity::clusters(cluster.clone(), aliases, (has_remotes, remotes.follow()));
    let authenticator = identity::proofs(&inputs, (&xds, &kept), reviewing.clone(), issued);
    sources::follow_resyncs(resyncs, list.clone(), keeper.clone(), shutdown.child());
    let keeping = [
        last_good::start(keeper.clone(), &started.kept, &kept, &shutdown),
        registration::keep(entries, entries_folder, &shutdown),
    ];

    let remotes_synced = readiness.guard("remote clusters");
    let (synced, first) = (started.synced, xds_server.clone());
    let (mut publications, resolved) =
        (state.publications(), readiness.guard("addresses of network gateways and keys of issuers"));
    tokio::spawn(async move {
        // An empty mesh is published as well: it has proxies too.
        let remotes_synced = async move {
            remotes.synced().await;
            drop(remotes_synced);
        };
        tokio::join!(synced, remotes_synced);
        publications.mark_unchanged();
        first.config_update(PushRequest::everything(Reason::Global));
        names::resolved(publications, [names.answered(), keys.answered()]).await;
        drop(resolved);
    });

    // Statuses read publications and acknowledgements, and feed the cluster.
    let (writing, candidate) =
        status::stand(cluster.as_ref(), &me, (&store, &xds_server, &board), &inputs.features, &shutdown).unzip();
    let statuses = StatusReporterActor::start(&supervision, state.clone(), writing);

    // Admin pages read all of the above.
    let xds_for_certificates = xds_server.clone();
    let shown = AdminState {
        xds: state.clone(),
        store: store.clone(),
        sources: list.clone(),
        status: statuses,
        supervision: supervision.clone(),
        readiness: readiness.clone(),
        metrics: Metrics::install()?,
        building: Building::on(&tokio::runtime::Handle::current()),
        push: Arc::new(move || xds_server.config_update(PushRequest::everything(Reason::Debug))),
        access: DebugAccess {
            open: admin.open_debug,
            off: !inputs.features.enable_debug_on_http,
            authenticator: Some(authenticator.clone()),
        },
        started: Instant::now(),
    };
    let debug = PagesOverXds { state: shown.clone(), instance: status::instance(&me) };
    let pages = crate::admin::serve(sockets.pages, shown).map_err(Error::System)?;
    actix::spawn(pages.server);

    // Clients are accepted last, when all that serves them has started.
    let mut ports = Ports {
        authenticator: Some(authenticator),
        debug: Some(Arc::new(debug)),
        registrar: Some(registrar),
        ..Ports::default()
    };
    let mut tls = None;
    if sockets.secure_grpc.is_some() || sockets.unix.is_some() {
        let clusters = (cluster.as_ref(), reviewing);
        tls = Some(
            identity::start(&supervision, &inputs, (&identities, &kept), clusters, &xds_for_certificates, &mut ports)
                .await?,
        );
    }
    let secure = sockets.secure_grpc.zip(tls);
    let listeners = ListeningSockets { plain: sockets.grpc, secure, unix: sockets.unix };
    let grpc_server = tokio::spawn(serve(listeners, state.clone(), ports, shutdown.child()));
    Ok(Running {
        addresses: sockets.addresses,
        readiness,
        shutdown,
        drain: runtime.shutdown,
        supervision,
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
