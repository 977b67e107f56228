//! Rights that are missing at the start: a kind that may not be read has not been delivered. The process is not ready and
//! publishes nothing, content that was saved before stands in, and all is delivered once the right is there.

use std::{path::Path, time::Duration};

use pilothouse::{
    app::Running,
    settings::{KubeAccess, KubeSettings, Settings, SourceSettings, StateSettings},
    sources::{
        SourceState,
        kube::{FeedState, Group},
    },
};
use serde_json::{Value, json};

use crate::{
    admin::{Admin, crd, server},
    fake::{Fake, Fault, When},
    gate::{Gate, install, manifest},
    running::{end, run, settings, until},
    stage::{Stage, kubeconfig, quick},
};

const NO: &str = r#"{"kind":"Status","message":"no","reason":"Forbidden","code":403}"#;

fn no() -> Fault {
    Fault::Status(403, NO, Vec::new())
}

fn service(fake: &Fake) {
    fake.put("services", "shop", "web", json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}));
}

fn secret(fake: &Fake) {
    fake.put("secrets", "shop", "s", json!({"data": {"tls.key": "YQ=="}}));
}

#[tokio::test]
async fn a_kind_that_may_not_be_read_at_the_start_holds_its_source_back_until_it_may() {
    let fake = Fake::start().await;
    service(&fake);
    fake.put("pods", "shop", "p", json!({"spec": {"containers": []}}));
    fake.fail(When::List("pods"), no(), usize::MAX);
    let stage = Stage::set(&fake.url, &[Group::Registry, Group::Discovery], |_| {});
    stage.until("forbidden", |s| s.feed("pods").state == FeedState::Forbidden).await;
    stage.until("the other kinds", |s| s.feed("services").state == FeedState::Watching).await;
    let registry = |s: &Stage| s.reports().into_iter().find(|r| r.source.ends_with("/registry")).unwrap();
    stage.until("the reason", |s| registry(s).last_error.contains("pods: ")).await;
    assert_eq!((registry(&stage).state, stage.names()), (SourceState::Starting, Vec::new()));
    fake.heal();
    stage.until_names(&["Pod/shop/p", "Service/shop/web"]).await;
    stage.until("health", |s| registry(s).state == SourceState::Synced && registry(s).last_error.is_empty()).await;
}

#[tokio::test]
async fn secrets_that_may_not_be_read_hold_nothing_back_and_it_is_told() {
    let fake = Fake::start().await;
    service(&fake);
    secret(&fake);
    fake.fail(When::List("secrets"), no(), usize::MAX);
    let stage = Stage::set(&fake.url, &[Group::Registry, Group::Discovery], |_| {});
    stage.until_names(&["Service/shop/web"]).await;
    let feed = stage.feed("secrets");
    assert_eq!(feed.state, FeedState::Forbidden);
    assert!(feed.last_error.contains("403"), "{feed:?}");
    fake.heal();
    stage.until_names(&["Secret/shop/s", "Service/shop/web"]).await;
}

#[tokio::test]
async fn a_refusal_that_passes_is_no_answer() {
    let fake = Fake::start().await;
    service(&fake);
    secret(&fake);
    fake.fail(When::List("secrets"), no(), 3);
    fake.fail(When::List("services"), no(), 3);
    let patient = |s: &mut KubeSettings| {
        (s.refused_patience, s.refused_pause) = (Duration::from_secs(60), Duration::from_secs(600));
    };
    let stage = Stage::set(&fake.url, &[Group::Registry, Group::Discovery], patient);
    stage.until_names(&["Secret/shop/s", "Service/shop/web"]).await;
    assert_eq!(stage.deleted(), 0);
}

#[tokio::test]
async fn a_role_without_kinds_that_the_cluster_does_not_have_is_enough() {
    let fake = Fake::start().await;
    fake.put("sidecars", "shop", "a", json!({"spec": {"outboundTrafficPolicy": {"mode": "ALLOW_ANY"}}}));
    fake.fail(When::List("customresourcedefinitions"), no(), usize::MAX);
    fake.fail(When::List("gateways"), no(), usize::MAX);
    let stage = Stage::set(&fake.url, &[Group::Crd, Group::Discovery], |_| {});
    stage.until("an absent kind", |s| s.feed("gateways.networking.istio.io").state == FeedState::Absent).await;
    stage.until_names(&["Sidecar/shop/a"]).await;
    // Where there is such a kind, it is one that has to be delivered.
    fake.serve_kind("gateways");
    let cold = Stage::set(&fake.url, &[Group::Crd, Group::Discovery], |_| {});
    cold.until("forbidden", |s| s.feed("gateways.networking.istio.io").state == FeedState::Forbidden).await;
    assert_eq!(cold.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_role_for_one_namespace_is_enough_for_that_namespace() {
    let fake = Fake::start().await;
    fake.put("ingresses", "shop", "a", json!({"spec": {}}));
    for plural in ["ingressclasses", "namespaces"] {
        fake.fail(When::List(plural), no(), usize::MAX);
    }
    let of_shop = |s: &mut KubeSettings| s.watch_namespaces = vec!["shop".to_string()];
    let stage = Stage::set(&fake.url, &[Group::Ingress, Group::Discovery], of_shop);
    stage.until_names(&["Ingress/shop/a"]).await;
    stage.until("health", |s| s.reports().iter().all(|r| r.state == SourceState::Synced)).await;
}

async fn start(kubeconfig: &Path, state: Option<&Path>) -> Running {
    let access = KubeAccess::Kubeconfig { path: kubeconfig.to_path_buf(), context: None };
    let state = StateSettings {
        folder: state.map(Path::to_path_buf),
        grace: Duration::from_millis(200),
        quiet: Duration::from_millis(20),
        ..StateSettings::default()
    };
    let sources =
        SourceSettings { kubernetes: Some(quick(access)), deletion_hold: Duration::ZERO, ..SourceSettings::default() };
    run(Settings { state, ..settings(sources) }).await
}

fn state_of(running: &Running, resource: &str) -> FeedState {
    let feeds = running.sources.iter().flat_map(|s| s.board.read().feeds);
    feeds.into_iter().find(|f| f.resource == resource).map_or(FeedState::Starting, |f| f.state)
}

fn hosts(running: &Running) -> Vec<String> {
    let published = running.state.current();
    published.iter().flat_map(|p| p.context.inputs.registry.services.iter().map(|s| s.hostname.to_string())).collect()
}

#[actix::test]
async fn a_process_that_may_not_read_is_not_ready_and_serves_saved_content() {
    const HOST: &str = "web.shop.svc.cluster.local";
    let kinds = ["services", "endpointslices", "ingresses", "configmaps"];
    for refused in kinds.map(|kind| vec![kind]).into_iter().chain([kinds.to_vec()]) {
        let fake = Fake::start().await;
        service(&fake);
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = kubeconfig(dir.path(), &fake.url);
        let good = start(&path, Some(state.path())).await;
        until(&good, "readiness", |r| r.readiness.is_ready() && hosts(r) == [HOST]).await;
        end(good).await;

        for plural in &refused {
            fake.fail(When::List(plural), no(), usize::MAX);
        }
        let forbidden = |r: &Running| {
            let name = |plural: &str| match plural {
                "endpointslices" => "endpointslices.discovery.k8s.io".to_string(),
                "ingresses" => "ingresses.networking.k8s.io".to_string(),
                plural => plural.to_string(),
            };
            refused.iter().all(|plural| state_of(r, &name(plural)) == FeedState::Forbidden)
        };
        let blind = start(&path, None).await;
        until(&blind, "a refusal", forbidden).await;
        assert!(!blind.readiness.is_ready() && blind.state.current().is_none(), "{refused:?}");
        end(blind).await;

        let saved = start(&path, Some(state.path())).await;
        until(&saved, "a refusal", forbidden).await;
        until(&saved, "saved content", |r| hosts(r) == [HOST]).await;
        fake.heal();
        until(&saved, "health", |r| {
            r.readiness.is_ready() && r.sources.iter().all(|s| s.board.read().state == SourceState::Synced)
        })
        .await;
        assert_eq!(hosts(&saved), [HOST]);
        end(saved).await;
    }
}

/// The role that lets the process read, without this resource.
fn reader_without(resource: &str) -> Value {
    let is_reader = |o: &Value| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "pilothouse-reader";
    let mut role = manifest().into_iter().find(is_reader).unwrap();
    for rule in role["rules"].as_array_mut().unwrap() {
        rule["resources"].as_array_mut().unwrap().retain(|name| name != resource);
    }
    role
}

#[actix::test]
async fn a_replica_whose_role_lacks_a_kind_is_not_ready_until_the_role_has_it() {
    const ROUTES: &str = "httproutes.gateway.networking.k8s.io";
    let Some((_server, admin)) = server(&[ROUTES]).await else { return };
    install(&admin).await;
    let gate = Gate::start(&admin).await;
    let dir = tempfile::tempdir().unwrap();
    let path = gate.kubeconfig(dir.path(), "sa:istio-system:pilothouse");
    let set = async |admin: &Admin, role: &Value| {
        admin.apply(role).await;
        gate.read_again(admin).await;
    };
    for (plural, resource) in
        [("services", "services"), ("endpointslices", "endpointslices.discovery.k8s.io"), ("httproutes", ROUTES)]
    {
        set(&admin, &reader_without(plural)).await;
        let running = start(&path, None).await;
        until(&running, "a refusal", |r| state_of(r, resource) == FeedState::Forbidden).await;
        assert!(!running.readiness.is_ready() && running.state.current().is_none(), "{plural}");
        set(&admin, &reader_without("")).await;
        until(&running, "readiness", |r| r.readiness.is_ready() && r.state.current().is_some()).await;
        end(running).await;
    }
    assert!(admin.get(&crd(ROUTES)).await.is_object());
}
