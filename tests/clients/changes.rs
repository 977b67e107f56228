//! Changes under traffic: additions and removals of a change come in an order in which no request fails.

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

/// The failures of requests that ran beside `changes`: everything that is not a 200.
fn failures_beside(port: u16, changes: impl FnOnce()) -> Vec<String> {
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
        changes();
        stop.store(true, Ordering::SeqCst);
    });
    failed.into_inner().unwrap()
}

/// A gateway in front of the first service.
struct Edge {
    port: u16,
    plane: ControlPlane,
    envoy: Envoy,
}

impl Edge {
    fn start(first: &Echo, delta: bool) -> Self {
        let port = free_port();
        let plane = ControlPlane::start(&[("shop.yaml", one_of_two(port, 0, first))]);
        let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), delta);
        let edge = Self { port, plane, envoy };
        edge.until(first);
        edge
    }

    fn until(&self, echo: &Echo) {
        wait_for("the service answers", || {
            get(self.port, "web.example", "/", &[]).ok().filter(|a| a.seen("name") == echo.name)
        });
    }
}

fn services_take_turns(delta: bool) {
    let echoes: Vec<Echo> = (0..=12).map(|round| Echo::start(&format!("v{round}"))).collect();
    let edge = Edge::start(&echoes[0], delta);
    let failed = failures_beside(edge.port, || {
        for (round, echo) in echoes.iter().enumerate().skip(1) {
            edge.plane.write("shop.yaml", &one_of_two(edge.port, round, echo));
            edge.until(echo);
        }
    });
    assert!(failed.is_empty(), "{} requests failed: {:?}", failed.len(), failed.first());
    edge.envoy.assert_no_nacks();
}

#[test]
fn services_take_turns_in_state_of_the_world() {
    services_take_turns(false);
}

#[test]
fn services_take_turns_in_delta() {
    services_take_turns(true);
}

#[test]
fn a_change_that_comes_while_the_control_plane_is_down_costs_no_request() {
    let echoes: Vec<Echo> = (0..=6).map(|round| Echo::start(&format!("v{round}"))).collect();
    let mut edge = Edge::start(&echoes[0], true);
    let port = edge.port;
    let failed = failures_beside(port, || {
        for (round, echo) in echoes.iter().enumerate().skip(1) {
            edge.plane.process.kill();
            edge.plane.write("shop.yaml", &one_of_two(port, round, echo));
            edge.plane.crash_and_restart();
            edge.until(echo);
        }
    });
    assert!(failed.is_empty(), "{} requests failed: {:?}", failed.len(), failed.first());
    edge.envoy.assert_no_nacks();
}
