//! The client's half of the certificate service: a key and a request for its certificate, and the judgement of the answer.
//!
//! The key never leaves the process but for the folder of the workload. An answer counts only if it is whole: a certificate of
//! this very key, in force, below one of the roots that come with it.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::{
    authority::{end_of_first, leads_to_root},
    tls::{certificates, identity_of},
    workloads,
};
use crate::model::pem;

/// Bytes of an answer at most.
const MAX_ANSWER: usize = 1 << 20;

/// A reason that there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The system gives no key.
    #[error("no key can be made: {0}")]
    Key(#[from] rcgen::Error),
    /// The answer is none that a workload could use.
    #[error("the answer of the certificate service is of no use: {0}")]
    Answer(String),
}

/// A certificate with its key, and the roots of its mesh, all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkloadFiles {
    /// The certificate, and those between it and a root.
    pub chain: String,
    /// The private key.
    pub key: String,
    /// The roots.
    pub roots: String,
    /// The SPIFFE id of the certificate, where it has one.
    pub identity: Option<String>,
    /// The last moment of the certificate.
    pub not_after: SystemTime,
}

impl std::fmt::Debug for WorkloadFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkloadFiles").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl WorkloadFiles {
    /// Judges three texts: they belong together, and the certificate is in force.
    ///
    /// # Errors
    /// [`RequestError::Answer`], with a reason that quotes nothing of the key.
    pub fn judge(chain: String, key: String, roots: String, now: SystemTime) -> Result<Self, RequestError> {
        let unfit = |reason: String| RequestError::Answer(reason);
        pem::check_pair(chain.as_bytes(), key.as_bytes()).map_err(|e| unfit(e.to_string()))?;
        let read = |text: &str, part: &'static str| certificates(text, part).map_err(|e| unfit(e.to_string()));
        let (listed, anchors) = (read(&chain, "the certificate")?, read(&roots, "the roots")?);
        let missing = || unfit("it holds no certificate".to_string());
        let (leaf, rest) = listed.split_first().ok_or_else(missing)?;
        leads_to_root(leaf, rest, &anchors, now).map_err(unfit)?;
        let not_after = end_of_first(&listed).ok_or_else(missing)?;
        if not_after <= now {
            return Err(unfit("the certificate has expired".to_string()));
        }
        let identity = identity_of(leaf).ok().map(|identity| identity.to_string());
        Ok(Self { chain, key, roots, identity, not_after })
    }

    /// The time that is left of the certificate's life.
    #[must_use]
    pub fn valid_for(&self, now: SystemTime) -> Duration {
        self.not_after.duration_since(now).unwrap_or_default()
    }

    /// The moment at which it is due to be renewed, if it was issued now: another one for each certificate.
    #[must_use]
    pub fn renew_at(&self, now: SystemTime) -> SystemTime {
        now + self.valid_for(now).mul_f64(workloads::part())
    }
}

/// A request for the certificate of a new key (ECDSA P-256).
pub struct CertificateRequest {
    key: KeyPair,
    text: String,
}

impl CertificateRequest {
    /// Makes the key and its request. It has no subject: the service knows its caller.
    ///
    /// # Errors
    /// [`RequestError::Key`].
    pub fn new() -> Result<Self, RequestError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let text = params.serialize_request(&key)?.pem()?;
        Ok(Self { key, text })
    }

    /// The request (PKCS #10 in PEM).
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Judges the answer: certificates in PEM, of which the roots come last.
    ///
    /// # Errors
    /// [`RequestError::Answer`].
    pub fn answered(self, answer: &[String], now: SystemTime) -> Result<WorkloadFiles, RequestError> {
        if answer.iter().map(String::len).sum::<usize>() > MAX_ANSWER {
            return Err(RequestError::Answer(format!("it has more than {MAX_ANSWER} bytes")));
        }
        let [chain @ .., roots] = answer else {
            return Err(RequestError::Answer("it is empty".to_string()));
        };
        if chain.is_empty() {
            return Err(RequestError::Answer("it holds no roots".to_string()));
        }
        let line = |text: &String| format!("{}\n", text.trim());
        WorkloadFiles::judge(chain.iter().map(line).collect(), self.key.serialize_pem(), line(roots), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::authority::{Authority, new_root},
        model::Identity,
    };

    const HOUR: Duration = Duration::from_secs(3600);

    fn authority() -> Authority {
        let now = SystemTime::now();
        Authority::new(&new_root("mesh", now, 10 * HOUR).unwrap(), now).unwrap()
    }

    #[test]
    fn an_answer_counts_when_it_is_whole() {
        let (ours, other, now) = (authority(), authority(), SystemTime::now());
        let id = Identity::parse("spiffe://mesh/ns/shop/sa/cart").unwrap();
        let request = || CertificateRequest::new().unwrap();
        let signed = |request: &CertificateRequest| ours.sign(request.text(), &id, HOUR, now).unwrap().chain;
        let roots = ours.roots().to_string();

        let good = request();
        let chain = signed(&good);
        let files = good.answered(&[chain.clone(), roots.clone()], now).unwrap();
        assert_eq!(files.identity.as_deref(), Some("spiffe://mesh/ns/shop/sa/cart"));
        assert!(files.valid_for(now) <= HOUR && files.valid_for(now) > HOUR / 2);
        assert!(!format!("{files:?}").contains("PRIVATE"));

        let reason = |request: CertificateRequest, answer: &[String], now| {
            request.answered(answer, now).unwrap_err().to_string()
        };
        assert!(reason(request(), &[chain, roots.clone()], now).contains("does not belong"), "another key");
        let foreign = request();
        let answer = [signed(&foreign), other.roots().to_string()];
        assert!(reason(foreign, &answer, now).contains("root"), "below none of the roots");
        let late = request();
        let answer = [signed(&late), roots.clone()];
        assert!(reason(late, &answer, now + 2 * HOUR).contains("expired"));
        let lone = request();
        let answer = [signed(&lone)];
        assert!(reason(lone, &answer, now).contains("roots"));
        for answer in [vec![], vec![String::new(), roots.clone()], vec!["x".repeat(MAX_ANSWER), roots]] {
            assert!(request().answered(&answer, now).is_err());
        }
    }
}
