//! Questions about one client that the dashboard asks: the object behind a resource, the resources that it would be sent now,
//! and whether anything about it changed.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3Default;

use super::{connection::Connection, state::XdsState};
use crate::{
    model::ConfigKey,
    xds::{ResourceType, Snapshot},
};

impl XdsState {
    /// The object that decides most of a resource of this client.
    #[must_use]
    pub fn origin_of(&self, connection: &Connection, kind: ResourceType, name: &str) -> Option<ConfigKey> {
        let published = self.current()?;
        let view = connection.current_view();
        let generator = &self.builder().generator;
        view.parts(kind).find_map(|part| generator.origin(&published.context, &part.slot, kind, name))
    }

    /// The resources of the scope that the client was last answered in, as the configuration in force makes them now. Most often
    /// they are made already. `None` before an answer, and where they cannot be made.
    pub async fn newest(&self, connection: &Connection, kind: ResourceType) -> Option<Arc<Snapshot>> {
        let published = self.current()?;
        let scope = connection.status(kind).sent?.scope().clone();
        let current = || self.current().unwrap_or_else(|| published.clone());
        connection.current_view().snapshot(kind, &scope, self.builder(), &current).await.ok()
    }
}

impl Connection {
    /// Hash of everything that changes with an answer of the client or to it.
    #[must_use]
    pub fn exchanges(&self) -> u64 {
        let view = self.current_view();
        let types = self.status.lock();
        let mut hasher = Xxh3Default::new();
        for status in view.served.iter().filter_map(|kind| types.known(kind)) {
            (status.sent_at, status.answered_at, status.rejects, status.held, status.watched).hash(&mut hasher);
            (status.held_back.len(), status.last_error.is_empty()).hash(&mut hasher);
        }
        hasher.finish()
    }
}
