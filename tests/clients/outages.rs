//! Sources die and come back, and so does the process, while requests go through a real Envoy: none fails, nothing is
//! refused, and `/debug/sourcez` says what is the matter for as long as it is.

use std::{ffi::OsString, fs, path::Path};

use serde_json::{Value, json};

use crate::{
    admin::{Admin, documents, server},
    config::{gateway, object, service, subsets, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy, folder},
    process::{free_port, scratch, wait_for, wait_until},
    traffic::Traffic,
};

const NODE: &str = "router~127.0.0.1~edge.istio-system~istio-system.svc.cluster.local";
const HOST: &str = "web.example";

/// Objects of a gateway in front of two versions of `web.example`.
struct Shop {
    port: u16,
    v1: Echo,
    v2: Echo,
}

impl Shop {
    fn open() -> Self {
        Self { port: free_port(), v1: Echo::start("v1"), v2: Echo::start("v2") }
    }

    /// All objects; requests go to this version.
    fn objects(&self, version: &str) -> String {
        let endpoints = [(self.v1.port, "v1", ""), (self.v2.port, "v2", "")];
        let route = json!({"hosts": [HOST], "gateways": ["edge"], "http": [{"route": [to(HOST, version)]}]});
        service(HOST, 80, "HTTP", &endpoints)
            + &subsets(HOST)
            + &gateway(self.port)
            + &object("VirtualService", "web", &route)
    }

    /// An Envoy of this control plane, once it answers.
    fn gateway(&self, plane: &ControlPlane) -> Envoy {
        let envoy = Envoy::start(plane, NODE, &json!({"LABELS": {"app": "edge"}}), true);
        self.until_answered_by("v1");
        envoy
    }

    fn until_answered_by(&self, version: &str) {
        wait_for(&format!("{version} answers"), || {
            get(self.port, HOST, "/", &[]).ok().filter(|a| a.status == 200 && a.seen("name") == version)
        });
    }
}

/// Waits until the sources whose names begin so are in this state and say this of themselves.
fn until_sources(plane: &ControlPlane, prefix: &str, state: &str, says: impl Fn(&Value) -> bool) {
    wait_until(&format!("{prefix} is {state}"), || {
        let page = plane.debug("/debug/sourcez");
        let ours = |s: &&Value| s["source"].as_str().is_some_and(|id| id.starts_with(prefix));
        let sources: Vec<&Value> = page.as_array().into_iter().flatten().filter(ours).collect();
        let right = !sources.is_empty() && sources.iter().all(|s| s["state"] == state && says(s));
        if right { Ok(()) } else { Err(format!("{sources:#?}")) }
    });
}

fn error(source: &Value) -> &str {
    source["last_error"].as_str().unwrap_or_default()
}

/// The source fails and says so.
fn until_stale(plane: &ControlPlane, prefix: &str) {
    until_sources(plane, prefix, "stale", |s| !error(s).is_empty());
}

/// The source is well again.
fn until_well(plane: &ControlPlane, prefix: &str) {
    until_sources(plane, prefix, "synced", |s| error(s).is_empty() && s.get("saved_at").is_none());
}

/// The process lives on what it saved.
fn until_saved_is_served(plane: &ControlPlane, prefix: &str) {
    let says = |s: &Value| !error(s).is_empty() && s["saved_at"].is_u64() && s["age_seconds"].is_u64();
    until_sources(plane, prefix, "stale", says);
}

/// Waits until the content of so many sources is on disk.
fn until_saved(state: &Path, sources: usize) {
    let saved = || fs::read_dir(state).into_iter().flatten().flatten();
    let is_whole = |name: OsString| name.to_string_lossy().ends_with(".last-good");
    wait_for("the last good content is saved", || {
        (saved().filter(|f| is_whole(f.file_name())).count() >= sources).then_some(())
    });
}

fn arguments(all: &[(&str, &Path)]) -> Vec<OsString> {
    all.iter().flat_map(|(flag, value)| [OsString::from(flag), value.as_os_str().to_owned()]).collect()
}

#[test]
fn a_folder_goes_and_comes_back() {
    let shop = Shop::open();
    let plane = ControlPlane::start(&[("shop.yaml", shop.objects("v1"))]);
    let envoy = shop.gateway(&plane);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);
    let aside = scratch().join("aside");
    fs::rename(&plane.configs, &aside).unwrap();
    until_stale(&plane, "file:");
    traffic.more(100);
    fs::write(aside.join("shop.yaml"), shop.objects("v2")).unwrap();
    fs::rename(&aside, &plane.configs).unwrap();
    until_well(&plane, "file:");
    shop.until_answered_by("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

#[test]
fn an_upstream_is_killed_and_started_again() {
    let shop = Shop::open();
    let mut upstream = ControlPlane::start(&[("shop.yaml", shop.objects("v1"))]);
    let address = format!("127.0.0.1:{}", upstream.grpc_port);
    let plane = ControlPlane::launch(scratch(), &arguments(&[("--upstream", Path::new(&address))]));
    plane.wait_ready();
    let envoy = shop.gateway(&plane);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);
    upstream.process.kill();
    until_stale(&plane, "xds:");
    traffic.more(100);
    upstream.write("shop.yaml", &shop.objects("v2"));
    upstream.restart();
    until_well(&plane, "xds:");
    shop.until_answered_by("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

#[test]
fn the_process_is_killed_and_started_again_without_any_of_its_sources() {
    let shop = Shop::open();
    let mut upstream = ControlPlane::start(&[("shop.yaml", shop.objects("v1"))]);
    let (configs, state) = (folder(&[("other.yaml", service("other.example", 81, "HTTP", &[]))]), scratch());
    let address = format!("127.0.0.1:{}", upstream.grpc_port);
    let flags = [("--config-dir", &*configs), ("--upstream", Path::new(&address)), ("--state-dir", &state)];
    let mut flags = arguments(&flags);
    flags.push("--state-grace=1s".into());
    let mut plane = ControlPlane::launch(configs.clone(), &flags);
    plane.wait_ready();
    let envoy = shop.gateway(&plane);
    until_saved(&state, 2);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);

    plane.process.kill();
    upstream.process.kill();
    let aside = scratch().join("aside");
    fs::rename(&configs, &aside).unwrap();
    traffic.more(50);
    plane.restart();
    until_saved_is_served(&plane, "xds:");
    until_saved_is_served(&plane, "file:");
    assert_eq!(plane.debug("/debug/registryz").as_array().map(Vec::len), Some(2));
    wait_for("Envoy is back", || (envoy.stat("control_plane.connected_state") == 1).then_some(()));
    traffic.more(100);

    fs::rename(&aside, &configs).unwrap();
    upstream.write("shop.yaml", &shop.objects("v2"));
    upstream.restart();
    until_well(&plane, "xds:");
    until_well(&plane, "file:");
    shop.until_answered_by("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

/// The CRDs that the shop needs.
const CRDS: [&str; 4] = [
    "serviceentries.networking.istio.io",
    "destinationrules.networking.istio.io",
    "gateways.networking.istio.io",
    "virtualservices.networking.istio.io",
];

async fn apply(admin: &Admin, objects: &str) {
    for object in documents(objects) {
        admin.apply_soon(&object).await;
    }
}

#[test]
fn the_api_server_is_killed_and_started_again_and_so_is_the_process_meanwhile() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some((mut cluster, admin)) = runtime.block_on(server(&CRDS)) else { return };
    let (shop, state) = (Shop::open(), scratch());
    let mesh = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"mesh": "connectTimeout: 4s\n"},
        "metadata": {"name": "istio", "namespace": "istio-system"}});
    runtime.block_on(admin.apply(&mesh));
    runtime.block_on(apply(&admin, &shop.objects("v1")));
    let mut flags = arguments(&[("--kubeconfig", &cluster.kubeconfig), ("--state-dir", &state)]);
    flags.push("--state-grace=1s".into());
    let mut plane = ControlPlane::launch(scratch(), &flags);
    plane.wait_ready();
    let envoy = shop.gateway(&plane);
    until_saved(&state, 5);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);

    runtime.block_on(cluster.kill());
    until_stale(&plane, "kube:Kubernetes/crd");
    until_stale(&plane, "kube:Kubernetes/registry");
    traffic.more(100);
    plane.process.kill();
    plane.restart();
    until_saved_is_served(&plane, "kube:Kubernetes/crd");
    assert_eq!(plane.debug("/debug/mesh")["connectTimeout"], "4s", "the mesh settings are of the cluster too");
    wait_for("Envoy is back", || (envoy.stat("control_plane.connected_state") == 1).then_some(()));
    traffic.more(100);

    let address = cluster.address();
    let cluster = runtime.block_on(cluster.restart(&address));
    until_well(&plane, "kube:Kubernetes/");
    let admin = runtime.block_on(Admin::of(&cluster));
    runtime.block_on(apply(&admin, &shop.objects("v2")));
    shop.until_answered_by("v2");
    traffic.end();
    envoy.assert_no_nacks();
}
