//! Tests of scopes and of the choice of a Sidecar.

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{ConfigSnapshot, Node, NodeType, Origin, Port, Registry, RegistrySnapshot, Timestamp, decode},
    push::context::{PushContext, PushInputs},
};

fn config(kind: &str, namespace: &str, name: &str, spec: Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

fn service(host: &str, namespace: &str, ports: &[u32]) -> Service {
    let ports = ports.iter().map(|p| Port { name: format!("p{p}").as_str().into(), port: *p, ..Port::default() });
    Service {
        hostname: host.into(),
        name: host.into(),
        namespace: namespace.into(),
        ports: ports.collect(),
        registry: Registry::External,
        ..Service::default()
    }
}

fn context(services: Vec<Service>, configs: Vec<Arc<Config>>) -> PushContext {
    let services = Arc::new(services.into_iter().map(|s| Arc::new(s.stamped())).collect());
    let registry = RegistrySnapshot { services, ..RegistrySnapshot::default() };
    PushContext::build(PushInputs { registry, configs: ConfigSnapshot::of(configs), ..PushInputs::default() })
}

fn view(namespace: &str, labels: &[(&str, &str)]) -> ProxyView {
    let id = format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
    let node = Node::from_parts(&id, Value::Null, crate::model::Locality::default()).expect("a node");
    let mut view = ProxyView::of_node(&node);
    view.labels = labels.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
    view
}

fn hosts(scope: &SidecarScope) -> Vec<String> {
    let text = |s: &Arc<Service>| {
        let ports: Vec<String> = s.ports.iter().map(|p| p.port.to_string()).collect();
        format!("{}/{}:{}", s.namespace, s.hostname, ports.join(","))
    };
    scope.services.iter().map(text).collect()
}

#[test]
fn the_sidecar_that_counts() {
    let selector = json!({"labels": {"app": "a"}});
    let context = context(
        vec![],
        vec![
            config("Sidecar", "x", "all", json!({})),
            config("Sidecar", "x", "selected", json!({"workloadSelector": selector})),
            config("Sidecar", "istio-system", "root", json!({})),
            config("Sidecar", "istio-system", "never", json!({"workloadSelector": selector})),
        ],
    );
    let name = |view: &ProxyView| context.scope(view).name.to_string();
    assert_eq!(name(&view("x", &[("app", "a")])), "selected");
    assert_eq!(name(&view("x", &[])), "all");
    assert_eq!(name(&view("y", &[("app", "a")])), "root");
    let router = ProxyView { node_type: NodeType::Router, ..view("x", &[("app", "a")]) };
    assert_eq!(name(&router), "default-sidecar");
    assert!(Arc::ptr_eq(&context.scope(&view("y", &[])), &context.scope(&view("y", &[("b", "c")]))));
}

#[test]
fn one_namespace_per_host() {
    let older = Service { creation_time: Timestamp(1), ..service("h", "old", &[80]) };
    let kubernetes =
        Service { creation_time: Timestamp(2), registry: Registry::Kubernetes, ..service("h", "kube", &[80]) };
    let own = Service { creation_time: Timestamp(3), ..service("h", "own", &[80]) };
    let context = context(vec![older, kubernetes, own], vec![]);
    assert_eq!(hosts(&context.scope(&view("own", &[]))), ["own/h:80"]);
    assert_eq!(hosts(&context.scope(&view("else", &[]))), ["kube/h:80"]);
}

#[test]
fn ports_of_listeners_and_destinations_of_routes() {
    let egress = json!([
        {"port": {"number": 80, "protocol": "HTTP", "name": "a"}, "hosts": ["x/*"]},
        {"port": {"number": 90, "protocol": "HTTP", "name": "b"}, "hosts": ["x/multi"]},
        {"hosts": ["y/route.com"]},
    ]);
    let route = json!([{"route": [
        {"destination": {"host": "target.com", "port": {"number": 81}}},
        {"destination": {"host": "gone.com"}},
    ]}]);
    let context = context(
        vec![
            service("multi", "x", &[80, 90, 100]),
            service("other", "x", &[70]),
            service("target.com", "z", &[80, 81]),
        ],
        vec![
            config("Sidecar", "own", "s", json!({"egress": egress})),
            config("VirtualService", "y", "v", json!({"hosts": ["route.com"], "http": route})),
        ],
    );
    let scope = context.scope(&view("own", &[]));
    assert_eq!(hosts(&scope), ["x/multi:80,90", "z/target.com:81"]);
    assert_eq!(scope.egress_for_route(90, "").map(|l| l.services.len()), Some(1));
    assert_eq!(scope.egress_for_route(7, "").map(|l| l.virtual_services.len()), Some(1));
    assert!(!scope.has_service("other", "x"));
}

#[test]
fn the_stamp_follows_the_contents_of_the_scope() {
    let rule = |host: &str| config("DestinationRule", "x", "d", json!({"host": host}));
    let stamp = |configs| context(vec![service("a.com", "x", &[80])], configs).scope(&view("own", &[])).stamp;
    assert_eq!(stamp(vec![]), stamp(vec![rule("b.com")]));
    assert_ne!(stamp(vec![]), stamp(vec![rule("a.com")]));
}

#[test]
fn an_external_name_is_outside_where_no_service_has_it() {
    let alias = |host: &str, of: &str| Service {
        resolution: Resolution::Alias,
        external_name: of.to_string(),
        ..service(host, "x", &[80])
    };
    let services = [
        service("c", "x", &[80]),
        alias("of-service", "c"),
        alias("of-alias", "of-service"),
        alias("outside", "a.example"),
        alias("twice", "outside"),
        alias("circle", "circle"),
    ];
    let context = context(services.to_vec(), vec![]);
    let scope = context.scope(&view("x", &[]));
    let outside = |host: &str| scope.outside_name(&scope.services_by_host[host]);
    assert_eq!(["outside", "twice"].map(outside), [Some("a.example"); 2]);
    assert_eq!(["c", "of-service", "of-alias", "circle"].map(outside), [None; 4]);
}
