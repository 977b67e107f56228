//! Tests of the VirtualService index.

use serde_json::{Value, json};

use super::*;
use crate::model::{ConfigSnapshot, Origin, decode};

fn virtual_service(namespace: &str, name: &str, spec: Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("a VirtualService"))
}

fn index(configs: Vec<Arc<Config>>) -> VirtualServiceIndex {
    VirtualServiceIndex::build(&PushInputs { configs: ConfigSnapshot::of(configs), ..PushInputs::default() })
}

fn names(index: &VirtualServiceIndex, namespace: &str, gateway: &str) -> Vec<String> {
    index.lists(namespace, gateway).into_iter().flatten().map(|c| c.meta.name.to_string()).collect()
}

#[test]
fn visibility_and_gateways() {
    let index = index(vec![
        virtual_service("x", "public", json!({"hosts": ["a"], "gateways": ["gw", "mesh"]})),
        virtual_service("x", "private", json!({"hosts": ["a"], "exportTo": ["."]})),
        virtual_service("x", "shared", json!({"hosts": ["a"], "exportTo": ["y"]})),
        virtual_service("x", "none", json!({"hosts": ["a"], "exportTo": ["~"]})),
    ]);
    assert_eq!(names(&index, "x", "mesh"), ["private", "public"]);
    assert_eq!(names(&index, "y", "mesh"), ["shared", "public"]);
    assert_eq!(names(&index, "y", "x/gw"), ["public"]);
    let hosts = &index.all[0].virtual_service().expect("a VirtualService").hosts;
    assert_eq!(hosts, &["a.x.svc.cluster.local"]);
}

#[test]
fn delegates_are_merged_and_change_the_stamp() {
    let root = |delegate: &str| {
        let http = json!([
            {"name": "r", "match": [{"uri": {"prefix": "/a"}}], "delegate": {"name": delegate, "namespace": "y"}},
            {"route": [{"destination": {"host": "rest"}}]},
        ]);
        virtual_service("x", "root", json!({"hosts": ["a.com"], "http": http}))
    };
    let delegate = |name: &str, host: &str, export_to: &str| {
        let http = json!([
            {"name": "d", "match": [{"uri": {"prefix": "/a/b"}}], "route": [{"destination": {"host": host}}]},
            {"match": [{"uri": {"prefix": "/c"}}], "route": [{"destination": {"host": "never"}}]},
        ]);
        virtual_service("y", name, json!({"exportTo": [export_to], "http": http}))
    };
    let build = |host: &str| index(vec![root("d"), delegate("d", host, "x")]).all[0].clone();
    let merged = build("one");
    let http = &merged.virtual_service().expect("a VirtualService").http;
    assert_eq!(http.len(), 2);
    assert_eq!(http[0].name, "r-d");
    assert_eq!(http[0].route[0].destination.as_ref().map(|d| &*d.host), Some("one.y.svc.cluster.local"));
    assert_ne!(merged.stamp, build("two").stamp);
    assert_eq!(merged.stamp, build("one").stamp);
    let routes = |config: &Arc<Config>| config.virtual_service().map(|s| s.http.len());
    let hidden = index(vec![root("d"), delegate("d", "one", ".")]);
    assert_eq!(routes(&hidden.all[0]), Some(1));
    let missing = index(vec![root("nobody"), delegate("d", "one", "*")]);
    assert_eq!((routes(&missing.all[0]), missing.all.len()), (Some(1), 1));
}
