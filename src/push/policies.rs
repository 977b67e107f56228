//! AuthorizationPolicies and RequestAuthentications, and the ones that apply to a workload (Istio's `policyattachment.go`).
//!
//! Invariants: a policy counts in its own namespace, one of the root namespace in all; oldest first. A workload that is a
//! gateway of the Gateway API takes policies that refer to it, any other workload takes none with references. Services,
//! ServiceEntries and GatewayClasses as targets concern waypoints alone.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{ProxyView, context::PushInputs};
use crate::{
    model::{Config, Kind, NodeType, PolicyTargets, key_set::KeyLocation},
    proto::istio::security::v1beta1::authorization_policy::Action,
};

/// Names the Gateway that a workload is an instance of.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// Policies by namespace.
#[derive(Debug, Default)]
pub struct PolicyIndex {
    root: Arc<str>,
    /// Whether selectors count for gateways of the Gateway API.
    selectors_of_gateways: bool,
    authorization: HashMap<Arc<str>, Vec<Arc<Config>>>,
    authentication: HashMap<Arc<str>, Vec<Arc<Config>>>,
}

/// The AuthorizationPolicies of a workload by action: those of the root namespace first, oldest first.
#[derive(Debug, Clone, Default)]
pub struct AuthorizationPolicies {
    /// Decided by an external authorizer.
    pub custom: Vec<Arc<Config>>,
    /// Requests that match one are refused.
    pub deny: Vec<Arc<Config>>,
    /// A request that matches none of them is refused, unless there are none.
    pub allow: Vec<Arc<Config>>,
    /// Requests that match one are marked for the log.
    pub audit: Vec<Arc<Config>>,
}

impl AuthorizationPolicies {
    /// Policies in the order of their evaluation within one action.
    pub fn of(policies: impl IntoIterator<Item = Arc<Config>>) -> Self {
        let mut all = Self::default();
        for config in policies {
            let Some(policy) = config.authorization_policy() else { continue };
            let of_action = match policy.action() {
                Action::Allow => &mut all.allow,
                Action::Deny => &mut all.deny,
                Action::Audit => &mut all.audit,
                Action::Custom => &mut all.custom,
            };
            of_action.push(config);
        }
        all
    }
}

impl PolicyIndex {
    /// The kinds that this is made from.
    pub const KINDS: [Kind; 2] = [Kind::AuthorizationPolicy, Kind::RequestAuthentication];

    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let by_namespace = |kind: Kind| {
            let mut all: HashMap<Arc<str>, Vec<Arc<Config>>> = HashMap::new();
            for config in inputs.configs.list(kind) {
                all.entry(config.meta.namespace.clone()).or_default().push(config.clone());
            }
            all
        };
        Self {
            root: inputs.mesh.config.root_namespace.as_str().into(),
            selectors_of_gateways: inputs.features.enable_selector_based_k8s_gateway_policy,
            authorization: by_namespace(Kind::AuthorizationPolicy),
            authentication: by_namespace(Kind::RequestAuthentication),
        }
    }

    /// The AuthorizationPolicies that apply to a workload.
    #[must_use]
    pub fn authorization(&self, view: &ProxyView) -> AuthorizationPolicies {
        let namespaces = [&*self.root, &*view.namespace];
        AuthorizationPolicies::of(self.applying(&self.authorization, namespaces, view).cloned())
    }

    /// The RequestAuthentications that apply to a workload: those of its namespace before those of the root namespace.
    pub fn authentication<'a>(&'a self, view: &'a ProxyView) -> impl Iterator<Item = &'a Arc<Config>> {
        self.applying(&self.authentication, [&*view.namespace, &*self.root], view)
    }

    /// Whether a workload's policies verify tokens with keys of one of these locations.
    #[must_use]
    pub fn reads_keys(&self, locations: &BTreeSet<KeyLocation>, view: &ProxyView) -> bool {
        let rules = self.authentication(view).filter_map(|c| c.request_authentication()).flat_map(|p| &p.jwt_rules);
        rules.into_iter().filter_map(KeyLocation::of).any(|at| locations.contains(&at))
    }

    /// Whether another index has the same policies for a workload.
    #[must_use]
    pub fn same_for(&self, other: &Self, view: &ProxyView) -> bool {
        let stamps = |index: &Self| {
            let namespaces = [&*index.root, &*view.namespace];
            let authorization = index.applying(&index.authorization, namespaces, view).map(|c| c.stamp);
            let authentication = index.authentication(view).map(|c| c.stamp);
            (authorization.collect::<Vec<_>>(), authentication.collect::<Vec<_>>())
        };
        stamps(self) == stamps(other)
    }

    fn applying<'a>(
        &'a self,
        policies: &'a HashMap<Arc<str>, Vec<Arc<Config>>>,
        namespaces: [&str; 2],
        view: &'a ProxyView,
    ) -> impl Iterator<Item = &'a Arc<Config>> {
        let [first, second] = namespaces;
        let of = |namespace: &str| policies.get(namespace).map_or(&[][..], Vec::as_slice);
        let rest = if first == second { &[][..] } else { of(second) };
        of(first).iter().chain(rest).filter(|config| applies(config, view, self.selectors_of_gateways))
    }
}

/// Whether a policy that is looked up for a workload names it. `selectors_of_gateways` says whether selectors count for
/// gateways of the Gateway API.
pub(super) fn applies(config: &Config, view: &ProxyView, selectors_of_gateways: bool) -> bool {
    let Some(targets) = PolicyTargets::of(config) else { return false };
    let is_waypoint = view.node_type == NodeType::Waypoint;
    let Some(gateway) = view.labels.get(GATEWAY_NAME) else {
        return targets.references.is_empty() && targets.select(&view.labels);
    };
    if targets.references.is_empty() {
        return !is_waypoint && selectors_of_gateways && targets.select(&view.labels);
    }
    config.meta.namespace == view.namespace && targets.name_gateway(gateway, &view.namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::{ConfigSnapshot, Features, Locality, Node, Origin, decode},
        push::PushContext,
    };

    fn policy(namespace: &str, name: &str, spec: Value) -> Arc<Config> {
        let document = json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        Arc::new(decode::from_value(&document, Origin::default()).expect("an AuthorizationPolicy"))
    }

    fn of(policies: &[Arc<Config>], kind: &str, namespace: &str, labels: Value) -> Vec<String> {
        of_with(Features::default(), policies, kind, namespace, labels)
    }

    fn of_with(
        features: Features,
        policies: &[Arc<Config>],
        kind: &str,
        namespace: &str,
        labels: Value,
    ) -> Vec<String> {
        let configs = ConfigSnapshot::of(policies.iter().cloned());
        let context = PushContext::build(PushInputs { configs, features: features.into(), ..PushInputs::default() });
        let id = format!("{kind}~10.0.0.1~p.{namespace}~{namespace}.svc.cluster.local");
        let node = Node::from_parts(&id, json!({"LABELS": labels}), Locality::default()).expect("a node");
        let found = context.policies.authorization(&context.view_of(&node));
        found.allow.iter().chain(&found.deny).map(|c| c.meta.name.to_string()).collect()
    }

    #[test]
    fn policies_of_the_root_namespace_come_first_and_selectors_choose() {
        let selector = json!({"selector": {"matchLabels": {"app": "a"}}});
        let all = [
            policy("shop", "own", json!({})),
            policy("shop", "selected", selector.clone()),
            policy("istio-system", "root", json!({})),
            policy("istio-system", "root-selected", selector),
            policy("bank", "other", json!({})),
        ];
        assert_eq!(of(&all, "sidecar", "shop", json!({"app": "a"})), ["root", "root-selected", "own", "selected"]);
        assert_eq!(of(&all, "sidecar", "shop", json!({"app": "b"})), ["root", "own"]);
        assert_eq!(of(&all, "sidecar", "istio-system", json!({})), ["root"], "the same namespace counts once");
    }

    #[test]
    fn references_are_for_the_gateway_that_they_name() {
        let reference = |kind: &str, name: &str| {
            let group = if kind == "Service" { "" } else { "gateway.networking.k8s.io" };
            json!({"targetRefs": [{"group": group, "kind": kind, "name": name}]})
        };
        let all = [
            policy("shop", "edge", reference("Gateway", "edge")),
            policy("shop", "other", reference("Gateway", "other")),
            policy("istio-system", "root", reference("Gateway", "edge")),
            policy("shop", "service", reference("Service", "edge")),
            policy(
                "shop",
                "older",
                json!({"targetRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}}),
            ),
            policy("shop", "selector", json!({"selector": {"matchLabels": {GATEWAY_NAME: "edge"}}})),
        ];
        let edge = json!({ GATEWAY_NAME: "edge" });
        assert_eq!(of(&all, "router", "shop", edge.clone()), ["edge", "older", "selector"]);
        let references_alone = Features { enable_selector_based_k8s_gateway_policy: false, ..Features::default() };
        assert_eq!(of_with(references_alone.clone(), &all, "router", "shop", edge), ["edge", "older"]);
        let others = of_with(
            references_alone,
            &[policy("shop", "selector", json!({"selector": {"matchLabels": {"app": "a"}}}))],
            "router",
            "shop",
            json!({"app": "a"}),
        );
        assert_eq!(others, ["selector"], "gateways of Istio's own API go by selectors");
        assert_eq!(of(&all, "router", "shop", json!({"app": "edge"})), [""; 0]);
        assert_eq!(of(&all, "sidecar", "shop", json!({"app": "edge"})), [""; 0]);
        assert!(all[3].without_effect().is_some() && all[0].without_effect().is_none());
    }
}
