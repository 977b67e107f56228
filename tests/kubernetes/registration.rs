//! Workloads that register themselves, in a cluster: their entries stand in the real API server, and come back by the watch.

use std::{net::SocketAddr, time::Duration};

use kube::api::ListParams;
use pilothouse::{
    app::Running,
    discovery::registrar::HEALTH,
    model::{Features, Kind},
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        from_json, google,
    },
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType,
};
use serde_json::{Value, json};

use crate::{
    real::{Admin, everything},
    replica::Replica,
    running::end,
    stage::DEADLINE,
    status::{condition, start_with, until},
    versions::Versions,
};

pub const IP: &str = "10.9.0.7";
pub const NAME: &str = "vms-10.9.0.7";

pub fn group() -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadGroup", "metadata": {"name": "vms", "namespace": "shop"},
        "spec": {"template": {"labels": {"app": "api"}, "serviceAccount": "payments", "ports": {"http": 8080}},
            "metadata": {"annotations": {"proxy.istio.io/health-checks-enabled": "true"}}}})
}

pub fn entry() -> Value {
    entry_of(IP)
}

pub fn entry_of(ip: &str) -> Value {
    let name = format!("vms-{ip}");
    json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": {"name": name, "namespace": "shop"}})
}

fn features(grace: Duration) -> Features {
    Features { workload_entry_grace_period: grace, ..Features::default() }
}

/// Connects as soon as the group is known there.
pub async fn workload(running: &Running) -> SotwStream {
    workload_at(running.addresses.grpc, IP).await
}

pub async fn workload_at(plane: SocketAddr, ip: &str) -> SotwStream {
    let node: Node = from_json(
        &json!({"id": format!("sidecar~{ip}~vm.shop~shop.svc.cluster.local"), "metadata": {
            "AUTO_REGISTER_GROUP": "vms", "NAMESPACE": "shop", "SERVICE_ACCOUNT": "payments"}}),
        true,
    )
    .unwrap();
    let wait = async {
        loop {
            let client = AdsClient::connect(plane, ip).await.unwrap().with_node(node.clone());
            let mut stream = client.sotw(None).await.unwrap();
            // A server that is not ready may have ended the stream before it is asked.
            let _ = stream.subscribe(ResourceType::Cluster, &[], "").await;
            match stream.next().await {
                Ok(_) => return stream,
                Err(ClientError::Status(_) | ClientError::Ended) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap()
}

pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("istio.io/{name}")].as_str()
}

/// Whether a control plane has the entry in force, and how.
pub async fn until_in_force(running: &Running, says: impl Fn(Option<&Value>) -> bool) {
    let wait = async {
        loop {
            let snapshot = running.store.snapshot();
            let found = snapshot.list(Kind::WorkloadEntry).iter().find(|c| &*c.meta.name == NAME);
            if says(found.map(|c| &*c.status)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("the change does not come into force");
}

#[actix::test]
async fn an_entry_follows_its_proxy_from_one_replica_to_another_and_goes_with_it() {
    let Some((server, admin)) = everything().await else { return };
    admin.apply_soon(&group()).await;
    let versions = Versions::follow(&admin, &entry()).await;
    let (one, two) = (
        start_with(&server.kubeconfig, features(Duration::from_secs(2))).await,
        start_with(&server.kubeconfig, features(Duration::from_secs(2))).await,
    );
    let mut first = workload(&one).await;
    let made = until(&admin, &entry(), |o| annotation(o, "connectedAt").is_some()).await;
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("WorkloadGroup"), &json!("vms")));
    assert_eq!(made["spec"]["address"], "10.9.0.7");
    until_in_force(&two, |status| status.is_some()).await;

    let ill = google::rpc::Status { code: 500, message: "no answer".to_string(), details: Vec::new() };
    for (error_detail, status) in [(Some(ill), "False"), (None, "True")] {
        let said = DiscoveryRequest { type_url: HEALTH.to_string(), error_detail, ..DiscoveryRequest::default() };
        first.send(said).await.unwrap();
        until(&admin, &entry(), |o| condition(o, "Healthy")["status"] == status).await;
        until_in_force(&two, |s| s.is_some_and(|s| s["conditions"][0]["status"] == status)).await;
    }

    let controller = annotation(&made, "workloadController").map(str::to_string);
    let second = workload(&two).await;
    drop(first);
    let moved = until(&admin, &entry(), |o| annotation(o, "workloadController") != controller.as_deref()).await;
    assert!(annotation(&moved, "connectedAt") > annotation(&made, "connectedAt"));
    assert_eq!(condition(&moved, "Healthy")["status"], "True", "its known health stays");

    drop(second);
    until(&admin, &entry(), |o| o.is_null() || annotation(o, "disconnectedAt").is_some()).await;
    until(&admin, &entry(), Value::is_null).await;
    until_in_force(&one, |status| status.is_none()).await;
    let seen = versions.of(NAME);
    let made_once = seen.iter().filter(|o| o["metadata"]["uid"] == made["metadata"]["uid"]).count();
    assert_eq!(made_once, seen.len(), "it was deleted once, in the end");
    let unchanged = seen.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(unchanged, 0, "{seen:#?}");
    assert!(seen.len() <= 8, "made, ill, well, moved, let go, gone, and a reconnect in between: {seen:#?}");
    end(one).await;
    end(two).await;
}

#[actix::test]
async fn entries_of_a_killed_control_plane_are_cleaned_up_by_the_next_one() {
    const BACK: &str = "10.9.0.8";
    let Some((server, admin)) = everything().await else { return };
    admin.apply_soon(&group()).await;
    let (lost, back) = (Versions::follow(&admin, &entry()).await, entry_of(BACK));
    let environment = [("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "2s"), ("PILOTHOUSE_LEASE_DURATION", "3s")];
    let first = Replica::start(&server.kubeconfig, "first", &environment).await;
    let machines = (workload_at(first.grpc, IP).await, workload_at(first.grpc, BACK).await);
    let made = until(&admin, &back, |o| annotation(o, "connectedAt").is_some()).await;
    until(&admin, &entry(), |o| annotation(o, "connectedAt").is_some()).await;
    let lease = |o: &Value| {
        let of_first = o["spec"]["holderIdentity"].as_str().is_some_and(|name| name.starts_with("first_"));
        of_first && o["spec"]["leaseDurationSeconds"] == 6
    };
    until_any_lease(&admin, lease).await;

    first.kill().await;
    drop(machines);
    let second = Replica::start(&server.kubeconfig, "second", &environment).await;
    let _machine = workload_at(second.grpc, BACK).await;
    let ours = |o: &Value| annotation(o, "workloadController").is_some_and(|name| name.starts_with("second_"));
    until(&admin, &back, ours).await;
    until(&admin, &entry(), Value::is_null).await;
    let said: Vec<Value> = lost.of(NAME);
    let let_go = said.iter().position(|o| annotation(o, "disconnectedAt").is_some()).unwrap();
    assert!(said[..let_go].iter().all(|o| annotation(o, "connectedAt").is_some()));
    assert!(
        annotation(&said[let_go], "workloadController").unwrap().starts_with("first_"),
        "no other process claimed it"
    );

    let kept = admin.get(&back).await;
    assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(ours(&kept) && annotation(&kept, "connectedAt").is_some(), "{kept:#}");
}

/// Waits until one of the leases says this.
async fn until_any_lease(admin: &Admin, says: impl Fn(&Value) -> bool) {
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "istio-system"}});
    let wait = async {
        loop {
            let all = admin.api(&lease).list(&ListParams::default()).await.unwrap();
            if all.items.into_iter().any(|lease| says(&serde_json::to_value(lease).unwrap())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("no lease says so");
}
