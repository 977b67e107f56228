//! Faults of the connection itself: credentials that are wrong, a kubeconfig that is not there, and one that changes.

use std::{fs, net::SocketAddr, process::Stdio, sync::Arc, time::Duration};

use pilothouse::{
    model::Mesh,
    sources::kube::{FeedState, Group},
    testing::AdsClient,
    xds::ResourceType,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::{
    fake::{Fake, Fault, When},
    stage::{DEADLINE, Stage, kubeconfig},
};

const KINDS: &[Group] = &[Group::Ingress, Group::Discovery];

#[tokio::test]
async fn a_kubeconfig_may_come_late_and_name_another_server_after_a_refusal() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    for (fake, name) in [(&first, "a"), (&second, "b")] {
        fake.put("ingresses", "shop", name, json!({"spec": {}}));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let stage = Stage::with_kubeconfig(dir, &path, KINDS, |_| {});
    stage.until("trouble", |s| s.feed("ingresses.networking.k8s.io").last_error.contains("kubeconfig")).await;
    kubeconfig(path.parent().unwrap(), &first.url);
    stage.until_names(&["Ingress/shop/a"]).await;
    fs::remove_file(&path).unwrap();
    kubeconfig(path.parent().unwrap(), &second.url);
    let no = || Fault::Status(401, r#"{"kind":"Status","message":"Unauthorized","code":401}"#, Vec::new());
    for plural in ["ingresses", "ingressclasses", "namespaces", "customresourcedefinitions"] {
        first.fail(When::List(plural), no(), usize::MAX);
        first.fail(When::Watch(plural), no(), usize::MAX);
    }
    first.compact();
    first.restore(first.backup(), 500);
    stage.until_names(&["Ingress/shop/b"]).await;
}

#[tokio::test]
async fn a_token_that_is_replaced_is_read_again_when_the_old_one_is_refused() {
    let fake = Fake::start().await;
    fake.put("ingresses", "shop", "a", json!({"spec": {}}));
    let dir = tempfile::tempdir().unwrap();
    let (path, token) = (kubeconfig(dir.path(), &fake.url), dir.path().join("token"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("user: {}", &format!("user: {{tokenFile: {}}}", token.display()))).unwrap();
    fs::write(&token, "first").unwrap();
    fake.demand("first");
    let stage = Stage::with_kubeconfig(dir, &path, KINDS, |_| {});
    stage.until_names(&["Ingress/shop/a"]).await;
    fake.demand("second");
    stage.until("a refusal", |s| s.feed("ingresses.networking.k8s.io").last_error.contains("401")).await;
    fs::write(&token, "second").unwrap();
    fake.put("ingresses", "shop", "b", json!({"spec": {}}));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b"]).await;
    assert_eq!(stage.deleted(), 0);
}

#[tokio::test]
async fn without_the_right_to_see_crds_each_kind_is_tried() {
    let fake = Fake::start().await;
    fake.put("sidecars", "shop", "a", json!({"spec": {"outboundTrafficPolicy": {"mode": "ALLOW_ANY"}}}));
    let no = Fault::Status(403, r#"{"kind":"Status","message":"no","reason":"Forbidden","code":403}"#, Vec::new());
    fake.fail(When::List("customresourcedefinitions"), no, usize::MAX);
    fake.fail(When::List("sidecars"), Fault::Status(404, "404 page not found", Vec::new()), 2);
    let stage = Stage::set(&fake.url, &[Group::Crd, Group::Discovery], |_| {});
    stage.until("an absent kind", |s| s.feed("sidecars.networking.istio.io").state == FeedState::Absent).await;
    stage.until_names(&["Sidecar/shop/a"]).await;
    let crds = stage.feed("customresourcedefinitions.apiextensions.k8s.io");
    assert_eq!(crds.state, FeedState::Forbidden);
    fake.delete("sidecars", "shop/a");
    stage.until_names(&[]).await;
}

#[tokio::test]
async fn objects_of_a_remote_cluster_carry_its_id() {
    let fake = Fake::start().await;
    fake.put("services", "shop", "a", json!({"spec": {"ports": [{"port": 80}]}}));
    let stage = Stage::remote(&fake.url, &[Group::RemoteRegistry, Group::Discovery]);
    stage.until_names(&["Service/shop/a"]).await;
    assert_eq!(&*stage.object("Service/shop/a").unwrap().origin.cluster, "test");
}

#[tokio::test]
async fn selectors_that_cannot_be_evaluated_take_nothing_away() {
    let fake = Fake::start().await;
    fake.put("ingresses", "shop", "a", json!({"spec": {}}));
    let no = Fault::Status(403, r#"{"kind":"Status","message":"no","reason":"Forbidden","code":403}"#, Vec::new());
    fake.fail(When::List("namespaces"), no, usize::MAX);
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    stage.until_names(&["Ingress/shop/a"]).await;
    let selectors = json!({"discoverySelectors": [{"matchLabels": {"team": "shop"}}]});
    stage.mesh.send_replace(Arc::new(Mesh::from_values(&selectors, &Value::Null, "d", "c").unwrap()));
    fake.put("ingresses", "shop", "b", json!({"spec": {}}));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b"]).await;
    fake.heal();
    fake.put_raw("namespaces", "shop", |version| {
        json!({"metadata": {"name": "shop", "resourceVersion": version.to_string(), "labels": {"team": "shop"}}})
    });
    stage.until("the right to see namespaces", |s| s.feed("namespaces").state == FeedState::Watching).await;
    fake.put("ingresses", "other", "c", json!({"spec": {}}));
    fake.put("ingresses", "shop", "d", json!({"spec": {}}));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/d"]).await;
}

/// A service of the cluster, and the name of its cluster.
fn service(fake: &Fake, name: &str) -> String {
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]});
    fake.put("services", "shop", name, json!({"spec": spec}));
    format!("outbound|80||{name}.shop.svc.cluster.local")
}

/// Waits until a proxy is sent this cluster.
async fn until_served(address: SocketAddr, cluster: &str) {
    let asks = async {
        loop {
            let Ok(client) = AdsClient::connect(address, "10.9.9.9").await else { continue };
            if let Ok(mut stream) = client.sotw(None).await
                && stream.subscribe(ResourceType::Cluster, &[], "").await.is_ok()
                && let Ok(response) = stream.next().await
                && response.resources.iter().any(|any| String::from_utf8_lossy(&any.value).contains(cluster))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asks).await.unwrap_or_else(|_| panic!("{cluster} is not served"));
}

#[tokio::test]
async fn a_feed_that_panics_is_begun_anew_in_the_program_as_it_runs() {
    let fake = Fake::start().await;
    let first = service(&fake, "a");
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["serve", "--log-format", "json", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"]);
    command.args(["--monitoring-addr", "", "--kubeconfig"]).arg(kubeconfig(dir.path(), &fake.url));
    command.env("PILOTHOUSE_TEST_FAULTS", "feed of services=2,feed of pods=1").kill_on_drop(true);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (mut address, mut survived) = (None, Vec::new());
    let reads = async {
        while address.is_none() || survived.len() < 3 {
            let line = lines.next_line().await.unwrap().expect("it ended");
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            address = address.or_else(|| line["grpc"].as_str()?.parse().ok());
            if line["panic"].as_str().is_some_and(|text| text.contains("feed of ")) {
                survived.push(line["guarded"].clone());
            }
        }
    };
    tokio::time::timeout(DEADLINE, reads).await.unwrap();
    assert_eq!(survived, [true, true, true]);
    // A process blocks when its log is not read.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    until_served(address.unwrap(), &first).await;
    until_served(address.unwrap(), &service(&fake, "b")).await;
    assert!(child.try_wait().unwrap().is_none(), "the process goes on");
    child.kill().await.unwrap();
}
