//! Lists of revoked certificates that come with a plugged-in authority (`ca-crl.pem`).

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, pem::PemObject};
use x509_parser::{prelude::FromDer, revocation_list::CertificateRevocationList};

use super::AuthorityError;
use crate::model::pem::fault;

const PART: &str = "the list of revoked certificates";

/// Checks the lists of a PEM text: each one parses and is signed by one of `issuers`, and each of the `issuing` certificates
/// has one. Envoy refuses every peer below an issuer without a list as soon as there is any.
///
/// # Errors
/// The first fault.
pub(super) fn check(
    text: &str,
    issuing: &[CertificateDer<'_>],
    issuers: &[CertificateDer<'_>],
) -> Result<(), AuthorityError> {
    let lists = lists(text)?;
    if lists.is_empty() {
        return Err(AuthorityError::Certificate(PART, "it holds no list in PEM".to_string()));
    }
    for list in &lists {
        if !issuers.iter().any(|issuer| is_signed_by(list, issuer)) {
            return Err(AuthorityError::Unfit(format!("{PART} is not signed by a certificate of the authority")));
        }
    }
    match issuing.iter().find(|issuer| !lists.iter().any(|list| is_signed_by(list, issuer))) {
        Some(issuer) => Err(AuthorityError::Unfit(format!("{PART} has none of {}", subject(issuer)))),
        None => Ok(()),
    }
}

/// The subjects of certificates that have no list of their own.
pub(super) fn without_list(text: &str, issuers: &[CertificateDer<'_>]) -> Vec<String> {
    let lists = lists(text).unwrap_or_default();
    let lacks = |issuer: &&CertificateDer<'_>| !lists.iter().any(|list| is_signed_by(list, issuer));
    issuers.iter().filter(lacks).map(subject).collect()
}

fn lists(text: &str) -> Result<Vec<CertificateRevocationListDer<'static>>, AuthorityError> {
    let lists: Vec<CertificateRevocationListDer<'static>> =
        CertificateRevocationListDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| AuthorityError::Certificate(PART, fault(&e)))?;
    for list in &lists {
        CertificateRevocationList::from_der(list).map_err(|e| AuthorityError::Certificate(PART, e.to_string()))?;
    }
    Ok(lists)
}

fn is_signed_by(list: &CertificateRevocationListDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let (Ok((_, list)), Ok((_, issuer))) =
        (CertificateRevocationList::from_der(list), x509_parser::parse_x509_certificate(issuer))
    else {
        return false;
    };
    list.issuer() == issuer.subject() && list.verify_signature(issuer.public_key()).is_ok()
}

fn subject(certificate: &CertificateDer<'_>) -> String {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.map(|(_, parsed)| parsed.subject().to_string()).unwrap_or_default()
}
