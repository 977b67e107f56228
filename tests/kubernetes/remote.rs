//! Remote clusters: of the command line, and of Secrets that come, change and go while the process runs.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use k8s_openapi::ByteString;
use pilothouse::{
    app::Running,
    model::{Endpoint, Kind, ShardKey},
    settings::{KubeAccess, RemoteCluster, RuntimeSettings, Settings, SourceSettings, StateSettings},
    sources::{SourceReport, SourceState},
};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Fault, When},
    running::{end, run, settings, until},
    stage::{kubeconfig, quick},
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
    start_with(main, west, state, |_| {}).await
}

async fn start_with(
    main: &Path,
    west: Option<&Path>,
    state: Option<&Path>,
    change: impl FnOnce(&mut Settings),
) -> Running {
    let access = KubeAccess::Kubeconfig { path: main.to_path_buf(), context: None };
    let west = west.map(|path| RemoteCluster { name: "west".to_string(), path: path.to_path_buf() });
    let second = std::time::Duration::from_secs(1);
    let sources = SourceSettings {
        kubernetes: Some(quick(access)),
        remote_clusters: west.into_iter().collect(),
        deletion_hold: std::time::Duration::ZERO,
        ..SourceSettings::default()
    };
    let mut settings = Settings {
        state: StateSettings { folder: state.map(Path::to_path_buf), grace: second, ..StateSettings::default() },
        runtime: RuntimeSettings { first_pause: std::time::Duration::from_millis(20), ..RuntimeSettings::default() },
        ..settings(sources)
    };
    change(&mut settings);
    run(settings).await
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
    report.findings.refused.iter().map(|r| format!("{}: {}", r.name, r.reason)).collect()
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

    // An invalid kubeconfig removes nothing, and one that leads elsewhere brings the objects of that cluster.
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

/// The actor of the remote clusters restarted this often.
fn restarts(running: &Running) -> u32 {
    let queues = running.supervision.reports();
    queues.iter().find(|queue| &*queue.actor == "remote-clusters").map_or(0, |queue| queue.restarts)
}

#[actix::test]
async fn a_fault_of_their_actor_leaves_remote_clusters_served_and_loses_no_secret() {
    let (main, west, east) = (cluster("10.1.0.1").await, cluster("10.2.0.1").await, cluster("10.3.0.1").await);
    let dir = tempfile::tempdir().unwrap();
    name(&main, "one", &[("east", &text(&east))]);
    let running = start(&kubeconfig(dir.path(), &main.url), None, None).await;
    let three = [("Kubernetes", "10.1.0.1"), ("east", "10.3.0.1"), ("west", "10.2.0.1")];
    until_endpoints(&running, &three[..2]).await;
    let before = running.all_sources.find("kube:east/registry").unwrap();
    let lists = || east.seen().iter().filter(|s| s.path.ends_with("/services")).count();
    let listed = lists();

    running.supervision.faults().order("remote-clusters", 1);
    name(&main, "two", &[("west", &text(&west))]);
    until(&running, "a restart", |r| restarts(r) == 1).await;
    assert_eq!(endpoints(&running)["east"], ["10.3.0.1"]);
    until_endpoints(&running, &three).await;
    let after = running.all_sources.find("kube:east/registry").unwrap();
    assert!(Arc::ptr_eq(&before.board, &after.board), "the sources of a cluster do not restart with their actor");
    assert_eq!((after.board.read().restarts, lists()), (0, listed));
    endpoint(&east, "10.3.0.2");
    until_endpoints(&running, &[three[0], ("east", "10.3.0.2"), three[2]]).await;

    running.supervision.faults().order("remote-clusters", 1);
    main.delete("secrets", "istio-system/one");
    until(&running, "another restart", |r| restarts(r) == 2).await;
    until_endpoints(&running, &[three[0], three[2]]).await;
    let status = |r: &Running| {
        let statuses = r.all_sources.remotes().statuses();
        statuses.iter().map(|s| format!("{} {} {:?}", s.id, s.secret_name, s.sync_status)).collect::<Vec<_>>()
    };
    until(&running, "the statuses", |r| status(r) == ["Kubernetes  Synced", "west istio-system/two Synced"]).await;
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
    assert!(report(&without, "kube:east/registry").is_none(), "a removed cluster stays removed");
    end(without).await;
}

#[actix::test]
async fn a_remote_cluster_that_does_not_answer_delays_the_start_as_long_as_is_said() {
    let (main, west) = (cluster("10.1.0.1").await, cluster("10.2.0.1").await);
    let dir = tempfile::tempdir().unwrap();
    let (of_main, of_west) = (kubeconfig(dir.path(), &main.url), dir.path().join("west"));
    std::fs::create_dir(&of_west).unwrap();
    let of_west = kubeconfig(&of_west, &west.url);
    west.fail(When::List("services"), Fault::Silence, usize::MAX);
    let patience = |time| move |s: &mut Settings| s.sources.remotes.patience = time;
    let short = patience(std::time::Duration::from_millis(300));
    let running = start_with(&of_main, Some(&of_west), None, short).await;
    until(&running, "readiness without the cluster", |r| r.readiness.is_ready()).await;
    until_endpoints(&running, &[("Kubernetes", "10.1.0.1")]).await;
    end(running).await;

    let running = start_with(&of_main, Some(&of_west), None, patience(std::time::Duration::ZERO)).await;
    let of_main_synced = |r: &Running| r.sources.iter().all(|s| s.board.read().state == SourceState::Synced);
    until(&running, "the main cluster", of_main_synced).await;
    let asked = west.seen().iter().filter(|s| s.path.ends_with("/services")).count();
    until(&running, "another attempt", |_| {
        west.seen().iter().filter(|s| s.path.ends_with("/services")).count() > asked
    })
    .await;
    assert!(!running.readiness.is_ready(), "zero waits without a bound");
    west.heal();
    until(&running, "readiness", |r| r.readiness.is_ready()).await;
    until_endpoints(&running, &[("Kubernetes", "10.1.0.1"), ("west", "10.2.0.1")]).await;
    end(running).await;
}

fn hide_crds(fake: &Fake) {
    let no = r#"{"kind":"Status","message":"no","reason":"Forbidden","code":403}"#;
    fake.fail(When::List("customresourcedefinitions"), Fault::Status(403, no, Vec::new()), usize::MAX);
}

/// A service `vm` that selects WorkloadEntries, and one of these.
fn machine(fake: &Fake) {
    let ports = json!([{"name": "http", "port": 80}]);
    let spec = json!({"clusterIP": "10.0.0.9", "ports": ports, "selector": {"app": "vm"}});
    fake.put("services", "shop", "vm", json!({ "spec": spec }));
    let spec = json!({"address": "10.7.0.1", "labels": {"app": "vm"}, "serviceAccount": "vm"});
    fake.put("workloadentries", "shop", "vm", json!({ "spec": spec }));
}

fn endpoints_of(running: &Running, host: &str) -> Vec<(String, String, String)> {
    let Some(published) = running.state.current() else { return Vec::new() };
    let Some(set) = published.context.endpoints().get(&host.into(), &"shop".into()) else { return Vec::new() };
    let all = set.shards.iter().flat_map(|(key, endpoints)| endpoints.iter().map(move |e| (key, e)));
    let of = |(key, e): (&ShardKey, &Arc<Endpoint>)| {
        (key.cluster.to_string(), e.addresses[0].to_string(), e.service_account.to_string())
    };
    all.map(of).collect()
}

#[actix::test]
async fn workload_entries_of_a_remote_cluster_are_workloads_of_its_services() {
    let (main, west) = (cluster("10.1.0.1").await, cluster("10.2.0.1").await);
    hide_crds(&west);
    machine(&west);
    let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (of_main, of_west) = (kubeconfig(dirs.0.path(), &main.url), kubeconfig(dirs.1.path(), &west.url));
    let running = start(&of_main, Some(&of_west), None).await;
    let want = ("west".to_string(), "10.7.0.1".to_string(), "spiffe://cluster.local/ns/shop/sa/vm".to_string());
    until(&running, "the machine", |r| endpoints_of(r, "vm.shop.svc.cluster.local") == [want.clone()]).await;
    west.delete("workloadentries", "shop/vm");
    until(&running, "no machine", |r| endpoints_of(r, "vm.shop.svc.cluster.local").is_empty()).await;
    end(running).await;

    machine(&west);
    let without = start_with(&of_main, Some(&of_west), None, |s| {
        s.sources.remotes.left_out.insert(Kind::WorkloadEntry);
    })
    .await;
    until_endpoints(&without, &[("Kubernetes", "10.1.0.1"), ("west", "10.2.0.1")]).await;
    let feeds = report(&without, "kube:west/registry").unwrap().feeds;
    assert!(!feeds.iter().any(|f| f.resource.starts_with("workloadentries")), "{feeds:?}");
    end(without).await;
}

#[actix::test]
async fn workloads_of_a_remote_cluster_are_of_its_trust_domain() {
    const POD: &str = "10.2.0.7";
    let (main, west) = (cluster("10.1.0.1").await, cluster(POD).await);
    west.put_raw("pods", "shop/web", |version| {
        json!({"metadata": {"name": "web", "namespace": "shop", "resourceVersion": version.to_string()},
            "spec": {"serviceAccountName": "web", "containers": []}, "status": {"phase": "Running", "podIP": POD}})
    });
    west.put_raw("endpointslices", "shop/web", |version| {
        let target = json!({"kind": "Pod", "name": "web", "namespace": "shop"});
        json!({"metadata": {"name": "web", "namespace": "shop", "resourceVersion": version.to_string(),
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 80}],
            "endpoints": [{"addresses": [POD], "targetRef": target}]})
    });
    let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (of_main, of_west) = (kubeconfig(dirs.0.path(), &main.url), kubeconfig(dirs.1.path(), &west.url));
    let running = start(&of_main, Some(&of_west), None).await;
    let accounts = |r: &Running| -> Vec<String> {
        endpoints_of(r, HOST).into_iter().filter(|e| e.0 == "west").map(|e| e.2).collect()
    };
    let of = |domain: &str| vec![format!("spiffe://{domain}/ns/shop/sa/web")];
    until(&running, "our own trust domain", |r| accounts(r) == of("cluster.local")).await;
    let settings = |domain: &str| json!({"data": {"mesh": format!("trustDomain: {domain}\n")}});
    west.put("configmaps", "istio-system", "istio", settings("west.example"));
    until(&running, "its trust domain", |r| accounts(r) == of("west.example")).await;
    west.put("configmaps", "istio-system", "istio", settings("other.example"));
    until(&running, "its other trust domain", |r| accounts(r) == of("other.example")).await;
    west.delete("configmaps", "istio-system/istio");
    until(&running, "our own trust domain again", |r| accounts(r) == of("cluster.local")).await;
    end(running).await;
}

#[actix::test]
async fn kubeconfigs_of_a_folder_name_clusters_instead_of_secrets() {
    let (main, west, east) = (cluster("10.1.0.1").await, cluster("10.2.0.1").await, cluster("10.3.0.1").await);
    let (dir, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let of_main = kubeconfig(dir.path(), &main.url);
    let write = |id: &str, fake: &Fake| {
        let text = text(fake).replace("{cluster: c,", &format!("{{cluster: {id},"));
        let text = text.replace("clusters:\n- name: c\n", &format!("clusters:\n- name: {id}\n"));
        std::fs::write(folder.path().join(format!("{id}.yaml")), text).unwrap();
    };
    write("west", &west);
    name(&main, "one", &[("east", &text(&east))]);
    let running = start_with(&of_main, None, None, |s| {
        s.sources.remotes.kubeconfigs = Some(folder.path().to_path_buf());
    })
    .await;
    let both = [("Kubernetes", "10.1.0.1"), ("west", "10.2.0.1")];
    until_endpoints(&running, &both).await;
    write("east", &east);
    until_endpoints(&running, &[both[0], ("east", "10.3.0.1"), both[1]]).await;
    std::fs::write(folder.path().join("odd.yaml"), "no kubeconfig").unwrap();
    until(&running, "a refusal", |r| refusals(r) == ["odd.yaml: cluster odd.yaml: not a text"]).await;
    std::fs::remove_file(folder.path().join("west.yaml")).unwrap();
    until_endpoints(&running, &[both[0], ("east", "10.3.0.1")]).await;
    // A folder that is gone takes nothing along.
    std::fs::remove_dir_all(folder.path()).unwrap();
    let source = "kube:Kubernetes/remote-clusters";
    until(&running, "trouble", |r| report(r, source).is_some_and(|r| r.state == SourceState::Stale)).await;
    assert_eq!(endpoints(&running)["east"], ["10.3.0.1"]);
    end(running).await;
}

#[actix::test]
async fn secrets_may_stand_in_another_cluster_than_the_main_one() {
    let (main, own, east) = (cluster("10.1.0.1").await, Fake::start().await, cluster("10.3.0.1").await);
    let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (of_main, of_own) = (kubeconfig(dirs.0.path(), &main.url), kubeconfig(dirs.1.path(), &own.url));
    name(&own, "one", &[("east", &text(&east))]);
    let running = start_with(&of_main, None, None, |s| {
        s.sources.remotes.secrets_in = Some(KubeAccess::Kubeconfig { path: of_own.clone(), context: None });
    })
    .await;
    until_endpoints(&running, &[("Kubernetes", "10.1.0.1"), ("east", "10.3.0.1")]).await;
    end(running).await;
}

#[actix::test]
async fn shared_mesh_settings_are_the_base_of_those_of_the_revision_and_are_followed() {
    let main = cluster("10.1.0.1").await;
    let settings =
        |name: &str, mesh: &str| main.put("configmaps", "istio-system", name, json!({"data": {"mesh": mesh}}));
    settings("shared", "connectTimeout: 3s\naccessLogFile: /dev/stdout\n");
    settings("istio", "connectTimeout: 7s\n");
    settings("unrelated", "connectTimeout: 9s\n");
    let dir = tempfile::tempdir().unwrap();
    let running = start_with(&kubeconfig(dir.path(), &main.url), None, None, |s| {
        s.sources.kubernetes.as_mut().unwrap().shared_mesh = "shared".to_string();
    })
    .await;
    let seconds = |r: &Running| r.inputs.mesh().config.connect_timeout.as_ref().map(|t| t.seconds);
    let file = |r: &Running| r.inputs.mesh().config.access_log_file.clone();
    until(&running, "both", |r| seconds(r) == Some(7) && file(r) == "/dev/stdout").await;
    settings("shared", "accessLogFile: /dev/stderr\n");
    until(&running, "the other base", |r| seconds(r) == Some(7) && file(r) == "/dev/stderr").await;
    settings("istio", "accessLogFile: /own\n");
    until(&running, "the other settings", |r| seconds(r) == Some(10) && file(r) == "/own").await;
    end(running).await;
}
