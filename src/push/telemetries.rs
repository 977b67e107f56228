//! Telemetries, and the ones that apply to a workload (Istio's `applicableTelemetries`).
//!
//! Invariants: the order is that of precedence, later ones override: the oldest Telemetry without targets of the root
//! namespace, that of the workload's own namespace, those of this namespace that name the workload, oldest first. A further
//! Telemetry of a namespace without targets has no effect.

use std::{collections::HashMap, sync::Arc};

use super::{ProxyView, context::PushInputs, policies};
use crate::model::{Config, Kind, NodeType, PolicyTargets, Service};

/// Telemetries by namespace.
#[derive(Debug, Default)]
pub struct TelemetryIndex {
    root: Arc<str>,
    /// Whether selectors count for gateways of the Gateway API.
    selectors_of_gateways: bool,
    by_namespace: HashMap<Arc<str>, Vec<Arc<Config>>>,
}

impl TelemetryIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let mut by_namespace: HashMap<Arc<str>, Vec<Arc<Config>>> = HashMap::new();
        for config in inputs.configs.list(Kind::Telemetry) {
            by_namespace.entry(config.meta.namespace.clone()).or_default().push(config.clone());
        }
        Self {
            root: inputs.mesh.config.root_namespace.as_str().into(),
            selectors_of_gateways: inputs.features.enable_selector_based_k8s_gateway_policy,
            by_namespace,
        }
    }

    /// The Telemetries of a workload, in the order of precedence. The service counts for waypoints alone, whose traffic is that
    /// of services.
    #[must_use]
    pub fn applying<'a>(&'a self, view: &ProxyView, service: Option<&Service>) -> Vec<&'a Arc<Config>> {
        let service = service.filter(|_| view.node_type == NodeType::Waypoint);
        let mut found: Vec<&Arc<Config>> = self.of_all(&self.root).into_iter().collect();
        let mut namespace = &view.namespace;
        if *namespace != self.root {
            found.extend(self.of_all(namespace));
        }
        if let Some(other) = service.map(|s| &s.namespace).filter(|other| *other != namespace) {
            namespace = other;
            found.extend(self.of_all(namespace));
        }
        let names = |config: &Config| {
            let Some(targets) = PolicyTargets::of(config).filter(|targets| !targets.are_all()) else { return false };
            service.is_some_and(|s| s.namespace == config.meta.namespace && targets.name_service(s))
                || (view.node_type == NodeType::Waypoint
                    && config.meta.namespace == self.root
                    && targets.name_waypoints())
                || policies::applies(config, view, self.selectors_of_gateways)
        };
        found.extend(self.of(namespace).iter().filter(|config| names(config)));
        found
    }

    /// Whether another index has the same Telemetries for a workload.
    #[must_use]
    pub fn same_for(&self, other: &Self, view: &ProxyView) -> bool {
        let stamps = |index: &Self| index.applying(view, None).iter().map(|c| c.stamp).collect::<Vec<_>>();
        stamps(self) == stamps(other)
    }

    fn of(&self, namespace: &str) -> &[Arc<Config>] {
        self.by_namespace.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The Telemetry that counts for all workloads of a namespace.
    fn of_all(&self, namespace: &str) -> Option<&Arc<Config>> {
        self.of(namespace).iter().find(|config| PolicyTargets::of(config).is_some_and(|targets| targets.are_all()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::{ConfigSnapshot, Locality, Node, Origin, Registry, decode},
        push::PushContext,
    };

    fn telemetry(namespace: &str, name: &str, created: u32, spec: Value) -> Arc<Config> {
        let document = json!({
            "apiVersion": "telemetry.istio.io/v1", "kind": "Telemetry",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": format!("20{created:02}-01-01T00:00:00Z")},
            "spec": spec,
        });
        Arc::new(decode::from_value(&document, Origin::default()).expect("a Telemetry"))
    }

    fn of(all: &[Arc<Config>], id: &str, labels: Value, service: Option<&Service>) -> Vec<String> {
        let configs = ConfigSnapshot::of(all.iter().cloned());
        let context = PushContext::build(PushInputs { configs, ..PushInputs::default() });
        let node = Node::from_parts(id, json!({"LABELS": labels}), Locality::default()).expect("a node");
        let found = context.telemetries.applying(&context.view_of(&node), service);
        found.into_iter().map(|c| c.meta.name.to_string()).collect()
    }

    #[test]
    fn the_root_comes_first_and_the_workload_last() {
        let selector = json!({"selector": {"matchLabels": {"app": "a"}}});
        let all = [
            telemetry("shop", "newer", 25, json!({})),
            telemetry("shop", "own", 20, json!({"selector": {"matchLabels": {}}})),
            telemetry("shop", "second", 24, selector.clone()),
            telemetry("shop", "first", 23, selector.clone()),
            telemetry("istio-system", "root", 20, json!({})),
            telemetry("istio-system", "of-root", 20, selector),
            telemetry("bank", "other", 20, json!({})),
        ];
        let sidecar = |namespace: &str| format!("sidecar~10.0.0.1~p.{namespace}~{namespace}.svc.cluster.local");
        let a = json!({"app": "a"});
        assert_eq!(of(&all, &sidecar("shop"), a.clone(), None), ["root", "own", "first", "second"]);
        assert_eq!(of(&all, &sidecar("shop"), json!({"app": "b"}), None), ["root", "own"]);
        assert_eq!(of(&all, &sidecar("istio-system"), a, None), ["root", "of-root"]);
    }

    #[test]
    fn references_name_gateways_and_services_behind_waypoints() {
        let reference =
            |group: &str, kind: &str, name: &str| json!({"targetRefs": [{"group": group, "kind": kind, "name": name}]});
        let all = [
            telemetry("shop", "gateway", 20, reference("gateway.networking.k8s.io", "Gateway", "edge")),
            telemetry("shop", "service", 21, reference("", "Service", "api")),
            telemetry("bank", "far", 20, reference("", "Service", "api")),
        ];
        let edge = json!({"gateway.networking.k8s.io/gateway-name": "edge"});
        let router = "router~10.0.0.1~p.shop~shop.svc.cluster.local";
        assert_eq!(of(&all, router, edge.clone(), None), ["gateway"]);
        let waypoint = "waypoint~10.0.0.1~p.shop~shop.svc.cluster.local";
        let service = |namespace: &str| Service {
            name: "api".into(),
            namespace: namespace.into(),
            registry: Registry::Kubernetes,
            ..Service::default()
        };
        let (near, far) = (service("shop"), service("bank"));
        assert_eq!(of(&all, waypoint, edge.clone(), Some(&near)), ["gateway", "service"]);
        assert_eq!(of(&all, waypoint, edge.clone(), Some(&far)), ["far"]);
        assert_eq!(of(&all, router, edge, Some(&near)), ["gateway"]);
    }
}
