//! A right is taken away, and then a CRD with all its objects, while requests go through a real Envoy: none fails, the config in
//! force stays, the page of the sources names the fault, and changes are followed again when it is back.

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    admin::{Admin, crd, server},
    gate::{Gate, install, manifest},
    mesh::ControlPlane,
    process::{scratch, wait_for, wait_until},
    shop::{CRDS, HOST, Shop, apply, arguments, until_stale, until_well},
    traffic::Traffic,
};

const ROUTES: &str = "virtualservices";
const CRD: &str = "virtualservices.networking.istio.io";

/// Waits until the page says this state of the watched kind, and why.
fn until_watch_is(plane: &ControlPlane, state: &str, why: &str) {
    wait_until(&format!("{CRD} is {state}"), || {
        let page = plane.debug("/debug/sourcez");
        let feeds = page.as_array().into_iter().flatten().flat_map(|s| s["feeds"].as_array().into_iter().flatten());
        let found = feeds.filter(|f| f["resource"] == CRD).cloned().collect::<Vec<Value>>();
        let says = |f: &Value| f["state"] == state && f["last_error"].as_str().is_some_and(|e| e.contains(why));
        if found.len() == 1 && says(&found[0]) { Ok(()) } else { Err(format!("{found:#?}")) }
    });
}

/// The role that lets the process read, with VirtualServices or without.
fn reader(with_routes: bool) -> Value {
    let is_reader = |o: &Value| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "pilothouse-reader";
    let mut role = manifest().into_iter().find(is_reader).unwrap();
    for rule in role["rules"].as_array_mut().unwrap() {
        rule["resources"].as_array_mut().unwrap().retain(|name| with_routes || name != ROUTES);
    }
    role
}

fn take_crd_away(runtime: &Runtime, admin: &Admin) {
    runtime.block_on(admin.delete(&crd(CRD)));
    wait_for("the CRD is gone", || runtime.block_on(admin.get(&crd(CRD))).is_null().then_some(()));
}

#[test]
fn a_right_and_a_crd_are_taken_away_and_given_back() {
    let runtime = Runtime::new().unwrap();
    let Some((_cluster, admin)) = runtime.block_on(server(&CRDS)) else { return };
    let shop = Shop::open();
    let put = |version: &str| runtime.block_on(apply(&admin, &Shop::route(version)));
    runtime.block_on(async {
        install(&admin).await;
        apply(&admin, &shop.objects("v1")).await;
    });
    let gate = runtime.block_on(Gate::start(&admin));
    let set_rights = |role: &Value| {
        runtime.block_on(async {
            admin.apply(role).await;
            gate.read_again(&admin).await;
        });
    };
    let kubeconfig = gate.kubeconfig(&scratch(), "sa:istio-system:pilothouse");
    let plane = ControlPlane::launch(scratch(), &arguments(&[("--kubeconfig", &kubeconfig)]));
    plane.wait_ready();
    let envoy = shop.edge(&plane);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);

    set_rights(&reader(false));
    until_watch_is(&plane, "forbidden", "403");
    until_stale(&plane, "kube:Kubernetes/crd");
    put("v2");
    traffic.more(50);
    // The other kinds are followed meanwhile.
    let other = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "other", "namespace": "shop"}, "spec": {"hosts": ["other.example"], "resolution": "DNS",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}});
    runtime.block_on(admin.apply(&other));
    wait_for("the other host", || plane.debug("/debug/configz").to_string().contains("other.example").then_some(()));
    shop.until_edge_answers("v1");
    set_rights(&reader(true));
    shop.until_edge_answers("v2");
    until_well(&plane, "kube:Kubernetes/crd");

    take_crd_away(&runtime, &admin);
    until_watch_is(&plane, "absent", "");
    until_stale(&plane, "kube:Kubernetes/crd");
    traffic.more(50);
    shop.until_edge_answers("v2");
    runtime.block_on(admin.apply(&crd(CRD)));
    put("v1");
    shop.until_edge_answers("v1");
    until_watch_is(&plane, "watching", "");
    until_well(&plane, "kube:Kubernetes/crd");
    traffic.end();
    envoy.assert_no_nacks();
}
