//! `pilothouse bootstrap`: prints the bootstrap file of Envoy or of a proxyless gRPC program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::EXIT_USAGE;
use crate::{
    generate::grpc::SERVER_LISTENER_PREFIX,
    model::{Locality, Node},
};

/// The cluster through which Envoy reaches this server, named as in Istio's bootstrap.
const XDS_CLUSTER: &str = "xds-grpc";
/// The secret that holds the root certificates of this server.
const ROOT_SECRET: &str = "xds-root";
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
    #[arg(long, env = "PILOTHOUSE_TOKEN_FILE", value_name = "FILE", requires = "root_cert")]
    pub token_file: Option<PathBuf>,
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
    let metadata = Value::Object(metadata);
    let locality = args.locality.as_deref().map_or_else(Locality::default, Locality::parse);
    let node = Node::from_parts(&args.node, metadata.clone(), locality).map_err(|e| e.to_string())?;
    let address = &args.xds_address;
    let server = Server::parse(address)?;
    if matches!(server, Server::Unix(_)) && args.root_cert.is_some() {
        return Err("--root-cert: there is no TLS on a Unix socket".to_string());
    }
    Ok(match args.client {
        Client::Envoy => {
            let mut bootstrap = envoy(&node, &metadata, &server, args.delta);
            if args.root_cert.is_some() {
                secure_envoy(&mut bootstrap, &args.sds_file(), &args.xds_name, args.token_file.as_deref())?;
            }
            bootstrap
        }
        Client::Grpc => {
            let mut bootstrap = grpc(&node, &metadata, address);
            if let Some(root) = &args.root_cert {
                secure_grpc(&mut bootstrap, root, args.token_file.as_deref());
            }
            bootstrap
        }
    })
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

/// TLS towards the server, whose roots are in the secrets of this file, and the token as a header of every stream.
fn secure_envoy(bootstrap: &mut Value, secrets: &Path, name: &str, token: Option<&Path>) -> Result<(), String> {
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
    if let Some(path) = token {
        let text = fs::read_to_string(path).map_err(|e| format!("--token-file {}: {e}", path.display()))?;
        let header = json!({"key": "authorization", "value": format!("Bearer {}", text.trim())});
        bootstrap["dynamic_resources"]["ads_config"]["grpc_services"][0]["initial_metadata"] = json!([header]);
    }
    Ok(())
}

/// TLS towards the server (gRFC A65), and the token by file (gRFC A97).
fn secure_grpc(bootstrap: &mut Value, root: &Path, token: Option<&Path>) {
    let server = &mut bootstrap["xds_servers"][0];
    server["channel_creds"] = json!([{"type": "tls", "config": {"ca_certificate_file": root.to_string_lossy()}}]);
    if let Some(path) = token {
        let config = json!({"jwt_token_file": path.to_string_lossy()});
        server["call_creds"] = json!([{"type": "jwt_token_file", "config": config}]);
    }
}

/// A server, as a client dials it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server<'a> {
    /// Host and port.
    Tcp(&'a str, u16),
    /// Path of a Unix socket.
    Unix(&'a str),
}

impl<'a> Server<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            // A path relative to the folder in which the client starts would be another one.
            let absolute = if path.starts_with("///") { &path[2..] } else { path };
            let is_one = absolute.starts_with('/') && !absolute.starts_with("//");
            return if is_one {
                Ok(Self::Unix(absolute))
            } else {
                Err(format!("--xds-address {text:?}: the path is not absolute"))
            };
        }
        let (host, port) = split_address(text).ok_or_else(|| format!("--xds-address {text:?} is not HOST:PORT"))?;
        Ok(Self::Tcp(host, port))
    }

    /// As Envoy writes it.
    fn address(self) -> Value {
        match self {
            Self::Tcp(host, port) => json!({"socket_address": {"address": host, "port_value": port}}),
            Self::Unix(path) => json!({"pipe": {"path": path}}),
        }
    }

    /// A name, which is to be resolved.
    fn is_name(self) -> bool {
        matches!(self, Self::Tcp(host, _) if host.parse::<std::net::IpAddr>().is_err())
    }
}

/// Host (without brackets) and port of an address to dial.
fn split_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?)).filter(|(host, port)| !host.is_empty() && *port != 0)
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
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": server.address()}}]}],
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
    config.insert("refresh_interval".to_string(), Value::from("900s"));
    Some(json!({"plugin_name": "file_watcher", "config": config}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(metadata: Value) -> Node {
        Node::from_parts("sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", metadata, Locality::default()).unwrap()
    }

    #[test]
    fn a_server_by_name_is_resolved_and_one_by_address_is_not() {
        let node = node(json!({"LABELS": {"app": "web"}}));
        let kind = |host: &str| {
            envoy(&node, &json!({}), &Server::Tcp(host, 15010), true)["static_resources"]["clusters"][0]["type"].clone()
        };
        assert_eq!(kind("pilothouse.example"), "STRICT_DNS");
        assert_eq!(kind("::1"), "STATIC");
        let bootstrap = envoy(&node, &json!({}), &Server::Tcp("::1", 1), true);
        assert_eq!(bootstrap["node"]["cluster"], "web.shop");
        let layer = &bootstrap["layered_runtime"]["layers"][0]["static_layer"];
        assert_eq!(layer["re2.max_program_size.error_level"], 32_768);
    }

    #[test]
    fn a_root_certificate_makes_both_clients_dial_the_secure_listener() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, "abc\n").unwrap();
        let mut of_envoy = envoy(&node(json!({})), &json!({}), &Server::Tcp("h", 15012), false);
        secure_envoy(&mut of_envoy, Path::new("/root.pem.sds.json"), "istiod", Some(&token)).unwrap();
        let header = &of_envoy["dynamic_resources"]["ads_config"]["grpc_services"][0]["initial_metadata"][0];
        assert_eq!(header["value"], "Bearer abc");
        let socket = &of_envoy["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
        let validation = &socket["common_tls_context"]["combined_validation_context"];
        let source = &validation["validation_context_sds_secret_config"]["sds_config"]["path_config_source"];
        assert_eq!(source["path"], "/root.pem.sds.json");
        let names = &validation["default_validation_context"]["match_typed_subject_alt_names"];
        assert_eq!(names[0]["matcher"]["exact"], "istiod");
        let secret = &root_secret(Path::new("/etc/pki/root.pem"))["resources"][0]["validation_context"];
        assert_eq!(secret["trusted_ca"]["filename"], "/etc/pki/root.pem");
        assert_eq!(secret["watched_directory"]["path"], "/etc/pki");
        let missing = secure_envoy(&mut of_envoy, Path::new("/root.pem"), "istiod", Some(Path::new("/nowhere")));
        assert!(missing.unwrap_err().contains("/nowhere"));
        let mut of_grpc = grpc(&node(json!({})), &json!({}), "h:15012");
        secure_grpc(&mut of_grpc, Path::new("/root.pem"), Some(&token));
        assert_eq!(of_grpc["xds_servers"][0]["channel_creds"][0]["type"], "tls");
    }

    #[test]
    fn both_clients_say_where_they_are() {
        let of = |locality: &str| {
            let id = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local";
            let node = Node::from_parts(id, json!({}), Locality::parse(locality)).unwrap();
            [envoy(&node, &json!({}), &Server::Tcp("h", 1), false), grpc(&node, &json!({}), "h:1")]
                .map(|bootstrap| bootstrap["node"]["locality"].clone())
        };
        let whole = json!({"region": "east", "zone": "z1", "sub_zone": "rack"});
        assert_eq!(of("east/z1/rack"), [whole.clone(), whole]);
        assert_eq!(of("east"), [json!({"region": "east"}), json!({"region": "east"})]);
        assert_eq!(of(""), [json!({}), json!({})]);
    }

    #[test]
    fn certificates_of_grpc_come_from_the_metadata() {
        assert!(grpc(&node(json!({})), &json!({}), "h:1").get("certificate_providers").is_none());
        let metadata = json!({"TLS_CLIENT_CERT_CHAIN": "/c.pem", "TLS_CLIENT_KEY": "/k.pem"});
        let bootstrap = grpc(&node(metadata.clone()), &metadata, "h:1");
        assert_eq!(bootstrap["certificate_providers"]["default"]["config"]["private_key_file"], "/k.pem");
    }

    #[test]
    fn a_unix_socket_is_a_pipe() {
        let node = node(json!({}));
        let bootstrap = envoy(&node, &json!({}), &Server::parse("unix:/run/xds.sock").unwrap(), true);
        let cluster = &bootstrap["static_resources"]["clusters"][0];
        let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
        assert_eq!(endpoint["address"], json!({"pipe": {"path": "/run/xds.sock"}}));
        assert_eq!((&cluster["type"], &cluster["upstream_connection_options"]), (&json!("STATIC"), &json!({})));
        assert_eq!(Server::parse("unix:///run/xds.sock"), Ok(Server::Unix("/run/xds.sock")));
        for wrong in ["unix:", "unix:xds.sock", "unix://host/xds.sock"] {
            assert!(Server::parse(wrong).unwrap_err().contains("absolute"), "{wrong}");
        }
    }

    #[test]
    fn addresses_need_a_host_and_a_port() {
        assert_eq!(split_address("[::1]:15010"), Some(("::1", 15010)));
        for wrong in ["15010", ":15010", "host:", "host:0", "host:99999"] {
            assert_eq!(split_address(wrong), None, "{wrong}");
        }
    }
}
