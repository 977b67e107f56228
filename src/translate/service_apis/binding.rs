//! Binding of routes to Gateways: both sides must admit it.

use std::collections::BTreeMap;

use super::{
    Input,
    types::{GatewayAllow, Listener, RouteGateways, RouteSelect},
};
use crate::{
    model::{Config, ConfigKey, Kind},
    translate::selector::{selects, selects_namespace},
};

/// Names of the Istio Gateways (`namespace/name`) that each route is bound to, in the order of the Gateways.
#[derive(Debug, Default)]
pub struct Bound(BTreeMap<ConfigKey, Vec<String>>);

impl Bound {
    /// The Gateways of a route; `None` when no listener admits it.
    pub fn gateways(&self, route: &Config) -> Option<&Vec<String>> {
        self.0.get(&route.key())
    }

    /// Binds the routes that a listener admits. The listeners of one Gateway must be bound in a row.
    pub fn bind(&mut self, input: &Input<'_>, gateway: &Config, listener: &Listener, name: &str) {
        let http = input.http_routes.iter().map(|r| (&r.config, &r.spec.gateways));
        let streams = input.tcp_routes.iter().chain(&input.tls_routes).map(|r| (&r.config, &r.spec.gateways));
        for (route, _) in
            http.chain(streams).filter(|(r, g)| takes(input, gateway, listener, r) && allows(gateway, r, g))
        {
            let bound = self.0.entry(route.key()).or_default();
            if bound.last().is_none_or(|last| last != name) {
                bound.push(name.to_string());
            }
        }
    }
}

/// Whether a listener admits a route: by its kind, labels and namespace.
fn takes(input: &Input<'_>, gateway: &Config, listener: &Listener, route: &Config) -> bool {
    let (wanted, kind) = (&listener.routes, route.kind());
    let group = wanted.group.as_deref().filter(|g| !g.is_empty()).unwrap_or(Kind::ServiceApisGateway.group());
    if wanted.kind != kind.as_str() || group != kind.group() {
        return false;
    }
    let value = |key: &str| route.meta.labels.get(key).map(String::as_str);
    if !selects(&wanted.selector, value) {
        return false;
    }
    let namespace = &*route.meta.namespace;
    match wanted.namespaces.from {
        RouteSelect::All => true,
        RouteSelect::Same => *gateway.meta.namespace == *namespace,
        RouteSelect::Selector => {
            let found = input.objects.get(Kind::Namespace, "", namespace);
            found.is_some_and(|n| selects_namespace(&wanted.namespaces.selector, namespace, &n.meta.labels))
        }
    }
}

/// Whether a route admits a Gateway.
fn allows(gateway: &Config, route: &Config, gateways: &RouteGateways) -> bool {
    match gateways.allow {
        GatewayAllow::All => true,
        GatewayAllow::SameNamespace => gateway.meta.namespace == route.meta.namespace,
        GatewayAllow::FromList => {
            let is_it =
                |name: &str, namespace: &str| *gateway.meta.name == *name && *gateway.meta.namespace == *namespace;
            gateways.gateway_refs.iter().any(|r| is_it(&r.name, &r.namespace))
        }
    }
}
