//! Inbound clusters: one per port that the workload listens on, or one per ingress listener of its Sidecar
//! (Istio's `buildInboundClusters`, `buildInboundCluster`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    capabilities::Capabilities,
    connection_pool,
    draft::Draft,
    metadata,
    special::{PASSTHROUGH_BIND_V4, PASSTHROUGH_BIND_V6, bind_config, locality_of},
};
use crate::{
    generate::{names, stat_name, traffic_policy::EffectivePolicy},
    model::{Port, Protocol, Service, ServiceTarget, node::InterceptionMode},
    proto::{
        envoy::config::{
            cluster::v3::{
                Cluster,
                cluster::{
                    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, LbConfig, LbPolicy, OriginalDstLbConfig,
                },
            },
            endpoint::v3::ClusterLoadAssignment,
        },
        mesh::mesh_config::inbound_traffic_policy::Mode,
        networking::IstioIngressListener,
        seconds,
    },
    push::{ProxyView, PushContext, SidecarScope},
};

/// The longest time that Envoy can keep: unused connections to the workload are never cleaned up.
const NEVER: i64 = 9_223_372_035;

/// The inputs that all inbound clusters of one proxy share.
struct Builder<'a> {
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: &'a SidecarScope,
    capabilities: &'a Capabilities,
}

/// The inbound clusters, without the one for undeclared ports. By port number, then by the Sidecar's order.
pub(super) fn clusters(context: &PushContext, view: &ProxyView, capabilities: &Capabilities) -> Vec<Cluster> {
    let scope = context.scope(view);
    let builder = Builder { context, view, scope: &scope, capabilities };
    if scope.ingress().is_empty() {
        // Without capture, all traffic that arrives is addressed to a declared listener.
        if view.metadata.interception_mode == InterceptionMode::None {
            return Vec::new();
        }
        return builder.of_services(&BTreeSet::new());
    }
    let mut clusters = Vec::new();
    if context.features().allow_sidecar_service_inbound_listener_merge {
        let declared = scope.ingress().iter().filter_map(|i| i.port.as_ref()).map(|p| p.number).collect();
        clusters = builder.of_services(&declared);
    }
    clusters.extend(scope.ingress().iter().filter_map(|listener| builder.of_ingress(listener)));
    clusters
}

impl Builder<'_> {
    fn of_services(&self, except: &BTreeSet<u32>) -> Vec<Cluster> {
        let mut by_port: BTreeMap<u32, Vec<ServiceTarget>> = BTreeMap::new();
        for target in self.view.targets.iter().filter(|t| !except.contains(&t.target_port)) {
            by_port.entry(target.target_port).or_default().push(target.clone());
        }
        let mode = self.context.mesh().config.inbound_traffic_policy.as_ref().map(|p| p.mode()).unwrap_or_default();
        let bind = if mode == Mode::Localhost { self.view.localhost() } else { "" };
        by_port.iter().map(|(port, targets)| self.cluster(*port, bind, targets)).collect()
    }

    fn of_ingress(&self, listener: &IstioIngressListener) -> Option<Cluster> {
        let declared = listener.port.as_ref()?;
        let (address, target_port) = self.default_endpoint(&listener.default_endpoint)?;
        let known = self.view.targets.iter().find(|t| t.target_port == declared.number);
        let service = known.map_or_else(|| self.stand_in(), |t| t.service.clone());
        let port = Port {
            name: declared.name.as_str().into(),
            port: declared.number,
            protocol: Protocol::parse(&declared.protocol),
        };
        Some(self.cluster(declared.number, &address, &[ServiceTarget { service, port, target_port }]))
    }

    /// A service for an ingress listener at a port that no service has.
    fn stand_in(&self) -> Arc<Service> {
        let (name, namespace) = (&self.scope.name, &self.scope.namespace);
        Arc::new(Service {
            hostname: format!("{name}.{namespace}").into(),
            name: name.clone(),
            namespace: namespace.clone(),
            mesh_external: true,
            ..Service::default()
        })
    }

    /// Address and port that `defaultEndpoint` means: empty is wherever the client dialled, the wildcard is the workload's own
    /// address, loopback is the loopback of a family that the proxy has. `None` when it cannot be read.
    fn default_endpoint(&self, endpoint: &str) -> Option<(String, u32)> {
        if endpoint.is_empty() || endpoint.starts_with("unix://") {
            return Some((endpoint.to_string(), 0));
        }
        let (host, port) = endpoint.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let own = |v6: bool| self.view.ips.iter().find(|ip| ip.contains(':') == v6).map(|ip| ip.to_string());
        let loopback = |v6: bool, otherwise: bool| match (v6, otherwise) {
            (true, _) => "::1".to_string(),
            (false, true) => "127.0.0.1".to_string(),
            (false, false) => String::new(),
        };
        let address = match host.trim_start_matches('[').trim_end_matches(']') {
            "0.0.0.0" => own(false).unwrap_or_else(|| "127.0.0.1".to_string()),
            "::" => own(true).unwrap_or_else(|| "::1".to_string()),
            "127.0.0.1" if self.view.ipv4 => "127.0.0.1".to_string(),
            "127.0.0.1" => loopback(self.view.ipv6, false),
            "::1" => loopback(self.view.ipv6, self.view.ipv4),
            _ => String::new(),
        };
        Some((address, port))
    }

    /// The cluster of one port; the first target decides where several services share it.
    fn cluster(&self, cluster_port: u32, bind: &str, targets: &[ServiceTarget]) -> Cluster {
        let mesh = &self.context.mesh().config;
        let mut draft = Draft::named(&names::inbound_subset_key(cluster_port));
        draft.cluster.common_lb_config = Some(CommonLbConfig::default());
        let Some(first) = targets.first() else {
            return draft.build();
        };
        let discovery = if bind.is_empty() { DiscoveryType::OriginalDst } else { DiscoveryType::Static };
        draft.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(discovery.into()));
        if bind.is_empty() {
            draft.cluster.set_lb_policy(LbPolicy::ClusterProvided);
            draft.cluster.cleanup_interval = Some(seconds(NEVER));
            draft.cluster.lb_config = first.service.passthrough_target_ports.get(&first.port.port).map(|port| {
                LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
                    upstream_port_override: Some(*port),
                    ..OriginalDstLbConfig::default()
                })
            });
        } else {
            draft.cluster.load_assignment = Some(ClusterLoadAssignment {
                cluster_name: draft.cluster.name.clone(),
                endpoints: vec![locality_of(names::address(bind, first.target_port))],
                ..ClusterLoadAssignment::default()
            });
        }
        connection_pool::upstream_protocol(&mut draft, &first.port, self.capabilities);
        if self.capabilities.flags.telemetry_label {
            metadata::add_inbound_services(&mut draft.cluster, targets);
        }
        if self.capabilities.counts {
            metadata::add_counted(&mut draft.cluster, &first.service);
        }
        let pattern = &mesh.inbound_cluster_stat_name;
        if !pattern.is_empty() {
            let name = stat_name::fill_in(pattern, &first.service, "", &first.port, cluster_port);
            draft.cluster.alt_stat_name = format!("{name};");
        }
        self.apply_policy(&mut draft, cluster_port, first);
        self.apply_bind(&mut draft, bind);
        draft.build()
    }

    /// Limits apply to the server too, so that it accepts as much as clients are allowed to send. The Sidecar's own pool wins.
    fn apply_policy(&self, draft: &mut Draft, cluster_port: u32, target: &ServiceTarget) {
        let mesh = &self.context.mesh().config;
        let rule = self.scope.destination_rules.get(&target.service.hostname);
        let policy = rule.and_then(|r| r.rule.traffic_policy.as_ref());
        let (policy, _) = EffectivePolicy::for_port(policy, target.port.port);
        let policy = policy.over_mesh_default(mesh);
        if let Some(rule) = rule.filter(|r| r.rule.traffic_policy.is_some() && draft.cluster.metadata.is_some()) {
            metadata::add_rule(&mut draft.cluster, rule);
        }
        let pool = self.scope.inbound_connection_pool(cluster_port).or(policy.connection_pool);
        connection_pool::apply(draft, mesh, self.capabilities, pool, policy.retry_budget);
    }

    /// Traffic to the workload's own address is redirected to the proxy unless it comes from a known source address.
    fn apply_bind(&self, draft: &mut Draft, bind: &str) {
        if bind == "127.0.0.1" || bind == "::1" {
            return;
        }
        let dual = self.view.is_dual_stack() && self.capabilities.flags.dual_stack;
        let source = if self.view.ipv4 { PASSTHROUGH_BIND_V4 } else { PASSTHROUGH_BIND_V6 };
        draft.cluster.upstream_bind_config = Some(bind_config(source, dual.then_some(PASSTHROUGH_BIND_V6)));
    }
}
