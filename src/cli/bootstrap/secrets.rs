//! Certificates that Envoy's own connections use. Envoy reads files again only where a secret names them, so they are in a file
//! of secrets where there is a place for one. Envoy takes a file with a single secret alone, so each has one of its own.

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
    /// The file of the first one, after which the files of the others are named; without one the bootstrap names the
    /// certificates, which are read once.
    pub file: Option<PathBuf>,
    /// The secrets, each for a file.
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
        self.add(ROOT_SECRET, validation(ROOT_SECRET, &root.to_string_lossy()));
    }

    /// Adds the secret of a certificate chain and its key, and gives the reference to it.
    pub(super) fn add_pair(&mut self, chain: &str, key: &str) -> Value {
        let name = format!("file-cert:{chain}~{key}");
        let secret = json!({"@type": SECRET, "name": name, "tls_certificate": {
            "certificate_chain": {"filename": chain},
            "private_key": {"filename": key},
            "watched_directory": {"path": folder(chain)},
        }});
        self.add(&name, secret)
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
            if self.file.is_some() {
                common["tls_certificate_sds_secret_configs"] = json!([self.add_pair(chain, key)]);
            } else {
                common["tls_certificates"] =
                    json!([{"certificate_chain": {"filename": chain}, "private_key": {"filename": key}}]);
            }
        }
        if !files.root.is_empty() {
            let names: Vec<Value> = tls.subject_alt_names.iter().map(|name| alternative(name)).collect();
            if self.file.is_some() {
                let name = format!("file-root:{}", files.root);
                common["combined_validation_context"] = json!({
                    "default_validation_context": {"match_typed_subject_alt_names": names},
                    "validation_context_sds_secret_config": self.add(&name, validation(&name, files.root)),
                });
            } else {
                common["validation_context"] =
                    json!({"trusted_ca": {"filename": files.root}, "match_typed_subject_alt_names": names});
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

    /// Adds a secret, unless it is there, and gives the reference to it.
    fn add(&mut self, name: &str, secret: Value) -> Value {
        let index = self.list.iter().position(|kept| *kept == secret).unwrap_or(self.list.len());
        if index == self.list.len() {
            self.list.push(secret);
        }
        let path = self.file_of(index).unwrap_or_default();
        json!({"name": name, "sds_config": {
            "path_config_source": {"path": path.to_string_lossy()},
            "resource_api_version": "V3",
        }})
    }

    /// The file of the secret at this place of the list. Envoy knows the form of a file by its ending.
    fn file_of(&self, index: usize) -> Option<PathBuf> {
        let first = self.file.as_ref()?;
        Some(if index == 0 { first.clone() } else { first.with_extension(format!("{index}.json")) })
    }

    /// Writes the files, but for those that stand already.
    pub(super) fn write(&self) -> std::io::Result<()> {
        for (index, secret) in self.list.iter().enumerate() {
            let Some(path) = self.file_of(index) else { continue };
            let text = format!("{:#}\n", json!({"resources": [secret]}));
            if fs::read_to_string(&path).is_ok_and(|kept| kept == text) {
                continue;
            }
            let mut new = path.as_os_str().to_owned();
            new.push(format!(".new-{}", std::process::id()));
            fs::write(&new, text)?;
            // Envoy may run as another user than this command, and reads the file when it is renamed.
            fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
            fs::rename(&new, path)?;
        }
        Ok(())
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
