//! The bootstrap of a proxyless gRPC program.

use std::{fs::File, io::Read, path::Path, time::Duration};

use serde_json::{Map, Value, json};

use super::{described, proxy::service_cluster};
use crate::{
    generate::grpc::SERVER_LISTENER_PREFIX,
    identity::{authority, certificate_folder},
    model::Node,
};

/// Files of certificates are read again by gRPC after this time at most, as Istio's agent has it.
const REFRESH: Duration = Duration::from_secs(900);
/// The least such time.
const LEAST_REFRESH: Duration = Duration::from_secs(1);
/// Parts of a certificate's life: it is renewed at 40 to 60 % of it, so the program has the new one in time.
const PARTS: u32 = 10;
/// Bytes of a certificate's file that are read.
const MAX_FILE: u64 = 1 << 20;

/// The time after which files of certificates are read again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refresh(pub(super) Option<Duration>);

impl Refresh {
    /// The time for the certificate in this file: the given one, else a part of the certificate's life.
    fn of_file(self, chain: &Path) -> Value {
        let text = || {
            let mut text = String::new();
            File::open(chain).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
            Some(text)
        };
        let of_life = || Some(refresh_in(authority::lifetime(&text()?)?));
        duration(self.0.or_else(of_life).unwrap_or(REFRESH))
    }
}

/// The time after which a certificate of this lifetime is read again.
fn refresh_in(lifetime: Duration) -> Duration {
    Duration::from_secs((lifetime / PARTS).as_secs()).clamp(LEAST_REFRESH, REFRESH)
}

/// A duration as JSON has it.
fn duration(of: Duration) -> Value {
    let (seconds, nanos) = (of.as_secs(), of.subsec_nanos());
    Value::from(if nanos == 0 { format!("{seconds}s") } else { format!("{seconds}.{nanos:09}s") })
}

/// TLS towards the server (gRFC A65). gRPC reads the file of roots again every ten minutes.
pub(super) fn secure_grpc(bootstrap: &mut Value, root: &Path, refresh: Refresh) {
    let mut config = json!({"ca_certificate_file": root.to_string_lossy()});
    if let Some(given) = refresh.0 {
        config["refresh_interval"] = duration(given);
    }
    bootstrap["xds_servers"][0]["channel_creds"] = json!([{"type": "tls", "config": config}]);
}

/// The token by file (gRFC A97).
pub(super) fn prove_grpc(bootstrap: &mut Value, token: &Path) {
    let config = json!({"jwt_token_file": token.to_string_lossy()});
    bootstrap["xds_servers"][0]["call_creds"] = json!([{"type": "jwt_token_file", "config": config}]);
}

/// The workload's own certificate as the proof, by file (gRFC A65).
pub(super) fn prove_grpc_by_certificate(bootstrap: &mut Value, folder: &Path, refresh: Refresh) {
    let config = &mut bootstrap["xds_servers"][0]["channel_creds"][0]["config"];
    let chain = folder.join(certificate_folder::CHAIN);
    config["certificate_file"] = chain.to_string_lossy().into();
    config["private_key_file"] = folder.join(certificate_folder::KEY).to_string_lossy().into();
    config["refresh_interval"] = refresh.of_file(&chain);
}

/// The file, without TLS.
pub(super) fn grpc(node: &Node, metadata: &Value, address: &str, refresh: Refresh) -> Value {
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": address,
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": described(node, metadata, &service_cluster(None, node)),
        "server_listener_resource_name_template": format!("{SERVER_LISTENER_PREFIX}%s"),
    });
    if let (Some(provider), Some(object)) = (certificate_provider(node, refresh), bootstrap.as_object_mut()) {
        object.insert("certificate_providers".to_string(), json!({"default": provider}));
    }
    bootstrap
}

/// The provider `default`, when the metadata names the files of the workload's certificate.
pub(super) fn certificate_provider(node: &Node, refresh: Refresh) -> Option<Value> {
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
    config.insert("refresh_interval".to_string(), refresh.of_file(Path::new(&*m.tls_client_cert_chain)));
    Some(json!({"plugin_name": "file_watcher", "config": config}))
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn files_are_read_again_in_time_for_the_life_of_their_certificate() {
        for (life, want) in [(24 * HOUR, 900), (HOUR, 360), (Duration::from_secs(15), 1), (Duration::ZERO, 1)] {
            assert_eq!(refresh_in(life).as_secs(), want, "{life:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let chain = folder.path().join("chain.pem");
        let of = |refresh| Refresh(refresh).of_file(&chain);
        assert_eq!(of(None), "900s", "there is none yet");
        let long_ago = SystemTime::now() - 1000 * HOUR;
        fs::write(&chain, authority::new_root("mesh", long_ago, HOUR).unwrap().certificate).unwrap();
        assert_eq!(of(None), "360s");
        assert_eq!(of(Some(Duration::from_secs(7))), "7s");
        assert_eq!(of(Some(Duration::from_millis(1500))), "1.500000000s");
        fs::write(&chain, "no certificate").unwrap();
        assert_eq!(of(None), "900s");
    }
}
