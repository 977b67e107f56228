//! Registered workloads whose entries are taken away although they are connected: because the others take their control plane
//! for dead, which is only cut off from the API server, or by hand. They are back by themselves, with their health.

use pilothouse::{
    discovery::registrar::HEALTH,
    model::Features,
    proto::{envoy::service::discovery::v3::DiscoveryRequest, google},
    testing::SotwStream,
};
use serde_json::{Value, json};

use crate::{
    real::{Admin, everything},
    registration::{IP, NAME, annotation, entry, entry_of, group, until_in_force, workload, workload_at},
    replica::Replica,
    running::end,
    status::{condition, start_with, until},
    versions::Versions,
    wire::{Cut, Wire},
};

const ENVIRONMENT: [(&str, &str); 2] =
    [("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "1s"), ("PILOTHOUSE_LEASE_DURATION", "3s")];

/// Reports the health of a workload; `Some` carries the reason of a failure.
async fn tell(machine: &mut SotwStream, wrong: Option<&str>) {
    let status = |text: &str| google::rpc::Status { code: 500, message: text.to_string(), details: Vec::new() };
    let said = DiscoveryRequest {
        type_url: HEALTH.to_string(),
        error_detail: wrong.map(status),
        ..DiscoveryRequest::default()
    };
    machine.send(said).await.unwrap();
}

/// The group, of which new entries say which one they were made from.
fn group_of(version: &str) -> Value {
    let mut group = group();
    group["spec"]["template"]["labels"]["version"] = version.into();
    group
}

fn is_connected_to(name: &str, entry: &Value) -> bool {
    let controller = annotation(entry, "workloadController").unwrap_or_default();
    controller.starts_with(&format!("{name}_")) && annotation(entry, "connectedAt").is_some()
}

async fn a_control_plane_is_cut_off(cut: Cut) {
    const LATE: &str = "10.9.0.8";
    let Some((server, admin)) = everything().await else { return };
    admin.apply_soon(&group_of("v1")).await;
    let dir = tempfile::tempdir().unwrap();
    let wire = Wire::to(&server, dir.path()).await;
    let first = Replica::start(&wire.kubeconfig, "first", &ENVIRONMENT).await;
    let mut machine = workload_at(first.grpc, IP).await;
    tell(&mut machine, None).await;
    let made = until(&admin, &entry(), |o| condition(o, "Healthy")["status"] == "True").await;
    assert!(is_connected_to("first", &made) && made["spec"]["labels"]["version"] == "v1", "{made:#}");
    let _second = Replica::start(&server.kubeconfig, "second", &ENVIRONMENT).await;

    wire.set(cut);
    until(&admin, &entry(), Value::is_null).await;
    // Changes during the outage take effect after it: a failing workload, a new workload, and another template.
    tell(&mut machine, Some("no answer")).await;
    let late = workload_at(first.grpc, LATE).await;
    admin.apply(&group_of("v2")).await;
    assert_eq!(admin.get(&entry()).await, Value::Null);

    let versions = Versions::follow(&admin, &entry()).await;
    wire.set(Cut::No);
    let ill = |o: &Value| condition(o, "Healthy")["message"] == "no answer" && is_connected_to("first", o);
    let back = until(&admin, &entry(), ill).await;
    assert_eq!(
        (&back["spec"]["labels"]["version"], &condition(&back, "Healthy")["status"]),
        (&json!("v2"), &json!("False"))
    );
    until(&admin, &entry_of(LATE), |o| is_connected_to("first", o)).await;

    // It is believed again: it goes when its machine does, and not before.
    tell(&mut machine, None).await;
    until(&admin, &entry(), |o| condition(o, "Healthy")["status"] == "True" && is_connected_to("first", o)).await;
    drop((machine, late));
    until(&admin, &entry(), Value::is_null).await;
    until(&admin, &entry_of(LATE), Value::is_null).await;
    for name in [NAME.to_string(), format!("vms-{LATE}")] {
        let lives: Vec<Value> = versions.of(&name).iter().map(|o| o["metadata"]["uid"].clone()).collect();
        assert!(lives.windows(2).all(|pair| pair[0] == pair[1]), "{name} was made more than once");
    }
}

#[actix::test]
async fn entries_of_a_control_plane_that_was_refused_by_the_api_server_come_back() {
    a_control_plane_is_cut_off(Cut::Broken).await;
}

#[actix::test]
async fn entries_of_a_control_plane_that_did_not_hear_from_the_api_server_come_back() {
    a_control_plane_is_cut_off(Cut::Silent).await;
}

async fn labels_when_well(admin: &Admin, before: &Value) -> Value {
    let again =
        |o: &Value| o["metadata"]["uid"] != before["metadata"]["uid"] && condition(o, "Healthy")["status"] == "True";
    until(admin, &entry(), again).await
}

#[actix::test]
async fn a_deleted_entry_is_back_as_long_as_its_group_exists() {
    let Some((server, admin)) = everything().await else { return };
    admin.apply_soon(&group_of("v1")).await;
    let running = start_with(&server.kubeconfig, Features::default()).await;
    let mut machine = workload(&running).await;
    tell(&mut machine, None).await;
    let first = until(&admin, &entry(), |o| condition(o, "Healthy")["status"] == "True").await;

    admin.delete(&entry()).await;
    let second = labels_when_well(&admin, &first).await;
    assert_eq!(second["spec"], first["spec"]);

    // A change of a group leaves existing entries alone, as in Istio; an entry created again has the new template.
    admin.apply(&group_of("v2")).await;
    admin.delete(&entry()).await;
    let third = labels_when_well(&admin, &second).await;
    assert_eq!(third["spec"]["labels"]["version"], "v2");

    // With the group its entries go: the cluster's garbage collector sees to that.
    admin.delete(&group()).await;
    admin.delete(&entry()).await;
    until_in_force(&running, |status| status.is_none()).await;
    admin.apply(&group_of("v3")).await;
    let fourth = labels_when_well(&admin, &third).await;
    assert_eq!(fourth["spec"]["labels"]["version"], "v3");
    let owner = |o: &Value| o["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_ne!(owner(&fourth), owner(&third));
    end(running).await;
}
