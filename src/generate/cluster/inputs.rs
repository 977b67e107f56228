//! Everything that one outbound cluster is made from.

use std::hash::Hash;

use super::capabilities::Capabilities;
use crate::{
    generate::{
        check::{self, Refusal},
        endpoint::{EndpointInputs, destination_rule, service_entry},
        names::{self, Direction},
        traffic_policy::EffectivePolicy,
    },
    model::{ConfigKey, Mesh, NodeType, Port, Registry, Resolution, Service, host},
    proto::{
        envoy::config::cluster::v3::{Cluster, cluster::DiscoveryType},
        networking::{DestinationRule, Subset, client_tls_settings::TlSmode, load_balancer_settings::SimpleLb},
    },
    push::{MergedDestinationRule, authn::MtlsMode},
};

/// The use of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClusterMode {
    /// Traffic of the proxy.
    Outbound,
    /// TLS passed through unopened by an `AUTO_PASSTHROUGH` gateway.
    SniDnat,
}

/// The inputs of one outbound cluster, and nothing else: its builder takes only this. Equal keys, equal clusters.
#[derive(Debug, Clone)]
pub struct ClusterInputs<'a> {
    /// The use of the cluster.
    pub mode: ClusterMode,
    /// The service.
    pub service: &'a Service,
    /// Its port.
    pub port: &'a Port,
    /// The subset; `None` is the cluster of all endpoints.
    pub subset: Option<&'a Subset>,
    /// The DestinationRule.
    pub rule: Option<&'a MergedDestinationRule>,
    /// Mesh settings.
    pub mesh: &'a Mesh,
    /// The proxy.
    pub capabilities: &'a Capabilities,
    /// Mutual TLS mode of the servers, as far as it can be inferred (Istio's `BestEffortInferServiceMTLSMode`).
    pub mtls_mode: MtlsMode,
    /// Identities of the servers, sorted.
    pub service_accounts: &'a [String],
    /// Inline endpoints; only DNS clusters have them.
    pub endpoints: Option<EndpointInputs<'a>>,
}

impl<'a> ClusterInputs<'a> {
    /// Name of the cluster.
    #[must_use]
    pub fn name(&self) -> String {
        match self.mode {
            ClusterMode::Outbound => {
                names::subset_key(Direction::Outbound, self.subset_name(), &self.service.hostname, self.port.port)
            }
            ClusterMode::SniDnat => {
                names::dns_srv_subset_key(self.subset_name(), &self.service.hostname, self.port.port)
            }
        }
    }

    /// The cluster, encoded, as Envoy takes it; `None` where there is none.
    ///
    /// # Errors
    /// The reason why Envoy would refuse it.
    pub fn checked(&self) -> Result<Option<(Cluster, Vec<u8>)>, Box<Refusal>> {
        self.build().map(|cluster| check::cluster(cluster, || self.object())).transpose()
    }

    /// The same for the cluster that `change` makes of it, with its bytes where Envoy is known to take it.
    ///
    /// # Errors
    /// As [`ClusterInputs::checked`].
    pub fn checked_after(
        &self,
        change: impl FnOnce(Cluster) -> Option<(Cluster, Option<Vec<u8>>)>,
    ) -> Result<Option<(Cluster, Vec<u8>)>, Box<Refusal>> {
        let checked = |(cluster, bytes)| match bytes {
            Some(bytes) => Ok((cluster, bytes)),
            None => check::cluster(cluster, || self.object()),
        };
        self.build().and_then(change).map(checked).transpose()
    }

    /// The object that decides most of the cluster: its DestinationRule, else its ServiceEntry.
    fn object(&self) -> Option<ConfigKey> {
        self.rule.map_or_else(|| service_entry(self.service), |rule| Some(destination_rule(rule)))
    }

    /// The cluster demands a certificate of the mesh that the proxy does not have: `ISTIO_MUTUAL` for a stock Envoy that
    /// names no files.
    #[must_use]
    pub fn lacks_certificate(&self) -> bool {
        self.capabilities.holder == crate::generate::sds::Holder::Absent
            && self.capabilities.certificates.is_none()
            && self.rule.is_some()
            && self.mode == ClusterMode::Outbound
            && self.policy().tls.is_some_and(|tls| tls.mode() == TlSmode::IstioMutual)
    }

    /// Hash of all inputs by their stamps.
    #[must_use]
    pub fn key(&self) -> u128 {
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        (self.mode, self.service.stamp, self.port, self.subset_name()).hash(&mut hasher);
        (self.rule.map(|r| r.stamp), self.mesh.stamp, self.capabilities.stamp()).hash(&mut hasher);
        (self.mtls_mode, self.service_accounts, self.endpoints.as_ref().map(EndpointInputs::key)).hash(&mut hasher);
        hasher.digest128()
    }

    /// Name of the subset; empty without one.
    #[must_use]
    pub fn subset_name(&self) -> &'a str {
        self.subset.map_or("", |s| &s.name)
    }

    /// The DestinationRule's content.
    pub(super) fn destination_rule(&self) -> Option<&'a DestinationRule> {
        self.rule.map(|r| &*r.rule)
    }

    /// The policy in force: mesh < rule < port < subset < subset's port.
    pub(super) fn policy(&self) -> EffectivePolicy<'a> {
        let own = self.subset.and_then(|s| s.traffic_policy.as_ref());
        self.rule_policy().with_subset(own, self.port.port)
    }

    /// The policy without the subset's.
    fn rule_policy(&self) -> EffectivePolicy<'a> {
        let of_rule = self.destination_rule().and_then(|r| r.traffic_policy.as_ref());
        EffectivePolicy::for_port(of_rule, self.port.port).0.over_mesh_default(&self.mesh.config)
    }

    /// A service whose host is resolved per request.
    pub(super) fn is_dynamic(&self) -> bool {
        self.mode == ClusterMode::Outbound
            && self.service.resolution == Resolution::DynamicDns
            && host::is_wildcard(&self.service.hostname)
    }

    /// Discovery type of the endpoints, before the load balancer's effect (Istio's `convertResolution`). A subset begins
    /// with the type that the rule's own load balancer left.
    pub(super) fn discovery_type(&self) -> DiscoveryType {
        let resolved = match self.service.resolution {
            // Racing needs all addresses of one name as one host.
            Resolution::DnsLB if self.service.race_first_connection => DiscoveryType::LogicalDns,
            Resolution::DnsLB => DiscoveryType::StrictDns,
            Resolution::DnsRoundRobinLB => DiscoveryType::LogicalDns,
            Resolution::Passthrough => self.passthrough_type(),
            _ => DiscoveryType::Eds,
        };
        let Some(subset) = self.subset else {
            return resolved;
        };
        let own = subset.traffic_policy.as_ref().and_then(|p| p.load_balancer.as_ref());
        let is_passthrough = |lb| crate::generate::traffic_policy::simple_lb(lb) == SimpleLb::Passthrough;
        let by_rule = is_passthrough(self.rule_policy().load_balancer) && !self.is_sharded_redis();
        if is_passthrough(own) || by_rule { DiscoveryType::OriginalDst } else { resolved }
    }

    fn passthrough_type(&self) -> DiscoveryType {
        let headless_eds = self.service.registry == Registry::Kubernetes && self.capabilities.flags.eds_for_headless;
        // A gateway has no original destination.
        if self.capabilities.node_type == NodeType::Router || headless_eds {
            DiscoveryType::Eds
        } else {
            DiscoveryType::OriginalDst
        }
    }

    /// Redis is sharded by the client, whatever load balancer the rule names.
    pub(super) fn is_sharded_redis(&self) -> bool {
        self.capabilities.flags.redis_filter && self.port.protocol == crate::model::Protocol::Redis
    }
}
