//! Tests of whole sidecar listeners: properties that hold for any services.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{sidecar, sidecar_conflicts, tcp::BLACK_HOLE_CLUSTER};
use crate::{
    model::{
        ConfigSnapshot, Locality, Mesh, Node, Origin, Port, Protocol, RegistrySnapshot, Resolution, Service, Timestamp,
        decode, service::UNSPECIFIED_IP,
    },
    proto::{
        envoy::config::listener::v3::{FilterChain, Listener},
        to_json,
    },
    push::{ProxyView, PushContext, context::PushInputs},
};

fn service(index: usize, protocol: Protocol, port: u32, address: &str) -> Arc<Service> {
    let service = Service {
        hostname: format!("s{index}.example").into(),
        name: format!("s{index}").into(),
        namespace: "default".into(),
        creation_time: Timestamp(i64::try_from(index).unwrap()),
        ports: vec![Port { name: "p".into(), port, protocol }],
        default_address: address.into(),
        resolution: Resolution::ClientSideLB,
        ..Service::default()
    };
    Arc::new(service.stamped())
}

fn generate<T>(
    services: Vec<Arc<Service>>,
    mesh: &Value,
    metadata: Value,
    configs: &[Value],
    of: impl Fn(&PushContext, &ProxyView) -> T,
) -> T {
    let mesh = Arc::new(Mesh::from_values(mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap());
    let configs = configs.iter().map(|c| Arc::new(decode::from_value(c, Origin::default()).unwrap()));
    let inputs = PushInputs {
        mesh,
        configs: ConfigSnapshot::of(configs),
        registry: RegistrySnapshot { services: Arc::new(services), ..RegistrySnapshot::default() },
        ..PushInputs::default()
    };
    let context = PushContext::build(inputs);
    let id = "sidecar~10.0.0.1~a.default~default.svc.cluster.local";
    let node = Node::from_parts(id, metadata, Locality::default()).unwrap();
    of(&context, &context.view_of(&node))
}

fn listeners(services: Vec<Arc<Service>>, mesh: &Value, metadata: Value, configs: &[Value]) -> Vec<Listener> {
    generate(services, mesh, metadata, configs, sidecar)
}

fn named<'a>(listeners: &'a [Listener], name: &str) -> &'a Listener {
    listeners.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("no listener {name}"))
}

fn text(listeners: &[Listener]) -> String {
    listeners.iter().map(|l| to_json(l).unwrap().to_string()).collect()
}

fn has_http(chain: &FilterChain) -> bool {
    chain.filters.iter().any(|f| f.name.ends_with("http_connection_manager"))
}

fn istio() -> Value {
    json!({"ISTIO_VERSION": "1.32.0", "NAMESPACE": "default"})
}

#[test]
fn http_and_tcp_on_one_port_share_a_listener_that_looks_at_the_first_bytes() {
    for (first, second) in [(Protocol::Http, Protocol::Tcp), (Protocol::Tcp, Protocol::Http)] {
        let services = vec![service(0, first, 80, UNSPECIFIED_IP), service(1, second, 80, UNSPECIFIED_IP)];
        let all = listeners(services, &json!({}), istio(), &[]);
        let shared = named(&all, "0.0.0.0_80");
        let inspectors: Vec<_> = shared.listener_filters.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(inspectors, ["envoy.filters.listener.http_inspector"]);
        assert!(shared.filter_chains.iter().all(has_http));
        let default = shared.default_filter_chain.as_ref().unwrap();
        assert!(!has_http(default) && default.name.is_empty(), "TCP goes to the service, not through");
    }
}

#[test]
fn server_first_protocols_share_no_listener() {
    let services = vec![service(0, Protocol::Mongo, 27017, UNSPECIFIED_IP), service(1, Protocol::Http, 27017, "")];
    let all = listeners(services, &json!({}), istio(), &[]);
    let mongo = named(&all, "0.0.0.0_27017");
    assert!(mongo.listener_filters.is_empty());
    assert_eq!(mongo.filter_chains.len(), 1);
}

#[test]
fn of_two_tcp_services_on_one_address_the_older_stays_and_the_other_is_told() {
    let services = vec![service(0, Protocol::Tcp, 7000, "10.1.0.1"), service(1, Protocol::Redis, 7000, "10.1.0.1")];
    let all = listeners(services.clone(), &json!({}), istio(), &[]);
    let kept = text(std::slice::from_ref(named(&all, "10.1.0.1_7000")));
    assert!(kept.contains("outbound|7000||s0.example") && !kept.contains("s1.example"));
    let conflicts = generate(services, &json!({}), istio(), &[], sidecar_conflicts);
    let messages: Vec<_> = conflicts.iter().map(|c| c.message.as_str()).collect();
    assert_eq!(messages, ["Listener=10.1.0.1_7000 Accepted=TCP Rejected=TCP (s1.example)"]);
}

#[test]
fn unknown_destinations_go_where_the_policy_says() {
    let mesh = json!({"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}});
    let all = listeners(vec![service(0, Protocol::Http, 80, "10.1.0.1")], &mesh, istio(), &[]);
    for name in ["0.0.0.0_80", "virtualOutbound"] {
        let listener = named(&all, name);
        let last = listener.default_filter_chain.as_ref().or(listener.filter_chains.last()).unwrap();
        assert!(
            text(&[Listener { filter_chains: vec![last.clone()], ..Listener::default() }]).contains(BLACK_HOLE_CLUSTER)
        );
    }
}

#[test]
fn a_stock_envoy_gets_nothing_of_istio_and_waits_for_no_certificate() {
    let mesh = json!({"defaultProviders": {"metrics": ["prometheus"]}});
    let services = || vec![service(0, Protocol::Http, 80, "10.1.0.1"), service(1, Protocol::Tcp, 81, "10.1.0.2")];
    let stock = text(&listeners(services(), &mesh, json!({"NAMESPACE": "default"}), &[]));
    for name in ["istio.alpn", "istio.stats", "istio.metadata_exchange", "sds-grpc", "DownstreamTlsContext"] {
        assert!(!stock.contains(name), "{name}");
    }
    let own = text(&listeners(services(), &mesh, istio(), &[]));
    for name in ["istio.alpn", "istio.stats", "istio.metadata_exchange", "sds-grpc"] {
        assert!(own.contains(name), "{name}");
    }
}

#[test]
fn a_stock_envoy_with_certificate_files_ends_mutual_tls() {
    let metadata = json!({"NAMESPACE": "default", "TLS_SERVER_CERT_CHAIN": "/c/chain.pem",
        "TLS_SERVER_KEY": "/c/key.pem", "TLS_SERVER_ROOT_CERT": "/c/root.pem"});
    let all = text(&listeners(Vec::new(), &json!({}), metadata, &[]));
    assert!(all.contains(r#""filename":"/c/chain.pem""#) && all.contains(r#""watchedDirectory":{"path":"/c"}"#));
    assert!(!all.contains("sds-grpc") && !all.contains("istio-peer-exchange\",\"h2"));
}

#[test]
fn a_strict_policy_is_never_weakened() {
    let policy = json!({"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": "default"}, "spec": {"mtls": {"mode": "STRICT"}}});
    let all = listeners(Vec::new(), &json!({}), json!({"NAMESPACE": "default"}), &[policy]);
    let inbound = named(&all, "virtualInbound");
    let served = inbound.filter_chains.iter().filter(|c| c.name != "virtualInbound-blackhole");
    assert!(served.clone().count() > 0 && served.clone().all(|c| c.transport_socket.is_some()));
}

fn any_service() -> impl Strategy<Value = (Protocol, u32, &'static str)> {
    let protocols = prop::sample::select(vec![
        Protocol::Http,
        Protocol::Http2,
        Protocol::Tcp,
        Protocol::Tls,
        Protocol::Https,
        Protocol::Mongo,
        Protocol::Redis,
        Protocol::Unsupported,
    ]);
    let addresses = prop::sample::select(vec![UNSPECIFIED_IP, "10.1.0.1", "10.1.0.2", "10.2.0.0/16", "10.2.3.4/16"]);
    (protocols, 1000u32..1003, addresses)
}

proptest! {
    #[test]
    fn filter_chains_of_any_services_are_distinct_for_envoy(given in prop::collection::vec(any_service(), 0..12)) {
        let services = given.iter().enumerate().map(|(i, (p, port, address))| service(i, *p, *port, address)).collect();
        let all = listeners(services, &json!({}), istio(), &[]);
        let names: BTreeSet<_> = all.iter().map(|l| &l.name).collect();
        prop_assert_eq!(names.len(), all.len());
        for listener in &all {
            let mut matches: Vec<String> = listener
                .filter_chains
                .iter()
                .map(|c| c.filter_chain_match.as_ref().map_or_else(String::new, |m| to_json(m).unwrap().to_string()))
                .collect();
            matches.sort();
            matches.dedup();
            prop_assert_eq!(matches.len(), listener.filter_chains.len(), "{}", listener.name);
            prop_assert!(listener.filter_chains.iter().all(|c| !c.filters.is_empty()));
        }
    }
}
