//! Checks whether a proxy can load the certificates and keys of PEM texts: they parse, and key and certificate are a pair.
//!
//! Signatures, trust and expiry are checked by the proxy. Error texts never quote material.

use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use x509_parser::{
    certificate::X509Certificate,
    der_parser::{ber::BerObjectContent, der::parse_der},
    prelude::FromDer,
    public_key::PublicKey,
};

/// The reason a PEM text is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// The text holds no certificate.
    #[error("holds no certificate in PEM form")]
    NoCertificate,
    /// A certificate does not parse: its number, from 1, and the reason.
    #[error("certificate {0} is not valid: {1}")]
    Certificate(usize, String),
    /// The text holds no private key.
    #[error("holds no private key in PEM form")]
    NoKey,
    /// The private key does not parse.
    #[error("the private key is not valid")]
    Key,
    /// Key and certificate are not a pair.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// The fault of a PEM text, in words that hold nothing of it: the library's own quote the line at fault, which may be a key's.
#[must_use]
pub fn fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line".to_string(),
        pem::Error::IllegalSectionStart { .. } => "the BEGIN line of a section is malformed".to_string(),
        pem::Error::Base64Decode(_) => "a section is not base64".to_string(),
        pem::Error::NoItemsFound => "it holds no section of the kind".to_string(),
        pem::Error::SectionTooLarge => "a section is too large".to_string(),
        pem::Error::Io(error) => error.to_string(),
        _ => "it is malformed".to_string(),
    }
}

/// The labels of the PEM blocks of a text (`CERTIFICATE`, `EC PRIVATE KEY`), in order.
#[must_use]
pub fn kinds(pem: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(pem);
    let begins = text.lines().filter_map(|line| line.trim_end().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    begins.map(String::from).collect()
}

/// Checks that the text holds certificates, at least one, and that all of them parse.
///
/// # Errors
/// The first problem found.
pub fn check_certificates(pem: &[u8]) -> Result<(), PemError> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        count += 1;
        let der = certificate.map_err(|e| PemError::Certificate(count, fault(&e)))?;
        parse(&der).map_err(|e| PemError::Certificate(count, e))?;
    }
    if count == 0 { Err(PemError::NoCertificate) } else { Ok(()) }
}

/// Whether at least one certificate of the text parses (Go's `AppendCertsFromPEM`).
#[must_use]
pub fn holds_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).flatten().any(|der| parse(&der).is_ok())
}

/// The first and the last second (since the Unix epoch) at which each certificate of the text is valid.
#[must_use]
pub fn validity(pem: &[u8]) -> Vec<(i64, i64)> {
    let of = |der: CertificateDer<'_>| {
        let validity = parse(&der).ok()?.validity().clone();
        Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
    };
    CertificateDer::pem_slice_iter(pem).flatten().filter_map(of).collect()
}

/// Checks that the chain and the key parse, and that the key belongs to the first certificate. The pair is compared without
/// arithmetic: RSA keys hold their modulus, EC keys usually their point.
///
/// # Errors
/// The first problem found.
pub fn check_pair(chain: &[u8], key: &[u8]) -> Result<(), PemError> {
    check_certificates(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PemError::NoKey)?;
    let public = public_half(&key).ok_or(PemError::Key)?;
    let leaf = CertificateDer::from_pem_slice(chain).map_err(|e| PemError::Certificate(1, fault(&e)))?;
    let leaf = parse(&leaf).map_err(|e| PemError::Certificate(1, e))?;
    let certified = match leaf.public_key().parsed() {
        Ok(PublicKey::RSA(rsa)) => Some(unsigned(rsa.modulus).to_vec()),
        Ok(PublicKey::EC(point)) => Some(point.data().to_vec()),
        _ => None,
    };
    match (public, certified) {
        (Half::Known(public), Some(certified)) if public != certified => Err(PemError::Mismatch),
        _ => Ok(()),
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    X509Certificate::from_der(der).map(|(_, c)| c).map_err(|e| e.to_string())
}

/// The public half of a key pair, as stored in the private key.
enum Half {
    Known(Vec<u8>),
    Unknown,
}

fn public_half(key: &PrivateKeyDer<'_>) -> Option<Half> {
    match key {
        PrivateKeyDer::Pkcs1(der) => rsa_modulus(der.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(der) => ec_point(der.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(der) => {
            const RSA: &str = "1.2.840.113549.1.1.1";
            const EC: &str = "1.2.840.10045.2.1";
            let (_, outer) = parse_der(der.secret_pkcs8_der()).ok()?;
            let [_, algorithm, inner, ..] = outer.as_sequence().ok()?.as_slice() else { return None };
            let algorithm = algorithm.as_sequence().ok()?.first()?.as_oid().ok()?.to_id_string();
            let inner = inner.as_slice().ok()?;
            match algorithm.as_str() {
                RSA => rsa_modulus(inner),
                EC => ec_point(inner),
                _ => Some(Half::Unknown),
            }
        }
        _ => None,
    }
}

fn rsa_modulus(der: &[u8]) -> Option<Half> {
    let (_, key) = parse_der(der).ok()?;
    let [_, modulus, ..] = key.as_sequence().ok()?.as_slice() else { return None };
    match &modulus.content {
        BerObjectContent::Integer(bytes) => Some(Half::Known(unsigned(bytes).to_vec())),
        _ => None,
    }
}

/// The optional public key of an EC private key has the tag `[1]`.
fn ec_point(der: &[u8]) -> Option<Half> {
    let (_, key) = parse_der(der).ok()?;
    let parts = key.as_sequence().ok()?;
    let Some(tagged) = parts.iter().find(|p| p.header.is_contextspecific() && p.header.tag().0 == 1) else {
        return (parts.len() >= 2).then_some(Half::Unknown);
    };
    let BerObjectContent::Unknown(tagged) = &tagged.content else { return Some(Half::Unknown) };
    let (_, bits) = parse_der(tagged.data).ok()?;
    match bits.content {
        BerObjectContent::BitString(_, bits) => Some(Half::Known(bits.data.to_vec())),
        _ => None,
    }
}

fn unsigned(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_without_the_text_that_has_it() {
        for text in [
            "-----BEGIN PRIVATE KEY MIIsecret\nMIIsecret\n-----END PRIVATE KEY-----\n",
            "-----BEGIN CERTIFICATE-----\nMIIsecret\n",
            "-----BEGIN CERTIFICATE-----\nMIIsecret!\n-----END CERTIFICATE-----\n",
        ] {
            let told = check_certificates(text.as_bytes()).unwrap_err().to_string();
            assert!(told.starts_with("certificate 1 is not valid: ") && told.len() < 100, "{told}");
            assert!(!told.contains("secret") && !told.contains("77, 73, 73"), "{told}");
        }
    }
}
