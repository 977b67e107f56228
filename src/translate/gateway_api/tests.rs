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
