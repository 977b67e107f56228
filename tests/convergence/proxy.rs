//! A client that stays: it subscribes as Envoy does, keeps resources by the rules of its protocol, and acknowledges,
//! refuses, asks again or comes back as it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use pilothouse::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
    },
    testing::{AdsClient, ClientError, DeltaStream, SotwStream},
    xds::ResourceType,
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{refers, transcript::Transcript};

/// The types in the order in which a client that comes back asks for them.
pub const TYPES: [ResourceType; 7] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::Secret,
    ResourceType::Extension,
    ResourceType::NameTable,
];

/// Which protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Sotw,
    Delta,
}

/// The identity of a client.
#[derive(Debug, Clone)]
pub struct Who {
    /// For reports.
    pub name: &'static str,
    /// Its node.
    pub node: Node,
    /// A gRPC program asks for these listeners by name, and for nothing else of its own accord.
    pub targets: Vec<String>,
    /// It asks for the table of DNS names.
    pub asks_dns: bool,
}

/// Something that a client does beside listening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Refuses the next response of a type.
    Refuse(ResourceType),
    /// Drops one of its names and asks for it again (types by name), or asks for everything again.
    Again(ResourceType, usize),
    /// Closes the stream and reconnects with its resources.
    Reconnect,
}

/// One type of a client.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Resources by name.
    pub resources: BTreeMap<String, Vec<u8>>,
    /// Names that it asks for; none of a type that it asks for in whole.
    pub names: BTreeSet<String>,
    /// The refusal since it last accepted a resource of the name: bytes, or nothing where it refused a removal.
    pub refused: BTreeMap<String, Option<Vec<u8>>>,
    /// Responses so far.
    pub responses: u64,
    asked: bool,
    versions: BTreeMap<String, String>,
    nonce: String,
}

/// The resources of a client.
pub type Holds = BTreeMap<ResourceType, Held>;

/// A client and its task.
pub struct Proxy {
    pub who: Who,
    pub speaks: Speaks,
    holds: Arc<Mutex<Holds>>,
    transcript: Transcript,
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
}

enum Command {
    Do(Move),
    Server(SocketAddr),
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Connects, and stays connected.
    pub fn start(who: &Who, speaks: Speaks, server: SocketAddr) -> Self {
        let (commands, told) = mpsc::unbounded_channel();
        let (holds, transcript) = (Arc::<Mutex<Holds>>::default(), Transcript::default());
        let (who, refuse) = (who.clone(), BTreeSet::new());
        let run = Run {
            who: who.clone(),
            speaks,
            server,
            holds: holds.clone(),
            transcript: transcript.clone(),
            refuse,
            told,
        };
        Self { who, speaks, holds, transcript, commands, task: tokio::spawn(run.run()) }
    }

    /// Has it do something, as soon as it comes to it.
    pub fn does(&self, what: Move) {
        let _ = self.commands.send(Command::Do(what));
    }

    /// The server is elsewhere now.
    pub fn moves_to(&self, server: SocketAddr) {
        let _ = self.commands.send(Command::Server(server));
    }

    /// Its resources.
    pub fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap()
    }

    /// The last messages that it sent and was sent.
    pub fn transcript(&self) -> Vec<String> {
        self.transcript.lines()
    }

    /// `name (protocol)`.
    pub fn label(&self) -> String {
        format!("{} ({:?})", self.who.name, self.speaks)
    }
}

struct Run {
    who: Who,
    speaks: Speaks,
    server: SocketAddr,
    holds: Arc<Mutex<Holds>>,
    transcript: Transcript,
    refuse: BTreeSet<ResourceType>,
    told: mpsc::UnboundedReceiver<Command>,
}

enum Stream {
    Sotw(SotwStream),
    Delta(DeltaStream),
}

enum Response {
    Sotw(DiscoveryResponse),
    Delta(DeltaDiscoveryResponse),
}

impl Stream {
    async fn next(&mut self) -> Result<Response, ClientError> {
        match self {
            Self::Sotw(stream) => stream.next().await.map(Response::Sotw),
            Self::Delta(stream) => stream.next().await.map(Response::Delta),
        }
    }
}

/// The next request for a type.
#[derive(Debug)]
enum Ask {
    /// Everything that is wanted, as the first request of the stream.
    First,
    /// The names changed: those to add and to give up.
    Names(Vec<String>, Vec<String>),
    /// The answer to a response.
    Answer { refused: bool },
}

impl Run {
    async fn run(mut self) {
        loop {
            if self.connected().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// One stream, from its start to its end.
    async fn connected(&mut self) -> Result<(), ClientError> {
        let server = self.server;
        let client = AdsClient::connect(server, "127.0.0.1").await.map(|c| c.with_node(self.who.node.clone()));
        let mut stream = match (client, self.speaks) {
            (Err(error), _) => {
                while let Ok(command) = self.told.try_recv() {
                    self.note(command);
                }
                return Err(error);
            }
            (Ok(client), Speaks::Sotw) => Stream::Sotw(client.sotw(None).await?),
            (Ok(client), Speaks::Delta) => Stream::Delta(client.delta(None).await?),
        };
        self.transcript.note("connected".to_string());
        self.begin(&mut stream).await?;
        loop {
            tokio::select! {
                response = stream.next() => match response {
                    Ok(response) => self.take(&mut stream, response).await?,
                    Err(ClientError::Silence) => {}
                    Err(error) => return Err(error),
                },
                command = self.told.recv() => match command {
                    None => std::future::pending().await,
                    Some(Command::Do(Move::Reconnect)) => return Ok(()),
                    Some(Command::Do(Move::Again(kind, at))) => self.again(&mut stream, kind, at).await?,
                    Some(command) => {
                        self.note(command);
                        if self.server != server {
                            return Ok(());
                        }
                    }
                },
            }
        }
    }

    fn note(&mut self, command: Command) {
        match command {
            Command::Do(Move::Refuse(kind)) => drop(self.refuse.insert(kind)),
            Command::Do(_) => {}
            Command::Server(server) => self.server = server,
        }
    }

    /// The first requests of a stream: the former subscriptions, or those that a client begins with.
    async fn begin(&mut self, stream: &mut Stream) -> Result<(), ClientError> {
        let first: Vec<ResourceType> = {
            let mut holds = self.holds.lock().unwrap();
            let mut start = |kind, names: &[String]| {
                let held: &mut Held = holds.entry(kind).or_default();
                held.asked = true;
                held.names.extend(names.iter().cloned());
            };
            if self.who.targets.is_empty() {
                start(ResourceType::Cluster, &[]);
                if self.who.asks_dns {
                    start(ResourceType::NameTable, &[]);
                }
            } else {
                start(ResourceType::Listener, &self.who.targets);
            }
            for held in holds.values_mut() {
                held.nonce.clear();
                // A refusal belongs to its stream: the next one begins with everything.
                held.refused.clear();
            }
            if !self.who.targets.is_empty() {
                // A gRPC program asks for no type of which it wants nothing.
                holds.values_mut().for_each(|held| held.asked &= !held.names.is_empty());
            }
            TYPES.into_iter().filter(|kind| holds.get(kind).is_some_and(|h| h.asked)).collect()
        };
        for kind in first {
            self.ask(stream, kind, Ask::First).await?;
        }
        Ok(())
    }

    async fn ask(&self, stream: &mut Stream, kind: ResourceType, ask: Ask) -> Result<(), ClientError> {
        let (names, nonce, versions): (Vec<String>, String, _) = {
            let holds = self.holds.lock().unwrap();
            let held = holds.get(&kind).cloned().unwrap_or_default();
            let versions = held.versions.into_iter().collect();
            (held.names.into_iter().collect(), held.nonce, versions)
        };
        let refused = matches!(ask, Ask::Answer { refused: true });
        let error_detail = refused.then(|| pilothouse::proto::google::rpc::Status {
            code: 3,
            message: "refused by the test".to_string(),
            details: Vec::new(),
        });
        let type_url = kind.url().to_string();
        let short = kind.short();
        match stream {
            Stream::Sotw(stream) => {
                self.transcript.note(format!("-> {short} {ask:?}, names {names:?}, nonce {nonce}"));
                let request = DiscoveryRequest {
                    type_url,
                    resource_names: names,
                    response_nonce: nonce,
                    error_detail,
                    ..DiscoveryRequest::default()
                };
                stream.send(request).await
            }
            Stream::Delta(stream) => {
                let mut request = DeltaDiscoveryRequest { type_url, error_detail, ..DeltaDiscoveryRequest::default() };
                match ask {
                    Ask::First => {
                        let by_name = !kind.is_wildcard() || !names.is_empty();
                        request.resource_names_subscribe = if by_name { names } else { vec!["*".to_string()] };
                        request.initial_resource_versions = versions;
                    }
                    Ask::Names(add, remove) => {
                        (request.resource_names_subscribe, request.resource_names_unsubscribe) = (add, remove);
                    }
                    Ask::Answer { .. } => request.response_nonce = nonce,
                }
                let (more, fewer) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
                let (claims, nonce) = (request.initial_resource_versions.len(), &request.response_nonce);
                self.transcript
                    .note(format!("-> {short} +{more:?} -{fewer:?} claims {claims}, nonce {nonce}, refused {refused}"));
                stream.send(request).await
            }
        }
    }

    async fn take(&mut self, stream: &mut Stream, response: Response) -> Result<(), ClientError> {
        let url = match &response {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        };
        let kind = ResourceType::of_url(url).expect("a type that is not served");
        let refused = self.refuse.remove(&kind);
        let (names, gone, nonce) = match &response {
            Response::Sotw(r) => {
                (r.resources.iter().map(|any| refers::name(kind, &any.value)).collect::<Vec<_>>(), &[][..], &r.nonce)
            }
            Response::Delta(r) => {
                (r.resources.iter().map(|r| r.name.clone()).collect(), &r.removed_resources[..], &r.nonce)
            }
        };
        self.transcript.note(format!("<- {} {names:?} -{gone:?}, nonce {nonce}, refuses {refused}", kind.short()));
        self.apply(kind, response, refused);
        let acknowledges_first = self.who.node.id.len().is_multiple_of(2);
        if acknowledges_first || refused {
            self.ask(stream, kind, Ask::Answer { refused }).await?;
        }
        if !refused {
            self.follow(stream, kind).await?;
            if !acknowledges_first {
                self.ask(stream, kind, Ask::Answer { refused }).await?;
            }
        }
        Ok(())
    }

    /// Keeps the content of a response, by the rules of the protocol; of a refused one only the refusal.
    fn apply(&self, kind: ResourceType, response: Response, refused: bool) {
        let mut holds = self.holds.lock().unwrap();
        let held = holds.entry(kind).or_default();
        held.responses += 1;
        let by_name = !self.who.targets.is_empty() || !kind.is_wildcard();
        let wanted = |names: &BTreeSet<String>, name: &str| !by_name || names.contains(name);
        match response {
            Response::Sotw(response) => {
                held.nonce = response.nonce;
                let all: BTreeMap<String, Vec<u8>> =
                    response.resources.into_iter().map(|any| (refers::name(kind, &any.value), any.value)).collect();
                let gone: Vec<String> = match kind.is_whole() {
                    true => held.resources.keys().filter(|n| !all.contains_key(*n)).cloned().collect(),
                    false => Vec::new(),
                };
                if refused {
                    held.refused.extend(all.into_iter().map(|(name, bytes)| (name, Some(bytes))));
                    held.refused.extend(gone.into_iter().map(|name| (name, None)));
                    return;
                }
                if kind.is_whole() {
                    held.refused.clear();
                }
                for name in &gone {
                    held.resources.remove(name);
                }
                for (name, bytes) in all {
                    held.refused.remove(&name);
                    if wanted(&held.names, &name) {
                        held.resources.insert(name, bytes);
                    }
                }
            }
            Response::Delta(response) => {
                held.nonce = response.nonce;
                for resource in response.resources {
                    let bytes = resource.resource.map(|any| any.value).unwrap_or_default();
                    if refused {
                        held.refused.insert(resource.name, Some(bytes));
                        continue;
                    }
                    held.refused.remove(&resource.name);
                    if wanted(&held.names, &resource.name) {
                        held.versions.insert(resource.name.clone(), resource.version);
                        held.resources.insert(resource.name, bytes);
                    }
                }
                for name in response.removed_resources {
                    if refused {
                        held.refused.insert(name, None);
                        continue;
                    }
                    held.refused.remove(&name);
                    held.versions.remove(&name);
                    held.resources.remove(&name);
                }
            }
        }
    }

    /// Subscribes to the names that the resources of a type refer to.
    async fn follow(&mut self, stream: &mut Stream, kind: ResourceType) -> Result<(), ClientError> {
        use ResourceType::{Cluster, Endpoint, Extension, Listener, Route, Secret};
        if !self.who.targets.is_empty() {
            // Names that are given up lead to no others, so the names of each type follow from those left of the type before.
            for (of, wanted) in [(Listener, Route), (Route, Cluster), (Cluster, Endpoint)] {
                let names = self.referred(of, wanted);
                self.want(stream, wanted, names).await?;
            }
            return Ok(());
        }
        let wanted: &[(ResourceType, ResourceType)] = match kind {
            Cluster => &[(Cluster, Endpoint), (Cluster, Listener), (Cluster, Secret)],
            Listener => &[(Listener, Route), (Listener, Extension), (Listener, Secret)],
            _ => &[],
        };
        for (of, wanted) in wanted {
            let names = self.referred(*of, *wanted);
            self.want(stream, *wanted, names).await?;
        }
        Ok(())
    }

    /// Names of a type that its resources of another type refer to.
    fn referred(&self, of: ResourceType, wanted: ResourceType) -> BTreeSet<String> {
        let holds = self.holds.lock().unwrap();
        let all = |kind| holds.get(&kind).map(|h: &Held| &h.resources).into_iter().flatten().map(|(_, b)| b.as_slice());
        match wanted {
            ResourceType::Endpoint => refers::endpoints(all(of)),
            ResourceType::Route => refers::routes(all(of)),
            ResourceType::Extension => refers::extensions(all(of)),
            ResourceType::Cluster => refers::clusters(all(of)),
            ResourceType::Secret => refers::secrets(all(ResourceType::Cluster), all(ResourceType::Listener)),
            _ => BTreeSet::new(),
        }
    }

    /// Comes to want these names of a type, and no others; none of a type by whole is everything.
    async fn want(&self, stream: &mut Stream, kind: ResourceType, names: BTreeSet<String>) -> Result<(), ClientError> {
        let grpc = !self.who.targets.is_empty();
        let ask = {
            let mut holds = self.holds.lock().unwrap();
            let held = holds.entry(kind).or_default();
            let whole = kind.is_wildcard() && !grpc;
            if held.asked && (whole || held.names == names) || !held.asked && !whole && names.is_empty() {
                return Ok(());
            }
            let first = !std::mem::replace(&mut held.asked, true);
            let added: Vec<String> = names.difference(&held.names).cloned().collect();
            let removed: Vec<String> = held.names.difference(&names).cloned().collect();
            for name in &removed {
                held.resources.remove(name);
                held.versions.remove(name);
                held.refused.remove(name);
            }
            held.names = names;
            if first { Ask::First } else { Ask::Names(added, removed) }
        };
        self.ask(stream, kind, ask).await
    }

    /// Drops a name and asks for it again; or asks for everything again, of a type by whole.
    async fn again(&self, stream: &mut Stream, kind: ResourceType, at: usize) -> Result<(), ClientError> {
        let names = match self.holds.lock().unwrap().get(&kind) {
            Some(held) if held.asked => held.names.clone(),
            _ => return Ok(()),
        };
        if names.is_empty() {
            let Stream::Delta(_) = stream else { return Ok(()) };
            return match kind.is_wildcard() {
                true => self.ask(stream, kind, Ask::Names(vec!["*".to_string()], Vec::new())).await,
                false => Ok(()),
            };
        }
        let name = names.iter().nth(at % names.len()).cloned().unwrap_or_default();
        let fewer: BTreeSet<String> = names.iter().filter(|n| **n != name).cloned().collect();
        if fewer.is_empty() && kind.is_wildcard() {
            return Ok(());
        }
        self.want(stream, kind, fewer).await?;
        self.want(stream, kind, names).await
    }
}
