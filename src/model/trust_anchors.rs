//! Root certificates beside those of the certificate authority: `caCertificates` of the mesh config, written there in PEM or
//! as the URL of a SPIFFE bundle.
//!
//! Only certificates of authorities are taken. A text with a fault is refused whole, so that an edit neither widens trust by
//! half nor drops a part of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;

use super::pem::{self, PemError};
use crate::proto::mesh::{MeshConfig, mesh_config::certificate_data::CertificateData};

/// Certificates of one entry at most.
const MOST: usize = 200;
/// Entries at most.
const MOST_ENTRIES: usize = 100;
/// Bytes of a certificate at most.
const MOST_BYTES: usize = 16 << 10;

/// Certificates of authorities, each in PEM.
pub type Anchors = Arc<[Arc<str>]>;

/// Certificates of fetched bundles, by URL.
pub type FetchedAnchors = BTreeMap<Arc<str>, Anchors>;

/// A SPIFFE bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Its certificates.
    pub anchors: Anchors,
    /// The interval at which its server wants it to be fetched again.
    pub refresh: Option<Duration>,
}

/// Checks the entries that hold certificates, and that the others hold URLs.
///
/// # Errors
/// The entry at fault, with the reason; never a part of its text.
pub fn check(config: &MeshConfig) -> Result<(), String> {
    if config.ca_certificates.len() > MOST_ENTRIES {
        return Err(format!("caCertificates: more than {MOST_ENTRIES} entries"));
    }
    for (at, entry) in config.ca_certificates.iter().enumerate() {
        match &entry.certificate_data {
            Some(CertificateData::Pem(text)) if !text.is_empty() => {
                anchors_of(text).map_err(|reason| format!("caCertificates[{at}].pem: {reason}"))?;
            }
            Some(CertificateData::SpiffeBundleUrl(url)) if !url.is_empty() => {
                location(url).map_err(|reason| format!("caCertificates[{at}].spiffeBundleUrl: {reason}"))?;
            }
            _ => return Err(format!("caCertificates[{at}] has neither pem nor spiffeBundleUrl")),
        }
    }
    Ok(())
}

/// The URLs of SPIFFE bundles.
pub fn locations(config: &MeshConfig) -> impl Iterator<Item = Arc<str>> + '_ {
    config.ca_certificates.iter().filter_map(|entry| match &entry.certificate_data {
        Some(CertificateData::SpiffeBundleUrl(url)) => location(url).ok(),
        _ => None,
    })
}

/// All certificates of the mesh config, fetched ones included: sorted, none twice.
#[must_use]
pub fn of_mesh(config: &MeshConfig, fetched: &FetchedAnchors) -> Anchors {
    let written = config.ca_certificates.iter().filter_map(|entry| match &entry.certificate_data {
        Some(CertificateData::Pem(text)) => anchors_of(text).ok(),
        _ => None,
    });
    let mut all: Vec<Arc<str>> = written.flat_map(|anchors| anchors.to_vec()).collect();
    all.extend(locations(config).filter_map(|url| fetched.get(&url)).flat_map(|anchors| anchors.to_vec()));
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// The certificates of a PEM text, each by itself.
///
/// # Errors
/// The first fault.
fn anchors_of(text: &str) -> Result<Anchors, String> {
    let mut anchors = Vec::new();
    for der in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let number = anchors.len() + 1;
        let der = der.map_err(|e| PemError::Certificate(number, pem::fault(&e)).to_string())?;
        anchors.push(anchor(&der, number)?);
    }
    bounded(anchors).ok_or_else(|| PemError::NoCertificate.to_string())
}

fn bounded(anchors: Vec<Arc<str>>) -> Option<Anchors> {
    (1..=MOST).contains(&anchors.len()).then(|| anchors.into())
}

/// A certificate in PEM, if it is an authority's.
fn anchor(der: &[u8], number: usize) -> Result<Arc<str>, String> {
    if der.len() > MOST_BYTES {
        return Err(format!("certificate {number} has more than {MOST_BYTES} bytes"));
    }
    let (rest, parsed) = x509_parser::parse_x509_certificate(der)
        .map_err(|e| PemError::Certificate(number, e.to_string()).to_string())?;
    if !rest.is_empty() {
        return Err(format!("certificate {number} is followed by other bytes"));
    }
    if !parsed.is_ca() {
        return Err(format!("certificate {number} is not one of a certificate authority"));
    }
    let lines = ::pem::EncodeConfig::new().set_line_ending(::pem::LineEnding::LF);
    Ok(::pem::encode_config(&::pem::Pem::new("CERTIFICATE", der), lines).into())
}

/// The address of a bundle; a scheme may be left out, as in Istio.
fn location(url: &str) -> Result<Arc<str>, String> {
    let whole = if url.contains("://") { url.to_string() } else { format!("https://{url}") };
    let uri: http::Uri = whole.parse().map_err(|e| format!("{e}"))?;
    match uri.scheme_str() {
        Some("https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(whole.into()),
        _ => Err("it is no https URL".to_string()),
    }
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Key>,
    #[serde(default)]
    spiffe_refresh_hint: Option<u64>,
}

#[derive(Deserialize)]
struct Key {
    #[serde(default, rename = "use")]
    used_for: String,
    #[serde(default)]
    x5c: Vec<String>,
}

/// The certificates of a SPIFFE bundle: the one of each key whose use is `x509-svid`.
///
/// # Errors
/// The first fault.
pub fn of_bundle(text: &str) -> Result<Bundle, String> {
    let document: Document = serde_json::from_str(text).map_err(|e| {
        // The library quotes values; the category says enough.
        format!("it is no SPIFFE bundle: {:?} at line {}", e.classify(), e.line())
    })?;
    let mut anchors = Vec::new();
    for (at, key) in document.keys.iter().enumerate().filter(|(_, key)| key.used_for == "x509-svid") {
        let [certificate] = &*key.x5c else {
            return Err(format!("keys[{at}] has {} certificates instead of one", key.x5c.len()));
        };
        // The standard has base64 on one line, which is the body of a PEM section.
        let section = format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n");
        let der = CertificateDer::from_pem_slice(section.as_bytes())
            .map_err(|e| format!("keys[{at}]: {}", pem::fault(&e)))?;
        anchors.push(anchor(&der, at + 1)?);
    }
    let anchors = bounded(anchors).ok_or("it has no certificate for x509-svid, or too many")?;
    Ok(Bundle { anchors, refresh: document.spiffe_refresh_hint.map(Duration::from_secs) })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Mesh;

    fn certificate(is_ca: bool) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::NoCa };
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn mesh(entries: &Value) -> Result<Mesh, String> {
        let config = json!({"caCertificates": entries});
        Mesh::from_values(&config, &Value::Null, "cluster.local", "Kubernetes").map_err(|e| e.to_string())
    }

    fn bundle(keys: &Value) -> Result<Bundle, String> {
        of_bundle(&json!({"keys": keys, "spiffe_refresh_hint": 7}).to_string())
    }

    fn base64(certificate: &rcgen::Certificate) -> String {
        certificate.pem().lines().filter(|line| !line.starts_with('-')).collect()
    }

    #[test]
    fn a_mesh_config_with_a_fault_in_one_entry_is_refused_by_its_number() {
        let (good, leaf) = (certificate(true).pem(), certificate(false).pem());
        let cut: String = good.chars().take(100).collect();
        let both = good.clone() + &leaf;
        for (entry, reason) in [
            (json!({"pem": leaf}), "caCertificates[1].pem: certificate 1 is not one of a certificate authority"),
            (json!({"pem": both}), "certificate 2 is not one of a certificate authority"),
            (json!({"pem": cut}), "caCertificates[1].pem: certificate 1 is not valid"),
            (json!({"pem": "secret"}), "holds no certificate"),
            (json!({"pem": ""}), "has neither pem nor spiffeBundleUrl"),
            (json!({"trustDomains": ["a"]}), "has neither pem nor spiffeBundleUrl"),
            (json!({"spiffeBundleUrl": "http://a.example/"}), "caCertificates[1].spiffeBundleUrl: it is no https URL"),
            (json!({"spiffeBundleUrl": "https://"}), "caCertificates[1].spiffeBundleUrl"),
        ] {
            let error = mesh(&json!([{"pem": good}, entry])).unwrap_err();
            assert!(error.contains(reason) && !error.contains("secret"), "{error} should say {reason}");
        }
        assert!(mesh(&json!([{"pem": good}, {"spiffeBundleUrl": "a.example/bundle"}])).is_ok());
    }

    #[test]
    fn certificates_are_sorted_and_none_is_there_twice() {
        let (one, two, three) = (certificate(true), certificate(true), certificate(true));
        let entries = json!([{"pem": one.pem() + &two.pem()}, {"pem": two.pem()}, {"spiffeBundleUrl": "a.example"}]);
        let mesh = mesh(&entries).unwrap();
        let fetched = bundle(&json!([
            {"use": "x509-svid", "kty": "EC", "x5c": [base64(&three)]},
            {"use": "jwt-svid", "kty": "EC"},
        ]));
        let fetched = fetched.unwrap();
        assert_eq!(fetched.refresh, Some(Duration::from_secs(7)));
        assert_eq!(of_mesh(&mesh.config, &FetchedAnchors::new()).len(), 2, "not fetched yet");
        let at: Vec<Arc<str>> = locations(&mesh.config).collect();
        assert_eq!(&*at[0], "https://a.example");
        let all = of_mesh(&mesh.config, &[(at[0].clone(), fetched.anchors)].into());
        assert!(all.len() == 3 && all.is_sorted(), "{all:?}");
    }

    #[test]
    fn a_bundle_with_a_fault_is_refused_whole() {
        let (good, leaf) = (base64(&certificate(true)), base64(&certificate(false)));
        let key = |x5c: &[&str]| json!({"use": "x509-svid", "x5c": x5c});
        for (keys, reason) in [
            (json!([]), "no certificate"),
            (json!([{"use": "jwt-svid"}]), "no certificate"),
            (json!([key(&[&good]), key(&[])]), "keys[1] has 0 certificates"),
            (json!([key(&[&good, &good])]), "keys[0] has 2 certificates"),
            (json!([key(&[&good]), key(&[&leaf])]), "certificate 2 is not one of a certificate authority"),
            (json!([key(&["secret"])]), "certificate 1 is not valid"),
            (json!("secret"), "no SPIFFE bundle"),
        ] {
            let error = bundle(&keys).unwrap_err();
            assert!(error.contains(reason) && !error.contains("secret"), "{error} should say {reason}");
        }
    }
}
