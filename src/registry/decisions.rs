//! From computed changes to xDS updates: the calls of Istio's `XDSUpdater` that a registry makes, and the endpoint index that
//! goes with them (serviceentry controller `push…Updates`, kube controller `addOrUpdateService`, `pushEDS`, service handlers).

use std::sync::Arc;

use super::{
    EndpointPush, XdsUpdate,
    external::{Changes, ServiceKey},
    kube::{Flushed, Unit},
    shards::EndpointShards,
};
use crate::model::{
    Endpoint, EventKind, Kind, PushKey, PushRequest, Reason, Resolution, Service, ShardKey, Visibility, labels,
    push_request::PushKind,
};

const NETWORK_LABELS: [&str; 2] = [labels::NETWORK, labels::GATEWAY_PORT];

/// Updates for a change of one Kubernetes Service or of its endpoints.
pub fn kubernetes(shards: &mut EndpointShards, shard: &ShardKey, flushed: &Flushed, updates: &mut Vec<XdsUpdate>) {
    let Some(unit) = flushed.new.as_ref().or(flushed.old.as_ref()) else { return };
    let speaker = Speaker { shard, key: unit.service.key() };
    let Some(new) = &flushed.new else {
        shards.delete(shard, &speaker.key.0, &speaker.key.1);
        updates.push(speaker.service(EventKind::Delete));
        updates.extend(gateway_push(Some(&unit.service), None));
        if !is_hidden(&unit.service) {
            updates.push(speaker.push(PushKind::Config(Kind::ServiceEntry), Reason::Service));
        }
        return;
    };
    let old = flushed.old.as_ref();
    if flushed.causes.service && old.is_none_or(|o| differs(o, new)) {
        updates.push(speaker.service(flushed.event()));
        updates.extend(gateway_push(old.map(|o| &o.service), Some(&new.service)));
    }
    let (before, now) = (Flushed::endpoints(old), Flushed::endpoints(Some(new)));
    if before != now {
        let push = shards.update(shard, &speaker.key.0, &speaker.key.1, &now);
        endpoint_updates(&speaker, flushed, new, push, now.len(), updates);
    }
    let hidden = is_hidden(&new.service) && old.is_none_or(|o| is_hidden(&o.service));
    if flushed.causes.service && !hidden && old.is_none_or(|o| differs(o, new)) {
        updates.push(speaker.push(PushKind::Config(Kind::ServiceEntry), Reason::Service));
    }
}

fn endpoint_updates(
    speaker: &Speaker,
    flushed: &Flushed,
    unit: &Unit,
    push: EndpointPush,
    count: usize,
    updates: &mut Vec<XdsUpdate>,
) {
    let causes = flushed.causes;
    let silent = is_hidden(&unit.service) || !(causes.endpoints || causes.relabelled);
    if silent {
        updates.push(speaker.endpoints_cache_only(count));
        return;
    }
    if causes.endpoints || push == EndpointPush::Full {
        updates.push(speaker.endpoints(count, push));
    } else {
        updates.push(speaker.endpoints_cache_only(count));
        updates.push(speaker.push(PushKind::Endpoints, Reason::Endpoint));
    }
    if unit.service.resolution == Resolution::Passthrough && unit.service.external_name.is_empty() {
        // Only listeners of ports whose protocol may be other than HTTP are bound to endpoint addresses.
        let http_only = unit.service.ports.iter().all(|p| p.protocol.is_http());
        let kind = if http_only { PushKind::DnsName } else { PushKind::Config(Kind::ServiceEntry) };
        updates.push(speaker.push(kind, Reason::HeadlessEndpoint));
    }
}

/// Updates for changes of ServiceEntries. `endpoints` returns the endpoints of a host and whether Envoy resolves some of them
/// by DNS.
pub fn external<'a>(
    shards: &mut EndpointShards,
    shard: &ShardKey,
    changes: &Changes,
    endpoints: impl Fn(&ServiceKey) -> (Vec<Arc<Endpoint>>, bool) + 'a,
    updates: &mut Vec<XdsUpdate>,
) {
    for (key, event) in &changes.hosts {
        let speaker = Speaker { shard, key: key.clone() };
        if *event == EventKind::Delete {
            shards.delete(shard, &key.0, &key.1);
            updates.push(speaker.service(EventKind::Delete));
            updates.push(speaker.endpoints(0, EndpointPush::Incremental));
            continue;
        }
        let (list, dns) = endpoints(key);
        let push = shards.update(shard, &key.0, &key.1, &list);
        updates.push(speaker.endpoints(list.len(), push));
        if dns && *event == EventKind::Update {
            updates.push(speaker.push(PushKind::Config(Kind::ServiceEntry), Reason::Endpoint));
        }
    }
    let mut request: Option<PushRequest> = None;
    for (key, event) in &changes.services {
        if *event != EventKind::Delete {
            updates.push(Speaker { shard, key: key.clone() }.service(*event));
        }
        let push_key =
            PushKey { kind: PushKind::Config(Kind::ServiceEntry), name: key.0.clone(), namespace: key.1.clone() };
        match &mut request {
            Some(request) => {
                request.keys.insert(push_key);
            }
            None => request = Some(PushRequest::of(push_key, Reason::Service)),
        }
    }
    updates.extend(request.map(XdsUpdate::Push));
}

/// A full push when a cross-network gateway changed its addresses or ports: all endpoints behind it are sent with other
/// addresses.
fn gateway_push(old: Option<&Arc<Service>>, new: Option<&Arc<Service>>) -> Option<XdsUpdate> {
    let face = |s: &Arc<Service>| {
        let labels = NETWORK_LABELS.map(|l| s.labels.get(l).cloned());
        let exposed = (s.cluster_external_addresses.clone(), s.cluster_external_ports.clone());
        labels[0].is_some().then_some((labels, exposed, s.ports.clone()))
    };
    (old.and_then(face) != new.and_then(face)).then(|| XdsUpdate::Push(PushRequest::everything(Reason::Networks)))
}

fn differs(old: &Unit, new: &Unit) -> bool {
    old.service.stamp != new.service.stamp || old.ports != new.ports
}

fn is_hidden(service: &Service) -> bool {
    service.export_to.contains(&Visibility::None)
}

/// Builds the updates of one service in one shard.
struct Speaker<'a> {
    shard: &'a ShardKey,
    key: ServiceKey,
}

impl Speaker<'_> {
    fn service(&self, event: EventKind) -> XdsUpdate {
        let (host, namespace) = self.key.clone();
        XdsUpdate::Service { shard: self.shard.clone(), host, namespace, event }
    }

    fn endpoints(&self, count: usize, push: EndpointPush) -> XdsUpdate {
        let (host, namespace) = self.key.clone();
        XdsUpdate::Endpoints { shard: self.shard.clone(), host, namespace, count, push }
    }

    fn endpoints_cache_only(&self, count: usize) -> XdsUpdate {
        let (host, namespace) = self.key.clone();
        XdsUpdate::EndpointsCacheOnly { shard: self.shard.clone(), host, namespace, count }
    }

    fn push(&self, kind: PushKind, reason: Reason) -> XdsUpdate {
        let (name, namespace) = self.key.clone();
        XdsUpdate::Push(PushRequest::of(PushKey { kind, name, namespace }, reason))
    }
}
