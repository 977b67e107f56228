//! Chains of one listener stay distinct; the chain of each kind of server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    GatewayListeners,
    chain::{Chain, distinct},
    gateway_with_conflicts,
};
use crate::{
    model::{ConfigSnapshot, Locality, Mesh, Node, Origin, Port, Protocol, RegistrySnapshot, Service, decode},
    proto::to_json,
    push::{ProxyView, PushContext, context::PushInputs},
};

fn chain(sni: &[&str], alpn: &[&str]) -> Chain {
    let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Chain { sni: list(sni), alpn: list(alpn), origin: "x".to_string(), ..Chain::default() }
}

fn kept(chains: Vec<Chain>) -> (Vec<Vec<String>>, usize) {
    let mut conflicts = Vec::new();
    let kept = distinct(chains, "0.0.0.0_443", &mut conflicts).into_iter().map(|c| c.sni).collect();
    (kept, conflicts.len())
}

#[test]
fn an_earlier_chain_keeps_its_names() {
    let (names, conflicts) = kept(vec![chain(&["a", "b"], &[]), chain(&["B", "c"], &[]), chain(&["a"], &[])]);
    assert_eq!(names, [vec!["a", "b"], vec!["c"]]);
    assert_eq!(conflicts, 2);
}

#[test]
fn one_chain_takes_every_name_unless_protocols_tell_them_apart() {
    assert_eq!(kept(vec![chain(&["*", "a"], &[]), chain(&[], &[])]).0.len(), 1);
    assert_eq!(kept(vec![chain(&["a"], &[]), chain(&[], &[])]).0.len(), 2);
    assert_eq!(kept(vec![chain(&["a"], &["istio"]), chain(&["a"], &["h2"])]).0.len(), 2);
    assert_eq!(kept(vec![chain(&["a"], &["istio", "h2"]), chain(&["a"], &["h2"])]).0.len(), 1);
}

fn server(port: u32, protocol: &str, hosts: &[&str], tls: &Value) -> Value {
    json!({"port": {"number": port, "name": format!("p{port}"), "protocol": protocol}, "hosts": hosts, "tls": tls})
}

fn route(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["gateways"] = json!(["gw"]);
    json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
           "metadata": {"name": name, "namespace": "edge"}, "spec": spec})
}

fn listeners_with(servers: &[Value], mut objects: Vec<Value>, mesh: &Value, metadata: &Value) -> GatewayListeners {
    objects.push(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "edge"}, "spec": {"servers": servers},
    }));
    let configs = objects.iter().map(|o| Arc::new(decode::from_value(o, Origin::default()).unwrap()));
    let port = |port, protocol| Port { port, protocol, ..Port::default() };
    let service = Service {
        hostname: "web.shop.svc.cluster.local".into(),
        namespace: "shop".into(),
        ports: vec![port(80, Protocol::Http), port(53, Protocol::Udp)],
        ..Service::default()
    };
    let context = PushContext::build(PushInputs {
        mesh: Arc::new(Mesh::from_values(mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap()),
        configs: ConfigSnapshot::of(configs),
        registry: RegistrySnapshot { services: Arc::new(vec![Arc::new(service.stamped())]), ..Default::default() },
        ..PushInputs::default()
    });
    let id = "router~1.1.1.1~gw-0.edge~edge.svc.cluster.local";
    let node = Node::from_parts(id, metadata.clone(), Locality::default()).unwrap();
    gateway_with_conflicts(&context, &ProxyView::of_node(&node))
}

fn listeners(servers: &[Value], objects: Vec<Value>) -> GatewayListeners {
    listeners_with(servers, objects, &Value::Null, &json!({}))
}

/// Names of the listeners, each with the server names of its chains.
fn shape(got: &GatewayListeners) -> Vec<(String, Vec<Vec<String>>)> {
    let names = |chain: &crate::proto::envoy::config::listener::v3::FilterChain| {
        chain.filter_chain_match.as_ref().map(|m| m.server_names.clone()).unwrap_or_default()
    };
    got.listeners.iter().map(|l| (l.name.clone(), l.filter_chains.iter().map(names).collect())).collect()
}

#[test]
fn a_tcp_server_without_a_route_has_no_listener() {
    let tcp = [server(9000, "TCP", &["*"], &Value::Null)];
    assert_eq!(shape(&listeners(&tcp, vec![])), []);
    let to = route("r", &json!({"hosts": ["*"], "tcp": [{"route": [{"destination": {"host": "web"}}]}]}));
    assert_eq!(shape(&listeners(&tcp, vec![to])), [("0.0.0.0_9000".to_string(), vec![vec![]])]);
}

#[test]
fn a_passed_through_name_goes_to_the_first_match_and_the_second_is_reported() {
    let tls = |name: &str, sni: &[&str]| {
        let route_to = json!([{"destination": {"host": "web", "port": {"number": 80}}}]);
        route(name, &json!({"hosts": ["*.shop"], "tls": [{"match": [{"sniHosts": sni}], "route": route_to}]}))
    };
    let servers = [server(443, "TLS", &["*.shop"], &json!({"mode": "PASSTHROUGH"}))];
    let got = listeners(&servers, vec![tls("a", &["one.shop"]), tls("b", &["two.shop", "one.shop"])]);
    assert_eq!(shape(&got), [("0.0.0.0_443".to_string(), vec![vec!["one.shop".to_string()]])]);
    assert!(got.conflicts[0].contains("edge/b") && got.conflicts[0].contains("one.shop"), "{:?}", got.conflicts);
}

#[test]
fn auto_passthrough_has_a_chain_for_each_port_that_is_not_udp() {
    let servers = [server(15443, "TLS", &["*.cluster.local"], &json!({"mode": "AUTO_PASSTHROUGH"}))];
    let wanted = "outbound_.80_._.web.shop.svc.cluster.local".to_string();
    assert_eq!(shape(&listeners(&servers, vec![])), [("0.0.0.0_15443".to_string(), vec![vec![wanted]])]);
    let elsewhere = [server(15443, "TLS", &["*.example.org"], &json!({"mode": "AUTO_PASSTHROUGH"}))];
    assert_eq!(shape(&listeners(&elsewhere, vec![])), []);
}

#[test]
fn files_go_to_a_stock_envoy_as_files_and_to_istios_agent_by_name() {
    let tls = json!({"mode": "SIMPLE", "serverCertificate": "/c/cert.pem", "privateKey": "/c/key.pem"});
    let servers = [server(443, "HTTPS", &["a.test"], &tls)];
    let text = |metadata: &Value| {
        let got = listeners_with(&servers, vec![], &Value::Null, metadata);
        to_json(&got.listeners[0]).unwrap().to_string()
    };
    let stock = text(&json!({}));
    assert!(stock.contains(r#""filename":"/c/cert.pem""#) && !stock.contains("sds-grpc"), "{stock}");
    let istio = text(&json!({"ISTIO_VERSION": "1.32.0"}));
    assert!(istio.contains("file-cert:/c/cert.pem~/c/key.pem") && istio.contains("sds-grpc"), "{istio}");
}

#[test]
fn a_port_that_the_pod_may_not_bind_is_left_out_and_reported() {
    let servers = [server(80, "HTTP", &["*"], &Value::Null), server(8080, "HTTP", &["*"], &Value::Null)];
    let got = listeners_with(&servers, vec![], &Value::Null, &json!({"UNPRIVILEGED_POD": "true"}));
    assert_eq!(shape(&got), [("0.0.0.0_8080".to_string(), vec![vec![]])]);
    assert_eq!(got.conflicts.len(), 1);
}

#[test]
fn topology_settings_reach_the_listener() {
    let mesh = json!({"defaultConfig": {"gatewayTopology": {
        "numTrustedProxies": 2, "forwardClientCertDetails": "FORWARD_ONLY", "proxyProtocol": {},
    }}});
    let got = listeners_with(&[server(80, "HTTP", &["*"], &Value::Null)], vec![], &mesh, &json!({}));
    let text = to_json(&got.listeners[0]).unwrap().to_string();
    for wanted in ["envoy.filters.listener.proxy_protocol", r#""xffNumTrustedHops":2"#, "FORWARD_ONLY"] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    assert!(!text.contains("setCurrentClientCertDetails"));
}
