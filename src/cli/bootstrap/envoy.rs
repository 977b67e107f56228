//! The bootstrap of Envoy as far as no settings of the mesh are in it: node, server, proof.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{described, proxy::http2, secrets::ROOT_SECRET};
use crate::{
    cli::server::Server,
    generate::sds::{AGENT_CLUSTER, DEFAULT},
    model::Node,
};

/// The cluster through which Envoy reaches this server, named as in Istio's bootstrap.
const XDS_CLUSTER: &str = "xds-grpc";
/// Largest program of a regular expression, as in Istio's bootstrap; Envoy's own limit is 100.
const RE2_PROGRAM_SIZE: u32 = 32_768;

/// TLS towards the server, whose roots are in the secrets of this file.
pub(super) fn secure_envoy(bootstrap: &mut Value, secrets: &Path, name: &str) {
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
pub(super) fn prove_envoy(bootstrap: &mut Value, token: &Path) -> Result<(), String> {
    let text = fs::read_to_string(token).map_err(|e| format!("--token-file {}: {e}", token.display()))?;
    let header = json!({"key": "authorization", "value": format!("Bearer {}", text.trim())});
    bootstrap["dynamic_resources"]["ads_config"]["grpc_services"][0]["initial_metadata"] = json!([header]);
    Ok(())
}

/// The cluster of the SDS server that has the workload's certificate, named as in Istio's bootstrap.
pub(super) fn add_workload_server(bootstrap: &mut Value, socket: &str) {
    let cluster = json!({
        "name": AGENT_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": AGENT_CLUSTER, "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": {"pipe": {"path": socket}}},
        }]}]},
        "typed_extension_protocol_options": http2(),
    });
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(cluster);
    }
}

/// The workload's certificate, of that server, towards this one.
pub(super) fn prove_envoy_by_certificate(bootstrap: &mut Value) {
    let context = &mut bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
    context["common_tls_context"]["tls_certificate_sds_secret_configs"] = json!([{
        "name": DEFAULT,
        "sds_config": {
            "api_config_source": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": AGENT_CLUSTER}}],
            },
            "resource_api_version": "V3",
        },
    }]);
}

/// The workload's certificate, of the secret that is referred to, towards the server.
pub(super) fn prove_envoy_by_files(bootstrap: &mut Value, secret: Value) {
    let context = &mut bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
    context["common_tls_context"]["tls_certificate_sds_secret_configs"] = json!([secret]);
}

/// The address of the server, as Envoy writes it.
fn address_of(server: Server<'_>) -> Value {
    match server {
        Server::Tcp(host, port) => json!({"socket_address": {"address": host, "port_value": port}}),
        Server::Unix(path) => json!({"pipe": {"path": path}}),
    }
}

/// The file, without TLS and without settings of the mesh.
pub(super) fn envoy(node: &Node, metadata: &Value, cluster: &str, server: &Server<'_>, delta: bool) -> Value {
    let over_ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    let keepalive = match server {
        Server::Tcp(..) => json!({"tcp_keepalive": {"keepalive_time": 300}}),
        Server::Unix(_) => json!({}),
    };
    json!({
        "node": described(node, metadata, cluster),
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
                "typed_extension_protocol_options": http2(),
                "upstream_connection_options": keepalive,
            }],
        },
    })
}
