//! A real Envoy that loads the resources of one proxy after the other over one ADS stream, and reports its refusals.
//!
//! Its listeners are not bound to ports, which belong to the machine and not to the content.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc,
    thread,
};

use pilothouse::{
    discovery::Resources,
    generate::{cluster, listener},
    proto::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        to_any, wkt,
    },
    testing::{ScriptedStream, ScriptedUpstream},
    xds::ResourceType,
};
use prost::Name;
use serde_json::json;
use tokio::sync::oneshot;

use crate::envoy::Envoy;

type Stream = ScriptedStream<DiscoveryRequest, DiscoveryResponse>;

/// Resources of each type, by name.
#[derive(Default)]
struct Content(BTreeMap<ResourceType, BTreeMap<String, wkt::Any>>);

impl Content {
    fn add<M: Name>(&mut self, kind: ResourceType, messages: &[M], name: fn(&M) -> &String) {
        let named = messages.iter().map(|m| (name(m).clone(), to_any(m)));
        self.0.entry(kind).or_default().extend(named);
    }

    fn of(resources: &Resources) -> Self {
        let mut content = Self::default();
        let mut listeners = resources.listeners.clone();
        for listener in &mut listeners {
            listener.bind_to_port = Some(false);
            // Envoy 1.40 crashes over a transparent listener without a socket.
            listener.transparent = None;
        }
        content.add(ResourceType::Cluster, &resources.clusters, |c| &c.name);
        content.add(ResourceType::Endpoint, &resources.endpoints, |e| &e.cluster_name);
        content.add(ResourceType::Listener, &listeners, |l| &l.name);
        content.add(ResourceType::Route, &resources.routes, |r| &r.name);
        content.add(ResourceType::Secret, &resources.secrets, |s| &s.name);
        content
    }
}

/// An Envoy and its stream.
pub struct Loader {
    stream: Stream,
    envoy: Option<Envoy>,
    _upstream: ScriptedUpstream<DiscoveryRequest, DiscoveryResponse>,
    /// Envoy ends with the thread that started it.
    _thread: mpsc::Sender<()>,
    content: Content,
    asked: BTreeMap<ResourceType, BTreeSet<String>>,
    /// The nonce of the last response of a type.
    sent: BTreeMap<ResourceType, String>,
    answered: BTreeSet<ResourceType>,
    refused: Vec<String>,
    number: u64,
    is_silent: bool,
}

impl Loader {
    /// Starts an Envoy, of the oldest supported version or the newest, and waits until it is live without any resource.
    pub async fn start(oldest: bool) -> Self {
        let mut upstream = ScriptedUpstream::start(None).await.unwrap();
        let port = upstream.address.port();
        let (started, start) = oneshot::channel();
        let (_thread, until) = mpsc::channel::<()>();
        thread::spawn(move || {
            let node = "sidecar~127.0.0.1~stock.test~test.svc.cluster.local";
            let start = if oldest { Envoy::oldest } else { Envoy::connect };
            let _ = started.send(start(port, node, &json!({}), false));
            let _ = until.recv();
        });
        let mut stream = upstream.accept().await;
        for _ in 0..5 {
            stream = if stream.is_some() { stream } else { upstream.accept().await };
        }
        let mut loader = Self {
            stream: stream.expect("Envoy connects"),
            envoy: None,
            _upstream: upstream,
            _thread,
            content: Content::default(),
            asked: BTreeMap::new(),
            sent: BTreeMap::new(),
            answered: BTreeSet::new(),
            refused: Vec::new(),
            number: 0,
            is_silent: false,
        };
        for kind in [ResourceType::Cluster, ResourceType::Listener] {
            loader.until("begin", |l| l.asked.contains_key(&kind)).await.unwrap();
            loader.load(kind, ResourceType::Endpoint, BTreeSet::new()).await.unwrap();
        }
        loader.envoy = Some(start.await.unwrap());
        loader
    }

    /// Whether it was waited for in vain: it has ended, or waits for something.
    pub const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        self.envoy.as_ref().map(|envoy| envoy.process.tail()).unwrap_or_default()
    }

    async fn send(&mut self, kind: ResourceType) {
        self.number += 1;
        let nonce = self.number.to_string();
        let all = self.content.0.get(&kind).cloned().unwrap_or_default();
        let asked = self.asked.get(&kind).cloned().unwrap_or_default();
        let wanted = all.into_iter().filter(|(name, _)| kind.is_wildcard() || asked.contains(name));
        self.answered.remove(&kind);
        self.sent.insert(kind, nonce.clone());
        let response = DiscoveryResponse {
            version_info: nonce.clone(),
            resources: wanted.map(|(_, any)| any).collect(),
            type_url: kind.url().to_string(),
            nonce,
            ..Default::default()
        };
        // A stream that is closed has no next request.
        let _ = self.stream.say(response).await;
    }

    /// Takes requests until `done`; names that are new are answered.
    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !done(self) {
            let Some(request) = self.stream.next().await else {
                self.is_silent = true;
                return Err(format!("Envoy does not {what}"));
            };
            let Some(kind) = ResourceType::of_url(&request.type_url) else { continue };
            let names: BTreeSet<String> = request.resource_names.into_iter().collect();
            let is_new = self.asked.get(&kind).is_none_or(|known| !names.is_subset(known));
            self.asked.insert(kind, names);
            if self.sent.get(&kind).is_some_and(|nonce| *nonce == request.response_nonce) {
                self.answered.insert(kind);
                let error = request.error_detail.map(|e| e.message);
                self.refused.extend(error.map(|e| format!("{}: {e}", kind.short())));
            }
            if is_new && !kind.is_wildcard() {
                self.send(kind).await;
            }
        }
        Ok(())
    }

    /// Sends a type and the resources that it refers to, which Envoy may wait for before it answers: a cluster that is
    /// new under its old name asks for nothing new.
    async fn load(&mut self, kind: ResourceType, of: ResourceType, names: BTreeSet<String>) -> Result<(), String> {
        let before = self.refused.len();
        self.send(kind).await;
        for below in [of, ResourceType::Secret] {
            if self.asked.contains_key(&below) {
                self.send(below).await;
            }
        }
        self.until(&format!("answer {}", kind.short()), |l| l.answered.contains(&kind)).await?;
        if self.refused.len() > before {
            return Ok(());
        }
        let asked = |l: &Self| l.asked.get(&of).is_some_and(|asked| names.is_subset(asked)) && l.answered.contains(&of);
        let done = |l: &Self| names.is_empty() || asked(l);
        self.until(&format!("ask {} for {names:?} and answer", of.short()), done).await
    }

    /// Loads everything of a proxy; returns the refusals.
    pub async fn take(&mut self, resources: &Resources) -> Vec<String> {
        self.content = Content::of(resources);
        let all = async {
            let names = cluster::eds_cluster_names(&resources.clusters).into_iter().collect();
            self.load(ResourceType::Cluster, ResourceType::Endpoint, names).await?;
            let names = listener::route_names(&resources.listeners).into_iter().collect();
            self.load(ResourceType::Listener, ResourceType::Route, names).await
        };
        if let Err(error) = all.await {
            self.refused.push(error);
        }
        std::mem::take(&mut self.refused)
    }
}
