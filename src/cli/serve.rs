//! `pilothouse serve`: the server, until a signal ends it.

mod demo;
mod istiod;
mod kubernetes;
mod upstream;

use std::{collections::BTreeSet, io::Write, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};

pub use istiod::IstiodArgs;
pub use kubernetes::KubeArgs;
pub use upstream::UpstreamArgs;

use super::{MeshArgs, PATIENCE, complain, in_time};
use crate::{
    app::{self, Addresses},
    model::Features,
    proto::go_duration,
    runtime::{
        ServiceManager, Shutdown, block_on, descriptors_for_connections, inherited_sockets, install_panic_hook,
        listen_for_signals, raise_descriptor_limit,
    },
    settings::{
        AdminSettings, ClusterAlias, IdentitySettings, ListenAddress, ListenerTls, MeshSettings, NameSettings,
        RegistrationSettings, RemoteCluster, RuntimeSettings, ServerCertificateFiles, Settings, SourceSettings,
        TlsVersion, UnixPeer, UnixSocketSettings, WatchMode, XdsSettings,
    },
    telemetry::{LogFormat, ScopeLevel, flush_log, init_log, log_level, scope_level},
};

/// Detection of changes to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Watch {
    /// File system events and a rescan every ten seconds.
    #[default]
    Events,
    /// A rescan every second: for network file systems.
    Poll,
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct ServeArgs {
    /// Folder of Istio and Kubernetes YAML; the first of several wins where two hold one object. Without any, and without
    /// `configSources` in the mesh config, the demo in config/demo is served.
    #[arg(long, alias = "configDir", env = "PILOTHOUSE_CONFIG_DIR", value_name = "DIR", value_delimiter = ',')]
    pub config_dir: Vec<PathBuf>,
    /// Mesh-wide settings.
    #[command(flatten)]
    pub mesh: MeshArgs,
    /// Another cluster whose services, workloads and Secrets count, as NAME=PATH: a folder, or a kubeconfig.
    #[arg(long, env = "PILOTHOUSE_REMOTE_CLUSTER", value_name = "NAME=PATH", value_delimiter = ',')]
    pub remote_cluster: Vec<RemoteCluster>,
    /// Ids that proxies may give for a cluster instead of its own, as ALIAS=ID.
    #[arg(
        long,
        alias = "clusterAliases",
        env = "PILOTHOUSE_CLUSTER_ALIASES",
        value_name = "ALIAS=ID",
        value_delimiter = ','
    )]
    pub cluster_aliases: Vec<ClusterAlias>,
    /// Address of the xDS server (plain text).
    #[arg(
        long,
        alias = "grpcAddr",
        env = "PILOTHOUSE_GRPC_ADDR",
        default_value = "127.0.0.1:15010",
        value_name = "HOST:PORT"
    )]
    pub grpc_addr: ListenAddress,
    /// Address of the xDS server and of the certificate authority over TLS (Istio's :15012); empty serves plain text only.
    #[arg(
        long,
        alias = "secureGRPCAddr",
        env = "PILOTHOUSE_SECURE_GRPC_ADDR",
        default_value = "",
        value_name = "HOST:PORT"
    )]
    pub secure_grpc_addr: String,
    /// Unix socket of the xDS server, for clients on this machine: the system names the user behind each. Root and the user
    /// of this process have the identity that their node names.
    #[arg(long, alias = "grpcUnixSocket", env = "PILOTHOUSE_GRPC_UNIX_SOCKET", value_name = "PATH")]
    pub grpc_unix_socket: Option<PathBuf>,
    /// Mode of the file of the Unix socket: the users that may connect.
    #[arg(
        long,
        alias = "grpcUnixSocketMode",
        env = "PILOTHOUSE_GRPC_UNIX_SOCKET_MODE",
        default_value = "0600",
        value_parser = mode,
        value_name = "OCTAL"
    )]
    pub grpc_unix_socket_mode: u32,
    /// Identity of another user of this machine on the Unix socket, as UID=NAMESPACE/SERVICE-ACCOUNT.
    #[arg(
        long,
        alias = "unixPeer",
        env = "PILOTHOUSE_UNIX_PEER",
        value_name = "UID=NAMESPACE/SERVICE-ACCOUNT",
        value_delimiter = ',',
        requires = "grpc_unix_socket"
    )]
    pub unix_peer: Vec<UnixPeer>,
    /// Names and addresses by which clients know this server, for the certificate of the secure listener.
    #[arg(long, env = "PILOTHOUSE_SERVER_NAME", value_name = "NAME", value_delimiter = ',')]
    pub server_name: Vec<String>,
    /// Certificate chain of the secure listener, with --tls-key-file; without it the certificate authority issues one.
    #[arg(
        long,
        alias = "tlsCertFile",
        env = "PILOTHOUSE_TLS_CERT_FILE",
        value_name = "FILE",
        requires = "tls_key_file"
    )]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the secure listener.
    #[arg(
        long,
        alias = "tlsKeyFile",
        env = "PILOTHOUSE_TLS_KEY_FILE",
        value_name = "FILE",
        requires = "tls_cert_file"
    )]
    pub tls_key_file: Option<PathBuf>,
    /// More root certificates for the certificates of clients, beside those of the certificate authority.
    #[arg(
        long,
        alias = "caCertFile",
        env = "PILOTHOUSE_CA_CERT_FILE",
        value_name = "FILE",
        requires = "tls_cert_file"
    )]
    pub ca_cert_file: Option<PathBuf>,
    /// Cipher suites of the secure listener for TLS 1.2, by their IANA names; those of TLS 1.3 cannot be chosen.
    #[arg(long, env = "PILOTHOUSE_TLS_CIPHER_SUITES", value_name = "NAME", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// The lowest version of TLS on the secure listener.
    #[arg(long, env = "PILOTHOUSE_TLS_MIN_VERSION", value_enum, default_value = "1.2", value_name = "VERSION")]
    pub tls_min_version: TlsVersion,
    /// Folder with the certificate authority's ca-cert.pem, ca-key.pem, root-cert.pem, cert-chain.pem and ca-crl.pem, as
    /// Istio's Secret `cacerts` holds them (Istio's ROOT_CA_DIR). Without it a root is made and kept in the state folder.
    #[arg(long, env = "PILOTHOUSE_CACERTS_DIR", value_name = "DIR")]
    pub cacerts_dir: Option<PathBuf>,
    /// Address of readiness and debug pages.
    #[arg(
        long,
        alias = "httpAddr",
        env = "PILOTHOUSE_HTTP_ADDR",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    pub http_addr: ListenAddress,
    /// Address of metrics and version; empty serves them at --http-addr only.
    #[arg(
        long,
        alias = "monitoringAddr",
        env = "PILOTHOUSE_MONITORING_ADDR",
        default_value = "127.0.0.1:15014",
        value_name = "HOST:PORT"
    )]
    pub monitoring_addr: String,
    /// Log level: error, warn, info, debug, trace, or directives such as `info,pilothouse::sources=debug`.
    #[arg(long, env = "PILOTHOUSE_LOG_LEVEL", default_value = "info", value_parser = log_level, value_name = "LEVEL")]
    pub log_level: String,
    /// Levels of Istio's logging scopes on top of --log-level, as SCOPE:LEVEL; `pilothouse logs` lists the scopes.
    #[arg(
        long,
        alias = "log_output_level",
        env = "PILOTHOUSE_LOG_OUTPUT_LEVEL",
        value_name = "SCOPE:LEVEL",
        value_delimiter = ',',
        value_parser = scope_level
    )]
    pub log_output_level: Vec<ScopeLevel>,
    /// Form of log lines.
    #[arg(long, env = "PILOTHOUSE_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// The same as --log-format=json, in Istio's spelling.
    #[arg(long, alias = "log_as_json", env = "PILOTHOUSE_LOG_AS_JSON")]
    pub log_as_json: bool,
    /// Detection of changes to files.
    #[arg(long, env = "PILOTHOUSE_WATCH", value_enum, default_value_t)]
    pub watch: Watch,
    /// Time that a mass deletion (more than half of a source and more than ten objects, or all files of a folder) is held
    /// back; 0s applies it at once, as Istio does.
    #[arg(long, env = "PILOTHOUSE_DELETION_HOLD", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub deletion_hold: Duration,
    /// Longest file that is read, in bytes.
    #[arg(long, env = "PILOTHOUSE_MAX_FILE_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    pub max_file_bytes: u64,
    /// Name servers for the host names of gateways between networks (RESOLVE_HOSTNAME_GATEWAYS), as IP:PORT; without any,
    /// those of the system.
    #[arg(long, env = "PILOTHOUSE_DNS_SERVER", value_name = "IP:PORT", value_delimiter = ',')]
    pub dns_server: Vec<SocketAddr>,
    /// Answer debug pages also to callers outside of the loopback interface without a proof of identity.
    #[arg(long, env = "PILOTHOUSE_OPEN_DEBUG")]
    pub open_debug: bool,
    /// Whether clients on the loopback interface, which are not authenticated, have the identity that their node names: they
    /// are sent the Secrets of its namespace, may register, and read debug pages over xDS. The default is true where all
    /// sources are folders, and false where a cluster or another control plane is read: any program of this machine, or
    /// container of this Pod, could claim any identity.
    #[arg(long, env = "PILOTHOUSE_TRUST_LOOPBACK", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub trust_loopback: Option<bool>,
    /// Most WorkloadEntries that are made from one WorkloadGroup.
    #[arg(long, env = "PILOTHOUSE_MAX_REGISTRATIONS_PER_GROUP", default_value_t = 20_000, value_name = "N")]
    pub max_registrations_per_group: usize,
    /// Most connections from one address that register a workload.
    #[arg(long, env = "PILOTHOUSE_MAX_REGISTRATIONS_PER_PEER", default_value_t = 2_000, value_name = "N")]
    pub max_registrations_per_peer: usize,
    /// Limit of the time for a drain.
    #[arg(long, alias = "shutdownDuration", env = "PILOTHOUSE_SHUTDOWN_DURATION", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_duration: Duration,
    /// Unix socket for an upgrade without systemd: a process that is started with the same path takes the listening sockets over
    /// from the one that serves, which ends when the new one is ready.
    #[arg(long, env = "PILOTHOUSE_HANDOVER_SOCKET", value_name = "PATH")]
    pub handover_socket: Option<PathBuf>,
    /// Connections of proxies are closed gracefully at this age, so that proxies spread over replicas; 0s sets no limit.
    #[arg(long, alias = "keepaliveMaxServerConnectionAge", env = "PILOTHOUSE_KEEPALIVE_MAX_SERVER_CONNECTION_AGE", default_value = "0s", value_parser = duration, value_name = "DURATION")]
    pub keepalive_max_server_connection_age: Duration,
    /// Bytes of responses that may wait for all clients to read; equal responses count once. Beyond them the connections of the
    /// clients that have not read for longest are closed, after ten seconds at least.
    #[arg(long, env = "PILOTHOUSE_MAX_UNREAD_BYTES", default_value_t = 256 << 20, value_name = "BYTES")]
    pub max_unread_bytes: usize,
    /// More restarts of actors than this within a minute end the process.
    #[arg(long, env = "PILOTHOUSE_MAX_RESTARTS_PER_MINUTE", default_value_t = 60, value_name = "N")]
    pub max_restarts_per_minute: u32,
    /// The Kubernetes cluster to read.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Other control planes, and the saved content for a start without sources.
    #[command(flatten)]
    pub upstream: UpstreamArgs,
    /// Further flags of istiod.
    #[command(flatten)]
    pub of_istiod: IstiodArgs,
}

const EXAMPLE: &str = "Examples:
  pilothouse serve --config-dir mesh
  pilothouse serve --config-dir mesh --mesh-config mesh.yaml --log-output-level ads:debug
  pilothouse serve --kubeconfig ~/.kube/config --write-status";

impl ServeArgs {
    /// The settings of these arguments, with Istio's flags from the environment.
    ///
    /// # Errors
    /// An invalid monitoring address, or contradicting flags.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let (mut features, wrong) = Features::from_env();
        features.revision.clone_from(&self.kube.revision);
        if let Some(error) = wrong.iter().find(|error| error.is_fatal()) {
            anyhow::bail!("{error}");
        }
        for error in wrong {
            complain(&format!("{error}; the default stays"));
        }
        let monitoring_address = match self.monitoring_addr.as_str() {
            "" => None,
            text => Some(text.parse()?),
        };
        let kubernetes = self.kube.settings(self.config_dir.is_empty(), self.deletion_hold, &features);
        if self.kube.write_status == Some(true) && kubernetes.is_none() {
            anyhow::bail!("--write-status: there is no cluster to write to; name one by --kubeconfig");
        }
        let mut aliased = BTreeSet::new();
        if let Some(twice) = self.cluster_aliases.iter().find(|a| !aliased.insert(&a.cluster)) {
            anyhow::bail!("--cluster-aliases: more than one alias for {}", twice.cluster);
        }
        let mut users = BTreeSet::new();
        if let Some(twice) = self.unix_peer.iter().find(|peer| !users.insert(peer.uid)) {
            anyhow::bail!("--unix-peer: more than one identity for the user {}", twice.uid);
        }
        Ok(Settings {
            sources: SourceSettings {
                config_dirs: self.config_dir.clone(),
                remote_clusters: self.remote_cluster.clone(),
                remotes: self.kube.remotes(&features),
                watch: if self.watch == Watch::Poll { WatchMode::Poll } else { WatchMode::Events },
                max_file_bytes: self.max_file_bytes,
                deletion_hold: self.deletion_hold,
                names: NameSettings { servers: self.dns_server.clone(), ..NameSettings::default() },
                kubernetes,
                upstream: self.upstream.settings(),
                ..SourceSettings::default()
            },
            state: self.upstream.state(),
            mesh: MeshSettings {
                config_file: self.mesh.mesh_config.clone(),
                networks_file: self.mesh.networks_config.clone(),
                cluster_id: self.mesh.cluster_id.clone(),
                cluster_aliases: self.cluster_aliases.clone(),
                domain: self.mesh.domain.clone(),
            },
            xds: XdsSettings {
                grpc_address: self.grpc_addr.clone(),
                secure_grpc_address: match self.secure_grpc_addr.as_str() {
                    "" => None,
                    text => Some(text.parse()?),
                },
                unix_socket: self.grpc_unix_socket.clone().map(|path| UnixSocketSettings {
                    path,
                    mode: self.grpc_unix_socket_mode,
                    peers: self.unix_peer.clone(),
                }),
                trust_loopback: self.trust_loopback,
                max_connections: None,
                keepalive: self.of_istiod.keepalive()?,
                max_connection_age: Some(self.keepalive_max_server_connection_age).filter(|age| !age.is_zero()),
                max_unread_bytes: Some(self.max_unread_bytes),
            },
            identity: IdentitySettings {
                cacerts: self.cacerts_dir.clone().or_else(|| std::env::var_os("ROOT_CA_DIR").map(PathBuf::from)),
                server_files: self.tls_cert_file.clone().zip(self.tls_key_file.clone()).map(|(certificate, key)| {
                    ServerCertificateFiles { certificate, key, client_roots: self.ca_cert_file.clone() }
                }),
                host_names: self.server_name.clone(),
                tls: ListenerTls { cipher_suites: self.tls_cipher_suites.clone(), min_version: self.tls_min_version },
            },
            registration: RegistrationSettings {
                per_group: self.max_registrations_per_group,
                per_peer: self.max_registrations_per_peer,
            },
            admin: AdminSettings {
                http_address: self.http_addr.clone(),
                monitoring_address,
                open_debug: self.open_debug,
            },
            runtime: RuntimeSettings {
                shutdown: self.shutdown_duration,
                max_restarts_per_minute: self.max_restarts_per_minute,
                handover_socket: self.handover_socket.clone(),
                ..RuntimeSettings::default()
            },
            features,
        })
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is not a mode such as 0600 or 0660"))
}

fn duration(text: &str) -> Result<Duration, String> {
    go_duration(text).ok_or_else(|| format!("{text:?} is not a duration such as 10s or 1m30s"))
}

/// Serves until a signal ends it.
///
/// # Errors
/// An error that prevents the start, or the fault that ends the server.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    // No other thread may run yet.
    let inherited = inherited_sockets().context("sockets of the service manager")?;
    start_log(&args)?;
    let settings = args.settings();
    if settings.is_err() {
        flush_log(PATIENCE);
    }
    let mut settings = settings?;
    settings.xds.max_connections = raise_descriptor_limit().map(descriptors_for_connections);
    let sources = &settings.sources;
    let read = !sources.config_dirs.is_empty() || !sources.remote_clusters.is_empty() || sources.kubernetes.is_some();
    let demo = !read && sources.upstream.addresses.is_empty() && settings.mesh.config_file.is_none();
    if demo {
        demo::add(&mut settings)?;
    }
    let ended = block_on(async move {
        let shutdown = Shutdown::default();
        install_panic_hook(&shutdown);
        listen_for_signals(&shutdown)?;
        let manager = ServiceManager::of_env().context("NOTIFY_SOCKET")?;
        let running = app::build_on(settings, inherited, shutdown.clone()).await?;
        announce(&running.addresses, demo);
        let waiting = running.waiting_for();
        let told = manager.map(|manager| tokio::spawn(manager.follow(waiting, shutdown)));
        let ended = running.wait().await;
        if let Some(told) = told {
            let _ = told.await;
        }
        ended.map_err(anyhow::Error::msg)
    });
    flush_log(PATIENCE);
    ended?.map(|()| ExitCode::SUCCESS)
}

/// Installs the log, and names the settings that change nothing, each once.
fn start_log(args: &ServeArgs) -> anyhow::Result<()> {
    let format = if args.log_as_json { LogFormat::Json } else { args.log_format };
    init_log(&args.log_level, &args.log_output_level, format).map_err(anyhow::Error::msg)?;
    let texts: Vec<String> = Features::without_effect().into_iter().chain(args.of_istiod.without_effect()).collect();
    if !texts.is_empty() {
        tracing::warn!(settings = texts.join("; "), "settings of istiod without an effect here");
    }
    Ok(())
}

fn announce(addresses: &Addresses, demo: bool) {
    let secure_grpc = addresses.secure_grpc.map(tracing::field::display);
    tracing::info!(grpc = %addresses.grpc, secure_grpc, http = %addresses.http, monitoring = ?addresses.monitoring, "serving");
    if demo {
        let welcome = demo::welcome(addresses, &program());
        in_time(move || writeln!(std::io::stdout(), "{welcome}"));
    }
}

/// Name of this program for commands in the current folder: its path below it, else its whole path, else its name.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("pilothouse"));
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(&path).display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        serve: ServeArgs,
    }

    #[test]
    fn istiods_spellings_are_understood() {
        let args = Alone::try_parse_from([
            "pilothouse",
            "--configDir",
            "a",
            "--configDir",
            "b",
            "--grpcAddr",
            ":15010",
            "--monitoringAddr",
            "",
            "--meshConfig",
            "mesh.yaml",
            "--clusterID",
            "c1",
            "--registries=Mock",
            "--keepaliveMaxServerConnectionAge=30m",
            "--log_output_level=default:info,ads:debug",
            "--log_as_json",
            "--kubernetesApiQPS=80",
            "-n",
            "mesh",
        ]);
        let args = args.unwrap().serve;
        assert_eq!(args.config_dir, [PathBuf::from("a"), PathBuf::from("b")]);
        let settings = args.settings().unwrap();
        assert_eq!(settings.xds.grpc_address.as_str(), "0.0.0.0:15010");
        assert!(settings.admin.monitoring_address.is_none());
        assert_eq!(settings.mesh.cluster_id, "c1");
        assert_eq!((args.log_output_level.len(), args.log_as_json), (2, true));
        assert_eq!(args.of_istiod.without_effect().len(), 1);
        assert_eq!(args.kube.namespace, "mesh");
        assert_eq!(settings.xds.trust_loopback, None);
        for (flag, wanted) in [("--trust-loopback", true), ("--trust-loopback=false", false)] {
            let args = Alone::try_parse_from(["pilothouse", flag]).unwrap().serve;
            assert_eq!(args.settings().unwrap().xds.trust_loopback, Some(wanted));
        }
        assert_eq!(settings.xds.max_connection_age, Some(Duration::from_secs(1800)));
    }
}
