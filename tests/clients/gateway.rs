//! Envoy as a gateway.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    config::{self, gateway, object, service, subsets},
    http::{Answer, Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for},
};

const NODE: &str = "router~127.0.0.1~edge.istio-system~istio-system.svc.cluster.local";

const HOST: &str = "web.example";

fn routes(http: &Value) -> String {
    object("VirtualService", "web", &json!({"hosts": [HOST], "gateways": ["edge"], "http": http}))
}

fn to(subset: &str) -> Value {
    config::to(HOST, subset)
}

/// A gateway in front of `web.example` with two versions.
struct Edge {
    port: u16,
    v1: Echo,
    v2: Echo,
    plane: ControlPlane,
    envoy: Envoy,
}

impl Edge {
    fn start(http: &Value, delta: bool) -> Self {
        Self::start_with(Envoy::connect, http, delta)
    }

    /// With the Envoy that `connect` starts: control plane's port, node id, metadata, delta.
    fn start_with(connect: fn(u16, &str, &Value, bool) -> Envoy, http: &Value, delta: bool) -> Self {
        let (v1, v2, port) = (Echo::start("v1"), Echo::start("v2"), free_port());
        let endpoints = [(v1.port, "v1", ""), (v2.port, "v2", "")];
        let text = service(HOST, 80, "HTTP", &endpoints) + &subsets(HOST) + &gateway(port) + &routes(http);
        let plane = ControlPlane::start(&[("shop.yaml", text)]);
        let labels = json!({"app": "edge", "istio": "ingressgateway"});
        let envoy = connect(plane.grpc_port, NODE, &json!({ "LABELS": labels }), delta);
        let edge = Self { port, v1, v2, plane, envoy };
        wait_for("the gateway answers", || edge.get("/", &[]).ok());
        edge
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
        get(self.port, "web.example", path, headers)
    }
}

fn routes_by_header_path_and_default(connect: fn(u16, &str, &Value, bool) -> Envoy, delta: bool) {
    let edge = Edge::start_with(
        connect,
        &json!([
            {"match": [{"headers": {"x-user": {"exact": "jason"}}}], "route": [to("v2")]},
            {"match": [{"uri": {"prefix": "/v2"}}], "rewrite": {"uri": "/new"}, "route": [to("v2")]},
            {"match": [{"uri": {"exact": "/old"}}], "redirect": {"uri": "/moved", "redirectCode": 302}},
            {"route": [to("v1")]},
        ]),
        delta,
    );
    assert_eq!(edge.get("/", &[]).unwrap().seen("name"), "v1");
    assert_eq!(edge.get("/", &[("x-user", "jason")]).unwrap().seen("name"), "v2");
    let rewritten = edge.get("/v2/items", &[]).unwrap();
    assert_eq!((rewritten.seen("name"), rewritten.seen("path")), ("v2".to_string(), "/new/items".to_string()));
    let moved = edge.get("/old", &[]).unwrap();
    assert_eq!((moved.status, moved.headers["location"].as_str()), (302, "http://web.example/moved"));
    routes_of_the_service_apis(&edge);
    edge.envoy.assert_no_nacks();
}

/// A Gateway of `networking.x-k8s.io` on a port of its own at the same router, with a route to a service for each version.
fn routes_of_the_service_apis(edge: &Edge) {
    let port = free_port();
    let object = |kind: &str, spec: Value| {
        let meta = json!({"name": "old", "namespace": "shop"});
        let object =
            json!({"apiVersion": "networking.x-k8s.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec});
        format!("---\n{object}\n")
    };
    let listener = json!({"port": port, "protocol": "HTTP", "hostname": "*.example", "routes": {"kind": "HTTPRoute"}});
    let to = |name: &str| json!([{"serviceName": name, "port": 80}]);
    let header = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": {"x-old": "yes"}}});
    let objects = [
        service("one.shop.svc.cluster.local", 80, "HTTP", &[(edge.v1.port, "v1", "")]),
        service("two.shop.svc.cluster.local", 80, "HTTP", &[(edge.v2.port, "v2", "")]),
        object("GatewayClass", json!({"controller": "istio.io/gateway-controller"})),
        object("Gateway", json!({"gatewayClassName": "old", "listeners": [listener]})),
        object(
            "HTTPRoute",
            json!({"hostnames": [HOST], "rules": [
                {"matches": [{"path": {"type": "Prefix", "value": "/two"}}], "filters": [header], "forwardTo": to("two")},
                {"forwardTo": to("one")},
            ]}),
        ),
    ];
    edge.plane.write("old.yaml", &objects.concat());
    wait_for("the old group's route answers", || get(port, HOST, "/", &[]).ok().filter(|a| a.seen("name") == "v1"));
    let two = get(port, HOST, "/two", &[]).unwrap();
    assert_eq!((two.seen("name"), two.seen("x-old")), ("v2".to_string(), "yes".to_string()));
    assert_eq!(get(port, "other.example", "/", &[]).unwrap().status, 404);
}

#[test]
fn routes_by_header_and_path_in_state_of_the_world() {
    routes_by_header_path_and_default(Envoy::connect, false);
}

#[test]
fn routes_by_header_and_path_in_delta() {
    routes_by_header_path_and_default(Envoy::connect, true);
}

#[test]
fn the_oldest_supported_envoy_routes_by_header_and_path() {
    routes_by_header_path_and_default(Envoy::oldest, false);
    routes_by_header_path_and_default(Envoy::oldest, true);
}

#[test]
fn weights_are_kept_over_a_thousand_requests_and_follow_a_change() {
    let split = |a: u32, b: u32| {
        let mut routes = json!([{"route": [to("v1"), to("v2")]}]);
        routes[0]["route"][0]["weight"] = a.into();
        routes[0]["route"][1]["weight"] = b.into();
        routes
    };
    let edge = Edge::start(&split(80, 20), true);
    let share = || {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..1000 {
            *seen.entry(edge.get("/", &[]).unwrap().seen("name")).or_default() += 1;
        }
        seen.get("v2").copied().unwrap_or(0)
    };
    let v2 = share();
    assert!((140..=260).contains(&v2), "20 % of 1,000 is about 200, not {v2}");

    let endpoints = [(edge.v1.port, "v1", ""), (edge.v2.port, "v2", "")];
    let text = service(HOST, 80, "HTTP", &endpoints) + &subsets(HOST) + &gateway(edge.port) + &routes(&split(0, 100));
    edge.plane.write("shop.yaml", &text);
    wait_for("the new weight arrives", || {
        (0..20).all(|_| edge.get("/", &[]).is_ok_and(|a| a.seen("name") == "v2")).then_some(())
    });
    assert_eq!(share(), 1000);
    edge.envoy.assert_no_nacks();
}

#[test]
fn retries_timeouts_faults_and_mirrors() {
    let edge = Edge::start(
        &json!([
            {"match": [{"uri": {"prefix": "/retry"}}], "retries": {"attempts": 3, "retryOn": "5xx"}, "route": [to("v1")]},
            {"match": [{"uri": {"prefix": "/slow"}}], "timeout": "300ms", "route": [to("v1")]},
            {"match": [{"uri": {"prefix": "/fault"}}],
             "fault": {"abort": {"percentage": {"value": 100}, "httpStatus": 418}}, "route": [to("v1")]},
            {"match": [{"uri": {"prefix": "/mirror"}}], "route": [to("v1")],
             "mirror": {"host": "web.example", "subset": "v2"}},
            {"route": [to("v1")]},
        ]),
        false,
    );
    edge.v1.fail_first.store(2, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(edge.get("/retry", &[]).unwrap().status, 200);
    assert_eq!(edge.get("/slow", &[("x-delay-ms", "5000")]).unwrap().status, 504);
    assert_eq!(edge.get("/fault", &[]).unwrap().status, 418);
    assert_eq!(edge.get("/mirror/me", &[]).unwrap().seen("name"), "v1");
    wait_for("the mirror sees the request", || edge.v2.paths().contains(&"/mirror/me".to_string()).then_some(()));
    edge.envoy.assert_no_nacks();
}

#[test]
fn a_crash_of_the_control_plane_costs_no_request() {
    let mut edge = Edge::start(&json!([{"route": [to("v1")]}]), true);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let port = edge.port;
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut sent = 0u32;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                assert_eq!(get(port, "web.example", "/", &[]).unwrap().status, 200);
                sent += 1;
                // Each request is a connection; thousands a second would use up the ports of a slow machine.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            sent
        });
        edge.plane.crash_and_restart();
        wait_for("Envoy is connected again", || (edge.envoy.stat("control_plane.connected_state") == 1).then_some(()));
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(traffic.join().unwrap() > 0);
    });
    edge.envoy.assert_no_nacks();
}
