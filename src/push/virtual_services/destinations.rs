//! The hosts that a VirtualService routes to (Istio's `virtualServiceDestinations`).

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::networking::{Destination, HttpRoute, VirtualService};

/// Destination hosts with the ports asked for, 0 for "no port given". With a `source_namespace`, HTTP routes whose matches
/// all name other source namespaces are left out.
#[must_use]
pub fn destinations<'a>(spec: &'a VirtualService, source_namespace: &str) -> BTreeMap<&'a str, BTreeSet<u32>> {
    let mut hosts: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let mut add = |destination: Option<&'a Destination>| {
        if let Some(d) = destination {
            hosts.entry(&d.host).or_default().insert(d.port.as_ref().map_or(0, |p| p.number));
        }
    };
    for http in spec.http.iter().filter(|h| source_namespace.is_empty() || may_come_from(h, source_namespace)) {
        http.route.iter().for_each(|r| add(r.destination.as_ref()));
        add(http.mirror.as_ref());
        http.mirrors.iter().for_each(|m| add(m.destination.as_ref()));
    }
    for tcp in &spec.tcp {
        tcp.route.iter().for_each(|r| add(r.destination.as_ref()));
    }
    for tls in &spec.tls {
        tls.route.iter().for_each(|r| add(r.destination.as_ref()));
    }
    hosts
}

fn may_come_from(route: &HttpRoute, namespace: &str) -> bool {
    let mut named = route.r#match.iter().filter(|m| !m.source_namespace.is_empty()).peekable();
    named.peek().is_none() || named.any(|m| m.source_namespace == namespace)
}
