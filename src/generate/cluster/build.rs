//! From the inputs of an outbound cluster to the cluster (Istio's `buildCluster`, `applyDestinationRule`,
//! `buildSubsetCluster`).

use super::{
    connection_pool,
    draft::{Draft, metadata_exchange_filter},
    dynamic, inference,
    inputs::{ClusterInputs, ClusterMode},
    load_balancer, metadata, outlier,
    tls::{self, UpstreamTls},
};
use crate::{
    generate::{dns_cache, endpoint::LocalityGroup, stat_name},
    model::{NodeType, Service},
    proto::{
        envoy::{
            config::{
                cluster::v3::{
                    Cluster,
                    cluster::{
                        ClusterDiscoveryType, CommonLbConfig, DiscoveryType, DnsLookupFamily, EdsClusterConfig,
                        LbConfig, LbPolicy, OriginalDstLbConfig,
                    },
                },
                core::v3::{
                    AggregatedConfigSource, ApiVersion, ConfigSource, HealthStatus, HealthStatusSet,
                    TypedExtensionConfig, config_source::ConfigSourceSpecifier,
                },
                endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints},
            },
            extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig,
        },
        networking::client_tls_settings::TlSmode,
        seconds, to_any, wkt,
    },
};

impl ClusterInputs<'_> {
    /// The cluster; `None` for a DNS cluster without endpoints, and for a port that cannot have one.
    #[must_use]
    pub fn build(&self) -> Option<Cluster> {
        if self.is_dynamic() {
            return dynamic::supports(self).then(|| self.finish(dynamic::of_service(self), None));
        }
        let (draft, groups) = self.start()?;
        Some(self.finish(draft, groups))
    }

    /// The cluster before any policy, and its inline endpoints.
    fn start(&self) -> Option<(Draft, Option<Vec<LocalityGroup>>)> {
        let name = self.name();
        let mut draft = Draft::named(&name);
        let discovery = self.discovery_type();
        let cluster = &mut draft.cluster;
        cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(discovery.into()));
        cluster.common_lb_config = Some(CommonLbConfig::default());
        let mut groups = None;
        match discovery {
            DiscoveryType::StrictDns | DiscoveryType::LogicalDns => {
                let inline = self.endpoints.as_ref().map(|e| e.inline_groups()).filter(|g| !g.is_empty())?;
                self.add_dns(cluster);
                cluster.load_assignment = Some(ClusterLoadAssignment {
                    cluster_name: name,
                    endpoints: inline.iter().cloned().map(LocalityLbEndpoints::from).collect(),
                    ..ClusterLoadAssignment::default()
                });
                groups = Some(inline);
            }
            DiscoveryType::OriginalDst => {
                cluster.lb_config = self.service.passthrough_target_ports.get(&self.port.port).map(|port| {
                    LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
                        upstream_port_override: Some(*port),
                        ..OriginalDstLbConfig::default()
                    })
                });
            }
            _ => {}
        }
        connection_pool::upstream_protocol(&mut draft, self.port, self.capabilities);
        let cluster = &mut draft.cluster;
        if self.capabilities.flags.telemetry_label {
            metadata::add_services(cluster, [self.service]);
        }
        if self.capabilities.counts {
            metadata::add_counted(cluster, self.service);
        }
        let pattern = &self.mesh.config.outbound_cluster_stat_name;
        if !pattern.is_empty() {
            let name = stat_name::fill_in(pattern, self.service, self.subset_name(), self.port, 0);
            cluster.alt_stat_name = format!("{name};");
        }
        if self.mode == ClusterMode::Outbound && self.subset.is_none() && self.has_sessions(self.service) {
            draft.common_lb().override_host_status = Some(session_statuses());
        }
        Some((draft, groups))
    }

    #[allow(deprecated, reason = "Istio still sets these on the cluster, where Envoy reads them")]
    fn add_dns(&self, cluster: &mut Cluster) {
        let flags = &self.capabilities.flags;
        let race = self.service.race_first_connection;
        let family = if race { DnsLookupFamily::All } else { self.capabilities.dns_lookup_family };
        cluster.set_dns_lookup_family(family);
        let resolver =
            CaresDnsResolverConfig { udp_max_queries: Some(flags.dns_cares_udp_max_queries), ..Default::default() };
        cluster.typed_dns_resolver_config =
            Some(TypedExtensionConfig { name: dns_cache::RESOLVER.to_string(), typed_config: Some(to_any(&resolver)) });
        cluster.dns_jitter = wkt::Duration::try_from(flags.dns_jitter).ok();
        cluster.dns_refresh_rate = self.mesh.config.dns_refresh_rate;
        cluster.respect_dns_ttl = true;
    }

    /// Applies the policy in force, then the settings that depend on the resulting discovery type.
    fn finish(&self, mut draft: Draft, groups: Option<Vec<LocalityGroup>>) -> Cluster {
        let policy = self.policy();
        let (mesh, capabilities) = (&self.mesh.config, self.capabilities);
        connection_pool::upgrade_to_http2(&mut draft, self.port, mesh, policy.connection_pool);
        connection_pool::apply(&mut draft, mesh, capabilities, policy.connection_pool, policy.retry_budget);
        outlier::apply(&mut draft, self, policy.outlier_detection);
        load_balancer::apply(&mut draft, self, policy.load_balancer, groups);
        if self.mode == ClusterMode::Outbound {
            let tls = UpstreamTls::of(self, policy.tls);
            tls::apply(&mut draft, self, tls.as_ref());
            tls::apply_proxy_protocol(&mut draft, policy.proxy_protocol);
        }
        let of_pool = self.service.is_inference_pool() && self.subset.is_none();
        if of_pool && self.mode == ClusterMode::Outbound && capabilities.node_type == NodeType::Router {
            inference::follow_picker(&mut draft.cluster);
        }
        let cluster = &mut draft.cluster;
        match cluster.cluster_discovery_type {
            Some(ClusterDiscoveryType::Type(t)) if t == DiscoveryType::OriginalDst as i32 => {
                cluster.set_lb_policy(LbPolicy::ClusterProvided);
            }
            Some(ClusterDiscoveryType::Type(t)) if t == DiscoveryType::Eds as i32 => {
                cluster.eds_cluster_config = Some(eds_config(&cluster.name));
            }
            _ => {}
        }
        if capabilities.metadata_exchange() {
            cluster.filters.push(metadata_exchange_filter(&capabilities.flags.mx_additional_labels));
        }
        self.add_metadata(cluster, policy.tls.map(|t| t.mode()));
        draft.build()
    }

    fn add_metadata(&self, cluster: &mut Cluster, tls_mode: Option<TlSmode>) {
        if self.service.mesh_external && self.subset.is_none() {
            metadata::add_external(cluster);
        }
        let Some(rule) = self.rule else {
            return;
        };
        metadata::add_rule(cluster, rule);
        if let Some(subset) = self.subset {
            metadata::add_text(cluster, "subset", &subset.name);
        }
        if matches!(tls_mode, Some(TlSmode::Simple | TlSmode::Mutual)) {
            metadata::add_text(cluster, "alpn_override", "false");
        }
    }

    /// The service keeps sessions at an endpoint, also while that drains.
    fn has_sessions(&self, service: &Service) -> bool {
        let flags = &self.capabilities.flags;
        [&flags.persistent_session_label, &flags.persistent_session_header_label]
            .into_iter()
            .any(|label| !label.is_empty() && service.labels.get(label).is_some_and(|v| !v.is_empty()))
    }
}

/// States in which an endpoint still gets the requests of its own sessions.
fn session_statuses() -> HealthStatusSet {
    use HealthStatus::{Degraded, Draining, Healthy, Unknown};
    HealthStatusSet { statuses: [Healthy, Draining, Unknown, Degraded].map(i32::from).to_vec() }
}

fn eds_config(name: &str) -> EdsClusterConfig {
    EdsClusterConfig {
        service_name: name.to_string(),
        eds_config: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
            // An empty answer may take long; waiting without limit is better than a cluster without endpoints.
            initial_fetch_timeout: Some(seconds(0)),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
    }
}
