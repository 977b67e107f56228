//! The clients of xDS: the listeners that they come to, with the authority where one is needed.

use tokio::task::JoinHandle;

use super::{
    Error,
    identity::{self, Credentials},
    process::Process,
    sockets::ClientSockets,
};
use crate::{
    discovery::{ListeningSockets, Ports, ServeError, XdsServerHandle, serve},
    settings::Settings,
};

/// Accepts clients. The authority is started where a secure listener or a Unix socket is to be served; `ports` lead to the rooms
/// that answer clients besides.
pub(super) async fn accept(
    process: &Process,
    settings: &Settings,
    sockets: ClientSockets,
    xds: &XdsServerHandle,
    credentials: Credentials,
    mut ports: Ports,
) -> Result<JoinHandle<Result<(), ServeError>>, Error> {
    let ClientSockets { grpc: plain, secure_grpc, unix } = sockets;
    ports.authenticator = Some(credentials.authenticator.clone());
    let tls = match secure_grpc.is_some() || unix.is_some() {
        true => Some(identity::start(process, settings, credentials, xds, &mut ports).await?),
        false => None,
    };
    let listeners = ListeningSockets { plain, secure: secure_grpc.zip(tls), unix };
    Ok(tokio::spawn(serve(listeners, xds.state().clone(), ports, process.shutdown.child())))
}
