//! What a change of the registry means for the xDS server.

use std::sync::Arc;

use crate::model::{
    EventKind, Hostname, Kind, PushKey, PushRequest, Reason, RegistrySnapshot, ShardKey, push_request::PushKind,
};

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

/// The push that updates of the registry ask for together. Where they ask for none, though what the registry says differs,
/// a push is asked for all the same: Istio speaks of no Service that is exported to nobody, nor of a pod that is gone, but
/// their own workloads are told of both.
#[must_use]
pub fn push_of(before: &RegistrySnapshot, now: &RegistrySnapshot, updates: Vec<XdsUpdate>) -> Option<PushRequest> {
    let mut push: Option<PushRequest> = None;
    for update in updates {
        let proxy = matches!(update, XdsUpdate::ProxyUpdate { .. }).then(|| PushRequest::quiet(Reason::Proxy));
        match (proxy.or_else(|| update.into_push()), &mut push) {
            (Some(request), Some(all)) => all.merge(request),
            (Some(request), none) => *none = Some(request),
            (None, _) => {}
        }
    }
    push.or_else(|| differ(before, now).then(|| PushRequest::quiet(Reason::Proxy)))
}

fn differ(before: &RegistrySnapshot, now: &RegistrySnapshot) -> bool {
    !Arc::ptr_eq(&before.services, &now.services)
        || !Arc::ptr_eq(&before.endpoints, &now.endpoints)
        || !now.moved_since(before).is_empty()
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
