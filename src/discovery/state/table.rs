//! The table of connections: written by its owner alone, read by all other parts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;

use super::XdsState;
use crate::{
    discovery::{connection::Connection, generator::Claim},
    model::{Identity, Node},
    runtime::catch,
    xds::Protocol,
};

/// The owner of the table of connections: told of clients that come and go, it calls [`XdsState::enter`] and
/// [`XdsState::leave`]. Calls must not block.
pub(in crate::discovery) trait TableOwner: fmt::Debug + Send + Sync {
    /// A client connected.
    fn connected(&self, connection: Arc<Connection>);

    /// The client of a connection is gone.
    fn gone(&self, number: u64);
}

impl XdsState {
    /// Registers a client. `None` while nothing is published.
    pub(in crate::discovery) fn connect(
        &self,
        node: Arc<Node>,
        identity: Option<Identity>,
        is_proven: bool,
        peer: Option<std::net::SocketAddr>,
        protocol: Protocol,
    ) -> Option<Arc<Connection>> {
        let number = self.inner.counter.fetch_add(1, Ordering::Relaxed) + 1;
        let published = self.current()?;
        let view = self.view_in(&published, &node, Claim { identity: identity.as_ref(), is_proven });
        let connection = Arc::new(Connection {
            id: format!("{}-{number}", node.id),
            node,
            identity,
            is_proven,
            peer,
            protocol,
            connected_at: SystemTime::now(),
            connected_as_of: published.version,
            number,
            entered: AtomicBool::new(false),
            offered_early: AtomicBool::new(false),
            view: Mutex::new(view),
            moved_at: AtomicU64::new(0),
            moved: tokio::sync::Notify::new(),
            kill: self.inner.shutdown.child_token(),
            status: Mutex::default(),
        });
        match &self.inner.owner {
            Some(owner) => owner.connected(connection.clone()),
            None => self.enter(&connection),
        }
        Some(connection)
    }

    /// Takes a client off the table.
    pub(in crate::discovery) fn disconnect(&self, connection: &Connection) {
        match &self.inner.owner {
            Some(owner) => owner.gone(connection.number),
            None => self.leave(connection.number),
        }
    }

    /// Puts a connection into the table. Only the owner of the table calls this.
    pub(in crate::discovery) fn enter(&self, connection: &Arc<Connection>) {
        self.inner.connections.insert(connection.number, connection.clone());
        // A publication since the view was made has missed the connection. One that comes while the next view is made moves
        // the connection itself, and is overwritten: therefore until there is none.
        let mut version = connection.connected_as_of;
        while let Some(now) = self.current().filter(|now| now.version != version) {
            let view = catch(|| self.view_in(&now, &connection.node, connection.claim()));
            match view {
                // It holds nothing yet that counts as of the former view.
                Ok(view) => {
                    connection.move_to(view, 0);
                    connection.moved.notify_one();
                }
                Err(_) => metrics::counter!("pilot_total_xds_internal_errors").increment(1),
            }
            version = now.version;
        }
        connection.entered.store(true, Ordering::SeqCst);
        if connection.offered_early.load(Ordering::SeqCst) {
            // Earlier offers count from now on.
            connection.moved.notify_one();
        }
        self.count_connections();
        self.wake_reader();
    }

    /// Takes a connection off the table. Only the owner of the table calls this.
    pub(in crate::discovery) fn leave(&self, number: u64) {
        self.inner.connections.remove(&number);
        self.count_connections();
        self.wake_reader();
    }

    fn count_connections(&self) {
        metrics::gauge!("pilot_xds").set(self.inner.connections.len() as f64);
    }

    /// Wakes the reader of [`XdsState::progress`].
    pub fn wake_reader(&self) {
        self.inner.progress.notify_one();
    }

    /// Waits until the versions that clients hold ([`Connection::held_version`]), or the clients, may be others than when this
    /// was last called. For one reader.
    pub async fn progress(&self) {
        self.inner.progress.notified().await;
    }
}
