//! The clients of xDS: the listeners that they come to, with the authority where one is needed.

use tokio::task::JoinHandle;

use super::{
    Error,
    handover::Opening,
    identity::{self, Credentials},
    process::Process,
    sockets::ClientSockets,
};
use crate::{
    discovery::{ListeningSockets, Ports, ServeError, XdsServerHandle, serve},
    settings::Settings,
};

/// Accepts clients. The authority is started where a secure listener or a Unix socket is to be served; `ports` lead to the rooms
/// that answer clients besides. They are accepted from `opening` on.
pub(super) async fn accept(
    process: &Process,
    settings: &Settings,
    sockets: ClientSockets,
    xds: &XdsServerHandle,
    credentials: Credentials,
    mut ports: Ports,
    opening: Opening,
) -> Result<JoinHandle<Result<(), ServeError>>, Error> {
    let ClientSockets { grpc: plain, secure_grpc, unix } = sockets;
    ports.authenticator = Some(credentials.authenticator.clone());
    let tls = match secure_grpc.is_some() || unix.is_some() {
        true => Some(identity::start(process, settings, credentials, xds, &mut ports).await?),
        false => None,
    };
    let listeners = ListeningSockets { plain, secure: secure_grpc.zip(tls), unix };
    let (state, stop) = (xds.state().clone(), process.shutdown.child());
    Ok(tokio::spawn(async move {
        opening.begun().await;
        serve(listeners, state, ports, stop).await
    }))
}
