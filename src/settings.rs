//! Process settings: one struct per room, checked once, no text left to interpret past this point.
//!
//! The command line fills them in (`cli`), tests write them by hand. "Settings" are the process's; "config" is left to mean
//! what users write in Istio's objects.

mod address;
mod kubernetes;
mod upstream;

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

pub use address::{ListenAddress, ListenAddressError};
pub use kubernetes::{KubeAccess, KubeSettings, KubeconfigText, LeaseSettings, RemoteSettings, left_out};
pub use upstream::{StateSettings, UpstreamSettings};

use crate::model::Features;

/// Everything that `app::build` needs.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where config comes from.
    pub sources: SourceSettings,
    /// Where the last good content is kept.
    pub state: StateSettings,
    /// Mesh-wide settings and where they are read.
    pub mesh: MeshSettings,
    /// The xDS server.
    pub xds: XdsSettings,
    /// Workloads that register themselves.
    pub registration: RegistrationSettings,
    /// The admin server.
    pub admin: AdminSettings,
    /// Supervision and shutdown.
    pub runtime: RuntimeSettings,
    /// Istio's feature flags.
    pub features: Features,
}

/// How changes of files are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatchMode {
    /// File system events, with a rescan as the safety net.
    #[default]
    Events,
    /// A rescan only, once a second: for network file systems, which send no events.
    Poll,
}

/// Another cluster: a folder with its Kubernetes objects, or a kubeconfig that leads to it; written `NAME=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCluster {
    /// Cluster id.
    pub name: String,
    /// Folder or kubeconfig.
    pub path: PathBuf,
}

impl FromStr for RemoteCluster {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                Ok(Self { name: name.to_string(), path: path.into() })
            }
            _ => Err(format!("{text:?} is not NAME=PATH")),
        }
    }
}

/// Another id for a cluster; written `ALIAS=ID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAlias {
    /// What proxies say.
    pub alias: String,
    /// The cluster.
    pub cluster: String,
}

impl FromStr for ClusterAlias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((alias, cluster)) if !alias.is_empty() && !cluster.is_empty() => {
                Ok(Self { alias: alias.to_string(), cluster: cluster.to_string() })
            }
            _ => Err(format!("{text:?} is not ALIAS=ID")),
        }
    }
}

/// Where config comes from.
#[derive(Debug, Clone)]
pub struct SourceSettings {
    /// Folders, the first one wins where two hold one object. Used unless the mesh config lists `configSources`.
    pub config_dirs: Vec<PathBuf>,
    /// Other clusters: their services, workloads and Secrets; nothing else in them counts.
    pub remote_clusters: Vec<RemoteCluster>,
    /// How other clusters are found beside these.
    pub remotes: RemoteSettings,
    /// How changes are noticed.
    pub watch: WatchMode,
    /// How long a file that is being written must be quiet before it is read.
    pub settle: Duration,
    /// How often everything is looked at again although no event came.
    pub rescan: Duration,
    /// A source that gives no sign of life for this long, and for three rescans, is restarted.
    pub silence: Duration,
    /// A file that is longer than this, in bytes, is refused.
    pub max_file_bytes: u64,
    /// How long a mass deletion is held back unless it is confirmed; zero applies it at once, as Istio does.
    pub deletion_hold: Duration,
    /// How host names are resolved.
    pub names: NameSettings,
    /// The Kubernetes cluster, if there is one.
    pub kubernetes: Option<KubeSettings>,
    /// Other control planes.
    pub upstream: UpstreamSettings,
}

impl Default for SourceSettings {
    fn default() -> Self {
        Self {
            config_dirs: Vec::new(),
            remote_clusters: Vec::new(),
            remotes: RemoteSettings::default(),
            watch: WatchMode::Events,
            settle: Duration::from_millis(50),
            rescan: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            max_file_bytes: 64 << 20,
            deletion_hold: Duration::from_secs(600),
            names: NameSettings::default(),
            kubernetes: None,
            upstream: UpstreamSettings::default(),
        }
    }
}

/// How host names of gateways between networks are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameSettings {
    /// Name servers; none means those of the system.
    pub servers: Vec<SocketAddr>,
    /// A name is not asked for again before this, however short its answer lives; also the longest pause after a failure.
    pub least_pause: Duration,
    /// A name is asked for again after this, however long its answer lives.
    pub most_pause: Duration,
    /// How long an answer may take.
    pub patience: Duration,
}

impl Default for NameSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { servers: Vec::new(), least_pause: seconds(30), most_pause: seconds(3600), patience: seconds(5) }
    }
}

/// Mesh-wide settings.
#[derive(Debug, Clone)]
pub struct MeshSettings {
    /// `MeshConfig` file, reloaded when it changes.
    pub config_file: Option<PathBuf>,
    /// `MeshNetworks` file, reloaded when it changes.
    pub networks_file: Option<PathBuf>,
    /// Id of this cluster.
    pub cluster_id: String,
    /// Ids that proxies may give for a cluster instead of its own.
    pub cluster_aliases: Vec<ClusterAlias>,
    /// DNS suffix of services.
    pub domain: String,
}

impl Default for MeshSettings {
    fn default() -> Self {
        Self {
            config_file: None,
            networks_file: None,
            cluster_id: "Kubernetes".to_string(),
            cluster_aliases: Vec::new(),
            domain: "cluster.local".to_string(),
        }
    }
}

/// The xDS server.
#[derive(Debug, Clone)]
pub struct XdsSettings {
    /// Where ADS is served in plain text.
    pub grpc_address: ListenAddress,
    /// Whether clients on the loopback interface, who prove nothing, are sent the Secrets of the namespace that they name;
    /// `None` sends them where Secrets come from folders alone.
    pub loopback_secrets: Option<bool>,
    /// Connections at the same time; `None` for the default of the server.
    pub max_connections: Option<usize>,
    /// Connections are closed in good order at this age.
    pub max_connection_age: Option<Duration>,
}

impl Default for XdsSettings {
    fn default() -> Self {
        Self {
            grpc_address: ListenAddress::loopback(15010),
            loopback_secrets: None,
            max_connections: None,
            max_connection_age: None,
        }
    }
}

/// Workloads that register themselves.
#[derive(Debug, Clone)]
pub struct RegistrationSettings {
    /// Entries that may be made from one WorkloadGroup.
    pub per_group: usize,
    /// Connections from one address that may register.
    pub per_peer: usize,
}

impl Default for RegistrationSettings {
    fn default() -> Self {
        Self { per_group: 20_000, per_peer: 2_000 }
    }
}

/// The admin server.
#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// Readiness and debug pages.
    pub http_address: ListenAddress,
    /// Metrics and version; `None` serves them at `http_address` only.
    pub monitoring_address: Option<ListenAddress>,
    /// Debug pages also for callers that are not on the loopback interface.
    pub open_debug: bool,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            http_address: ListenAddress::loopback(8080),
            monitoring_address: Some(ListenAddress::loopback(15014)),
            open_debug: false,
        }
    }
}

/// Supervision and shutdown.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// How long a drain may take.
    pub shutdown: Duration,
    /// More restarts than this within a minute end the process.
    pub max_restarts_per_minute: u32,
    /// First pause before a restart; it doubles with each failure in a row.
    pub first_pause: Duration,
    /// Longest pause before a restart.
    pub longest_pause: Duration,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            shutdown: Duration::from_secs(10),
            max_restarts_per_minute: 60,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(30),
        }
    }
}
