//! The address of an upstream, its TLS settings, and the node that is sent to it.

use std::{io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use hyper_util::rt::TokioIo;
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tower::service_fn;

use super::{credentials::Credentials, tls::Tls};
use crate::{
    model::Mesh,
    proto::{envoy::config::core::v3::Node, json_to_struct, mesh::ConfigSource},
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

/// An upstream: address, TLS, token and the node of our requests.
#[derive(Debug, Clone)]
pub struct UpstreamTarget {
    address: String,
    host: String,
    port: u16,
    tls: Option<Arc<Tls>>,
    /// The reader of Secrets that `tlsSettings` name.
    credentials: Option<Arc<dyn Credentials>>,
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
        let tls = Tls::of_flags(settings, identity);
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
                let tls = Tls::of_settings(tls).map_err(refused)?;
                Self::new(address, tls, settings, mesh)
            }
        }
    }

    fn new(address: &str, tls: Option<Tls>, settings: &UpstreamSettings, mesh: &Mesh) -> Result<Self, TargetError> {
        let parts = address.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(['/', ' ']));
        let port = parts.and_then(|(_, port)| port.parse::<u16>().ok()).filter(|port| *port != 0);
        let Some(((host, _), port)) = parts.zip(port) else { return Err(TargetError::Address(address.to_string())) };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let local = host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if settings.token_file.is_some() && tls.is_none() && !local {
            return Err(TargetError::PlainToken(address.to_string()));
        }
        Ok(Self {
            address: address.to_string(),
            host: host.to_string(),
            port,
            tls: tls.map(Arc::new),
            credentials: None,
            token_file: settings.token_file.clone(),
            max_message_bytes: settings.max_message_bytes,
            node: node(settings, mesh),
        })
    }

    /// The same, which reads the Secrets of `credentialName` there.
    #[must_use]
    pub fn reading(mut self, credentials: Option<Arc<dyn Credentials>>) -> Self {
        self.credentials = credentials;
        self
    }

    /// Whether its certificate is not looked at.
    #[must_use]
    pub fn is_unverified(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_unverified())
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
            tls.check(self.credentials.as_deref()).await?;
        }
        self.authorization().await.map(drop)
    }

    /// Connects, with certificates and keys as they are in their files now.
    pub(super) async fn connect(&self) -> anyhow::Result<Channel> {
        const WINDOW: u32 = 1 << 20;
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?
            .connect_timeout(Duration::from_secs(10))
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let connected = match &self.tls {
            None => endpoint.connect().await,
            Some(tls) => {
                let origin = format!("https://{}", self.address).parse()?;
                let (tls, host, port) = (tls.clone(), self.host.clone(), self.port);
                let credentials = self.credentials.clone();
                let connect = service_fn(move |_| {
                    let (tls, host, credentials) = (tls.clone(), host.clone(), credentials.clone());
                    async move {
                        let stream =
                            tls.connect(&host, port, credentials.as_deref()).await.map_err(io::Error::other)?;
                        Ok::<_, io::Error>(TokioIo::new(stream))
                    }
                });
                endpoint.origin(origin).connect_with_connector(connect).await
            }
        };
        connected.map_err(|error| anyhow::anyhow!("{}", causes(&error)))
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
}
