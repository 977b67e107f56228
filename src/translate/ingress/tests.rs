//! Cases that the recorded data does not cover: reports, remote clusters, excluded namespaces, statuses.

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{ConfigSnapshot, Mesh, Origin, PushInputs, decode},
    translate::Translation,
};

fn object(value: &Value, cluster: &str) -> Arc<Config> {
    let origin = Origin { cluster: cluster.into(), ..Origin::default() };
    Arc::new(decode::from_value(value, origin).unwrap())
}

fn ingress(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn rule(host: &str, service: &str) -> Value {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}})
}

fn translated(mesh: Value, objects: impl IntoIterator<Item = Arc<Config>>) -> Translation {
    let mesh = Mesh::from_values(&mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap();
    let configs = ConfigSnapshot::of(objects);
    Translation::build(PushInputs { mesh: Arc::new(mesh), configs, ..PushInputs::default() })
}

fn by_default() -> Value {
    json!({"ingressControllerMode": "DEFAULT"})
}

#[test]
fn fields_without_effect_are_reported() {
    let spec = json!({"tls": [{"hosts": ["a.test"]}], "defaultBackend": {"service": {"name": "x", "port": {"number": 1}}},
        "rules": [{"host": "b.test"}, {"host": "c.test", "http": {"paths": [{"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "x", "port": {"name": "web"}}}}]}}]});
    let got = translated(by_default(), [object(&ingress("i", spec), "")]);
    let said: Vec<&str> = got.reports.iter().map(|r| r.message.as_str()).collect();
    assert_eq!(
        said,
        [
            "spec.tls[0]: without secretName it has no effect",
            "spec.defaultBackend has no effect",
            "spec.rules[0]: without http it has no effect",
            "host c.test: service shop/x has no port \"web\"",
        ]
    );
    assert_eq!((got.gateways.len(), got.virtual_services.len()), (1, 1));
}

#[test]
fn two_hosts_of_one_object_name_are_reported() {
    let spec = json!({"rules": [rule("a.b", "x"), rule("a-b", "y")]});
    let got = translated(by_default(), [object(&ingress("i", spec), "")]);
    assert_eq!(got.virtual_services.len(), 1);
    assert_eq!(got.reports.len(), 1);
}

#[test]
fn only_the_main_cluster_and_discovered_namespaces_are_read() {
    let spec = json!({"rules": [rule("a.test", "x")]});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"env": "x"}}});
    let selecting =
        |env: &str| json!({"ingressControllerMode": "DEFAULT", "discoverySelectors": [{"matchLabels": {"env": env}}]});
    let count = |mesh: Value, cluster: &str| {
        let objects = [object(&namespace, ""), object(&ingress("i", spec.clone()), cluster)];
        translated(mesh, objects).gateways.len()
    };
    assert_eq!(count(by_default(), "remote"), 0);
    assert_eq!(count(selecting("x"), ""), 1);
    assert_eq!(count(selecting("y"), ""), 0);
}

#[test]
fn a_status_names_where_the_gateways_are() {
    let given =
        json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "b.test"}, {"hostname": "a.test"}]}});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "istio-ingressgateway", "namespace": "istio-system"},
        "spec": {"externalIPs": ["192.0.2.1"]}, "status": given});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "gw", "namespace": "istio-system", "labels": {"istio": "ingressgateway"}},
        "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"addresses": [
        {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.9"}]}});
    let status = |mesh: Value| {
        let objects = [&service, &pod, &node, &ingress("i", json!({}))];
        let got = translated(mesh, objects.map(|o| object(o, "")));
        got.statuses.into_values().next().unwrap()
    };
    let of_service = [
        json!({"ip": "192.0.2.1"}),
        json!({"ip": "192.0.2.7"}),
        json!({"hostname": "a.test"}),
        json!({"hostname": "b.test"}),
    ];
    assert_eq!(status(by_default()), json!({"loadBalancer": {"ingress": of_service}}));
    let no_service = json!({"ingressControllerMode": "DEFAULT", "ingressService": null});
    assert_eq!(status(no_service), json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}));
    let absent = json!({"ingressControllerMode": "DEFAULT", "ingressService": "gone"});
    assert_eq!(status(absent), json!({"loadBalancer": {}}));
}
