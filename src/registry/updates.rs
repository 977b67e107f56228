//! Updates for the xDS server that changes of the registry cause.

use std::sync::Arc;

use crate::model::{
    EventKind, Hostname, Kind, PushKey, PushRequest, Reason, RegistrySnapshot, ShardKey, push_request::PushKind,
};

/// The push that new endpoints of a service require (Istio's `PushType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointPush {
    /// No proxy sees a difference.
    NoPush,
    /// The endpoints only.
    Incremental,
    /// The service as well: it is new, or its service accounts changed.
    Full,
}

/// A call of Istio's `XDSUpdater`. The registry's snapshot already includes the endpoints and services of the call.
#[derive(Debug, Clone, PartialEq)]
pub enum XdsUpdate {
    /// A service was added, changed or deleted (`SvcUpdate`): for counters and debug pages; the push is a separate update.
    Service {
        /// Shard of the reporting registry.
        shard: ShardKey,
        /// Host name of the service.
        host: Hostname,
        /// Namespace of the service.
        namespace: Arc<str>,
        /// The type of the change.
        event: EventKind,
    },
    /// The endpoints of a service changed (`EDSUpdate`).
    Endpoints {
        /// Shard of the reporting registry.
        shard: ShardKey,
        /// Host name of the service.
        host: Hostname,
        /// Namespace of the service.
        namespace: Arc<str>,
        /// Number of endpoints in this shard now.
        count: usize,
        /// The required push.
        push: EndpointPush,
    },
    /// The endpoints of a service changed, and another update requests the push (`EDSCacheUpdate`).
    EndpointsCacheOnly {
        /// Shard of the reporting registry.
        shard: ShardKey,
        /// Host name of the service.
        host: Hostname,
        /// Namespace of the service.
        namespace: Arc<str>,
        /// Number of endpoints in this shard now.
        count: usize,
    },
    /// The proxy with this address has to recompute its own services and labels (`ProxyUpdate`).
    ProxyUpdate {
        /// Cluster id of the proxy.
        cluster: Arc<str>,
        /// First address of the proxy.
        ip: Arc<str>,
    },
    /// A push request (`ConfigUpdate`).
    Push(PushRequest),
}

impl XdsUpdate {
    /// The push request of this update: changed endpoints push themselves, or their service if it changed too.
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

/// The merged push request of a batch of updates. If the updates request none although the snapshot differs, a quiet request is
/// returned: Istio reports neither a Service that is exported to no namespace nor a deleted Pod, but the proxies of their own
/// workloads have to receive both changes.
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
