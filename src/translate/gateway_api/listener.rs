//! Translation of one listener to an Istio server, and its status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    class::Controller,
    conditions::{Condition, Conditions, Problem},
    input::Input,
    listening::Owner,
    reference::{GROUP, Grants, GroupKind},
    tls,
    types::{
        RouteGroupKind,
        gateway::{AllowedRoutes, GatewaySpec, Listener},
    },
};
use crate::{
    model::{Kind, Labels},
    proto::networking::{Port, Server},
    translate::selector::selects_namespace,
};

/// The status of a listener.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerStatus {
    pub name: String,
    pub supported_kinds: Vec<RouteGroupKind>,
    pub attached_routes: u32,
    pub conditions: Vec<Condition>,
}

impl ListenerStatus {
    /// The status as JSON. Without supported kinds a Gateway writes an empty list; a ListenerSet omits the field.
    pub fn written(&self, owner: Kind) -> Value {
        let mut written = json!(self);
        if owner == Kind::ListenerSet && self.supported_kinds.is_empty() {
            written.as_object_mut().and_then(|fields| fields.remove("supportedKinds"));
        }
        written
    }
}

const LABEL_NETWORK: &str = "topology.istio.io/network";
const LABEL_GATEWAY_PORT: &str = "networking.istio.io/gatewayPort";

/// A translated listener.
pub struct Built {
    /// The server; `None` for a listener that only reserves its index.
    pub server: Option<Server>,
    /// Whether the listener may be programmed.
    pub valid: bool,
    conditions: Conditions,
}

/// Translates a listener. `port` is the effective port, or the reason there is none.
pub fn build(
    input: &Input<'_>,
    grants: &Grants,
    owner: &Owner<'_>,
    gateway: &GatewaySpec,
    listener: &Listener,
    port: Result<u32, String>,
    controller: Controller,
) -> Built {
    let mut conditions = Conditions::default()
        .good("Accepted", "Accepted", "No errors found")
        .good("Programmed", "Programmed", "No errors found")
        .good("ResolvedRefs", "ResolvedRefs", "No errors found");
    conditions.set("Conflicted", "False", "NoConflicts", "No errors found");
    let mut valid = true;
    let number = port.as_ref().copied().unwrap_or(listener.port);
    let settings = listener.tls.as_ref().map(|settings| {
        let auto = is_auto_passthrough(owner.labels, listener, number);
        let frontend = tls::frontend(gateway.tls.as_ref(), number);
        tls::server(input, grants, owner, settings, frontend, auto)
    });
    if let Some((_, Some(problem))) = &settings {
        valid = false;
        let of_ca = [tls::INVALID_CA_REF, tls::INVALID_CA_KIND, "RefNotPermitted"].contains(&problem.reason);
        if of_ca {
            conditions.problem("Accepted", Problem::new("NoValidCACertificate", problem.message.clone()));
        }
        conditions.problem("ResolvedRefs", problem.clone());
        conditions.problem("Programmed", Problem::new("Invalid", "Bad TLS configuration"));
    }
    let unsupported = |message: String| Problem::new("UnsupportedProtocol", message);
    let protocol = protocol(controller, &listener.protocol);
    for message in [port.err(), protocol.err()].into_iter().flatten() {
        valid = false;
        conditions.problem("Accepted", unsupported(message));
    }
    if let Some(message) = unexpected(controller, listener, number) {
        conditions.problem("Accepted", unsupported(message.to_string()));
    }
    let needs_tls = settings.is_none() && matches!(listener.protocol.as_str(), "HTTPS" | "TLS");
    if needs_tls && owner.kind == Kind::ListenerSet {
        valid = false;
        let message = format!("protocol is {} but no TLS section is defined", listener.protocol);
        conditions.problem("Accepted", unsupported(message));
        conditions.problem("Programmed", Problem::new("Invalid", "Bad TLS configuration"));
    }
    let server = Server {
        port: Some(Port { name: "default".into(), number, protocol: listener.protocol.clone(), ..Port::default() }),
        hosts: hosts(input, owner.namespace, listener),
        tls: settings.map(|(settings, _)| settings),
        ..Server::default()
    };
    Built { server: (!needs_tls).then_some(server), valid, conditions }
}

impl Built {
    /// Writes the listener's status at its index.
    pub fn report(self, index: usize, listener: &Listener, generation: i64, statuses: &mut Vec<ListenerStatus>) {
        set_status(index, listener, generation, self.conditions, statuses);
    }
}

/// Writes the status of a listener that lost a conflict at its index.
pub fn report_conflict(
    index: usize,
    listener: &Listener,
    generation: i64,
    reason: &'static str,
    statuses: &mut Vec<ListenerStatus>,
) {
    const MESSAGE: &str = "Listener has a conflict with another listener attached to the same Gateway";
    let mut conditions = Conditions::default();
    conditions.problem("Accepted", Problem::new(reason, MESSAGE));
    conditions.problem("Programmed", Problem::new(reason, MESSAGE));
    conditions.set("Conflicted", "True", reason, MESSAGE);
    set_status(index, listener, generation, conditions, statuses);
}

fn set_status(
    index: usize,
    listener: &Listener,
    generation: i64,
    mut conditions: Conditions,
    statuses: &mut Vec<ListenerStatus>,
) {
    if statuses.len() <= index {
        statuses.resize(index + 1, ListenerStatus::default());
    }
    let (supported_kinds, all) = supported_kinds(listener);
    if !all {
        conditions.set("ResolvedRefs", "False", "InvalidRouteKinds", "Invalid route kinds");
    }
    if let Some(status) = statuses.get_mut(index) {
        let existing = std::mem::take(&mut status.conditions);
        let conditions = conditions.over(existing, generation);
        *status = ListenerStatus { name: listener.name.clone(), supported_kinds, attached_routes: 0, conditions };
    }
}

/// Removes the statuses of listeners that no longer exist.
pub fn prune(statuses: &mut Vec<ListenerStatus>, listeners: &[Listener]) {
    let mut left: BTreeMap<&str, ()> = listeners.iter().map(|l| (l.name.as_str(), ())).collect();
    statuses.retain(|status| left.remove(status.name.as_str()).is_some());
}

/// Kinds of routes that may attach, and whether all requested kinds are supported.
pub fn supported_kinds(listener: &Listener) -> (Vec<RouteGroupKind>, bool) {
    let terminates = listener.tls.as_ref().is_some_and(|t| t.mode.as_deref() == Some("Terminate"));
    let kinds: &[Kind] = match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => &[Kind::HTTPRoute, Kind::GRPCRoute],
        "TCP" => &[Kind::TCPRoute],
        "TLS" if terminates => &[Kind::TLSRoute, Kind::TCPRoute],
        "TLS" => &[Kind::TLSRoute],
        _ => &[],
    };
    let of = |kind: &Kind| RouteGroupKind { group: Some(kind.group().into()), kind: kind.as_str().into() };
    let supported: Vec<RouteGroupKind> = kinds.iter().map(of).collect();
    let asked = listener.allowed_routes.as_ref().map_or(&[][..], |a| &a.kinds);
    if asked.is_empty() {
        return (supported, true);
    }
    let same = |a: &RouteGroupKind, b: &RouteGroupKind| {
        a.kind == b.kind && a.group.as_deref().unwrap_or(GROUP) == b.group.as_deref().unwrap_or(GROUP)
    };
    let both: Vec<_> = supported.into_iter().filter(|s| asked.iter().any(|a| same(s, a))).collect();
    let all = both.len() == asked.len();
    (both, all)
}

/// Whether the listener admits routes of this kind.
pub fn admits(kinds: &[RouteGroupKind], route: Kind) -> bool {
    kinds
        .iter()
        .any(|k| GroupKind::normalized(k.group.as_deref(), Some(&k.kind), Kind::GatewayClass) == GroupKind::of(route))
}

fn protocol(controller: Controller, protocol: &str) -> Result<(), String> {
    const KNOWN: [&str; 5] = ["HTTP", "HTTPS", "TLS", "TCP", "HBONE"];
    match protocol {
        "HTTP" | "HTTPS" | "TLS" | "TCP" => Ok(()),
        "HBONE" if matches!(controller, Controller::Mesh | Controller::EastWest) => Ok(()),
        "HBONE" => Err(format!("protocol {protocol:?} is only supported for waypoint proxies")),
        other => {
            let upper = other.to_uppercase();
            match KNOWN.contains(&upper.as_str()) {
                true => Err(format!("protocol {other:?} is unsupported. hint: {upper:?} (uppercase) may be supported")),
                false => Err(format!("protocol {other:?} is unsupported")),
            }
        }
    }
}

/// The problem of a mesh gateway whose listeners differ from the expected form.
fn unexpected(controller: Controller, listener: &Listener, port: u32) -> Option<&'static str> {
    let mode = listener.tls.as_ref().and_then(|t| t.mode.as_deref());
    match controller {
        Controller::Mesh if port != 15008 || listener.protocol != "HBONE" => {
            Some("Expected a single listener on port 15008 with protocol \"HBONE\"")
        }
        Controller::EastWest => {
            let expected = match port {
                15008 => listener.protocol == "HBONE" && mode == Some("Terminate"),
                _ => listener.protocol == "TLS" && mode == Some("Passthrough"),
            };
            (!expected).then_some(
                "East-west gateway listeners must be either port 15008 with protocol \"HBONE\" and TLS.Mode == \
                 Terminate, or TLS with TLS.Mode == Passthrough",
            )
        }
        _ => None,
    }
}

/// Whether the listener is for cross-network traffic: by its option, or by its owner's network label and the port for it.
fn is_auto_passthrough(labels: &Labels, listener: &Listener, port: u32) -> bool {
    let Some(tls) = &listener.tls else { return false };
    let by_option = tls.options.get("gateway.istio.io/listener-protocol").is_some_and(|v| v == "auto-passthrough");
    let expected = labels.get(LABEL_GATEWAY_PORT).map_or("15443", String::as_str);
    by_option || (labels.contains_key(LABEL_NETWORK) && port.to_string() == expected)
}

/// `NAMESPACE/HOST` for each namespace whose routes may attach; `~/HOST` without any.
fn hosts(input: &Input<'_>, namespace: &str, listener: &Listener) -> Vec<String> {
    let host = listener.hostname.as_deref().unwrap_or("*");
    let namespaces = namespaces(input, namespace, listener.allowed_routes.as_ref());
    match namespaces.is_empty() {
        true => vec![format!("~/{host}")],
        false => namespaces.iter().map(|ns| format!("{ns}/{host}")).collect(),
    }
}

fn namespaces(input: &Input<'_>, own: &str, allowed: Option<&AllowedRoutes>) -> Vec<String> {
    let allowed = allowed.and_then(|a| a.namespaces.as_ref());
    let from = allowed.and_then(|n| n.from.as_deref()).unwrap_or("Same");
    match (from, allowed.and_then(|n| n.selector.as_ref())) {
        ("Same", _) => vec![own.to_string()],
        ("All", _) | (_, None) => vec!["*".to_string()],
        (_, Some(selector)) => {
            let all = input.namespaces();
            let matching = all.iter().filter(|(name, labels)| selects_namespace(selector, name, labels));
            matching.map(|(name, _)| name.clone()).filter(|name| !name.is_empty()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_set_does_not_say_that_no_kind_may_attach() {
        let kinds = |owner| ListenerStatus::default().written(owner).get("supportedKinds").cloned();
        assert_eq!(kinds(Kind::KubernetesGateway), Some(json!([])));
        assert_eq!(kinds(Kind::ListenerSet), None);
    }
}
