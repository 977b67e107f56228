//! Conflicts between listeners of one Gateway and its ListenerSets: the first listener takes precedence.

use std::collections::BTreeMap;

use super::{
    class,
    input::{Input, Object},
    listener_sets::accepts_listeners_of,
    types::gateway::{GatewaySpec, Listener},
};
use crate::model::{ConfigKey, Kind};

/// Reasons of conflict by object and listener name.
pub type Conflicts = BTreeMap<ConfigKey, BTreeMap<String, &'static str>>;

/// The conflicts of all Gateways that may have ListenerSets.
pub fn conflicts(input: &Input<'_>) -> Conflicts {
    let mut all = Conflicts::new();
    for parent in &input.gateways {
        let controller = class::controller_of(input, &parent.spec.gateway_class_name);
        if controller.is_some_and(class::Controller::supports_listener_sets) {
            of_gateway(input, parent, &mut all);
        }
    }
    all
}

fn of_gateway(input: &Input<'_>, parent: &Object<GatewaySpec>, all: &mut Conflicts) {
    let mut sets: Vec<_> = input
        .listener_sets
        .iter()
        .filter(|set| {
            let reference = &set.spec.parent_ref;
            reference.name == parent.name()
                && reference.namespace.as_deref().unwrap_or(set.namespace()) == parent.namespace()
                && accepts_listeners_of(input, parent, set.namespace())
        })
        .collect();
    sets.sort_by_key(|set| (set.config.meta.creation, format!("{}/{}", set.namespace(), set.name())));
    let own = parent.spec.listeners.iter().map(|l| (parent.config.key(), l.port, l));
    let of_sets = sets
        .iter()
        .flat_map(|set| set.spec.listeners.iter().map(|l| (set.config.key(), effective_port(l).unwrap_or(l.port), l)));
    let mut accepted: Vec<(u32, &Listener)> = Vec::new();
    for (owner, port, listener) in own.chain(of_sets) {
        match accepted.iter().find(|(p, prior)| *p == port && !distinct(listener, prior)) {
            Some((_, prior)) => {
                all.entry(owner).or_default().insert(listener.name.clone(), reason(listener, prior));
            }
            None => accepted.push((port, listener)),
        }
    }
}

/// The port of a ListenerSet's listener; HTTP and HTTPS have a default.
///
/// # Errors
/// The status text for a missing port.
pub fn effective_port(listener: &Listener) -> Result<u32, String> {
    match (listener.port, listener.protocol.as_str()) {
        (0, "HTTP") => Ok(80),
        (0, "HTTPS") => Ok(443),
        (0, protocol) => Err(format!("protocol {protocol} requires a port to be set")),
        (port, _) => Ok(port),
    }
}

fn is_layer4(protocol: &str) -> bool {
    matches!(protocol, "TCP" | "UDP")
}

fn is_http_like(protocol: &str) -> bool {
    matches!(protocol, "HTTP" | "HTTPS" | "TLS")
}

/// Whether two listeners can share a port.
fn distinct(a: &Listener, b: &Listener) -> bool {
    let (p, q) = (a.protocol.as_str(), b.protocol.as_str());
    if (is_layer4(p) && (is_layer4(q) || is_http_like(q))) || (is_http_like(p) && is_layer4(q)) {
        return false;
    }
    if is_http_like(p) && is_http_like(q) {
        let host = |l: &Listener| l.hostname.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| "*".to_string());
        return host(a) != host(b);
    }
    p != q
}

fn reason(a: &Listener, b: &Listener) -> &'static str {
    if (is_layer4(&a.protocol) && is_layer4(&b.protocol)) || a.protocol != b.protocol {
        return "ProtocolConflict";
    }
    "HostnameConflict"
}

/// Conflicts of the listeners of one object.
pub fn of<'a>(
    all: &'a Conflicts,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Option<&'a BTreeMap<String, &'static str>> {
    all.get(&ConfigKey { kind, namespace: namespace.into(), name: name.into() })
}
