//! Invalid parts are reported by name, and the rest of the object stays in effect.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    model::{ConfigSnapshot, Origin, PushInputs, decode::from_value},
    translate::Translation,
};

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.x-k8s.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

/// Translates the objects together with a class of Istio's; returns the reports as `kind name: message`.
fn translated(objects: &[Value]) -> (Translation, Vec<String>) {
    let class = object("GatewayClass", "edge", &json!({"controller": "istio.io/gateway-controller"}));
    let configs = objects.iter().chain([&class]).map(|o| Arc::new(from_value(o, Origin::default()).unwrap()));
    let got = Translation::build(PushInputs { configs: ConfigSnapshot::of(configs), ..PushInputs::default() });
    let said = got.reports.iter().map(|r| format!("{} {}: {}", r.key.kind, r.key.name, r.message)).collect();
    (got, said)
}

fn gateway(listeners: &Value) -> Value {
    object("Gateway", "web", &json!({"gatewayClassName": "edge", "listeners": listeners}))
}

fn listener(port: u32, protocol: &str) -> Value {
    json!({"port": port, "protocol": protocol, "routes": {"kind": format!("{}Route", protocol.trim_end_matches('S'))}})
}

#[test]
fn a_listener_that_cannot_be_served_leaves_the_others() {
    let mut foreign = listener(443, "HTTPS");
    foreign["tls"] = json!({"certificateRef": {"group": "example.test", "kind": "Vault", "name": "x"}});
    let (got, said) = translated(&[gateway(&json!([
        foreign,
        listener(443, "HTTPS"),
        listener(53, "UDP"),
        listener(0, "HTTP"),
        {"port": 8080, "protocol": "HTTP", "hostname": "a_b.test", "routes": {"kind": "HTTPRoute"}},
        listener(80, "HTTP"),
    ]))]);
    assert_eq!(got.gateways[0].gateway().unwrap().servers.len(), 1);
    let parts = [
        "listeners[0]: tls.certificateRef: example.test/Vault \"x\" is no Secret",
        "listeners[1]: tls is required",
        "listeners[2]: protocol UDP",
        "listeners[3].port.number",
        "listeners[4].hosts[0]",
    ];
    assert_eq!(said.len(), parts.len(), "{said:#?}");
    for (said, part) in said.iter().zip(parts) {
        assert!(said.starts_with(&format!("Gateway web: spec.{part}")), "{said} instead of {part}");
    }
    let (got, said) = translated(&[gateway(&json!([])), object("HTTPRoute", "r", &json!({"rules": [{}]}))]);
    assert!(got.gateways.is_empty() && got.virtual_services.is_empty());
    assert_eq!(said, ["Gateway web: spec.listeners: no listener can be served"]);
}

#[test]
fn a_rule_that_cannot_be_leaves_the_others() {
    let gateway = gateway(&json!([listener(80, "HTTP"), listener(90, "TCP")]));
    let to = |name: &str| json!([{"serviceName": name, "port": 80}]);
    let backend = json!({"group": "example.test", "kind": "Bucket", "name": "x"});
    let http = object(
        "HTTPRoute",
        "r",
        &json!({"rules": [
            {"matches": [{"extensionRef": backend}], "forwardTo": to("a")},
            {"matches": [{"path": {"type": "RegularExpression", "value": "("}}], "forwardTo": to("b")},
            {"filters": [{"type": "RequestMirror"}],
             "forwardTo": [{"backendRef": backend, "port": 1}, {"serviceName": "c", "filters": [{"type": "ExtensionRef"}]}]},
        ]}),
    );
    let tcp =
        object("TCPRoute", "r", &json!({"rules": [{"forwardTo": [{"backendRef": backend}]}, {"forwardTo": to("d")}]}));
    let (got, said) = translated(&[gateway, http, tcp]);
    let services: Vec<_> = got.virtual_services.iter().map(|c| c.virtual_service().unwrap()).collect();
    assert_eq!(services.iter().map(|s| (s.http.len(), s.tcp.len())).collect::<Vec<_>>(), [(1, 0), (0, 1)]);
    let only = &services[0].http[0].route;
    assert_eq!((only.len(), only[0].destination.as_ref().unwrap().host.as_str()), (1, "c.shop.svc.cluster.local"));
    let parts = [
        "HTTPRoute r: spec.rules[0]: extensionRef",
        "HTTPRoute r: spec.rules[1].match[0]",
        "HTTPRoute r: spec.rules[2].forwardTo[0]: only a serviceName",
        "HTTPRoute r: spec.rules[2]: a filter of type \"RequestMirror\" has no effect",
        "HTTPRoute r: spec.rules[2].forwardTo: a filter of type \"ExtensionRef\" has no effect",
        "TCPRoute r: spec.rules[0].forwardTo[0]: only a serviceName",
        "TCPRoute r: spec.rules[0]: route is required",
    ];
    assert_eq!(said.len(), parts.len(), "{said:#?}");
    for (said, part) in said.iter().zip(parts) {
        assert!(said.starts_with(part), "{said} instead of {part}");
    }
}

#[test]
fn an_object_that_does_not_decode_is_refused_alone() {
    let policy = |name: &str, authority: Value| {
        object(
            "BackendPolicy",
            name,
            &json!({"backendRefs": [{"name": "a"}, {"kind": "Bucket", "name": "b"}],
            "tls": {"certificateAuthorityRef": authority}}),
        )
    };
    let (got, said) = translated(&[
        gateway(&json!([listener(80, "HTTP")])),
        object("HTTPRoute", "bad", &json!({"gateways": {"allow": "Some"}, "rules": []})),
        object("TLSRoute", "bad", &json!({"rules": [{"forwardTo": [{"serviceName": "a", "weight": -1}]}]})),
        policy("good", json!({"name": "ca"})),
        policy("bad", json!({"kind": "ConfigMap", "name": "ca"})),
    ]);
    assert_eq!((got.gateways.len(), got.virtual_services.len(), got.destination_rules.len()), (1, 0, 1));
    let parts = [
        "HTTPRoute bad: spec.gateways.allow: unknown variant `Some`",
        "TLSRoute bad: spec.rules[0].forwardTo[0].weight: ",
        "BackendPolicy bad: spec.tls.certificateAuthorityRef: /ConfigMap \"ca\" is no Secret",
        "BackendPolicy good: spec.backendRefs[1]: /Bucket \"b\" is no Service",
    ];
    assert_eq!(said.len(), parts.len(), "{said:#?}");
    for (said, part) in said.iter().zip(parts) {
        assert!(said.starts_with(part), "{said} instead of {part}");
    }
}

#[test]
fn names_of_both_groups_do_not_meet() {
    let route = |api_version: &str, spec: Value| json!({"apiVersion": api_version, "kind": "HTTPRoute", "metadata": {"name": "r", "namespace": "shop"}, "spec": spec});
    let now = "gateway.networking.k8s.io/v1";
    let new_gateway = json!({"apiVersion": now, "kind": "Gateway", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"gatewayClassName": "istio", "listeners": [{"name": "l", "port": 81, "protocol": "HTTP"}]}});
    let new_route =
        route(now, json!({"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [{"name": "a", "port": 80}]}]}));
    let old_route =
        route("networking.x-k8s.io/v1alpha1", json!({"rules": [{"forwardTo": [{"serviceName": "b", "port": 80}]}]}));
    let (got, said) = translated(&[gateway(&json!([listener(80, "HTTP")])), new_gateway, new_route, old_route]);
    assert_eq!((got.gateways.len(), got.virtual_services.len(), said), (2, 2, Vec::new()));
    let of_status: Vec<&str> = got.statuses.keys().map(|key| key.kind.group()).collect();
    assert_eq!(of_status, ["gateway.networking.k8s.io"; 2], "the old group has no status");
    let twins = [
        gateway(&json!([listener(80, "HTTP"), listener(90, "TCP")])),
        object("HTTPRoute", "r-tcp", &json!({"rules": [{}]})),
        object("TCPRoute", "r", &json!({"rules": [{"forwardTo": [{"serviceName": "b", "port": 80}]}]})),
    ];
    let (got, said) = translated(&twins);
    assert_eq!(got.virtual_services.len(), 1);
    assert_eq!(said, ["TCPRoute r: there is a generated VirtualService r-tcp-istio-autogenerated-k8s-gateway already"]);
}
