//! Clusters whose host is resolved per request (dynamic forward proxy): ServiceEntries with `DYNAMIC_DNS`, and unknown
//! destinations under `ALLOW_ANY_DYNAMIC_DNS`.

use super::{connection_pool, draft::Draft, inputs::ClusterInputs};
use crate::{
    generate::dns_cache,
    proto::{
        envoy::{
            config::cluster::v3::{
                Cluster,
                cluster::{ClusterDiscoveryType, CustomClusterType, LbPolicy},
            },
            extensions::{
                clusters::dynamic_forward_proxy::v3::{ClusterConfig, cluster_config::ClusterImplementationSpecifier},
                common::dynamic_forward_proxy::v3::DnsCacheConfig,
            },
        },
        to_any,
    },
};
use prost::Message;

/// A cluster that resolves hosts through this DNS cache. Without TLS that checks the host, Envoy demands `insecure`.
pub(super) fn draft(name: &str, cache: DnsCacheConfig, insecure: bool) -> Draft {
    let mut draft = Draft::named(name);
    draft.dynamic = true;
    draft.cluster.set_lb_policy(LbPolicy::ClusterProvided);
    let config = ClusterConfig {
        allow_insecure_cluster_options: insecure,
        cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(cache)),
        ..ClusterConfig::default()
    };
    draft.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
        name: "envoy.clusters.dynamic_forward_proxy".to_string(),
        typed_config: Some(to_any(&config)),
    }));
    draft
}

/// The cluster of a wildcard service's port.
pub(super) fn of_service(inputs: &ClusterInputs<'_>) -> Draft {
    let cache = dns_cache::of_host(&inputs.service.hostname, inputs.capabilities.dns_lookup_family);
    let mut draft = draft(&inputs.name(), cache, false);
    connection_pool::upstream_protocol(&mut draft, inputs.port, inputs.capabilities);
    draft
}

/// Tells Envoy that TLS which does not check the host is wanted.
pub(super) fn allow_insecure_options(cluster: &mut Cluster) {
    let Some(ClusterDiscoveryType::ClusterType(custom)) = &mut cluster.cluster_discovery_type else {
        return;
    };
    let Some(packed) = &custom.typed_config else {
        return;
    };
    if let Ok(mut config) = ClusterConfig::decode(packed.value.as_slice()) {
        config.allow_insecure_cluster_options = true;
        custom.typed_config = Some(to_any(&config));
    }
}

/// Whether a port of a wildcard service can be resolved per request.
pub(super) fn supports(inputs: &ClusterInputs<'_>) -> bool {
    use crate::model::Protocol::{Grpc, Http, Http2, Tls};
    matches!(inputs.port.protocol, Http | Tls | Grpc | Http2)
}
