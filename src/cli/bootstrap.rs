//! `pilothouse bootstrap`: the bootstrap file of Envoy or of a proxyless gRPC program, and the start of an Envoy as a service.
//!
//! Envoy's file holds settings of the mesh when a flag names them; a fault in them ends the command, since Envoy would refuse
//! the file or start without what it was told.

mod envoy;
mod grpc;
mod listeners;
mod mesh;
mod parts;
mod patches;
mod proxy;
mod secrets;
mod services;
mod start;
mod stats;

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

pub use mesh::{MeshInputs, MeshSource};
use proxy::{METADATA_PREFIX, Proxy, service_cluster};
use secrets::Secrets;
pub use start::Format;
use start::Start;

use super::{EXIT_USAGE, output::print, server::Server};
use crate::{
    generate::sds::WORKLOAD_SOCKET,
    identity::certificate_folder,
    model::{Locality, Node, labels::whole_locality},
    proto::{
        go_duration,
        mesh::{ProxyConfig, proxy_config::InboundInterceptionMode},
        to_json,
    },
};

/// The port of readiness, and that of statistics for Prometheus, where the metadata names no others.
const PORTS: [(&str, u32); 2] = [("ENVOY_STATUS_PORT", 15021), ("ENVOY_PROMETHEUS_PORT", 15090)];
/// The bootstrap file in the folder of `--out`.
const FILE: &str = "envoy.json";

/// Type of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Envoy proxy.
    Envoy,
    /// Proxyless gRPC.
    Grpc,
}

/// Arguments of `bootstrap`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct BootstrapArgs {
    /// Type of the client.
    #[arg(value_enum)]
    pub client: Client,
    /// Address of the server, as the client dials it: HOST:PORT, or unix:PATH for a Unix socket of this machine.
    #[arg(long, env = "PILOTHOUSE_XDS_ADDRESS", value_name = "ADDRESS")]
    pub xds_address: String,
    /// Node id, TYPE~IP~NAME.NS~NS.svc.DOMAIN.
    #[arg(long, env = "PILOTHOUSE_NODE", value_name = "ID")]
    pub node: String,
    /// Node metadata (JSON).
    #[arg(long, env = "PILOTHOUSE_METADATA", value_name = "FILE.json")]
    pub metadata: Option<PathBuf>,
    /// Locality of the client: endpoints near it are preferred where locality load balancing is configured [default: that of
    /// the label `topology.istio.io/locality` or `istio-locality` in the metadata].
    #[arg(long, env = "PILOTHOUSE_LOCALITY", value_name = "REGION/ZONE/SUBZONE")]
    pub locality: Option<String>,
    /// Root certificates of the server: the client dials its secure listener then. A file that replaces this one by a rename
    /// counts at once for Envoy, and within ten minutes for gRPC.
    #[arg(long, env = "PILOTHOUSE_ROOT_CERT", value_name = "FILE")]
    pub root_cert: Option<PathBuf>,
    /// File to write for Envoy, by which it follows the file of --root-cert [default: that file's name with `.sds.json`].
    #[arg(long, env = "PILOTHOUSE_SDS_FILE", value_name = "FILE", requires = "root_cert")]
    pub sds_file: Option<PathBuf>,
    /// Name in the server's certificate.
    #[arg(long, env = "PILOTHOUSE_XDS_NAME", default_value = "istiod.istio-system.svc", value_name = "NAME")]
    pub xds_name: String,
    /// Join token of the workload (`pilothouse token create`). Envoy has no file for it: the bootstrap file holds its text.
    /// It is sent over TLS (--root-cert), by Envoy also over a Unix socket.
    #[arg(long, env = "PILOTHOUSE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Folder with the certificate of the workload (`pilothouse certificate`): cert-chain.pem, key.pem, root-cert.pem. Stands for
    /// the TLS_… entries of the node metadata that it lacks. With --root-cert and without a token the certificate proves the
    /// workload to the server.
    #[arg(long, env = "PILOTHOUSE_CERTS_DIR", value_name = "DIR")]
    pub certs_dir: Option<PathBuf>,
    /// The time after which a gRPC program reads the files of its certificates again [default: a tenth of the life of the
    /// certificate that is there, 15m at most].
    #[arg(long, env = "PILOTHOUSE_REFRESH_INTERVAL", value_parser = interval, value_name = "DURATION")]
    pub refresh_interval: Option<Duration>,
    /// Socket of an SDS server on this machine that has the certificate of the workload as `default` and the roots as `ROOTCA`,
    /// such as a SPIRE agent's: PATH or unix:PATH. With --root-cert and without a token the certificate proves the workload.
    #[arg(long, env = "PILOTHOUSE_WORKLOAD_SOCKET", value_name = "PATH", conflicts_with = "certs_dir")]
    pub workload_socket: Option<String>,
    /// Use the delta protocol.
    #[arg(long, env = "PILOTHOUSE_DELTA")]
    pub delta: bool,
    /// The settings of the mesh that Envoy starts with.
    #[command(flatten)]
    pub mesh: MeshSource,
    /// The form of the output: `systemd` and `compose` write files into the folder of --out.
    #[arg(long, env = "PILOTHOUSE_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Folder to write to: envoy.json, with envoy.service or compose.yaml.
    #[arg(long, env = "PILOTHOUSE_OUT", value_name = "DIR", required_if_eq_any = [("format", "systemd"), ("format", "compose")])]
    pub out: Option<PathBuf>,
}

const EXAMPLE: &str = "Examples:
  pilothouse bootstrap envoy --xds-address 127.0.0.1:15010 --node sidecar~192.0.2.1~web.shop~shop.svc.cluster.local > envoy.json
  pilothouse bootstrap grpc --xds-address 127.0.0.1:15010 --node sidecar~192.0.2.1~web.shop~shop.svc.cluster.local > grpc.json";

fn interval(text: &str) -> Result<Duration, String> {
    let duration = go_duration(text).ok_or("a duration has the form 15m")?;
    if duration < Duration::from_secs(1) { Err("at least 1s".to_string()) } else { Ok(duration) }
}

/// A client's start.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// The content of the file.
    pub bootstrap: Value,
    /// The secrets of the file beside it.
    pub secrets: Secrets,
    /// The node that it says.
    pub node: Node,
    /// The settings of the mesh; without a mesh none.
    pub settings: ProxyConfig,
    /// Settings without effect.
    pub notes: Vec<String>,
}

/// Prints the file, or writes it with its unit.
///
/// # Errors
/// Metadata or mesh settings that cannot be read, or a malformed node id.
pub fn run(mut args: BootstrapArgs) -> anyhow::Result<ExitCode> {
    let metadata = match &args.metadata {
        Some(path) => {
            let text = fs::read(path).with_context(|| format!("--metadata {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("--metadata {}: not JSON", path.display()))?
        }
        None => json!({}),
    };
    let Value::Object(metadata) = metadata else { anyhow::bail!("node metadata is not a JSON object") };
    if let Some(out) = &mut args.out {
        // A service starts in another folder.
        for path in [Some(out), args.root_cert.as_mut(), args.sds_file.as_mut()].into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
    }
    let made = args.mesh.read().map_err(|e| format!("{e:#}")).and_then(|mesh| made(&args, metadata, mesh.as_ref()));
    let made = match made {
        Ok(made) => made,
        Err(reason) => {
            eprintln!("pilothouse: {reason}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    for note in &made.notes {
        eprintln!("pilothouse: {note}");
    }
    made.secrets.write().with_context(|| {
        let path = made.secrets.file.clone().unwrap_or_default();
        format!("writing {}, by which Envoy follows its certificates (see --sds-file)", path.display())
    })?;
    give(&args, &made)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints it, or writes it to the folder.
fn give(args: &BootstrapArgs, made: &Made) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&made.bootstrap)? + "\n";
    let cluster = made.bootstrap["node"]["cluster"].as_str().unwrap_or_default();
    let proxy = Proxy { settings: &made.settings, node: &made.node, cluster };
    let file = args.out.as_deref().unwrap_or(Path::new("")).join(FILE);
    let start = Start::of(&proxy, file.clone(), &made.bootstrap, &json!(made.secrets.list));
    let (unit, content) = match args.format {
        Format::Args => {
            return print(&(start.arguments().join(" ") + "\n"));
        }
        Format::Json => (None, String::new()),
        Format::Systemd => (Some("envoy.service"), start.unit()),
        Format::Compose => (Some("compose.yaml"), start.compose()),
    };
    let Some(out) = &args.out else {
        print(&text)?;
        return Ok(());
    };
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    // The token of the workload may be in it.
    let write = |path: &Path, text: &str, mode: u32| {
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".new-{}", std::process::id()));
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("writing {}", path.display()))
    };
    write(&file, &text, 0o600)?;
    if let Some(unit) = unit {
        write(&out.join(unit), &content, 0o644)?;
        print(&format!("{}\n", out.join(unit).display()))?;
    }
    Ok(())
}

/// The start of a node with this metadata.
///
/// # Errors
/// A node id, an address or a setting of a wrong form.
pub fn made(args: &BootstrapArgs, mut metadata: Map<String, Value>, mesh: Option<&MeshInputs>) -> Result<Made, String> {
    if args.client == Client::Grpc {
        if mesh.is_some() || args.format != Format::Json {
            return Err("settings of the mesh and services are for Envoy: gRPC has no place for them".to_string());
        }
        if args.workload_socket.is_some() {
            return Err("--workload-socket: gRPC takes certificates from files alone (--certs-dir)".to_string());
        }
        metadata.insert("GENERATOR".to_string(), Value::from("grpc"));
    }
    if let Some(folder) = &args.certs_dir {
        add_files(&mut metadata, folder)?;
    }
    let socket = args.workload_socket.as_deref().map(socket_path).transpose()?;
    if let Some(path) = &socket {
        metadata.insert(WORKLOAD_SOCKET.to_string(), path.as_str().into());
    }
    let locality = args.locality.as_deref().map(Locality::parse);
    let node_of = |metadata: &Map<String, Value>| {
        let place = locality.clone().unwrap_or_default();
        let node = Node::from_parts(&args.node, metadata.clone().into(), place).map_err(|e| e.to_string())?;
        let labelled = whole_locality(&node.labels).filter(|_| locality.is_none());
        Ok::<_, String>(Node { locality: labelled.map_or(node.locality, |text| Locality::parse(&text)), ..node })
    };
    let mut node = node_of(&metadata)?;
    let mut settings = None;
    if let Some(mesh) = mesh {
        let of_mesh = mesh.settings_of(&node)?;
        describe(&mut metadata, &of_mesh)?;
        node = node_of(&metadata)?;
        settings = Some(of_mesh);
    }
    let metadata = Value::Object(metadata);
    let address = &args.xds_address;
    let server = Server::parse(address)?;
    check_proof(args, server)?;
    let mut secrets = Secrets::default();
    let mut notes = Vec::new();
    let bootstrap = match args.client {
        Client::Envoy => {
            let cluster = service_cluster(settings.as_ref(), &node);
            let mut bootstrap = envoy::envoy(&node, &metadata, &cluster, &server, args.delta);
            secrets.file = args.secrets_file();
            if let Some(root) = &args.root_cert {
                secrets.add_root(root);
                envoy::secure_envoy(&mut bootstrap, &args.sds_file(), &args.xds_name);
            }
            if let Some(path) = &args.token_file {
                envoy::prove_envoy(&mut bootstrap, path)?;
            }
            if let (Some(_), Some(folder), None) = (&args.root_cert, &args.certs_dir, &args.token_file) {
                let folder = absolute(folder)?;
                let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
                let secret = secrets.add_pair(&file(certificate_folder::CHAIN), &file(certificate_folder::KEY));
                envoy::prove_envoy_by_files(&mut bootstrap, secret);
            }
            if let Some(path) = &socket {
                envoy::add_workload_server(&mut bootstrap, path);
                if args.root_cert.is_some() && args.token_file.is_none() {
                    envoy::prove_envoy_by_certificate(&mut bootstrap);
                }
            }
            if let Some(settings) = &settings {
                let proxy = Proxy { settings, node: &node, cluster: &cluster };
                notes = parts::add(&mut bootstrap, &proxy, &mut secrets)?;
            }
            if args.refresh_interval.is_some() {
                notes.push("--refresh-interval has no effect: Envoy follows its files".to_string());
            }
            if let Some(mesh) = mesh {
                notes.extend(patches::apply(&mut bootstrap, mesh, &node));
            }
            bootstrap
        }
        Client::Grpc => {
            let refresh = grpc::Refresh(args.refresh_interval);
            let mut bootstrap = grpc::grpc(&node, &metadata, address, refresh);
            if let Some(root) = &args.root_cert {
                grpc::secure_grpc(&mut bootstrap, root, refresh);
                match (&args.token_file, &args.certs_dir) {
                    (Some(token), _) => grpc::prove_grpc(&mut bootstrap, token),
                    (None, Some(folder)) => {
                        grpc::prove_grpc_by_certificate(&mut bootstrap, &absolute(folder)?, refresh)
                    }
                    (None, None) => {}
                }
            }
            bootstrap
        }
    };
    Ok(Made { bootstrap, secrets, node, settings: settings.unwrap_or_default(), notes })
}

/// The settings as the server reads them from the node, as Istio's agent sends them. Entries that are there stay.
fn describe(metadata: &mut Map<String, Value>, settings: &ProxyConfig) -> Result<(), String> {
    // The entry of the node, if there is one, is in the settings already.
    metadata.insert("PROXY_CONFIG".to_string(), to_json(settings).map_err(|e| e.to_string())?);
    let mut add = |key: &str, value: Value| {
        metadata.entry(key.to_string()).or_insert(value);
    };
    for (key, value) in &settings.proxy_metadata {
        if let Some(key) = key.strip_prefix(METADATA_PREFIX) {
            add(key, value.clone().into());
        }
    }
    for (key, port) in PORTS {
        add(key, port.into());
    }
    if !settings.mesh_id.is_empty() {
        add("MESH_ID", settings.mesh_id.clone().into());
    }
    if settings.interception_mode() != InboundInterceptionMode::Redirect {
        add("INTERCEPTION_MODE", settings.interception_mode().as_str_name().into());
    }
    Ok(())
}

/// A token is a secret: it is sent over TLS, or within the machine.
fn check_proof(args: &BootstrapArgs, server: Server<'_>) -> Result<(), String> {
    let is_local = matches!(server, Server::Unix(_));
    let wrong = match (&args.root_cert, &args.token_file) {
        (Some(_), _) if is_local => "--root-cert: there is no TLS on a Unix socket",
        (None, Some(_)) if !is_local => "--token-file: a token is sent over TLS alone, which needs --root-cert",
        (None, Some(_)) if args.client == Client::Grpc => {
            "--token-file: gRPC sends tokens over TLS alone, and there is none on a Unix socket"
        }
        _ => return Ok(()),
    };
    Err(wrong.to_string())
}

/// The path of a socket, wherever the client starts. SPIFFE writes it as a URL, `unix:///PATH`.
fn socket_path(given: &str) -> Result<String, String> {
    let path = given.strip_prefix("unix:").map_or(given, |rest| rest.strip_prefix("//").unwrap_or(rest));
    let path = std::path::absolute(path).map_err(|e| format!("--workload-socket {given:?}: {e}"))?;
    path.into_os_string().into_string().map_err(|_| format!("--workload-socket {given:?} is not UTF-8"))
}

/// The folder of certificates, wherever the client starts.
fn absolute(folder: &Path) -> Result<PathBuf, String> {
    std::path::absolute(folder).map_err(|e| format!("--certs-dir {}: {e}", folder.display()))
}

/// Names the files of the workload's certificate in the node metadata, but for those that it names itself.
fn add_files(metadata: &mut Map<String, Value>, folder: &Path) -> Result<(), String> {
    let folder = absolute(folder)?;
    for (name, file) in [
        ("CERT_CHAIN", certificate_folder::CHAIN),
        ("KEY", certificate_folder::KEY),
        ("ROOT_CERT", certificate_folder::ROOTS),
    ] {
        for side in ["CLIENT", "SERVER"] {
            let path = folder.join(file).to_string_lossy().into_owned();
            metadata.entry(format!("TLS_{side}_{name}")).or_insert_with(|| path.into());
        }
    }
    Ok(())
}

impl BootstrapArgs {
    /// The file of secrets: beside the root certificates of the server, else beside the certificate of the workload.
    fn secrets_file(&self) -> Option<PathBuf> {
        let beside = || Some(absolute(self.certs_dir.as_ref()?).ok()?.join("envoy.sds.json"));
        if self.root_cert.is_some() { Some(self.sds_file()) } else { beside() }
    }

    /// The file by which Envoy follows its root certificates.
    fn sds_file(&self) -> PathBuf {
        self.sds_file.clone().unwrap_or_else(|| {
            let mut name = self.root_cert.clone().unwrap_or_default().into_os_string();
            name.push(".sds.json");
            name.into()
        })
    }
}

/// The node of the client. grpc-js refuses a node without a locality, so an empty one is written.
fn described(node: &Node, metadata: &Value, cluster: &str) -> Value {
    let Locality { region, zone, subzone } = &node.locality;
    let parts = [("region", region), ("zone", zone), ("sub_zone", subzone)].into_iter();
    let locality: Map<String, Value> =
        parts.filter(|(_, part)| !part.is_empty()).map(|(key, part)| (key.to_string(), Value::from(&**part))).collect();
    json!({"id": &*node.raw_id, "cluster": cluster, "metadata": metadata, "locality": locality})
}

#[cfg(test)]
mod tests;
