//! Documents that an API server refuses, and the error texts for them.

use serde_json::{Value, json};

use super::*;

fn said(kind: Kind, spec: Value) -> Vec<String> {
    let found = admission(kind, &json!({"apiVersion": "gateway.networking.k8s.io/v1", "spec": spec}));
    found.errors.into_iter().chain(found.warnings).collect()
}

fn listener(change: Value) -> Value {
    let mut listener = json!({"name": "a", "port": 80, "protocol": "HTTP"});
    change.as_object().unwrap().iter().for_each(|(k, v)| listener[k] = v.clone());
    listener
}

fn gateway(listeners: &[Value]) -> Vec<String> {
    said(Kind::KubernetesGateway, json!({"gatewayClassName": "istio", "listeners": listeners}))
}

fn rule(rule: Value) -> Vec<String> {
    said(Kind::HTTPRoute, json!({"rules": [rule]}))
}

#[track_caller]
fn only(said: Vec<String>, text: &str) {
    assert!(said.len() == 1 && said[0].contains(text), "{said:?} is not {text}");
}

#[test]
fn listeners_are_checked() {
    assert!(gateway(&[listener(json!({}))]).is_empty());
    only(gateway(&[]), "spec.listeners: it is empty");
    only(gateway(&[listener(json!({"port": 123_456_789}))]), "listeners[0].port: 123456789 is not between 1 and 65535");
    only(gateway(&[listener(json!({"port": "80"}))]), "listeners[0].port: \"80\" is not a number");
    only(gateway(&[listener(json!({"protocol": "HTTPX"}))]), "\"HTTPX\" is none of HTTP");
    only(gateway(&[listener(json!({"hostnmae": "a"}))]), "unknown field spec.listeners[0].hostnmae");
    only(gateway(&[listener(json!({"hostname": "a.*"}))]), "hostname: \"a.*\" is not a DNS name");
    only(gateway(&[listener(json!({"tls": {"certificateRefs": [{"name": "x"}]}}))]), "tls is not for protocol HTTP");
    only(gateway(&[listener(json!({"protocol": "HTTPS", "tls": {}}))]), "needs certificateRefs or options");
    only(gateway(&[listener(json!({"protocol": "TLS"}))]), "needs tls");
    only(gateway(&[listener(json!({"protocol": "TCP", "hostname": "a.b"}))]), "hostname is not for protocol TCP");
    only(gateway(&[listener(json!({})), listener(json!({"port": 81}))]), "listeners[1]: name \"a\" is there twice");
    only(gateway(&[listener(json!({})), listener(json!({"name": "b"}))]), "the same port, protocol and hostname");
    only(
        said(Kind::KubernetesGateway, json!({"listeners": [listener(json!({}))]})),
        "spec.gatewayClassName: it is missing",
    );
    let missing = admission(Kind::KubernetesGateway, &json!({"apiVersion": "gateway.networking.k8s.io/v1"}));
    assert_eq!(missing.errors, ["spec: it is missing"]);
}

#[test]
fn rules_of_http_routes_are_checked() {
    let backend = json!({"name": "s", "port": 80});
    assert!(rule(json!({"backendRefs": [backend], "timeouts": {"request": "10s", "backendRequest": "1s"}})).is_empty());
    only(rule(json!({"backendRefs": [{"name": "s", "port": 80, "weight": -1}]})), "weight: -1 is not between 0");
    only(rule(json!({"backendRefs": [{"name": "s"}]})), "backendRefs[0]: a reference to a Service must have a port");
    only(rule(json!({"timeouts": {"request": "5 sec"}})), "timeouts.request: \"5 sec\" is not a duration");
    only(rule(json!({"timeouts": {"request": "1s", "backendRequest": "2s"}})), "backendRequest is longer");
    only(rule(json!({"matches": [{"method": "FETCH"}]})), "matches[0].method: \"FETCH\" is none of GET");
    only(rule(json!({"matches": [{"path": {"value": ""}}]})), "path.value: \"\" must begin with /");
    only(rule(json!({"matches": [{"path": {"value": "/a/../b"}}]})), "must not contain /../");
    assert!(rule(json!({"matches": [{"path": {"type": "RegularExpression", "value": "a/../b"}}]})).is_empty());
    only(rule(json!({"filters": [{"type": "RequestHeaderModifie"}]})), "\"RequestHeaderModifie\" is none of");
    only(rule(json!({"filters": [{"type": "URLRewrite"}]})), "type URLRewrite needs urlRewrite");
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"statusCode": 302}});
    only(rule(json!({"filters": [redirect], "backendRefs": [backend]})), "exclude each other");
    only(rule(json!({"filters": [redirect, redirect]})), "filter RequestRedirect is there twice");
    only(
        rule(json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 299}}]})),
        "299 is none of [301",
    );
    let rewrite = json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}});
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": rewrite});
    only(
        rule(json!({"filters": [rewrite], "matches": [{"path": {"type": "Exact", "value": "/a"}}]})),
        "exactly one match",
    );
    assert!(rule(json!({"filters": [rewrite], "matches": [{"path": {"value": "/a"}}]})).is_empty());
    let twice = json!([{"name": "x", "value": "1"}, {"name": "x", "value": "2"}]);
    only(rule(json!({"matches": [{"headers": twice}]})), "headers[1]: name \"x\" is there twice");
    let many: Vec<Value> = (0..65).map(|_| json!({})).collect();
    only(rule(json!({"matches": many})), "65 elements, more than 64");
    only(said(Kind::HTTPRoute, json!({"rules": [{"name": "a"}, {"name": "a"}]})), "two rules are named");
    only(said(Kind::HTTPRoute, json!({"hostnames": ["*"]})), "hostnames[0]: \"*\" is not a DNS name");
}

#[test]
fn references_to_one_parent_name_different_parts_of_it() {
    let route = |parents: Value| said(Kind::HTTPRoute, json!({"parentRefs": parents}));
    assert!(
        route(json!([{"name": "a", "sectionName": "x"}, {"name": "a", "sectionName": "y"}, {"name": "b"}])).is_empty()
    );
    only(route(json!([{"name": "a"}, {"name": "a", "sectionName": "y"}])), "parentRefs[0]: of several references");
    only(route(json!([{"name": "a", "port": 1}, {"name": "a", "port": 1}])), "parentRefs[1]: the same reference");
}

#[test]
fn the_other_kinds_are_checked() {
    let backend = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    assert!(said(Kind::TLSRoute, json!({"hostnames": ["a.b"], "rules": backend})).is_empty());
    only(said(Kind::TLSRoute, json!({"hostnames": ["1.2.3.4"], "rules": backend})), "1.2.3.4 is an address");
    only(said(Kind::TCPRoute, json!({})), "spec.rules: it is missing");
    only(said(Kind::GRPCRoute, json!({"rules": [{"matches": [{"method": {}}]}]})), "must have service or method");
    only(
        said(Kind::ReferenceGrant, json!({"from": [], "to": [{"group": "", "kind": "Secret"}]})),
        "spec.from: it is empty",
    );
    only(said(Kind::GatewayClass, json!({"controllerName": "istio"})), "controllerName: \"istio\" is not a domain");
    let target = json!([{"group": "", "kind": "Service", "name": "s"}]);
    let policy =
        |validation: Value| said(Kind::BackendTLSPolicy, json!({"targetRefs": target, "validation": validation}));
    assert!(policy(json!({"hostname": "a.b", "wellKnownCACertificates": "System"})).is_empty());
    only(policy(json!({"hostname": "a.b"})), "either caCertificateRefs or wellKnownCACertificates");
    only(
        policy(json!({"hostname": "a.b", "wellKnownCACertificates": "System", "subjectAltNames": [{"type": "URI"}]})),
        "type URI needs uri",
    );
}

#[test]
fn earlier_versions_and_other_kinds_are_not_asked_for_more() {
    let alpha = json!({"apiVersion": "gateway.networking.k8s.io/v1alpha2", "spec": {"rules": [{}, {}]}});
    assert!(admission(Kind::TLSRoute, &alpha).is_valid() && admission(Kind::TCPRoute, &alpha).is_valid());
    assert!(admission(Kind::Service, &json!({"spec": {"x": 1}})) == Validation::default());
}
