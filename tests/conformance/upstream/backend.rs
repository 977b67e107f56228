//! The pods of the tests: servers that answer with the request that they saw, each on a loopback address of its own.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{HeaderMap, HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{self, RootCertStore, ServerConfig, server::WebPkiClientVerifier},
};

use super::{
    certificates::{CERTIFICATES, chain},
    cluster::Pod,
    list,
};

/// Ports of the echo servers, in plain text: those of `echo-basic`, then those of `echo-advanced`.
const HTTP_PORTS: [u16; 4] = [3000, 3001, 8080, 7070];
const TCP_PORT: u16 = 9090;
const TLS_PORT: u16 = 8443;

/// The requests that a pod remembers.
#[derive(Default)]
struct Memory {
    /// Paths of all requests.
    paths: Mutex<Vec<String>>,
    /// The number of times that a request of each key was failed.
    failed: Mutex<HashMap<String, u32>>,
}

struct Running {
    pod: Pod,
    memory: Arc<Memory>,
    /// Ends with this.
    _tasks: JoinSet<()>,
}

/// The running pods.
#[derive(Default)]
pub struct Backends {
    running: Vec<Running>,
}

impl Backends {
    /// Starts pods that do not run yet, and ends those that are not named.
    pub async fn set(&mut self, pods: &[Pod]) {
        self.running.retain(|r| pods.contains(&r.pod));
        for pod in pods {
            if !self.running.iter().any(|r| r.pod == *pod) {
                self.running.push(start(pod).await);
            }
        }
    }

    /// The number of times that the pods whose names begin so have seen this path.
    pub fn seen(&self, namespace: &str, prefix: &str, path: &str) -> usize {
        let of = |r: &&Running| r.pod.namespace == namespace && r.pod.name.starts_with(prefix);
        let count = |r: &Running| r.memory.paths.lock().unwrap().iter().filter(|p| *p == path).count();
        self.running.iter().filter(of).map(count).sum()
    }
}

async fn start(pod: &Pod) -> Running {
    let memory = Arc::new(Memory::default());
    let mut tasks = JoinSet::new();
    let is_tcp = pod.variable("TCP_ECHO_SERVER").is_some();
    let echo = Echo { namespace: pod.namespace.clone(), pod: pod.name.clone(), memory: memory.clone() };
    let tls = TlsAcceptor::from(Arc::new(server_config(pod)));
    let plain = HTTP_PORTS.map(|port| (port, is_tcp, false));
    for (port, is_tcp, is_tls) in plain.into_iter().chain([(TCP_PORT, true, false), (TLS_PORT, is_tcp, true)]) {
        let listener = TcpListener::bind((pod.address.as_str(), port)).await.unwrap();
        let (echo, tls) = (echo.clone(), is_tls.then(|| tls.clone()));
        tasks.spawn(accept(listener, echo, is_tcp, tls));
    }
    Running { pod: pod.clone(), memory, _tasks: tasks }
}

/// TLS with the certificate that the pod mounts; clients have to prove their identity where it says so.
fn server_config(pod: &Pod) -> ServerConfig {
    let mounted = list(&pod.spec["volumes"]).find_map(|v| v["secret"]["secretName"].as_str());
    let key = format!("{}/{}", pod.namespace, mounted.unwrap_or_default());
    let fallback = "gateway-conformance-infra/tls-checks-certificate";
    let pair = CERTIFICATES.secrets.get(&key).unwrap_or(&CERTIFICATES.secrets[fallback]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = if pod.variable("TLS_CLIENT_CACERTS").is_some() {
        let mut roots = RootCertStore::empty();
        let authority = &CERTIFICATES.authorities["gateway-conformance-infra/tls-checks-ca-certificate"];
        roots.add_parsable_certificates(chain(authority));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain(&pair.chain), pair.private_key()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn accept(listener: TcpListener, echo: Echo, is_tcp: bool, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (echo, tls) = (echo.clone(), tls.clone());
        connections.spawn(async move {
            let Some(tls) = tls else { return echo.connection(stream, Value::Null, is_tcp).await };
            if let Ok(stream) = tls.accept(stream).await {
                let session = stream.get_ref().1;
                let certificates = session.peer_certificates().map_or(0, <[_]>::len);
                let seen = json!({"sni": session.server_name(), "clientCertificates": certificates});
                echo.connection(stream, seen, is_tcp).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The connection is cut without an answer.
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

#[derive(Clone)]
struct Echo {
    namespace: String,
    pod: String,
    memory: Arc<Memory>,
}

impl Echo {
    async fn connection<S>(self, mut stream: S, tls: Value, is_tcp: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if is_tcp {
            let mut first = [0; 1024];
            if stream.read(&mut first).await.is_ok_and(|n| n > 0) {
                let seen = json!({"namespace": self.namespace, "pod": self.pod, "tls": tls});
                let _ = stream.write_all(format!("{seen}\n").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
            return;
        }
        let service = service_fn(move |request| {
            let (echo, tls) = (self.clone(), tls.clone());
            async move { echo.answer(request, tls).await }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    }

    async fn answer(&self, request: Request<Incoming>, tls: Value) -> Result<Response<Body>, Cut> {
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        self.memory.paths.lock().unwrap().push(path.clone());
        let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if header("upgrade").eq_ignore_ascii_case("websocket") {
            return Ok(web_socket(request));
        }
        if let Some(delay) = request.uri().query().and_then(|q| q.strip_prefix("delay=")?.strip_suffix('s')) {
            tokio::time::sleep(Duration::from_secs_f64(delay.parse().unwrap_or(0.0))).await;
        }
        let mut status = StatusCode::OK;
        if let Some(fault) = self.fault(header("x-fail")) {
            match fault.split_once('=') {
                None if fault == "reset" => return Err(Cut),
                None => status = fault.parse().unwrap(),
                Some((_, delay)) => tokio::time::sleep(Duration::from_millis(delay.parse().unwrap())).await,
            }
        }
        let seen = self.seen(&request, &path, tls);
        if header("content-type").starts_with("application/grpc") {
            return Ok(grpc(&path, &seen));
        }
        let mut response = Response::new(Full::from(seen.to_string()).boxed_unsync());
        *response.status_mut() = status;
        let wanted = header("x-echo-set-header").split(',').filter_map(|pair| pair.split_once(':'));
        for (name, value) in wanted {
            let name: HeaderName = name.trim().parse().unwrap();
            response.headers_mut().append(name, HeaderValue::from_str(value.trim()).unwrap());
        }
        Ok(response)
    }

    fn seen(&self, request: &Request<Incoming>, path: &str, tls: Value) -> Value {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in request.headers() {
            headers.entry(name.to_string()).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
        let host = request.uri().authority().map(ToString::to_string);
        let host = host.or_else(|| headers.get("host").map(|h| h.join(",")));
        json!({"namespace": self.namespace, "pod": self.pod, "path": path, "host": host, "headers": headers,
            "method": request.method().as_str(), "proto": format!("{:?}", request.version()), "tls": tls})
    }

    /// `KEY;TIMES;FAULT`: the first so many requests of this key meet the fault.
    fn fault<'a>(&self, asked: &'a str) -> Option<&'a str> {
        let mut parts = asked.split(';');
        let (key, times, fault) = (parts.next()?, parts.next()?.parse::<u32>().ok()?, parts.next()?);
        let mut failed = self.memory.failed.lock().unwrap();
        let count = failed.entry(key.to_string()).or_default();
        *count += 1;
        (*count <= times).then_some(fault)
    }
}

fn grpc(path: &str, seen: &Value) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    let known = path.ends_with("/Echo") || path.ends_with("/EchoTwo");
    trailers.insert("grpc-status", HeaderValue::from_static(if known { "0" } else { "12" }));
    let text = seen.to_string();
    let mut message = vec![0];
    message.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
    message.extend_from_slice(text.as_bytes());
    let frames = [Ok(Frame::data(Bytes::from(message))), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// Takes the connection over and sends all bytes back.
fn web_socket(request: Request<Incoming>) -> Response<Body> {
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        }
    });
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
