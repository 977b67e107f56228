//! The published state of a connection: its node, its responses, its acknowledgements.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{debug, generator::Claim, view::View};
use crate::{
    generate::api,
    model::{Identity, Node},
    xds::{NameSet, PerType, Protocol, ResourceType, Snapshot, TypeSet},
};

/// The state of one type on one connection.
#[derive(Debug, Clone, Default)]
pub struct TypeStatus {
    /// The type is subscribed to.
    pub watched: bool,
    /// The subscription is to everything.
    pub wildcard: bool,
    /// Names subscribed to.
    pub names: Option<Arc<NameSet>>,
    /// Nonce of the last response; empty when none was sent.
    pub sent_nonce: String,
    /// Nonce of the last response that was accepted.
    pub acked_nonce: String,
    /// When the last response was sent.
    pub sent_at: Option<SystemTime>,
    /// When it was last accepted or refused.
    pub answered_at: Option<SystemTime>,
    /// Text of the last refusal; empty since the client has accepted all that it should hold.
    pub last_error: String,
    /// Resources that are held back since the client refuses them, with its complaint.
    pub held_back: Vec<(Arc<str>, Arc<str>)>,
    /// The number of refused responses.
    pub rejects: u64,
    /// The snapshot that the client was sent.
    pub sent: Option<Arc<Snapshot>>,
    /// Resources and bytes of the last response.
    pub last_size: (usize, usize),
    /// Number of a publication that the last response is at least as new as; 0 when that is not known.
    pub offered: u64,
    /// Number of a publication as of which the client is known to hold the type; 0 before it has accepted anything.
    pub held: u64,
}

/// A connected client.
#[derive(Debug)]
pub struct Connection {
    /// `<proxy id>-<number>`.
    pub id: String,
    /// The node that the client sent.
    pub node: Arc<Node>,
    /// The identity that it has.
    pub identity: Option<Identity>,
    /// It proved that identity, by a certificate or a token.
    pub is_proven: bool,
    /// Where it comes from.
    pub peer: Option<SocketAddr>,
    /// Which protocol it speaks.
    pub protocol: Protocol,
    /// When it connected.
    pub connected_at: SystemTime,
    /// Number of the publication that its first view is of.
    pub(super) connected_as_of: u64,
    pub(super) number: u64,
    /// It stands in the table: publications move it.
    pub(super) entered: AtomicBool,
    /// It was offered something before it stood there.
    pub(super) offered_early: AtomicBool,
    pub(super) view: Mutex<Arc<View>>,
    /// Number of the publication that last gave the client another view.
    pub(super) moved_at: AtomicU64,
    /// The view was replaced.
    pub(super) moved: Notify,
    pub(super) kill: CancellationToken,
    pub(super) status: Mutex<PerType<TypeStatus>>,
}

impl Connection {
    /// Its identity, for the generator.
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim { identity: self.identity.as_ref(), is_proven: self.is_proven }
    }

    pub(super) fn current_view(&self) -> Arc<View> {
        self.view.lock().clone()
    }

    /// Gives it another view, from this publication on. Its stream learns that by `moved`.
    pub(super) fn move_to(&self, view: Arc<View>, version: u64) {
        self.moved_at.fetch_max(version, Ordering::AcqRel);
        *self.view.lock() = view;
    }

    /// Whether publications move it. Otherwise an offer of now is noted, and its stream is woken when they do.
    pub(super) fn is_in_table(&self) -> bool {
        if !self.entered.load(Ordering::SeqCst) {
            self.offered_early.store(true, Ordering::SeqCst);
        }
        self.entered.load(Ordering::SeqCst)
    }

    pub(super) fn update_status(&self, kind: ResourceType, change: impl FnOnce(&mut TypeStatus)) {
        if let Some(status) = self.status.lock().get_mut(kind) {
            change(status);
        }
    }

    /// The state of a type.
    #[must_use]
    pub fn status(&self, kind: ResourceType) -> TypeStatus {
        self.status.lock().known(kind).cloned().unwrap_or_default()
    }

    /// The resources that are held back since the client refuses them, with its complaint.
    pub(super) fn held_back(&self) -> Vec<(ResourceType, Arc<str>, Arc<str>)> {
        let view = self.current_view();
        let types = self.status.lock();
        let of_type = |kind| types.known(kind).map_or(&[][..], |status| &status.held_back);
        let of_kind =
            |kind: ResourceType| of_type(kind).iter().map(move |(name, why)| (kind, name.clone(), why.clone()));
        view.served.iter().flat_map(of_kind).collect()
    }

    /// The types that the client may ask for.
    #[must_use]
    pub fn served(&self) -> TypeSet {
        self.current_view().served
    }

    /// Hash of the inputs of the client's resources; clients of one view get the same bytes.
    #[must_use]
    pub fn view_key(&self) -> u128 {
        self.current_view().key
    }

    /// Whether this is a proxy or a gRPC client, and not a reader of config objects or of debug pages (`istioctl`).
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        ![api::GENERATOR, debug::GENERATOR].contains(&&*self.node.metadata.generator)
    }

    /// Number of the last publication all of which the client is known to hold: it has accepted the content of that publication
    /// (or of a later one) in every type that it watches and that concerns it. `u64::MAX` when it lacks nothing.
    #[must_use]
    pub fn held_version(&self) -> u64 {
        let view = self.current_view();
        let moved = self.moved_at.load(Ordering::Acquire);
        let types = self.status.lock();
        let watched = view.served.iter().filter_map(|kind| Some((kind, types.known(kind)?))).filter(|(_, t)| t.watched);
        let behind = watched.filter(|(kind, t)| t.held == 0 || view.dirty(*kind).max(moved) > t.held);
        behind.map(|(_, t)| t.held).min().unwrap_or(u64::MAX)
    }

    /// Ends the stream; a healthy client comes back.
    pub fn disconnect(&self) {
        self.kill.cancel();
    }
}

/// Resources that clients occupy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Open connections, with or without streams.
    pub connections: usize,
    /// Bytes of requests that have not come whole.
    pub unfinished_bytes: usize,
    /// Subscribed names without a resource.
    pub unknown_names: usize,
    /// Subscribed names; equal lists count once.
    pub names: usize,
    /// Bytes of the nodes of open streams.
    pub node_bytes: usize,
    /// Bytes of responses that wait for clients to read; equal responses count once.
    pub unread_bytes: usize,
    /// Views with at least one connection.
    pub views: usize,
    /// Slots: parts of views, each generated once for all views that share it.
    pub slots: usize,
}

/// A view, as `/debug/viewz` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct ViewSummary {
    /// Hash of the inputs of its generation.
    pub key: String,
    /// Connections that share it.
    pub connections: usize,
}
