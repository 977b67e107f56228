//! The certificate authority: one issuing certificate and key, the chain above it, and the roots that workloads trust.
//!
//! Pure but for randomness: the time is given. A certificate holds exactly the identity that its caller proved; names,
//! purposes and lifetimes in a request are ignored, only its public key is taken.

mod chain;
mod key;
mod revocation;

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject};
use x509_parser::{prelude::FromDer, public_key::PublicKey};

use self::chain::facts;
pub(super) use self::chain::{end_of_first, leads_to_root};
pub use self::key::KeyError;
use crate::model::{Identity, pem::fault};

/// Clocks of workloads may be behind ours by this time (Istio's `ClockSkewGracePeriod`).
const CLOCK_SKEW: Duration = Duration::from_secs(120);
/// Bytes of a request for a certificate: several times that of an RSA key with 8,192 bits.
const MAX_REQUEST: usize = 16 << 10;
/// Bits of RSA keys that certificates are issued for: shorter ones are weak, longer ones cost their peers much.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A self-made root is renewed when so much of its life is left.
const RENEWED_AT: f64 = 0.2;

/// Lifetimes of workload certificates (`DEFAULT_WORKLOAD_CERT_TTL`, `MAX_WORKLOAD_CERT_TTL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// The lifetime where a request names none.
    pub default: Duration,
    /// The longest lifetime that is issued.
    pub longest: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { default: Duration::from_secs(24 * 3600), longest: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// A reason that certificates and a key make no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A certificate cannot be read.
    #[error("{0}: {1}")]
    Certificate(&'static str, String),
    /// The key cannot be read.
    #[error("the CA's private key: {0}")]
    Key(#[from] KeyError),
    /// The parts do not fit, or cannot issue.
    #[error("{0}")]
    Unfit(String),
    /// The library refuses.
    #[error("{0}")]
    Library(#[from] rcgen::Error),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// A reason that a certificate is not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The request is malformed, its signature is wrong, or its key is not of a kind that is accepted.
    #[error("the certificate signing request is refused: {0}")]
    Request(String),
    /// The lifetime is longer than the longest.
    #[error("a lifetime of {} s is asked for, at most {} s is issued", .0.as_secs(), .1.as_secs())]
    Lifetime(Duration, Duration),
    /// The identity cannot stand in a certificate.
    #[error("{0} cannot stand in a certificate")]
    Identity(String),
    /// The authority's own certificate has expired.
    #[error("the certificate of the authority has expired")]
    Expired,
    /// The library or the system fails.
    #[error("{0}")]
    Internal(String),
}

/// An issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate and the chain above it, without the root, in PEM.
    pub chain: String,
    /// Its serial number, in hex.
    pub serial: String,
    /// Its last moment.
    pub not_after: SystemTime,
}

impl Issued {
    /// The time from `now` to its last moment.
    #[must_use]
    pub fn valid_for(&self, now: SystemTime) -> Duration {
        self.not_after.duration_since(now).unwrap_or_default()
    }

    /// Counts it and writes the audit line.
    pub(super) fn audit(&self, identity: &Identity, now: SystemTime) {
        let (serial, valid_for) = (&self.serial, self.valid_for(now).as_secs());
        tracing::info!(target: "audit", %identity, serial, valid_for, "a certificate is issued");
        metrics::counter!("citadel_server_success_cert_issuance_count").increment(1);
    }
}

/// A certificate with its private key, for a workload that we hold the key for.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyAndCertificate {
    /// The certificate.
    pub certificate: Issued,
    /// The private key, PKCS #8 in PEM.
    pub key: String,
}

impl std::fmt::Debug for KeyAndCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyAndCertificate").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The certificates and the key that an authority is made of, in PEM: the files of Istio's `cacerts`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// The issuing certificate (`ca-cert.pem`).
    pub certificate: String,
    /// Its private key (`ca-key.pem`): PKCS #8, PKCS #1 or SEC 1.
    pub key: String,
    /// The certificates from the issuing one upward (`cert-chain.pem`); empty where the root issues.
    pub chain: String,
    /// The roots that workloads trust (`root-cert.pem`).
    pub roots: String,
    /// Lists of revoked certificates (`ca-crl.pem`); empty where there are none.
    pub revoked: String,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// The certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    chain: String,
    roots: String,
    revoked: String,
    not_after: SystemTime,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("roots", &self.roots)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// A new root with a key of its own (ECDSA P-256), valid for `lifetime`.
///
/// # Errors
/// [`AuthorityError`] when the system gives no random numbers.
pub fn new_root(organization: &str, now: SystemTime, lifetime: Duration) -> Result<Material, AuthorityError> {
    root_of(&KeyPair::generate()?, organization, now, lifetime)
}

/// The root of the same key and name with a new end: certificates of either are trusted by peers that have the other.
///
/// # Errors
/// [`AuthorityError`] when the key cannot be read.
pub fn renewed_root(
    material: &Material,
    organization: &str,
    now: SystemTime,
    lifetime: Duration,
) -> Result<Material, AuthorityError> {
    root_of(&key::parse(&material.key)?, organization, now, lifetime)
}

fn root_of(key: &KeyPair, organization: &str, now: SystemTime, lifetime: Duration) -> Result<Material, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + lifetime).into();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.serial_number = Some(serial().map_err(|()| AuthorityError::Random)?);
    let certificate = params.self_signed(key)?.pem();
    let key = key.serialize_pem();
    Ok(Material { roots: certificate.clone(), certificate, key, ..Material::default() })
}

/// The last moment of the first certificate in a PEM text.
#[must_use]
pub fn not_after(certificate: &str) -> Option<SystemTime> {
    Some(facts(&only(certificate, "").ok()?).ok()?.not_after)
}

/// The lifetime of the first certificate in a PEM text, without the time by which it begins before it was issued.
#[must_use]
pub fn lifetime(chain: &str) -> Option<Duration> {
    Some(facts(&only(chain, "").ok()?).ok()?.lifetime.saturating_sub(CLOCK_SKEW))
}

/// Whether so little of a root's life of `lifetime` is left that it is to be renewed (Istio's grace of 20 %).
#[must_use]
pub(super) fn is_ending(certificate: &str, lifetime: Duration, now: SystemTime) -> bool {
    let left = not_after(certificate).and_then(|end| end.duration_since(now).ok());
    left.unwrap_or_default() <= lifetime.mul_f64(RENEWED_AT)
}

impl Authority {
    /// The authority of this material.
    ///
    /// # Errors
    /// [`AuthorityError`] when a part cannot be read, the key is not the certificate's, the certificate may not issue, is not
    /// below the roots, or its time is over.
    pub fn new(material: &Material, now: SystemTime) -> Result<Self, AuthorityError> {
        let certificate = only(&material.certificate, "the CA certificate")?;
        let key = key::parse(&material.key)?;
        let facts = facts(&certificate).map_err(|e| AuthorityError::Certificate("the CA certificate", e))?;
        if !facts.is_ca {
            return Err(AuthorityError::Unfit("the CA certificate is not one of a certificate authority".to_string()));
        }
        if facts.public_key != key.subject_public_key_info() {
            return Err(AuthorityError::Unfit("the private key is not the CA certificate's".to_string()));
        }
        if facts.not_after <= now {
            return Err(AuthorityError::Unfit("the CA certificate has expired".to_string()));
        }
        let roots = all(&material.roots, "the root certificates")?;
        if roots.is_empty() {
            return Err(AuthorityError::Unfit("there is no root certificate".to_string()));
        }
        let chain = all(&material.chain, "the certificate chain")?;
        let issues_as_root = roots.contains(&certificate);
        // The chain of Istio's `cacerts` begins with the issuing certificate; some leave it out, and some end it with the root.
        let above = chain.into_iter().filter(|link| *link != certificate && !roots.contains(link));
        let own = (!issues_as_root).then(|| certificate.clone());
        let chain: Vec<CertificateDer<'static>> = own.into_iter().chain(above).collect();
        leads_to_root(&certificate, &chain, &roots, now).map_err(AuthorityError::Unfit)?;
        if !material.revoked.is_empty() {
            let issuing: Vec<_> = std::iter::once(&certificate).chain(&chain).cloned().collect();
            let issuers: Vec<_> = issuing.iter().chain(&roots).cloned().collect();
            revocation::check(&material.revoked, &issuing, &issuers)?;
        }
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(&certificate, key)?,
            chain: chain.iter().map(to_pem).collect(),
            roots: roots.iter().map(to_pem).collect(),
            revoked: material.revoked.clone(),
            not_after: facts.not_after,
        })
    }

    /// The roots that workloads trust, in PEM.
    #[must_use]
    pub fn roots(&self) -> &str {
        &self.roots
    }

    /// Lists of revoked certificates, in PEM; empty where there are none.
    #[must_use]
    pub fn revoked(&self) -> &str {
        &self.revoked
    }

    /// The subjects of roots without a list while others have one: proxies refuse every peer below them.
    #[must_use]
    pub(super) fn roots_without_list(&self) -> Vec<String> {
        let roots = all(&self.roots, "the root certificates").unwrap_or_default();
        if self.revoked.is_empty() { Vec::new() } else { revocation::without_list(&self.revoked, &roots) }
    }

    /// The last moment of the issuing certificate.
    #[must_use]
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// A certificate of this identity for the public key of a request (PKCS #10 in PEM). A certificate never outlives the
    /// authority's.
    ///
    /// # Errors
    /// [`IssueError`]; a request with a wrong signature, or with a key that is weak or of another kind, is refused.
    pub fn sign(
        &self,
        request: &str,
        identity: &Identity,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Issued, IssueError> {
        if request.len() > MAX_REQUEST {
            return Err(IssueError::Request(format!("it has more than {MAX_REQUEST} bytes")));
        }
        let der = CertificateSigningRequestDer::from_pem_slice(request.as_bytes())
            .map_err(|e| IssueError::Request(fault(&e)))?;
        if let Some(bits) = rsa_bits(&der).filter(|bits| !RSA_BITS.contains(bits)) {
            let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
            return Err(IssueError::Request(format!("an RSA key has {least} to {most} bits, this one {bits}")));
        }
        let request =
            CertificateSigningRequestParams::from_der(&der).map_err(|e| IssueError::Request(e.to_string()))?;
        let (params, not_after) = self.leaf(&[SanType::URI(uri(identity)?)], lifetime, now)?;
        self.issued(params, &request.public_key, not_after)
    }

    /// A certificate of this identity with a key of its own (ECDSA P-256).
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue(
        &self,
        identity: &Identity,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<KeyAndCertificate, IssueError> {
        self.issue_for(&[SanType::URI(uri(identity)?)], lifetime, now)
    }

    /// A certificate of a server for these DNS names and addresses, with a key of its own.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue_server(
        &self,
        names: &[String],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<KeyAndCertificate, IssueError> {
        let san = |name: &String| match name.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => name.as_str().try_into().map(SanType::DnsName).map_err(|_| IssueError::Identity(name.clone())),
        };
        self.issue_for(&names.iter().map(san).collect::<Result<Vec<_>, _>>()?, lifetime, now)
    }

    fn issue_for(
        &self,
        sans: &[SanType],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<KeyAndCertificate, IssueError> {
        let key = KeyPair::generate().map_err(|e| IssueError::Internal(e.to_string()))?;
        let (params, not_after) = self.leaf(sans, lifetime, now)?;
        Ok(KeyAndCertificate { certificate: self.issued(params, &key, not_after)?, key: key.serialize_pem() })
    }

    fn issued(
        &self,
        params: CertificateParams,
        key: &impl PublicKeyData,
        not_after: SystemTime,
    ) -> Result<Issued, IssueError> {
        let certificate = params.signed_by(key, &self.issuer).map_err(|e| IssueError::Internal(e.to_string()))?;
        let serial = params.serial_number.map(|serial| serial.to_string()).unwrap_or_default();
        Ok(Issued { chain: certificate.pem() + &self.chain, serial, not_after })
    }

    fn leaf(
        &self,
        sans: &[SanType],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<(CertificateParams, SystemTime), IssueError> {
        let not_after = (now + lifetime).min(self.not_after);
        if not_after <= now {
            return Err(IssueError::Expired);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = sans.to_vec();
        params.not_before = (now - CLOCK_SKEW).into();
        params.not_after = not_after.into();
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let serial = serial().map_err(|()| IssueError::Internal("the system gives no random numbers".to_string()))?;
        params.serial_number = Some(serial);
        Ok((params, not_after))
    }
}

impl Lifetimes {
    /// The lifetime for a request of so many seconds; zero and less mean the default (Istio's `IstioCA.Sign`).
    ///
    /// # Errors
    /// [`IssueError::Lifetime`] when it is longer than the longest.
    pub fn of(&self, seconds: i64) -> Result<Duration, IssueError> {
        let Some(asked) = u64::try_from(seconds).ok().filter(|s| *s > 0).map(Duration::from_secs) else {
            return Ok(self.default);
        };
        if asked > self.longest { Err(IssueError::Lifetime(asked, self.longest)) } else { Ok(asked) }
    }
}

fn uri(identity: &Identity) -> Result<rcgen::string::Ia5String, IssueError> {
    let text = identity.to_string();
    text.as_str().try_into().map_err(|_| IssueError::Identity(text))
}

/// Bits of the RSA key that a request is for.
fn rsa_bits(request: &CertificateSigningRequestDer<'_>) -> Option<usize> {
    let (_, request) = x509_parser::certification_request::X509CertificationRequest::from_der(request).ok()?;
    match request.certification_request_info.subject_pki.parsed().ok()? {
        PublicKey::RSA(key) => Some(key.key_size()),
        _ => None,
    }
}

/// 127 random bits.
fn serial() -> Result<SerialNumber, ()> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| ())?;
    bytes[0] = (bytes[0] & 0x7f) | 0x01;
    Ok(SerialNumber::from_slice(&bytes))
}

fn all(text: &str, part: &'static str) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| AuthorityError::Certificate(part, fault(&e)))
}

fn only(pem: &str, part: &'static str) -> Result<CertificateDer<'static>, AuthorityError> {
    let first = all(pem, part)?.into_iter().next();
    first.ok_or_else(|| AuthorityError::Certificate(part, "no certificate in PEM".to_string()))
}

fn to_pem(certificate: &CertificateDer<'_>) -> String {
    pem::encode_config(
        &pem::Pem::new("CERTIFICATE", certificate.to_vec()),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}

#[cfg(test)]
mod tests;
