//! Certificates that Envoy's own connections use. Envoy reads files again only where a secret names them, so they are in a file
//! of secrets where there is a place for one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::proxy::Proxy;
use crate::proto::networking::{ClientTlsSettings, client_tls_settings::TlSmode};

/// The secret that holds the root certificates of this server.
pub(super) const ROOT_SECRET: &str = "xds-root";

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const CONTEXT: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";

/// The secrets that the bootstrap names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Secrets {
    /// The file that holds them; without one the bootstrap names the certificates, which are read once.
    pub file: Option<PathBuf>,
    /// The secrets.
    pub list: Vec<Value>,
}

/// Certificate chain and key, and root certificates.
struct Files<'a> {
    pair: Option<(&'a str, &'a str)>,
    root: &'a str,
}

impl Secrets {
    /// Adds the secret of the server's root certificates.
    pub(super) fn add_root(&mut self, root: &Path) {
        self.list.push(validation(ROOT_SECRET, &root.to_string_lossy()));
    }

    /// The transport socket of a client with these settings.
    pub(super) fn client(
        &mut self,
        tls: &ClientTlsSettings,
        sni: &str,
        http2: bool,
        proxy: &Proxy<'_>,
    ) -> Result<Value, String> {
        let files = files(tls, proxy)?;
        let mut common = json!({});
        if http2 {
            let istio = tls.mode() == TlSmode::IstioMutual;
            common["alpn_protocols"] = if istio { json!(["istio", "h2"]) } else { json!(["h2"]) };
        }
        common["tls_params"] =
            json!({"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"});
        if let Some((chain, key)) = files.pair {
            match self.source() {
                Some(source) => {
                    let name = format!("file-cert:{chain}~{key}");
                    self.add(json!({"@type": SECRET, "name": name, "tls_certificate": {
                        "certificate_chain": {"filename": chain},
                        "private_key": {"filename": key},
                        "watched_directory": {"path": folder(chain)},
                    }}));
                    common["tls_certificate_sds_secret_configs"] = json!([{"name": name, "sds_config": source}]);
                }
                None => {
                    common["tls_certificates"] =
                        json!([{"certificate_chain": {"filename": chain}, "private_key": {"filename": key}}]);
                }
            }
        }
        if !files.root.is_empty() {
            let names: Vec<Value> = tls.subject_alt_names.iter().map(|name| alternative(name)).collect();
            match self.source() {
                Some(source) => {
                    let name = format!("file-root:{}", files.root);
                    self.add(validation(&name, files.root));
                    common["combined_validation_context"] = json!({
                        "default_validation_context": {"match_typed_subject_alt_names": names},
                        "validation_context_sds_secret_config": {"name": name, "sds_config": source},
                    });
                }
                None => {
                    common["validation_context"] =
                        json!({"trusted_ca": {"filename": files.root}, "match_typed_subject_alt_names": names});
                }
            }
        }
        let mut context = json!({"@type": CONTEXT, "common_tls_context": common});
        let own = tls.mode() == TlSmode::IstioMutual && tls.sni.is_empty();
        let sni = if own { sni } else { tls.sni.as_str() };
        if !sni.is_empty() {
            context["sni"] = sni.into();
        }
        Ok(json!({"name": "envoy.transport_sockets.tls", "typed_config": context}))
    }

    fn source(&self) -> Option<Value> {
        let path = self.file.as_ref()?.to_string_lossy();
        Some(json!({"path_config_source": {"path": path}, "resource_api_version": "V3"}))
    }

    fn add(&mut self, secret: Value) {
        if !self.list.contains(&secret) {
            self.list.push(secret);
        }
    }

    /// Writes the file, unless it stands already.
    pub(super) fn write(&self) -> std::io::Result<()> {
        let Some(path) = self.file.as_ref().filter(|_| !self.list.is_empty()) else { return Ok(()) };
        let text = format!("{:#}\n", json!({"resources": self.list}));
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
}

/// The files of the settings; those that the node's metadata names go before them, as in Istio.
fn files<'a>(tls: &'a ClientTlsSettings, proxy: &'a Proxy<'_>) -> Result<Files<'a>, String> {
    let metadata = &proxy.node.metadata;
    let or = |own: &'a str, given: &'a str| if own.is_empty() { given } else { own };
    if !tls.credential_name.is_empty() {
        return Err("credentialName: a bootstrap names files".to_string());
    }
    let mode = tls.mode();
    if mode == TlSmode::IstioMutual {
        let (chain, key, root) =
            (&*metadata.tls_client_cert_chain, &*metadata.tls_client_key, &*metadata.tls_client_root_cert);
        if chain.is_empty() || key.is_empty() || root.is_empty() {
            return Err("mode ISTIO_MUTUAL needs the files of the workload's certificate (--certs-dir)".to_string());
        }
        return Ok(Files { pair: Some((chain, key)), root });
    }
    let root = or(&metadata.tls_client_root_cert, &tls.ca_certificates);
    let root = or(root, metadata.other("PILOTHOUSE_SYSTEM_CA_FILE"));
    if root.is_empty() && tls.insecure_skip_verify != Some(true) {
        return Err("caCertificates is empty, and Envoy would trust every server".to_string());
    }
    let root = if tls.insecure_skip_verify == Some(true) { "" } else { root };
    let chain = or(&metadata.tls_client_cert_chain, &tls.client_certificate);
    let key = or(&metadata.tls_client_key, &tls.private_key);
    if mode == TlSmode::Mutual && (chain.is_empty() || key.is_empty()) {
        return Err("mode MUTUAL needs clientCertificate and privateKey".to_string());
    }
    Ok(Files { pair: (mode == TlSmode::Mutual).then_some((chain, key)), root })
}

/// Root certificates as a secret.
fn validation(name: &str, root: &str) -> Value {
    json!({"@type": SECRET, "name": name, "validation_context": {
        "trusted_ca": {"filename": root},
        "watched_directory": {"path": folder(root)},
    }})
}

fn folder(path: &str) -> String {
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.to_string_lossy().into_owned()
}

fn alternative(name: &str) -> Value {
    let kind = match name {
        uri if uri.contains("://") => "URI",
        ip if ip.parse::<std::net::IpAddr>().is_ok() => "IP_ADDRESS",
        _ => "DNS",
    };
    json!({"san_type": kind, "matcher": {"exact": name}})
}
