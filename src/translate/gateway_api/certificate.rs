//! Certificates that Gateways and policies refer to: whether a Secret or ConfigMap holds what it should.
//!
//! Texts are those of Istio and of Go's `crypto/tls`, because users read them in statuses.

use std::collections::BTreeMap;

use crate::model::{
    Config,
    pem::{self, PemError},
};

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

/// The Secret holds a certificate and its key (`cert` and `key`, or `tls.crt` and `tls.key`).
///
/// # Errors
/// What is wrong, to follow the name of the reference.
pub fn check_pair(secret: &Config) -> Result<(), String> {
    let data = data(secret);
    const FORMS: [[&str; 2]; 2] = [["cert", "key"], ["tls.crt", "tls.key"]];
    let found = FORMS.iter().find_map(|[c, k]| Some((value(&data, c)?, value(&data, k)?)));
    let Some((certificate, key)) = found else {
        let [[a, b], [c, d]] = FORMS;
        if let Some([c, k]) = FORMS.iter().find(|form| form.iter().all(|k| data.contains_key(k))) {
            return Err(format!("found keys {c:?} and {k:?}, but they were empty"));
        }
        return Err(format!(
            "found secret, but didn't have expected keys ({a} and {b}) or ({c} and {d}); found: {}",
            keys(&data)
        ));
    };
    pem::check_pair(certificate, key).map_err(|e| format!("the certificate is malformed: {}", as_go_says(&e)))
}

fn as_go_says(error: &PemError) -> String {
    match error {
        PemError::NoCertificate => "tls: failed to find any PEM data in certificate input".into(),
        PemError::NoKey => "tls: failed to find any PEM data in key input".into(),
        PemError::Key => "tls: failed to parse private key".into(),
        PemError::Mismatch => "tls: private key does not match public key".into(),
        PemError::Certificate(_, text) => text.clone(),
    }
}

/// The CA certificates of a Secret or ConfigMap (`cacert`, or `ca.crt`), not looked into.
///
/// # Errors
/// What is missing.
pub fn roots(config: &Config) -> Result<Vec<u8>, String> {
    let data = data(config);
    const KEYS: [&str; 2] = ["cacert", "ca.crt"];
    if let Some(roots) = KEYS.iter().find_map(|key| value(&data, key)) {
        return Ok(roots.to_vec());
    }
    match KEYS.iter().find(|key| data.contains_key(*key)) {
        Some(key) => Err(format!("found key {key:?}, but it was empty")),
        None => {
            let [a, b] = KEYS;
            Err(format!("found secret, but didn't have expected keys {a} or {b}; found: {}", keys(&data)))
        }
    }
}

/// `stringData` is laid over `data`, as an API server does.
fn data(config: &Config) -> Data<'_> {
    let mut data = Data::new();
    if let Some(secret) = config.secret() {
        data.extend(secret.data.iter().flatten().map(|(k, v)| (k.as_str(), v.0.as_slice())));
        data.extend(secret.string_data.iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes())));
    }
    if let Some(map) = config.config_map() {
        data.extend(map.data.iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes())));
    }
    data
}

fn value<'a>(data: &Data<'a>, key: &str) -> Option<&'a [u8]> {
    data.get(key).copied().filter(|v| !v.is_empty())
}

fn keys(data: &Data<'_>) -> String {
    let keys: Vec<&str> = data.keys().copied().collect();
    match keys.get(..3) {
        Some(first) => format!("{}, and {} more...", first.join(", "), keys.len() - 3),
        None => keys.join(", "),
    }
}
