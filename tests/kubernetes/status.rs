//! Statuses written to a real API server: by one process at a time, once, and without touching fields of other owners.

use std::{net::SocketAddr, path::Path, time::Duration};

use pilothouse::{
    app::Running,
    model::Features,
    settings::{KubeAccess, KubeSettings, LeaseSettings, Settings, SourceSettings},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub use crate::running::end;
use crate::{
    gate::{Gate, install, manifest},
    real::{Admin, everything},
    running::{run, settings},
    stage::{DEADLINE, quick},
};

pub async fn start(kubeconfig: &Path) -> Running {
    start_with(kubeconfig, Features { enable_status: true, ..Features::default() }).await
}

pub async fn start_with(kubeconfig: &Path, features: Features) -> Running {
    let access = KubeAccess::Kubeconfig { path: kubeconfig.to_path_buf(), context: None };
    let lease = LeaseSettings { look: Duration::from_millis(200), ..LeaseSettings::default() };
    let kubernetes = KubeSettings { write_status: true, lease, ..quick(access) };
    let sources = SourceSettings { kubernetes: Some(kubernetes), ..SourceSettings::default() };
    run(Settings { features, ..settings(sources) }).await
}

pub async fn until(admin: &Admin, object: &Value, says: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let wait = async {
        loop {
            last = admin.get(object).await;
            if says(&last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    assert!(waited.is_ok(), "{last:#}");
    last
}

fn entry(name: &str) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hosts": [format!("{name}.example")], "resolution": "DNS",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}})
}

pub fn addresses(object: &Value) -> Vec<&str> {
    object["status"]["addresses"].as_array().into_iter().flatten().filter_map(|a| a["value"].as_str()).collect()
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let list = object["status"]["conditions"].as_array();
    list.into_iter().flatten().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[actix::test]
async fn statuses_are_written_by_the_holder_of_the_lease_and_once() {
    let Some((server, admin)) = everything().await else { return };
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "edge"}, "spec": {"controllerName": "istio.io/gateway-controller"}});
    admin.apply_soon(&entry("first")).await;
    admin.apply_soon(&class).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "pilothouse-leader", "namespace": "istio-system"}});

    let one = start(&server.kubeconfig).await;
    let first =
        until(&admin, &entry("first"), |o| addresses(o).len() == 2 && condition(o, "Reconciled")["status"] == "True")
            .await;
    assert_eq!(addresses(&first), ["240.240.0.1", "2001:2::1"]);
    let accepted = until(&admin, &class, |o| condition(o, "Accepted")["status"] == "True").await;
    let holder = admin.get(&lease).await["spec"]["holderIdentity"].clone();

    let two = start(&server.kubeconfig).await;
    admin.apply(&entry("second")).await;
    let second = until(&admin, &entry("second"), |o| addresses(o).len() == 2).await;
    assert_eq!(addresses(&second), ["240.240.0.2", "2001:2::2"]);
    assert_eq!(admin.get(&lease).await["spec"]["holderIdentity"], holder, "the first one still leads");
    let version = |o: &Value| o["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&admin.get(&entry("first")).await), version(&first), "an equal status is not written");
    assert_eq!(version(&admin.get(&class).await), version(&accepted));

    end(one).await;
    admin.apply(&entry("third")).await;
    let third = until(&admin, &entry("third"), |o| addresses(o).len() == 2).await;
    assert_eq!(addresses(&third), ["240.240.0.3", "2001:2::3"]);
    let held = admin.get(&lease).await;
    assert_ne!(held["spec"]["holderIdentity"], holder);
    assert_eq!(
        addresses(&admin.get(&entry("first")).await),
        addresses(&first),
        "a new leader keeps assigned addresses"
    );
    assert_eq!(condition(&admin.get(&class).await, "Accepted"), condition(&accepted, "Accepted"));
    end(two).await;
    assert_eq!(admin.get(&lease).await["spec"]["holderIdentity"], "", "given back");
}

#[actix::test]
async fn messages_of_the_analysis_are_in_the_status_until_their_cause_is_gone() {
    let Some((server, admin)) = everything().await else { return };
    let routes = json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "routes", "namespace": "shop"},
        "spec": {"hosts": ["a.example"], "gateways": ["edge"], "http": [{"directResponse": {"status": 200}}]}});
    let gateway = json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "shop"},
        "spec": {"servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["a.example"]}]}});
    let other = json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": {"name": "other", "namespace": "shop"}, "spec": gateway["spec"]});
    admin.apply_soon(&routes).await;
    admin.apply_soon(&other).await;
    let process = start_with(&server.kubeconfig, Features { enable_analysis: true, ..Features::default() }).await;
    let codes = |object: &Value| {
        let messages = object["status"]["validationMessages"].as_array().cloned();
        messages.map(|m| m.iter().map(|m| m["type"]["code"].as_str().unwrap().to_string()).collect::<Vec<_>>())
    };
    let told = until(&admin, &routes, |o| codes(o).is_some_and(|codes| codes == ["IST0101", "IST0132"])).await;
    assert_eq!(told["status"]["validationMessages"][0]["level"], "ERROR");
    assert_eq!(condition(&told, "Reconciled"), &Value::Null, "conditions have a flag of their own");
    admin.apply(&gateway).await;
    until(&admin, &routes, |o| codes(o).is_some_and(|codes| codes.is_empty())).await;
    end(process).await;
}

async fn page(server: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
}

#[actix::test]
async fn a_status_that_may_not_be_written_is_told_and_written_once_it_may() {
    let Some((_server, admin)) = everything().await else { return };
    install(&admin).await;
    let of_statuses = |rule: &Value| rule["resources"].as_array().unwrap().iter().any(|r| r == "serviceentries/status");
    let grants = |role: &Value| role["rules"].as_array().is_some_and(|rules| rules.iter().any(of_statuses));
    let whole = manifest().into_iter().find(|o| o["kind"] == "ClusterRole" && grants(o)).unwrap();
    let mut less = whole.clone();
    for rule in less["rules"].as_array_mut().unwrap() {
        rule["resources"].as_array_mut().unwrap().retain(|r| r != "serviceentries/status");
    }
    admin.apply(&less).await;
    let gate = Gate::start(&admin).await;
    let dir = tempfile::tempdir().unwrap();
    let process = start(&gate.kubeconfig(dir.path(), "sa:istio-system:pilothouse")).await;
    admin.apply_soon(&entry("first")).await;
    let failure = async {
        loop {
            let page = page(process.addresses.http, "/debug/leaderz").await;
            if page["failed"].as_u64().is_some_and(|failed| failed > 0) {
                return page["last_failure"].clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let failure = tokio::time::timeout(DEADLINE, failure).await.unwrap();
    assert!(failure["object"].as_str().is_some_and(|object| object.contains("shop/first")), "{failure}");
    assert!(failure["error"].as_str().is_some_and(|error| error.contains("serviceentries/status")), "{failure}");
    admin.apply(&whole).await;
    gate.read_again(&admin).await;
    until(&admin, &entry("first"), |o| addresses(o).len() == 2).await;
    end(process).await;
}
