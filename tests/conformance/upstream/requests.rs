//! The requests of all tests, sent through real Envoys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::Value;

use super::{
    ask::{Ask, Speech, expected},
    backend::Backends,
    cases,
    certificates::CERTIFICATES,
    client::{self, Connection, Target},
    cluster::{self, Plan, Pod, port_of},
    list,
    proxies::{self, Proxies},
    report::Results,
    retries,
    stage::Stage,
    text,
};
use crate::{
    data::{self, Case, Verdict},
    process::DEADLINE,
    ratchet::{self, Report},
};

/// The family of the results.
const FAMILY: &str = "gateway-api-upstream-requests";
/// The time that a test has which is not known to pass.
const PATIENCE: Duration = Duration::from_secs(1);
/// The address of every Gateway as its clients know it.
const GATEWAY_ADDRESS: &str = "172.18.0.5";
/// Requests for a distribution, and how far a share may be off.
const SAMPLE: usize = 1000;
const TOLERANCE: f64 = 0.05;
/// Right answers that a demand takes, one after the other.
const IN_A_ROW: usize = 3;
/// Gateways that many tests use.
const KEPT: [&str; 4] =
    ["same-namespace", "same-namespace-with-https-listener", "all-namespaces", "backend-namespaces"];

/// Sends the requests of every test, writes the report and compares with the list of passed ones.
pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let filter = std::env::var("PILOTHOUSE_CASES").unwrap_or_default();
    let (mut report, mut results) = (Report::new(FAMILY), Results::default());
    let mut scene = None;
    let passing = ratchet::passing();
    for case in cases() {
        let id = format!("{FAMILY}/{}", case.proxy);
        let test = super::test(&case);
        let statuses = super::check(&case);
        if !filter.split(',').any(|f| id.contains(f)) {
            continue;
        }
        let patience = if passing.contains(&id) { DEADLINE } else { PATIENCE };
        let asks = list(&test["checks"]).any(is_request);
        let verdict = if asks {
            let scene = scene.get_or_insert_with(Scene::set);
            runtime.block_on(scene.play(&case, &test, patience))
        } else {
            Verdict::NotYet("asks for statuses only".to_string())
        };
        if !filter.is_empty() {
            verdict.lines().iter().for_each(|line| println!("{id}: {line}"));
        }
        if data::root().is_some_and(|recorded| case.folder.starts_with(recorded)) {
            results.add(&test, &statuses, &verdict);
        }
        report.add(id, verdict);
    }
    results.write(!filter.is_empty());
    report.finish(!filter.is_empty());
}

/// Whether a demand is one on an answer.
pub fn is_request(demand: &Value) -> bool {
    matches!(
        text(&demand["check"]),
        "httpRequest"
            | "httpsRequest"
            | "grpcRequest"
            | "tcpRequest"
            | "meshRequest"
            | "httpRequestFails"
            | "httpsRequestFails"
            | "grpcRequestFails"
            | "tlsConnectionRejected"
            | "weightedDistribution"
            | "expectEchoResponse"
            | "expectEchoResponseFromBackend"
            | "awaitConvergence"
    )
}

/// A request to a pod's own address, or to one service in another's name, can be told from others only by the address that
/// it goes to, which listeners that bind the ports of services do not see.
fn needs_capture(demand: &Value) -> bool {
    let request = &expected(demand)["request"];
    demand["check"] == "meshRequest"
        && (text(&request["host"]).starts_with(':') || request["headers"]["Host"].is_string())
}

/// The Gateway that a demand asks, as `NAMESPACE/NAME`.
fn gateway_of(demand: &Value) -> Option<String> {
    if let Some(gateway) = demand["gateway"].as_str() {
        return Some(gateway.to_string());
    }
    // `[NAME.NAMESPACE:80]:443`, or nothing for a demand in words only.
    let written = text(&demand["address"]).strip_prefix('[').and_then(|a| a.split(':').next());
    let named = written.and_then(|a| a.split_once('.')).map(|(name, namespace)| format!("{namespace}/{name}"));
    let in_words = demand["check"] == "awaitConvergence";
    named.or_else(|| in_words.then(|| "gateway-conformance-infra/same-namespace".to_string()))
}

/// Everything that runs, for all tests.
struct Scene {
    plan: Plan,
    stage: Stage,
    backends: Backends,
    proxies: Proxies,
    /// Held while the ports of services are bound on the loopback interface.
    mesh: Option<File>,
}

impl Scene {
    fn set() -> Self {
        let (plan, stage) = (Plan::on_loopback(), Stage::start());
        Self { plan, stage, backends: Backends::default(), proxies: Proxies::default(), mesh: None }
    }

    async fn play(&mut self, case: &Case, test: &Value, patience: Duration) -> Verdict {
        let demands: Vec<&Value> =
            list(&test["checks"]).filter(|d| is_request(d) || d["check"] == "meshClient").collect();
        let of_mesh = demands.iter().any(|d| d["check"] == "meshClient");
        if of_mesh && !self.may_bind() {
            return Verdict::NotYet("ports of services cannot be bound on this machine".to_string());
        }
        let mut manifests = super::manifests_of(case, test);
        let pods = cluster::pods(&manifests.documents(), &mut self.plan);
        self.backends.set(&pods).await;
        let mut documents = cluster::complete(manifests.documents(), &mut self.plan);
        self.stage.apply(&documents).await;
        let gateways: BTreeSet<String> = demands.iter().filter_map(|d| gateway_of(d)).collect();
        let kept = KEPT.map(|name| format!("gateway-conformance-infra/{name}"));
        self.proxies.route(&Vec::from_iter(gateways), &kept, &mut self.plan, self.stage.app.grpc_port);
        if !of_mesh {
            self.proxies.beside(None, self.stage.app.grpc_port);
        }
        self.stage.until_held(self.proxies.count()).await;
        let mut wrong = Vec::new();
        let without_capture = demands.iter().any(|d| needs_capture(d));
        let (mut last, mut clients, mut in_words) = (None, Vec::new(), 0);
        for demand in demands {
            if manifests.before(demand) {
                documents = cluster::complete(manifests.documents(), &mut self.plan);
                self.stage.apply(&documents).await;
                self.stage.until_held(self.proxies.count()).await;
            }
            let result = match text(&demand["check"]) {
                "meshClient" => {
                    clients.push(demand);
                    continue;
                }
                "awaitConvergence" => {
                    in_words += 1;
                    self.in_words(test, in_words - 1, patience).await
                }
                "weightedDistribution" => match last {
                    Some(last) => self.distribution(&documents, last, &demand["expectedWeights"], patience).await,
                    None => Err("a demand without a subject".to_string()),
                },
                "expectEchoResponseFromBackend" => Err("UDP is not served".to_string()),
                _ if needs_capture(demand) => continue,
                _ => {
                    self.stand_beside(&clients, demand, &pods).await;
                    last = Some(demand);
                    self.demand(&documents, demand, patience).await
                }
            };
            wrong.extend(
                result.err().map(|why| format!("{} ({}): {why}", text(&demand["check"]), text(&demand["case"]))),
            );
        }
        wrong.extend(self.stage.refused().into_iter().map(|r| format!("NACK: {r}")));
        wrong.extend(self.proxies.rejected().into_iter().map(|r| format!("refused: {r}")));
        if wrong.is_empty() && without_capture {
            return Verdict::NotYet("needs captured traffic; its other demands are met".to_string());
        }
        Verdict::of(wrong)
    }

    /// Mesh tests bind the ports of services on the loopback interface: one process of this machine at a time, if at all.
    fn may_bind(&mut self) -> bool {
        if self.mesh.is_none() {
            let lock = File::create(std::env::temp_dir().join("pilothouse-mesh-tests.lock")).unwrap();
            lock.lock().unwrap();
            if TcpListener::bind("127.0.0.1:80").is_err() {
                return false;
            }
            self.mesh = Some(lock);
        }
        true
    }

    /// A test of several clients names them first and says in its cases from which namespace it sends.
    async fn stand_beside(&mut self, clients: &[&Value], demand: &Value, pods: &[Pod]) {
        let elsewhere = text(&demand["case"]).starts_with("request from consumer");
        let of_demand = |client: &&&Value| !elsewhere || text(&client["ns"]).ends_with("-consumer");
        let Some(client) = clients.iter().rfind(of_demand) else { return };
        let namespace = client["ns"].as_str().unwrap_or("gateway-conformance-mesh");
        let labels: Vec<(&str, &str)> = text(&client["app"]).split(',').filter_map(|l| l.split_once('=')).collect();
        let matches = |pod: &&Pod| {
            pod.namespace == namespace && labels.iter().all(|(k, v)| pod.labels.get(*k).is_some_and(|l| l == v))
        };
        self.proxies.beside(pods.iter().find(matches), self.stage.app.grpc_port);
        self.stage.until_held(self.proxies.count()).await;
    }

    fn ask<'a>(&mut self, documents: &'a [Value], demand: &'a Value) -> Ask<'a> {
        let name = text(&demand["check"]);
        let speech = match name {
            "grpcRequest" | "grpcRequestFails" => Speech::Grpc,
            "tcpRequest" | "expectEchoResponse" | "tlsConnectionRejected" => Speech::Tcp,
            "meshRequest" if expected(demand)["request"]["protocol"] == "grpc" => Speech::Grpc,
            _ => Speech::Http,
        };
        let Some(key) = gateway_of(demand) else {
            let host = expected(demand)["request"]["host"].as_str().unwrap_or("echo");
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
            let address = ([127, 0, 0, 1], port).into();
            return Ask { demand, speech, address, host: host.to_string(), certificates: Vec::new() };
        };
        let is_gateway = |d: &&Value| {
            let meta = &d["metadata"];
            d["kind"] == "Gateway" && format!("{}/{}", text(&meta["namespace"]), text(&meta["name"])) == key
        };
        let gateway = documents.iter().find(is_gateway).unwrap_or(&Value::Null);
        let port = port(gateway, demand);
        let mut certificates = Vec::new();
        for reference in cluster::listeners(gateway, documents).flat_map(|l| list(&l["tls"]["certificateRefs"])) {
            let secret = format!("gateway-conformance-infra/{}", text(&reference["name"]));
            certificates.extend(CERTIFICATES.secrets.get(&secret));
        }
        let default = if name.starts_with("https") { 443 } else { 80 };
        let host = if port == default { GATEWAY_ADDRESS.into() } else { format!("{GATEWAY_ADDRESS}:{port}") };
        // Beside what a Gateway passes through, it shows no certificate of its own.
        let passes = cluster::listeners(gateway, documents).any(|l| l["tls"]["mode"] == "Passthrough");
        if passes {
            certificates.clear();
        }
        Ask { demand, speech, address: proxies::address(&key, port, &mut self.plan), host, certificates }
    }

    async fn demand(&mut self, documents: &[Value], demand: &Value, patience: Duration) -> Result<(), String> {
        let ask = self.ask(documents, demand);
        let mirrors: Vec<&Value> = list(&expected(demand)["mirroredTo"]).collect();
        let path = ["expectedRequest", "request"].into_iter().find_map(|k| expected(demand)[k]["path"].as_str());
        let seen =
            |mirror: &Value| self.backends.seen(text(&mirror["namespace"]), text(&mirror["name"]), path.unwrap_or("/"));
        // As in the project's own run, several answers in a row.
        let in_a_row = async || {
            for _ in 0..IN_A_ROW {
                ask.once().await?;
            }
            Ok(())
        };
        eventually(patience, in_a_row).await?;
        for mirror in mirrors {
            match mirror["percent"].as_f64() {
                Some(percent) => {
                    eventually(patience, || async {
                        let before = seen(mirror);
                        let mut connection = Connection::open(ask.target()).await?;
                        for _ in 0..SAMPLE {
                            connection.send(ask.request()).await?;
                        }
                        let share = (seen(mirror) - before) as f64 / SAMPLE as f64;
                        let near = (share - percent / 100.0).abs() <= TOLERANCE;
                        if near { Ok(()) } else { Err(format!("{share} of the requests are mirrored")) }
                    })
                    .await?;
                }
                None => {
                    let arrived =
                        || async { if seen(mirror) > 0 { Ok(()) } else { Err(format!("nothing came to {mirror}")) } };
                    eventually(patience, arrived).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends many of the last requests, and counts the answers by backend.
    async fn distribution(
        &mut self,
        documents: &[Value],
        demand: &Value,
        weights: &Value,
        patience: Duration,
    ) -> Result<(), String> {
        let ask = self.ask(documents, demand);
        let wanted: BTreeMap<&str, f64> =
            weights.as_object().into_iter().flatten().filter_map(|(k, v)| Some((k.as_str(), v.as_f64()?))).collect();
        let sample = || async {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            let mut connection = None;
            for _ in 0..SAMPLE {
                let seen = if ask.speech == Speech::Tcp {
                    client::say(ask.target()).await?.0
                } else {
                    if connection.is_none() {
                        connection = Some(Connection::open(ask.target()).await?);
                    }
                    let Some(connection) = &mut connection else { return Err("no connection".to_string()) };
                    let answer = connection.send(ask.request()).await?;
                    ask.compare(&answer)?;
                    answer.seen()
                };
                let pod = text(&seen["pod"]).to_string();
                let backend =
                    wanted.keys().find(|name| pod.starts_with(**name)).map_or(pod.clone(), ToString::to_string);
                *counts.entry(backend).or_default() += 1;
            }
            let share = |name: &str| counts.get(name).copied().unwrap_or(0) as f64 / SAMPLE as f64;
            let near = wanted.iter().all(|(name, weight)| (share(name) - weight).abs() <= TOLERANCE);
            let strangers = counts.keys().any(|name| !wanted.contains_key(name.as_str()));
            if near && !strangers { Ok(()) } else { Err(format!("{counts:?} answered and not {wanted:?}")) }
        };
        eventually(patience, sample).await
    }

    /// The demands that the recording has only in words.
    async fn in_words(&mut self, test: &Value, case: usize, patience: Duration) -> Result<(), String> {
        let address = proxies::address("gateway-conformance-infra/same-namespace", 80, &mut self.plan);
        let target = Target { address, tls: None, http2: false };
        let name = text(&test["shortName"]);
        if name == "HTTPRouteBackendProtocolWebSocket" {
            return eventually(patience, || client::web_socket(target, GATEWAY_ADDRESS, "/")).await;
        }
        let Some(retry) = retries::of(name, case) else { return Err("the words have no known meaning".to_string()) };
        let tries = std::cell::Cell::new(0);
        let once = || async {
            tries.set(tries.get() + 1);
            let fault = format!("{name}-{case}-{};{};{}", tries.get(), retry.times, retry.fault);
            let uri = format!("http://{GATEWAY_ADDRESS}{}", retry.path);
            let request = Request::get(uri).header("x-fail", fault).body(Full::<Bytes>::default()).unwrap();
            let answer = Connection::open(target).await?.send(request).await?;
            if answer.status == retry.status {
                Ok(())
            } else {
                let sent = format!("GET {} to a backend with {} times {}", retry.path, retry.times, retry.fault);
                Err(format!("{sent}: {}: status {} and not {}", answer.told(), answer.status, retry.status))
            }
        };
        eventually(patience, once).await
    }
}

/// The port that is asked: that of the named listener, the one that is written, the scheme's own, or the first that there is.
fn port(gateway: &Value, demand: &Value) -> u64 {
    let named = demand["gatewayListeners"][0].as_str();
    let of_name = list(&gateway["spec"]["listeners"]).find(|l| named.is_some() && l["name"].as_str() == named);
    if let Some(listener) = of_name {
        return port_of(listener);
    }
    let written = text(&demand["address"]).rsplit_once("]:").and_then(|(_, port)| port.parse().ok());
    if let Some(port) = demand["port"].as_u64().or(written) {
        return port;
    }
    let usual = match text(&demand["check"]) {
        "httpsRequest" | "httpsRequestFails" => 443,
        "httpRequest" | "httpRequestFails" | "grpcRequest" | "grpcRequestFails" => 80,
        _ => 0,
    };
    let ports: Vec<u64> = list(&gateway["spec"]["listeners"]).map(port_of).collect();
    if ports.contains(&usual) { usual } else { ports.first().copied().unwrap_or(usual) }
}

/// Tries until it is right, or for this long.
async fn eventually<F: Future<Output = Result<(), String>>>(
    patience: Duration,
    mut once: impl FnMut() -> F,
) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match once().await {
            Err(_) if start.elapsed() < patience => tokio::time::sleep(Duration::from_millis(20)).await,
            done => return done,
        }
    }
}

/// Where the report is written.
pub fn target() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_path_buf()
}
