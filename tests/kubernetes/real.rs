//! Against the real API machinery: a cluster and a folder with equal objects give equal content, which stays while
//! the server, a CRD or a namespace's label goes.

use std::{fs, sync::Arc};

use pilothouse::{
    model::{KindClass, Mesh, Origin},
    sources::{
        file::load,
        kube::{FeedState, Group},
    },
};
use serde_json::{Value, json};

pub use crate::admin::{Admin, documents, everything};
use crate::{
    admin::{crd, server, server_with},
    server::Server,
    stage::Stage,
};

const ALL: &[Group] = &[Group::Crd, Group::GatewayApi, Group::Ingress, Group::Registry, Group::Discovery];

fn stage(server: &Server, change: impl FnOnce(&mut pilothouse::settings::KubeSettings)) -> Stage {
    Stage::with_kubeconfig(tempfile::tempdir().unwrap(), &server.kubeconfig, ALL, change)
}

fn entry(namespace: &str, name: &str, host: &str) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": name, "namespace": namespace},
        "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"}})
}

const ENTRIES: &str = "serviceentries.networking.istio.io";

fn keys(stage: &Stage, kind: &str) -> Vec<String> {
    stage.names().into_iter().filter_map(|n| n.strip_prefix(&format!("{kind}/")).map(str::to_string)).collect()
}

/// One of each: config, Gateway API, Ingress, and the inputs of the registry.
pub const SCENARIO: &str = include_str!("scenario.yaml");

#[tokio::test]
async fn a_cluster_and_a_folder_that_hold_the_same_say_the_same() {
    let Some((server, admin)) = everything().await else { return };
    let stage = stage(&server, |_| {});
    for object in documents(SCENARIO) {
        admin.apply_soon(&object).await;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("scenario.yaml"), SCENARIO).unwrap();
    let loaded = load(dir.path(), &Origin::default(), 1 << 20);
    assert!(loaded.findings.refused.is_empty(), "{:?}", loaded.findings.refused);
    let of_files: Vec<_> = loaded.configs.into_iter().collect();
    stage.until("every object", |s| of_files.iter().all(|c| s.object(&c.key().to_string()).is_some())).await;
    for config in &of_files {
        let live = stage.object(&config.key().to_string()).unwrap();
        assert_eq!(live.meta.labels, config.meta.labels, "{}", config.key());
        if config.kind().class() == KindClass::Istio {
            assert_eq!(live.spec, config.spec, "{}", config.key());
        }
    }
    assert!(stage.reports().iter().all(|r| r.findings.refused.is_empty()), "{:#?}", stage.reports());
    let settled = |s: FeedState| matches!(s, FeedState::Watching | FeedState::Absent);
    stage.until("every kind", |s| s.reports().iter().flat_map(|r| &r.feeds).all(|f| settled(f.state))).await;
    stage.until_like_a_cold_run(&self::stage(&server, |_| {})).await;
}

#[tokio::test]
async fn a_kind_begins_with_its_crd_and_stays_when_that_goes() {
    let Some((server, admin)) = server(&[]).await else { return };
    let stage = stage(&server, |_| {});
    stage.until("an absent kind", |s| s.feed(ENTRIES).state == FeedState::Absent).await;
    admin.apply(&crd(ENTRIES)).await;
    let objects: Vec<Value> = (0..5).map(|i| entry("shop", &format!("e{i}"), &format!("e{i}.example"))).collect();
    for object in &objects {
        admin.apply_soon(object).await;
    }
    stage.until("all of them", |s| keys(s, "ServiceEntry").len() == 5).await;
    admin.delete(&objects[0]).await;
    stage.until("one less", |s| keys(s, "ServiceEntry").len() == 4).await;
    admin.delete(&crd(ENTRIES)).await;
    stage.until("an absent kind", |s| s.feed(ENTRIES).state == FeedState::Absent).await;
    assert_eq!((keys(&stage, "ServiceEntry").len(), stage.deleted()), (4, 1));
    // Back again, with one object of another content: the cluster's content counts.
    for _ in 0..200 {
        if admin.api(&crd(ENTRIES)).get_opt(ENTRIES).await.unwrap().is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    admin.apply(&crd(ENTRIES)).await;
    admin.apply_soon(&entry("shop", "e1", "new.example")).await;
    let host = |s: &Stage| s.object("ServiceEntry/shop/e1").map(|c| c.service_entry().unwrap().hosts[0].clone());
    stage.until("the new content", |s| host(s).as_deref() == Some("new.example")).await;
    stage.until_like_a_cold_run(&self::stage(&server, |_| {})).await;
}

#[tokio::test]
async fn a_restart_of_the_server_with_changes_in_between_is_made_up_for() {
    let Some((server, admin)) = server(&[ENTRIES]).await else { return };
    for i in 0..5 {
        admin.apply_soon(&entry("shop", &format!("e{i}"), &format!("e{i}.example"))).await;
    }
    let stage = stage(&server, |_| {});
    stage.until("all of them", |s| keys(s, "ServiceEntry").len() == 5).await;
    let first = server.address();
    // At another address, so that the stage does not see the changes.
    let server = server.restart("127.0.0.1:0").await;
    let admin = Admin::of(&server).await;
    admin.delete(&entry("shop", "e0", "")).await;
    admin.apply(&entry("shop", "e1", "new.example")).await;
    admin.apply(&entry("shop", "e9", "e9.example")).await;
    assert_eq!((keys(&stage, "ServiceEntry").len(), stage.deleted()), (5, 0));
    let server = server.restart(&first).await;
    let host = |s: &Stage| s.object("ServiceEntry/shop/e1").map(|c| c.service_entry().unwrap().hosts[0].clone());
    stage.until("the changes of the outage", |s| host(s).as_deref() == Some("new.example")).await;
    stage.until_like_a_cold_run(&self::stage(&server, |_| {})).await;
    assert_eq!(stage.deleted(), 1);
}

#[tokio::test]
async fn a_compaction_leads_to_a_list_and_loses_nothing() {
    // Without its watch cache the server asks etcd, which has forgotten the version from which a quiet watch goes on.
    let Some((server, admin)) = server_with(&["-watch-cache=false"], &[ENTRIES]).await else { return };
    for i in 0..5 {
        admin.apply_soon(&entry("shop", &format!("e{i}"), &format!("e{i}.example"))).await;
    }
    let stage = stage(&server, |s| s.watch_timeout = std::time::Duration::from_secs(1));
    stage.until("all of them", |s| keys(s, "ServiceEntry").len() == 5).await;
    let lists = stage.feed(ENTRIES).lists;
    for i in 0..3 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}"), "namespace": "other"}});
        admin.apply(&map).await;
    }
    admin.compact().await;
    stage.until("another list", |s| s.feed(ENTRIES).lists > lists).await;
    assert_eq!((keys(&stage, "ServiceEntry").len(), stage.deleted()), (5, 0));
    admin.delete(&entry("shop", "e0", "")).await;
    admin.apply(&entry("shop", "e1", "new.example")).await;
    let host = |s: &Stage| s.object("ServiceEntry/shop/e1").map(|c| c.service_entry().unwrap().hosts[0].clone());
    stage.until("the later changes", |s| host(s).as_deref() == Some("new.example") && s.deleted() == 1).await;
    stage.until_like_a_cold_run(&self::stage(&server, |_| {})).await;
}

#[tokio::test]
async fn a_version_of_the_future_is_refused_by_a_list_although_a_watch_of_it_is_accepted() {
    let Some((server, _)) = server(&[ENTRIES]).await else { return };
    let client = Admin::without_retries(&server).await;
    let entries = "/apis/networking.istio.io/v1/serviceentries";
    let ask = async |path: &str, query: &str| {
        let request = http::Request::get(format!("{path}?{query}")).body(Vec::new()).unwrap();
        client.request::<Value>(request).await
    };
    for path in ["/api/v1/services", entries] {
        let now = ask(path, "limit=1").await.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_string();
        let of = |version: &str| format!("limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        assert!(ask(path, &of(&now)).await.is_ok(), "{path}");
        match ask(path, &of("999999999")).await {
            Err(kube::Error::Api(status)) => {
                assert!(status.code == 504 && status.message.contains("Too large resource version"), "{status:?}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_object_that_the_schema_takes_and_we_do_not_is_refused_by_name() {
    let Some((server, admin)) = server(&["virtualservices.networking.istio.io"]).await else { return };
    let service = |name: &str, http: Value| {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"hosts": ["a.example"], "http": http}})
    };
    let good = json!([{"route": [{"destination": {"host": "a.example"}}]}]);
    admin.apply_soon(&service("good", good.clone())).await;
    admin.apply(&service("bad", json!([]))).await;
    let stage = stage(&server, |_| {});
    stage.until("the good one", |s| keys(s, "VirtualService") == ["shop/good"]).await;
    let refused = |s: &Stage| {
        s.reports().into_iter().flat_map(|r| r.findings.refused.clone()).map(|r| r.name).collect::<Vec<_>>()
    };
    stage.until("a refusal", |s| refused(s) == ["bad"]).await;
    admin.apply(&service("good", json!([]))).await;
    admin.apply(&service("bad", good)).await;
    stage.until("the other", |s| keys(s, "VirtualService").len() == 2 && refused(s) == ["good"]).await;
    let kept: Vec<String> = stage.reports().into_iter().flat_map(|r| r.kept).collect();
    assert_eq!(kept, ["VirtualService/shop/good"]);
}

#[tokio::test]
async fn namespaces_and_revisions_select_our_objects_and_may_change() {
    let Some((server, admin)) = server(&[ENTRIES]).await else { return };
    for namespace in ["shop", "other"] {
        admin.apply_soon(&entry(namespace, "e", "e.example")).await;
    }
    let mut canary = entry("shop", "canary", "canary.example");
    canary["metadata"]["labels"] = json!({"istio.io/rev": "canary"});
    admin.apply(&canary).await;
    let stage = stage(&server, |s| s.revision = "stable".to_string());
    stage.until("both", |s| keys(s, "ServiceEntry") == ["other/e", "shop/e"]).await;
    let selectors = json!({"discoverySelectors": [{"matchLabels": {"team": "shop"}}]});
    stage.mesh.send_replace(Arc::new(Mesh::from_values(&selectors, &Value::Null, "d", "c").unwrap()));
    stage.until("one namespace", |s| keys(s, "ServiceEntry") == ["shop/e"]).await;
    let labels = json!({"team": "shop"});
    admin
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": labels}}))
        .await;
    stage.until("both again", |s| keys(s, "ServiceEntry") == ["other/e", "shop/e"]).await;
    canary["metadata"]["labels"] = json!({"istio.io/rev": "stable"});
    admin.apply(&canary).await;
    stage.until("the third", |s| keys(s, "ServiceEntry").len() == 3).await;
    let narrow = self::stage(&server, |s| s.watch_namespaces = vec!["other".to_string()]);
    narrow.until("one namespace", |s| keys(s, "ServiceEntry") == ["other/e"]).await;
}

#[tokio::test]
async fn secrets_that_can_be_credentials_are_read_and_the_others_never_asked_for() {
    let Some((server, admin)) = server(&[]).await else { return };
    let secret = |name: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name, "namespace": "shop"},
            "data": {"tls.crt": "YQ==", "tls.key": "YQ==", "release": "YQ=="}})
    };
    for (name, kind) in [("tls", "kubernetes.io/tls"), ("own", "Opaque"), ("helm", "helm.sh/release.v1")] {
        admin.apply(&secret(name, kind)).await;
    }
    let stage = stage(&server, |_| {});
    stage.until("credentials", |s| keys(s, "Secret") == ["shop/own", "shop/tls"]).await;
    let data = stage.object("Secret/shop/own").unwrap().secret().unwrap().data.clone().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
}
