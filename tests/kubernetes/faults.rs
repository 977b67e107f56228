//! Faults of the connection itself: credentials that are wrong, a kubeconfig that is not there, and one that changes.

use std::fs;

use pilothouse::sources::kube::Group;
use serde_json::json;

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
