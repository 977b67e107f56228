//! The address of an upstream, its TLS settings, and the node that is sent to it.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    model::{
        Mesh,
        pem::{check_certificates, check_pair},
    },
    proto::{
        envoy::config::core::v3::Node,
        json_to_struct,
        mesh::ConfigSource,
        networking::{ClientTlsSettings, client_tls_settings::TlSmode},
    },
    settings::UpstreamSettings,
};

/// An error in the settings of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not `HOST:PORT`.
    #[error("{0:?} is not HOST:PORT")]
    Address(String),
    /// A certificate without its key, or a key without its certificate.
    #[error("{0}: a client certificate needs both a certificate and a key")]
    HalfCertificate(String),
    /// A token would go over the network in plain text.
    #[error("{0}: a token (--upstream-token-file) is sent over TLS only: --upstream-tls or --upstream-ca")]
    PlainToken(String),
    /// `tlsSettings` that cannot be honoured.
    #[error("{address}: tlsSettings: {reason}")]
    Tls {
        /// Address of the upstream.
        address: String,
        /// The reason, for a person.
        reason: String,
    },
}

/// TLS towards the upstream. Files are read anew for each connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tls {
    /// CA certificates (PEM); the system's when there is none.
    ca: Option<PathBuf>,
    /// Certificate chain and key (PEM).
    identity: Option<(PathBuf, PathBuf)>,
    /// Name that the upstream's certificate must be for; the host of the address when there is none.
    server_name: Option<String>,
    /// The flags or fields that named the files: CA, certificate, key.
    names: [&'static str; 3],
}

const FLAGS: [&str; 3] = ["--upstream-ca", "--upstream-cert", "--upstream-key"];
const FIELDS: [&str; 3] = ["caCertificates", "clientCertificate", "privateKey"];

/// An upstream: address, TLS, token and the node of our requests.
#[derive(Debug, Clone)]
pub struct UpstreamTarget {
    address: String,
    tls: Option<Tls>,
    token_file: Option<PathBuf>,
    /// Longest message that is read, in bytes.
    pub(super) max_message_bytes: usize,
    pub(super) node: Node,
}

impl UpstreamTarget {
    /// The upstream of a flag.
    ///
    /// # Errors
    /// [`TargetError`] when the settings do not fit each other.
    pub fn of_settings(address: &str, settings: &UpstreamSettings, mesh: &Mesh) -> Result<Self, TargetError> {
        let identity = match (&settings.cert, &settings.key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(TargetError::HalfCertificate(address.to_string())),
        };
        let secure = settings.tls || settings.ca.is_some() || identity.is_some();
        let tls = Tls { ca: settings.ca.clone(), identity, server_name: settings.server_name.clone(), names: FLAGS };
        Self::new(address, secure.then_some(tls), settings, mesh)
    }

    /// The upstream of an entry of `configSources`. Its own `tlsSettings` count instead of those of the flags.
    ///
    /// # Errors
    /// [`TargetError`] for an address that is none, and for TLS settings that cannot be honoured.
    pub fn of_source(source: &ConfigSource, settings: &UpstreamSettings, mesh: &Mesh) -> Result<Self, TargetError> {
        let address = source.address.strip_prefix("xds://").unwrap_or(&source.address);
        match &source.tls_settings {
            None => Self::of_settings(address, settings, mesh),
            Some(tls) => {
                let refused =
                    |reason: &str| TargetError::Tls { address: address.to_string(), reason: reason.to_string() };
                let tls = tls_of(tls).map_err(refused)?;
                Self::new(address, tls, settings, mesh)
            }
        }
    }

    fn new(address: &str, tls: Option<Tls>, settings: &UpstreamSettings, mesh: &Mesh) -> Result<Self, TargetError> {
        let parts = address.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(['/', ' ']));
        let port = parts.and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port != 0);
        let Some(((host, _), _)) = parts.zip(port) else { return Err(TargetError::Address(address.to_string())) };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let local = host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if settings.token_file.is_some() && tls.is_none() && !local {
            return Err(TargetError::PlainToken(address.to_string()));
        }
        Ok(Self {
            address: address.to_string(),
            tls,
            token_file: settings.token_file.clone(),
            max_message_bytes: settings.max_message_bytes,
            node: node(settings, mesh),
        })
    }

    /// The address, as `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Checks that the files that the target names can be read and parsed. Makes no connection.
    ///
    /// # Errors
    /// A text with the flag or field, the file and the reason.
    pub async fn check(&self) -> anyhow::Result<()> {
        if let Some(tls) = &self.tls {
            tls.load().await?;
        }
        self.authorization().await.map(drop)
    }

    /// Connects, with certificates and keys as they are in their files now.
    pub(super) async fn connect(&self) -> anyhow::Result<Channel> {
        const WINDOW: u32 = 1 << 20;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address))?
            .connect_timeout(Duration::from_secs(10))
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.load().await?)?;
        }
        endpoint.connect().await.map_err(|error| anyhow::anyhow!("{}", causes(&error)))
    }

    /// The token as a header, if there is one.
    pub(super) async fn authorization(&self) -> anyhow::Result<Option<MetadataValue<Ascii>>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let name = || format!("--upstream-token-file {}", path.display());
        let token = tokio::fs::read_to_string(path).await.with_context(name)?;
        let mut header: MetadataValue<Ascii> =
            format!("Bearer {}", token.trim()).parse().with_context(|| format!("{}: not a token", name()))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

impl Tls {
    async fn load(&self) -> anyhow::Result<ClientTlsConfig> {
        let name = |which: &str, path: &PathBuf| format!("{which} {}", path.display());
        let read = async |which: &str, path: &PathBuf| tokio::fs::read(path).await.with_context(|| name(which, path));
        let [of_ca, of_cert, of_key] = self.names;
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(path) => {
                let ca = read(of_ca, path).await?;
                check_certificates(&ca).with_context(|| name(of_ca, path))?;
                tls.ca_certificate(Certificate::from_pem(ca))
            }
            None => tls.with_native_roots(),
        };
        if let Some((cert, key)) = &self.identity {
            let (chain, secret) = (read(of_cert, cert).await?, read(of_key, key).await?);
            check_pair(&chain, &secret)
                .with_context(|| format!("{} and {}", name(of_cert, cert), name(of_key, key)))?;
            tls = tls.identity(Identity::from_pem(chain, secret));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name.clone());
        }
        Ok(tls)
    }
}

/// All causes of an error in one line; tonic's own text is only "transport error".
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn tls_of(tls: &ClientTlsSettings) -> Result<Option<Tls>, &'static str> {
    let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    let identity = path(&tls.client_certificate).zip(path(&tls.private_key));
    match tls.mode() {
        TlSmode::Disable => return Ok(None),
        TlSmode::IstioMutual => return Err("ISTIO_MUTUAL needs a workload certificate, which there is none here"),
        TlSmode::Mutual if identity.is_none() => return Err("MUTUAL needs clientCertificate and privateKey"),
        TlSmode::Simple | TlSmode::Mutual => {}
    }
    if !tls.credential_name.is_empty() {
        return Err("credentialName is not read here; name files");
    }
    if tls.insecure_skip_verify.unwrap_or_default() {
        return Err("insecureSkipVerify: an upstream that is not verified is not read");
    }
    let expected = match tls.subject_alt_names.as_slice() {
        [] => path(&tls.sni).map(|_| tls.sni.clone()),
        [name] if !name.contains("://") => Some(name.clone()),
        _ => return Err("subjectAltNames: one DNS name can be checked"),
    };
    Ok(Some(Tls {
        ca: path(&tls.ca_certificates),
        identity: identity.filter(|_| tls.mode() == TlSmode::Mutual),
        server_name: expected,
        names: FIELDS,
    }))
}

/// The node of our requests: a control plane of the root namespace that reads config objects and Kubernetes' own.
fn node(settings: &UpstreamSettings, mesh: &Mesh) -> Node {
    let namespace = match settings.namespace.as_str() {
        "" => mesh.config.root_namespace.as_str(),
        namespace => namespace,
    };
    let metadata = serde_json::json!({
        "GENERATOR": "api",
        "ISTIO_VERSION": "65536.65536.65536",
        "NAMESPACE": namespace,
        "PILOTHOUSE_NATIVE": "true",
    });
    Node {
        id: format!("sidecar~127.0.0.1~{}.{namespace}~{namespace}.svc.{}", settings.name, mesh.domain),
        metadata: json_to_struct(&metadata),
        ..Node::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> UpstreamSettings {
        UpstreamSettings::default()
    }

    #[test]
    fn addresses_need_a_host_and_a_port() {
        let of = |address: &str| UpstreamTarget::of_settings(address, &settings(), &Mesh::default()).map(|t| t.address);
        assert_eq!(of("up.example:15010").unwrap(), "up.example:15010");
        assert!(of("[::1]:15010").is_ok());
        for wrong in ["", "up.example", ":15010", "up.example:0", "up.example:70000", "http://up:1/x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn insecure_settings_are_refused() {
        let token = UpstreamSettings { token_file: Some("t".into()), ..settings() };
        let of =
            |address: &str, s: &UpstreamSettings| UpstreamTarget::of_settings(address, s, &Mesh::default()).map(drop);
        assert_eq!(of("up:1", &token), Err(TargetError::PlainToken("up:1".into())));
        assert!(of("127.0.0.1:1", &token).is_ok());
        assert!(of("up:1", &UpstreamSettings { ca: Some("ca".into()), ..token }).is_ok());
        let half = UpstreamSettings { cert: Some("c".into()), ..settings() };
        assert_eq!(of("up:1", &half), Err(TargetError::HalfCertificate("up:1".into())));
    }

    #[test]
    fn tls_settings_of_a_config_source_are_honoured_or_refused() {
        let of = |tls: ClientTlsSettings| {
            let source =
                ConfigSource { address: "xds://up:1".into(), tls_settings: Some(tls), ..ConfigSource::default() };
            UpstreamTarget::of_source(&source, &settings(), &Mesh::default()).map(|t| t.tls)
        };
        let with = |mode: TlSmode| ClientTlsSettings { mode: mode.into(), ..ClientTlsSettings::default() };
        assert_eq!(of(with(TlSmode::Disable)), Ok(None));
        let simple =
            ClientTlsSettings { ca_certificates: "ca.pem".into(), sni: "istiod".into(), ..with(TlSmode::Simple) };
        let want = Tls { ca: Some("ca.pem".into()), identity: None, server_name: Some("istiod".into()), names: FIELDS };
        assert_eq!(of(simple.clone()), Ok(Some(want)));
        let spiffe = ClientTlsSettings { subject_alt_names: vec!["spiffe://td/ns/a/sa/b".into()], ..simple };
        assert!(of(spiffe).is_err());
        assert!(of(with(TlSmode::Mutual)).is_err() && of(with(TlSmode::IstioMutual)).is_err());
        let blind = ClientTlsSettings { insecure_skip_verify: Some(true), ..with(TlSmode::Simple) };
        assert!(of(blind).is_err());
    }
}
