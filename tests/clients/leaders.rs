//! Two control planes on one cluster, an Envoy on each, and the one that writes statuses is killed while requests go through
//! both: none fails, and the other one writes.

use std::ffi::OsString;

use serde_json::Value;

use crate::{
    admin::{Admin, documents, server},
    mesh::ControlPlane,
    process::{scratch, wait_until},
    shop::{CRDS, HOST, Shop, apply, until_well},
    traffic::Traffic,
};

/// Waits until this control plane writes.
fn until_it_writes(plane: &ControlPlane) {
    wait_until("it writes", || {
        let page = plane.debug("/debug/leaderz");
        if page["leader"]["leads"] == true { Ok(()) } else { Err(page.to_string()) }
    });
}

/// Waits until the status in the cluster says that the route has reached all proxies; returns that status.
fn until_reconciled(runtime: &tokio::runtime::Runtime, admin: &Admin) -> String {
    let route = documents(&Shop::route("v1")).remove(0);
    wait_until("the route is reconciled", || {
        let now = runtime.block_on(admin.get(&route));
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let current =
            |c: &&Value| c["type"] == "Reconciled" && c["observedGeneration"] == now["metadata"]["generation"];
        let found = conditions.iter().find(current).filter(|c| c["status"] == "True");
        found.map(|c| c["message"].as_str().unwrap().to_string()).ok_or_else(|| now.to_string())
    })
}

#[test]
fn the_one_that_writes_is_killed_while_requests_go_through_two_envoys() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some((cluster, admin)) = runtime.block_on(server(&CRDS)) else { return };
    let shop = Shop::open();
    let put = |version: &str| runtime.block_on(apply(&admin, &shop.objects(version)));
    put("v1");
    let flags: [OsString; 4] = [
        "--kubeconfig".into(),
        cluster.kubeconfig.clone().into(),
        "--write-status".into(),
        "--lease-duration=5s".into(),
    ];
    let plane = |name: &str| {
        let plane =
            ControlPlane::launch_with(scratch(), &flags, &[("POD_NAME", name), ("PILOT_ENABLE_STATUS", "true")]);
        plane.wait_ready();
        plane
    };
    let mut first = plane("first");
    until_it_writes(&first);
    // Down while the first Envoy chooses between the two.
    let mut second = plane("second");
    second.process.kill();
    let edge = shop.edge_of(&[&first, &second], "v1");
    second.restart();
    let rim = shop.rim(&second, "v1");
    let traffic = [Traffic::start(shop.port, HOST), Traffic::start(shop.rim_port, HOST)];
    let more = |requests| traffic.iter().for_each(|t| t.more(requests));
    more(20);
    put("v2");
    shop.until_both_answer("v2");
    until_reconciled(&runtime, &admin);

    first.process.kill();
    more(50);
    until_well(&second, "kube:");
    // The Envoy that has lost its control plane goes to the other one.
    put("v1");
    shop.until_both_answer("v1");
    until_it_writes(&second);
    until_reconciled(&runtime, &admin);

    // Both Envoys are its own now.
    first.restart();
    put("v2");
    shop.until_both_answer("v2");
    assert_eq!(until_reconciled(&runtime, &admin), "2/2 proxies up to date.");
    until_it_writes(&second);
    traffic.into_iter().for_each(Traffic::end);
    edge.assert_no_nacks();
    rim.assert_no_nacks();
}
