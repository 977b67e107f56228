//! Process settings: one struct per room, validated once; later code parses no text.
//!
//! The command line fills them in (`cli`); tests construct them directly. "Settings" are those of the process; "config" is the
//! content of Istio's objects.

mod address;
mod kubernetes;
mod unix;
mod upstream;

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

pub use address::{ListenAddress, ListenAddressError};
pub use kubernetes::{KubeAccess, KubeSettings, KubeconfigText, LeaseSettings, RemoteSettings, left_out};
pub use unix::{UnixPeer, UnixSocketSettings};
pub use upstream::{StateSettings, UpstreamSettings};

use crate::model::Features;

/// All settings of the process, the input of `app::build`.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Sources of config.
    pub sources: SourceSettings,
    /// Storage of last good content.
    pub state: StateSettings,
    /// Mesh-wide settings and their files.
    pub mesh: MeshSettings,
    /// Settings of the xDS server.
    pub xds: XdsSettings,
    /// Settings of identities and of the certificate authority.
    pub identity: IdentitySettings,
    /// Limits of workload registration.
    pub registration: RegistrationSettings,
    /// Settings of the admin server.
    pub admin: AdminSettings,
    /// Settings of supervision and shutdown.
    pub runtime: RuntimeSettings,
    /// Istio's feature flags.
    pub features: Features,
}

/// The method of detecting file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatchMode {
    /// File system events, and a periodic rescan in case events are lost.
    #[default]
    Events,
    /// A rescan once a second only: for network file systems, which send no events.
    Poll,
}

/// A remote cluster: a folder with its Kubernetes objects, or a kubeconfig for it; written `NAME=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCluster {
    /// Id of the remote cluster.
    pub name: String,
    /// Path of the folder or kubeconfig.
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

/// An alias for a cluster id; written `ALIAS=ID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAlias {
    /// The id that proxies send.
    pub alias: String,
    /// The cluster id that it stands for.
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

/// Sources of config.
#[derive(Debug, Clone)]
pub struct SourceSettings {
    /// Config folders; of an object in several folders the first one's wins. Unused if the mesh config lists `configSources`.
    pub config_dirs: Vec<PathBuf>,
    /// Remote clusters: only their services, workloads, Secrets and Gateways between networks are read.
    pub remote_clusters: Vec<RemoteCluster>,
    /// Discovery of further remote clusters.
    pub remotes: RemoteSettings,
    /// The method of detecting file changes.
    pub watch: WatchMode,
    /// The time without changes after which a file is considered complete and read.
    pub settle: Duration,
    /// The interval of full rescans without an event.
    pub rescan: Duration,
    /// A source without activity for this long, and for three rescans, is restarted.
    pub silence: Duration,
    /// Maximum length of a file in bytes; longer ones are refused.
    pub max_file_bytes: u64,
    /// The time that an unconfirmed mass deletion is held back; zero applies it at once, as Istio does.
    pub deletion_hold: Duration,
    /// Resolution of host names.
    pub names: NameSettings,
    /// The Kubernetes cluster, if there is one.
    pub kubernetes: Option<KubeSettings>,
    /// Upstream control planes.
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

/// Resolution of the host names of gateways between networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameSettings {
    /// Name servers; none means those of the system.
    pub servers: Vec<SocketAddr>,
    /// A name is not asked for again before this, however short its answer lives; also the longest pause after a failure.
    pub least_pause: Duration,
    /// A name is asked for again after this, however long its answer lives.
    pub most_pause: Duration,
    /// The time that an answer may take.
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
    /// Aliases of cluster ids that proxies may send.
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

/// Settings of the xDS server.
#[derive(Debug, Clone)]
pub struct XdsSettings {
    /// Address of plain-text ADS.
    pub grpc_address: ListenAddress,
    /// Address of ADS over TLS; `None` serves plain text only.
    pub secure_grpc_address: Option<ListenAddress>,
    /// Unix socket of ADS.
    pub unix_socket: Option<UnixSocketSettings>,
    /// Whether clients on the loopback interface, which are not authenticated, have the identity that they claim; `None` means
    /// that they do if all sources are folders.
    pub trust_loopback: Option<bool>,
    /// Maximum number of connections; `None` for the server's default.
    pub max_connections: Option<usize>,
    /// A connection without a sign of life for the first time is asked for one, and closed after the second without it.
    pub keepalive: (Duration, Duration),
    /// Age at which connections are closed gracefully; `None` for no limit.
    pub max_connection_age: Option<Duration>,
    /// Bytes of responses that wait for all clients to read; `None` for the server's default.
    pub max_unread_bytes: Option<usize>,
}

impl Default for XdsSettings {
    fn default() -> Self {
        Self {
            grpc_address: ListenAddress::loopback(15010),
            secure_grpc_address: None,
            unix_socket: None,
            trust_loopback: None,
            max_connections: None,
            keepalive: (Duration::from_secs(30), Duration::from_secs(10)),
            max_connection_age: None,
            max_unread_bytes: None,
        }
    }
}

/// Files of the secure listener's own certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificateFiles {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// More roots for client certificates.
    pub client_roots: Option<PathBuf>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[value(name = "1.3")]
    V1_3,
}

/// Versions and ciphers of the secure listener.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenerTls {
    /// Cipher suites of TLS 1.2 by their IANA names; empty for all that are safe.
    pub cipher_suites: Vec<String>,
    /// The lowest version.
    pub min_version: TlsVersion,
}

/// Settings of identities and of the certificate authority.
#[derive(Debug, Clone, Default)]
pub struct IdentitySettings {
    /// Folder of a plugged-in authority (Istio's `cacerts`).
    pub cacerts: Option<PathBuf>,
    /// The secure listener's certificate; `None` lets the authority issue one.
    pub server_files: Option<ServerCertificateFiles>,
    /// Names and addresses of the server in an issued certificate.
    pub host_names: Vec<String>,
    /// Versions and ciphers of the secure listener.
    pub tls: ListenerTls,
}

/// Limits of workload registration.
#[derive(Debug, Clone)]
pub struct RegistrationSettings {
    /// Maximum number of entries created from one WorkloadGroup.
    pub per_group: usize,
    /// Maximum number of registering connections from one address.
    pub per_peer: usize,
}

impl Default for RegistrationSettings {
    fn default() -> Self {
        Self { per_group: 20_000, per_peer: 2_000 }
    }
}

/// Settings of the admin server.
#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// Address of readiness and debug pages.
    pub http_address: ListenAddress,
    /// Address of metrics and version; `None` serves them at `http_address` only.
    pub monitoring_address: Option<ListenAddress>,
    /// Whether debug pages are open to callers outside of the loopback interface.
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

/// Settings of supervision and shutdown.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// Maximum duration of the drain at shutdown.
    pub shutdown: Duration,
    /// Maximum number of restarts within a minute; more end the process.
    pub max_restarts_per_minute: u32,
    /// First pause before a restart; it doubles with each consecutive failure.
    pub first_pause: Duration,
    /// Longest pause before a restart.
    pub longest_pause: Duration,
    /// The Unix socket at which a successor takes the listening sockets over.
    pub handover_socket: Option<PathBuf>,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            shutdown: Duration::from_secs(10),
            max_restarts_per_minute: 60,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(30),
            handover_socket: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_at_the_first_equals_sign() {
        let cluster = |text: &str| text.parse::<RemoteCluster>();
        assert_eq!(cluster("east=/a=b"), Ok(RemoteCluster { name: "east".into(), path: "/a=b".into() }));
        let alias = |text: &str| text.parse::<ClusterAlias>();
        assert_eq!(alias("old=new"), Ok(ClusterAlias { alias: "old".into(), cluster: "new".into() }));
        for wrong in ["", "=", "a", "a=", "=b"] {
            assert_eq!(cluster(wrong), Err(format!("{wrong:?} is not NAME=PATH")));
            assert_eq!(alias(wrong), Err(format!("{wrong:?} is not ALIAS=ID")));
        }
    }
}
