//! The bootstrap of a proxyless gRPC program.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{described, proxy::service_cluster};
use crate::{generate::grpc::SERVER_LISTENER_PREFIX, identity::certificate_folder, model::Node};

/// Files of certificates are read again by gRPC after this time, as Istio's agent has it.
const REFRESH: &str = "900s";

/// TLS towards the server (gRFC A65).
pub(super) fn secure_grpc(bootstrap: &mut Value, root: &Path) {
    let config = json!({"ca_certificate_file": root.to_string_lossy()});
    bootstrap["xds_servers"][0]["channel_creds"] = json!([{"type": "tls", "config": config}]);
}

/// The token by file (gRFC A97).
pub(super) fn prove_grpc(bootstrap: &mut Value, token: &Path) {
    let config = json!({"jwt_token_file": token.to_string_lossy()});
    bootstrap["xds_servers"][0]["call_creds"] = json!([{"type": "jwt_token_file", "config": config}]);
}

/// The workload's own certificate as the proof, by file (gRFC A65).
pub(super) fn prove_grpc_by_certificate(bootstrap: &mut Value, folder: &Path) {
    let config = &mut bootstrap["xds_servers"][0]["channel_creds"][0]["config"];
    config["certificate_file"] = folder.join(certificate_folder::CHAIN).to_string_lossy().into();
    config["private_key_file"] = folder.join(certificate_folder::KEY).to_string_lossy().into();
    config["refresh_interval"] = REFRESH.into();
}

/// The file, without TLS.
pub(super) fn grpc(node: &Node, metadata: &Value, address: &str) -> Value {
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": address,
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": described(node, metadata, &service_cluster(None, node)),
        "server_listener_resource_name_template": format!("{SERVER_LISTENER_PREFIX}%s"),
    });
    if let (Some(provider), Some(object)) = (certificate_provider(node), bootstrap.as_object_mut()) {
        object.insert("certificate_providers".to_string(), json!({"default": provider}));
    }
    bootstrap
}

/// The provider `default`, when the metadata names the files of the workload's certificate.
pub(super) fn certificate_provider(node: &Node) -> Option<Value> {
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
