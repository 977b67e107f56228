//! The way in: the xDS server tells of connections, of their health and of their end.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::jiff::Timestamp;

use super::{Connect, Disconnect, ReadHealth, RegistrationActor, SessionTable};
use crate::{
    discovery::{Arrival, Presence, Registrar, RegistrationRefusal},
    model::Features,
    registration::{entry::wish, plan::HealthReport, session::ProxySession},
    runtime::Mailbox,
};

/// Registers workloads, for the xDS server.
#[derive(Clone)]
pub struct RegistrationHandle {
    pub(super) mailbox: Mailbox<RegistrationActor>,
    pub(super) features: Arc<Features>,
    pub(super) session_table: SessionTable,
    pub(super) counter: Arc<AtomicU64>,
}

/// A registered connection.
struct Registered {
    session: ProxySession,
    handle: RegistrationHandle,
}

impl Presence for Registered {
    fn health(&self, health: Result<(), String>) {
        let report =
            HealthReport { healthy: health.is_ok(), message: health.err().unwrap_or_default(), at: Timestamp::now() };
        // One that waits already is replaced: only the last word counts.
        if self.session.health.say(report) {
            self.handle.mailbox.tell(ReadHealth(self.session.clone()));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.handle.session_table.lock().remove(&self.session.id);
        self.handle.mailbox.tell(Disconnect(self.session.key.clone(), self.session.id, Timestamp::now()));
    }
}

impl Registrar for RegistrationHandle {
    fn arrive(&self, arrival: Arrival) -> BoxFuture<'static, Result<Option<Box<dyn Presence>>, RegistrationRefusal>> {
        let handle = self.clone();
        async move {
            let Some(wish) = wish(&arrival.node, &handle.features)? else { return Ok(None) };
            let session = ProxySession {
                id: handle.counter.fetch_add(1, Ordering::Relaxed),
                key: wish.key,
                group: wish.group.into(),
                node: arrival.node,
                identity: arrival.identity,
                peer: arrival.peer.map(|address| address.ip().to_canonical()),
                at: Timestamp::try_from(arrival.at).unwrap_or_default(),
                health: Arc::default(),
            };
            let closed = |_| RegistrationRefusal::Unavailable("registration is not there".to_string());
            let accepted = handle.mailbox.send(Connect(session)).await.map_err(closed)??;
            Ok(accepted.map(|session| Box::new(Registered { session, handle }) as Box<dyn Presence>))
        }
        .boxed()
    }
}

impl fmt::Debug for RegistrationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrationHandle").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}
