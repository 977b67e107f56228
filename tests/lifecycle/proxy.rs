//! Proxies that watch: each keeps one stream open through the test, accepts everything, and fails the test when a response
//! takes something from it.

use std::{collections::BTreeSet, net::SocketAddr, time::Instant};

use pilothouse::{
    proto::envoy::{config::cluster::v3::Cluster, service::discovery::v3::Resource},
    testing::{AdsClient, ClientError, DeltaStream, SotwStream},
    xds::ResourceType,
};
use prost::Message;

use crate::stage::DEADLINE;

/// Two proxies, one per protocol.
pub struct Proxies {
    sotw: SotwStream,
    delta: DeltaStream,
    of_sotw: BTreeSet<String>,
    of_delta: BTreeSet<String>,
}

/// The response; `None` where a loaded machine has not answered yet.
fn patient<R>(response: Result<R, ClientError>, start: Instant) -> Option<R> {
    match response {
        Err(ClientError::Silence) if start.elapsed() < DEADLINE => None,
        response => Some(response.expect("the stream of before the fault")),
    }
}

impl Proxies {
    /// Connects both and subscribes to clusters.
    pub async fn connect(address: SocketAddr) -> Self {
        let first = AdsClient::connect(address, "10.0.0.8").await.unwrap();
        let second = AdsClient::connect(address, "10.0.0.9").await.unwrap();
        let (mut sotw, mut delta) = (first.sotw(None).await.unwrap(), second.delta(None).await.unwrap());
        sotw.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
        delta.change(ResourceType::Cluster, &["*"], &[]).await.unwrap();
        Self { sotw, delta, of_sotw: BTreeSet::new(), of_delta: BTreeSet::new() }
    }

    /// Takes responses on the streams from the start until both proxies have a cluster of this host.
    pub async fn until(&mut self, host: &str) {
        let start = Instant::now();
        let has = |held: &BTreeSet<String>| held.iter().any(|name| name.ends_with(&format!("|{host}")));
        while !has(&self.of_sotw) {
            let Some(response) = patient(self.sotw.next().await, start) else { continue };
            let got: BTreeSet<_> = response.resources.iter().map(|any| name(&any.value)).collect();
            let lost: Vec<_> = self.of_sotw.difference(&got).collect();
            assert!(lost.is_empty(), "state of the world without {lost:?}");
            self.of_sotw = got;
            self.sotw.subscribe(ResourceType::Cluster, &[], &response.nonce).await.unwrap();
        }
        while !has(&self.of_delta) {
            let Some(response) = patient(self.delta.next().await, start) else { continue };
            assert!(response.removed_resources.is_empty(), "delta took {:?}", response.removed_resources);
            self.of_delta.extend(response.resources.iter().map(|Resource { name, .. }| name.clone()));
            self.delta.accept(&response).await.unwrap();
        }
    }

    /// Waits for both streams to end.
    pub async fn ended(mut self) {
        while self.sotw.next().await.is_ok() {}
        while self.delta.next().await.is_ok() {}
    }
}

fn name(cluster: &[u8]) -> String {
    Cluster::decode(cluster).unwrap().name
}
