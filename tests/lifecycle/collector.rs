//! A collector of traces: OTLP over gRPC or HTTP on a free port, with or without TLS, as OpenTelemetry's own collector takes it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Instant,
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::stage::DEADLINE;

/// What the collector got in one export: the value of the header `x-tenant`, and the spans.
type Export = (Option<String>, ExportTraceServiceRequest);

/// A collector; it ends with the test.
pub struct Collector {
    /// Where it listens.
    pub address: SocketAddr,
    exports: Receiver<Export>,
    resource: Option<Resource>,
    spans: Vec<Span>,
}

struct Service(Sender<Export>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let tenant = request.metadata().get("x-tenant").and_then(|v| v.to_str().ok()).map(ToString::to_string);
        let _ = self.0.send((tenant, request.into_inner()));
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A certificate of 127.0.0.1 and the authority that vouches for it, in PEM.
pub struct Certified {
    pub authority: String,
    chain: String,
    key: String,
}

impl Certified {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        let chain = own.signed_by(&key, &authority).unwrap().pem();
        Self { authority: authority.pem(), chain, key: key.serialize_pem() }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(config.with_single_cert(chain, key).unwrap()).into()
    }
}

impl Collector {
    /// Over gRPC.
    pub async fn grpc() -> Self {
        Self::grpc_from(Server::builder()).await
    }

    /// Over gRPC with TLS.
    pub async fn grpc_with_tls(certified: &Certified) -> Self {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certified.chain, &certified.key));
        Self::grpc_from(Server::builder().tls_config(tls).unwrap()).await
    }

    async fn grpc_from(mut server: Server) -> Self {
        let (listener, sender, collector) = Self::listen().await;
        let server = server.add_service(TraceServiceServer::new(Service(sender)));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        collector
    }

    /// Over HTTP with TLS, on `/v1/traces`.
    pub async fn http_with_tls(certified: &Certified) -> Self {
        let (listener, sender, collector) = Self::listen().await;
        let acceptor = certified.acceptor();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, acceptor) = (sender.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(sender.clone(), request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        collector
    }

    /// Over HTTP, on `/v1/traces`.
    pub async fn http() -> Self {
        let (listener, sender, collector) = Self::listen().await;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request| answer(sender.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        collector
    }

    async fn listen() -> (TcpListener, Sender<Export>, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, exports) = channel();
        let address = listener.local_addr().unwrap();
        (listener, sender, Self { address, exports, resource: None, spans: Vec::new() })
    }

    /// Takes exports until there is a push that this holds for; gives its span.
    pub fn until(&mut self, says: impl Fn(&Self, &Span) -> bool) -> Span {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(span) = self.spans.iter().find(|span| span.name == "push" && says(self, span)) {
                return span.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let export = self.exports.recv_timeout(left);
            let (tenant, request) = export.unwrap_or_else(|_| panic!("no such push: {:#?}", self.spans));
            assert_eq!(tenant.as_deref(), Some("shop"), "the header of OTEL_EXPORTER_OTLP_HEADERS");
            for of_resource in request.resource_spans {
                self.resource = of_resource.resource;
                let of_scopes = of_resource.scope_spans.into_iter();
                self.spans.extend(of_scopes.flat_map(|of_scope| of_scope.spans));
            }
        }
    }

    /// The number of exports that nobody took.
    pub fn waiting(&self) -> usize {
        self.exports.try_iter().count()
    }

    /// An attribute of the resource.
    pub fn resource(&self, name: &str) -> Option<String> {
        attribute(&self.resource.as_ref()?.attributes, name)
    }

    /// Spans whose parent this is, by name.
    pub fn children(&self, of: &Span) -> Vec<&Span> {
        let is_child = |span: &&Span| span.trace_id == of.trace_id && span.parent_span_id == of.span_id;
        self.spans.iter().filter(is_child).collect()
    }
}

/// The text of an attribute.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    match attributes.iter().find(|a| a.key == name)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

async fn answer(
    sender: Sender<Export>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).map(ToString::to_string);
    let (tenant, content_type) = (header("x-tenant"), header("content-type"));
    let path = request.uri().path().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if path != "/v1/traces" || content_type.as_deref() != Some("application/x-protobuf") {
        return Ok(Response::builder().status(404).body(Full::default()).unwrap());
    }
    let _ = sender.send((tenant, ExportTraceServiceRequest::decode(body).unwrap()));
    let response = ExportTraceServiceResponse::default().encode_to_vec();
    let response = Response::builder().header("content-type", "application/x-protobuf").body(Full::from(response));
    Ok(response.unwrap())
}
