//! The keys of a Secret or ConfigMap that hold certificate, private key and CA certificates, in the generic and the TLS form
//! (Istio's `ExtractCertInfo` and `ExtractRoot`).

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::model::{Config, pem};

/// The checked content of a Secret.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Material {
    /// A certificate chain with its key.
    Certificate { chain: Bytes, key: Bytes, ocsp_staple: Option<Bytes> },
    /// CA certificates.
    Ca { roots: Bytes, crl: Option<Bytes> },
}

/// The data of a Secret or ConfigMap.
pub(super) struct Data<'a>(BTreeMap<&'a str, &'a [u8]>);

impl<'a> Data<'a> {
    /// `stringData` is laid over `data`, which an API server would have done.
    pub fn of(config: &'a Config) -> Self {
        let mut data = BTreeMap::new();
        if let Some(secret) = config.secret() {
            data.extend(secret.data.iter().flatten().map(|(k, v)| (k.as_str(), v.0.as_slice())));
            data.extend(secret.string_data.iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes())));
        }
        if let Some(config_map) = config.config_map() {
            data.extend(config_map.data.iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes())));
        }
        Self(data)
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        self.0.get(key).filter(|v| !v.is_empty()).map(|v| Bytes::copy_from_slice(v))
    }

    fn missing(&self, forms: &[&[&str]]) -> String {
        for form in forms {
            if form.iter().all(|k| self.0.contains_key(k)) {
                return format!("found {}, but empty", form.join(" and "));
            }
        }
        let wanted: Vec<String> = forms.iter().map(|f| f.join(" and ")).collect();
        let found: Vec<&str> = self.0.keys().copied().take(5).collect();
        format!("has neither {}; found: {}", wanted.join(" nor "), found.join(", "))
    }
}

/// Certificate chain and key: `cert` and `key`, or `tls.crt` and `tls.key`.
pub(super) fn certificate(data: &Data<'_>) -> Result<Material, String> {
    const FORMS: [&[&str]; 2] = [&["cert", "key"], &["tls.crt", "tls.key"]];
    let (chain, key, ocsp_staple) = if let (Some(chain), Some(key)) = (data.get("cert"), data.get("key")) {
        (chain, key, None)
    } else if let (Some(chain), Some(key)) = (data.get("tls.crt"), data.get("tls.key")) {
        (chain, key, data.get("tls.ocsp-staple"))
    } else {
        return Err(data.missing(&FORMS));
    };
    pem::check_pair(&chain, &key).map_err(|e| e.to_string())?;
    Ok(Material::Certificate { chain, key, ocsp_staple })
}

/// Credentials of registries, as a pod names them in `imagePullSecrets`.
pub(super) fn registry(data: &Data<'_>) -> Result<String, String> {
    const KEY: &str = ".dockerconfigjson";
    let content = data.get(KEY).ok_or_else(|| data.missing(&[&[KEY]]))?;
    String::from_utf8(content.to_vec()).map_err(|_| format!("{KEY} is no text"))
}

/// CA certificates: `cacert`, or `ca.crt`.
pub(super) fn ca(data: &Data<'_>) -> Result<Material, String> {
    let (roots, crl) = if let Some(roots) = data.get("cacert") {
        (roots, data.get("crl"))
    } else if let Some(roots) = data.get("ca.crt") {
        (roots, data.get("ca.crl"))
    } else {
        return Err(data.missing(&[&["cacert"], &["ca.crt"]]));
    };
    pem::check_certificates(&roots).map_err(|e| e.to_string())?;
    Ok(Material::Ca { roots, crl })
}
