//! A machine outside of any cluster joins with its Envoy: others call it while it is connected, also over a crash of the
//! control plane.

use std::fs;

use serde_json::json;

use crate::{
    config::object,
    http::{Echo, get},
    mesh::{ControlPlane, Envoy, folder},
    process::{free_port, scratch, wait_for},
};

const CALLER: &str = "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local";
const MACHINE: &str = "sidecar~127.0.0.1~vm.shop~shop.svc.cluster.local";

fn config(port: u16, workload: u16) -> String {
    object(
        "ServiceEntry",
        "web",
        &json!({"hosts": ["web.example"], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": port, "name": "http", "protocol": "HTTP"}], "workloadSelector": {"labels": {"app": "web"}}}),
    ) + &object("WorkloadGroup", "vms", &json!({"template": {"labels": {"app": "web"}, "ports": {"http": workload}}}))
        + &object(
            "Sidecar",
            "client",
            &json!({"egress": [{"port": {"number": port, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1",
                "captureMode": "NONE", "hosts": ["./*"]}]}),
        )
}

#[test]
fn a_machine_is_called_while_its_envoy_is_connected() {
    let (echo, port, state) = (Echo::start("vm"), free_port(), scratch());
    let configs = folder(&[("shop.yaml", config(port, echo.port))]);
    let arguments = ["--config-dir".into(), configs.clone().into(), "--state-dir".into(), state.clone().into()];
    let mut plane = ControlPlane::launch(configs, &arguments);
    plane.wait_ready();
    let caller = Envoy::start(&plane, CALLER, &json!({"INTERCEPTION_MODE": "NONE"}), true);
    let status = || get(port, "web.example", "/", &[]).ok().map(|answer| answer.status);
    wait_for("no workload answers", || status().filter(|s| *s == 503));

    let metadata = json!({"AUTO_REGISTER_GROUP": "vms", "NAMESPACE": "shop", "INTERCEPTION_MODE": "NONE"});
    let machine = Envoy::start(&plane, MACHINE, &metadata, true);
    wait_for("the machine answers", || status().filter(|s| *s == 200));
    wait_for("its entry is on disk", || {
        let files = fs::read_dir(&state).unwrap().map(|file| file.unwrap().path());
        // A file that is still being written has another extension.
        let mut kept = files.filter(|path| path.extension().is_some_and(|e| e == "last-good"));
        kept.find(|path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).contains("vms-127.0.0.1"))
    });

    plane.crash_and_restart();
    wait_for("both are back", || {
        assert_eq!(status(), Some(200), "a crash of the control plane takes nothing from anybody");
        let back = plane.debug("/debug/configz").to_string().contains("istio.io/connectedAt");
        back.then_some(())
    });
    assert_eq!(status(), Some(200));
    machine.assert_no_nacks();
    drop(machine);
    wait_for("no workload answers any more", || status().filter(|s| *s == 503));
    caller.assert_no_nacks();
}
