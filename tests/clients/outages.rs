//! Sources die and come back, and so does the process, while requests go through a real Envoy: none fails, nothing is
//! refused, and `/debug/sourcez` names the fault for as long as it lasts.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    admin::{Admin, server},
    config::service,
    mesh::{ControlPlane, folder},
    process::{scratch, wait_for},
    shop::{CRDS, Doors, HOST, Shop, apply, arguments, until_saved, until_saved_is_served, until_stale, until_well},
    traffic::Traffic,
};

#[test]
fn a_folder_goes_and_comes_back() {
    let shop = Shop::open();
    let plane = ControlPlane::start(&[("shop.yaml", shop.objects("v1"))]);
    let envoy = shop.edge(&plane);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);
    let aside = scratch().join("aside");
    fs::rename(&plane.configs, &aside).unwrap();
    until_stale(&plane, "file:");
    traffic.more(100);
    fs::write(aside.join("shop.yaml"), shop.objects("v2")).unwrap();
    fs::rename(&aside, &plane.configs).unwrap();
    until_well(&plane, "file:");
    shop.until_edge_answers("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

#[test]
fn an_upstream_is_killed_and_started_again() {
    let shop = Shop::open();
    let mut upstream = ControlPlane::start(&[("shop.yaml", shop.objects("v1"))]);
    let address = format!("127.0.0.1:{}", upstream.grpc_port);
    let plane = ControlPlane::launch(scratch(), &arguments(&[("--upstream", Path::new(&address))]));
    plane.wait_ready();
    let envoy = shop.edge(&plane);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);
    upstream.process.kill();
    until_stale(&plane, "xds:");
    traffic.more(100);
    upstream.write("shop.yaml", &shop.objects("v2"));
    upstream.restart();
    until_well(&plane, "xds:");
    shop.until_edge_answers("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

#[test]
fn a_new_process_takes_over_and_the_envoy_moves_to_it() {
    let shop = Shop::open();
    let (configs, socket) = (folder(&[("shop.yaml", shop.objects("v1"))]), scratch().join("handover"));
    let flags = arguments(&[("--config-dir", &configs), ("--handover-socket", &socket)]);
    let mut plane = ControlPlane::launch(configs, &flags);
    plane.wait_ready();
    let envoy = shop.edge(&plane);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);
    let before = plane.succeed();
    wait_for("the process before ends", || before.tail().contains("drained").then_some(()));
    assert!(before.tail().contains("another process has taken over"), "{}", before.tail());
    traffic.more(100);
    plane.write("shop.yaml", &shop.objects("v2"));
    shop.until_edge_answers("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

#[test]
fn the_process_is_killed_and_started_again_without_any_of_its_sources() {
    let shop = Shop::open();
    let mut upstream = ControlPlane::start(&[("shop.yaml", shop.objects("v1"))]);
    let (configs, state) = (folder(&[("other.yaml", service("other.example", 81, "HTTP", &[]))]), scratch());
    let address = format!("127.0.0.1:{}", upstream.grpc_port);
    let flags = [("--config-dir", &*configs), ("--upstream", Path::new(&address)), ("--state-dir", &state)];
    let mut flags = arguments(&flags);
    flags.push("--state-grace=1s".into());
    let mut plane = ControlPlane::launch(configs.clone(), &flags);
    plane.wait_ready();
    let envoy = shop.edge(&plane);
    until_saved(&state, 2);
    let traffic = Traffic::start(shop.port, HOST);
    traffic.more(20);

    plane.process.kill();
    upstream.process.kill();
    let aside = scratch().join("aside");
    fs::rename(&configs, &aside).unwrap();
    traffic.more(50);
    plane.restart();
    until_saved_is_served(&plane, "xds:");
    until_saved_is_served(&plane, "file:");
    assert_eq!(plane.debug("/debug/registryz").as_array().map(Vec::len), Some(2));
    wait_for("Envoy is back", || (envoy.stat("control_plane.connected_state") == 1).then_some(()));
    traffic.more(100);

    fs::rename(&aside, &configs).unwrap();
    upstream.write("shop.yaml", &shop.objects("v2"));
    upstream.restart();
    until_well(&plane, "xds:");
    until_well(&plane, "file:");
    shop.until_edge_answers("v2");
    traffic.end();
    envoy.assert_no_nacks();
}

#[test]
fn the_api_server_is_killed_and_started_again_and_so_is_the_process_meanwhile() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some((mut cluster, admin)) = runtime.block_on(server(&CRDS)) else { return };
    let (shop, state) = (Shop::open(), scratch());
    let doors = Doors::of(&shop);
    let mesh = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"mesh": "connectTimeout: 4s\n"},
        "metadata": {"name": "istio", "namespace": "istio-system"}});
    runtime.block_on(admin.apply(&mesh));
    runtime.block_on(apply(&admin, &shop.objects("v1")));
    runtime.block_on(doors.open(&admin, "v1"));
    let mut flags = arguments(&[("--kubeconfig", &cluster.kubeconfig), ("--state-dir", &state)]);
    flags.push("--state-grace=1s".into());
    let mut plane = ControlPlane::launch(scratch(), &flags);
    plane.wait_ready();
    let envoy = shop.edge(&plane);
    until_saved(&state, 5);
    doors.until_answered_by("v1");
    let traffic = doors.traffic().into_iter().chain([Traffic::start(shop.port, HOST)]).collect::<Vec<_>>();
    let more = |requests| traffic.iter().for_each(|t| t.more(requests));
    more(20);

    runtime.block_on(cluster.kill());
    until_stale(&plane, "kube:Kubernetes/");
    more(50);
    plane.process.kill();
    plane.restart();
    for source in ["crd", "gateway-api", "ingress", "registry"] {
        until_saved_is_served(&plane, &format!("kube:Kubernetes/{source}"));
    }
    assert_eq!(plane.debug("/debug/mesh")["connectTimeout"], "4s", "the mesh settings are of the cluster too");
    wait_for("Envoy is back", || (envoy.stat("control_plane.connected_state") == 1).then_some(()));
    more(50);

    let address = cluster.address();
    let cluster = runtime.block_on(cluster.restart(&address));
    until_well(&plane, "kube:Kubernetes/");
    let admin = runtime.block_on(Admin::of(&cluster));
    runtime.block_on(apply(&admin, &shop.objects("v2")));
    runtime.block_on(doors.open(&admin, "v2"));
    shop.until_edge_answers("v2");
    doors.until_answered_by("v2");
    traffic.into_iter().for_each(Traffic::end);
    envoy.assert_no_nacks();
}
