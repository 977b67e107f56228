//! The cluster of an InferencePool at a gateway: the endpoint that the pool's picker names takes the request.
//!
//! The picker answers in the metadata of the request; without an answer, or when none of its endpoints is there, they take
//! turns (Istio's `applyOverrideHostPolicy`).

use crate::proto::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster, LoadBalancingPolicy,
                cluster::{LbPolicy, common_lb_config::LocalityConfigSpecifier},
                load_balancing_policy::Policy,
            },
            core::v3::TypedExtensionConfig,
        },
        extensions::load_balancing_policies::{
            override_host::v3::{OverrideHost, override_host::OverrideHostSource},
            round_robin::v3::RoundRobin,
        },
        r#type::metadata::v3::{
            MetadataKey,
            metadata_key::{PathSegment, path_segment::Segment},
        },
    },
    to_any,
};

const NAMESPACE: &str = "envoy.lb";
/// The header by which the picker selects an endpoint.
const PICKED: &str = "x-gateway-destination-endpoint";
/// The header by which the picker receives the endpoint in use.
const SERVED: &str = "x-gateway-destination-endpoint-served";

/// Replaces the load balancer of the cluster.
pub fn follow_picker(cluster: &mut Cluster) {
    if let Some(common) = &mut cluster.common_lb_config
        && matches!(common.locality_config_specifier, Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(_)))
    {
        common.locality_config_specifier = None;
    }
    cluster.set_lb_policy(LbPolicy::ClusterProvided);
    let turns = TypedExtensionConfig {
        name: "envoy.load_balancing_policies.round_robin".into(),
        typed_config: Some(to_any(&RoundRobin::default())),
    };
    let picked = OverrideHost {
        override_host_sources: vec![OverrideHostSource {
            metadata: Some(key(PICKED)),
            ..OverrideHostSource::default()
        }],
        selected_host_key: Some(key(SERVED)),
        fallback_policy: Some(only(turns)),
    };
    cluster.load_balancing_policy = Some(only(TypedExtensionConfig {
        name: "envoy.load_balancing_policies.override_host".into(),
        typed_config: Some(to_any(&picked)),
    }));
}

fn only(policy: TypedExtensionConfig) -> LoadBalancingPolicy {
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(policy) }] }
}

fn key(name: &str) -> MetadataKey {
    MetadataKey { key: NAMESPACE.into(), path: vec![PathSegment { segment: Some(Segment::Key(name.into())) }] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{envoy::config::cluster::v3::cluster::CommonLbConfig, to_json};

    #[test]
    fn the_picker_takes_the_place_of_every_policy_and_weight() {
        let weighted = LocalityConfigSpecifier::LocalityWeightedLbConfig(Default::default());
        let common = CommonLbConfig { locality_config_specifier: Some(weighted), ..CommonLbConfig::default() };
        let mut cluster = Cluster { common_lb_config: Some(common), ..Cluster::default() };
        follow_picker(&mut cluster);
        let written = to_json(&cluster).unwrap();
        assert_eq!(
            (&written["lbPolicy"], &written["commonLbConfig"]),
            (&"CLUSTER_PROVIDED".into(), &serde_json::json!({}))
        );
        let policy = &written["loadBalancingPolicy"]["policies"][0]["typedExtensionConfig"]["typedConfig"];
        assert_eq!(policy["overrideHostSources"][0]["metadata"]["path"][0]["key"], PICKED);
        assert_eq!(policy["selectedHostKey"]["path"][0]["key"], SERVED);
    }
}
