//! Merging rules, tested on small sets of Gateways.

use std::sync::Arc;

use serde_json::{Value, json};

use super::MergedGateway;
use crate::{
    model::{
        Config, ConfigSnapshot, Features, Identity, Locality, Node, Origin, Port, Protocol, Service, ServiceTarget,
        decode,
    },
    push::{ProxyView, PushContext, context::PushInputs},
};

fn gateway(name: &str, servers: &Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": {"name": name, "namespace": format!("ns-{name}")},
        "spec": {"selector": {"istio": "ingress"}, "servers": servers},
    });
    Arc::new(decode::from_value(&document, Origin::default()).unwrap())
}

fn server(port: u32, protocol: &str, hosts: &[&str]) -> Value {
    json!({"port": {"number": port, "name": format!("{protocol}-{port}"), "protocol": protocol}, "hosts": hosts})
}

fn tls(port: u32, protocol: &str, mode: &str, hosts: &[&str]) -> Value {
    let mut value = server(port, protocol, hosts);
    value["tls"] = json!({"mode": mode, "credentialName": "web"});
    value
}

fn merge_with(gateways: Vec<Arc<Config>>, targets: Vec<ServiceTarget>, features: Features) -> Arc<MergedGateway> {
    let inputs =
        PushInputs { configs: ConfigSnapshot::of(gateways), features: Arc::new(features), ..PushInputs::default() };
    let context = PushContext::build(inputs);
    let metadata = json!({"LABELS": {"istio": "ingress"}});
    let node =
        Node::from_parts("router~1.1.1.1~gw.edge~edge.svc.cluster.local", metadata, Locality::default()).unwrap();
    let mut view = ProxyView::of_node(&node);
    view.targets = targets.into();
    context.merged_gateway(&view).unwrap()
}

fn merge(gateways: Vec<Arc<Config>>) -> Arc<MergedGateway> {
    merge_with(gateways, Vec::new(), Features::default())
}

fn target(port: u32, target_port: u32, protocol: Protocol) -> ServiceTarget {
    let service = Service { hostname: "gw.edge.svc.cluster.local".into(), ..Service::default() }.stamped();
    ServiceTarget { service: Arc::new(service), port: Port { port, protocol, ..Port::default() }, target_port }
}

#[test]
fn plaintext_http_servers_share_a_port_and_a_route() {
    let merged = merge(vec![
        gateway("a", &json!([server(80, "HTTP", &["a.com"])])),
        gateway("b", &json!([server(80, "HTTP2", &["b.com"])])),
    ]);
    assert_eq!(merged.server_ports.len(), 1);
    assert_eq!(merged.servers[&merged.server_ports[0]].servers.len(), 2);
    assert_eq!(merged.servers_by_route_name["http.80"].len(), 2);
    assert_eq!(merged.conflicts, Vec::<String>::new());
}

#[test]
fn http_and_tcp_exclude_each_other_and_the_first_wins() {
    for (first, second) in [("HTTP", "TCP"), ("TCP", "HTTP")] {
        let merged = merge(vec![
            gateway("a", &json!([server(80, first, &["*"])])),
            gateway("b", &json!([server(80, second, &["*"])])),
        ]);
        assert_eq!(merged.server_ports.len(), 1, "{first} then {second}");
        assert_eq!(merged.server_ports[0].protocol, first);
        assert_eq!(merged.conflicts.len(), 1);
    }
}

#[test]
fn another_address_is_another_listener() {
    let mut bound = server(80, "TCP", &["*"]);
    bound["bind"] = json!("10.0.0.1");
    let merged = merge(vec![gateway("a", &json!([server(80, "HTTP", &["*"])])), gateway("b", &json!([bound]))]);
    assert_eq!(merged.server_ports.len(), 2);
    assert_eq!(merged.conflicts, Vec::<String>::new());
}

#[test]
fn a_terminated_host_is_there_once_in_any_namespace() {
    let merged = merge(vec![
        gateway("a", &json!([tls(443, "HTTPS", "SIMPLE", &["./*"])])),
        gateway("b", &json!([tls(443, "HTTPS", "SIMPLE", &["./*"])])),
    ]);
    assert_eq!(merged.servers[&merged.server_ports[0]].servers.len(), 1);
    assert_eq!(merged.conflicts.len(), 1);

    let merged = merge(vec![
        gateway("a", &json!([tls(443, "TLS", "PASSTHROUGH", &["./*"])])),
        gateway("b", &json!([tls(443, "TLS", "PASSTHROUGH", &["./*"])])),
    ]);
    assert_eq!(merged.servers[&merged.server_ports[0]].servers.len(), 2);
}

#[test]
fn service_ports_are_bound_as_target_ports() {
    let gateways = vec![gateway(
        "a",
        &json!([server(80, "HTTP", &["*"]), tls(443, "HTTPS", "SIMPLE", &["*"]), server(90, "HTTP", &["*"])]),
    )];
    let targets = vec![target(80, 8080, Protocol::Http), target(443, 8443, Protocol::Https)];
    let merged = merge_with(gateways, targets, Features::default());
    let bound: Vec<u32> = merged.server_ports.iter().map(|p| p.number).collect();
    assert_eq!(bound, [8080, 8443, 90]);
    let names: Vec<&str> = merged.servers_by_route_name.keys().map(String::as_str).collect();
    assert_eq!(names, ["http.8080", "http.90", "https.443.HTTPS-443.a.ns-a"]);
    assert_eq!(merged.port_map[&8080].iter().copied().collect::<Vec<_>>(), [80]);
}

#[test]
fn http3_needs_the_flag_and_a_udp_port() {
    let gateways = || vec![gateway("a", &json!([tls(443, "HTTPS", "SIMPLE", &["*"])]))];
    let udp = || vec![target(443, 443, Protocol::Udp)];
    let on = || Features { enable_quic_listeners: true, ..Features::default() };
    assert_eq!(merge_with(gateways(), udp(), on()).quic_servers.len(), 1);
    assert_eq!(merge_with(gateways(), Vec::new(), on()).quic_servers.len(), 0);
    assert_eq!(merge_with(gateways(), udp(), Features::default()).quic_servers.len(), 0);
}

/// A Gateway of the Gateway API as it is converted, with a Deployment of its own or without one.
fn converted(name: &str, account: &str, servers: &Value) -> Arc<Config> {
    let mut config = Config::clone(&gateway(name, servers));
    let annotations =
        [("internal.istio.io/gateway-semantics", "gateway"), ("internal.istio.io/service-account-name", account)];
    config.meta.annotations.extend(annotations.map(|(key, value)| (key.into(), value.into())));
    Arc::new(config)
}

#[test]
fn gateways_of_other_namespaces_do_not_join_one_with_a_deployment_of_its_own() {
    let hosts = |account: &str, is_strict: bool| {
        let mut near = Config::clone(&gateway("near", &json!([server(80, "HTTP", &["near.com"])])));
        near.meta.namespace = "ns-managed".into();
        let managed = converted("managed", account, &json!([server(80, "HTTP", &["managed.com"])]));
        let far = gateway("far", &json!([server(80, "HTTP", &["far.com"])]));
        let features = Features { enable_strict_gateway_merging: is_strict, ..Features::default() };
        let merged = merge_with(vec![managed, Arc::new(near), far], Vec::new(), features);
        let mut hosts: Vec<String> =
            merged.servers_by_route_name["http.80"].iter().flat_map(|server| server.spec.hosts.clone()).collect();
        hosts.sort();
        hosts
    };
    assert_eq!(hosts("managed-istio", true), ["managed.com", "near.com"]);
    assert_eq!(hosts("managed-istio", false).len(), 3);
    assert_eq!(hosts("", true).len(), 3);
}

#[test]
fn references_are_granted_inside_one_namespace_only() {
    let merged = merge(vec![gateway("a", &json!([tls(443, "HTTPS", "MUTUAL", &["*"])]))]);
    let of = |namespace: &str| {
        let identity = Identity::parse(&format!("spiffe://cluster.local/ns/{namespace}/sa/gw")).unwrap();
        merged.verified_references(&identity, &crate::translate::Translation::default()).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(of("ns-a"), ["kubernetes://web", "kubernetes://web-cacert"]);
    assert_eq!(of("other"), Vec::<String>::new());
}

#[test]
fn hosts_lose_their_relative_forms() {
    let merged = merge(vec![gateway("a", &json!([server(80, "HTTP", &["./x.com", "*/y.com", "other/z.com"])]))]);
    assert_eq!(merged.servers_by_route_name["http.80"][0].spec.hosts, ["ns-a/x.com", "y.com", "other/z.com"]);
}
