//! The workloads that a policy names: by labels, or by references to objects that they belong to.

use super::{Config, LabelLookup, Registry, Service, config::Spec, labels};
use crate::proto::istio::r#type::v1beta1::{PolicyTargetReference, WorkloadSelector};

/// Group of the Gateway API.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Group of ServiceEntries.
const ISTIO_GROUP: &str = "networking.istio.io";
/// The class of waypoints, which stands for all of them.
const WAYPOINT_CLASS: &str = "istio-waypoint";

/// The workloads that a policy, a Telemetry or an extension is for.
#[derive(Debug, Clone, Copy)]
pub struct PolicyTargets<'a> {
    selector: Option<&'a WorkloadSelector>,
    /// References; where there is one, labels do not count.
    pub references: &'a [PolicyTargetReference],
}

impl<'a> PolicyTargets<'a> {
    /// The targets of an AuthorizationPolicy, a RequestAuthentication, a WasmPlugin or a TrafficExtension; `None` for other kinds.
    #[must_use]
    pub fn of(config: &'a Config) -> Option<Self> {
        let (selector, reference, references) = match &config.spec {
            Spec::AuthorizationPolicy(policy) => (&policy.selector, &policy.target_ref, &policy.target_refs),
            Spec::RequestAuthentication(policy) => (&policy.selector, &policy.target_ref, &policy.target_refs),
            Spec::Telemetry(telemetry) => (&telemetry.selector, &telemetry.target_ref, &telemetry.target_refs),
            Spec::WasmPlugin(plugin) => (&plugin.selector, &plugin.target_ref, &plugin.target_refs),
            Spec::TrafficExtension(extension) => (&extension.selector, &None, &extension.target_refs),
            _ => return None,
        };
        // The single reference is the older form; it counts where the list is empty.
        let single = reference.as_ref().map_or(&[][..], std::slice::from_ref);
        let references = if references.is_empty() { single } else { references };
        Some(Self { selector: selector.as_ref(), references })
    }

    /// Whether the selector, if there is one, takes a workload with these labels.
    #[must_use]
    pub fn select(&self, workload: &impl LabelLookup) -> bool {
        self.selector.is_none_or(|s| labels::matches(&s.match_labels, workload))
    }

    /// Whether a reference names this Gateway, in the namespace of the policy.
    #[must_use]
    pub fn name_gateway(&self, gateway: &str, namespace: &str) -> bool {
        let here = |r: &PolicyTargetReference| r.namespace.is_empty() || r.namespace == namespace;
        self.references.iter().any(|r| is_gateway(r) && r.name == gateway && here(r))
    }

    /// Whether nothing is named, so that all workloads of the namespace are meant.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.references.is_empty() && self.selector.is_none_or(|s| s.match_labels.is_empty())
    }

    /// Whether a reference names this service, which is in the namespace of the policy (waypoints ask so).
    #[must_use]
    pub fn name_service(&self, service: &Service) -> bool {
        let kind = |r: &PolicyTargetReference| match service.registry {
            Registry::Kubernetes => matches!(&*r.group, "" | "core") && r.kind == "Service",
            Registry::External => r.group == ISTIO_GROUP && r.kind == "ServiceEntry",
            _ => false,
        };
        let name = if service.object_name.is_empty() { &service.name } else { &service.object_name };
        self.references.iter().any(|r| kind(r) && *r.name == **name)
    }

    /// Whether a reference names the class of all waypoints.
    #[must_use]
    pub fn name_waypoints(&self) -> bool {
        let class = |r: &PolicyTargetReference| r.group == GATEWAY_GROUP && r.kind == "GatewayClass";
        self.references.iter().any(|r| class(r) && r.name == WAYPOINT_CLASS)
    }

    /// Whether the policy is for waypoints alone: Services, ServiceEntries and GatewayClasses are targets of no other proxy.
    #[must_use]
    pub fn are_waypoints(&self) -> bool {
        !self.references.is_empty() && !self.references.iter().any(is_gateway)
    }
}

fn is_gateway(reference: &PolicyTargetReference) -> bool {
    reference.group == GATEWAY_GROUP && reference.kind == "Gateway"
}

impl Config {
    /// The reason the object has no effect, where its targets are none that configure proxies yet.
    #[must_use]
    pub fn without_effect(&self) -> Option<&'static str> {
        let alone = PolicyTargets::of(self).is_some_and(|targets| targets.are_waypoints());
        alone.then_some("the policy has no effect yet: its targets are for waypoints, and there are none")
    }
}
