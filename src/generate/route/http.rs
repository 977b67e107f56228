//! The http rules of one VirtualService as Envoy routes (Istio's `BuildHTTPRoutesForVirtualService`, `TranslateRoute`).
//!
//! In two steps. [`VirtualServiceRoutes::resolve`] looks up everything that the rules refer to and decides which rules apply
//! to the proxy; its result is all that [`VirtualServiceRoutes::build`] reads, so [`VirtualServiceRoutes::key`] names the
//! output: equal keys, equal routes.

use std::collections::BTreeMap;

use super::{
    action, cluster_name,
    filters::{self, InferencePool},
    hash,
    headers::{self, HeaderOperations},
    key::KeyHasher,
    matching, retry,
    session::{STATEFUL_SESSION, Session},
};
use crate::{
    generate::names::{config_metadata, parse_subset_key},
    model::{Config, Features, Labels, Service, labels},
    proto::{
        envoy::config::{
            core::v3::header_value_option::HeaderAppendAction,
            route::v3::{
                Decorator, Route, RouteAction, WeightedCluster,
                route::Action,
                route_action::{ClusterNotFoundResponseCode, ClusterSpecifier},
                route_match::PathSpecifier,
                weighted_cluster::{ClusterWeight, cluster_weight},
            },
        },
        networking::{
            Destination, HttpMatchRequest, HttpRetry, HttpRoute, HttpRouteDestination, VirtualService,
            load_balancer_settings::ConsistentHashLb,
        },
        to_any,
    },
    push::virtual_services::{has_gateway_semantics, has_ingress_semantics},
};

/// The surroundings of a VirtualService that its rules refer to.
pub trait Lookup {
    /// The service of a destination host.
    fn service(&self, host: &str) -> Option<&Service>;
    /// The consistent hash that DestinationRules give to the `destination`-th destination of the `http`-th rule.
    fn consistent_hash(&self, http: usize, destination: usize, target: &Destination) -> Option<ConsistentHashLb>;
    /// The endpoint picker of the rule with this name.
    fn inference_pool(&self, _rule: &str) -> Option<InferencePool> {
        None
    }
}

/// The listener and the proxy of the routes.
#[derive(Debug, Clone, Copy)]
pub struct RouteOptions<'a> {
    /// Labels of the proxy, for `sourceLabels`.
    pub labels: &'a Labels,
    /// Namespace of the proxy, for `sourceNamespace`.
    pub namespace: &'a str,
    /// A proxyless gRPC client.
    pub proxyless: bool,
    /// Port that the routes are for.
    pub listen_port: u32,
    /// The listener terminates TLS.
    pub tls: bool,
    /// Responses advertise HTTP/3 on the same port.
    pub http3_alt_svc: bool,
    /// `x-forwarded-host` is added where the host is rewritten.
    pub append_x_forwarded_host: bool,
    /// Policy of rules that have none (`defaultHttpRetryPolicy`).
    pub default_retry: Option<&'a HttpRetry>,
    /// Feature flags of the process.
    pub features: &'a Features,
}

/// The rules of one VirtualService that apply to a proxy, and the objects that they refer to.
#[derive(Debug)]
pub struct VirtualServiceRoutes<'a> {
    config: &'a Config,
    rule: &'a VirtualService,
    options: RouteOptions<'a>,
    /// A prefix ends at a path segment: the VirtualService was made from Ingress or Gateway API.
    path_separated: bool,
    /// Rule and condition (`None`: without one) of every route, in order.
    selected: Vec<(usize, Option<usize>)>,
    resolved: BTreeMap<usize, ResolvedRule>,
}

#[derive(Debug, Default)]
struct ResolvedRule {
    destinations: Vec<ResolvedDestination>,
    mirror: String,
    mirrors: Vec<String>,
    session: Option<Session>,
    inference_pool: Option<InferencePool>,
}

#[derive(Debug)]
struct ResolvedDestination {
    cluster: String,
    hash: Option<ConsistentHashLb>,
}

impl<'a> VirtualServiceRoutes<'a> {
    /// Selects the rules that apply at one of the `gateways` (`mesh`, or `namespace/name`) and looks up the objects that
    /// they refer to; `None` when none applies.
    #[must_use]
    pub fn resolve(
        config: &'a Config,
        options: RouteOptions<'a>,
        gateways: &[&str],
        lookup: &dyn Lookup,
    ) -> Option<Self> {
        let selected = select(config.virtual_service()?, &options, gateways, is_path_separated(config));
        Self::of_selected(config, options, selected, lookup)
    }

    /// All rules, whatever they ask of the proxy.
    #[must_use]
    pub fn every(config: &'a Config, options: RouteOptions<'a>, lookup: &dyn Lookup) -> Option<Self> {
        let mut selected = Vec::new();
        for (index, http) in config.virtual_service()?.http.iter().enumerate() {
            let conditions = (0..http.r#match.len()).map(Some);
            let unconditional = http.r#match.is_empty().then_some(None);
            selected.extend(conditions.chain(unconditional).map(|condition| (index, condition)));
        }
        Self::of_selected(config, options, selected, lookup)
    }

    fn of_selected(
        config: &'a Config,
        options: RouteOptions<'a>,
        selected: Vec<(usize, Option<usize>)>,
        lookup: &dyn Lookup,
    ) -> Option<Self> {
        let rule = config.virtual_service()?;
        if selected.is_empty() {
            return None;
        }
        let resolved = selected
            .iter()
            .filter_map(|(http, _)| Some((*http, resolve_rule(*http, rule.http.get(*http)?, &options, lookup))))
            .collect();
        Some(Self { config, rule, options, path_separated: is_path_separated(config), selected, resolved })
    }

    /// The VirtualService.
    pub(super) fn config(&self) -> &Config {
        self.config
    }

    /// Names the output of [`Self::build`].
    #[must_use]
    pub fn key(&self) -> u128 {
        let o = &self.options;
        let mut key = KeyHasher::new("virtual-service");
        key.number(self.config.stamp).number(o.listen_port.into());
        for bit in
            [o.proxyless, o.tls, o.http3_alt_svc, o.append_x_forwarded_host, o.features.disable_shadow_host_suffix]
        {
            key.bit(bit);
        }
        key.message(o.default_retry);
        for (http, condition) in &self.selected {
            key.number(*http as u64).number(condition.map_or(u64::MAX, |c| c as u64));
        }
        for rule in self.resolved.values() {
            rule.add_to(&mut key);
        }
        key.finish()
    }

    /// The routes, in the order of the rules.
    #[must_use]
    pub fn build(&self) -> Vec<Route> {
        self.selected
            .iter()
            .filter_map(|(http, condition)| {
                let rule = self.rule.http.get(*http)?;
                let condition = condition.and_then(|c| rule.r#match.get(c));
                Some(self.route(rule, condition, self.resolved.get(http)?))
            })
            .collect()
    }

    fn route(&self, rule: &HttpRoute, condition: Option<&HttpMatchRequest>, resolved: &ResolvedRule) -> Route {
        let mut route = Route {
            name: route_name(rule, condition),
            r#match: Some(matching::translate(condition, self.path_separated)),
            metadata: Some(config_metadata(&self.config.meta, self.config.kind())),
            stat_prefix: condition.map(|c| c.stat_prefix.clone()).unwrap_or_default(),
            ..Default::default()
        };
        let operations = rule.headers.as_ref().map(HeaderOperations::of).unwrap_or_default();
        let authority = operations.authority;
        route.request_headers_to_add = operations.request_add;
        route.request_headers_to_remove = operations.request_remove;
        route.response_headers_to_add = operations.response_add;
        route.response_headers_to_remove = operations.response_remove;
        route.action = if let Some(redirect) = &rule.redirect {
            action::redirect(redirect, self.options.listen_port, self.options.tls).map(Action::Redirect)
        } else if let Some(response) = &rule.direct_response {
            Some(Action::DirectResponse(action::direct_response(response)))
        } else {
            let forward = self.forward(&mut route, rule, &authority, resolved);
            Some(Action::Route(forward))
        };
        let operation = operation(&route, &self.config.meta.name, self.options.listen_port);
        route.decorator = Some(Decorator { operation, ..Default::default() });
        add_filters(&mut route, rule, resolved);
        if self.options.http3_alt_svc {
            let value = format!("h3=\":{}\"; ma=86400", self.options.listen_port);
            let option = headers::option("alt-svc", &value, HeaderAppendAction::AppendIfExistsOrAdd);
            route.response_headers_to_add.push(option);
        }
        route
    }

    fn forward(&self, route: &mut Route, rule: &HttpRoute, authority: &str, resolved: &ResolvedRule) -> RouteAction {
        let options = &self.options;
        let gateway_semantics = has_gateway_semantics(self.config);
        let mut action = RouteAction::default();
        action::set_timeout(&mut action, rule.timeout, options.proxyless);
        if gateway_semantics {
            action.set_cluster_not_found_response_code(ClusterNotFoundResponseCode::InternalServerError);
        }
        let mut authority = authority;
        if let Some(rewrite) = &rule.rewrite {
            action.append_x_forwarded_host = options.append_x_forwarded_host;
            let route_match = route.r#match.get_or_insert_default();
            action::rewrite_path(&mut action, rewrite, route_match, gateway_semantics);
            if !rewrite.authority.is_empty() {
                authority = &rewrite.authority;
            }
        }
        action.host_rewrite_specifier = action::host_rewrite(authority);
        self.add_mirrors(&mut action, rule, resolved);
        let mut consistent_hash = false;
        if let ([target], [resolved]) = (rule.route.as_slice(), resolved.destinations.as_slice()) {
            single_destination(route, &mut action, target, resolved);
            consistent_hash = resolved.hash.is_some();
        } else {
            weighted_destinations(&mut action, rule, resolved);
        }
        action.retry_policy = retry::outbound(rule.retries.as_ref().or(options.default_retry), consistent_hash);
        action
    }

    fn add_mirrors(&self, action: &mut RouteAction, rule: &HttpRoute, resolved: &ResolvedRule) {
        let suffix = self.options.features.disable_shadow_host_suffix;
        if rule.mirror.is_some() {
            let fraction = action::mirror_fraction(rule);
            action.request_mirror_policies.extend(fraction.map(|f| action::mirror(&resolved.mirror, f, suffix)));
        }
        for (policy, cluster) in rule.mirrors.iter().zip(&resolved.mirrors) {
            let fraction = action::mirror_policy_fraction(policy).filter(|_| policy.destination.is_some());
            action.request_mirror_policies.extend(fraction.map(|f| action::mirror(cluster, f, suffix)));
        }
    }
}

fn is_path_separated(config: &Config) -> bool {
    has_gateway_semantics(config) || has_ingress_semantics(config)
}

impl ResolvedRule {
    fn add_to(&self, key: &mut KeyHasher) {
        key.number(self.destinations.len() as u64);
        for destination in &self.destinations {
            key.text(&destination.cluster).message(destination.hash.as_ref());
        }
        key.text(&self.mirror).number(self.mirrors.len() as u64);
        for mirror in &self.mirrors {
            key.text(mirror);
        }
        key.value(&self.session).value(&self.inference_pool);
    }
}

/// The routes that apply: by port, gateway, source labels and namespace; none behind a catch-all.
fn select(
    rule: &VirtualService,
    options: &RouteOptions,
    gateways: &[&str],
    path_separated: bool,
) -> Vec<(usize, Option<usize>)> {
    let mut selected = Vec::new();
    for (index, http) in rule.http.iter().enumerate() {
        if http.r#match.is_empty() {
            selected.push((index, None));
            break;
        }
        for (position, condition) in http.r#match.iter().enumerate().filter(|(_, c)| applies(c, options, gateways)) {
            selected.push((index, Some(position)));
            if matching::is_catch_all_condition(condition, path_separated) {
                return selected;
            }
        }
    }
    selected
}

fn applies(condition: &HttpMatchRequest, options: &RouteOptions, gateways: &[&str]) -> bool {
    if condition.port != 0 && condition.port != options.listen_port {
        return false;
    }
    if !condition.gateways.is_empty() {
        return condition.gateways.iter().any(|g| gateways.contains(&g.as_str()));
    }
    labels::matches(&condition.source_labels, options.labels)
        && (condition.source_namespace.is_empty() || condition.source_namespace == options.namespace)
}

fn resolve_rule(index: usize, rule: &HttpRoute, options: &RouteOptions, lookup: &dyn Lookup) -> ResolvedRule {
    let inference_pool = lookup.inference_pool(&rule.name);
    if rule.redirect.is_some() || rule.direct_response.is_some() {
        return ResolvedRule { inference_pool, ..Default::default() };
    }
    let cluster = |target: Option<&Destination>| {
        target.map_or_else(cluster_name::unknown, |t| cluster_name::of(t, lookup.service(&t.host), options.listen_port))
    };
    let destinations = rule.route.iter().enumerate().map(|(position, route)| {
        let target = route.destination.as_ref();
        let hash = target.and_then(|t| lookup.consistent_hash(index, position, t));
        ResolvedDestination { cluster: cluster(target), hash }
    });
    ResolvedRule {
        destinations: destinations.collect(),
        mirror: rule.mirror.as_ref().map(|m| cluster(Some(m))).unwrap_or_default(),
        mirrors: rule.mirrors.iter().map(|m| cluster(m.destination.as_ref())).collect(),
        session: session(rule, options.features, lookup),
        inference_pool,
    }
}

/// The session setting of a rule is that of its destinations in turn: the first wins over a second, none unsets it.
fn session(rule: &HttpRoute, features: &Features, lookup: &dyn Lookup) -> Option<Session> {
    if !features.enable_persistent_session_filter {
        return None;
    }
    let mut session = None;
    let single = rule.route.len() == 1;
    for route in rule.route.iter().filter(|r| single || r.weight != 0) {
        let service = route.destination.as_ref().and_then(|d| lookup.service(&d.host));
        let own = service.and_then(|s| Session::of(s, features));
        if own.is_some() && session.is_some() {
            break;
        }
        session = own;
    }
    session
}

fn single_destination(
    route: &mut Route,
    action: &mut RouteAction,
    target: &HttpRouteDestination,
    resolved: &ResolvedDestination,
) {
    action.cluster_specifier = Some(ClusterSpecifier::Cluster(resolved.cluster.clone()));
    if let Some(headers) = &target.headers {
        let operations = HeaderOperations::of(headers);
        route.request_headers_to_add.extend(operations.request_add);
        route.request_headers_to_remove.extend(operations.request_remove);
        route.response_headers_to_add.extend(operations.response_add);
        route.response_headers_to_remove.extend(operations.response_remove);
        if action.host_rewrite_specifier.is_none() {
            action.host_rewrite_specifier = action::host_rewrite(&operations.authority);
        }
    }
    action.hash_policy.extend(resolved.hash.as_ref().and_then(hash::policy));
}

/// Destinations without a weight get no requests, so they are left out.
fn weighted_destinations(action: &mut RouteAction, rule: &HttpRoute, resolved: &ResolvedRule) {
    let mut clusters = Vec::with_capacity(rule.route.len());
    for (target, resolved) in rule.route.iter().zip(&resolved.destinations).filter(|(t, _)| t.weight != 0) {
        let operations = target.headers.as_ref().map(HeaderOperations::of).unwrap_or_default();
        let authority = operations.authority;
        clusters.push(ClusterWeight {
            name: resolved.cluster.clone(),
            weight: Some(u32::try_from(target.weight).unwrap_or_default()),
            request_headers_to_add: operations.request_add,
            request_headers_to_remove: operations.request_remove,
            response_headers_to_add: operations.response_add,
            response_headers_to_remove: operations.response_remove,
            host_rewrite_specifier: (!authority.is_empty())
                .then_some(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral(authority)),
            ..Default::default()
        });
        action.hash_policy.extend(resolved.hash.as_ref().and_then(hash::policy));
    }
    action.cluster_specifier =
        Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() }));
}

fn add_filters(route: &mut Route, rule: &HttpRoute, resolved: &ResolvedRule) {
    let mut add = |name: &str, config| route.typed_per_filter_config.insert(name.to_string(), config);
    if let Some(pool) = &resolved.inference_pool {
        add(filters::EXT_PROC, to_any(&filters::endpoint_picker(pool)));
    }
    if let Some(fault) = &rule.fault {
        add(filters::FAULT, to_any(&filters::fault(fault)));
    }
    if let Some(cors) = &rule.cors_policy {
        add(filters::CORS, to_any(&filters::cors(cors)));
    }
    if let Some(session) = &resolved.session {
        add(STATEFUL_SESSION, session.per_route());
    }
}

fn route_name(rule: &HttpRoute, condition: Option<&HttpMatchRequest>) -> String {
    match condition {
        Some(condition) if !condition.name.is_empty() => format!("{}.{}", rule.name, condition.name),
        _ => rule.name.clone(),
    }
}

/// The operation of the route in traces: host and port of its only cluster, or the VirtualService's name, and the path
/// (Istio's `GetRouteOperation`).
fn operation(route: &Route, virtual_service: &str, port: u32) -> String {
    let path = match route.r#match.as_ref().and_then(|m| m.path_specifier.as_ref()) {
        Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
        Some(PathSpecifier::Path(path)) => path.clone(),
        Some(PathSpecifier::SafeRegex(regex)) => regex.regex.clone(),
        _ => "/*".to_string(),
    };
    let cluster = match &route.action {
        Some(Action::Route(RouteAction { cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)), .. })) => cluster,
        _ => "",
    };
    match parse_subset_key(cluster).filter(|_| cluster.matches('|').count() == 3) {
        Some((_, _, host, port)) => format!("{host}:{port}{path}"),
        None => format!("{virtual_service}:{port}{path}"),
    }
}
