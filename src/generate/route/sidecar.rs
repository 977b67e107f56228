//! Outbound route configurations of a sidecar (Istio's `buildSidecarOutboundHTTPRouteConfig`).
//!
//! A name is a port, `host:port` for one service on a sniffed port, `http_proxy`, or a `unix://` socket. Virtual hosts come
//! from the VirtualServices of the egress listener, oldest first, then from services without one; the first that claims a
//! name or a domain keeps it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use indexmap::IndexMap;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    catch_all,
    domains::{Domains, bracketed, virtual_host_domains},
    hash,
    http::{Lookup, RouteOptions, VirtualServiceRoutes},
    session::Session,
    table::{self, RouteTable},
    virtual_host::{RouteSource, ServiceRoute, VirtualHostInputs},
};
use crate::{
    generate::{
        endpoint::destination_rule,
        names::host_port,
        proxy_config::{self, ListenerClass, ProxyHeaders},
    },
    model::{Config, ConfigKey, Hostname, Port, Protocol, Resolution, Service, host},
    proto::{
        envoy::config::route::v3::{RouteConfiguration, VirtualHost},
        networking::{Destination, VirtualService, load_balancer_settings::ConsistentHashLb},
    },
    push::{
        EgressListener, ProxyView, PushContext, SidecarScope,
        virtual_services::{MESH_GATEWAY, has_gateway_semantics},
    },
};

const HTTP_PROXY: &str = "http_proxy";
const UNIX_PREFIX: &str = "unix://";
const HTTP_PORT: u32 = 80;

/// The meaning of a route name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RouteName {
    /// Port of the listener; 0 for a proxy or a socket.
    port: u32,
    /// `host:port`: only the virtual host of that host.
    sniffed: bool,
}

impl RouteName {
    fn parse(name: &str) -> Option<Self> {
        if name == HTTP_PROXY || name.starts_with(UNIX_PREFIX) {
            return Some(Self { port: 0, sniffed: false });
        }
        let (sniffed, port) = name.split_once(':').map_or((false, name), |(_, port)| (true, port));
        Some(Self { port: port.parse().ok()?, sniffed })
    }
}

/// One outbound route configuration; a name without a service, port or host gives an empty one.
#[must_use]
pub fn outbound(context: &PushContext, view: &ProxyView, name: &str) -> RouteConfiguration {
    let scope = context.scope(view);
    table(context, view, &scope, name, &mut HashMap::new()).map_or_else(|| table::empty(name), |t| t.build())
}

/// The virtual hosts of one port for a proxyless gRPC client, which asks for routes by another name.
#[must_use]
pub fn proxyless_virtual_hosts(
    context: &PushContext,
    view: &ProxyView,
    name: &str,
    port: u32,
) -> Vec<(VirtualHost, Vec<Option<ConfigKey>>)> {
    let scope = context.scope(view);
    let hosts = Outbound::new(context, view, &scope, name, port).map(|o| o.virtual_hosts()).unwrap_or_default();
    hosts.iter().map(VirtualHostInputs::unchecked).collect()
}

/// Virtual hosts by port, for several route configurations of one proxy.
pub(super) type ByPort<'a> = HashMap<u32, Vec<VirtualHostInputs<'a>>>;

/// Gathers one route configuration; `None` when the name has no service, port or host.
pub(super) fn table<'a>(
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: &'a SidecarScope,
    name: &str,
    by_port: &mut ByPort<'a>,
) -> Option<RouteTable<'a>> {
    let parsed = RouteName::parse(name)?;
    let gather = || Outbound::new(context, view, scope, name, parsed.port).map(|o| o.virtual_hosts());
    let mut hosts = if parsed.port == 0 {
        gather().unwrap_or_default()
    } else if parsed.sniffed {
        let all = by_port.entry(parsed.port).or_insert_with(|| gather().unwrap_or_default());
        of_sniffed_port(all, name)
    } else {
        by_port.entry(parsed.port).or_insert_with(|| gather().unwrap_or_default()).clone()
    };
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    let last = (!parsed.sniffed).then(|| catch_all::virtual_host(view, scope, &proxy_headers(context, view)));
    Some(RouteTable { name: name.to_string(), hosts, last })
}

/// The virtual host of `host:port`. It is the only one of its listener, so it takes every host.
fn of_sniffed_port<'a>(hosts: &[VirtualHostInputs<'a>], name: &str) -> Vec<VirtualHostInputs<'a>> {
    let without_port = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let without_port = without_port.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(without_port);
    let serves = |h: &&VirtualHostInputs| h.domains.iter().any(|d| d == name || d == without_port);
    let mut found: Vec<_> = hosts.iter().filter(serves).cloned().collect();
    if let [only] = found.as_mut_slice() {
        only.domains = vec!["*".to_string()];
    }
    found
}

fn proxy_headers(context: &PushContext, view: &ProxyView) -> ProxyHeaders {
    ProxyHeaders::of(&proxy_config::effective(context, view), ListenerClass::SidecarOutbound)
}

/// Services by host name, in lower case where only one port counts.
type Registry<'a> = IndexMap<Hostname, &'a Service>;

struct Outbound<'a> {
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: &'a SidecarScope,
    listener: &'a EgressListener,
    /// 0: all ports of all services.
    port: u32,
    registry: Registry<'a>,
    headers: ProxyHeaders,
}

/// Virtual hosts that share their routes.
struct HostGroup<'a> {
    port: u32,
    /// Hosts of a VirtualService that are no services.
    hosts: Vec<String>,
    services: Vec<(Hostname, &'a Service)>,
    routes: Arc<RouteSource<'a>>,
}

impl<'a> Outbound<'a> {
    fn new(
        context: &'a PushContext,
        view: &'a ProxyView,
        scope: &'a SidecarScope,
        name: &str,
        port: u32,
    ) -> Option<Self> {
        let listener = scope.egress_for_route(port, name)?;
        let is_proxy = listener
            .spec
            .as_ref()
            .and_then(|s| s.port.as_ref())
            .is_some_and(|p| Protocol::parse(&p.protocol) == Protocol::HttpProxy);
        let port = if is_proxy { 0 } else { port };
        let registry = listener
            .services
            .iter()
            .filter(|service| port == 0 || service.port_by_number(port).is_some())
            .map(|service| {
                let host = &service.hostname;
                (if port == 0 { host.clone() } else { lower_case_host(host) }, &**service)
            })
            .collect();
        let headers = proxy_headers(context, view);
        Some(Self { context, view, scope, listener, port, registry, headers })
    }

    fn virtual_hosts(&self) -> Vec<VirtualHostInputs<'a>> {
        let mut groups: Vec<_> = self
            .listener
            .virtual_services
            .iter()
            .filter(|config| self.port == HTTP_PORT || self.selects(config))
            .flat_map(|config| self.groups_of(config))
            .collect();
        let taken: HashSet<&str> = groups.iter().flat_map(|g| &g.services).map(|(host, _)| &**host).collect();
        let plain: Vec<_> = self
            .registry
            .iter()
            .filter(|(host, service)| !taken.contains(&***host) && self.has_cluster(service))
            .flat_map(|(host, service)| self.http_ports(service).map(move |port| (host, *service, port)))
            .map(|(host, service, port)| self.plain_group(host, service, port.port))
            .collect();
        groups.extend(plain);
        Hosts::new(self, &groups).collect(&groups)
    }

    /// Whether the service has clusters of its own. An ExternalName service is another name of its service; proxyless gRPC
    /// resolves one that is none of the mesh, of which Envoy passes the calls on.
    fn has_cluster(&self, service: &Service) -> bool {
        let is_outside = || is_proxyless(self.view) && self.scope.outside_name(service).is_some();
        service.resolution != Resolution::Alias || is_outside()
    }

    /// Whether some host of the VirtualService is one of the listener's services.
    fn selects(&self, config: &Config) -> bool {
        let Some(rule) = config.virtual_service() else { return false };
        rule.hosts.iter().map(|h| h.to_lowercase()).any(|wanted| {
            self.registry.contains_key(wanted.as_str())
                || self
                    .registry
                    .keys()
                    .filter(|h| host::is_wildcard(&wanted) || host::is_wildcard(h))
                    .any(|h| host::matches(&wanted, h))
        })
    }

    fn http_ports(&self, service: &'a Service) -> impl Iterator<Item = &'a Port> + use<'a> {
        let wanted = self.port;
        service
            .ports
            .iter()
            .filter(move |p| (wanted == 0 || p.port == wanted) && (p.protocol.is_http() || p.protocol.is_unsupported()))
    }

    fn plain_group(&self, host: &Hostname, service: &'a Service, port: u32) -> HostGroup<'a> {
        let rule = self.scope.destination_rule(self.view, host);
        let hash = rule.and_then(|r| hash::of_port(&r.rule, port)).cloned();
        let default_retry = self.context.mesh().config.default_http_retry_policy.as_ref();
        let rule = rule.filter(|_| hash.is_some()).map(|rule| destination_rule(rule));
        let route = ServiceRoute { host: host.clone(), port, default_retry, hash, rule };
        HostGroup {
            port,
            hosts: Vec::new(),
            services: vec![(host.clone(), service)],
            routes: Arc::new(RouteSource::service(route)),
        }
    }

    /// The virtual hosts of a VirtualService, grouped by port so that a destination without one gets it from there.
    fn groups_of(&self, config: &'a Arc<Config>) -> Vec<HostGroup<'a>> {
        let Some(rule) = config.virtual_service() else { return Vec::new() };
        let options = RouteOptions {
            labels: &self.view.labels,
            namespace: &self.view.namespace,
            proxyless: is_proxyless(self.view),
            listen_port: self.port,
            tls: false,
            http3_alt_svc: false,
            append_x_forwarded_host: self.headers.x_forwarded_host,
            default_retry: self.context.mesh().config.default_http_retry_policy.as_ref(),
            features: self.context.features(),
        };
        let Some(routes) = VirtualServiceRoutes::resolve(config, options, &[MESH_GATEWAY], self) else {
            return Vec::new();
        };
        let routes = Arc::new(RouteSource::virtual_service(routes));
        let (hosts, services) = self.split_hosts(config, rule);
        if has_gateway_semantics(config) && !self.may_route(config, &services) {
            return Vec::new();
        }
        let mut by_port: BTreeMap<u32, Vec<(Hostname, &Service)>> = BTreeMap::new();
        for (host, service) in services {
            for port in self.http_ports(service) {
                by_port.entry(port.port).or_default().push((host.clone(), service));
            }
        }
        // Hosts that are in no registry get their routes on port 80 only.
        if by_port.is_empty() && self.port == HTTP_PORT {
            by_port.insert(HTTP_PORT, Vec::new());
        }
        by_port
            .into_iter()
            .map(|(port, services)| HostGroup { port, hosts: hosts.clone(), services, routes: routes.clone() })
            .collect()
    }

    /// Gateway API: routes count for clients of their own namespace, and for all clients of services beside them.
    fn may_route(&self, config: &Config, services: &[(Hostname, &Service)]) -> bool {
        let own = self.view.namespace == config.meta.namespace;
        services.iter().any(|(_, service)| own || service.namespace == config.meta.namespace)
    }

    /// Hosts of a VirtualService that are no services, and the services that it covers.
    fn split_hosts(&self, config: &Config, rule: &VirtualService) -> (Vec<String>, Vec<(Hostname, &'a Service)>) {
        let (wildcards, exact): (Vec<_>, Vec<_>) =
            rule.hosts.iter().map(|h| h.to_lowercase()).partition(|h| host::is_wildcard(h));
        let (mut hosts, mut services) = (Vec::new(), Vec::new());
        for wanted in exact {
            match self.registry.get_key_value(wanted.as_str()) {
                Some((host, service)) => services.push((host.clone(), *service)),
                None => hosts.push(wanted),
            }
        }
        for wildcard in wildcards {
            if has_gateway_semantics(config) {
                hosts.push(wildcard);
                continue;
            }
            let mut covered = self.registry.iter().filter(|(h, _)| host::matches(&wildcard, h)).peekable();
            if covered.peek().is_none() {
                hosts.push(wildcard);
                continue;
            }
            let most_specific = covered.filter(|(h, _)| self.is_most_specific(config, h));
            services.extend(most_specific.map(|(h, service)| (h.clone(), *service)));
        }
        (hosts, services)
    }

    fn is_most_specific(&self, config: &Config, host: &str) -> bool {
        self.listener
            .most_specific_virtual_services
            .get(host)
            .is_some_and(|(namespace, name)| *namespace == config.meta.namespace && *name == config.meta.name)
    }
}

impl Lookup for Outbound<'_> {
    fn service(&self, host: &str) -> Option<&Service> {
        self.registry.get(host).copied()
    }

    fn consistent_hash(&self, _: usize, _: usize, target: &Destination) -> Option<ConsistentHashLb> {
        let rule = self.scope.destination_rule(self.view, &target.host)?;
        hash::of_destination(&rule.rule, target).cloned()
    }
}

/// Gives out names and domains, each once.
struct Hosts<'o, 'a> {
    outbound: &'o Outbound<'a>,
    /// Hashes of the names.
    names: HashSet<u128>,
    /// Hashes of the domains in lower case.
    domains: HashSet<u128>,
    /// Services: a derived domain gives way to their full names, with their port or without one.
    known: HashMap<&'o str, Vec<u32>>,
}

impl<'o, 'a> Hosts<'o, 'a> {
    fn new(outbound: &'o Outbound<'a>, groups: &'o [HostGroup<'a>]) -> Self {
        let mut known: HashMap<&str, Vec<u32>> = HashMap::new();
        for (host, port) in groups.iter().flat_map(|g| g.services.iter().map(|(host, _)| (host, g.port))) {
            known.entry(host).or_default().push(port);
        }
        Self { outbound, names: HashSet::new(), domains: HashSet::new(), known }
    }

    fn collect(mut self, groups: &[HostGroup<'a>]) -> Vec<VirtualHostInputs<'a>> {
        let mut all = Vec::new();
        for group in groups {
            let hosts = group.hosts.iter().map(|host| (host.as_str(), None));
            let services = group.services.iter().map(|(host, service)| (&**host, Some(*service)));
            all.extend(hosts.chain(services).filter_map(|(host, service)| {
                self.virtual_host(host, service, group).map(|inputs| (group.port, inputs))
            }));
        }
        if self.outbound.port != 0 {
            return all.into_iter().map(|(_, inputs)| inputs).collect();
        }
        all.into_iter().filter_map(|(port, inputs)| for_any_port(port, inputs)).collect()
    }

    fn virtual_host(
        &mut self,
        host: &str,
        service: Option<&Service>,
        group: &HostGroup<'a>,
    ) -> Option<VirtualHostInputs<'a>> {
        let name = host_port(host, group.port);
        if !self.names.insert(xxh3_128(name.as_bytes())) {
            return None;
        }
        let outbound = self.outbound;
        let features = outbound.context.features();
        let domains = self.unique(self.domains(host, service, group.port));
        (!domains.is_empty()).then(|| VirtualHostInputs {
            name,
            domains,
            routes: vec![group.routes.clone()],
            catch_all_last: false,
            require_tls: false,
            include_attempt_count: outbound.headers.attempt_count,
            session: service.and_then(|s| Session::of(s, features)),
        })
    }

    fn domains(&self, host: &str, service: Option<&Service>, port: u32) -> Domains {
        let Outbound { context, view, port: listen_port, .. } = self.outbound;
        let ignore_port = !is_proxyless(view);
        let Some(service) = service else {
            let mut all = vec![bracketed(host)];
            all.extend((!ignore_port).then(|| host_port(host, port)));
            return Domains { all, derived: Vec::new() };
        };
        let with_port = (!ignore_port || *listen_port == 0).then_some(port);
        virtual_host_domains(host, service, with_port, *listen_port == 0, view, context.features())
    }

    fn unique(&mut self, domains: Domains) -> Vec<String> {
        let Domains { mut all, derived } = domains;
        all.retain(|domain| {
            let gives_way = derived.contains(domain) && self.is_known(domain);
            !gives_way && self.domains.insert(xxh3_128(lower_case(domain).as_bytes()))
        });
        all
    }

    /// Whether a domain is the host of a service, or host and port. An address in brackets is none.
    fn is_known(&self, domain: &str) -> bool {
        let with_port = |(host, port): (&str, &str)| {
            let ports = self.known.get(host);
            ports.is_some_and(|ports| port.parse().is_ok_and(|port| ports.contains(&port)))
        };
        self.known.contains_key(domain) || domain.rsplit_once(':').is_some_and(with_port)
    }
}

/// Of several ports behind one listener, only port 80 may be meant by a host without a port.
fn for_any_port(port: u32, mut inputs: VirtualHostInputs) -> Option<VirtualHostInputs> {
    if port != HTTP_PORT {
        inputs.domains.retain(|domain| domain.contains(':'));
    }
    (!inputs.domains.is_empty()).then_some(inputs)
}

fn is_proxyless(view: &ProxyView) -> bool {
    &*view.metadata.generator == "grpc"
}

fn lower_case_host(host: &Hostname) -> Hostname {
    match lower_case(host) {
        Cow::Borrowed(_) => host.clone(),
        Cow::Owned(lower) => lower.into(),
    }
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_uppercase) { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_names() {
        let name = |port, sniffed| Some(RouteName { port, sniffed });
        assert_eq!(RouteName::parse("8080"), name(8080, false));
        assert_eq!(RouteName::parse("a.example:80"), name(80, true));
        assert_eq!(RouteName::parse(HTTP_PROXY), name(0, false));
        assert_eq!(RouteName::parse("unix:///tmp/s"), name(0, false));
        for unknown in ["", "http.8080", "outbound|80||a.example", "a:b", "99999999999"] {
            assert_eq!(RouteName::parse(unknown), None, "{unknown}");
        }
    }
}
