//! Patches of EnvoyFilters on resources of gRPC: clusters, virtual hosts and routes. Filters and listeners are not patched: gRPC
//! refuses a whole listener for a filter that it does not have.

use crate::{
    generate::envoy_filter::{Patching, service_context},
    model::ConfigKey,
    proto::envoy::config::{
        cluster::v3::{
            Cluster,
            cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy},
        },
        route::v3::VirtualHost,
    },
    push::ProxyView,
};

/// Patches the virtual hosts of one route configuration; routes that come from patches have no object of their own.
pub(super) fn virtual_hosts(view: &ProxyView, name: &str, hosts: &mut [(VirtualHost, Vec<Option<ConfigKey>>)]) {
    let patching = Patching::new(&view.patches, service_context(view));
    let patches = patching.of_hosts(name);
    for (host, objects) in hosts {
        if patches.key(&host.name, &host.domains).is_none() {
            continue;
        }
        // A client without routes fails all calls: a host that a patch removes stays.
        let patched = patching.again().virtual_host(name, host.clone()).map(|(patched, _)| patched);
        let Some(patched) = patched.filter(|patched| *patched != *host) else { continue };
        objects.clear();
        *host = patched;
    }
}

/// A cluster with its patches, as long as gRPC takes the result.
pub(super) fn cluster(patching: &mut Patching<'_>, cluster: Cluster) -> Cluster {
    if patching.cluster_key(&cluster.name).is_none() {
        return cluster;
    }
    let patched = patching.cluster(cluster.clone(), &[]);
    patched.filter(|patched| patched.name == cluster.name && is_taken(patched)).unwrap_or(cluster)
}

/// gRPC refuses clusters of other types and load balancers.
fn is_taken(cluster: &Cluster) -> bool {
    let balancers = [LbPolicy::RoundRobin, LbPolicy::RingHash, LbPolicy::LeastRequest];
    let types = [DiscoveryType::Eds, DiscoveryType::LogicalDns].map(i32::from);
    balancers.contains(&cluster.lb_policy())
        && matches!(cluster.cluster_discovery_type, Some(ClusterDiscoveryType::Type(of)) if types.contains(&of))
}
