//! Attacks on the program as it runs: proxies that do nothing wrong are served all along, and the log is not flooded.
//!
//! With `PILOTHOUSE_LONG_ATTACKS=1 cargo test --release --test lifecycle attacks -- --test-threads 1` the attacks are as large
//! as those of a real attacker, and the memory that stays is judged too.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    binary::Binary,
    stage::{DEADLINE, entry},
};
use pilothouse::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType::{self, Cluster, Endpoint, Secret},
};

fn size(short: usize, long: usize) -> usize {
    if std::env::var_os("PILOTHOUSE_LONG_ATTACKS").is_some() { long } else { short }
}

/// A folder with one service, the program, and a proxy that follows it.
struct Attacked {
    dir: tempfile::TempDir,
    server: Binary,
    address: SocketAddr,
    http: SocketAddr,
    proxy: Proxy,
    services: usize,
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
}

impl Attacked {
    async fn start(begin: impl FnOnce(&Path) -> Binary) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
        let mut server = begin(dir.path());
        let (address, http) = server.addresses();
        let proxy = Proxy::connect(address).await;
        Self { dir, server, address, http, proxy, services: 0 }
    }

    /// A change reaches the proxy, and another proxy joins.
    async fn is_well(&mut self) {
        self.services += 1;
        let name = format!("s{}", self.services);
        fs::write(self.dir.path().join(format!("{name}.yaml")), entry(&name, &format!("{name}.example"))).unwrap();
        let cluster = format!("outbound|80||{name}.example");
        let start = Instant::now();
        while let Err(error) = self.proxy.until(&cluster).await {
            let silent = matches!(error, ClientError::Silence);
            assert!(silent && start.elapsed() < DEADLINE, "{cluster}: {error}");
        }
        Proxy::connect(self.address).await;
    }

    /// A stream of a gateway that is not the proxy.
    async fn stream(&self) -> SotwStream {
        let id = "router~10.0.0.2~gateway.edge~edge.svc.cluster.local".to_string();
        let client = AdsClient::connect(self.address, "10.0.0.2").await.unwrap();
        client.with_node(Node { id, ..Node::default() }).sotw(None).await.unwrap()
    }
}

async fn ask(stream: &mut SotwStream, kind: ResourceType, names: Vec<String>, nonce: &str) -> Result<(), ClientError> {
    let type_url = kind.url().into();
    let request =
        DiscoveryRequest { type_url, resource_names: names, response_nonce: nonce.into(), ..Default::default() };
    stream.send(request).await
}

#[tokio::test]
async fn few_descriptors_and_many_silent_sockets() {
    let mut attacked = Attacked::start(|dir| Binary::serve_with_descriptors(256, dir, &[])).await;
    let silent: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(attacked.address).ok()).collect();
    assert!(silent.len() > 200, "{} could connect", silent.len());
    for _ in 0..3 {
        attacked.is_well().await;
    }
    TcpStream::connect_timeout(&attacked.http, DEADLINE).expect("the pages have descriptors left");
    drop(silent);
    attacked.is_well().await;
    let lines = attacked.server.lines_with("cannot be accepted") + attacked.server.lines_with("no room for");
    assert!(lines <= 12, "{lines} lines");
    assert_eq!(attacked.server.lines_with("panic"), 0);
}

#[tokio::test]
async fn names_of_forbidden_secrets_without_end() {
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &[], &[])).await;
    let before = attacked.server.resident();
    let mut stream = attacked.stream().await;
    let mut nonce = String::new();
    for round in 0..size(6, 100) {
        let names = (0..9_000).map(|number| format!("kubernetes://other/s{round}-{number}")).collect();
        ask(&mut stream, Secret, names, &nonce).await.expect("an open stream");
        attacked.is_well().await;
        // An answer that holds as little as the one before is not sent.
        if let Ok(Ok(response)) = tokio::time::timeout(Duration::from_millis(50), stream.next()).await {
            nonce = response.nonce;
        }
    }
    assert!((1..=8).contains(&attacked.server.lines_with("secrets are not sent")), "in few lines, with a count");
    let stays = attacked.server.resident().saturating_sub(before);
    assert!(stays < 200, "{stays} MB stay");
}

#[tokio::test]
async fn refusals_without_end() {
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &[], &[])).await;
    let mut stream = attacked.stream().await;
    stream.subscribe(Cluster, &[], "").await.unwrap();
    let response = stream.next().await.unwrap();
    for _ in 0..size(2000, 100_000) {
        stream.refuse(&response, &[]).await.expect("an open stream");
    }
    attacked.is_well().await;
    let lines = attacked.server.lines_with("a client refused a response");
    assert!((1..=20).contains(&lines), "{lines} lines");
}

#[tokio::test]
async fn new_views_without_end() {
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &[], &[])).await;
    let before = attacked.server.resident();
    let mut attackers = Vec::new();
    for attacker in 0..size(4, 32) {
        let client = AdsClient::connect(attacked.address, "10.0.0.3").await.unwrap();
        attackers.push(tokio::spawn(async move {
            let mut held = Vec::new();
            for number in 0.. {
                let namespace = format!("n{attacker}-{number}");
                let id = format!("sidecar~10.0.0.3~a.{namespace}~{namespace}.svc.cluster.local");
                let Ok(mut stream) = client.with_node(Node { id, ..Node::default() }).sotw(None).await else {
                    continue;
                };
                let asked = stream.subscribe(Cluster, &[], "").await;
                if asked.is_ok() && stream.next().await.is_ok() && number % 2 == 0 {
                    held.push(stream);
                }
            }
        }));
    }
    for _ in 0..size(5, 100) {
        attacked.is_well().await;
    }
    attackers.iter().for_each(tokio::task::JoinHandle::abort);
    attacked.is_well().await;
    let stays = attacked.server.resident().saturating_sub(before);
    assert!(stays < 200, "{stays} MB stay");
}

#[tokio::test]
async fn subscriptions_that_change_without_end() {
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &[], &[])).await;
    let count = size(200, 1000);
    let many: String = (0..count).map(|n| entry(&format!("x{n}"), &format!("x{n}.example"))).collect();
    fs::write(attacked.dir.path().join("many.yaml"), many).unwrap();
    attacked.proxy.until(&format!("outbound|80||x{}.example", count - 1)).await.unwrap();
    let names: Vec<String> = (0..count).map(|n| format!("outbound|80||x{n}.example")).collect();
    let mut attackers = Vec::new();
    for _ in 0..5 {
        let (mut stream, names) = (attacked.stream().await, names.clone());
        attackers.push(tokio::spawn(async move {
            loop {
                for names in [names.clone(), names[..1].to_vec()] {
                    if ask(&mut stream, Endpoint, names, "").await.is_err() {
                        return;
                    }
                }
                let _ = tokio::time::timeout(Duration::from_millis(1), stream.next()).await;
            }
        }));
    }
    let mut longest = Duration::ZERO;
    for _ in 0..size(5, 50) {
        let start = Instant::now();
        attacked.is_well().await;
        longest = longest.max(start.elapsed());
    }
    println!("the longest wait of a healthy client: {longest:?}");
    attackers.iter().for_each(tokio::task::JoinHandle::abort);
    attacked.is_well().await;
}

#[tokio::test]
async fn a_file_of_very_many_valid_objects() {
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &[], &[])).await;
    let before = attacked.server.resident();
    // Nobody else sees them: what proxies hold is not judged here.
    let far = |n: usize| {
        let entry = entry(&format!("f{n}"), &format!("f{n}.example")).replace("namespace: shop", "namespace: far");
        entry.replace("spec:\n", "spec:\n  exportTo: ['.']\n")
    };
    let bytes = size(2 << 20, 60 << 20);
    let text: String = (0..bytes / far(100_000).len()).map(far).collect();
    let path = attacked.dir.path().join("far.yaml");
    fs::write(&path, &text).unwrap();
    let mut longest = Duration::ZERO;
    for _ in 0..size(5, 40) {
        let start = Instant::now();
        attacked.is_well().await;
        longest = longest.max(start.elapsed());
    }
    let peak = attacked.server.resident();
    println!("the longest wait of a healthy client: {longest:?}; {before} MB before, {peak} MB with the file");
    assert!(peak - before < 200 + 20 * (bytes >> 20), "{peak} MB for a file of {} MB", bytes >> 20);
    assert_eq!(attacked.server.lines_with("panic"), 0);
}
