//! Proxies that go from one control plane to the next when theirs ends, and record the clusters that they lose.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use pilothouse::{
    proto::envoy::config::cluster::v3::Cluster,
    testing::{AdsClient, ClientError},
    xds::ResourceType,
};
use prost::Message;
use tokio::task::JoinHandle;

use crate::stage::DEADLINE;

#[derive(Default)]
struct Seen {
    clusters: BTreeSet<String>,
    /// The number of connections so far.
    connections: usize,
    /// Responses that lacked a cluster that must not be lost.
    losses: Vec<String>,
}

/// A proxy that accepts every cluster that it is told of.
pub struct Follower {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// The clusters that no proxy may lose any more. Cheap to clone.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<BTreeSet<String>>>);

impl Kept {
    /// Adds names of clusters.
    pub fn add(&self, clusters: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap().extend(clusters);
    }
}

impl Follower {
    /// Connects to the first of these control planes, and to the next when a connection ends.
    pub fn start(planes: Vec<SocketAddr>, ip: String, kept: Kept) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let task = tokio::spawn(run(planes, ip, kept, seen.clone()));
        Self { seen, task }
    }

    /// Waits until it was told of these clusters, over its last connection.
    pub async fn until(&self, clusters: &BTreeSet<String>) {
        let wait = async {
            while !clusters.is_subset(&self.seen.lock().unwrap().clusters) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        assert!(waited.is_ok(), "{:?} of {clusters:?}", self.seen.lock().unwrap().clusters);
    }

    /// The number of connections so far; demands that no cluster was lost by then.
    pub fn connections(&self) -> usize {
        assert!(!self.task.is_finished());
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.losses, Vec::<String>::new());
        seen.connections
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(planes: Vec<SocketAddr>, ip: String, kept: Kept, seen: Arc<Mutex<Seen>>) {
    for plane in planes.iter().cycle() {
        // A process that refuses a stream is not ready or is busy: it is left once its port is closed.
        while !matches!(follow(*plane, &ip, &kept, &seen).await, Err(ClientError::Transport(_))) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Until the connection ends.
async fn follow(plane: SocketAddr, ip: &str, kept: &Kept, seen: &Mutex<Seen>) -> Result<(), ClientError> {
    let mut stream = AdsClient::connect(plane, ip).await?.sotw(None).await?;
    stream.subscribe(ResourceType::Cluster, &[], "").await?;
    let mut first = true;
    loop {
        // The clusters to keep were sent before this response was made.
        let needed = kept.0.lock().unwrap().clone();
        let response = match stream.next().await {
            Err(ClientError::Silence) => continue,
            other => other?,
        };
        let decoded = response.resources.iter().filter_map(|r| Cluster::decode(&*r.value).ok());
        let clusters: BTreeSet<String> = decoded.map(|c| c.name).collect();
        {
            let mut seen = seen.lock().unwrap();
            let needed = if first { needed } else { &needed | &seen.clusters };
            let lost: Vec<&String> = needed.difference(&clusters).collect();
            if !lost.is_empty() {
                let text = format!("{ip} was told by {plane} without {lost:?}");
                seen.losses.push(text);
            }
            seen.connections += usize::from(first);
            seen.clusters = clusters;
        }
        first = false;
        stream.subscribe(ResourceType::Cluster, &[], &response.nonce).await?;
    }
}
