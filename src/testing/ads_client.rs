//! A small xDS client over tonic: it sends exactly the test's requests and hands out the responses.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use crate::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::{
                discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
                load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
            },
        },
        google,
    },
    xds::ResourceType,
};

/// Resources by name; the text is the one that was set in [`super::FakeServer`].
pub type Content = BTreeMap<String, String>;

/// Time that the client waits for a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// The reason that the client has no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server ended the stream or refused it.
    #[error(transparent)]
    Status(#[from] Status),
    /// The connection failed.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    /// The server ended the stream without an error.
    #[error("the stream ended")]
    Ended,
    /// Nothing came for 20 seconds.
    #[error("no response came")]
    Silence,
}

/// An xDS client with one connection.
#[derive(Debug, Clone)]
pub struct AdsClient {
    channel: Channel,
    node: Node,
    headers: Vec<(&'static str, String)>,
}

impl AdsClient {
    /// Connects to a server as a sidecar of this IP.
    ///
    /// # Errors
    /// [`ClientError::Transport`] when there is no connection.
    pub async fn connect(address: SocketAddr, ip: &str) -> Result<Self, ClientError> {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))?;
        let node = Node { id: format!("sidecar~{ip}~client.test~test.svc.cluster.local"), ..Node::default() };
        Ok(Self::over(endpoint.connect().await?, node))
    }

    /// A client over this connection.
    #[must_use]
    pub const fn over(channel: Channel, node: Node) -> Self {
        Self { channel, node, headers: Vec::new() }
    }

    /// The same connection, with this bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// The same connection, with this header on each stream, in place of one of that name.
    #[must_use]
    pub fn with_header(&self, name: &'static str, value: &str) -> Self {
        let others = self.headers.iter().filter(|(other, _)| *other != name).cloned();
        Self { headers: others.chain([(name, value.to_string())]).collect(), ..self.clone() }
    }

    /// The same connection for another node.
    #[must_use]
    pub fn with_node(&self, node: Node) -> Self {
        Self { node, ..self.clone() }
    }

    async fn open<Q, R>(&self, path: String) -> Result<(mpsc::Sender<Q>, Streaming<R>), ClientError>
    where
        Q: Message + Default + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        let (requests, waiting) = mpsc::channel(64);
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(64 << 20);
        grpc.ready().await?;
        let path = PathAndQuery::try_from(path).map_err(|e| Status::internal(e.to_string()))?;
        let mut request = tonic::Request::new(ReceiverStream::new(waiting));
        for (name, value) in &self.headers {
            let value = value.parse().map_err(|_| Status::internal("the value fits no header"))?;
            request.metadata_mut().insert(*name, value);
        }
        let response = grpc.streaming(request, path, ProstCodec::<Q, R>::default()).await?;
        Ok((requests, response.into_inner()))
    }

    /// Opens a state-of-the-world stream: aggregated, or the service of one type.
    ///
    /// # Errors
    /// [`ClientError`] when the server refuses it.
    pub async fn sotw(&self, only: Option<ResourceType>) -> Result<SotwStream, ClientError> {
        let (requests, responses) = self.open(path("Stream", only)).await?;
        Ok(SotwStream { node: Some(self.node.clone()), requests, responses })
    }

    /// Opens a stream of load reports. The first report has to name a node.
    ///
    /// # Errors
    /// [`ClientError`] when the server refuses it.
    pub async fn load_reports(
        &self,
    ) -> Result<(mpsc::Sender<LoadStatsRequest>, Streaming<LoadStatsResponse>), ClientError> {
        self.open("/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats".to_string()).await
    }

    /// Opens a delta stream: aggregated, or the service of one type.
    ///
    /// # Errors
    /// [`ClientError`] when the server refuses it.
    pub async fn delta(&self, only: Option<ResourceType>) -> Result<DeltaStream, ClientError> {
        let (requests, responses) = self.open(path("Delta", only)).await?;
        Ok(DeltaStream { node: Some(self.node.clone()), requests, responses })
    }
}

fn path(verb: &str, only: Option<ResourceType>) -> String {
    let (service, noun) = match only {
        None => ("discovery.v3.AggregatedDiscovery", "AggregatedResources"),
        Some(ResourceType::Cluster) => ("cluster.v3.ClusterDiscovery", "Clusters"),
        Some(ResourceType::Endpoint) => ("endpoint.v3.EndpointDiscovery", "Endpoints"),
        Some(ResourceType::Listener) => ("listener.v3.ListenerDiscovery", "Listeners"),
        Some(ResourceType::Route) => ("route.v3.RouteDiscovery", "Routes"),
        Some(_) => ("secret.v3.SecretDiscovery", "Secrets"),
    };
    format!("/envoy.service.{service}Service/{verb}{noun}")
}

async fn receive<R>(responses: &mut Streaming<R>) -> Result<R, ClientError> {
    match tokio::time::timeout(PATIENCE, responses.message()).await {
        Err(_) => Err(ClientError::Silence),
        Ok(message) => message?.ok_or(ClientError::Ended),
    }
}

fn refusal(why: &str) -> google::rpc::Status {
    google::rpc::Status { code: 3, message: why.to_string(), details: Vec::new() }
}

/// A state-of-the-world stream.
#[derive(Debug)]
pub struct SotwStream {
    node: Option<Node>,
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl SotwStream {
    /// Sends a request; the first one carries the client's node, later ones the node that they name, if any.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn send(&mut self, mut request: DiscoveryRequest) -> Result<(), ClientError> {
        request.node = self.node.take().or(request.node);
        self.requests.send(request).await.map_err(|_| ClientError::Ended)
    }

    /// Subscribes to names, in answer to the response of this nonce; no names subscribe to everything, or to nothing.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn subscribe(&mut self, kind: ResourceType, names: &[&str], nonce: &str) -> Result<(), ClientError> {
        self.send(DiscoveryRequest {
            type_url: kind.url().to_string(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            response_nonce: nonce.to_string(),
            ..DiscoveryRequest::default()
        })
        .await
    }

    /// Refuses a response.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn refuse(&mut self, response: &DiscoveryResponse, names: &[&str]) -> Result<(), ClientError> {
        self.send(DiscoveryRequest {
            type_url: response.type_url.clone(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(refusal("refused by the test")),
            ..DiscoveryRequest::default()
        })
        .await
    }

    /// The next response, unacknowledged.
    ///
    /// # Errors
    /// [`ClientError`] when the stream ends or nothing comes.
    pub async fn next(&mut self) -> Result<DiscoveryResponse, ClientError> {
        receive(&mut self.responses).await
    }
}

/// A delta stream.
#[derive(Debug)]
pub struct DeltaStream {
    node: Option<Node>,
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl DeltaStream {
    /// Sends a request; the first one carries the node.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn send(&mut self, request: DeltaDiscoveryRequest) -> Result<(), ClientError> {
        let request = DeltaDiscoveryRequest { node: self.node.take(), ..request };
        self.requests.send(request).await.map_err(|_| ClientError::Ended)
    }

    /// Subscribes to some names and unsubscribes from others.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn change(&mut self, kind: ResourceType, add: &[&str], remove: &[&str]) -> Result<(), ClientError> {
        self.send(DeltaDiscoveryRequest {
            type_url: kind.url().to_string(),
            resource_names_subscribe: add.iter().map(ToString::to_string).collect(),
            resource_names_unsubscribe: remove.iter().map(ToString::to_string).collect(),
            ..DeltaDiscoveryRequest::default()
        })
        .await
    }

    /// Accepts a response.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn accept(&mut self, response: &DeltaDiscoveryResponse) -> Result<(), ClientError> {
        self.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        })
        .await
    }

    /// Refuses a response.
    ///
    /// # Errors
    /// [`ClientError::Ended`] when the stream is closed.
    pub async fn refuse(&mut self, response: &DeltaDiscoveryResponse) -> Result<(), ClientError> {
        self.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(refusal("refused by the test")),
            ..DeltaDiscoveryRequest::default()
        })
        .await
    }

    /// The next response, unacknowledged.
    ///
    /// # Errors
    /// [`ClientError`] when the stream ends or nothing comes.
    pub async fn next(&mut self) -> Result<DeltaDiscoveryResponse, ClientError> {
        receive(&mut self.responses).await
    }
}
