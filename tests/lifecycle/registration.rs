//! Workloads that register themselves, from files alone: each is an endpoint for others while it is connected and well,
//! through reconnects and restarts.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use pilothouse::{
    app::{self, Running},
    discovery::registrar::HEALTH,
    model::{Config, Kind},
    proto::{
        envoy::{
            config::{cluster::v3::Cluster, core::v3::Node, endpoint::v3::ClusterLoadAssignment},
            service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        },
        from_json, google,
    },
    runtime::Shutdown,
    settings::Settings,
    testing::{AdsClient, ClientError, DeltaStream, SotwStream},
    xds::ResourceType,
};
use prost::Message;
use serde_json::{Value, json};

use crate::stage::{DEADLINE, end, settings, until};

const SERVICE: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: api, namespace: shop}\nspec:\n  \
    hosts: [api.example]\n  resolution: STATIC\n  ports:\n  - {number: 80, name: http, protocol: HTTP}\n  \
    workloadSelector: {labels: {app: api}}\n---\n";
const NEVER: Duration = Duration::from_secs(3600);

fn group(metadata: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {{name: vms, namespace: shop}}\nspec:\n  \
         metadata: {metadata}\n  template:\n    labels: {{app: api}}\n    serviceAccount: payments\n    ports: {{http: 8080}}\n"
    )
}

pub fn folder(metadata: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mesh.yaml"), SERVICE.to_string() + &group(metadata)).unwrap();
    dir
}

pub fn with_grace(folder: &Path, grace: Duration) -> Settings {
    let mut settings = settings(&[folder], None);
    settings.features.workload_entry_grace_period = grace;
    settings
}

pub async fn run(settings: Settings) -> Running {
    let running = app::build(settings, Shutdown::default()).await.unwrap();
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    running
}

pub fn node(ip: &str, changes: Value) -> Node {
    let mut metadata = json!({"AUTO_REGISTER_GROUP": "vms", "NAMESPACE": "shop", "SERVICE_ACCOUNT": "payments"});
    for (key, value) in changes.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    let id = format!("sidecar~{ip}~vm.shop~shop.svc.cluster.local");
    from_json(&json!({"id": id, "metadata": metadata}), true).unwrap()
}

/// A proxy that registers and has its first configuration.
pub async fn workload(running: &Running, ip: &str) -> SotwStream {
    connect(running, node(ip, json!({}))).await.unwrap()
}

async fn connect(running: &Running, node: Node) -> Result<SotwStream, ClientError> {
    connect_to(running.addresses.grpc, node).await
}

/// The same at an address.
pub async fn connect_to(grpc: SocketAddr, node: Node) -> Result<SotwStream, ClientError> {
    let client = AdsClient::connect(grpc, "10.0.0.1").await?.with_node(node);
    let mut stream = client.sotw(None).await?;
    stream.subscribe(ResourceType::Cluster, &[], "").await?;
    stream.next().await?;
    Ok(stream)
}

fn health(why_not: Option<&str>) -> DiscoveryRequest {
    let error = why_not.map(|m| google::rpc::Status { code: 500, message: m.to_string(), details: Vec::new() });
    DiscoveryRequest { type_url: HEALTH.to_string(), error_detail: error, ..DiscoveryRequest::default() }
}

/// Another proxy, which calls the service.
struct Caller(SotwStream);

impl Caller {
    async fn of(running: &Running) -> Self {
        let client = AdsClient::connect(running.addresses.grpc, "10.0.0.99").await.unwrap();
        let mut stream = client.sotw(None).await.unwrap();
        stream.subscribe(ResourceType::Endpoint, &["outbound|80||api.example"], "").await.unwrap();
        Self(stream)
    }

    /// Waits until it is told of these endpoints; every answer until then has at least `least` of them.
    async fn until(&mut self, wanted: &[&str], least: usize) {
        let wait = async {
            loop {
                let response = match self.0.next().await {
                    Err(ClientError::Silence) => continue,
                    response => response.unwrap(),
                };
                self.0.subscribe(ResourceType::Endpoint, &["outbound|80||api.example"], &response.nonce).await.unwrap();
                let told = endpoints(&response.resources[0].value);
                if told == wanted {
                    return;
                }
                assert!(told.len() >= least, "{told:?} on the way to {wanted:?}");
            }
        };
        tokio::time::timeout(DEADLINE * 2, wait).await.unwrap_or_else(|_| panic!("{wanted:?} does not come"));
    }
}

fn endpoints(assignment: &[u8]) -> Vec<String> {
    let assignment = ClusterLoadAssignment::decode(assignment).unwrap();
    let all = assignment.endpoints.iter().flat_map(|l| &l.lb_endpoints);
    let text = |address: &Value| format!("{}:{}", address["address"].as_str().unwrap(), address["portValue"]);
    let mut all: Vec<String> =
        all.map(|e| text(&pilothouse::proto::to_json(e).unwrap()["endpoint"]["address"]["socketAddress"])).collect();
    all.sort();
    all
}

fn entry(running: &Running, name: &str) -> Option<Arc<Config>> {
    let snapshot = running.store.snapshot();
    snapshot.list(Kind::WorkloadEntry).iter().find(|c| &*c.meta.name == name).cloned()
}

pub async fn until_entry(running: &Running, name: &str, says: impl Fn(&Config) -> bool) -> Arc<Config> {
    let wait = async {
        loop {
            if let Some(entry) = entry(running, name).filter(|e| says(e)) {
                return entry;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(DEADLINE * 2, wait).await;
    found.unwrap_or_else(|_| panic!("{name} does not come to say it: {:#?}", entry(running, name)))
}

fn has(entry: &Config, annotation: &str) -> bool {
    entry.meta.annotations.contains_key(&format!("istio.io/{annotation}"))
}

#[actix::test]
async fn a_workload_is_an_endpoint_from_its_connection_to_the_end_of_its_grace_period() {
    let dir = folder("{labels: {tier: back}}");
    let running = run(with_grace(dir.path(), Duration::from_millis(300))).await;
    let mut caller = Caller::of(&running).await;
    caller.until(&[], 0).await;
    let first = workload(&running, "10.9.0.7").await;
    caller.until(&["10.9.0.7:8080"], 0).await;
    let stored = entry(&running, "vms-10.9.0.7").unwrap();
    assert_eq!(stored.meta.annotations["istio.io/autoRegistrationGroup"], "vms");
    assert!(has(&stored, "connectedAt") && has(&stored, "workloadController"));
    assert_eq!(stored.meta.labels["tier"], "back");

    let second = workload(&running, "10.9.0.8").await;
    caller.until(&["10.9.0.7:8080", "10.9.0.8:8080"], 1).await;
    drop(first);
    caller.until(&["10.9.0.8:8080"], 1).await;
    drop(second);
    caller.until(&[], 0).await;
    assert!(entry(&running, "vms-10.9.0.8").is_none());

    // The group is deleted with its entry; it comes back, and so does the entry of the workload that is still connected.
    let _third = workload(&running, "10.9.0.9").await;
    caller.until(&["10.9.0.9:8080"], 0).await;
    fs::write(dir.path().join("mesh.yaml"), SERVICE).unwrap();
    caller.until(&[], 0).await;
    fs::write(dir.path().join("mesh.yaml"), SERVICE.to_string() + &group("{}")).unwrap();
    caller.until(&["10.9.0.9:8080"], 0).await;
    end(running).await;
}

#[actix::test]
async fn a_workload_under_health_checks_is_an_endpoint_while_it_says_that_it_is_well() {
    let dir = folder("{}");
    let running = run(with_grace(dir.path(), NEVER)).await;
    let mut caller = Caller::of(&running).await;
    caller.until(&[], 0).await;
    let _plain = workload(&running, "10.9.0.1").await;
    caller.until(&["10.9.0.1:8080"], 0).await;
    let probed = json!({"PROXY_CONFIG": {"readinessProbe": {"httpGet": {"port": 8080}}}});
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.1").await.unwrap();
    let client = client.with_node(node("10.9.0.2", probed));
    let mut agent = client.sotw(None).await.unwrap();
    agent.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    agent.next().await.unwrap();
    until_entry(&running, "vms-10.9.0.2", |e| e.status.is_null()).await;
    let both = ["10.9.0.1:8080", "10.9.0.2:8080"];
    for _ in 0..2 {
        agent.send(health(None)).await.unwrap();
        caller.until(&both, 1).await;
        agent.send(health(Some("it does not answer"))).await.unwrap();
        caller.until(&both[..1], 1).await;
    }
    let ill = until_entry(&running, "vms-10.9.0.2", |e| e.status["conditions"][0]["status"] == "False").await;
    assert_eq!(ill.status["conditions"][0]["type"], "Healthy");
    assert_eq!(ill.status["conditions"][0]["message"], "it does not answer");
    drop(agent);

    // The same in the other protocol, after a reconnect.
    let mut agent: DeltaStream = client.delta(None).await.unwrap();
    agent.change(ResourceType::Cluster, &["*"], &[]).await.unwrap();
    agent.next().await.unwrap();
    let well = DeltaDiscoveryRequest { type_url: HEALTH.to_string(), ..DeltaDiscoveryRequest::default() };
    agent.send(well).await.unwrap();
    caller.until(&both, 1).await;
    end(running).await;
}

#[actix::test]
async fn a_reconnect_leaves_no_gap_here_or_at_another_replica() {
    let dir = folder("{}");
    let (one, two) = (run(with_grace(dir.path(), NEVER)).await, run(with_grace(dir.path(), NEVER)).await);
    let mut caller = Caller::of(&one).await;
    let stream = workload(&one, "10.9.0.7").await;
    caller.until(&["10.9.0.7:8080"], 0).await;
    let first = entry(&one, "vms-10.9.0.7").unwrap();
    drop(stream);
    until_entry(&one, "vms-10.9.0.7", |e| has(e, "disconnectedAt") && !has(e, "connectedAt")).await;
    let _stream = workload(&one, "10.9.0.7").await;
    let again = until_entry(&one, "vms-10.9.0.7", |e| has(e, "connectedAt") && !has(e, "disconnectedAt")).await;
    assert!(again.meta.annotations["istio.io/connectedAt"] > first.meta.annotations["istio.io/connectedAt"]);
    let _other = workload(&two, "10.9.0.7").await;
    Caller::of(&two).await.until(&["10.9.0.7:8080"], 0).await;
    let _new = workload(&one, "10.9.0.8").await;
    caller.until(&["10.9.0.7:8080", "10.9.0.8:8080"], 1).await;
    end(one).await;
    end(two).await;
}

#[actix::test]
async fn entries_outlive_the_process_and_wait_for_their_proxies() {
    let (dir, state) = (folder("{}"), tempfile::tempdir().unwrap());
    let kept = |grace| {
        let mut settings = with_grace(dir.path(), grace);
        settings.state.folder = Some(state.path().to_path_buf());
        settings
    };
    let running = run(kept(NEVER)).await;
    let _streams = (workload(&running, "10.9.0.7").await, workload(&running, "10.9.0.8").await);
    let former = until_entry(&running, "vms-10.9.0.8", |_| true).await;
    let former = former.meta.annotations["istio.io/workloadController"].clone();
    end(running).await;

    let running = run(kept(NEVER)).await;
    let mut caller = Caller::of(&running).await;
    caller.until(&["10.9.0.7:8080", "10.9.0.8:8080"], 2).await;
    let restored = entry(&running, "vms-10.9.0.7").unwrap();
    assert!(has(&restored, "disconnectedAt"));
    let controller = |entry: &Config| entry.meta.annotations["istio.io/workloadController"].clone();
    assert_ne!(controller(&restored), former, "the process that looks after them now is this one");
    let _stream = workload(&running, "10.9.0.7").await;
    until_entry(&running, "vms-10.9.0.7", |e| has(e, "connectedAt")).await;
    end(running).await;

    // An entry whose proxy does not come back is cleaned up after the grace period.
    let running = run(kept(Duration::from_millis(200))).await;
    let _stream = workload(&running, "10.9.0.7").await;
    Caller::of(&running).await.until(&["10.9.0.7:8080"], 1).await;
    end(running).await;
}

#[actix::test]
async fn another_identity_or_an_unknown_group_is_refused() {
    let dir = folder("{}");
    let running = run(with_grace(dir.path(), NEVER)).await;
    for (changes, code) in [
        (json!({"SERVICE_ACCOUNT": "thief"}), tonic::Code::PermissionDenied),
        (json!({"AUTO_REGISTER_GROUP": "nobody"}), tonic::Code::FailedPrecondition),
        (json!({"NETWORK": "not/a/name"}), tonic::Code::InvalidArgument),
        (json!({"AUTO_REGISTER_GROUP": null, "WORKLOAD_ENTRY": "nobody"}), tonic::Code::FailedPrecondition),
        (json!({"AUTO_REGISTER_GROUP": null, "WORKLOAD_ENTRY": "../pods/x"}), tonic::Code::InvalidArgument),
    ] {
        match connect(&running, node("10.9.0.7", changes.clone())).await {
            Err(ClientError::Status(status)) => assert_eq!(status.code(), code, "{changes}: {status}"),
            other => panic!("{changes}: {other:?}"),
        }
    }
    assert!(running.store.snapshot().list(Kind::WorkloadEntry).is_empty());
    let _stream = workload(&running, "10.9.0.7").await;
    match connect(&running, node("10.9.0.7", json!({"SERVICE_ACCOUNT": "thief"}))).await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), tonic::Code::PermissionDenied),
        other => panic!("an entry of another account: {other:?}"),
    }
    end(running).await;
}

#[actix::test]
async fn made_up_machines_are_bounded_and_known_ones_come_back() {
    let dir = folder("{}");
    let mut bounded = with_grace(dir.path(), NEVER);
    bounded.registration.per_group = 2;
    let running = run(bounded).await;
    let (first, _second) = (workload(&running, "10.9.0.1").await, workload(&running, "10.9.0.2").await);
    match connect(&running, node("10.9.0.3", json!({}))).await {
        Err(ClientError::Status(status)) => {
            assert_eq!(status.code(), tonic::Code::Unavailable);
            assert!(status.message().contains("--max-registrations-per-group"), "{status}");
        }
        other => panic!("a third machine: {other:?}"),
    }
    drop(first);
    until_entry(&running, "vms-10.9.0.1", |e| has(e, "disconnectedAt")).await;
    let _again = workload(&running, "10.9.0.1").await;
    assert!(entry(&running, "vms-10.9.0.3").is_none());
    end(running).await;
}

#[actix::test]
async fn the_first_answer_to_a_workload_that_registers_holds_its_services() {
    let folder = folder("{}");
    let mut settings = with_grace(folder.path(), NEVER);
    // Long enough for an answer that does not wait to come first.
    settings.features.debounce_after = Duration::from_millis(500);
    let running = run(settings).await;
    let node = node("10.0.0.7", json!({}));
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.7").await.unwrap().with_node(node);
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let clusters = stream.next().await.unwrap().resources;
    let names = clusters.iter().map(|any| Cluster::decode(any.value.as_ref()).unwrap().name).collect::<Vec<_>>();
    assert!(names.iter().any(|name| name == "inbound|8080||"), "{names:?}");
    end(running).await;
}
