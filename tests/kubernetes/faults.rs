//! Faults of the connection itself: credentials that are wrong, a kubeconfig that is not there, and one that changes.

use std::{fs, sync::Arc};

use pilothouse::{
    model::Mesh,
    sources::kube::{FeedState, Group},
};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Fault, When},
    stage::{Stage, kubeconfig},
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
