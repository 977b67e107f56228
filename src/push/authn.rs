//! PeerAuthentication: the mutual TLS mode in force for a workload and port (Istio's `authentication.go`, `authn` policies).
//!
//! Invariants: of several policies of one level the oldest counts; a policy with a selector in the root namespace counts
//! nowhere; a level with `UNSET` inherits.

mod service_mode;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::context::PushInputs;
use crate::{
    model::{Config, Kind, LabelLookup, Labels, labels},
    proto::istio::security::v1beta1::{
        PeerAuthentication,
        peer_authentication::{MutualTls, mutual_tls::Mode},
    },
};

/// Mutual TLS mode on the server side, after inheritance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MtlsMode {
    /// No policy sets a mode.
    Unknown,
    /// Plaintext only.
    Disable,
    /// Plaintext and mutual TLS.
    #[default]
    Permissive,
    /// Mutual TLS only.
    Strict,
}

/// The modes in force for one workload (Istio's `MergedPeerAuthentication`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PeerPolicy {
    /// The mode of ports that `ports` does not name.
    pub mode: MtlsMode,
    /// Modes by port of the workload (not of a service).
    pub ports: BTreeMap<u32, MtlsMode>,
}

impl PeerPolicy {
    /// The mode of a port of the workload.
    #[must_use]
    pub fn for_port(&self, port: u32) -> MtlsMode {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }
}

/// PeerAuthentications by level: mesh, namespace, workload.
#[derive(Debug, Default)]
pub struct AuthnPolicies {
    /// Hash of all PeerAuthentications and the root namespace: equal stamps mean equal answers.
    pub stamp: u64,
    /// The mesh-wide mode, once inheritance is resolved.
    mesh: MtlsMode,
    /// Namespace-wide modes, once inheritance is resolved.
    namespaces: HashMap<Arc<str>, MtlsMode>,
    /// Policies with a selector by namespace, oldest first.
    workloads: HashMap<Arc<str>, Vec<Arc<Config>>>,
}

impl AuthnPolicies {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let root = inputs.mesh.config.root_namespace.as_str();
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(root.as_bytes());
        let mut index = Self::default();
        let mut written: HashMap<Arc<str>, Option<MtlsMode>> = HashMap::new();
        for config in inputs.configs.list(Kind::PeerAuthentication) {
            let Some(policy) = config.peer_authentication() else { continue };
            hash.update(&config.stamp.to_le_bytes());
            let namespace = &config.meta.namespace;
            if selector(policy).is_none() {
                written.entry(namespace.clone()).or_insert_with(|| mode(policy.mtls.as_ref()));
            } else if **namespace != *root {
                index.workloads.entry(namespace.clone()).or_default().push(config.clone());
            }
        }
        index.mesh = written.remove(root).flatten().unwrap_or_default();
        index.namespaces = written.into_iter().map(|(name, mode)| (name, mode.unwrap_or(index.mesh))).collect();
        index.stamp = hash.digest().max(1);
        index
    }

    /// The modes in force for a workload: mesh < namespace < workload < port.
    #[must_use]
    pub fn policy(&self, namespace: &str, labels: &impl LabelLookup) -> PeerPolicy {
        let inherited = self.namespace_mode(namespace);
        let of_workload = self.workloads.get(namespace).into_iter().flatten().filter_map(|c| c.peer_authentication());
        let selects = |policy: &&PeerAuthentication| selector(policy).is_some_and(|s| labels::matches(s, labels));
        let Some(policy) = of_workload.into_iter().find(selects) else {
            return PeerPolicy { mode: inherited, ports: BTreeMap::new() };
        };
        let own = mode(policy.mtls.as_ref()).unwrap_or(inherited);
        let ports = policy.port_level_mtls.iter().map(|(port, mtls)| (*port, mode(Some(mtls)).unwrap_or(own)));
        PeerPolicy { mode: own, ports: ports.collect() }
    }

    /// The mode for a workload's port (`None`: the workload's own mode), mesh < namespace < workload < port.
    #[must_use]
    pub fn mode(&self, namespace: &str, labels: &impl LabelLookup, port: Option<u32>) -> MtlsMode {
        let policy = self.policy(namespace, labels);
        port.map_or(policy.mode, |port| policy.for_port(port))
    }

    /// The namespace-level mode for a service in `namespace` (auto mutual TLS on the client side); permissive when neither
    /// the namespace nor the mesh sets one.
    #[must_use]
    pub fn namespace_mode(&self, namespace: &str) -> MtlsMode {
        self.namespaces.get(namespace).copied().unwrap_or(self.mesh)
    }
}

/// The labels that a policy selects by; `None` for a policy of the whole namespace.
fn selector(policy: &PeerAuthentication) -> Option<&Labels> {
    policy.selector.as_ref().map(|s| &s.match_labels).filter(|labels| !labels.is_empty())
}

/// The mode as written; `None` when it is inherited.
fn mode(mtls: Option<&MutualTls>) -> Option<MtlsMode> {
    match mtls.map(MutualTls::mode)? {
        Mode::Unset => None,
        Mode::Disable => Some(MtlsMode::Disable),
        Mode::Permissive => Some(MtlsMode::Permissive),
        Mode::Strict => Some(MtlsMode::Strict),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{ConfigSnapshot, Origin, decode};

    fn policies(specs: Vec<(&str, &str, Value)>) -> AuthnPolicies {
        let config = |(namespace, name, spec): (&str, &str, Value)| {
            let document = json!({
                "apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
                "metadata": {"name": name, "namespace": namespace}, "spec": spec,
            });
            Arc::new(decode::from_value(&document, Origin::default()).expect("a PeerAuthentication"))
        };
        let configs = ConfigSnapshot::of(specs.into_iter().map(config));
        AuthnPolicies::build(&PushInputs { configs, ..PushInputs::default() })
    }

    fn mtls(mode: &str) -> Value {
        json!({"mtls": {"mode": mode}})
    }

    #[test]
    fn levels_inherit() {
        let labels = Labels::from([("app".to_string(), "a".to_string())]);
        let selector = json!({"matchLabels": {"app": "a"}});
        let all = policies(vec![
            ("istio-system", "mesh", mtls("STRICT")),
            ("istio-system", "never", json!({"selector": selector, "mtls": {"mode": "DISABLE"}})),
            ("x", "a-oldest", mtls("DISABLE")),
            ("x", "b-younger", mtls("PERMISSIVE")),
            ("y", "unset", json!({})),
            (
                "x",
                "workload",
                json!({"selector": selector, "portLevelMtls": {"80": {"mode": "STRICT"}, "81": {"mode": "UNSET"}}}),
            ),
        ]);
        assert_eq!(all.namespace_mode("other"), MtlsMode::Strict);
        assert_eq!(all.namespace_mode("y"), MtlsMode::Strict);
        assert_eq!(all.mode("istio-system", &labels, None), MtlsMode::Strict);
        assert_eq!(all.mode("x", &Labels::new(), Some(80)), MtlsMode::Disable);
        let policy = all.policy("x", &labels);
        assert_eq!(policy.mode, MtlsMode::Disable);
        assert_eq!(
            [80, 81, 82].map(|port| policy.for_port(port)),
            [MtlsMode::Strict, MtlsMode::Disable, MtlsMode::Disable]
        );
    }

    #[test]
    fn nothing_said_is_permissive() {
        assert_eq!(policies(vec![]).mode("x", &Labels::new(), Some(80)), MtlsMode::Permissive);
        assert_eq!(policies(vec![("istio-system", "m", mtls("UNSET"))]).namespace_mode("x"), MtlsMode::Permissive);
    }
}
