//! The cost of clients that connect, in CPU time and memory of a server process of its own: in plain text and over TLS with
//! resumed sessions, with their first configuration and without it.

use std::{
    cell::LazyCell,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use criterion::Criterion;
use futures::{StreamExt, stream};
use hyper_util::rt::TokioIo;
use pilothouse::{
    proto::envoy::config::core::v3::Node,
    runtime::raise_descriptor_limit,
    testing::{AdsClient, SotwStream},
    xds::ResourceType,
};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, HandshakeKind, RootCertStore, crypto::ring},
};
use tokio_util::either::Either;
use tonic::transport::{Channel, Endpoint};

use crate::mesh;

const CLIENTS: usize = 1_000;
const SERVICES: usize = 100;
/// Connections at the same time: each brings tickets for two others.
const AT_ONCE: usize = 2;
/// The process has come to rest when it takes no CPU time for so long.
const REST: Duration = Duration::from_millis(200);

/// The way of connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    PlainOpened,
    TlsOpened,
    PlainServed,
    TlsServed,
}

impl Way {
    const ALL: [Self; 4] = [Self::PlainOpened, Self::TlsOpened, Self::PlainServed, Self::TlsServed];

    const fn name(self) -> &'static str {
        match self {
            Self::PlainOpened => "connections: 1,000 opened, plain text",
            Self::TlsOpened => "connections: 1,000 opened, TLS resumed",
            Self::PlainServed => "connections: 1,000 with first clusters, plain text",
            Self::TlsServed => "connections: 1,000 with first clusters, TLS resumed",
        }
    }

    const fn is_tls(self) -> bool {
        matches!(self, Self::TlsOpened | Self::TlsServed)
    }

    const fn is_served(self) -> bool {
        matches!(self, Self::PlainServed | Self::TlsServed)
    }
}

/// One time a thousand clients.
#[derive(Debug, Clone, Copy)]
struct Sample {
    cpu: Duration,
    /// Bytes of the server for each connection: resident now, less those of a server with its configuration and no clients.
    memory: usize,
    resumed: usize,
}

struct Server {
    child: Child,
    plain: SocketAddr,
    secure: SocketAddr,
    tls: TlsConnector,
    token: String,
    runtime: Runtime,
    /// Resident bytes with the first configuration and without clients.
    empty: usize,
    _folders: [TempDir; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Self {
        let _ = raise_descriptor_limit();
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs::write(folders[0].path().join("mesh.yaml"), mesh::yaml(SERVICES)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["serve", "--log-format", "json", "--monitoring-addr", "", "--http-addr", "127.0.0.1:0"]);
        command.args(["--grpc-addr", "127.0.0.1:0", "--secure-grpc-addr", "127.0.0.1:0"]);
        command.arg("--config-dir").arg(folders[0].path()).arg("--state-dir").arg(folders[1].path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (plain, secure) = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let line: Value = serde_json::from_str(&line).ok()?;
                let of = |name: &str| line[name].as_str()?.parse().ok();
                Some((of("grpc")?, of("secure_grpc")?))
            })
            .expect("the server tells its addresses");
        std::thread::spawn(move || lines.for_each(drop));
        let mut create = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        create.args(["token", "create", "-n", "ns-1", "--state-dir"]).arg(folders[1].path());
        let token = String::from_utf8(create.output().unwrap().stdout).unwrap().trim().to_string();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folders[1].path().join("identity/root-cert.pem")).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (tls, runtime) = (TlsConnector::from(Arc::new(config)), Runtime::new().unwrap());
        let mut server = Self { child, plain, secure, tls, token, runtime, empty: 0, _folders: folders };
        // The first configuration is made, and there are tickets.
        for way in [Way::PlainServed, Way::TlsServed] {
            server.sample(way, 4);
        }
        server.rests();
        server.empty = server.resident();
        server
    }

    /// A connection, and whether it resumed a session.
    async fn dial(&self, way: Way) -> (Channel, bool) {
        let (stream, resumed) = if way.is_tls() {
            let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
            let stream = TcpStream::connect(self.secure).await.unwrap();
            let stream = self.tls.connect(name, stream).await.unwrap();
            let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            (Either::Left(stream), resumed)
        } else {
            (Either::Right(TcpStream::connect(self.plain).await.unwrap()), false)
        };
        let mut stream = Some(stream);
        let connect = tower::service_fn(move |_| {
            let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection is enough"));
            async move { stream.map(TokioIo::new) }
        });
        (Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap(), resumed)
    }

    /// A client that holds its connection, and its stream where it has one.
    async fn client(&self, way: Way) -> (Channel, Option<SotwStream>, bool) {
        let (channel, resumed) = self.dial(way).await;
        if !way.is_served() {
            return (channel, None, resumed);
        }
        let id = "sidecar~10.0.0.9~client.ns-1~ns-1.svc.cluster.local".to_string();
        let mut client = AdsClient::over(channel.clone(), Node { id, ..Node::default() });
        if way.is_tls() {
            client = client.with_token(&self.token);
        }
        // The first configuration may not be published yet.
        loop {
            let mut stream = client.sotw(None).await.unwrap();
            let subscribed = stream.subscribe(ResourceType::Cluster, &[], "").await;
            match stream.next().await {
                Ok(response) if subscribed.is_ok() && response.resources.len() >= SERVICES => {
                    stream.subscribe(ResourceType::Cluster, &[], &response.nonce).await.unwrap();
                    return (channel, Some(stream), resumed);
                }
                _ => tokio::time::sleep(REST).await,
            }
        }
    }

    /// So many clients connect, one after another.
    fn sample(&self, way: Way, clients: usize) -> Sample {
        self.rests();
        let cpu = self.cpu();
        let connect = stream::iter(0..clients).map(|_| self.client(way)).buffer_unordered(AT_ONCE).collect();
        let clients: Vec<_> = self.runtime.block_on(connect);
        self.rests();
        let resumed = clients.iter().filter(|(_, _, resumed)| *resumed).count();
        let sample = Sample {
            cpu: self.cpu().saturating_sub(cpu),
            memory: self.resident().saturating_sub(self.empty) / clients.len(),
            resumed,
        };
        self.runtime.block_on(async { drop(clients) });
        sample
    }

    /// Waits until the process takes no CPU time any more.
    fn rests(&self) {
        let mut before = self.cpu();
        loop {
            std::thread::sleep(REST);
            let now = self.cpu();
            if now == before {
                return;
            }
            before = now;
        }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap()
    }

    fn cpu(&self) -> Duration {
        cpu_of(&self.child.id().to_string())
    }

    /// Resident bytes of the process.
    fn resident(&self) -> usize {
        self.file("statm").split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
}

/// CPU time of a process so far, by its id or `self`; Linux counts it in steps of 10 ms.
pub fn cpu_of(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = [11, 12].map(|at: usize| fields[at].parse::<u64>().unwrap());
    Duration::from_millis(ticks.iter().sum::<u64>() * 10)
}

/// The rows, and below them the comparison of those that ran.
pub fn rows(c: &mut Criterion) {
    let server = LazyCell::new(Server::start);
    let mut samples: Vec<(Way, Sample)> = Vec::new();
    for way in Way::ALL {
        c.bench_function(way.name(), |b| {
            b.iter_custom(|times| {
                let taken: Vec<Sample> = (0..times).map(|_| server.sample(way, CLIENTS)).collect();
                samples.extend(taken.iter().map(|sample| (way, *sample)));
                // A row of nothing but zeros would be an error of the program.
                taken.iter().map(|sample| sample.cpu).sum::<Duration>().max(Duration::from_nanos(1))
            });
        });
    }
    let median = |way: Way, figure: &dyn Fn(&Sample) -> f64| {
        let mut of: Vec<f64> = samples.iter().filter(|(w, _)| *w == way).map(|(_, sample)| figure(sample)).collect();
        of.sort_by(f64::total_cmp);
        of.get(of.len() / 2).copied()
    };
    for way in Way::ALL {
        let Some(cpu) = median(way, &|sample| sample.cpu.as_secs_f64()) else { continue };
        let memory = median(way, &|sample| sample.memory as f64 / 1e3).unwrap_or_default();
        let resumed = median(way, &|sample| sample.resumed as f64).unwrap_or_default();
        println!("{}: {cpu:.2} CPU-s, {memory:.1} kB a connection, {resumed} resumed", way.name());
    }
    let [opened, tls_opened, served, tls_served] = Way::ALL.map(|way| median(way, &|sample| sample.cpu.as_secs_f64()));
    if let (Some(opened), Some(tls_opened), Some(served), Some(tls_served)) = (opened, tls_opened, served, tls_served) {
        let ratio = (tls_served - (tls_opened - opened)) / served;
        println!("connections: TLS without its handshakes is {ratio:.2} times plain text");
    }
}
