//! Attacks on the program as it runs: proxies that do nothing wrong are served all along, memory is bounded and given back,
//! and the log is not flooded.
//!
//! With `PILOTHOUSE_LONG_ATTACKS=1 cargo test --release --test lifecycle -- attacks frames --test-threads 1` the attacks are as
//! large as those of a real attacker, on a mesh of 1,000 services with 50 proxies, and no proxy waits longer than a second.

mod bad_files;
mod connections;
mod descriptors;
mod envoy_filters;
mod machines;
mod many_files;
mod pages;
mod streams;
mod subscriptions;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, join_all};
use pilothouse::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType::{self, Cluster},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;

use crate::{
    binary::Binary,
    stage::{DEADLINE, entry},
};

/// Megabytes by which an attack may let the memory grow, and those that may stay of it, unless it says otherwise.
const GROWS: usize = 500;
const STAYS: usize = 200;
/// Lines that an edit may cause.
const LINES_OF_EDIT: usize = 6;

/// The size of an attack: this for every run of the tests, and that for the long form.
pub fn size(short: usize, long: usize) -> usize {
    if std::env::var_os("PILOTHOUSE_LONG_ATTACKS").is_some() { long } else { short }
}

/// The longest time that a proxy may wait for a change, or for its first answer. The short form runs beside other tests and
/// without optimisation.
fn patience() -> Duration {
    Duration::from_secs(size(30, 1) as u64)
}

/// A folder with one service, the program, and proxies that follow it.
pub struct Attacked {
    pub dir: tempfile::TempDir,
    pub server: Binary,
    pub address: SocketAddr,
    pub http: SocketAddr,
    proxies: Vec<Proxy>,
    edits: usize,
    waits: Waits,
    /// Megabytes by which the memory may grow, and those that may stay.
    pub grows: usize,
    pub stays: usize,
}

/// The longest waits of proxies and probes.
#[derive(Debug, Default)]
struct Waits {
    change: Duration,
    first_answer: Duration,
    probe: Duration,
}

/// A proxy that accepts everything.
struct Proxy(SotwStream);

impl Proxy {
    /// Connects, as often as it takes: the first streams may come before the first push.
    async fn connect(address: SocketAddr) -> Self {
        let start = Instant::now();
        loop {
            match Self::try_connect(address).await {
                Ok(proxy) => return proxy,
                Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn try_connect(address: SocketAddr) -> Result<Self, ClientError> {
        let mut proxy = Self(AdsClient::connect(address, "10.0.0.1").await?.sotw(None).await?);
        proxy.0.subscribe(Cluster, &[], "").await?;
        proxy.until("outbound|80||a.example").await?;
        Ok(proxy)
    }

    /// Takes responses until one has this cluster.
    async fn until(&mut self, cluster: &str) -> Result<(), ClientError> {
        loop {
            let response = self.0.next().await?;
            self.0.subscribe(Cluster, &[], &response.nonce).await?;
            if response.resources.iter().any(|any| String::from_utf8_lossy(&any.value).contains(cluster)) {
                return Ok(());
            }
        }
    }

    /// The same, however long the server is silent.
    async fn patiently(&mut self, cluster: &str) {
        let start = Instant::now();
        while let Err(error) = self.until(cluster).await {
            let silent = matches!(error, ClientError::Silence);
            assert!(silent && start.elapsed() < DEADLINE, "{cluster}: {error}");
        }
    }
}

/// An answer of the pages.
pub struct Answer {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

/// Sends bytes to the pages and reads until they hang up; `None` where that is no answer of HTTP.
pub async fn send(http: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let exchange = async {
        let mut socket = TcpStream::connect(http).await.ok()?;
        socket.write_all(bytes).await.ok()?;
        let mut answer = Vec::new();
        // A server that hangs up with bytes unread cuts its own answer off.
        let _ = socket.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_ascii_lowercase(), body: body.to_string() })
    };
    tokio::time::timeout(DEADLINE, exchange).await.expect("the pages answer or hang up")
}

/// One request, as `GET /path`, with more headers behind it if need be.
pub async fn ask(http: SocketAddr, request: &str) -> Answer {
    let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
    let headers: String = headers.lines().map(|header| format!("{header}\r\n")).collect();
    let bytes = format!("{line} HTTP/1.0\r\n{headers}Content-Length: 0\r\n\r\n");
    send(http, bytes.as_bytes()).await.unwrap_or_else(|| panic!("{line}: no answer"))
}

impl Attacked {
    /// The program as `begin` starts it, and proxies that are served.
    pub async fn start(begin: impl FnOnce(&Path) -> Binary) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let others: String = (0..size(0, 1000)).map(|n| entry(&format!("o{n}"), &format!("o{n}.example"))).collect();
        fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + &others).unwrap();
        let mut server = begin(dir.path());
        let (address, http) = server.addresses();
        let proxies = join_all((0..size(1, 50)).map(|_| Proxy::connect(address))).await;
        Self { dir, server, address, http, proxies, edits: 0, waits: Waits::default(), grows: GROWS, stays: STAYS }
    }

    /// The program without further flags.
    pub async fn plain() -> Self {
        Self::start(|dir| Binary::serve(dir, &[], &[])).await
    }

    /// Writes a file of the folder.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Waits until the proxies have this cluster.
    async fn until(&mut self, cluster: &str) {
        join_all(self.proxies.iter_mut().map(|proxy| proxy.patiently(cluster))).await;
    }

    /// A change reaches the proxies, another one joins, and a probe is answered; notes how long each takes.
    pub async fn is_well(&mut self) {
        self.edits += 1;
        let name = format!("s{}", self.edits);
        let edited = Instant::now();
        self.write(&format!("{name}.yaml"), entry(&name, &format!("{name}.example")));
        self.until(&format!("outbound|80||{name}.example")).await;
        let change = edited.elapsed();
        let joined = Instant::now();
        Proxy::connect(self.address).await;
        let first_answer = joined.elapsed();
        let probed = Instant::now();
        assert_eq!(ask(self.http, "GET /ready").await.status, 200);
        let probe = probed.elapsed();
        let waits = &mut self.waits;
        *waits = Waits {
            change: waits.change.max(change),
            first_answer: waits.first_answer.max(first_answer),
            probe: waits.probe.max(probe),
        };
    }

    /// Nobody healthy has waited too long so far.
    pub fn in_time(&mut self, name: &str) {
        let waits = &self.waits;
        println!("{name}: healthy clients wait {waits:.3?} at most");
        let longest = waits.change.max(waits.first_answer).max(waits.probe);
        assert!(longest <= patience(), "{name}: healthy clients wait {waits:.3?}: {:#?}", self.server.last_lines(20));
    }

    /// Serves healthy clients while an attack goes on, while that which it holds is held, and afterwards; judges their waits,
    /// the memory and the lines of the log.
    pub async fn under<H: Send + 'static>(&mut self, name: &str, attack: impl Future<Output = H> + Send + 'static) {
        let mut watch = self.watch(name);
        let attack = tokio::spawn(attack);
        while !attack.is_finished() {
            self.round(&mut watch).await;
            assert!(watch.start.elapsed() < DEADLINE * size(2, 10) as u32, "{name}: the attack does not end");
        }
        let held = attack.await.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.round(&mut watch).await;
        drop(held);
        self.judge(watch).await;
    }

    /// The same for attackers that do not end, for so many rounds.
    pub async fn besieged(&mut self, name: &str, rounds: usize, attackers: Vec<BoxFuture<'static, ()>>) {
        let mut watch = self.watch(name);
        let attackers: Vec<_> = attackers.into_iter().map(tokio::spawn).collect();
        for _ in 0..rounds {
            self.round(&mut watch).await;
        }
        for attacker in attackers {
            attacker.abort();
            let ended = attacker.await;
            assert!(ended.is_err_and(|error| error.is_cancelled()), "{name}: an attacker gave up");
        }
        self.judge(watch).await;
    }

    fn watch(&mut self, name: &str) -> Watch {
        self.waits = Waits::default();
        let memory = self.server.resident();
        let (lines, edits, name) = (self.server.lines(), self.edits, name.to_string());
        Watch { name, start: Instant::now(), memory, peak: memory, lines, edits }
    }

    async fn round(&mut self, watch: &mut Watch) {
        self.is_well().await;
        watch.peak = watch.peak.max(self.server.resident());
    }

    async fn judge(&mut self, mut watch: Watch) {
        self.round(&mut watch).await;
        let Watch { name, start, memory, peak, lines, edits } = watch;
        let grows = peak.saturating_sub(memory);
        // The allocator gives memory back a while after it is free.
        let ended = Instant::now();
        let mut stays = self.server.resident().saturating_sub(memory);
        while stays >= self.stays && ended.elapsed() < DEADLINE / 4 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            stays = self.server.resident().saturating_sub(memory);
        }
        let (lines, edits) = (self.server.lines() - lines, self.edits - edits);
        println!("{name}: {:.1?}, {edits} edits; {grows} MB more, {stays} MB stay; {lines} lines", start.elapsed());
        self.in_time(&name);
        // A kind of lines is written a hundred times in a row and twice a second after that; long attacks cause several kinds.
        let most = size(160, 500) + LINES_OF_EDIT * edits;
        assert!(lines <= most, "{name}: {lines} lines: {:#?}", self.server.last_lines(100));
        assert!(grows < self.grows && stays < self.stays, "{name}: {grows} MB more, {stays} MB stay");
        assert_eq!(self.server.lines_with("panic"), 0, "{name}");
    }

    /// A stream of a gateway that is not among the proxies.
    async fn stream(&self) -> SotwStream {
        stream(self.address).await
    }
}

/// An attack as it begins.
struct Watch {
    name: String,
    start: Instant,
    memory: usize,
    peak: usize,
    lines: usize,
    edits: usize,
}

/// A connection of a gateway that is not among the proxies.
async fn gateway(address: SocketAddr) -> AdsClient {
    let id = "router~10.0.0.2~gateway.edge~edge.svc.cluster.local".to_string();
    let client = AdsClient::connect(address, "10.0.0.2").await.unwrap();
    client.with_node(Node { id, ..Node::default() })
}

async fn stream(address: SocketAddr) -> SotwStream {
    gateway(address).await.sotw(None).await.unwrap()
}

fn request(kind: ResourceType, names: Vec<String>, nonce: &str) -> DiscoveryRequest {
    let type_url = kind.url().into();
    DiscoveryRequest { type_url, resource_names: names, response_nonce: nonce.into(), ..Default::default() }
}

/// Takes responses for as long as the stream is held: one that is not read takes the window of its connection from others.
async fn take_all(mut stream: SotwStream) {
    while matches!(stream.next().await, Ok(_) | Err(ClientError::Silence)) {}
}

/// The status with which a stream ends.
async fn end_of(stream: &mut SotwStream) -> Code {
    loop {
        match stream.next().await {
            Ok(_) | Err(ClientError::Silence) => {}
            Err(ClientError::Status(status)) => return status.code(),
            Err(other) => panic!("{other}"),
        }
    }
}
