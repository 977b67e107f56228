//! Names in resources: their own, and those of the resources that they lead Envoy to ask for.

use std::collections::BTreeSet;

use pilothouse::{
    proto::{
        envoy::{
            config::{
                cluster::v3::{Cluster, cluster::ClusterDiscoveryType},
                core::v3::{TransportSocket, config_source::ConfigSourceSpecifier, transport_socket},
                endpoint::v3::ClusterLoadAssignment,
                listener::v3::{Listener, filter},
                route::v3::{RouteConfiguration, route::Action, route_action::ClusterSpecifier},
            },
            extensions::{
                filters::network::http_connection_manager::v3::{
                    HttpConnectionManager, http_connection_manager::RouteSpecifier, http_filter,
                },
                transport_sockets::tls::v3::{
                    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret, UpstreamTlsContext,
                    common_tls_context::ValidationContextType,
                },
            },
        },
        wkt::Any,
    },
    xds::ResourceType,
};
use prost::Message;

type Names = BTreeSet<String>;

fn decode<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).expect("a resource that does not decode")
}

/// The name of a resource.
pub fn name(kind: ResourceType, bytes: &[u8]) -> String {
    match kind {
        ResourceType::Cluster => decode::<Cluster>(bytes).name,
        ResourceType::Endpoint => decode::<ClusterLoadAssignment>(bytes).cluster_name,
        ResourceType::Listener => decode::<Listener>(bytes).name,
        ResourceType::Route => decode::<RouteConfiguration>(bytes).name,
        ResourceType::Secret => decode::<Secret>(bytes).name,
        ResourceType::Extension => {
            decode::<pilothouse::proto::envoy::config::core::v3::TypedExtensionConfig>(bytes).name
        }
        // The one resource of its type, by the name that incremental responses give it.
        ResourceType::NameTable => "NameTable".to_string(),
        ResourceType::Objects(_) | ResourceType::ProxyConfig => String::new(),
    }
}

/// The EDS names in clusters.
pub fn endpoints<'a>(clusters: impl Iterator<Item = &'a [u8]>) -> Names {
    let named = |cluster: Cluster| match (cluster.cluster_discovery_type, cluster.eds_cluster_config) {
        (Some(ClusterDiscoveryType::Type(3)), Some(eds)) if !eds.service_name.is_empty() => Some(eds.service_name),
        (Some(ClusterDiscoveryType::Type(3)), Some(_)) => Some(cluster.name),
        _ => None,
    };
    clusters.filter_map(|bytes| named(decode(bytes))).collect()
}

fn managers(listener: &Listener) -> Vec<HttpConnectionManager> {
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    let filters = chains.flat_map(|chain| &chain.filters).filter_map(|f| match &f.config_type {
        Some(filter::ConfigType::TypedConfig(any)) => Some(any),
        _ => None,
    });
    let api = listener.api_listener.iter().filter_map(|a| a.api_listener.as_ref());
    let is_manager = |any: &&Any| any.type_url.ends_with(".HttpConnectionManager");
    filters.chain(api).filter(is_manager).map(|any| decode(&any.value)).collect()
}

/// The RDS names in listeners.
pub fn routes<'a>(listeners: impl Iterator<Item = &'a [u8]>) -> Names {
    let rds = |manager: HttpConnectionManager| match manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => Some(rds.route_config_name),
        _ => None,
    };
    listeners.flat_map(|bytes| managers(&decode(bytes))).filter_map(rds).collect()
}

/// The ECDS names in listeners, of HTTP filters and of network filters.
pub fn extensions<'a>(listeners: impl Iterator<Item = &'a [u8]>) -> Names {
    let of_one = |bytes: &[u8]| {
        let listener: Listener = decode(bytes);
        let found = |config: &http_filter::ConfigType| matches!(config, http_filter::ConfigType::ConfigDiscovery(_));
        let http = managers(&listener).into_iter().flat_map(|manager| manager.http_filters);
        let mut names: Names = http.filter(|f| f.config_type.as_ref().is_some_and(found)).map(|f| f.name).collect();
        let found = |config: &filter::ConfigType| matches!(config, filter::ConfigType::ConfigDiscovery(_));
        let chains = listener.filter_chains.into_iter().chain(listener.default_filter_chain);
        let network = chains.flat_map(|chain| chain.filters);
        names.extend(network.filter(|f| f.config_type.as_ref().is_some_and(found)).map(|f| f.name));
        names
    };
    listeners.flat_map(of_one).collect()
}

/// The clusters of routes: a gRPC client asks for these.
pub fn clusters<'a>(routes: impl Iterator<Item = &'a [u8]>) -> Names {
    let mut names = Names::new();
    let all = routes.flat_map(|bytes| decode::<RouteConfiguration>(bytes).virtual_hosts).flat_map(|host| host.routes);
    for route in all {
        let Some(Action::Route(action)) = route.action else { continue };
        match action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => drop(names.insert(name)),
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                names.extend(weighted.clusters.into_iter().map(|c| c.name));
            }
            _ => {}
        }
    }
    names
}

/// The SDS names in clusters and listeners for the stream that they came on.
pub fn secrets<'a>(clusters: impl Iterator<Item = &'a [u8]>, listeners: impl Iterator<Item = &'a [u8]>) -> Names {
    let of_clusters = clusters.flat_map(|bytes| {
        let cluster: Cluster = decode(bytes);
        let matches = cluster.transport_socket_matches.into_iter().filter_map(|m| m.transport_socket);
        cluster.transport_socket.into_iter().chain(matches).collect::<Vec<_>>()
    });
    let of_listeners = listeners.flat_map(|bytes| {
        let listener: Listener = decode(bytes);
        let chains = listener.filter_chains.into_iter().chain(listener.default_filter_chain);
        chains.filter_map(|chain| chain.transport_socket).collect::<Vec<_>>()
    });
    of_clusters.chain(of_listeners).filter_map(|socket| context(&socket)).flat_map(|c| of_context(&c)).collect()
}

fn context(socket: &TransportSocket) -> Option<CommonTlsContext> {
    let Some(transport_socket::ConfigType::TypedConfig(any)) = &socket.config_type else { return None };
    match any.type_url.rsplit('.').next() {
        Some("UpstreamTlsContext") => decode::<UpstreamTlsContext>(&any.value).common_tls_context,
        Some("DownstreamTlsContext") => decode::<DownstreamTlsContext>(&any.value).common_tls_context,
        _ => None,
    }
}

fn of_context(context: &CommonTlsContext) -> Names {
    let validation = match &context.validation_context_type {
        Some(ValidationContextType::ValidationContextSdsSecretConfig(config)) => Some(config),
        Some(ValidationContextType::CombinedValidationContext(both)) => {
            both.validation_context_sds_secret_config.as_ref()
        }
        _ => None,
    };
    let over_ads = |config: &&SdsSecretConfig| {
        let source = config.sds_config.as_ref().and_then(|s| s.config_source_specifier.as_ref());
        matches!(source, Some(ConfigSourceSpecifier::Ads(_)))
    };
    let all = context.tls_certificate_sds_secret_configs.iter().chain(validation);
    all.filter(over_ads).map(|config| config.name.clone()).collect()
}
