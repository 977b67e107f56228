//! One connection to an upstream, in a task of its own: connects, opens the stream, hands answers over one by one.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use prost::Message;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

use super::{
    answer::{Answer, Ask},
    client::Protocol,
    target::{UpstreamTarget, causes},
};
use crate::proto::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse},
};

/// The time limit of the first answer on a stream that claims no versions.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// Answers that wait in the process; more are left to flow control.
const WAITING: usize = 2;
/// Replies that wait to be sent.
const REPLIES: usize = 256;

/// An event of the connection.
#[derive(Debug)]
pub(super) enum Event {
    /// The upstream took the stream.
    Opened,
    /// An answer came.
    Answer(Answer),
    /// The connection is over, or was none.
    Ended(String),
}

/// A connection. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Link {
    replies: mpsc::Sender<Ask>,
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Link {
    /// Connects and asks.
    pub(super) fn open(target: Arc<UpstreamTarget>, protocol: Protocol, first: Vec<Ask>) -> Self {
        let (replies, to_send) = mpsc::channel(REPLIES);
        let (events, came) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            let run = Run { target, first, replies: to_send, events: events.clone() };
            let ended = match protocol {
                Protocol::Sotw => run.stream::<_, DiscoveryResponse>("StreamAggregatedResources", Ask::into_sotw).await,
                Protocol::Delta => {
                    run.stream::<_, DeltaDiscoveryResponse>("DeltaAggregatedResources", Ask::into_delta).await
                }
            };
            let reason =
                ended.map_or_else(|error| format!("{error:#}"), |()| "the upstream ended the stream".to_string());
            let _ = events.send(Event::Ended(reason)).await;
        });
        Self { replies, events: came, task }
    }

    /// The next event. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> Event {
        self.events.recv().await.unwrap_or_else(|| Event::Ended("the connection failed inside".to_string()))
    }

    /// Replies to an answer. False when the upstream does not read its replies.
    pub(super) fn reply(&self, ask: Ask) -> bool {
        self.replies.try_send(ask).is_ok()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Run {
    target: Arc<UpstreamTarget>,
    first: Vec<Ask>,
    replies: mpsc::Receiver<Ask>,
    events: mpsc::Sender<Event>,
}

impl Run {
    async fn stream<Q, R>(self, method: &str, request: fn(Ask, Option<Node>) -> Q) -> anyhow::Result<()>
    where
        Q: Message + Default + Send + Sync + 'static,
        R: Message + Default + Into<Answer> + Send + Sync + 'static,
    {
        let Self { target, first, replies, events } = self;
        // An upstream that is told the versions that we hold may have nothing to send.
        let patience = if first.iter().all(|ask| ask.held.is_empty()) { FIRST_ANSWER } else { Duration::MAX };
        let mut node = Some(target.node.clone());
        let first: Vec<Q> = first.into_iter().map(|ask| request(ask, node.take())).collect();
        let replies = ReceiverStream::new(replies).map(move |ask| request(ask, None));
        let mut asking = tonic::Request::new(futures::stream::iter(first).chain(replies));
        if let Some(token) = target.authorization().await? {
            asking.metadata_mut().insert("authorization", token);
        }
        let path = format!("/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}");
        let mut grpc = Grpc::new(target.connect().await?).max_decoding_message_size(target.max_message_bytes);
        grpc.ready().await?;
        let opened = grpc.streaming(asking, PathAndQuery::try_from(path)?, ProstCodec::<Q, R>::default());
        let silent = || anyhow::anyhow!("no answer within {} s", FIRST_ANSWER.as_secs());
        let mut answers = timeout(patience, opened).await.map_err(|_| silent())?.map_err(|s| said(&s))?.into_inner();
        let _ = events.send(Event::Opened).await;
        let mut next = timeout(patience, answers.message()).await.map_err(|_| silent())?;
        loop {
            let Some(answer) = next.map_err(|s| said(&s))? else { return Ok(()) };
            if events.send(Event::Answer(answer.into())).await.is_err() {
                // The source has ended.
                return Ok(());
            }
            next = answers.message().await;
        }
    }
}

fn said(status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{:?}: {}", status.code(), causes(status))
}
