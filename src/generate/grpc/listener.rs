//! Listeners of gRPC: API listeners for the targets of a client, socket listeners for the servers.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::{
    rbac,
    tls::{TRANSPORT_SOCKET, common_context},
};
use crate::{
    generate::{
        addresses,
        names::{self, Direction},
    },
    model::ServiceTarget,
    proto::{
        envoy::{
            config::{
                core::v3::{
                    AggregatedConfigSource, ConfigSource, TransportSocket, config_source::ConfigSourceSpecifier,
                    transport_socket::ConfigType as SocketConfig,
                },
                listener::v3::{ApiListener, Filter, FilterChain, Listener, filter::ConfigType},
                route::v3::{
                    NonForwardingAction, Route, RouteConfiguration, RouteMatch, VirtualHost, route::Action,
                    route_match::PathSpecifier,
                },
            },
            extensions::{
                filters::{
                    http::{fault::v3::HttpFault, router::v3::Router},
                    network::http_connection_manager::v3::{
                        HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier,
                        http_filter::ConfigType as HttpConfig,
                    },
                },
                transport_sockets::tls::v3::DownstreamTlsContext,
            },
        },
        to_any,
    },
    push::{ProxyView, PushContext, authn::MtlsMode},
};

/// Prefix of the name of a server's listener; the address follows.
pub const SERVER_LISTENER_PREFIX: &str = "xds.istio.io/grpc/lds/inbound/";

/// The requested listener names, by the service host that they refer to.
#[derive(Debug, Default)]
struct Asked {
    /// The host as asked, one listener each.
    names: BTreeSet<String>,
    /// The requested ports; `None` is all.
    ports: Option<BTreeSet<String>>,
}

/// The listeners of these names. Without names, one for every port of every visible service.
#[must_use]
pub fn listeners(context: &PushContext, view: &ProxyView, wanted: &[String]) -> Vec<Listener> {
    let (servers, clients): (Vec<&String>, Vec<&String>) =
        wanted.iter().partition(|n| n.starts_with(SERVER_LISTENER_PREFIX));
    let mut all = outbound(context, view, &asked(&clients, view), wanted.is_empty());
    all.extend(servers.into_iter().filter_map(|name| inbound(context, view, name)));
    all
}

fn asked(names: &[&String], view: &ProxyView) -> BTreeMap<String, Asked> {
    let mut all: BTreeMap<String, Asked> = BTreeMap::new();
    for name in names {
        let (host, port) = match name.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
                (host.trim_start_matches('[').trim_end_matches(']'), Some(port))
            }
            _ => (name.as_str(), None),
        };
        for key in [Some(host.to_string()), full_name(host, view)].into_iter().flatten() {
            let known = all.contains_key(&key);
            let entry = all.entry(key).or_default();
            entry.names.insert(host.to_string());
            match port {
                Some(port) if !known => entry.ports = Some(BTreeSet::from([port.to_string()])),
                Some(port) => {
                    if let Some(ports) = &mut entry.ports {
                        ports.insert(port.to_string());
                    }
                }
                None => entry.ports = None,
            }
        }
    }
    all
}

/// A short name completed by the node's domain: `web`, `web.ns`, `web.ns.svc`.
fn full_name(name: &str, view: &ProxyView) -> Option<String> {
    if !name.contains('.') {
        return Some(format!("{name}.{}", view.dns_domain));
    }
    [view.namespace.to_string(), format!("{}.svc", view.namespace)].iter().find_map(|suffix| {
        let short = name.strip_suffix(suffix)?.strip_suffix('.')?;
        view.dns_domain.starts_with(suffix.as_str()).then(|| format!("{short}.{}", view.dns_domain))
    })
}

fn outbound(
    context: &PushContext,
    view: &ProxyView,
    asked: &BTreeMap<String, Asked>,
    everything: bool,
) -> Vec<Listener> {
    let mut all = Vec::new();
    for service in &context.scope(view).services {
        let own = BTreeSet::from([service.hostname.to_string()]);
        let (names, ports) = match asked.get(&*service.hostname) {
            Some(asked) => (&asked.names, asked.ports.as_ref()),
            None if everything => (&own, None),
            None => continue,
        };
        for name in names {
            for port in service.ports.iter().filter(|p| ports.is_none_or(|set| set.contains(&p.port.to_string()))) {
                let host = if name.contains(':') { format!("[{name}]") } else { name.clone() };
                all.push(Listener {
                    name: format!("{host}:{}", port.port),
                    address: Some(names::address(&addresses::address(service, view, context.features()), port.port)),
                    api_listener: Some(ApiListener {
                        api_listener: Some(to_any(&api_listener(&service.hostname, port.port))),
                    }),
                    ..Listener::default()
                });
            }
        }
    }
    all
}

fn api_listener(host: &str, port: u32) -> HttpConnectionManager {
    HttpConnectionManager {
        http_filters: vec![
            http_filter("envoy.filters.http.fault", to_any(&HttpFault::default())),
            http_filter("envoy.filters.http.router", to_any(&Router::default())),
        ],
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ConfigSource {
                config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
                ..ConfigSource::default()
            }),
            route_config_name: names::subset_key(Direction::Outbound, "", host, port),
        })),
        ..HttpConnectionManager::default()
    }
}

fn http_filter(name: &str, config: crate::proto::wkt::Any) -> HttpFilter {
    HttpFilter { name: name.to_string(), config_type: Some(HttpConfig::TypedConfig(config)), ..HttpFilter::default() }
}

/// The RDS name behind an API listener.
pub(super) fn route_name(listener: &Listener) -> Option<String> {
    let any = listener.api_listener.as_ref()?.api_listener.as_ref()?;
    match HttpConnectionManager::decode(any.value.as_slice()).ok()?.route_specifier? {
        RouteSpecifier::Rds(rds) => Some(rds.route_config_name),
        _ => None,
    }
}

/// A server's listener: its port must be one that the workload serves for some service.
fn inbound(context: &PushContext, view: &ProxyView, name: &str) -> Option<Listener> {
    let (host, port) = name.strip_prefix(SERVER_LISTENER_PREFIX)?.rsplit_once(':')?;
    let port: u32 = port.parse().ok()?;
    let target = view.targets.iter().rev().find(|t| t.target_port == port)?;
    Some(Listener {
        name: name.to_string(),
        address: Some(names::address(host.trim_start_matches('[').trim_end_matches(']'), port)),
        filter_chains: vec![inbound_chain(context, view, target)],
        ..Listener::default()
    })
}

/// gRPC cannot take both kinds of traffic on one port: permissive means mutual TLS for workloads with a label for it,
/// plaintext for the others.
fn inbound_chain(context: &PushContext, view: &ProxyView, target: &ServiceTarget) -> FilterChain {
    let labelled = view.labels.get("security.istio.io/tlsMode").is_some_and(|m| m == "istio");
    let mode = context.authn.mode(&view.namespace, &view.labels, Some(target.target_port));
    let mutual = mode == MtlsMode::Strict || (mode == MtlsMode::Permissive && labelled);
    let suffix = if mutual { "mtls" } else { "plaintext" };
    let mut http_filters = rbac::of_server(context, view);
    http_filters.push(http_filter("envoy.filters.http.router", to_any(&Router::default())));
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(RouteConfiguration {
            name: "inbound".to_string(),
            virtual_hosts: vec![VirtualHost {
                domains: vec!["*".to_string()],
                routes: vec![Route {
                    r#match: Some(RouteMatch {
                        path_specifier: Some(PathSpecifier::Prefix("/".to_string())),
                        ..RouteMatch::default()
                    }),
                    action: Some(Action::NonForwardingAction(NonForwardingAction::default())),
                    ..Route::default()
                }],
                ..VirtualHost::default()
            }],
            ..RouteConfiguration::default()
        })),
        http_filters,
        ..HttpConnectionManager::default()
    };
    let context = DownstreamTlsContext {
        common_tls_context: Some(common_context(&[])),
        require_client_certificate: Some(true),
        ..DownstreamTlsContext::default()
    };
    FilterChain {
        name: format!("inbound-{suffix}"),
        filters: vec![Filter {
            name: format!("inbound-hcm{suffix}"),
            config_type: Some(ConfigType::TypedConfig(to_any(&manager))),
        }],
        transport_socket: mutual.then(|| TransportSocket {
            name: TRANSPORT_SOCKET.to_string(),
            config_type: Some(SocketConfig::TypedConfig(to_any(&context))),
        }),
        ..FilterChain::default()
    }
}
