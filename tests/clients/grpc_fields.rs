//! Fields of routes and clusters that gRPC refuses, does not apply or applies in its own way, with all its clients.

use std::{collections::BTreeMap, iter};

use serde_json::{Value, json};

use crate::{
    config::{document, object, service, subsets},
    grpc::{Client, GO, Grpc, HOST, JAVA, OLDER_GO, OLDER_JAVA, bootstrap, server},
    mesh::ControlPlane,
    process::{free_port, wait_for},
};

const ALL: [Grpc; 6] = [Grpc::Python, Grpc::JavaScript, GO, OLDER_GO, JAVA, OLDER_JAVA];
/// Called by routes of Gateway API.
const BY_SERVICE: &str = "by-service.shop.svc.cluster.local";
const BY_PREFIX: &str = "by-prefix.shop.svc.cluster.local";

/// A client of a host, in its own process.
fn client(grpc: Grpc, plane: &ControlPlane, host: &str) -> Option<Client> {
    let command = grpc.client(&format!("xds:///{host}:9000"))?;
    Some(Client::start(command, &bootstrap(plane, "caller", "10.9.9.9")))
}

/// A route of Gateway API to a ServiceEntry.
fn route_of(kind: &str, host: &str, matches: &Value) -> String {
    let name = host.replace('.', "-");
    let group = "networking.istio.io";
    let rule = json!({"matches": [matches], "backendRefs": [{"group": group, "kind": "Hostname", "name": host, "port": 9000}]});
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"},
        "spec": {"parentRefs": [{"group": group, "kind": "ServiceEntry", "name": name}], "rules": [rule]},
    });
    format!("---\n{object}\n")
}

/// Valid objects whose fields gRPC refuses: routes and endpoints are served without them, and the fields are told. Calls on a
/// route that does not lead anywhere fail alone.
fn is_spared_of_fields_that_it_refuses(grpc: Grpc) {
    let port = free_port();
    let _server = server("one", port, None);
    let twice = service(HOST, 9000, "GRPC", &[(port, "v1", ""), (port, "v2", "")]);
    let on = |lane: &str| json!([{"headers": {"x-lane": {"exact": lane}}}]);
    let routes = json!({"hosts": [HOST], "http": [
        {"match": on("redirect"), "redirect": {"uri": "/x"}},
        {"match": on("direct"), "directResponse": {"status": 403}},
        {
            "corsPolicy": {"allowOrigins": [{"exact": "https://a.example"}]},
            "route": [{"destination": {"host": HOST}}],
        },
    ]});
    let once = |host: &str| service(host, 9000, "GRPC", &[(port, "v1", "")]);
    let by_service = route_of("GRPCRoute", BY_SERVICE, &json!({"method": {"service": "test.Echo"}}));
    let by_prefix = route_of("HTTPRoute", BY_PREFIX, &json!({"path": {"type": "PathPrefix", "value": "/test.Echo"}}));
    let plane = ControlPlane::start(&[
        ("echo.yaml", twice + &object("VirtualService", "echo", &routes)),
        ("by-service.yaml", once(BY_SERVICE) + &by_service),
        ("by-prefix.yaml", once(BY_PREFIX) + &by_prefix),
    ]);
    let Some(mut echo) = client(grpc, &plane, HOST) else { return };
    let all = |times| BTreeMap::from([("one".to_string(), times)]);
    assert_eq!(echo.call(20, ""), all(20), "{grpc:?}");
    for lane in ["redirect", "direct"] {
        let answers = echo.call(1, &format!("x-lane={lane}"));
        assert!(answers.keys().all(|answer| answer.starts_with("error: ")), "{grpc:?}, {lane}: {answers:?}");
    }
    assert_eq!(echo.call(20, "x-lane=other"), all(20), "{grpc:?}");
    for host in [BY_SERVICE, BY_PREFIX] {
        let mut client = client(grpc, &plane, host).unwrap();
        assert_eq!(client.call(20, ""), all(20), "{grpc:?}, {host}");
    }
    let told = plane.debug("/debug/push_status");
    let metrics: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(metrics, ["pilothouse_grpc_config_not_applied"], "{grpc:?}: no client refused anything: {told}");
    let told = told.to_string();
    assert!(told.contains("CORS") && told.contains("redirects and direct responses"), "the fields are told: {told}");
}

#[test]
fn clients_are_spared_of_fields_that_they_refuse() {
    for grpc in ALL {
        is_spared_of_fields_that_it_refuses(grpc);
    }
}

/// `http2MaxRequests` limits a gRPC-Java client that reports its load, and the reports are shown.
fn is_limited_and_reports(grpc: Grpc) {
    const FREE: &str = "free.shop.svc.cluster.local";
    let port = free_port();
    let _server = server("one", port, None);
    let endpoints = [(port, "v1", "")];
    let rule = json!({"host": HOST, "trafficPolicy": {"connectionPool": {"http": {"http2MaxRequests": 1}}}});
    let objects = service(HOST, 9000, "GRPC", &endpoints)
        + &service(FREE, 9000, "GRPC", &endpoints)
        + &object("DestinationRule", "echo", &rule);
    let plane = ControlPlane::start(&[("echo.yaml", objects)]);
    let Some(mut limited) = client(grpc, &plane, HOST) else { return };
    assert_eq!(limited.call(5, ""), BTreeMap::from([("one".to_string(), 5)]), "one after another");
    let answers = limited.burst(200);
    let (good, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) =
        answers.into_iter().partition(|(answer, _)| answer == "one");
    assert!(!good.is_empty() && !dropped.is_empty(), "{grpc:?}: {good:?} {dropped:?}");
    assert!(dropped.keys().all(|answer| answer.contains("max concurrent requests limit")), "{grpc:?}: {dropped:?}");
    let mut free = client(grpc, &plane, FREE).unwrap();
    free.call(1, "");
    assert_eq!(free.burst(200), BTreeMap::from([("one".to_string(), 200)]), "{grpc:?}");
    let load = |host: &str| plane.debug("/debug/loadz")["clusters"][format!("outbound|9000||{host}")].clone();
    let of = |host: &str, field: &str| load(host)[field].as_u64().unwrap_or_default();
    let (answered, refused) = (u64::from(good["one"]) + 5, u64::from(dropped.values().sum::<u32>()));
    wait_for("the calls are reported", || {
        let is_told =
            of(HOST, "successful") == answered && of(HOST, "dropped") == refused && of(FREE, "successful") == 201;
        is_told.then_some(())
    });
    assert!(iter::zip([HOST, FREE], [refused, 0]).all(|(host, dropped)| of(host, "dropped") == dropped));
}

#[test]
fn java_is_limited_by_a_rule_and_reports_its_load() {
    is_limited_and_reports(JAVA);
    is_limited_and_reports(OLDER_JAVA);
}

/// Patches of a virtual host's route and of clusters have their effect; one whose result gRPC would refuse has none.
fn is_patched(grpc: Grpc) {
    let (first, second) = (free_port(), free_port());
    let _servers = [server("one", first, None), server("two", second, None)];
    let objects = service(HOST, 9000, "GRPC", &[(first, "v1", ""), (second, "v2", "")]) + &subsets(HOST);
    let plane = ControlPlane::start(&[("echo.yaml", objects)]);
    let Some(mut client) = client(grpc, &plane, HOST) else { return };
    let filter = |subset: &str| {
        let to = json!({"route": {"cluster": format!("outbound|9000|{subset}|{HOST}")}});
        let patch = |target: &str, on: Value, value: Value| {
            let mut condition = json!({"context": "SIDECAR_OUTBOUND"});
            condition.as_object_mut().unwrap().extend(on.as_object().unwrap().clone());
            json!({"applyTo": target, "match": condition, "patch": {"operation": "MERGE", "value": value}})
        };
        let spec = json!({"configPatches": [
            patch("HTTP_ROUTE", json!({"routeConfiguration": {"vhost": {"domainName": HOST}}}), to),
            patch("CLUSTER", json!({"cluster": {"service": HOST}}), json!({"lb_policy": "MAGLEV"})),
        ]});
        document("networking.istio.io/v1alpha3", "EnvoyFilter", "routes", &spec)
    };
    for (subset, name) in [("v1", "one"), ("v2", "two")] {
        plane.write("filter.yaml", &filter(subset));
        wait_for(name, || (client.call(10, "") == BTreeMap::from([(name.to_string(), 10)])).then_some(()));
    }
    let told = plane.debug("/debug/push_status");
    let refused = told.as_object().unwrap().keys().find(|metric| metric.contains("reject"));
    assert_eq!(refused, None, "{grpc:?}: {told}");
}

#[test]
fn patches_of_envoy_filters_count_for_clients() {
    for grpc in [Grpc::Python, GO, JAVA] {
        is_patched(grpc);
    }
}
