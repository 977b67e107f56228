//! TLS of the servers, by rustls: the configuration of a listener, and the identity that a client's certificate proves.
//!
//! A client may do without a certificate and present a token. One whose certificate is not signed by a root of the mesh is
//! turned away in the handshake.

mod rules;

use std::{sync::Arc, time::Duration};

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{
    self, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use x509_parser::extensions::GeneralName;

use crate::{
    model::{Identity, features::CompliancePolicy, pem},
    settings::ListenerTls,
};

/// Names in a certificate that are looked at.
const MAX_NAMES: usize = 64;

/// The lifetime of the server's own certificate, where the authority issues it.
pub const SERVER_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// A reason that a listener has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A part cannot be read.
    #[error("{0}: {1}")]
    Part(&'static str, String),
    /// rustls refuses the combination.
    #[error("{0}")]
    Config(#[from] rustls::Error),
    /// The roots for clients cannot be used.
    #[error("the roots for client certificates: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A cipher suite is not known.
    #[error("--tls-cipher-suites: {0:?} is not one of {1}")]
    Suite(String, String),
    /// The policy cannot be kept.
    #[error("COMPLIANCE_POLICY=pqc: the secure listener has no key exchange X25519MLKEM768")]
    PostQuantum,
}

/// The certificates of clients that a listener takes, in PEM.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clients<'a> {
    /// The roots that they are below.
    pub roots: &'a str,
    /// Lists of those that were revoked; a root without a list revokes none.
    pub revoked: &'a str,
}

/// The configuration of a listener: TLS 1.2 and 1.3 as far as `rules` and the compliance policy have them, HTTP/2, client
/// certificates of these roots or none. All parts are PEM. Beside it, the part of it that verifies those certificates.
///
/// # Errors
/// [`TlsError`] when a part cannot be read, certificate and key do not fit, or the rules leave nothing.
pub fn server_config(
    chain: &str,
    key: &str,
    clients: &Clients<'_>,
    rules: &ListenerTls,
    compliance: CompliancePolicy,
) -> Result<(Arc<ServerConfig>, Arc<dyn ClientCertVerifier>), TlsError> {
    let (provider, versions) = rules::provider(rules, compliance)?;
    let chain = certificates(chain, "the server's certificate")?;
    if chain.is_empty() {
        return Err(TlsError::Part("the server's certificate", "no certificate in PEM".to_string()));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|e| TlsError::Part("the server's private key", pem::fault(&e)))?;
    let mut roots = RootCertStore::empty();
    for root in certificates(clients.roots, "the roots for client certificates")? {
        roots.add(root)?;
    }
    let revoked = CertificateRevocationListDer::pem_slice_iter(clients.revoked.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::Part("the list of revoked certificates", pem::fault(&e)))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .with_crls(revoked)
        .allow_unknown_revocation_status()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_client_cert_verifier(verifier.clone())
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A fleet that comes back resumes its sessions, which costs no signature.
    config.ticketer = ring::Ticketer::new()?;
    config.max_early_data_size = 0;
    Ok((Arc::new(config), verifier))
}

/// The cryptography of TLS.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(super) fn certificates(text: &str, part: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::Part(part, pem::fault(&e)))
}

/// The identity in a client's certificate: its only URI name has to be a SPIFFE id of Istio's form.
///
/// # Errors
/// The reason, as a text.
pub fn identity_of(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|e| e.to_string())?;
    let names = parsed.subject_alternative_name().map_err(|e| e.to_string())?;
    let names = names.map(|names| &*names.value.general_names).unwrap_or_default();
    if names.len() > MAX_NAMES {
        return Err(format!("the certificate has more than {MAX_NAMES} names"));
    }
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    // RFC of SPIFFE's X509-SVID: exactly one URI name.
    let (Some(uri), None) = (uris.next(), uris.next()) else {
        return Err("the certificate has not exactly one URI name".to_string());
    };
    Identity::parse(uri).ok_or_else(|| format!("{} is no SPIFFE id of a service account", uri.escape_debug()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::identity::authority::{Authority, new_root};

    fn authority() -> Authority {
        let now = SystemTime::now();
        Authority::new(&new_root("cluster.local", now, Duration::from_secs(86_400)).unwrap(), now).unwrap()
    }

    #[test]
    fn a_certificate_proves_its_only_spiffe_id() {
        let authority = authority();
        let identity = Identity::parse("spiffe://td/ns/shop/sa/cart").unwrap();
        let issued = authority.issue(&identity, Duration::from_secs(60), SystemTime::now()).unwrap();
        let leaf = certificates(&issued.certificate.chain, "").unwrap().remove(0);
        assert_eq!(identity_of(&leaf), Ok(identity));
        let server = authority.issue_server(&["localhost".into()], Duration::from_secs(60), SystemTime::now()).unwrap();
        let leaf = certificates(&server.certificate.chain, "").unwrap().remove(0);
        assert!(identity_of(&leaf).unwrap_err().contains("exactly one"));
        assert!(identity_of(&CertificateDer::from(vec![1, 2, 3])).is_err());
    }

    #[test]
    fn parts_that_do_not_fit_make_no_listener() {
        let authority = authority();
        let issue =
            || authority.issue_server(&["localhost".into()], Duration::from_secs(60), SystemTime::now()).unwrap();
        let (one, two) = (issue(), issue());
        let config = |chain: &str, key: &str, roots: &str| {
            let clients = Clients { roots, revoked: "" };
            server_config(chain, key, &clients, &ListenerTls::default(), CompliancePolicy::None).map(drop)
        };
        assert!(config(&one.certificate.chain, &one.key, authority.roots()).is_ok());
        assert!(config(&one.certificate.chain, &two.key, authority.roots()).is_err());
        assert!(config("", &one.key, authority.roots()).is_err());
        assert!(config(&one.certificate.chain, "", authority.roots()).is_err());
        assert!(config(&one.certificate.chain, &one.key, "").is_err(), "without roots no client could prove anything");
    }
}
