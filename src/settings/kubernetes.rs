//! Settings of a Kubernetes cluster: the access to its API server, and the watches.

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::model::{Kind, KindClass};

/// The access to an API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeAccess {
    /// From inside the cluster, with the service account of the pod.
    InCluster {
        /// Folder with the account's `token` and `ca.crt`.
        account: PathBuf,
    },
    /// By a kubeconfig that is given as text, not as a file.
    Text(KubeconfigText),
    /// By a kubeconfig file.
    Kubeconfig {
        /// Path of the file.
        path: PathBuf,
        /// Name of the context; `None` for the file's current one.
        context: Option<String>,
    },
}

/// The text of a kubeconfig. It may hold credentials, so it is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct KubeconfigText(pub Arc<str>);

impl fmt::Debug for KubeconfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubeconfigText(..)")
    }
}

/// Settings of a Kubernetes cluster as a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeSettings {
    /// Access to the API server.
    pub access: KubeAccess,
    /// Whether services, Pods and credentials are read in addition to config.
    pub registry: bool,
    /// Watched namespaces; empty for all.
    pub watch_namespaces: Vec<String>,
    /// Kinds that are never read.
    pub left_out: BTreeSet<Kind>,
    /// Revision of this control plane: objects with another in `istio.io/rev` are not read. Empty reads all.
    pub revision: String,
    /// Namespace of the ConfigMap with the mesh settings.
    pub namespace: String,
    /// Name of a second ConfigMap there, whose mesh settings are the base of the first one's; empty for none.
    pub shared_mesh: String,
    /// Timeout of each page of a list, and of the head of any response.
    pub list_timeout: Duration,
    /// Duration of a watch request; a silent peer is detected 5 s later.
    pub watch_timeout: Duration,
    /// The interval of full lists while all watches work.
    pub relist: Duration,
    /// First pause after a failure; it doubles with each consecutive one.
    pub first_pause: Duration,
    /// Longest pause after a failure.
    pub longest_pause: Duration,
    /// Pause after a refusal to read a kind, or for a kind that does not exist.
    pub refused_pause: Duration,
    /// The time for which a refusal (403) may be temporary, as with a server that just started; after that the kind counts as
    /// forbidden.
    pub refused_patience: Duration,
    /// The time that a mass deletion seen in a list only is held back; zero applies it at once, as Istio does.
    pub deletion_hold: Duration,
    /// Whether statuses are written.
    pub write_status: bool,
    /// The leader election lease of the status writer.
    pub lease: LeaseSettings,
}

/// Kinds excluded by lists of CRD names: those in `PILOT_IGNORE_RESOURCES` but not in `PILOT_INCLUDE_RESOURCES`. In the lists
/// `*.GROUP` means all kinds of groups with that ending. Without Gateway API, all of its kinds are excluded.
#[must_use]
pub fn left_out(ignored: &str, included: &str, gateway_api: bool) -> BTreeSet<Kind> {
    let names = |list: &str, name: &str| {
        let mut entries = list.split(',').map(str::trim).filter(|e| !e.is_empty());
        entries.any(|e| e.strip_prefix("*.").map_or(e == name, |end| name.ends_with(end)))
    };
    let is_left_out = |kind: &Kind| {
        let name = format!("{}.{}", kind.plural(), kind.group());
        match kind.class() {
            KindClass::Kubernetes => false,
            KindClass::GatewayApi if !gateway_api => true,
            _ => names(ignored, &name) && !names(included, &name),
        }
    };
    Kind::ALL.iter().copied().filter(is_left_out).collect()
}

/// Settings of remote clusters: their discovery, and the wait for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// The time that startup waits for them; zero waits without limit.
    pub patience: Duration,
    /// Folder with a kubeconfig for each of them; replaces the Secrets of the main cluster.
    pub kubeconfigs: Option<PathBuf>,
    /// Access to the cluster with their Secrets, if it is not the main one.
    pub secrets_in: Option<KubeAccess>,
    /// Kubeconfig features that are allowed although they read files or run programs on this machine (Istio's names).
    pub allowed: BTreeSet<String>,
    /// Kinds that are not read from them.
    pub left_out: BTreeSet<Kind>,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            kubeconfigs: None,
            secrets_in: None,
            allowed: BTreeSet::new(),
            left_out: BTreeSet::new(),
        }
    }
}

/// The leader election lease of the status writer (Istio's durations).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Duration of the lease without renewal, in whole seconds.
    pub duration: Duration,
    /// The time that the holder keeps writing without a renewal; shorter than `duration`, so that two never write at once.
    pub renew: Duration,
    /// The interval of checks and renewals.
    pub look: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(30), renew: seconds(15), look: Duration::from_millis(7500) }
    }
}

impl KubeSettings {
    /// Default settings for a cluster with this access.
    #[must_use]
    pub fn new(access: KubeAccess) -> Self {
        Self {
            access,
            registry: true,
            watch_namespaces: Vec::new(),
            left_out: BTreeSet::new(),
            revision: String::new(),
            namespace: "istio-system".to_string(),
            shared_mesh: String::new(),
            list_timeout: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(120),
            relist: Duration::from_secs(1800),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            refused_pause: Duration::from_secs(30),
            refused_patience: Duration::from_secs(5),
            deletion_hold: Duration::from_secs(600),
            write_status: false,
            lease: LeaseSettings::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_left_out_by_name_and_by_group() {
        let of = |ignored: &str, included: &str| left_out(ignored, included, true);
        assert!(of("", "sidecars.networking.istio.io").is_empty());
        assert_eq!(of("sidecars.networking.istio.io, nodes.", ""), BTreeSet::from([Kind::Sidecar]));
        let all_but_one = of("*.istio.io", "wasmplugins.extensions.istio.io");
        assert!(all_but_one.contains(&Kind::VirtualService) && all_but_one.contains(&Kind::AuthorizationPolicy));
        assert!(!all_but_one.contains(&Kind::WasmPlugin) && !all_but_one.contains(&Kind::HTTPRoute));
        let without = left_out("", "*.k8s.io", false);
        assert!(without.contains(&Kind::HTTPRoute) && !without.contains(&Kind::Ingress));
    }
}
