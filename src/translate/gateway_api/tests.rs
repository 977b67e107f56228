//! Tests of statuses, and of objects that get none.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    model::{ConfigSnapshot, Origin, PushInputs, decode::from_value},
    translate::Translation,
};

fn gateway(name: &str, class: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": name, "namespace": "edge"},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
}

fn translated(objects: &[Value]) -> Translation {
    let configs = objects.iter().map(|o| Arc::new(from_value(o, Origin::default()).unwrap()));
    Translation::build(PushInputs { configs: ConfigSnapshot::of(configs), ..PushInputs::default() })
}

#[test]
fn a_remote_gateway_has_the_addresses_that_its_user_gives() {
    let addresses = |given: Value| {
        let mut remote = gateway("far", "istio-remote");
        remote["spec"]["addresses"] = given;
        remote["status"] = json!({"addresses": [{"value": "192.0.2.1"}]});
        let status = translated(&[remote]).statuses.into_values().next().unwrap();
        status.get("addresses").cloned()
    };
    assert_eq!(addresses(json!([{"value": "192.0.2.7"}])), Some(json!([{"value": "192.0.2.7"}])));
    assert_eq!(addresses(json!([])), None);
}

#[test]
fn of_an_object_of_another_revision_nothing_is_said_though_it_is_in_force() {
    let (mut ours, mut theirs) = (gateway("ours", "istio"), gateway("theirs", "istio"));
    ours["metadata"]["labels"] = json!({"istio.io/rev": "default"});
    theirs["metadata"]["labels"] = json!({"istio.io/rev": "canary"});
    let got = translated(&[ours, theirs]);
    let named: Vec<&str> = got.statuses.keys().map(|key| &*key.name).collect();
    assert_eq!(named, ["ours"]);
    assert_eq!(got.gateways.len(), 2);
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]}})
}

fn route(namespace: &str, spec: Value) -> Value {
    let mut route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "web", "namespace": namespace}, "spec": spec});
    route["spec"]["parentRefs"] = json!([{"name": "edge", "namespace": "edge"}]);
    route
}

/// Status and reason of a condition: `True Accepted`.
fn condition(conditions: &Value, kind: &str) -> String {
    let list = conditions.as_array().unwrap_or_else(|| panic!("{kind} in {conditions}"));
    let found = list.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null);
    format!("{} {}", found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default())
}

fn status<'a>(translation: &'a Translation, kind: &str) -> &'a Value {
    let found = translation.statuses.iter().find(|(key, _)| key.kind.as_str() == kind);
    found.unwrap_or_else(|| panic!("{kind} has no status")).1
}

/// The condition of the only route at its only parent.
fn of_route(objects: &[Value], kind: &str) -> String {
    condition(&status(&translated(objects), "HTTPRoute")["parents"][0]["conditions"], kind)
}

fn open(mut gateway: Value) -> Value {
    gateway["spec"]["listeners"][0]["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    gateway
}

#[test]
fn backends_of_another_namespace_need_a_grant_that_names_them() {
    let grant = |from: &str, to: Value| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": "g", "namespace": "data"},
            "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": from, "namespace": "shop"}], "to": [to]}})
    };
    let backend = json!({"name": "db", "namespace": "data", "port": 80});
    let route = route("shop", json!({"rules": [{"backendRefs": [backend]}]}));
    let with = |grant: Option<Value>| {
        let mut objects = vec![open(gateway("edge", "istio")), service("data", "db"), route.clone()];
        objects.extend(grant);
        of_route(&objects, "ResolvedRefs")
    };
    let service = |with: Value| {
        let mut to = json!({"group": "", "kind": "Service"});
        to.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        to
    };
    assert_eq!(with(None), "False RefNotPermitted");
    assert_eq!(with(Some(grant("HTTPRoute", service(json!({}))))), "True ResolvedRefs");
    assert_eq!(with(Some(grant("HTTPRoute", service(json!({"name": "db"}))))), "True ResolvedRefs");
    for wrong in [
        grant("GRPCRoute", service(json!({}))),
        grant("HTTPRoute", service(json!({"name": "other"}))),
        grant("HTTPRoute", json!({"group": "", "kind": "Secret"})),
    ] {
        assert_eq!(with(Some(wrong.clone())), "False RefNotPermitted", "{wrong}");
    }
}

#[test]
fn a_route_is_told_why_no_listener_takes_it() {
    let of =
        |gateway: Value, spec: Value| of_route(&[gateway, service("shop", "web"), route("shop", spec)], "Accepted");
    let rules = || json!({"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    let named = |host: &str| {
        let mut spec = rules();
        spec["hostnames"] = json!([host]);
        spec
    };
    let mut narrow = open(gateway("edge", "istio"));
    narrow["spec"]["listeners"][0]["hostname"] = "*.shop.example".into();
    assert_eq!(of(open(gateway("edge", "istio")), rules()), "True Accepted");
    assert_eq!(of(gateway("edge", "istio"), rules()), "False NotAllowedByListeners");
    assert_eq!(of(narrow.clone(), named("a.shop.example")), "True Accepted");
    assert_eq!(of(narrow.clone(), named("shop.example")), "False NoMatchingListenerHostname");
    assert_eq!(of(narrow, named("a.other.example")), "False NoMatchingListenerHostname");
}

#[test]
fn a_rule_without_a_usable_backend_goes_to_no_other_and_the_others_are_routed() {
    let rule = |path: &str, backend: Value| json!({"matches": [{"path": {"type": "Exact", "value": path}}], "backendRefs": [backend]});
    let spec = json!({"rules": [
        rule("/good", json!({"name": "web", "port": 80})),
        rule("/absent", json!({"name": "gone", "port": 80})),
        rule("/kind", json!({"group": "apps", "kind": "Deployment", "name": "web", "port": 80})),
    ]});
    let objects = [open(gateway("edge", "istio")), service("shop", "web"), route("shop", spec)];
    let translation = translated(&objects);
    let told = &status(&translation, "HTTPRoute")["parents"][0]["conditions"];
    assert_eq!(condition(told, "Accepted"), "True Accepted");
    assert!(["False BackendNotFound", "False InvalidKind"].contains(&&*condition(told, "ResolvedRefs")), "{told}");
    let made = translation.virtual_services[0].virtual_service().unwrap();
    let of = |path: &str| {
        let is = |http: &&crate::proto::networking::HttpRoute| format!("{:?}", http.r#match).contains(path);
        made.http.iter().find(is).unwrap_or_else(|| panic!("no {path}"))
    };
    let hosts = |path: &str| -> Vec<String> {
        of(path).route.iter().map(|r| r.destination.clone().unwrap_or_default().host).collect()
    };
    assert_eq!(hosts("/good"), ["web.shop.svc.cluster.local"]);
    // Envoy answers 500 where there is no such cluster.
    assert_eq!(hosts("/absent"), ["gone.shop.svc.cluster.local"]);
    assert!(!hosts("/kind").contains(&"web.shop.svc.cluster.local".to_string()), "{:?}", of("/kind"));
}

#[test]
fn listeners_that_exclude_each_other_say_so() {
    let listener = |name: &str, protocol: &str, host: &str| {
        let mut listener = json!({"name": name, "port": 80, "protocol": protocol});
        if !host.is_empty() {
            listener["hostname"] = host.into();
        }
        listener
    };
    let conflicts = |listeners: [Value; 2]| {
        let mut edge = gateway("edge", "istio");
        edge["spec"]["listeners"] = json!(listeners);
        let translation = translated(&[edge]);
        let of = |at: usize| condition(&status(&translation, "Gateway")["listeners"][at]["conditions"], "Conflicted");
        [of(0), of(1)]
    };
    let [a, b] = conflicts([listener("a", "HTTP", "a.example"), listener("b", "HTTP", "b.example")]);
    assert_eq!((&*a, &*b), ("False NoConflicts", "False NoConflicts"));
    let same = conflicts([listener("a", "HTTP", "a.example"), listener("b", "HTTP", "a.example")]);
    assert!(same.iter().any(|c| c == "True HostnameConflict"), "{same:?}");
    let other = conflicts([listener("a", "HTTP", ""), listener("b", "TCP", "")]);
    assert!(other.iter().any(|c| c == "True ProtocolConflict"), "{other:?}");
}

#[test]
fn weights_are_kept_and_a_backend_of_weight_0_gets_nothing() {
    let backends = json!([
        {"name": "web", "port": 80, "weight": 3}, {"name": "web", "port": 80, "weight": 0}, {"name": "other", "port": 80},
    ]);
    let objects = [
        open(gateway("edge", "istio")),
        service("shop", "web"),
        service("shop", "other"),
        route("shop", json!({"rules": [{"backendRefs": backends}]})),
    ];
    let translation = translated(&objects);
    let made = translation.virtual_services[0].virtual_service().unwrap();
    let weights: Vec<_> = made.http[0]
        .route
        .iter()
        .map(|r| (r.destination.as_ref().unwrap().host.split('.').next().unwrap(), r.weight))
        .collect();
    assert_eq!(weights, [("web", 3), ("other", 1)]);
}
