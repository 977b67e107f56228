//! The certificate that a client showed in its handshake: its streams end when its root is taken away or a list revokes it,
//! without waiting for the next handshake.

use std::{sync::Arc, time::SystemTime};

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use super::trust::Trust;

/// A certificate, as the handshake verified it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CertificateProof {
    certificate: CertificateDer<'static>,
    intermediates: Vec<CertificateDer<'static>>,
    /// The time at which it held: one that expires meanwhile ends nothing.
    at: SystemTime,
}

impl CertificateProof {
    pub(super) fn of(certificate: CertificateDer<'static>, intermediates: Vec<CertificateDer<'static>>) -> Self {
        Self { certificate, intermediates, at: SystemTime::now() }
    }

    /// Whether the roots and the lists of revoked certificates still admit it.
    pub(super) fn holds(&self, verifier: &dyn ClientCertVerifier) -> bool {
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = UnixTime::since_unix_epoch(at);
        verifier.verify_client_cert(&self.certificate, &self.intermediates, at).is_ok()
    }

    /// Ends when the trust in force admits it no more.
    pub(super) async fn lapse(&self, mut trust: watch::Receiver<Arc<Trust>>) {
        loop {
            let clients = trust.borrow_and_update().clients.clone();
            if !self.holds(&*clients) {
                return;
            }
            if trust.changed().await.is_err() {
                // The authority is gone: the process ends.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        identity::{
            authority::{Authority, new_root},
            tls::{Clients, certificates, server_config},
        },
        model::{Identity, features::CompliancePolicy},
        settings::ListenerTls,
    };

    #[test]
    fn a_certificate_holds_while_its_root_is_among_those_trusted() {
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let material = || new_root("mesh", now, hour).unwrap();
        let (one, two) = (material(), material());
        let authority = Authority::new(&one, now).unwrap();
        let server = authority.issue_server(&["localhost".into()], hour, now).unwrap();
        let verifier = |roots: &str| {
            let parts = (server.certificate.chain.as_str(), server.key.as_str());
            let rules = (&ListenerTls::default(), CompliancePolicy::None);
            server_config(parts, &Clients { roots, revoked: "" }, rules).unwrap().1
        };
        let issued = authority.issue(&Identity::parse("spiffe://mesh/ns/a/sa/b").unwrap(), hour, now).unwrap();
        let mut chain = certificates(&issued.certificate.chain, "").unwrap().into_iter();
        let proof = CertificateProof { at: now, ..CertificateProof::of(chain.next().unwrap(), chain.collect()) };
        assert!(proof.holds(&*verifier(&one.roots)) && proof.holds(&*verifier(&(two.roots.clone() + &one.roots))));
        assert!(!proof.holds(&*verifier(&two.roots)));
        let later = CertificateProof { at: now + 2 * hour, ..proof };
        assert!(!later.holds(&*verifier(&one.roots)), "the time is the one of the handshake");
    }
}
