//! Tests of the verdict of an API server.

use serde_json::{Value, json};

use super::*;

fn refusals(kind: Kind, spec: Value) -> Vec<String> {
    api_server_refusals(kind, &json!({"spec": spec}))
}

fn refused(kind: Kind, spec: Value, begins: &str) {
    let found = refusals(kind, spec.clone());
    assert!(found.iter().any(|text| text.starts_with(begins)), "{begins}: {found:?} for {spec}");
}

#[test]
fn kinds_of_other_apis_have_no_schema() {
    for kind in Kind::ALL {
        assert_eq!(of(*kind).is_some(), kind.class() == KindClass::Istio, "{kind}");
        let found = api_server_refusals(*kind, &json!({}));
        assert_eq!(found.is_empty(), !constraints::SPEC_REQUIRED.contains(kind), "{kind}: {found:?}");
    }
}

#[test]
fn every_limit_belongs_to_a_field_of_a_message() {
    let mut names = std::collections::BTreeSet::new();
    for package in
        ["networking.v1alpha3", "networking.v1beta1", "security.v1beta1", "telemetry.v1alpha1", "extensions.v1alpha1"]
    {
        names.extend(constraints::names(&format!("istio.{package}")));
    }
    names.extend(constraints::names("istio.type.v1beta1"));
    for (message, field) in constraints::keys() {
        assert!(names.contains(&(message.to_string(), field.to_string())), "{message} has no {field:?}");
    }
}

#[test]
fn types_are_exact() {
    let rule = |balancer: Value| json!({"host": "a", "trafficPolicy": {"loadBalancer": balancer}});
    let hash = |hash: Value| rule(json!({"consistentHash": hash}));
    let place = "spec.trafficPolicy.loadBalancer.consistentHash";
    assert_eq!(refusals(Kind::DestinationRule, hash(json!({"minimumRingSize": 1024}))), Vec::<String>::new());
    assert_eq!(refusals(Kind::DestinationRule, hash(json!({"minimumRingSize": 1024.0}))), Vec::<String>::new());
    refused(Kind::DestinationRule, hash(json!({"minimumRingSize": "1024"})), &format!("{place}.minimumRingSize: "));
    refused(Kind::DestinationRule, hash(json!({"minimumRingSize": -1})), &format!("{place}.minimumRingSize: "));
    refused(
        Kind::DestinationRule,
        hash(json!({"useSourceIp": true, "httpHeaderName": "a"})),
        &format!("{place}: only one"),
    );
    refused(Kind::DestinationRule, rule(json!({"simple": "ROUND_ROBINN"})), "spec.trafficPolicy.loadBalancer.simple: ");
    refused(Kind::DestinationRule, json!({"host": null}), "spec.host: ");
    refused(Kind::DestinationRule, json!({}), "spec.host: it is required");
    refused(Kind::DestinationRule, Value::Null, "spec: null must be a map");
    refused(Kind::Sidecar, json!({"egress": [{"hosts": "*/*"}]}), "spec.egress[0].hosts: ");
    let unwrapped = json!({"host": "a", "trafficPolicy": {"outlierDetection": {"consecutive5xxErrors": null}}});
    assert_eq!(refusals(Kind::DestinationRule, unwrapped), Vec::<String>::new());
}

#[test]
fn cel_rules_see_sound_values_alone() {
    let entry = |more: Value| {
        let mut spec = json!({"hosts": ["a.example"], "resolution": "STATIC"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let ports = |numbers: [i64; 2]| {
        entry(json!({"ports": [{"name": "a", "number": numbers[0]}, {"name": "b", "number": numbers[1]}]}))
    };
    assert_eq!(refusals(Kind::ServiceEntry, ports([80, 81])), Vec::<String>::new());
    refused(Kind::ServiceEntry, ports([80, 80]), "spec.ports: a number is there twice");
    let found = refusals(
        Kind::ServiceEntry,
        entry(json!({"ports": [{"name": "a", "number": 70000}, {"name": "a", "number": 70000}]})),
    );
    assert!(!found.iter().any(|text| text.contains("a number is there twice")), "{found:?}");
    refused(Kind::ServiceEntry, entry(json!({"endpoints": [{"weight": 1}]})), "spec.endpoints[0]: address or network");
    refused(Kind::WorkloadEntry, json!({"weight": 1}), "spec: address or network");
    assert_eq!(refusals(Kind::WorkloadGroup, json!({"template": {"weight": 1}})), Vec::<String>::new());
}

#[test]
fn durations_last_a_millisecond() {
    let route = |timeout: &str| json!({"http": [{"timeout": timeout, "route": [{"destination": {"host": "a"}}]}]});
    for good in ["1s", "1ms", "1h2m", "0.001s"] {
        assert_eq!(refusals(Kind::VirtualService, route(good)), Vec::<String>::new(), "{good}");
    }
    for bad in ["", "0s", "999us", "1", "-1s", "apple"] {
        refused(Kind::VirtualService, route(bad), "spec.http[0].timeout: ");
    }
}

#[test]
fn faults_are_told_up_to_a_number() {
    let hosts: Vec<Value> = (0..100).map(|_| json!({"destination": {}})).collect();
    let found = refusals(Kind::VirtualService, json!({"http": [{"route": hosts}]}));
    assert!((1..=30).contains(&found.len()), "{}", found.len());
}
