//! The load balancer: simple ones, consistent hashing, slow start, and the locality settings of the cluster itself
//! (Istio's `applyLoadBalancer`).

use super::{draft::Draft, inputs::ClusterInputs, outlier::supports_unhealthy};
use crate::{
    generate::endpoint::{LocalityGroup, LocalityLb},
    proto::{
        envoy::{
            config::{
                cluster::v3::{
                    Cluster,
                    cluster::{
                        ClusterDiscoveryType, DiscoveryType, LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig,
                        RingHashLbConfig, RoundRobinLbConfig, SlowStartConfig,
                        common_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig},
                    },
                },
                core::v3::RuntimeDouble,
                endpoint::v3::LocalityLbEndpoints,
            },
            r#type::v3::Percent,
        },
        networking::{
            LoadBalancerSettings, WarmupConfiguration,
            load_balancer_settings::{self, SimpleLb, consistent_hash_lb::HashAlgorithm},
        },
    },
};

/// Applies the settings; `groups` are the inline endpoints of a DNS cluster.
pub(super) fn apply(
    draft: &mut Draft,
    inputs: &ClusterInputs<'_>,
    settings: Option<&LoadBalancerSettings>,
    groups: Option<Vec<LocalityGroup>>,
) {
    if draft.dynamic {
        return;
    }
    if supports_unhealthy(inputs) {
        // Endpoints that are known not to be ready must not get traffic when Envoy panics.
        draft.common_lb().healthy_panic_threshold.get_or_insert(Percent { value: 0.0 });
    }
    apply_locality(draft, inputs, settings, groups);
    let cluster = &mut draft.cluster;
    if cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into())) {
        cluster.set_lb_policy(LbPolicy::ClusterProvided);
        return;
    }
    if inputs.is_sharded_redis() {
        cluster.set_lb_policy(LbPolicy::Maglev);
        return;
    }
    match crate::generate::traffic_policy::simple_lb(settings) {
        SimpleLb::Random => cluster.set_lb_policy(LbPolicy::Random),
        SimpleLb::RoundRobin => {
            cluster.set_lb_policy(LbPolicy::RoundRobin);
            cluster.lb_config = slow_start(settings).map(|slow_start_config| {
                LbConfig::RoundRobinLbConfig(RoundRobinLbConfig { slow_start_config: Some(slow_start_config) })
            });
        }
        SimpleLb::Passthrough => {
            cluster.set_lb_policy(LbPolicy::ClusterProvided);
            cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
            cluster.load_assignment = None;
        }
        _ => {
            cluster.set_lb_policy(LbPolicy::LeastRequest);
            cluster.lb_config = slow_start(settings).map(|slow_start_config| {
                LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
                    slow_start_config: Some(slow_start_config),
                    ..LeastRequestLbConfig::default()
                })
            });
        }
    }
    apply_hash(cluster, settings);
}

/// The cluster's own settings for localities, and priorities and weights of inline endpoints.
fn apply_locality(
    draft: &mut Draft,
    inputs: &ClusterInputs<'_>,
    settings: Option<&LoadBalancerSettings>,
    groups: Option<Vec<LocalityGroup>>,
) {
    let setting = LocalityLb::effective(&inputs.mesh.config, settings, inputs.service);
    let outlier = draft.cluster.outlier_detection.is_some();
    if let Some(specifier) = locality_specifier(inputs, setting.as_ref(), outlier) {
        draft.common_lb().locality_config_specifier = Some(specifier);
    }
    if let (Some(mut groups), Some(assignment)) = (groups, draft.cluster.load_assignment.as_mut()) {
        let place = inputs.endpoints.as_ref().and_then(|e| e.place.as_ref());
        if let (Some(setting), Some(place)) = (setting, place) {
            setting.apply(&mut groups, place, outlier);
        }
        assignment.endpoints = groups.into_iter().map(LocalityLbEndpoints::from).collect();
    }
}

fn locality_specifier(
    inputs: &ClusterInputs<'_>,
    setting: Option<&LocalityLb<'_>>,
    outlier: bool,
) -> Option<LocalityConfigSpecifier> {
    if let Some(LocalityLb::ZoneAware(zone_aware)) = setting {
        let routing_enabled = (zone_aware.enabled == Some(false)).then_some(Percent { value: 0.0 });
        return Some(LocalityConfigSpecifier::ZoneAwareLbConfig(ZoneAwareLbConfig {
            routing_enabled,
            min_cluster_size: zone_aware.min_cluster_size,
            ..ZoneAwareLbConfig::default()
        }));
    }
    let by_setting = setting.is_some_and(|s| {
        let fails_over = outlier || s.forces_failover();
        (fails_over && (!s.failover().is_empty() || !s.failover_priority().is_empty())) || !s.distribute().is_empty()
    });
    (by_setting || inputs.capabilities.flags.locality_weighted_lb)
        .then(|| LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig::default()))
}

fn slow_start(settings: Option<&LoadBalancerSettings>) -> Option<SlowStartConfig> {
    let settings = settings?;
    if let Some(warmup) = &settings.warmup {
        return Some(warmup_config(warmup));
    }
    settings
        .warmup_duration_secs
        .map(|window| SlowStartConfig { slow_start_window: Some(window), ..SlowStartConfig::default() })
}

fn warmup_config(warmup: &WarmupConfiguration) -> SlowStartConfig {
    SlowStartConfig {
        slow_start_window: warmup.duration,
        aggression: Some(RuntimeDouble {
            default_value: warmup.aggression.unwrap_or(1.0),
            // Envoy demands a key; one that no runtime layer sets keeps the value fixed.
            runtime_key: "(".to_string(),
        }),
        min_weight_percent: Some(Percent { value: warmup.minimum_percent.unwrap_or(10.0) }),
    }
}

/// Consistent hashing: Maglev, or a ring of at least 1,024 entries.
fn apply_hash(cluster: &mut Cluster, settings: Option<&LoadBalancerSettings>) {
    let Some(load_balancer_settings::LbPolicy::ConsistentHash(hash)) = settings.and_then(|s| s.lb_policy.as_ref())
    else {
        return;
    };
    let ring = |size: u64| {
        Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
            minimum_ring_size: Some(size),
            ..RingHashLbConfig::default()
        }))
    };
    match &hash.hash_algorithm {
        Some(HashAlgorithm::Maglev(maglev)) => {
            cluster.set_lb_policy(LbPolicy::Maglev);
            if maglev.table_size != 0 {
                let table_size = Some(maglev.table_size);
                cluster.lb_config = Some(LbConfig::MaglevLbConfig(MaglevLbConfig { table_size }));
            }
        }
        Some(HashAlgorithm::RingHash(by_ring)) => {
            cluster.set_lb_policy(LbPolicy::RingHash);
            if by_ring.minimum_ring_size != 0 {
                cluster.lb_config = ring(by_ring.minimum_ring_size);
            }
        }
        None => {
            #[allow(deprecated, reason = "the older spelling of ringHash.minimumRingSize")]
            let size = if hash.minimum_ring_size != 0 { hash.minimum_ring_size } else { 1024 };
            cluster.set_lb_policy(LbPolicy::RingHash);
            cluster.lb_config = ring(size);
        }
    }
}
