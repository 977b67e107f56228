//! The composition root: every room is started here, in the order of the data flow, each with a line that names its inputs and
//! its consumers.
//!
//! The published parts have readers before anything is started, so no room is connected later. Consumers start before producers,
//! and end after them. Only this room, `cli` and tests know all the others.

mod admin;
mod clients;
mod config;
mod discovery;
mod first_push;
mod handover;
mod identity;
mod inputs;
mod keys;
mod last_good;
mod names;
mod polled;
mod process;
mod registration;
mod remotes;
mod running;
mod sockets;
mod sources;
mod state_lock;
mod status;
mod traces;
mod trust_bundles;

use std::sync::Arc;

use admin::Shown;
use config::ConfigRooms;
use first_push::FirstPush;
use handover::{Handover, Taken};
pub use inputs::Inputs;
use process::Process;
pub use running::Running;
pub use sockets::Addresses;
use sockets::Sockets;
use sources::Sinks;
use state_lock::StateLock;

use crate::{
    discovery::Ports,
    runtime::{HandoverError, Inherited, Shutdown},
    settings::{ListenAddress, Settings},
    sources::{Source, SourceList},
    status::ReportBoard,
    store::StoreRegister,
    telemetry::SetupError,
};

/// A reason that the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be bound.
    #[error("--{name}-addr: cannot listen on {address}: {error}")]
    Bind {
        /// The name of the socket, which its flag begins with.
        name: String,
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
    /// A socket of the service manager cannot be used.
    #[error("socket {name:?} of the service manager: {reason}")]
    Inherited {
        /// Its name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The sockets of the process that serves cannot be taken over.
    #[error("--handover-socket {0}")]
    Handover(HandoverError),
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

/// As [`build`], on sockets that a service manager opened, or that the process that serves now hands over where the settings
/// name a socket for that; the other addresses are bound.
///
/// # Errors
/// As [`build`].
pub async fn build_on(settings: Settings, inherited: Inherited, shutdown: Shutdown) -> Result<Running, Error> {
    let path = settings.runtime.handover_socket.clone();
    if let (Some(_), Some(folder)) = (&path, &settings.state.folder) {
        // The socket may be in it; a folder that cannot be made is told with the socket, or by the lock.
        let _ = std::fs::create_dir_all(folder);
    }
    let Taken { predecessor, handed } = Taken::ask(path.as_deref(), &inherited).await?;
    let sockets = Sockets::bind(&settings.xds, &settings.admin, inherited, handed).await?;
    let handover = path.map(|path| Handover::new(&path, predecessor, &sockets)).transpose()?;
    start(settings, sockets, handover, Vec::new(), shutdown).await
}

/// As [`build`], with the sources of the caller after the configured ones.
///
/// # Errors
/// As [`build`].
pub async fn build_with(settings: Settings, more: Vec<Arc<dyn Source>>, shutdown: Shutdown) -> Result<Running, Error> {
    let sockets = Sockets::bind(&settings.xds, &settings.admin, Inherited::new(), Vec::new()).await?;
    start(settings, sockets, None, more, shutdown).await
}

async fn start(
    settings: Settings,
    sockets: Sockets,
    handover: Option<Handover>,
    more: Vec<Arc<dyn Source>>,
    shutdown: Shutdown,
) -> Result<Running, Error> {
    // The published parts have readers before any room starts.
    let (process, publishers) = Process::new(&settings, shutdown)?;
    let state_lock = StateLock::of(&settings.state);
    let issued = identity::issuer(&process.inputs)?;
    let mut named = sources::find(&process, &settings).await?;
    named.sources.extend(more);
    let entries = registration::open(&settings.state, &process.me)?;
    named.sources.push(Arc::new(entries.entries.clone()));

    // The xDS server reads the inputs when it is asked to push, and feeds connected clients and, where there is one, the
    // collector of traces.
    let (push_traces, traces) = traces::start(&process).unzip();
    let xds = discovery::start(&process, &settings, sockets.addresses.grpc.ip().is_loopback(), push_traces);

    // The store reads batches of sources; it feeds the handlers, these the registry, and all of them the xDS server.
    let ConfigRooms { thread: config_thread, store, registry, resyncs } =
        config::start(&process, publishers, named.order(), Arc::new(xds.clone())).await?;

    // Registration reads clients that connect, and feeds the source of registered workloads.
    let board = ReportBoard::default();
    let registrar = registration::start(&process, &settings.registration, &xds, &entries, &board);

    // Sources read the outside, and feed the store by way of the folder for the last good content.
    let keeper = last_good::open(&settings.state, &store)?;
    let configs = last_good::sink(keeper.as_ref(), &store);
    let sinks = Sinks { configs, direct: store.clone(), registry: registry.clone(), xds: xds.clone() };
    let starter = sinks.starter(&process, &settings.sources);
    let started = sources::start(&process, &settings, named, sinks, &starter);

    // Polled sources read the context in force, and feed the next one.
    let polled = polled::start(&process, &settings, &xds, &starter, issued.as_ref());

    // Remote clusters read the Secrets or files that name them, and feed the list of sources.
    let register = StoreRegister::new(store.clone(), keeper.clone().map(|keeper| (keeper, settings.state.grace)));
    let remotes = remotes::start(&process, &settings.sources, &started.handles, starter, register);
    let list = SourceList::new([&started.handles[..], &polled.handles].concat(), remotes.follow());
    sources::follow_resyncs(resyncs, list.clone(), keeper.clone(), process.shutdown.child());

    // The state folder reads the content of sources and registered workloads, and feeds the next start.
    let saved = last_good::start(keeper, &started.kept, &settings.state, state_lock.as_ref(), &process.shutdown);
    let keeping = saved.into_iter().chain(registration::keep(entries, &process, state_lock)).collect();

    // Credentials read the proofs that clients bring, and feed the pages and the listeners.
    let credentials = identity::credentials(&process, &settings, remotes.follow(), issued);

    // The first push reads the state of all sources, and feeds the xDS server.
    FirstPush { synced: started.synced, remotes, answered: polled.answered }.begin(&process, &xds);

    // Statuses read publications and acknowledgements, and feed the cluster.
    let statuses = status::start(&process, &store, &xds, &board);

    // Admin pages read all of the above.
    let shown = Shown {
        xds: xds.clone(),
        store: store.clone(),
        sources: list.clone(),
        status: statuses.handle,
        authenticator: credentials.authenticator.clone(),
    };
    let opening = if handover.is_some() { handover::Opening::default() } else { handover::open() };
    let pages = admin::start(&process, &settings.admin, shown, sockets.pages, opening.clone())?;

    // Clients are accepted last, when all that serves them has started.
    let ports = Ports { debug: Some(pages.over_xds), registrar: Some(registrar), ..Ports::default() };
    let grpc_server =
        clients::accept(&process, &settings, sockets.clients, &xds, credentials, ports, opening.clone()).await?;
    let Process { supervision, shutdown, readiness, inputs, .. } = process;
    let running = Running {
        addresses: sockets.addresses,
        readiness,
        shutdown,
        drain: settings.runtime.shutdown,
        supervision,
        state: xds.state().clone(),
        store,
        registry,
        inputs,
        sources: started.handles,
        all_sources: list,
        tasks: running::Tasks {
            grpc_server,
            pages: pages.server,
            keeping,
            candidate: statuses.candidate,
            traces,
            config_thread,
        },
    };

    // A successor gets the sockets, as this process got its own.
    if let Some(handover) = handover {
        tokio::spawn(handover.run(running.waiting_for(), opening, running.readiness.clone(), running.shutdown.clone()));
    }
    Ok(running)
}
