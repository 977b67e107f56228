//! The admin pages: they read all other rooms.

use std::{net::TcpListener, sync::Arc, time::Instant};

use actix_web::dev::ServerHandle;

use super::{Error, handover::Opening, process::Process};
use crate::{
    admin::{self, AdminState, Building, Dashboard, DebugAccess, Measures, PagesOverXds},
    discovery::XdsServerHandle,
    identity::Authenticator,
    model::{PushRequest, Reason, XdsUpdater},
    settings::AdminSettings,
    sources::SourceList,
    status::StatusHandle,
    store::StoreHandle,
    telemetry::Metrics,
};

/// The rooms that the pages show.
pub(super) struct Shown {
    pub(super) xds: XdsServerHandle,
    pub(super) store: StoreHandle,
    pub(super) sources: SourceList,
    pub(super) status: StatusHandle,
    pub(super) authenticator: Authenticator,
}

/// The pages that are served.
pub(super) struct Pages {
    /// The server of the pages over HTTP.
    pub(super) server: ServerHandle,
    /// The same pages for clients that ask over xDS.
    pub(super) over_xds: Arc<PagesOverXds>,
}

/// Serves the pages on these sockets, from `opening` on.
pub(super) fn start(
    process: &Process,
    settings: &AdminSettings,
    shown: Shown,
    sockets: Vec<TcpListener>,
    opening: Opening,
) -> Result<Pages, Error> {
    let Shown { xds, store, sources, status, authenticator } = shown;
    let state = AdminState {
        xds: xds.state().clone(),
        store,
        sources,
        status,
        supervision: process.supervision.clone(),
        readiness: process.readiness.clone(),
        metrics: Metrics::install()?,
        measures: Measures::default(),
        building: Building::on(&tokio::runtime::Handle::current()),
        dashboard: Dashboard::on(&tokio::runtime::Handle::current()),
        push: Arc::new(move || xds.config_update(PushRequest::everything(Reason::Debug))),
        access: DebugAccess {
            open: settings.open_debug,
            off: !process.inputs.features.enable_debug_on_http,
            authenticator: Some(authenticator),
        },
        started: Instant::now(),
    };
    let over_xds = Arc::new(PagesOverXds { state: state.clone(), instance: process.instance() });
    let pages = admin::serve(sockets, state).map_err(Error::System)?;
    actix::spawn(async move {
        opening.begun().await;
        pages.server.await
    });
    Ok(Pages { server: pages.handle, over_xds })
}
