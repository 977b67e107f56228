//! The dashboard in a real browser: each view and each action, light and dark, by the keyboard, live; and with a large mesh.
//!
//! `programs/dashboard.mjs` holds the checks. Each also fails on an error in the browser's console, on a request to elsewhere, and on
//! a view that lacks landmarks, labels or headers.

use std::{env, ffi::OsStr, fs, path::PathBuf, process::Command, thread, time::Duration};

use pilothouse::{
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        google::rpc::Status,
    },
    testing::{AdsClient, SotwStream},
    xds::ResourceType::Cluster,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    config::{document, gateway, object},
    mesh::ControlPlane,
    process::{Process, wait_for, wait_until},
    skipped::skipped,
    tools::{browser, program},
};

/// A service of one workload with a service account; `proxy` says whether the workload has a proxy.
fn workload(name: &str, number: usize, proxy: bool) -> String {
    let mode = if proxy { "istio" } else { "disabled" };
    let labels = json!({"app": name, "security.istio.io/tlsMode": mode});
    let address = format!("10.{}.{}.{}", 1 + number / 62_500, number / 250 % 250, 1 + number % 250);
    object(
        "ServiceEntry",
        &format!("{name}-example"),
        &json!({
            "hosts": [format!("{name}.example")], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "endpoints": [{"address": address, "labels": labels, "serviceAccount": name, "locality": "eu/a"}],
        }),
    )
}

/// A mesh of four services in which only `web` may call `cart`, with a route to nowhere, a refused document and a Secret.
fn shop() -> Vec<(&'static str, String)> {
    let strict =
        document("security.istio.io/v1", "PeerAuthentication", "default", &json!({"mtls": {"mode": "STRICT"}}));
    let from_web = json!({"selector": {"matchLabels": {"app": "cart"}},
        "rules": [{"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/web"]}}]}]});
    let policy = document("security.istio.io/v1", "AuthorizationPolicy", "cart", &from_web);
    let pool = json!({"host": "cart.example", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1s"}}}});
    let services = ["web", "cart", "other", "plain"].iter().enumerate();
    let services: String = services.map(|(n, name)| workload(name, n, *name != "plain")).collect();
    let route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n  name: broken\n  namespace: shop\nspec:\n  hosts:\n  \
                 - broken.example\n  gateways:\n  - nowhere\n  http:\n  - route:\n    - destination:\n        host: web.example\n";
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: hidden, namespace: shop}\ndata: {key: aHVzaA==}\n";
    vec![
        ("shop.yaml", services + &strict + &policy + &object("DestinationRule", "cart", &pool) + &gateway(8080)),
        ("route.yaml", route.to_string()),
        ("refused.yaml", REFUSED.to_string() + &refused("x<img src=x onerror=alert(1)>")),
        ("secret.yaml", secret.to_string()),
    ]
}

/// A document that is refused, in lines.
const REFUSED: &str = "\
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  name: refused
  namespace: shop
spec:
  host: web.example
  trafficPolicy: 7
";

/// As [`REFUSED`], on one line.
fn refused(name: &str) -> String {
    object("DestinationRule", name, &json!({"host": "web.example", "trafficPolicy": 7}))
}

/// A running mesh with clients.
struct Stage {
    plane: ControlPlane,
    runtime: Runtime,
}

async fn client(plane: &ControlPlane, name: &str) -> SotwStream {
    let address = format!("127.0.0.1:{}", plane.grpc_port).parse().unwrap();
    let node = Node { id: format!("sidecar~10.0.0.1~{name}.shop~shop.svc.cluster.local"), ..Node::default() };
    let client = AdsClient::connect(address, "10.0.0.1").await.unwrap().with_node(node);
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(Cluster, &[], "").await.unwrap();
    stream
}

/// Accepts everything, as long as the stream lasts.
async fn accept(mut stream: SotwStream) {
    loop {
        match stream.next().await {
            Ok(response) => drop(stream.subscribe(Cluster, &[], &response.nonce).await),
            Err(pilothouse::testing::ClientError::Silence) => {}
            Err(_) => return,
        }
    }
}

impl Stage {
    /// One client that holds everything, and one that refuses the cluster of a service and is silent since.
    fn set(more: &[(&str, String)]) -> Self {
        let files: Vec<_> = shop().into_iter().chain(more.iter().cloned()).collect();
        let (plane, runtime) = (ControlPlane::start(&files), Runtime::new().unwrap());
        runtime.block_on(async {
            tokio::spawn(accept(client(&plane, "cart").await));
            let mut refuses = client(&plane, "web").await;
            let response = refuses.next().await.unwrap();
            let message = "Error adding/updating cluster(s) outbound|80||web.example: no good".to_string();
            let refusal = DiscoveryRequest {
                type_url: Cluster.url().to_string(),
                response_nonce: response.nonce,
                error_detail: Some(Status { code: 3, message, ..Status::default() }),
                ..DiscoveryRequest::default()
            };
            refuses.send(refusal).await.unwrap();
            tokio::spawn(async move {
                let _open = refuses;
                std::future::pending::<()>().await;
            });
        });
        let stage = Self { plane, runtime };
        stage.until("a refusal and a client that holds everything", "/dashboard/api/fleet", |fleet| {
            fleet["counts"]["refused"] == 1 && fleet["counts"]["in sync"] == 1
        });
        stage
    }

    fn until(&self, what: &str, path: &str, says: impl Fn(&Value) -> bool) {
        wait_until(what, || {
            let value = self.plane.debug(path);
            if says(&value) { Ok(()) } else { Err(value.to_string()) }
        });
    }

    /// Runs one check of the program.
    fn holds(&self, check: &str) {
        let Some(mut node) = browser() else { return };
        let output = self.command(&mut node, check).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{check}: {said}");
    }

    fn command<'a>(&self, node: &'a mut Command, check: &str) -> &'a mut Command {
        let pictures: Option<PathBuf> = env::var_os("PILOTHOUSE_SCREENSHOTS").map(PathBuf::from);
        node.arg(program("dashboard.mjs")).arg(format!("http://127.0.0.1:{}", self.plane.http_port));
        node.arg(&self.plane.configs).arg(check).args(pictures.as_deref().map(OsStr::new))
    }
}

#[test]
fn the_fleet_traces_a_refusal_to_its_object_and_line() {
    Stage::set(&[]).holds("fleet");
}

#[test]
fn services_have_a_graph_and_answers_to_calls() {
    Stage::set(&[]).holds("services");
}

#[test]
fn an_object_shows_errors_at_their_lines_and_its_resources() {
    Stage::set(&[]).holds("objects");
}

#[test]
fn a_proxy_shows_its_resources_their_origins_and_the_difference_from_now() {
    Stage::set(&[]).holds("proxy");
}

#[test]
fn pushes_have_causes_and_stages() {
    Stage::set(&[]).holds("pushes");
}

#[test]
fn a_held_deletion_is_confirmed_by_its_button() {
    let mass: String = (0..20).map(|n| workload(&format!("e{n}"), 100 + n, true)).collect();
    let stage = Stage::set(&[("mass.yaml", mass)]);
    fs::remove_file(stage.plane.configs.join("mass.yaml")).unwrap();
    stage.until("a held deletion", "/debug/sourcez", |sources| {
        sources.as_array().unwrap().iter().any(|source| source["state"] == "holding")
    });
    stage.holds("sources");
    stage.until("the deletion", "/dashboard/api/services", |services| services["total"] == 4);
}

#[test]
fn the_analysis_leads_to_objects() {
    Stage::set(&[]).holds("analysis");
}

#[test]
fn the_page_is_readable_in_light_and_dark() {
    Stage::set(&[]).holds("themes");
}

#[test]
fn everything_is_done_by_the_keyboard() {
    Stage::set(&[]).holds("keyboard");
}

#[test]
fn changes_are_shown_as_they_come() {
    Stage::set(&[]).holds("live");
}

#[test]
fn many_pages_of_one_browser_are_live() {
    Stage::set(&[]).holds("tabs");
}

/// Seconds of processor time that a process has taken.
fn seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = [11, 12].iter().map(|field| fields[*field].parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

/// 10,000 services and 1,000 proxies: the page opens within a second and stays below 100 MB, and ten open pages cost the server no
/// more than a hundredth of a core. `PILOTHOUSE_LARGE_PAGE=1 cargo test --release --test clients -- --nocapture a_large_mesh` tells
/// the figures.
#[test]
fn a_large_mesh_opens_at_once_and_costs_little() {
    if env::var_os("PILOTHOUSE_LARGE_PAGE").is_none() {
        return skipped("PILOTHOUSE_LARGE_PAGE is not set, and 10,000 services with 1,000 proxies take minutes");
    }
    let services: String = (0..10_000).map(|n| workload(&format!("s{n:05}"), n, n % 2 == 0)).collect();
    let plane = ControlPlane::start(&[("mesh.yaml", services)]);
    let runtime = Runtime::new().unwrap();
    let stage = Stage { plane, runtime };
    stage.until("10,000 services", "/dashboard/api/services", |services| services["total"] == 10_000);
    stage.runtime.block_on(async {
        for n in 0..1000 {
            tokio::spawn(accept(client(&stage.plane, &format!("p{n}")).await));
        }
    });
    stage.until("1,000 proxies", "/dashboard/api/fleet", |fleet| fleet["counts"]["in sync"] == 1000);
    thread::sleep(Duration::from_secs(5));
    let server = stage.plane.process.id();
    let over = |pause: u64| {
        let before = seconds(server);
        thread::sleep(Duration::from_secs(pause));
        (seconds(server) - before) / pause as f64
    };
    let without = over(30);
    let Some(mut node) = browser() else { return };
    let opened = PathBuf::from(format!("{}.profile/ten-pages-open", stage.plane.configs.display()));
    let mut running = Process::start("pages", stage.command(&mut node, "load").env("PAGES_OPEN_MS", "60000"));
    wait_for("ten open pages", || opened.exists().then_some(()));
    thread::sleep(Duration::from_secs(5));
    let with = over(30);
    let said = fs::read_to_string(&running.log).unwrap();
    let figures = said.lines().find_map(|line| line.strip_prefix("FIGURES ")).unwrap_or_else(|| panic!("{said}"));
    let figures: Value = serde_json::from_str(figures).unwrap();
    println!("{figures}; of a core: {without:.4} without pages, {with:.4} with ten");
    running.kill();
    assert!(figures["opened"].as_u64().unwrap() <= 1000, "{figures}");
    assert!(figures["renderer"].as_u64().unwrap() <= 100 << 20, "{figures}");
    assert!(with - without <= 0.01, "{with} of a core, {without} without");
}
