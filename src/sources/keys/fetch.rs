//! Fetching over HTTP and HTTPS: one request, one address that may be connected to, a bounded answer.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring},
};

use super::KeyRules;
use crate::{
    model::key_set::{KeyLocation, KeyServer},
    sources::polled::Poll,
};

/// Bytes of one answer at most.
const MOST_BYTES: usize = 256 << 10;
/// No fetch takes longer, whatever a policy says.
const LONGEST: Duration = Duration::from_secs(30);
/// The place of an issuer's OpenID configuration.
const OPENID: &str = "/.well-known/openid-configuration";
/// Further authorities, where Istio's charts put them.
const FURTHER_ROOTS: &str = "/cacerts/extra.pem";
/// Metadata servers of clouds outside of the link-local networks.
const METADATA: [&str; 2] = ["100.100.100.200/32", "fd00:ec2::/32"];

/// Fetches over HTTP.
#[derive(Debug, Clone)]
pub struct HttpFetch {
    blocked: Arc<[IpNet]>,
}

impl HttpFetch {
    /// Connects to no address of these networks.
    #[must_use]
    pub fn new(blocked: &[IpNet]) -> Self {
        let metadata = METADATA.iter().filter_map(|network| network.parse().ok());
        Self { blocked: blocked.iter().copied().chain(metadata).collect() }
    }

    async fn key_set(self, at: KeyLocation) -> Result<String, String> {
        let uri = match at {
            KeyLocation::Uri(uri) => uri.to_string(),
            KeyLocation::Issuer(issuer) => {
                let found = self.get(&format!("{}{OPENID}", issuer.trim_end_matches('/'))).await?;
                let found: serde_json::Value =
                    serde_json::from_str(&found).map_err(|e| format!("the OpenID configuration is not JSON: {e}"))?;
                let uri = found.get("jwks_uri").and_then(serde_json::Value::as_str);
                uri.ok_or("the OpenID configuration has no jwks_uri")?.to_string()
            }
        };
        self.get(&uri).await
    }

    pub(in crate::sources) async fn get(&self, uri: &str) -> Result<String, String> {
        let server = KeyServer::of(uri).ok_or("it is no http or https URI")?;
        let stream = self.connect(&server).await?;
        if !server.tls {
            return get_over(stream, uri, &server).await;
        }
        let roots = tokio::task::spawn_blocking(roots).await.map_err(|e| e.to_string())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(server.host.clone()).map_err(|e| e.to_string())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|e| e.to_string())?;
        get_over(stream, uri, &server).await
    }

    /// A connection to the first address that takes one.
    async fn connect(&self, server: &KeyServer) -> Result<TcpStream, String> {
        let host = (server.host.as_str(), server.port);
        let found = tokio::net::lookup_host(host).await.map_err(|e| format!("no addresses: {e}"))?;
        let mut error = "the host has no addresses".to_string();
        for address in found {
            if self.is_blocked(address) {
                error = format!("{} may not be connected to", address.ip());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(failed) => error = failed.to_string(),
            }
        }
        Err(error)
    }

    fn is_blocked(&self, address: SocketAddr) -> bool {
        // An IPv4 address that is written as IPv6 is the same address.
        let ip = address.ip().to_canonical();
        let link_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        link_local || ip.is_multicast() || self.blocked.iter().any(|network| network.contains(&ip))
    }
}

/// The authorities of the system, and those of Istio's charts.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Ok(text) = std::fs::read(FURTHER_ROOTS) {
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).flatten());
    }
    roots
}

async fn get_over<S>(stream: S, uri: &str, server: &KeyServer) -> Result<String, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let uri: http::Uri = uri.parse().map_err(|e| format!("{e}"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or(server.host.as_str(), |authority| authority.as_str());
    let request = Request::get(path)
        .header(header::HOST, host.rsplit('@').next().unwrap_or(host))
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("status {}", status.as_u16()));
        }
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await.map_err(|e| e.to_string())?;
        String::from_utf8(body.to_bytes().to_vec()).map_err(|_| "the answer is no text".to_string())
    };
    // The connection ends with the exchange: nothing is left running.
    tokio::pin!(connection, exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

impl Poll<KeyRules> for HttpFetch {
    fn poll(&self, at: &KeyLocation, patience: &Duration) -> BoxFuture<'static, Result<String, String>> {
        let (fetch, at, patience) = (self.clone(), at.clone(), (*patience).min(LONGEST));
        async move {
            let in_time = tokio::time::timeout(patience, fetch.key_set(at)).await;
            let answer = in_time.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
            let outcome = if answer.is_ok() { "success" } else { "fail" };
            metrics::counter!(format!("pilot_jwks_resolver_network_fetch_{outcome}_total")).increment(1);
            answer
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers each connection with the text for the path; `PORT` in it is its port.
    async fn serve(answers: &'static [(&'static str, &'static str)]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let answer = answers.iter().find(|(p, _)| *p == path).map_or("HTTP/1.1 404 No\r\n\r\n", |(_, a)| a);
                let _ = stream.write_all(answer.replace("PORT", &port.to_string()).as_bytes()).await;
            }
        });
        port
    }

    async fn fetch(at: KeyLocation, blocked: &[&str]) -> Result<String, String> {
        let blocked: Vec<IpNet> = blocked.iter().map(|n| n.parse().unwrap()).collect();
        Poll::<KeyRules>::poll(&HttpFetch::new(&blocked), &at, &Duration::from_secs(20)).await
    }

    #[tokio::test]
    async fn keys_are_fetched_by_uri_and_by_issuer() {
        let port = serve(&[
            ("/keys?x", "HTTP/1.1 200 OK\r\n\r\n{\"keys\":[]}"),
            (
                "/.well-known/openid-configuration",
                "HTTP/1.1 200 OK\r\n\r\n{\"jwks_uri\":\"http://127.0.0.1:PORT/keys?x\"}",
            ),
        ])
        .await;
        let keys = Ok(r#"{"keys":[]}"#.to_string());
        assert_eq!(fetch(KeyLocation::Uri(format!("http://127.0.0.1:{port}/keys?x").into()), &[]).await, keys);
        assert_eq!(fetch(KeyLocation::Issuer(format!("http://127.0.0.1:{port}/").into()), &[]).await, keys);
    }

    #[tokio::test]
    async fn redirects_errors_and_large_answers_are_failures() {
        let large: &'static str = Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(MOST_BYTES + 1)).into());
        let answers = Box::leak(Box::new([
            ("/moved", "HTTP/1.1 302 Moved\r\nlocation: http://127.0.0.1:PORT/keys\r\n\r\n"),
            ("/large", large),
            ("/keys", "HTTP/1.1 200 OK\r\n\r\n{}"),
        ]));
        let port = serve(answers).await;
        for (path, reason) in [("moved", "status 302"), ("nothing", "status 404"), ("large", "limit")] {
            let error =
                fetch(KeyLocation::Uri(format!("http://127.0.0.1:{port}/{path}").into()), &[]).await.unwrap_err();
            assert!(error.contains(reason), "{path}: {error}");
        }
        assert!(fetch(KeyLocation::Uri("ftp://127.0.0.1/".into()), &[]).await.is_err());
    }

    #[tokio::test]
    async fn blocked_addresses_are_not_connected_to() {
        let port = serve(&[("/", "HTTP/1.1 200 OK\r\n\r\n{\"keys\":[]}")]).await;
        let local = |host: &str| KeyLocation::Uri(format!("http://{host}:{port}/").into());
        assert!(fetch(local("127.0.0.1"), &[]).await.is_ok());
        let error = fetch(local("127.0.0.1"), &["127.0.0.0/8"]).await.unwrap_err();
        assert!(error.contains("may not be connected to"), "{error}");
        for host in ["169.254.169.254", "100.100.100.200", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]"] {
            let error = fetch(local(host), &[]).await.unwrap_err();
            assert!(error.contains("may not be connected to"), "{host}: {error}");
        }
    }
}
