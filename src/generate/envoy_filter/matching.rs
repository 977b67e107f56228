//! Matches of patches on listeners, filter chains, filters, clusters, route configurations, virtual hosts and routes.

use super::PortMap;
use crate::{
    generate::names::parse_subset_key,
    proto::{
        envoy::config::{
            core::v3::{address::Address as AddressKind, socket_address::PortSpecifier},
            listener::v3::{FilterChain, Listener},
            route::v3::{Route, VirtualHost, route::Action},
        },
        networking::envoy_filter::{
            ApplyTo, ClusterMatch, ListenerMatch, PatchContext, RouteConfigurationMatch,
            envoy_config_object_match::ObjectTypes,
            listener_match::{FilterChainMatch, FilterMatch},
            route_configuration_match::{RouteMatch, VirtualHostMatch, route_match},
        },
    },
    push::envoy_filters::Patch,
};

const VIRTUAL: [&str; 2] = ["virtualInbound", "virtualOutbound"];

fn is_virtual(listener: &Listener) -> bool {
    VIRTUAL.contains(&listener.name.as_str())
}

fn listener_match(patch: &Patch) -> Option<&ListenerMatch> {
    match &patch.object {
        Some(ObjectTypes::Listener(of)) => Some(of),
        _ => None,
    }
}

fn chain_match(patch: &Patch) -> Option<&FilterChainMatch> {
    listener_match(patch)?.filter_chain.as_ref()
}

fn filter_match(patch: &Patch) -> Option<&FilterMatch> {
    chain_match(patch)?.filter.as_ref()
}

fn route_configuration_match(patch: &Patch) -> Option<&RouteConfigurationMatch> {
    match &patch.object {
        Some(ObjectTypes::RouteConfiguration(of)) => Some(of),
        _ => None,
    }
}

fn cluster_match(patch: &Patch) -> Option<&ClusterMatch> {
    match &patch.object {
        Some(ObjectTypes::Cluster(of)) => Some(of),
        _ => None,
    }
}

/// Whether a patch is for a listener, or for something in it.
pub(super) fn listener(patch: &Patch, listener: &Listener) -> bool {
    let Some(wanted) = listener_match(patch) else { return true };
    if !wanted.name.is_empty() && wanted.name != listener.name {
        return false;
    }
    // The ports of virtual listeners are those of their chains.
    if patch.apply_to != ApplyTo::Listener && is_virtual(listener) {
        return true;
    }
    wanted.port_number == 0 || port(listener) == Some(wanted.port_number)
}

fn port(listener: &Listener) -> Option<u32> {
    match listener.address.as_ref()?.address.as_ref()? {
        AddressKind::SocketAddress(socket) => match socket.port_specifier.as_ref()? {
            PortSpecifier::PortValue(port) => Some(*port),
            PortSpecifier::NamedPort(_) => None,
        },
        _ => None,
    }
}

/// Whether a patch is for a filter chain, or for something in it, of a listener that it is for.
pub(super) fn filter_chain(patch: &Patch, listener: &Listener, chain: &FilterChain) -> bool {
    let Some(of_listener) = listener_match(patch) else { return true };
    let own = chain.filter_chain_match.as_ref();
    let destination = own.and_then(|m| m.destination_port);
    if is_virtual(listener) && of_listener.port_number > 0 && destination.unwrap_or(0) != of_listener.port_number {
        return false;
    }
    let Some(wanted) = &of_listener.filter_chain else { return true };
    let is = |wanted: &str, got: Option<&String>| wanted.is_empty() || got.is_some_and(|got| got == wanted);
    is(&wanted.name, Some(&chain.name))
        && (wanted.sni.is_empty() || own.is_some_and(|m| m.server_names.contains(&wanted.sni)))
        && is(&wanted.transport_protocol, own.map(|m| &m.transport_protocol))
        && (wanted.application_protocols.is_empty()
            || own.is_some_and(|m| {
                wanted.application_protocols.split(',').all(|p| m.application_protocols.iter().any(|of| of == p))
            }))
        && (wanted.destination_port == 0 || destination == Some(wanted.destination_port))
        && is(&wanted.transport_socket, chain.transport_socket.as_ref().map(|socket| &socket.name))
}

/// The name of the listener filter that a patch is for.
pub(super) fn listener_filter(patch: &Patch) -> Option<&str> {
    listener_match(patch).map(|of| of.listener_filter.as_str()).filter(|name| !name.is_empty())
}

/// The name of the network filter that a patch is for.
pub(super) fn network_filter(patch: &Patch) -> Option<&str> {
    filter_match(patch).map(|of| of.name.as_str())
}

/// The name of the HTTP filter that a patch is for.
pub(super) fn http_filter(patch: &Patch) -> Option<&str> {
    filter_match(patch)?.sub_filter.as_ref().map(|of| of.name.as_str())
}

/// Whether a name is the wanted one, or none is wanted.
pub(super) fn is_named(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == name)
}

/// Whether a patch is for a cluster. `hosts` are the services behind an inbound one, whose name does not tell.
pub(super) fn cluster(patch: &Patch, name: &str, hosts: &[&str]) -> bool {
    let Some(wanted) = cluster_match(patch) else { return true };
    if !wanted.name.is_empty() {
        return wanted.name == name;
    }
    // Most patches are for another service: their names are not taken apart.
    if !wanted.service.is_empty() && hosts.is_empty() && !name.ends_with(&wanted.service) {
        return false;
    }
    let (direction, subset, host, port) = parse_subset_key(name).unwrap_or_default();
    let is_host = || match direction == "inbound" && !hosts.is_empty() {
        true => hosts.contains(&wanted.service.as_str()),
        false => wanted.service == host,
    };
    (wanted.subset.is_empty() || wanted.subset == subset)
        && (wanted.service.is_empty() || is_host())
        && (wanted.port_number == 0 || wanted.port_number == port)
}

/// Whether a patch is for a route configuration, or for something in it.
pub(super) fn route_configuration(patch: &Patch, context: PatchContext, ports: Option<&PortMap>, name: &str) -> bool {
    let Some(wanted) = route_configuration_match(patch) else { return true };
    if !wanted.name.is_empty() && wanted.name != name {
        return false;
    }
    if context != PatchContext::Gateway {
        return wanted.port_number == 0 || wanted.port_number == port_of_sidecar(name);
    }
    let (port, port_name, gateway) = of_gateway(name);
    (wanted.port_name.is_empty() || wanted.port_name == port_name)
        && (wanted.gateway.is_empty() || wanted.gateway == gateway)
        && (wanted.port_number == 0
            || ports
                .and_then(|ports| ports.get(&port))
                .map_or(port == wanted.port_number, |servers| servers.contains(&wanted.port_number)))
}

fn port_of_sidecar(name: &str) -> u32 {
    match name.starts_with("inbound|") || name.starts_with("outbound|") {
        true => parse_subset_key(name).map_or(0, |(_, _, _, port)| port),
        false => name.parse().unwrap_or(0),
    }
}

/// Port, port name and `namespace/gateway` of `http.PORT`, `http.PORT.BIND` or `https.PORT.PORTNAME.GATEWAY.NAMESPACE`
/// (Istio's `ParseGatewayRDSRouteName`).
fn of_gateway(name: &str) -> (u32, &str, String) {
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        ["http", port, ..] => (port.parse().unwrap_or(0), "", String::new()),
        ["https", port, port_name, gateway, namespace, ..] => {
            (port.parse().unwrap_or(0), port_name, format!("{namespace}/{gateway}"))
        }
        _ => (0, "", String::new()),
    }
}

fn host_match(patch: &Patch) -> Option<&VirtualHostMatch> {
    route_configuration_match(patch)?.vhost.as_ref()
}

/// Whether a patch is for a virtual host, or for something in it, of a route configuration that it is for.
pub(super) fn virtual_host(patch: &Patch, name: &str, domains: &[String]) -> bool {
    let Some(wanted) = host_match(patch) else { return true };
    (wanted.name.is_empty() || wanted.name == name)
        && (wanted.domain_name.is_empty() || domains.contains(&wanted.domain_name))
}

/// As [`virtual_host`].
pub(super) fn of_host(patch: &Patch, host: &VirtualHost) -> bool {
    virtual_host(patch, &host.name, &host.domains)
}

/// The routes that a patch is for; `None` is any.
pub(super) fn wanted_route(patch: &Patch) -> Option<&RouteMatch> {
    host_match(patch)?.route.as_ref()
}

/// Whether a route is the wanted one.
pub(super) fn route(wanted: Option<&RouteMatch>, route: &Route) -> bool {
    let Some(wanted) = wanted else { return true };
    if !wanted.name.is_empty() && wanted.name != route.name {
        return false;
    }
    let action = wanted.action();
    match &route.action {
        _ if action == route_match::Action::Any => true,
        Some(Action::Route(_)) => action == route_match::Action::Route,
        Some(Action::Redirect(_)) => action == route_match::Action::Redirect,
        Some(Action::DirectResponse(_)) => action == route_match::Action::DirectResponse,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_gateways_route_configurations() {
        assert_eq!(of_gateway("http.8080"), (8080, "", String::new()));
        assert_eq!(of_gateway("http.8080.10.0.0.1"), (8080, "", String::new()));
        assert_eq!(of_gateway("https.443.web.edge.shop"), (443, "web", "shop/edge".to_string()));
        assert_eq!(of_gateway("80"), (0, "", String::new()));
    }
}
