//! The bookkeeping that the models of clients share: a session with its snapshots, the messages under way in both directions,
//! and the clusters and routes in force.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use prost::Message;

use super::{refusals::Backoff, session::Session};
use crate::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse},
    xds::{
        names::Scope,
        resource_type::ResourceType,
        views::{
            resource::{Block, Resource},
            snapshot::Snapshot,
            update::Protocol,
            updates::Updates,
        },
        wire::request::Request,
    },
};

/// The names that occur in traces.
pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub(super) type Names = BTreeSet<String>;

/// The names of a mask.
pub(super) fn names(mask: u8) -> Names {
    NAMES.iter().enumerate().filter(|(i, _)| mask & (1 << i) != 0).map(|(_, n)| (*n).to_string()).collect()
}

/// The number of traces of each kind.
pub(super) fn traces() -> u32 {
    const FEW: u32 = 500;
    std::env::var("PILOTHOUSE_XDS_TRACES").ok().and_then(|n| n.parse().ok()).unwrap_or(FEW)
}

/// Clusters, routes to some of them, and a version of all clusters. One of each is there always: an empty list of names would
/// mean something else.
pub(super) struct Truth {
    pub(super) clusters: Names,
    pub(super) routed: Names,
    pub(super) version: u8,
}

impl Truth {
    pub(super) fn new() -> Self {
        Self { clusters: names(1), routed: names(1), version: 0 }
    }

    pub(super) fn change(&mut self, clusters: u8, routed: u8, version: u8) {
        self.clusters = names(clusters | 1);
        self.routed = names(routed & clusters | 1);
        self.version = version;
    }
}

/// A response as a client reads it.
pub(super) struct Heard {
    pub(super) nonce: String,
    /// Name, content and version; state of the world has the content only.
    pub(super) resources: Vec<(String, Vec<u8>, String)>,
    pub(super) removed: Vec<String>,
}

/// The stream of a client: the session at its end, and the messages under way.
pub(super) struct Wire {
    protocol: Protocol,
    pub(super) session: Session,
    updates: Updates,
    last: BTreeMap<(usize, (bool, u128)), Arc<Snapshot>>,
    pub(super) to_server: VecDeque<(ResourceType, Vec<u8>)>,
    pub(super) to_client: VecDeque<(ResourceType, Vec<u8>)>,
}

impl Wire {
    pub(super) fn new(protocol: Protocol, now: Instant) -> Self {
        Self {
            protocol,
            session: Session::new(protocol, 1, Backoff::default(), now),
            updates: Updates::default(),
            last: BTreeMap::new(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    /// The stream breaks, with all that is under way, and another one takes its place.
    pub(super) fn reconnect(&mut self, now: Instant) {
        self.session = Session::new(self.protocol, 2, Backoff::default(), now);
        self.to_server.clear();
        self.to_client.clear();
    }

    /// Whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.to_client.is_empty() && self.to_server.is_empty()
    }

    fn snapshot<N: AsRef<str>>(
        &mut self,
        kind: ResourceType,
        scope: Scope,
        content: Vec<(N, Vec<u8>)>,
    ) -> Arc<Snapshot> {
        let content = content.iter().filter(|(name, _)| scope.contains(name.as_ref()));
        let resources = content.map(|(name, value)| Arc::new(Resource::of_parts(name.as_ref(), "t", value)));
        let key = (kind.index(), scope.key());
        let before = self.last.get(&key).cloned();
        let block = Block::build(resources, before.as_ref().and_then(|s| s.blocks().first()));
        let same = before.filter(|s| Arc::ptr_eq(&s.blocks()[0], &block));
        let target = same.unwrap_or_else(|| Snapshot::new(vec![block], scope));
        self.last.insert(key, target.clone());
        target
    }

    /// Sends the due responses for this content.
    pub(super) fn serve<N: AsRef<str>>(&mut self, content: impl Fn(ResourceType, &Scope) -> Vec<(N, Vec<u8>)>) {
        for _ in 0..100 {
            let Some((kind, scope)) = self.session.next() else { return };
            let scope = scope.clone();
            let content = content(kind, &scope);
            let target = self.snapshot(kind, scope, content);
            if let Some(response) = self.session.offer(kind, &target, &self.updates) {
                let (first, rest) = response.frames();
                self.to_client.push_back((kind, [&first[5..], rest.as_deref().unwrap_or_default()].concat()));
                assert!(self.session.next().is_none_or(|(k, _)| k != kind), "one unacknowledged response per type");
            }
        }
        panic!("it never rests");
    }

    /// The server takes the next request.
    pub(super) fn hear(&mut self) {
        let Some((kind, message)) = self.to_server.pop_front() else { return };
        let request = match self.protocol {
            Protocol::Sotw => Request::sotw(&message).unwrap(),
            Protocol::Delta => Request::delta(&message).unwrap(),
        };
        self.session.receive(kind, &request).unwrap();
    }

    /// The client takes the next response.
    pub(super) fn read(&mut self) -> Option<(ResourceType, Heard)> {
        let (kind, message) = self.to_client.pop_front()?;
        let heard = match self.protocol {
            Protocol::Sotw => {
                let response = DiscoveryResponse::decode(&*message).unwrap();
                let resource = |any: crate::proto::wkt::Any| (String::new(), any.value.to_vec(), String::new());
                let resources = response.resources.into_iter().map(resource).collect();
                Heard { nonce: response.nonce, resources, removed: Vec::new() }
            }
            Protocol::Delta => {
                let response = DeltaDiscoveryResponse::decode(&*message).unwrap();
                let resources = response.resources.into_iter();
                let resources = resources.map(|r| (r.name, r.resource.unwrap().value.to_vec(), r.version)).collect();
                Heard { nonce: response.nonce, resources, removed: response.removed_resources }
            }
        };
        Some((kind, heard))
    }
}
