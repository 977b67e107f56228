//! `pilothouse bootstrap`: prints the bootstrap file of Envoy or of a proxyless gRPC program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{EXIT_USAGE, server::Server};
use crate::{
    generate::grpc::SERVER_LISTENER_PREFIX,
    identity::certificate_folder,
    model::{Locality, Node},
};

/// The cluster through which Envoy reaches this server, named as in Istio's bootstrap.
const XDS_CLUSTER: &str = "xds-grpc";
/// The secret that holds the root certificates of this server.
const ROOT_SECRET: &str = "xds-root";
/// Files of certificates are read again by gRPC after this time, as Istio's agent has it.
const REFRESH: &str = "900s";
/// Largest program of a regular expression, as in Istio's bootstrap; Envoy's own limit is 100.
const RE2_PROGRAM_SIZE: u32 = 32_768;

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
    /// Locality of the client: endpoints near it are preferred where locality load balancing is configured.
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
    /// the TLS_… entries of the node metadata that it lacks, and with --root-cert for the token of a gRPC program.
    #[arg(long, env = "PILOTHOUSE_CERTS_DIR", value_name = "DIR")]
    pub certs_dir: Option<PathBuf>,
    /// Use the delta protocol.
    #[arg(long, env = "PILOTHOUSE_DELTA")]
    pub delta: bool,
}

/// Prints the file.
///
/// # Errors
/// Metadata that cannot be read, or a malformed node id.
pub fn run(args: BootstrapArgs) -> anyhow::Result<ExitCode> {
    let metadata = match &args.metadata {
        Some(path) => {
            let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?
        }
        None => json!({}),
    };
    let Value::Object(metadata) = metadata else { anyhow::bail!("node metadata is not a JSON object") };
    match document(&args, metadata) {
        Ok(bootstrap) => {
            if let (Client::Envoy, Some(root)) = (args.client, &args.root_cert) {
                let path = args.sds_file();
                write_secrets(&path, root).with_context(|| {
                    format!("writing {}, by which Envoy follows its root certificates (see --sds-file)", path.display())
                })?;
            }
            println!("{}", serde_json::to_string_pretty(&bootstrap)?);
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => {
            eprintln!("pilothouse: {reason}");
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}

/// The content of the file, for a node with this metadata.
///
/// # Errors
/// A node id or an address of a wrong form.
pub fn document(args: &BootstrapArgs, mut metadata: Map<String, Value>) -> Result<Value, String> {
    if args.client == Client::Grpc {
        metadata.insert("GENERATOR".to_string(), Value::from("grpc"));
    }
    if let Some(folder) = &args.certs_dir {
        add_files(&mut metadata, folder)?;
    }
    let metadata = Value::Object(metadata);
    let locality = args.locality.as_deref().map_or_else(Locality::default, Locality::parse);
    let node = Node::from_parts(&args.node, metadata.clone(), locality).map_err(|e| e.to_string())?;
    let address = &args.xds_address;
    let server = Server::parse(address)?;
    check_proof(args, server)?;
    Ok(match args.client {
        Client::Envoy => {
            let mut bootstrap = envoy(&node, &metadata, &server, args.delta);
            if args.root_cert.is_some() {
                secure_envoy(&mut bootstrap, &args.sds_file(), &args.xds_name);
            }
            if let Some(path) = &args.token_file {
                prove_envoy(&mut bootstrap, path)?;
            }
            bootstrap
        }
        Client::Grpc => {
            let mut bootstrap = grpc(&node, &metadata, address);
            if let Some(root) = &args.root_cert {
                secure_grpc(&mut bootstrap, root);
                match (&args.token_file, &args.certs_dir) {
                    (Some(token), _) => prove_grpc(&mut bootstrap, token),
                    (None, Some(folder)) => prove_grpc_by_certificate(&mut bootstrap, &absolute(folder)?),
                    (None, None) => {}
                }
            }
            bootstrap
        }
    })
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
    /// The file by which Envoy follows its root certificates.
    fn sds_file(&self) -> PathBuf {
        self.sds_file.clone().unwrap_or_else(|| {
            let mut name = self.root_cert.clone().unwrap_or_default().into_os_string();
            name.push(".sds.json");
            name.into()
        })
    }
}

/// The secret of the root certificates: Envoy reads files again only where a secret names them, not where the TLS context
/// itself does.
fn root_secret(root: &Path) -> Value {
    let folder = root.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    json!({"resources": [{
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": ROOT_SECRET,
        "validation_context": {
            "trusted_ca": {"filename": root.to_string_lossy()},
            "watched_directory": {"path": folder.to_string_lossy()},
        },
    }]})
}

/// Writes the file of the secret, unless it stands already.
fn write_secrets(path: &Path, root: &Path) -> std::io::Result<()> {
    let text = format!("{:#}\n", root_secret(root));
    if fs::read_to_string(path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new-{}", std::process::id()));
    fs::write(&new, text)?;
    // Envoy may run as another user than this command, and reads the file when it is renamed.
    fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    fs::rename(&new, path)
}

/// TLS towards the server, whose roots are in the secrets of this file.
fn secure_envoy(bootstrap: &mut Value, secrets: &Path, name: &str) {
    bootstrap["static_resources"]["clusters"][0]["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": name,
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                // By default Envoy offers nothing above 1.2 as a client.
                "tls_params": {
                    "tls_minimum_protocol_version": "TLSv1_2",
                    "tls_maximum_protocol_version": "TLSv1_3",
                },
                "combined_validation_context": {
                    "default_validation_context": {
                        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": name}}],
                    },
                    "validation_context_sds_secret_config": {
                        "name": ROOT_SECRET,
                        "sds_config": {
                            "path_config_source": {"path": secrets.to_string_lossy()},
                            "resource_api_version": "V3",
                        },
                    },
                },
            },
        },
    });
}

/// The token as a header of every stream.
fn prove_envoy(bootstrap: &mut Value, token: &Path) -> Result<(), String> {
    let text = fs::read_to_string(token).map_err(|e| format!("--token-file {}: {e}", token.display()))?;
    let header = json!({"key": "authorization", "value": format!("Bearer {}", text.trim())});
    bootstrap["dynamic_resources"]["ads_config"]["grpc_services"][0]["initial_metadata"] = json!([header]);
    Ok(())
}

/// TLS towards the server (gRFC A65).
fn secure_grpc(bootstrap: &mut Value, root: &Path) {
    let config = json!({"ca_certificate_file": root.to_string_lossy()});
    bootstrap["xds_servers"][0]["channel_creds"] = json!([{"type": "tls", "config": config}]);
}

/// The token by file (gRFC A97).
fn prove_grpc(bootstrap: &mut Value, token: &Path) {
    let config = json!({"jwt_token_file": token.to_string_lossy()});
    bootstrap["xds_servers"][0]["call_creds"] = json!([{"type": "jwt_token_file", "config": config}]);
}

/// The workload's own certificate as the proof, by file (gRFC A65).
fn prove_grpc_by_certificate(bootstrap: &mut Value, folder: &Path) {
    let config = &mut bootstrap["xds_servers"][0]["channel_creds"][0]["config"];
    config["certificate_file"] = folder.join(certificate_folder::CHAIN).to_string_lossy().into();
    config["private_key_file"] = folder.join(certificate_folder::KEY).to_string_lossy().into();
    config["refresh_interval"] = REFRESH.into();
}

/// `app.namespace`, Istio's service cluster; without an `app` label the name of the node.
fn service_cluster(node: &Node) -> String {
    match node.labels.get("app") {
        Some(app) => format!("{app}.{}", node.namespace),
        None => node.id.to_string(),
    }
}

/// The node of the client. grpc-js refuses a node without a locality, so an empty one is written.
fn described(node: &Node, metadata: &Value) -> Value {
    let Locality { region, zone, subzone } = &node.locality;
    let parts = [("region", region), ("zone", zone), ("sub_zone", subzone)].into_iter();
    let locality: Map<String, Value> =
        parts.filter(|(_, part)| !part.is_empty()).map(|(key, part)| (key.to_string(), Value::from(&**part))).collect();
    json!({"id": &*node.raw_id, "cluster": service_cluster(node), "metadata": metadata, "locality": locality})
}

/// The address of the server, as Envoy writes it.
fn address_of(server: Server<'_>) -> Value {
    match server {
        Server::Tcp(host, port) => json!({"socket_address": {"address": host, "port_value": port}}),
        Server::Unix(path) => json!({"pipe": {"path": path}}),
    }
}

fn envoy(node: &Node, metadata: &Value, server: &Server<'_>, delta: bool) -> Value {
    let over_ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    let keepalive = match server {
        Server::Tcp(..) => json!({"tcp_keepalive": {"keepalive_time": 300}}),
        Server::Unix(_) => json!({}),
    };
    json!({
        "node": described(node, metadata),
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 15000}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": if delta { "DELTA_GRPC" } else { "GRPC" },
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": XDS_CLUSTER}}],
            },
            "cds_config": over_ads,
            "lds_config": over_ads,
        },
        "layered_runtime": {"layers": [
            {"name": "global config", "static_layer": {
                // Envoy's default refuses ordinary regular expressions, and with them all other routes of the configuration.
                "re2.max_program_size.error_level": RE2_PROGRAM_SIZE,
                "envoy.reloadable_features.http_reject_path_with_fragment": false,
            }},
            {"name": "admin", "admin_layer": {}},
        ]},
        "static_resources": {
            "clusters": [{
                "name": XDS_CLUSTER,
                "type": if server.is_name() { "STRICT_DNS" } else { "STATIC" },
                "connect_timeout": "1s",
                "load_assignment": {
                    "cluster_name": XDS_CLUSTER,
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address_of(*server)}}]}],
                },
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": {"http2_protocol_options": {}},
                    },
                },
                "upstream_connection_options": keepalive,
            }],
        },
    })
}

fn grpc(node: &Node, metadata: &Value, address: &str) -> Value {
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": address,
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": described(node, metadata),
        "server_listener_resource_name_template": format!("{SERVER_LISTENER_PREFIX}%s"),
    });
    if let (Some(provider), Some(object)) = (certificate_provider(node), bootstrap.as_object_mut()) {
        object.insert("certificate_providers".to_string(), json!({"default": provider}));
    }
    bootstrap
}

/// The provider `default`, when the metadata names the files of the workload's certificate.
fn certificate_provider(node: &Node) -> Option<Value> {
    let m = &node.metadata;
    if m.tls_client_cert_chain.is_empty() || m.tls_client_key.is_empty() {
        return None;
    }
    let mut config = Map::new();
    config.insert("certificate_file".to_string(), Value::from(&*m.tls_client_cert_chain));
    config.insert("private_key_file".to_string(), Value::from(&*m.tls_client_key));
    if !m.tls_client_root_cert.is_empty() {
        config.insert("ca_certificate_file".to_string(), Value::from(&*m.tls_client_root_cert));
    }
    config.insert("refresh_interval".to_string(), Value::from(REFRESH));
    Some(json!({"plugin_name": "file_watcher", "config": config}))
}

#[cfg(test)]
mod tests;
