//! Route configurations of a gateway (Istio's `buildGatewayHTTPRouteConfig`).
//!
//! One serves all servers behind one RDS name. A virtual host is a host that a server and a VirtualService have in common;
//! VirtualServices of one host add their routes to each other's. Hosts with the very same routes share a virtual host.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    InferencePool, hash,
    http::{Lookup, RouteOptions, VirtualServiceRoutes},
    session::Session,
    table::{self, RouteTable},
    virtual_host::{RouteSource, VirtualHostInputs},
};
use crate::{
    generate::{
        names::host_port,
        proxy_config::{self, ListenerClass, ProxyHeaders},
    },
    model::{Config, Service, host},
    proto::{
        envoy::config::route::v3::{RouteConfiguration, VirtualHost},
        networking::{Destination, VirtualService, load_balancer_settings::ConsistentHashLb},
    },
    push::{MergedGateway, ProxyView, PushContext, SidecarScope, gateways::GatewayServer},
};

/// One route configuration. A name without servers gives an empty one: listeners that are drained still ask.
#[must_use]
pub fn gateway(context: &PushContext, view: &ProxyView, merged: &MergedGateway, name: &str) -> RouteConfiguration {
    let scope = context.scope(view);
    let configs = Configs::of(context, view, merged, name);
    table(context, view, &scope, merged, &configs, name).map_or_else(|| table::empty(name), |t| t.build())
}

/// VirtualServices of the gateways behind one RDS name, by gateway.
pub(super) struct Configs(HashMap<Arc<str>, Vec<Arc<Config>>>);

impl Configs {
    pub(super) fn of(context: &PushContext, view: &ProxyView, merged: &MergedGateway, name: &str) -> Self {
        let servers = merged.servers_by_route_name.get(name).into_iter().flatten();
        let list = |server: &Arc<GatewayServer>| context.virtual_services.for_gateway(view, &server.gateway);
        Self(servers.map(|server| (server.gateway.clone(), list(server))).collect())
    }
}

/// Gathers one route configuration; `None` when no server stands behind the name.
pub(super) fn table<'a>(
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: &'a SidecarScope,
    merged: &MergedGateway,
    configs: &'a Configs,
    name: &str,
) -> Option<RouteTable<'a>> {
    let servers = merged.servers_by_route_name.get(name)?;
    let first = servers.first()?;
    let headers = ProxyHeaders::of(&proxy_config::effective(context, view), ListenerClass::Gateway);
    let http3 = merged.http3_advertising_routes.contains(name);
    let mut router = Router { context, view, scope, headers, http3, hosts: BTreeMap::new(), routes: HashMap::new() };
    for server in servers {
        for config in configs.0.get(&server.gateway).into_iter().flatten() {
            router.add(server, config);
        }
        router.add_redirects(server);
    }
    let features = context.features();
    let last = router.hosts.is_empty().then(|| not_found(first.port.number));
    let mut hosts: Vec<_> = if features.enable_route_collapse_optimization {
        collapse(router.hosts)
    } else {
        router.hosts.into_values().collect()
    };
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    Some(RouteTable { name: name.to_string(), hosts, last })
}

struct Router<'a> {
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: &'a SidecarScope,
    headers: ProxyHeaders,
    http3: bool,
    hosts: BTreeMap<String, VirtualHostInputs<'a>>,
    /// Routes by gateway and VirtualService. The result for the first server of a gateway holds for all its servers.
    routes: HashMap<(Arc<str>, *const Config), Option<Arc<RouteSource<'a>>>>,
}

impl<'a> Router<'a> {
    fn add(&mut self, server: &GatewayServer, config: &'a Arc<Config>) {
        let Some(rule) = config.virtual_service() else { return };
        let hosts = common_hosts(&server_hosts(server, &config.meta.namespace), &rule.hosts);
        if hosts.is_empty() {
            return;
        }
        let Some(routes) = self.routes_of(server, config) else { return };
        for host in hosts {
            let session = self.session(config, rule, &host);
            let virtual_host = self.virtual_host(host, server, session);
            virtual_host.routes.push(routes.clone());
        }
    }

    fn routes_of(&mut self, server: &GatewayServer, config: &'a Arc<Config>) -> Option<Arc<RouteSource<'a>>> {
        let key = (server.gateway.clone(), Arc::as_ptr(config));
        if let Some(routes) = self.routes.get(&key) {
            return routes.clone();
        }
        let lookup = GatewayLookup { context: self.context, view: self.view, scope: self.scope, config };
        let options = RouteOptions {
            labels: &self.view.labels,
            namespace: &self.view.namespace,
            proxyless: false,
            listen_port: server.port.number,
            tls: server.spec.tls.is_some(),
            http3_alt_svc: self.http3,
            append_x_forwarded_host: self.headers.x_forwarded_host,
            default_retry: self.context.mesh().config.default_http_retry_policy.as_ref(),
            features: self.context.features(),
        };
        let routes = VirtualServiceRoutes::resolve(config, options, &[&server.gateway], &lookup)
            .map(|routes| Arc::new(RouteSource::virtual_service(routes)));
        self.routes.insert(key, routes.clone());
        routes
    }

    /// The virtual host of a host, made where there is none; only a new one gets the session.
    fn virtual_host(
        &mut self,
        host: String,
        server: &GatewayServer,
        session: Option<Session>,
    ) -> &mut VirtualHostInputs<'a> {
        let include_attempt_count = self.headers.attempt_count;
        let virtual_host = self.hosts.entry(host).or_insert_with_key(|host| VirtualHostInputs {
            name: host_port(host, server.port.number),
            domains: vec![host.clone()],
            routes: Vec::new(),
            catch_all_last: true,
            require_tls: false,
            include_attempt_count,
            session,
        });
        virtual_host.require_tls |= redirects_to_https(server);
        virtual_host
    }

    /// A server that redirects does so for hosts without a VirtualService too.
    fn add_redirects(&mut self, server: &GatewayServer) {
        if redirects_to_https(server) {
            for host in &server.spec.hosts {
                self.virtual_host(host.to_lowercase(), server, None);
            }
        }
    }

    /// Sessions count for a host that is itself one of the VirtualService's destinations.
    fn session(&self, config: &Config, rule: &VirtualService, host: &str) -> Option<Session> {
        let features = self.context.features();
        if !features.enable_persistent_session_filter || !destination_hosts(rule).any(|h| h == host) {
            return None;
        }
        let lookup = GatewayLookup { context: self.context, view: self.view, scope: self.scope, config };
        Session::of(lookup.service(host)?, features)
    }
}

fn redirects_to_https(server: &GatewayServer) -> bool {
    server.spec.tls.as_ref().is_some_and(|tls| tls.https_redirect)
}

fn destination_hosts(rule: &VirtualService) -> impl Iterator<Item = &str> {
    rule.http
        .iter()
        .flat_map(|http| {
            let mirrors = http.mirrors.iter().filter_map(|m| m.destination.as_ref());
            http.mirror.iter().chain(mirrors).chain(http.route.iter().filter_map(|r| r.destination.as_ref()))
        })
        .map(|destination| destination.host.as_str())
}

/// A service beside the VirtualService comes first, then the one that the gateway's namespace sees.
struct GatewayLookup<'a> {
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: &'a SidecarScope,
    config: &'a Config,
}

impl Lookup for GatewayLookup<'_> {
    fn service(&self, host: &str) -> Option<&Service> {
        let services = &self.context.services;
        services
            .get(host, &self.config.meta.namespace)
            .filter(|s| services.is_visible(s, &self.view.namespace))
            .or_else(|| self.scope.services_by_host.get(host))
            .map(|service| &**service)
    }

    fn consistent_hash(&self, _: usize, _: usize, target: &Destination) -> Option<ConsistentHashLb> {
        let rule = self.scope.destination_rule(self.view, &target.host)?;
        hash::of_destination(&rule.rule, target).cloned()
    }

    fn inference_pool(&self, rule: &str) -> Option<InferencePool> {
        InferencePool::of_rule(self.context, self.config, rule)
    }
}

/// Hosts of a server that a VirtualService of this namespace may use, without the namespace.
fn server_hosts<'s>(server: &'s GatewayServer, namespace: &str) -> Vec<&'s str> {
    let usable = |host: &'s String| match host.split_once('/') {
        Some((wanted, host)) => (wanted == namespace || wanted == "*").then_some(host),
        None => Some(host.as_str()),
    };
    server.spec.hosts.iter().filter_map(usable).collect()
}

/// The hosts that both sides cover, the narrower form of each, in lower case (Istio's `Names.Intersection`).
fn common_hosts(server: &[&str], rule: &[String]) -> Vec<String> {
    let mut common: Vec<String> = Vec::new();
    let pairs = server.iter().flat_map(|s| rule.iter().map(move |r| (*s, r.as_str())));
    for (server, rule) in pairs {
        let narrower = if host::subset_of(server, rule) {
            server
        } else if host::subset_of(rule, server) {
            rule
        } else {
            continue;
        };
        let narrower = narrower.to_lowercase();
        if !common.contains(&narrower) {
            common.push(narrower);
        }
    }
    common
}

/// Puts hosts with the very same routes into one virtual host, named after the most specific of them.
fn collapse(hosts: BTreeMap<String, VirtualHostInputs>) -> Vec<VirtualHostInputs> {
    let mut ordered: Vec<_> = hosts.into_iter().collect();
    ordered.sort_by(|(a, _), (b, _)| host::specificity(a, b));
    let mut out: Vec<VirtualHostInputs> = Vec::with_capacity(ordered.len());
    let mut known: HashMap<Vec<*const RouteSource>, usize> = HashMap::new();
    for (_, virtual_host) in ordered {
        let routes: Vec<_> = virtual_host.routes.iter().map(Arc::as_ptr).collect();
        let same = known.get(&routes).and_then(|index| out.get_mut(*index));
        match same.filter(|first| first.require_tls == virtual_host.require_tls) {
            Some(first) => first.domains.extend(virtual_host.domains),
            None => {
                known.insert(routes, out.len());
                out.push(virtual_host);
            }
        }
    }
    out
}

/// Without routes Envoy answers 404.
fn not_found(port: u32) -> VirtualHost {
    VirtualHost { name: host_port("blackhole", port), domains: vec!["*".to_string()], ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(server: &[&str], rule: &[&str]) -> Vec<String> {
        common_hosts(server, &rule.iter().map(|h| (*h).to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn the_narrower_of_two_hosts_counts() {
        assert_eq!(common(&["foo.com", "bar.com"], &["*.com"]), ["foo.com", "bar.com"]);
        assert_eq!(common(&["foo.com", "*.net"], &["*.com", "bar.net"]), ["foo.com", "bar.net"]);
        assert_eq!(common(&["foo.com", "*.net"], &["*.bar.net"]), ["*.bar.net"]);
        assert_eq!(common(&["*"], &["Foo.com", "foo.com"]), ["foo.com"]);
        assert!(common(&["foo.com"], &["bar.com"]).is_empty());
    }
}
