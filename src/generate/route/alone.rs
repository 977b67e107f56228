//! The routes of one VirtualService without a mesh around it: whether some Envoy would refuse them.

use std::sync::Arc;

use super::{
    http::{Lookup, RouteOptions, VirtualServiceRoutes},
    virtual_host::{RouteSource, VirtualHostInputs},
};
use crate::{
    generate::check::Refusal,
    model::{Config, Features, Labels, Service},
    proto::networking::{Destination, load_balancer_settings::ConsistentHashLb},
};

/// No service and no DestinationRule is known.
struct Nothing;

impl Lookup for Nothing {
    fn service(&self, _: &str) -> Option<&Service> {
        None
    }

    fn consistent_hash(&self, _: usize, _: usize, _: &Destination) -> Option<ConsistentHashLb> {
        None
    }
}

/// The refusals of Envoy for the http rules of a VirtualService, whichever proxy they are for.
#[must_use]
pub fn refusals(config: &Config, features: &Features) -> Vec<Refusal> {
    let labels = Labels::default();
    let options = RouteOptions {
        labels: &labels,
        namespace: &config.meta.namespace,
        proxyless: false,
        listen_port: 80,
        tls: false,
        http3_alt_svc: false,
        append_x_forwarded_host: false,
        default_retry: None,
        features,
    };
    let Some(routes) = VirtualServiceRoutes::every(config, options, &Nothing) else { return Vec::new() };
    let host = VirtualHostInputs {
        name: config.meta.name.to_string(),
        domains: config.virtual_service().map(|rule| rule.hosts.clone()).unwrap_or_default(),
        routes: vec![Arc::new(RouteSource::virtual_service(routes))],
        catch_all_last: false,
        require_tls: false,
        include_attempt_count: false,
        session: None,
    };
    host.build().refused
}
