//! Where a Kubernetes cluster is, and how it is watched.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

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
    /// Our revision: objects that name another in `istio.io/rev` are not read. Empty reads all.
    pub revision: String,
    /// Namespace of the ConfigMap with the mesh settings.
    pub namespace: String,
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
            revision: String::new(),
            namespace: "istio-system".to_string(),
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
