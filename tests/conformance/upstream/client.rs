//! A client for one request at a time: HTTP/1.1, HTTP/2 and bare TCP, plain or over TLS.

use std::{fmt::Display, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, client::conn, header::HeaderValue};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pilothouse::testing::client_of_any_server;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls::ClientConfig};

use super::certificates::{Pair, chain};

/// No step may take longer than this; a faulty peer answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where to, and how.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub address: SocketAddr,
    pub tls: Option<Tls<'a>>,
    pub http2: bool,
}

/// The TLS of a client.
#[derive(Clone, Copy)]
pub struct Tls<'a> {
    pub server_name: &'a str,
    /// The certificate of the client.
    pub identity: Option<&'a Pair>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
    pub body: Bytes,
    /// The certificate of the server.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Answer {
    /// The request as the backend reports it; `Null` when no backend answered.
    pub fn seen(&self) -> Value {
        // A gRPC message has five bytes before its content.
        let json = if self.body.first() == Some(&0) { self.body.get(5..).unwrap_or_default() } else { &self.body };
        serde_json::from_slice(json).unwrap_or_default()
    }

    /// The answer in words that are the same in every run.
    pub fn told(&self) -> String {
        let mut told = format!("status {}", self.status);
        if let Some(code) = self.code() {
            told += &format!(", code {code}");
        }
        if let Some(location) = self.headers.get("location").and_then(|l| l.to_str().ok()) {
            told += &format!(", location {location}");
        }
        let seen = self.seen();
        if seen.is_null() {
            return told + ", of no backend";
        }
        let part = |name: &str| seen[name].as_str().unwrap_or_default().to_string();
        told += &format!(", of {}/{}", part("namespace"), part("pod"));
        told + &format!(", which saw {} {}{}", part("method"), part("host"), part("path"))
    }

    /// The gRPC code; that of a trailers-only answer is in the headers.
    pub fn code(&self) -> Option<u64> {
        let found = self.trailers.get("grpc-status").or(self.headers.get("grpc-status"))?;
        found.to_str().ok()?.parse().ok()
    }
}

/// A connection over which requests are sent one after the other.
pub struct Connection {
    sender: Sender,
    certificate: Option<CertificateDer<'static>>,
}

enum Sender {
    Http1(conn::http1::SendRequest<Full<Bytes>>),
    Http2(conn::http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub async fn open(target: Target<'_>) -> Result<Self, String> {
        let (stream, certificate) = connect(target).await?;
        let io = TokioIo::new(stream);
        let sender = if target.http2 {
            let (sender, connection) = soon(conn::http2::handshake(TokioExecutor::new(), io)).await?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = soon(conn::http1::handshake(io)).await?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Self { sender, certificate })
    }

    /// Sends a request (with a full URI) and reads the whole answer.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let response = match &mut self.sender {
            Sender::Http2(sender) => soon(sender.send_request(request)).await?,
            Sender::Http1(sender) => {
                soon(sender.ready()).await?;
                let host = request.uri().authority().map_or_else(String::new, ToString::to_string);
                request.headers_mut().insert("host", HeaderValue::from_str(&host).unwrap());
                let path = request.uri().path_and_query().unwrap().to_string();
                *request.uri_mut() = path.parse().unwrap();
                soon(sender.send_request(request)).await?
            }
        };
        let (head, body) = response.into_parts();
        let body = soon(body.collect()).await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            trailers,
            body: body.to_bytes(),
            certificate: self.certificate.clone(),
        })
    }
}

/// Says something over TCP and reads the answer to its end.
pub async fn say(target: Target<'_>) -> Result<(Value, Option<CertificateDer<'static>>), String> {
    let (mut stream, certificate) = connect(target).await?;
    soon(stream.write_all(b"hello\n")).await?;
    let mut answer = Vec::new();
    let read = soon(stream.read_to_end(&mut answer)).await;
    let seen = serde_json::from_slice(&answer).map_err(|e| format!("{e} in {answer:?}, {read:?}"))?;
    Ok((seen, certificate))
}

/// Asks for a WebSocket, and sends something over it that has to come back.
pub async fn web_socket(target: Target<'_>, host: &str, path: &str) -> Result<(), String> {
    let (mut stream, _) = connect(target).await?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    soon(stream.write_all(head.as_bytes())).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(soon(stream.read_u8()).await?);
    }
    if !answer.starts_with(b"HTTP/1.1 101") {
        return Err(String::from_utf8_lossy(&answer).into_owned());
    }
    soon(stream.write_all(b"hello")).await?;
    let mut back = [0; 5];
    soon(stream.read_exact(&mut back)).await?;
    if &back == b"hello" { Ok(()) } else { Err(format!("{back:?} came back")) }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Connected = (Box<dyn Stream>, Option<CertificateDer<'static>>);

async fn connect(target: Target<'_>) -> Result<Connected, String> {
    let stream = soon(TcpStream::connect(target.address)).await?;
    let Some(tls) = target.tls else { return Ok((Box::new(stream), None)) };
    let connector = TlsConnector::from(Arc::new(config(tls.identity, target.http2)));
    let name = ServerName::try_from(tls.server_name.to_string()).map_err(|e| e.to_string())?;
    let stream = soon(connector.connect(name, stream)).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|c| c.first()).cloned();
    Ok((Box::new(stream), certificate))
}

fn config(identity: Option<&Pair>, http2: bool) -> ClientConfig {
    let own = identity.map(|pair| (chain(&pair.chain), pair.private_key()));
    let mut config = client_of_any_server(own).unwrap();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    config
}

async fn soon<T, E: Display>(step: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(_) => Err(format!("nothing for {PATIENCE:?}")),
    }
}
