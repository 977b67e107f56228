//! Changes under traffic: what a change brings and what it takes away come in the order in which no request can fall between.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use crate::{
    config::{gateway, object, service},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for},
};

const NODE: &str = "router~127.0.0.1~edge.istio-system~istio-system.svc.cluster.local";

/// One service at a time, under a name of its own: every change makes one cluster, moves the route and takes the other away.
fn one_of_two(port: u16, round: usize, echo: &Echo) -> String {
    let host = format!("web-{round}.example");
    let route =
        json!({"hosts": ["web.example"], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": host}}]}]});
    service(&host, 80, "HTTP", &[(echo.port, "v1", "")]) + &gateway(port) + &object("VirtualService", "web", &route)
}

fn services_take_turns(delta: bool) {
    const ROUNDS: usize = 12;
    let port = free_port();
    let echoes: Vec<Echo> = (0..=ROUNDS).map(|round| Echo::start(&format!("v{round}"))).collect();
    let plane = ControlPlane::start(&[("shop.yaml", one_of_two(port, 0, &echoes[0]))]);
    let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), delta);
    let name = || get(port, "web.example", "/", &[]).ok().map(|a| a.seen("name"));
    wait_for("the gateway answers", || name().filter(|n| n == "v0"));

    let (stop, failed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    match get(port, "web.example", "/", &[]) {
                        Ok(answer) if answer.status == 200 => {}
                        other => failed.lock().unwrap().push(format!("{other:?}")),
                    }
                }
            });
        }
        for (round, echo) in echoes.iter().enumerate().skip(1) {
            plane.write("shop.yaml", &one_of_two(port, round, echo));
            wait_for("the next service has taken over", || name().filter(|n| *n == echo.name));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} requests failed: {:?}", failed.len(), failed.first());
    envoy.assert_no_nacks();
}

#[test]
fn services_take_turns_in_state_of_the_world() {
    services_take_turns(false);
}

#[test]
fn services_take_turns_in_delta() {
    services_take_turns(true);
}
