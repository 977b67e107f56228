//! Everything that the endpoints of one cluster are made from.

use std::{hash::Hash, sync::Arc};

use super::{
    client::{EndpointClient, proxy_labels},
    locality::{LocalityLb, ProxyLocality, TrafficDistribution},
};
use crate::{
    generate::traffic_policy::{self, EffectivePolicy},
    model::{ConfigKey, Endpoint, EndpointSet, Features, Kind, Labels, Mesh, Port, Registry, Service, host},
    proto::networking::{DestinationRule, client_tls_settings::TlSmode},
    push::{
        MergedDestinationRule, ProxyView, PushContext, authn::AuthnPolicies, network_gateways::NetworkGateways,
        view::TEMPLATE_HASHES,
    },
};

/// A DestinationRule: the first of those that were merged.
#[must_use]
pub fn destination_rule(rule: &MergedDestinationRule) -> ConfigKey {
    ConfigKey { kind: Kind::DestinationRule, namespace: rule.namespace.clone(), name: rule.name.clone() }
}

/// The ServiceEntry that a service is made from.
#[must_use]
pub fn service_entry(service: &Service) -> Option<ConfigKey> {
    let (namespace, name) = (service.namespace.clone(), service.object_name.clone());
    let external = service.registry == Registry::External;
    external.then_some(ConfigKey { kind: Kind::ServiceEntry, namespace, name })
}

/// The inputs of the endpoints of one cluster, and nothing else: builders take only this. Equal keys, equal endpoints.
#[derive(Debug, Clone)]
pub struct EndpointInputs<'a> {
    /// Name of the cluster.
    pub cluster_name: String,
    /// The service.
    pub service: &'a Service,
    /// Its port.
    pub port: &'a Port,
    /// Name of the subset; empty is all.
    pub subset: &'a str,
    /// The DestinationRule.
    pub rule: Option<&'a MergedDestinationRule>,
    /// The endpoints of the service, all ports.
    pub set: Option<&'a EndpointSet>,
    /// The client.
    pub client: &'a EndpointClient,
    /// The locality of the client; set only where priorities and weights depend on it.
    pub place: Option<ProxyLocality>,
    /// The workload whose replicas alone are meant; set only for the cluster of a client's own endpoints.
    pub replicas: Option<Replicas>,
    /// The client's node; set only for a service that keeps to the node.
    pub node_name: Option<Arc<str>>,
    /// Mesh settings.
    pub mesh: &'a Mesh,
    /// Feature flags, fixed for the life of the process.
    pub features: &'a Features,
    /// Gateways between networks.
    pub gateways: &'a NetworkGateways,
    /// PeerAuthentications in force, which decide the mutual TLS of endpoints.
    pub authn: &'a AuthnPolicies,
}

impl<'a> EndpointInputs<'a> {
    /// The inputs for a cluster of a service's port.
    #[must_use]
    pub fn of(
        context: &'a PushContext,
        view: &ProxyView,
        client: &'a EndpointClient,
        target: ClusterTarget<'a>,
        cluster_name: String,
    ) -> Self {
        let ClusterTarget { service, port, subset, rule } = target;
        let mesh = &*context.inputs.mesh;
        let policy =
            EffectivePolicy::of_rule(rule.map(|r| &*r.rule), port.port, subset).over_mesh_default(&mesh.config);
        let place = LocalityLb::effective(&mesh.config, policy.load_balancer, service)
            .filter(|setting| setting.depends_on_proxy(policy.outlier_detection.is_some()))
            .map(|setting| ProxyLocality::of(&setting, &view.locality, &proxy_labels(view)));
        Self {
            cluster_name,
            service,
            port,
            subset,
            rule,
            set: context.endpoints().get(&service.hostname, &service.namespace).map(|s| &**s),
            client,
            place,
            replicas: None,
            node_name: service.node_local.then(|| view.metadata.node_name.clone()),
            mesh,
            features: context.features(),
            gateways: &context.network_gateways,
            authn: &context.authn,
        }
    }

    /// The inputs for the client's own replicas: no rule and no setting of load balancing applies to them.
    #[must_use]
    pub fn of_replicas(
        context: &'a PushContext,
        view: &ProxyView,
        client: &'a EndpointClient,
        target: ClusterTarget<'a>,
        cluster_name: String,
    ) -> Self {
        let inputs = Self::of(context, view, client, target, cluster_name);
        Self { place: None, replicas: Some(Replicas::of(view)), ..inputs }
    }

    /// The same inputs for another subset, whose cluster has another name.
    #[must_use]
    pub fn with_subset(&self, subset: &'a str, cluster_name: String) -> Self {
        Self { cluster_name, subset, ..self.clone() }
    }

    /// The ServiceEntry that the service is made from.
    #[must_use]
    pub fn object(&self) -> Option<ConfigKey> {
        service_entry(self.service)
    }

    /// The object that decides most of the cluster: its DestinationRule, else its ServiceEntry.
    #[must_use]
    pub fn rule_or_object(&self) -> Option<ConfigKey> {
        self.rule.map_or_else(|| self.object(), |rule| Some(destination_rule(rule)))
    }

    /// Hash of all inputs by their stamps.
    #[must_use]
    pub fn key(&self) -> u128 {
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        (&self.cluster_name, self.service.stamp, self.port, self.subset).hash(&mut hasher);
        (self.rule.map(|r| r.stamp), self.set.map(|s| s.stamp), self.client.stamp()).hash(&mut hasher);
        (&self.place, &self.replicas, &self.node_name, self.mesh.stamp).hash(&mut hasher);
        (self.gateways.resolved.stamp, self.gateways.unresolved.stamp, self.authn.stamp).hash(&mut hasher);
        hasher.digest128()
    }

    /// The DestinationRule's content.
    pub(crate) fn destination_rule(&self) -> Option<&'a DestinationRule> {
        self.rule.map(|r| &*r.rule)
    }

    /// The policy of rule and subset, without the mesh's default.
    pub(crate) fn policy(&self) -> EffectivePolicy<'a> {
        EffectivePolicy::of_rule(self.destination_rule(), self.port.port, self.subset)
    }

    /// The labels of the subset; none means all endpoints, also for a subset that does not exist.
    pub(crate) fn subset_labels(&self) -> Option<&'a Labels> {
        if self.subset.is_empty() {
            return None;
        }
        traffic_policy::find_subset(self.destination_rule()?, self.subset).map(|s| &s.labels)
    }

    /// The TLS mode that the rule gives.
    pub(crate) fn rule_tls_mode(&self) -> Option<TlSmode> {
        traffic_policy::tls_mode(self.destination_rule(), self.port.port, self.subset)
    }

    /// Endpoints that are not healthy are sent too (Istio's `supportsUnhealthyEndpoints`).
    pub(crate) fn sends_unhealthy(&self) -> bool {
        if forces_unhealthy(self.features, self.service) {
            return true;
        }
        let guarded = self.policy().outlier_detection.is_some_and(|o| o.min_health_percent > 0);
        self.features.auto_send_unhealthy_endpoints && !guarded
    }

    /// Only endpoints of the client's own cluster count (Istio's `clusterLocalHosts`).
    pub(crate) fn is_cluster_local(&self) -> bool {
        is_cluster_local(self.mesh, &self.service.hostname)
    }
}

/// The replicas of a client's workload in its region.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replicas {
    workload_name: Arc<str>,
    template_hashes: [Option<String>; 2],
    region: Arc<str>,
}

impl Replicas {
    /// Those of this client.
    #[must_use]
    pub fn of(view: &ProxyView) -> Self {
        Self {
            workload_name: view.metadata.workload_name.clone(),
            template_hashes: TEMPLATE_HASHES.map(|key| view.labels.get(key).cloned()),
            region: view.locality.region.clone(),
        }
    }

    /// Whether the endpoint is one. A client that does not say the name of its workload (a machine outside of any cluster, whose
    /// WorkloadEntries have a name each) has the whole service beside it.
    pub(super) fn contains(&self, endpoint: &Endpoint) -> bool {
        let named = self.workload_name.is_empty() || self.workload_name == endpoint.workload_name;
        let hashes = TEMPLATE_HASHES.map(|key| endpoint.labels.get(key));
        named
            && self.template_hashes.each_ref().map(Option::as_deref) == hashes
            && self.region == endpoint.locality.region
    }
}

/// A cluster of a service: its port, subset and rule.
#[derive(Debug, Clone, Copy)]
pub struct ClusterTarget<'a> {
    /// The service.
    pub service: &'a Service,
    /// Its port.
    pub port: &'a Port,
    /// Name of the subset; empty is all.
    pub subset: &'a str,
    /// The DestinationRule.
    pub rule: Option<&'a MergedDestinationRule>,
}

/// The service always gets endpoints that are not healthy: by flag, or since it prefers close ones and Envoy has to know
/// when to look further away.
#[must_use]
pub fn forces_unhealthy(features: &Features, service: &Service) -> bool {
    features.send_unhealthy_endpoints || TrafficDistribution::of(service) != TrafficDistribution::Any
}

/// Whether a host is local to each cluster: by the most specific `serviceSettings` host, else by Istio's own list
/// (`kube-system`, the API server, istiod), except those that a setting excludes.
fn is_cluster_local(mesh: &Mesh, hostname: &str) -> bool {
    let settings = &mesh.config.service_settings;
    let local =
        |s: &crate::proto::mesh::mesh_config::ServiceSettings| s.settings.as_ref().is_some_and(|x| x.cluster_local);
    let written = settings.iter().flat_map(|s| s.hosts.iter().map(move |h| (h.clone(), local(s))));
    let domain = &mesh.domain;
    let discovery = mesh.config.default_config.as_ref().map_or("", |d| d.discovery_address.as_str());
    let discovery = discovery.split(':').next().unwrap_or_default();
    let discovery =
        if discovery.ends_with(&**domain) { discovery.to_string() } else { format!("{discovery}.{domain}") };
    let defaults = [format!("*.kube-system.svc.{domain}"), format!("kubernetes.default.svc.{domain}"), discovery]
        .into_iter()
        .filter(|default| {
            let overridden =
                |h: &String| h == default || default.strip_prefix('*').is_some_and(|suffix| h.ends_with(suffix));
            !settings.iter().filter(|s| !local(s)).any(|s| s.hosts.iter().any(overridden))
        });
    let mut fitting: Vec<(String, bool)> =
        written.chain(defaults.map(|d| (d, true))).filter(|(h, _)| host::subset_of(hostname, h)).collect();
    fitting.sort_by(|a, b| host::specificity(&a.0, &b.0));
    fitting.first().is_some_and(|(_, local)| *local)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        generate::endpoint::EndpointPlan,
        model::{EndpointIndex, Locality, Node, Registry, RegistrySnapshot, ShardKey},
        push::{PushContext, context::PushInputs},
    };

    /// gRPC-Go refuses an address that is named twice; Envoy gets another resource of the same service.
    #[test]
    fn the_dialect_of_a_client_is_in_the_key() {
        let port = Port { name: "http".into(), port: 80, ..Port::default() };
        let service = Service { hostname: "h".into(), namespace: "b".into(), ports: vec![port], ..Service::default() };
        let endpoint = |lb_weight| {
            let addresses = vec!["10.0.0.9".into()];
            Arc::new(Endpoint {
                addresses,
                port: 80,
                service_port_name: "http".into(),
                lb_weight,
                ..Endpoint::default()
            })
        };
        let shard = ShardKey { provider: Registry::Kubernetes, cluster: "c".into() };
        let set = EndpointSet::of(vec![(shard, Arc::from([endpoint(1), endpoint(2)]))]);
        let mut endpoints = EndpointIndex::default();
        endpoints.by_service.insert(("h".into(), "b".into()), Arc::new(set));
        let services = Arc::new(vec![Arc::new(service.stamped())]);
        let registry = RegistrySnapshot { services, endpoints: Arc::new(endpoints), ..RegistrySnapshot::default() };
        let context = PushContext::build(PushInputs { registry, ..PushInputs::default() });
        let made = |metadata| {
            let id = "sidecar~10.0.0.1~a.b~b.svc.cluster.local";
            let view = context.view_of(&Node::from_parts(id, metadata, Locality::default()).unwrap());
            let read = |inputs: &EndpointInputs<'_>| {
                let assignment = inputs.load_assignment();
                (inputs.key(), assignment.endpoints.iter().map(|group| group.lb_endpoints.len()).sum::<usize>())
            };
            EndpointPlan::of(&context, &view).with("outbound|80||h", read).unwrap()
        };
        let (envoy, grpc) = (made(json!({})), made(json!({"GENERATOR": "grpc"})));
        assert_eq!((envoy.1, grpc.1), (2, 1));
        assert_ne!(envoy.0, grpc.0);
    }

    #[test]
    fn cluster_local_hosts() {
        let mesh = |settings| {
            Mesh::from_values(&json!({"serviceSettings": settings}), &json!({}), "cluster.local", "Kubernetes").unwrap()
        };
        let plain = mesh(json!([]));
        assert!(is_cluster_local(&plain, "dns.kube-system.svc.cluster.local"));
        assert!(is_cluster_local(&plain, "istiod.istio-system.svc.cluster.local"));
        assert!(!is_cluster_local(&plain, "a.b.svc.cluster.local"));
        let set = mesh(json!([
            {"settings": {"clusterLocal": true}, "hosts": ["*.b.svc.cluster.local"]},
            {"settings": {"clusterLocal": false}, "hosts": ["a.b.svc.cluster.local", "*.kube-system.svc.cluster.local"]}
        ]));
        assert!(is_cluster_local(&set, "c.b.svc.cluster.local"));
        assert!(!is_cluster_local(&set, "a.b.svc.cluster.local"));
        assert!(!is_cluster_local(&set, "dns.kube-system.svc.cluster.local"));
    }
}
