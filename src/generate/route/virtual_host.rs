//! One virtual host: everything that it is built from, the key of that, and the message.

use std::sync::Arc;

use super::{
    defaults::{outbound_route, trace_operation},
    http::VirtualServiceRoutes,
    key::KeyHasher,
    matching,
    session::{STATEFUL_SESSION, Session},
};
use crate::{
    generate::{
        check::{self, CheckedHost},
        names::{Direction, subset_key},
    },
    model::ConfigKey,
    proto::{
        envoy::config::route::v3::{Route, VirtualHost, virtual_host::TlsRequirementType},
        networking::{HttpRetry, load_balancer_settings::ConsistentHashLb},
    },
};

/// The inputs of a virtual host. Its builder reads nothing else.
#[derive(Debug, Clone)]
pub struct VirtualHostInputs<'a> {
    /// `host:port`.
    pub name: String,
    /// Hosts that lead here; unique inside a route configuration.
    pub domains: Vec<String>,
    /// Routes, one source after the other.
    pub routes: Vec<Arc<RouteSource<'a>>>,
    /// Routes that take every request go behind all others, since they come from several VirtualServices.
    pub catch_all_last: bool,
    /// Plaintext requests are redirected to HTTPS.
    pub require_tls: bool,
    /// `x-envoy-attempt-count` is added to requests.
    pub include_attempt_count: bool,
    /// Sessions of the service stay with their endpoint.
    pub session: Option<Session>,
}

/// Routes that are built together, and the key of their inputs.
#[derive(Debug)]
pub struct RouteSource<'a> {
    key: u128,
    kind: SourceKind<'a>,
}

#[derive(Debug)]
enum SourceKind<'a> {
    VirtualService(VirtualServiceRoutes<'a>),
    Service(ServiceRoute<'a>),
}

/// The one route of a service port that no VirtualService touches.
#[derive(Debug, Clone)]
pub struct ServiceRoute<'a> {
    /// Host of the service.
    pub host: Arc<str>,
    /// Port of the service.
    pub port: u32,
    /// The mesh's retry policy.
    pub default_retry: Option<&'a HttpRetry>,
    /// Consistent hash of the service's DestinationRule.
    pub hash: Option<ConsistentHashLb>,
    /// The DestinationRule, where there is such a hash.
    pub rule: Option<ConfigKey>,
}

impl<'a> RouteSource<'a> {
    /// The rules of a VirtualService.
    #[must_use]
    pub fn virtual_service(routes: VirtualServiceRoutes<'a>) -> Self {
        Self { key: routes.key(), kind: SourceKind::VirtualService(routes) }
    }

    /// A service port.
    #[must_use]
    pub fn service(route: ServiceRoute<'a>) -> Self {
        let mut key = KeyHasher::new("service");
        key.text(&route.host).number(route.port.into()).message(route.default_retry).message(route.hash.as_ref());
        key.value(&route.rule);
        Self { key: key.finish(), kind: SourceKind::Service(route) }
    }

    /// The object that the routes are made from, as users know it.
    fn object(&self) -> Option<ConfigKey> {
        match &self.kind {
            SourceKind::VirtualService(routes) => Some(check::object_of(routes.config())),
            SourceKind::Service(route) => route.rule.clone(),
        }
    }

    fn build(&self) -> Vec<Route> {
        match &self.kind {
            SourceKind::VirtualService(routes) => routes.build(),
            SourceKind::Service(route) => vec![route.build()],
        }
    }
}

impl ServiceRoute<'_> {
    fn build(&self) -> Route {
        let cluster = subset_key(Direction::Outbound, "", &self.host, self.port);
        outbound_route(cluster, trace_operation(&self.host, self.port), self.default_retry, self.hash.as_ref())
    }
}

impl VirtualHostInputs<'_> {
    /// The key of the result of [`VirtualHostInputs::build`]: equal keys, equal virtual hosts.
    #[must_use]
    pub fn key(&self) -> u128 {
        let mut key = KeyHasher::new("virtual-host");
        key.text(&self.name).number(self.domains.len() as u64);
        for domain in &self.domains {
            key.text(domain);
        }
        key.number(self.routes.len() as u64);
        for source in &self.routes {
            key.key(source.key);
        }
        key.bit(self.catch_all_last).bit(self.require_tls).bit(self.include_attempt_count).value(&self.session);
        key.finish()
    }

    /// The virtual host as Envoy accepts it, and the parts that are left out for that.
    #[must_use]
    pub fn build(&self) -> CheckedHost {
        let (sources, host) = self.assemble();
        check::virtual_host(host, || self.objects(&sources))
    }

    /// The virtual host as it is, and the object of each route: for proxyless gRPC, which has other demands than Envoy, and for
    /// patches.
    #[must_use]
    pub fn unchecked(&self) -> (VirtualHost, Vec<Option<ConfigKey>>) {
        let (sources, host) = self.assemble();
        (host, self.objects(&sources))
    }

    /// The objects that the routes of these sources were made from.
    fn objects(&self, sources: &[usize]) -> Vec<Option<ConfigKey>> {
        let of_source: Vec<_> = self.routes.iter().map(|source| source.object()).collect();
        sources.iter().map(|source| of_source.get(*source).cloned().flatten()).collect()
    }

    /// The virtual host, and the sources of its routes by position.
    fn assemble(&self) -> (Vec<usize>, VirtualHost) {
        let (mut sources, mut routes) = (Vec::new(), Vec::new());
        for (source, of) in self.routes.iter().enumerate() {
            let built = of.build();
            sources.extend(std::iter::repeat_n(source, built.len()));
            // A route is large: nearly always there is one source, and its routes stay where they are.
            if routes.is_empty() { routes = built } else { routes.extend(built) }
        }
        let catches_all = |route: &Route| route.r#match.as_ref().is_some_and(matching::is_catch_all);
        if self.catch_all_last && !routes.is_sorted_by_key(catches_all) {
            let mut both: Vec<(usize, Route)> = sources.into_iter().zip(routes).collect();
            both.sort_by_key(|(_, route)| catches_all(route));
            (sources, routes) = both.into_iter().unzip();
        }
        (sources, self.with_routes(routes))
    }

    fn with_routes(&self, routes: Vec<Route>) -> VirtualHost {
        let tls = if self.require_tls { TlsRequirementType::All } else { TlsRequirementType::None };
        let session = self.session.iter().map(|s| (STATEFUL_SESSION.to_string(), s.per_route()));
        VirtualHost {
            name: self.name.clone(),
            domains: self.domains.clone(),
            routes,
            require_tls: tls.into(),
            include_request_attempt_count: self.include_attempt_count,
            typed_per_filter_config: session.collect(),
            ..Default::default()
        }
    }
}
