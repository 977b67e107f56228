//! Certificates referenced by Gateways and policies: checks the content of a Secret or ConfigMap.
//!
//! Texts are those of Istio and of Go's `crypto/tls`, because users see them in statuses.

use std::collections::BTreeMap;

use crate::model::{
    Config,
    pem::{self, PemError},
};

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

/// Checks that the Secret holds a certificate and its key (`cert` and `key`, or `tls.crt` and `tls.key`).
///
/// # Errors
/// A text to append to the name of the reference.
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
    pem::check_pair(certificate, key)
        .map_err(|e| format!("the certificate is malformed: {}", as_go_says(&e, certificate, key)))
}

fn as_go_says(error: &PemError, certificate: &[u8], key: &[u8]) -> String {
    match error {
        PemError::NoCertificate => no_certificate(&pem::kinds(certificate)),
        PemError::NoKey => no_key(&pem::kinds(key)),
        PemError::Key => "tls: failed to parse private key".into(),
        PemError::Mismatch => "tls: private key does not match public key".into(),
        PemError::Certificate(_, text) => text.clone(),
    }
}

fn no_certificate(found: &[String]) -> String {
    match found {
        [] => "tls: failed to find any PEM data in certificate input".into(),
        [kind] if kind.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but \
                                                    did find a private key; PEM inputs may have been switched"
                .into()
        }
        kinds => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
            kinds.join(" ")
        ),
    }
}

fn no_key(found: &[String]) -> String {
    match found {
        [] => "tls: failed to find any PEM data in key input".into(),
        [kind] if kind == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".into()
        }
        kinds => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
             of the following types: [{}]",
            kinds.join(" ")
        ),
    }
}

/// The CA certificates of a Secret or ConfigMap (`cacert`, or `ca.crt`), without validation.
///
/// # Errors
/// A text that names the missing keys.
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

/// The data of a Secret, with `stringData` merged over `data` as in an API server.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_found_instead_of_a_certificate_or_a_key_is_named() {
        let kinds = |pem: &str| pem::kinds(pem.as_bytes());
        let key = "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----\n";
        let request = "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n";
        assert!(no_certificate(&kinds("")).ends_with("any PEM data in certificate input"));
        assert!(no_certificate(&kinds(key)).ends_with("PEM inputs may have been switched"));
        assert!(no_certificate(&kinds(&format!("{key}{request}"))).ends_with("[EC PRIVATE KEY CERTIFICATE REQUEST]"));
        assert!(no_key(&kinds(request)).ends_with("following types: [CERTIFICATE REQUEST]"));
        assert!(no_key(&["CERTIFICATE".to_string()]).contains("a certificate rather than a key"));
    }
}
