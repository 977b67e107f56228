//! The program in and beside real clusters: with the service account of a pod, and with a remote cluster.

use std::{fs, path::Path};

use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, server},
    http,
    mesh::ControlPlane,
    process::{scratch, wait_until},
    server::Server,
};

const HOST: &str = "web.shop.svc.cluster.local";

/// A service of one endpoint, in the cluster.
async fn serve(admin: &Admin, address: &str) {
    let port = json!({"name": "http", "port": 80});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ports": [port]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [port], "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]});
    admin.apply(&service).await;
    admin.apply(&slice).await;
}

/// Waits until the service has its endpoints in these clusters.
fn until_served_by(plane: &ControlPlane, clusters: &[&str]) {
    wait_until(&format!("endpoints of {clusters:?}"), || {
        let page = plane.debug("/debug/endpointShardz");
        let shards = page[HOST]["shop"]["Shards"].as_object().cloned().unwrap_or_default();
        let filled = |(_, list): &(&String, &Value)| list.as_array().is_some_and(|l| !l.is_empty());
        let found: Vec<&str> =
            shards.iter().filter(filled).filter_map(|(k, _)| k.strip_prefix("Kubernetes/")).collect();
        if found == clusters { Ok(()) } else { Err(page.to_string()) }
    });
}

/// Waits until a source says this of itself.
fn until_source(plane: &ControlPlane, id: &str, says: impl Fn(&Value) -> bool) {
    wait_until(&format!("{id} says so"), || {
        let page = plane.debug("/debug/sourcez");
        let found = page.as_array().into_iter().flatten().find(|s| s["source"] == id);
        if found.is_some_and(&says) { Ok(()) } else { Err(format!("{found:#?}")) }
    });
}

fn account(server: &Server) -> std::path::PathBuf {
    let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let ca = kubeconfig.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone().unwrap();
    let ca: k8s_openapi::ByteString = serde_json::from_value(json!(ca)).unwrap();
    let folder = scratch();
    fs::write(folder.join("ca.crt"), ca.0).unwrap();
    folder
}

#[test]
fn a_pod_reads_its_cluster_with_its_service_account() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some((cluster, admin)) = runtime.block_on(server(&[])) else { return };
    runtime.block_on(serve(&admin, "10.1.0.1"));
    let (account, address) = (account(&cluster), cluster.address());
    let (host, port) = address.rsplit_once(':').unwrap();
    // An expired token is refused; its successor lies in the same file.
    fs::write(account.join("token"), "expired").unwrap();
    let plane = ControlPlane::launch_with(
        scratch(),
        &["--service-account-dir".into(), account.clone().into()],
        &[("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)],
    );
    wait_until("pages", || http::get(plane.http_port, "localhost", "/healthz", &[]).map_err(|e| e.to_string()));
    until_source(&plane, "kube:Kubernetes/registry", |s| s["last_error"].as_str().is_some_and(|e| e.contains("401")));
    assert_eq!(http::get(plane.http_port, "localhost", "/ready", &[]).unwrap().status, 503);
    fs::write(account.join("token"), "sa:istio-system:pilothouse").unwrap();
    plane.wait_ready();
    until_served_by(&plane, &["Kubernetes"]);
    assert!(!plane.debug("/debug/leaderz")["leader"].is_null(), "inside a cluster statuses are written");
}

#[test]
fn a_remote_cluster_joins_and_its_objects_stay_when_it_is_unreachable() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some((main, admin)) = runtime.block_on(server(&[])) else { return };
    let Some((mut west, other)) = runtime.block_on(server(&[])) else { return };
    runtime.block_on(serve(&admin, "10.1.0.1"));
    runtime.block_on(serve(&other, "10.2.0.1"));
    let remote = format!("west={}", west.kubeconfig.display());
    let flags = [("--kubeconfig", &*main.kubeconfig), ("--remote-cluster", Path::new(&remote))];
    let flags: Vec<_> = flags.iter().flat_map(|(f, v)| [(*f).into(), v.as_os_str().to_owned()]).collect();
    let plane = ControlPlane::launch(scratch(), &flags);
    plane.wait_ready();
    until_served_by(&plane, &["Kubernetes", "west"]);
    // The same cluster under another name, by a Secret.
    let text = fs::read(&west.kubeconfig).unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "remote", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
        "data": {"east": k8s_openapi::ByteString(text)}});
    runtime.block_on(admin.apply(&secret));
    until_served_by(&plane, &["Kubernetes", "east", "west"]);
    runtime.block_on(west.kill());
    let stale = |s: &Value| s["state"] == "stale" && s["last_error"] != "";
    until_source(&plane, "kube:west/registry", stale);
    until_source(&plane, "kube:east/registry", stale);
    until_served_by(&plane, &["Kubernetes", "east", "west"]);
    runtime.block_on(admin.delete(&secret));
    until_served_by(&plane, &["Kubernetes", "west"]);
}
