//! Remote clusters: of the command line, and of Secrets that come, change and go while the process runs.

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::ByteString;
use pilothouse::{
    app::{self, Running},
    runtime::Shutdown,
    settings::{
        AdminSettings, KubeAccess, ListenAddress, RemoteCluster, RuntimeSettings, Settings, SourceSettings,
        StateSettings, XdsSettings,
    },
    sources::{SourceReport, SourceState},
};
use serde_json::{Value, json};

use crate::{
    fake::Fake,
    stage::{DEADLINE, kubeconfig, quick},
};

const HOST: &str = "web.shop.svc.cluster.local";

/// A cluster with a service of one endpoint.
async fn cluster(address: &str) -> Fake {
    let fake = Fake::start().await;
    fake.put(
        "services",
        "shop",
        "web",
        json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80}]}}),
    );
    endpoint(&fake, address);
    fake
}

fn endpoint(fake: &Fake, address: &str) {
    fake.put_raw("endpointslices", "shop/web", |version| {
        json!({"metadata": {"name": "web", "namespace": "shop", "resourceVersion": version.to_string(),
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 80}], "endpoints": [{"addresses": [address]}]})
    });
}

async fn start(main: &Path, west: Option<&Path>, state: Option<&Path>) -> Running {
    let access = KubeAccess::Kubeconfig { path: main.to_path_buf(), context: None };
    let west = west.map(|path| RemoteCluster { name: "west".to_string(), path: path.to_path_buf() });
    let second = std::time::Duration::from_secs(1);
    let settings = Settings {
        state: StateSettings { folder: state.map(Path::to_path_buf), grace: second, ..StateSettings::default() },
        sources: SourceSettings {
            kubernetes: Some(quick(access)),
            remote_clusters: west.into_iter().collect(),
            deletion_hold: std::time::Duration::ZERO,
            ..SourceSettings::default()
        },
        xds: XdsSettings { grpc_address: ListenAddress::loopback(0), ..XdsSettings::default() },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        runtime: RuntimeSettings { first_pause: std::time::Duration::from_millis(20), ..RuntimeSettings::default() },
        ..Settings::default()
    };
    app::build(settings, Shutdown::default()).await.unwrap()
}

/// Addresses of the service by cluster.
fn endpoints(running: &Running) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Some(published) = running.state.current() else { return found };
    let Some(set) = published.context.endpoints().get(&HOST.into(), &"shop".into()) else { return found };
    for (key, endpoints) in &set.shards {
        let addresses = endpoints.iter().flat_map(|e| e.addresses.iter().map(ToString::to_string));
        found.entry(key.cluster.to_string()).or_default().extend(addresses);
    }
    found.retain(|_, addresses| !addresses.is_empty());
    found
}

fn report(running: &Running, source: &str) -> Option<SourceReport> {
    running.all_sources.find(source).map(|s| s.board.read())
}

async fn until(running: &Running, what: &str, says: impl Fn(&Running) -> bool) {
    let wait = async {
        while !says(running) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    let reports: Vec<_> = running.all_sources.all().iter().map(|s| s.board.read()).collect();
    assert!(waited.is_ok(), "{what} does not come: {:?}\n{reports:#?}", endpoints(running));
}

async fn until_endpoints(running: &Running, want: &[(&str, &str)]) {
    let want: BTreeMap<String, Vec<String>> =
        want.iter().map(|(cluster, address)| ((*cluster).to_string(), vec![(*address).to_string()])).collect();
    until(running, &format!("{want:?}"), |r| endpoints(r) == want).await;
}

/// A Secret of the main cluster that names clusters.
fn name(main: &Fake, secret: &str, clusters: &[(&str, &str)]) {
    let data: serde_json::Map<String, Value> =
        clusters.iter().map(|(id, text)| ((*id).to_string(), json!(ByteString(text.as_bytes().to_vec())))).collect();
    main.put("secrets", "istio-system", secret, json!({ "data": data }));
}

fn refusals(running: &Running) -> Vec<String> {
    let report = report(running, "kube:Kubernetes/remote-clusters").unwrap();
    report.findings.refused.into_iter().map(|r| format!("{}: {}", r.name, r.reason)).collect()
}

fn text(fake: &Fake) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::read_to_string(kubeconfig(dir.path(), &fake.url)).unwrap()
}

#[actix::test]
async fn clusters_come_change_and_go_with_their_secrets_and_a_bad_one_stops_no_other() {
    let (main, west, east) = (cluster("10.1.0.1").await, cluster("10.2.0.1").await, cluster("10.3.0.1").await);
    let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (of_main, of_west) = (kubeconfig(dirs.0.path(), &main.url), kubeconfig(dirs.1.path(), &west.url));
    let running = start(&of_main, Some(&of_west), None).await;
    until_endpoints(&running, &[("Kubernetes", "10.1.0.1"), ("west", "10.2.0.1")]).await;

    name(&main, "one", &[("east", &text(&east))]);
    let three = [("Kubernetes", "10.1.0.1"), ("east", "10.3.0.1"), ("west", "10.2.0.1")];
    until_endpoints(&running, &three).await;
    let state = |r: &Running| report(r, "kube:east/registry").map(|r| r.state);
    until(&running, "a synced source", |r| state(r) == Some(SourceState::Synced)).await;

    name(&main, "two", &[("odd", "no kubeconfig"), ("west", &text(&east)), ("Kubernetes", &text(&east))]);
    until(&running, "refusals", |r| refusals(r).len() == 3).await;
    assert_eq!(
        refusals(&running),
        [
            "two: cluster Kubernetes: this is the main cluster's id",
            "two: cluster odd: not a kubeconfig",
            "two: cluster west: it is named on the command line"
        ]
    );
    endpoint(&east, "10.3.0.2");
    until_endpoints(&running, &[three[0], ("east", "10.3.0.2"), three[2]]).await;

    // A kubeconfig that is no good takes nothing along, and one that leads elsewhere brings what is there.
    name(&main, "one", &[("east", "no kubeconfig")]);
    until(&running, "a refusal", |r| refusals(r).iter().any(|r| r.starts_with("one: cluster east"))).await;
    assert_eq!(endpoints(&running)["east"], ["10.3.0.2"]);
    let moved = cluster("10.4.0.1").await;
    name(&main, "one", &[("east", &text(&moved))]);
    until_endpoints(&running, &[three[0], ("east", "10.4.0.1"), three[2]]).await;

    moved.stop();
    until(&running, "a stale source", |r| state(r) == Some(SourceState::Stale)).await;
    assert_eq!(endpoints(&running)["east"], ["10.4.0.1"]);
    main.delete("secrets", "istio-system/one");
    until_endpoints(&running, &[three[0], three[2]]).await;
    until(&running, "no source", |r| report(r, "kube:east/registry").is_none()).await;
    end(running).await;
}

#[actix::test]
async fn a_start_without_any_cluster_remembers_those_that_secrets_named() {
    let (main, east) = (cluster("10.1.0.1").await, cluster("10.3.0.1").await);
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let of_main = kubeconfig(dir.path(), &main.url);
    name(&main, "one", &[("east", &text(&east))]);
    let both = [("Kubernetes", "10.1.0.1"), ("east", "10.3.0.1")];
    let first = start(&of_main, None, Some(state.path())).await;
    until_endpoints(&first, &both).await;
    end(first).await;

    main.stop();
    east.stop();
    let alone = start(&of_main, None, Some(state.path())).await;
    until(&alone, "readiness", |r| r.readiness.is_ready()).await;
    until_endpoints(&alone, &both).await;
    let old = |r: &Running| report(r, "kube:east/registry").is_some_and(|r| r.saved_at.is_some());
    until(&alone, "old content", old).await;

    main.resume().await;
    east.resume().await;
    endpoint(&east, "10.3.0.2");
    until_endpoints(&alone, &[both[0], ("east", "10.3.0.2")]).await;
    main.delete("secrets", "istio-system/one");
    until_endpoints(&alone, &both[..1]).await;
    end(alone).await;

    main.stop();
    let without = start(&of_main, None, Some(state.path())).await;
    until(&without, "readiness", |r| r.readiness.is_ready()).await;
    assert!(report(&without, "kube:east/registry").is_none(), "what was removed stays removed");
    end(without).await;
}

async fn end(running: Running) {
    running.shutdown.begin();
    tokio::time::timeout(DEADLINE, running.wait()).await.unwrap().unwrap();
}
