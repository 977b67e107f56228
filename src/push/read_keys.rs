//! The labels and fields of a proxy that the configuration reads; views hold no others.
//!
//! A new reader of labels, of `NODE_NAME`, of own IPs or of the service's name must be added here.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    model::{Config, Kind, Labels, PushInputs, Service, Spec},
    proto::{
        mesh::mesh_config::{ExtensionProvider, extension_provider::Provider},
        networking::{DestinationRule, LoadBalancerSettings, TrafficPolicy, VirtualService},
    },
};

/// Labels that inbound generation reads by name.
const INBOUND_LABELS: [&str; 2] = ["security.istio.io/tlsMode", "gateway.networking.k8s.io/gateway-name"];

/// Labels that become tags of traces.
const TRACING_LABELS: [&str; 2] = ["service.istio.io/canonical-name", "service.istio.io/canonical-revision"];

/// The label by which references of a Telemetry find a gateway.
const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";

const NODE_NAME_LABEL: &str = "kubernetes.io/hostname";

/// The labels and fields of a proxy that the configuration reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadKeys {
    /// Label keys that clusters, endpoints and routes of sidecars depend on.
    pub(super) routing: BTreeSet<Arc<str>>,
    /// Label keys that these and outbound listeners of sidecars depend on.
    pub(super) outbound: BTreeSet<Arc<str>>,
    /// Label keys that any resource of sidecars depends on.
    pub(super) sidecar: BTreeSet<Arc<str>>,
    /// Label keys that resources of routers depend on.
    pub(super) router: BTreeSet<Arc<str>>,
    /// Whether some service or setting reads the name of the proxy's Kubernetes node.
    pub(super) node_name: bool,
    /// Whether a tracing provider takes the name of the proxy's service.
    pub(super) span_names: bool,
    /// Whether a Telemetry or a default provider wants metrics for Prometheus.
    pub(super) counts: bool,
}

impl ReadKeys {
    /// The kinds that this is made from, with services and mesh settings.
    pub const KINDS: [Kind; 10] = [
        Kind::VirtualService,
        Kind::DestinationRule,
        Kind::Sidecar,
        Kind::Gateway,
        Kind::PeerAuthentication,
        Kind::AuthorizationPolicy,
        Kind::RequestAuthentication,
        Kind::Telemetry,
        Kind::WasmPlugin,
        Kind::TrafficExtension,
    ];

    /// Collects the keys from all inputs.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let mut routing = Keys::default();
        let mut listeners = Keys::default();
        let mut inbound = Keys::default();
        let mut router = Keys::default();
        inbound.add_named(&INBOUND_LABELS);
        for kind in Self::KINDS {
            let readers = match kind {
                Kind::PeerAuthentication | Kind::AuthorizationPolicy | Kind::RequestAuthentication => &mut inbound,
                Kind::Telemetry | Kind::WasmPlugin | Kind::TrafficExtension => &mut listeners,
                Kind::Gateway => &mut router,
                _ => &mut routing,
            };
            inputs.configs.list(kind).iter().for_each(|config| readers.add_config(config));
        }
        let mesh = &inputs.mesh.config;
        let telemetries = inputs.configs.list(Kind::Telemetry);
        let traced = traces(inputs);
        if mesh.enable_tracing || traced {
            listeners.add_named(&TRACING_LABELS);
        }
        if !telemetries.is_empty() {
            listeners.add(GATEWAY_LABEL);
        }
        let takes_name =
            |p: &ExtensionProvider| matches!(p.provider, Some(Provider::Datadog(_) | Provider::Opentelemetry(_)));
        let span_names = traced && mesh.extension_providers.iter().any(takes_name);
        routing.add_failover(mesh.locality_lb_setting.as_ref().map_or(&[], |s| &s.failover_priority));
        routing.add_failover(mesh.zone_aware_lb_setting.as_ref().map_or(&[], |s| &s.failover_priority));
        inputs.registry.services.iter().for_each(|s| routing.add_service(s));
        let node_name =
            routing.0.contains(NODE_NAME_LABEL) || inputs.registry.services.iter().any(|s| asks_for_node(s));
        let outbound: BTreeSet<_> = routing.0.union(&listeners.0).cloned().collect();
        let sidecar: BTreeSet<_> = outbound.union(&inbound.0).cloned().collect();
        let router = router.0.union(&sidecar).cloned().collect();
        Self { routing: routing.0, outbound, sidecar, router, node_name, span_names, counts: counts(inputs) }
    }
}

/// Whether metrics for Prometheus are wanted anywhere.
fn counts(inputs: &PushInputs) -> bool {
    let mesh = &inputs.mesh.config;
    let is_prometheus = |p: &ExtensionProvider| matches!(p.provider, Some(Provider::Prometheus(_)));
    let default = mesh.default_providers.as_ref().is_some_and(|d| !d.metrics.is_empty());
    let telemetries = inputs.configs.list(Kind::Telemetry).iter().filter_map(|c| c.telemetry());
    let wanted = default || telemetries.into_iter().any(|t| !t.metrics.is_empty());
    wanted && mesh.extension_providers.iter().any(is_prometheus)
}

/// Whether a Telemetry or a default provider says something about spans.
fn traces(inputs: &PushInputs) -> bool {
    let telemetries = inputs.configs.list(Kind::Telemetry).iter().filter_map(|c| c.telemetry());
    let default = inputs.mesh.config.default_providers.as_ref().is_some_and(|d| !d.tracing.is_empty());
    default || telemetries.into_iter().any(|t| !t.tracing.is_empty())
}

/// Label keys that services with a preference for endpoints near the client compare.
const TOPOLOGY_LABELS: [&str; 4] = [
    "topology.istio.io/network",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.istio.io/subzone",
];

/// Whether the service prefers or demands endpoints on the client's own Kubernetes node.
fn asks_for_node(service: &Service) -> bool {
    service.node_local || prefers_node(service)
}

fn prefers_node(service: &Service) -> bool {
    service.traffic_distribution.to_ascii_lowercase().contains("node")
}

#[derive(Default)]
struct Keys(BTreeSet<Arc<str>>);

impl Keys {
    fn add(&mut self, key: &str) {
        if !self.0.contains(key) {
            self.0.insert(key.into());
        }
    }

    fn add_named(&mut self, keys: &[&str]) {
        keys.iter().for_each(|key| self.add(key));
    }

    fn add_all(&mut self, labels: Option<&Labels>) {
        labels.into_iter().flat_map(Labels::keys).for_each(|key| self.add(key));
    }

    fn add_service(&mut self, service: &Service) {
        if !service.traffic_distribution.is_empty() {
            self.add_named(&TOPOLOGY_LABELS);
        }
        if prefers_node(service) {
            self.add(NODE_NAME_LABEL);
        }
    }

    fn add_config(&mut self, config: &Config) {
        match &config.spec {
            Spec::VirtualService(spec) => self.add_virtual_service(spec),
            Spec::DestinationRule(spec) => self.add_destination_rule(spec),
            Spec::Sidecar(spec) => self.add_all(spec.workload_selector.as_ref().map(|s| &s.labels)),
            Spec::Gateway(spec) => self.add_all(Some(&spec.selector)),
            Spec::PeerAuthentication(spec) => self.add_all(spec.selector.as_ref().map(|s| &s.match_labels)),
            Spec::AuthorizationPolicy(spec) => self.add_all(spec.selector.as_ref().map(|s| &s.match_labels)),
            Spec::RequestAuthentication(spec) => self.add_all(spec.selector.as_ref().map(|s| &s.match_labels)),
            Spec::Telemetry(spec) => self.add_all(spec.selector.as_ref().map(|s| &s.match_labels)),
            Spec::WasmPlugin(spec) => self.add_all(spec.selector.as_ref().map(|s| &s.match_labels)),
            Spec::TrafficExtension(spec) => self.add_all(spec.selector.as_ref().map(|s| &s.match_labels)),
            _ => {}
        }
    }

    fn add_virtual_service(&mut self, spec: &VirtualService) {
        spec.http.iter().flat_map(|r| &r.r#match).for_each(|m| self.add_all(Some(&m.source_labels)));
        spec.tcp.iter().flat_map(|r| &r.r#match).for_each(|m| self.add_all(Some(&m.source_labels)));
        spec.tls.iter().flat_map(|r| &r.r#match).for_each(|m| self.add_all(Some(&m.source_labels)));
    }

    fn add_destination_rule(&mut self, spec: &DestinationRule) {
        self.add_all(spec.workload_selector.as_ref().map(|s| &s.match_labels));
        let of_subsets = spec.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
        for balancer in spec.traffic_policy.iter().chain(of_subsets).flat_map(load_balancers) {
            let locality = balancer.locality_lb_setting.as_ref().map(|s| &s.failover_priority);
            let zone = balancer.zone_aware_lb_setting.as_ref().map(|s| &s.failover_priority);
            locality.into_iter().chain(zone).for_each(|priorities| self.add_failover(priorities));
        }
    }

    /// Priorities are label keys, or `key=value`.
    fn add_failover(&mut self, priorities: &[String]) {
        for entry in priorities {
            self.add(entry.split_once('=').map_or(entry.as_str(), |(key, _)| key));
        }
    }
}

fn load_balancers(policy: &TrafficPolicy) -> impl Iterator<Item = &LoadBalancerSettings> {
    let of_ports = policy.port_level_settings.iter().filter_map(|p| p.load_balancer.as_ref());
    policy.load_balancer.iter().chain(of_ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RegistrySnapshot;

    #[test]
    fn services_that_prefer_near_endpoints_read_the_topology() {
        let keys_with = |distribution: &str| {
            let service = Service { traffic_distribution: distribution.to_string(), ..Service::default() };
            let registry =
                RegistrySnapshot { services: Arc::new(vec![Arc::new(service)]), ..RegistrySnapshot::default() };
            ReadKeys::build(&PushInputs { registry, ..PushInputs::default() }).routing
        };
        assert!(keys_with("").is_empty());
        let zone = keys_with("PreferSameZone");
        assert!(zone.contains("topology.istio.io/network") && !zone.contains(NODE_NAME_LABEL));
        assert!(keys_with("PreferSameNode").contains(NODE_NAME_LABEL));
    }
}
