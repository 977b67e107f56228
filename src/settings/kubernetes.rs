//! Where a Kubernetes cluster is, and how it is watched.

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::model::{Kind, KindClass};

/// How the API server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeAccess {
    /// From inside the cluster, with the service account of the pod.
    InCluster {
        /// Folder with the account's `token` and `ca.crt`.
        account: PathBuf,
    },
    /// By the text of a kubeconfig from somewhere else than a file.
    Text(KubeconfigText),
    /// By a kubeconfig.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; the file's current one when there is none.
        context: Option<String>,
    },
}

/// The text of a kubeconfig. It may hold credentials, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct KubeconfigText(pub Arc<str>);

impl fmt::Debug for KubeconfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubeconfigText(..)")
    }
}

/// A Kubernetes cluster as a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeSettings {
    /// How it is reached.
    pub access: KubeAccess,
    /// Whether services, pods and credentials are read as well as config.
    pub registry: bool,
    /// Namespaces to read; empty for all.
    pub watch_namespaces: Vec<String>,
    /// Kinds that are not read, whatever the cluster has.
    pub left_out: BTreeSet<Kind>,
    /// Our revision: objects that name another in `istio.io/rev` are not read. Empty reads all.
    pub revision: String,
    /// Namespace of the ConfigMap with the mesh settings.
    pub namespace: String,
    /// Name of another ConfigMap there, whose mesh settings are the base of those; empty for none.
    pub shared_mesh: String,
    /// How long a page of a list, and the head of any answer, may take.
    pub list_timeout: Duration,
    /// How long a watch lasts before it is asked for again; a silent peer is noticed 5 s later.
    pub watch_timeout: Duration,
    /// How often everything is listed again although every watch works.
    pub relist: Duration,
    /// First pause after a failure; it doubles with each one in a row.
    pub first_pause: Duration,
    /// Longest pause after a failure.
    pub longest_pause: Duration,
    /// Pause when we may not read a kind, or there is no such kind.
    pub refused_pause: Duration,
    /// How long a refusal (403) may be a passing one, as of a server that has just begun: a kind counts as one that we may
    /// not read after that.
    pub refused_patience: Duration,
    /// How long a mass deletion that only a list shows is held back; zero applies it at once, as Istio does.
    pub deletion_hold: Duration,
    /// Whether statuses are written back.
    pub write_status: bool,
    /// The lease that says which process writes them.
    pub lease: LeaseSettings,
}

/// Kinds that are left out by lists of CRD names (`PILOT_IGNORE_RESOURCES`, and `PILOT_INCLUDE_RESOURCES` in spite of it), in
/// which `*.GROUP` names all kinds of the groups that end like that, and without Gateway API all kinds of it.
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

/// Other clusters: how they are found and waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// How long the start waits for them; zero waits for ever.
    pub patience: Duration,
    /// Folder with a kubeconfig for each of them, which is read instead of the Secrets of the main cluster.
    pub kubeconfigs: Option<PathBuf>,
    /// The cluster whose Secrets name them, where that is not the main one.
    pub secrets_in: Option<KubeAccess>,
    /// What their kubeconfigs may have although it reads files or runs programs on this machine (Istio's names).
    pub allowed: BTreeSet<String>,
    /// Kinds that are not read of them.
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

/// The lease of who writes (Istio's durations).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSettings {
    /// How long it lasts without a renewal, in whole seconds.
    pub duration: Duration,
    /// How long its holder writes without a renewal; shorter, so that two never write at once.
    pub renew: Duration,
    /// How often it is looked at and renewed.
    pub look: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(30), renew: seconds(15), look: Duration::from_millis(7500) }
    }
}

impl KubeSettings {
    /// The usual settings for a cluster that is reached like this.
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
