//! TLS towards an upstream: its authorities, our certificate, and the names that its certificate may be for.
//!
//! Files and Secrets are read anew for each connection. A certificate is for the upstream when it is for the host of the
//! address (or the server name), or, where there are names to be expected, when it has one of them, as Envoy decides.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject,
};
use tokio::{fs, net::TcpStream};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    },
};
use x509_parser::extensions::GeneralName;

use super::credentials::{Credentials, SecretData};
use crate::{
    model::pem::{check_certificates, check_pair},
    proto::networking::{ClientTlsSettings, client_tls_settings::TlSmode},
    settings::UpstreamSettings,
};

/// The protocol of gRPC.
const HTTP2: &[u8] = b"h2";

/// A text in PEM: itself, or the place that it is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pem {
    File(PathBuf),
    Text(String),
}

/// The place of certificates and keys.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    /// Authorities (the system's when there is none); certificate chain and key.
    Files { ca: Option<Pem>, identity: Option<(PathBuf, PathBuf)> },
    /// A Secret of the control plane's namespace, of Istio's form; with a certificate of ours when it is `mutual`.
    Secret { name: String, mutual: bool },
}

/// TLS towards the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tls {
    material: Material,
    /// Lists of revoked certificates.
    revoked: Option<PathBuf>,
    /// The name that is sent as SNI; the host of the address when there is none.
    server_name: Option<String>,
    /// DNS names and URIs of which the upstream's certificate has to have one, instead of the host.
    expected: Vec<String>,
    /// Whether every certificate is taken.
    unverified: bool,
    /// The flags or fields that named the files: CA, certificate, key.
    names: [&'static str; 3],
}

const FLAGS: [&str; 3] = ["--upstream-ca", "--upstream-cert", "--upstream-key"];
const FIELDS: [&str; 3] = ["caCertificates", "clientCertificate", "privateKey"];

/// Certificates and keys as they are now.
#[derive(Default)]
struct Loaded {
    /// `None`: the system's.
    roots: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// That of the flags. `identity` are the files of certificate and key.
    pub(super) fn of_flags(settings: &UpstreamSettings, identity: Option<(PathBuf, PathBuf)>) -> Self {
        Self {
            material: Material::Files { ca: settings.ca.clone().map(Pem::File), identity },
            revoked: None,
            server_name: settings.server_name.clone(),
            expected: Vec::new(),
            unverified: false,
            names: FLAGS,
        }
    }

    /// That of `tlsSettings`; `None` for plain text.
    ///
    /// # Errors
    /// The reason that they cannot be honoured.
    pub(super) fn of_settings(tls: &ClientTlsSettings) -> Result<Option<Self>, &'static str> {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let identity = path(&tls.client_certificate).zip(path(&tls.private_key));
        let named = !tls.credential_name.is_empty();
        match tls.mode() {
            TlSmode::Disable => return Ok(None),
            TlSmode::IstioMutual => return Err("ISTIO_MUTUAL needs a workload certificate, which there is none here"),
            TlSmode::Mutual if identity.is_none() && !named => {
                return Err("MUTUAL needs clientCertificate and privateKey, or credentialName");
            }
            TlSmode::Simple | TlSmode::Mutual => {}
        }
        let mutual = tls.mode() == TlSmode::Mutual;
        let ca = Some(&tls.ca_certificates).filter(|text| !text.is_empty());
        // istiod reads the text itself here.
        let of_text = |text: &String| {
            if text.contains("-----BEGIN ") { Pem::Text(text.clone()) } else { Pem::File(PathBuf::from(text)) }
        };
        let material = if named {
            Material::Secret { name: tls.credential_name.clone(), mutual }
        } else {
            Material::Files { ca: ca.map(of_text), identity: identity.filter(|_| mutual) }
        };
        let sni = Some(tls.sni.clone()).filter(|sni| !sni.is_empty());
        Ok(Some(Self {
            material,
            revoked: path(&tls.ca_crl),
            server_name: sni,
            expected: tls.subject_alt_names.clone(),
            unverified: tls.insecure_skip_verify.unwrap_or_default(),
            names: FIELDS,
        }))
    }

    /// Whether every certificate is taken.
    pub(super) const fn is_unverified(&self) -> bool {
        self.unverified
    }

    /// Whether its files can be read and parsed, or there is a reader of its Secret, which is read when it is needed.
    pub(super) async fn check(&self, credentials: Option<&dyn Credentials>) -> anyhow::Result<()> {
        match self.material {
            Material::Secret { .. } if credentials.is_some() => Ok(()),
            _ => self.config(None).await.map(drop),
        }
    }

    /// A connection to this host and port.
    pub(super) async fn connect(
        &self,
        host: &str,
        port: u16,
        credentials: Option<&dyn Credentials>,
    ) -> anyhow::Result<TlsStream<TcpStream>> {
        let config = self.config(credentials).await?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.server_name.as_deref().unwrap_or(bare).to_string();
        let name = ServerName::try_from(name.clone()).with_context(|| format!("{name:?} is no server name"))?;
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        anyhow::ensure!(stream.get_ref().1.alpn_protocol() == Some(HTTP2), "it does not offer HTTP/2 over TLS");
        Ok(stream)
    }

    async fn config(&self, credentials: Option<&dyn Credentials>) -> anyhow::Result<ClientConfig> {
        let loaded = self.load(credentials).await?;
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if self.unverified {
            Arc::new(Unverified(provider.clone()))
        } else {
            let roots = roots(loaded.roots).await?;
            let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            if let Some(revoked) = &loaded.revoked {
                let lists = CertificateRevocationListDer::pem_slice_iter(revoked).collect::<Result<Vec<_>, _>>();
                builder = builder.with_crls(lists.context("caCrl")?).allow_unknown_revocation_status();
            }
            let chain = builder.build()?;
            if self.expected.is_empty() { chain } else { Arc::new(Named { chain, names: self.expected.clone() }) }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &loaded.identity {
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>()?;
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(config)
    }

    async fn load(&self, credentials: Option<&dyn Credentials>) -> anyhow::Result<Loaded> {
        let mut loaded = match &self.material {
            Material::Files { ca, identity } => self.files(ca.as_ref(), identity.as_ref()).await?,
            Material::Secret { name, mutual } => {
                let credentials = credentials.with_context(|| {
                    format!("credentialName {name}: there is no Kubernetes API server to read it from; name files")
                })?;
                let data = credentials.secret(name).await.with_context(|| format!("credentialName {name}"))?;
                of_secret(data, *mutual).with_context(|| format!("credentialName {name}"))?
            }
        };
        if let Some(path) = &self.revoked {
            loaded.revoked = Some(read("caCrl", path).await?);
        }
        Ok(loaded)
    }

    async fn files(&self, ca: Option<&Pem>, identity: Option<&(PathBuf, PathBuf)>) -> anyhow::Result<Loaded> {
        let [of_ca, of_cert, of_key] = self.names;
        let roots = match ca {
            None => None,
            Some(Pem::Text(text)) => {
                check_certificates(text.as_bytes()).context(of_ca)?;
                Some(text.clone().into_bytes())
            }
            Some(Pem::File(path)) => {
                let roots = read(of_ca, path).await?;
                check_certificates(&roots).with_context(|| format!("{of_ca} {}", path.display()))?;
                Some(roots)
            }
        };
        let mut loaded = Loaded { roots, ..Loaded::default() };
        if let Some((cert, key)) = identity {
            let (chain, secret) = (read(of_cert, cert).await?, read(of_key, key).await?);
            check_pair(&chain, &secret)
                .with_context(|| format!("{of_cert} {} and {of_key} {}", cert.display(), key.display()))?;
            loaded.identity = Some((chain, secret));
        }
        Ok(loaded)
    }
}

async fn read(named_by: &str, path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    fs::read(path).await.with_context(|| format!("{named_by} {}", path.display()))
}

/// The keys of a Secret that Istio reads: authorities as `cacert` or `ca.crt`, certificate and key as `cert` and `key` or
/// `tls.crt` and `tls.key`, revoked certificates as `crl` or `ca.crl`.
fn of_secret(mut data: SecretData, mutual: bool) -> anyhow::Result<Loaded> {
    let mut take = |names: [&str; 2]| names.into_iter().find_map(|name| data.remove(name));
    let roots = take(["cacert", "ca.crt"]).context("the Secret has neither cacert nor ca.crt")?;
    check_certificates(&roots)?;
    let revoked = take(["crl", "ca.crl"]);
    let identity = if mutual {
        let chain = take(["cert", "tls.crt"]).context("the Secret has neither cert nor tls.crt")?;
        let key = take(["key", "tls.key"]).context("the Secret has neither key nor tls.key")?;
        check_pair(&chain, &key)?;
        Some((chain, key))
    } else {
        None
    };
    Ok(Loaded { roots: Some(roots), revoked, identity })
}

/// These authorities, or those of the system.
async fn roots(pem: Option<Vec<u8>>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate?)?;
            }
        }
        None => {
            let of_system = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await?;
            roots.add_parsable_certificates(of_system.certs);
        }
    }
    Ok(roots)
}

/// Verifies the chain, and takes a certificate that has one of these names.
#[derive(Debug)]
struct Named {
    chain: Arc<WebPkiServerVerifier>,
    names: Vec<String>,
}

impl Named {
    fn is_for_us(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
        let Ok(Some(names)) = parsed.subject_alternative_name() else { return false };
        names.value.general_names.iter().any(|name| match name {
            GeneralName::DNSName(dns) => self.names.iter().any(|expected| expected.eq_ignore_ascii_case(dns)),
            GeneralName::URI(uri) => self.names.iter().any(|expected| expected == uri),
            _ => false,
        })
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is the last thing that is looked at: the chain is in order when only the name is not.
        match self.chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Ok(_)
            | Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {}
            Err(error) => return Err(error),
        }
        if self.is_for_us(certificate) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("the certificate has none of the subjectAltNames".to_string()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Takes every certificate; the upstream proves that it has its key.
#[derive(Debug)]
pub(crate) struct Unverified(pub(crate) Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mode: TlSmode) -> ClientTlsSettings {
        ClientTlsSettings { mode: mode.into(), ..ClientTlsSettings::default() }
    }

    #[test]
    fn settings_of_a_config_source_are_honoured_or_refused() {
        assert_eq!(Tls::of_settings(&with(TlSmode::Disable)), Ok(None));
        let simple =
            ClientTlsSettings { ca_certificates: "ca.pem".into(), sni: "istiod".into(), ..with(TlSmode::Simple) };
        let tls = Tls::of_settings(&simple).unwrap().unwrap();
        assert_eq!(tls.server_name.as_deref(), Some("istiod"));
        assert_eq!(tls.material, Material::Files { ca: Some(Pem::File("ca.pem".into())), identity: None });
        let names = ["spiffe://td/ns/a/sa/b", "other.example"].map(String::from).to_vec();
        let tls = Tls::of_settings(&ClientTlsSettings { subject_alt_names: names.clone(), ..simple }).unwrap().unwrap();
        assert_eq!(tls.expected, names);
        assert!(Tls::of_settings(&with(TlSmode::Mutual)).is_err());
        assert!(Tls::of_settings(&with(TlSmode::IstioMutual)).is_err());
        let secret = ClientTlsSettings { credential_name: "up".into(), ..with(TlSmode::Mutual) };
        let tls = Tls::of_settings(&secret).unwrap().unwrap();
        assert_eq!(tls.material, Material::Secret { name: "up".into(), mutual: true });
        let blind = ClientTlsSettings { insecure_skip_verify: Some(true), ..with(TlSmode::Simple) };
        assert!(Tls::of_settings(&blind).unwrap().unwrap().is_unverified());
        assert!(!tls.is_unverified());
    }

    #[test]
    fn secrets_need_the_keys_that_the_mode_takes() {
        let text = |error: anyhow::Result<Loaded>| error.err().map(|e| format!("{e:#}")).unwrap_or_default();
        assert_eq!(text(of_secret(SecretData::new(), false)), "the Secret has neither cacert nor ca.crt");
        let garbage = SecretData::from([("ca.crt".to_string(), b"x".to_vec())]);
        assert_ne!(text(of_secret(garbage, false)), "");
    }
}
