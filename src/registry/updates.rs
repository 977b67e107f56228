//! What a change of the registry means for the xDS server.

use std::sync::Arc;

use crate::model::{EventKind, Hostname, Kind, PushKey, PushRequest, Reason, ShardKey, push_request::PushKind};

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

impl XdsUpdate {
    /// The push that this asks for: changed endpoints push themselves, or their service when that has to change too.
    #[must_use]
    pub fn into_push(self) -> Option<PushRequest> {
        match self {
            Self::Push(request) => Some(request),
            Self::Endpoints { host, namespace, push, .. } => {
                let kind = match push {
                    EndpointPush::NoPush => return None,
                    EndpointPush::Incremental => PushKind::Endpoints,
                    EndpointPush::Full => PushKind::Config(Kind::ServiceEntry),
                };
                Some(PushRequest::of(PushKey { kind, name: host, namespace }, Reason::Endpoint))
            }
            Self::Service { .. } | Self::EndpointsCacheOnly { .. } | Self::ProxyUpdate { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Registry;

    #[test]
    fn endpoints_push_themselves_or_their_service() {
        let update = |push| XdsUpdate::Endpoints {
            shard: ShardKey { provider: Registry::External, cluster: "c".into() },
            host: "h".into(),
            namespace: "ns".into(),
            count: 1,
            push,
        };
        let kind = |push| update(push).into_push().map(|r| r.keys.iter().map(|k| k.kind).collect::<Vec<_>>());
        assert_eq!(kind(EndpointPush::NoPush), None);
        assert_eq!(kind(EndpointPush::Incremental), Some(vec![PushKind::Endpoints]));
        assert_eq!(kind(EndpointPush::Full), Some(vec![PushKind::Config(Kind::ServiceEntry)]));
    }
}
