//! What a change of the registry means for the xDS server.

use std::sync::Arc;

use crate::model::{EventKind, Hostname, PushRequest, ShardKey};

/// How far new endpoints of a service have to be pushed (Istio's `PushType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointPush {
    /// Nobody can see a difference.
    NoPush,
    /// Endpoints only.
    Incremental,
    /// The service too: it is new, or its service accounts changed.
    Full,
}

/// A call of Istio's `XDSUpdater`. Endpoints and services that it speaks of are already in the registry's snapshot.
#[derive(Debug, Clone, PartialEq)]
pub enum XdsUpdate {
    /// A service appeared, changed or went (`SvcUpdate`): for counters and debug pages; a push comes by itself.
    Service {
        /// The registry that speaks.
        shard: ShardKey,
        /// Host.
        host: Hostname,
        /// Namespace.
        namespace: Arc<str>,
        /// What happened.
        event: EventKind,
    },
    /// The endpoints of a service changed (`EDSUpdate`).
    Endpoints {
        /// The registry that speaks.
        shard: ShardKey,
        /// Host.
        host: Hostname,
        /// Namespace.
        namespace: Arc<str>,
        /// How many endpoints this shard has now.
        count: usize,
        /// What has to be pushed.
        push: EndpointPush,
    },
    /// The endpoints of a service changed, and somebody else asks for the push (`EDSCacheUpdate`).
    EndpointsCacheOnly {
        /// The registry that speaks.
        shard: ShardKey,
        /// Host.
        host: Hostname,
        /// Namespace.
        namespace: Arc<str>,
        /// How many endpoints this shard has now.
        count: usize,
    },
    /// The proxy with this address has to look at its own services and labels again (`ProxyUpdate`).
    ProxyUpdate {
        /// Cluster of the proxy.
        cluster: Arc<str>,
        /// First address of the proxy.
        ip: Arc<str>,
    },
    /// A push is wanted (`ConfigUpdate`).
    Push(PushRequest),
}
