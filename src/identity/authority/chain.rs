//! Certificates and the way from one to a root.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

/// The parts of a certificate that count here.
pub(super) struct Facts {
    pub(super) is_ca: bool,
    pub(super) public_key: Vec<u8>,
    pub(super) not_after: SystemTime,
    /// From the first moment to the last.
    pub(super) lifetime: Duration,
}

/// Reads a certificate.
pub(super) fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|e| e.to_string())?;
    let validity = parsed.validity();
    let lifetime = validity.not_after.timestamp().saturating_sub(validity.not_before.timestamp());
    Ok(Facts {
        is_ca: parsed.is_ca(),
        public_key: parsed.public_key().raw.to_vec(),
        not_after: end_of(&parsed),
        lifetime: Duration::from_secs(u64::try_from(lifetime).unwrap_or(0)),
    })
}

/// The last moment of a certificate.
pub(super) fn end_of(certificate: &X509Certificate<'_>) -> SystemTime {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The last moment of the first certificate.
pub(in crate::identity) fn end_of_first(listed: &[CertificateDer<'static>]) -> Option<SystemTime> {
    facts(listed.first()?).ok().map(|facts| facts.not_after)
}

/// The certificate is a root, or the chain leads from it to one that is in force.
pub(in crate::identity) fn leads_to_root(
    certificate: &CertificateDer<'static>,
    chain: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
    now: SystemTime,
) -> Result<(), String> {
    let mut current = certificate.clone();
    for _ in 0..=chain.len() + 1 {
        if roots.contains(&current) {
            return Ok(());
        }
        let (_, child) = x509_parser::parse_x509_certificate(&current).map_err(|e| e.to_string())?;
        let issuer = roots.iter().chain(chain).find(|candidate| {
            x509_parser::parse_x509_certificate(candidate).is_ok_and(|(_, parent)| {
                parent.subject() == child.issuer()
                    && child.verify_signature(Some(parent.public_key())).is_ok()
                    && end_of(&parent) > now
            })
        });
        let Some(issuer) = issuer.cloned() else { break };
        current = issuer;
    }
    Err("the certificate chain does not lead to a root certificate that is in force".to_string())
}
