//! The certificate that a client showed in its handshake: its streams end when its root is taken away or a list revokes it,
//! without waiting for the next handshake.

use std::{sync::Arc, time::SystemTime};

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

/// The verifier of client certificates in force; `None` before an authority has started.
type Verifier = Option<Arc<dyn ClientCertVerifier>>;

/// The roots of client certificates in force. It is made before its readers and before the authority that publishes there.
#[derive(Debug, Clone, Default)]
pub struct ClientRoots(watch::Sender<Verifier>);

impl ClientRoots {
    /// Puts new roots in force.
    pub(super) fn publish(&self, verifier: Arc<dyn ClientCertVerifier>) {
        self.0.send_replace(Some(verifier));
    }

    /// The roots in force, and their changes.
    pub(super) fn follow(&self) -> watch::Receiver<Verifier> {
        self.0.subscribe()
    }
}

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

    /// Ends when the roots in force admit it no more.
    pub(super) async fn lapse(&self, mut roots: watch::Receiver<Verifier>) {
        loop {
            let verifier = roots.borrow_and_update().clone();
            if verifier.is_some_and(|verifier| !self.holds(&*verifier)) {
                return;
            }
            if roots.changed().await.is_err() {
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
            let clients = Clients { roots, revoked: "" };
            let (chain, rules) = (&server.certificate.chain, ListenerTls::default());
            server_config(chain, &server.key, &clients, &rules, CompliancePolicy::None).unwrap().1
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
