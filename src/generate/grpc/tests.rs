//! Tests of clusters that gRPC resolves by DNS, and of ports that it cannot call.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    model::{
        Config, ConfigSnapshot, Endpoint, EndpointIndex, EndpointSet, Kind, LabelSet, Labels, Locality, Node, Origin,
        Port, Protocol, Registry, RegistrySnapshot, Resolution, Service, ShardKey, decode,
    },
    proto::{
        envoy::config::cluster::v3::{
            Cluster,
            cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy},
        },
        to_json,
    },
    push::{PushContext, context::PushInputs},
};

fn service(host: &str, registry: Registry, resolution: Resolution) -> Service {
    let port = |name: &str, port, protocol| Port { name: name.into(), port, protocol };
    Service {
        hostname: host.into(),
        object_name: "o".into(),
        namespace: "shop".into(),
        ports: vec![port("grpc", 9000, Protocol::Grpc), port("raw", 7000, Protocol::Tcp)],
        registry,
        resolution,
        ..Service::default()
    }
}

fn endpoint(address: &str, version: &str) -> Arc<Endpoint> {
    let labels = Labels::from([("version".to_string(), version.to_string())]);
    Arc::new(Endpoint {
        addresses: vec![address.into()],
        port: 50,
        service_port_name: "grpc".into(),
        legacy_cluster_port_key: 9000,
        labels: Arc::new(LabelSet::of(&labels, |text| text.into())),
        ..Endpoint::default()
    })
}

fn context(
    services: Vec<Service>,
    endpoints: &[(&str, Vec<Arc<Endpoint>>)],
    rules: &[serde_json::Value],
) -> PushContext {
    let shard = || ShardKey { provider: Registry::External, cluster: "c".into() };
    let mut index = EndpointIndex::default();
    for (host, list) in endpoints {
        let set = EndpointSet::of(vec![(shard(), list.iter().cloned().collect())]);
        index.by_service.insert(((*host).into(), "shop".into()), Arc::new(set));
    }
    let services = Arc::new(services.into_iter().map(|s| Arc::new(s.stamped())).collect());
    let registry = RegistrySnapshot { services, endpoints: Arc::new(index), ..RegistrySnapshot::default() };
    let rule = |spec: &serde_json::Value| {
        let metadata = json!({"name": "rule", "namespace": "shop"});
        let kind = "DestinationRule";
        let object = json!({"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
        Arc::new(decode::from_value(&object, Origin::default()).unwrap())
    };
    let configs = ConfigSnapshot::of(rules.iter().map(rule).collect::<Vec<Arc<Config>>>());
    PushContext::build(PushInputs { registry, configs, ..PushInputs::default() })
}

fn view(context: &PushContext) -> ProxyView {
    let id = "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local";
    context.view_of(&Node::from_parts(id, json!({"GENERATOR": "grpc"}), Locality::default()).unwrap())
}

fn made(context: &PushContext, name: &str) -> (Cluster, Vec<NotApplied>) {
    clusters(context, &view(context), &[name.to_string()]).pop().unwrap()
}

fn kind_of(cluster: &Cluster) -> DiscoveryType {
    match cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(kind)) => DiscoveryType::try_from(kind).unwrap(),
        _ => panic!("{cluster:?}"),
    }
}

/// The only name of a cluster, in the form that gRPC demands (gRFC A37).
fn name_of(cluster: &Cluster) -> serde_json::Value {
    assert_eq!((kind_of(cluster), &cluster.eds_cluster_config), (DiscoveryType::LogicalDns, &None));
    let assignment = to_json(cluster.load_assignment.as_ref().unwrap()).unwrap();
    assert_eq!(assignment["clusterName"], json!(cluster.name));
    let [locality] = assignment["endpoints"].as_array().unwrap().as_slice() else { panic!("{assignment}") };
    let [endpoint] = locality["lbEndpoints"].as_array().unwrap().as_slice() else { panic!("{assignment}") };
    endpoint["endpoint"]["address"]["socketAddress"].clone()
}

#[test]
fn subsets_of_a_dns_service_have_a_name_each_and_the_policies_of_the_rule() {
    let endpoints = vec![endpoint("a.example", "v1"), endpoint("b.example", "v2"), endpoint("c.example", "v2")];
    let rule = json!({
        "host": "h.example",
        "trafficPolicy": {
            "tls": {"mode": "ISTIO_MUTUAL", "subjectAltNames": ["spiffe://x"]},
            "connectionPool": {"http": {"http2MaxRequests": 7}},
        },
        "subsets": [
            {"name": "v1", "labels": {"version": "v1"}},
            {"name": "v2", "labels": {"version": "v2"}, "trafficPolicy": {
                "tls": {"mode": "SIMPLE"}, "loadBalancer": {"consistentHash": {"httpHeaderName": "x"}},
            }},
        ],
    });
    let service = service("h.example", Registry::External, Resolution::DnsLB);
    let context = context(vec![service], &[("h.example", endpoints)], &[rule]);
    let (first, told) = made(&context, "outbound|9000|v1|h.example");
    assert_eq!(name_of(&first), json!({"address": "a.example", "portValue": 50}));
    assert!(first.transport_socket.is_some() && told.is_empty(), "{told:?}");
    let limit = |cluster: &Cluster| cluster.circuit_breakers.as_ref().unwrap().thresholds[0].max_requests;
    assert_eq!(limit(&first), Some(7));
    let (second, told) = made(&context, "outbound|9000|v2|h.example");
    assert_eq!(name_of(&second), json!({"address": "b.example", "portValue": 50}));
    assert_eq!((limit(&second), second.lb_policy()), (Some(7), LbPolicy::RingHash));
    assert!(second.transport_socket.is_none());
    let of = |kind| told.iter().filter(move |t| t.object.as_ref().map(|o| o.kind) == Some(kind)).map(|t| &t.message);
    let rule: Vec<_> = of(Kind::DestinationRule).collect();
    assert!(rule.iter().any(|m| m.contains("consistentHash")) && rule.iter().any(|m| m.contains("SIMPLE")), "{told:?}");
    let entry: Vec<_> = of(Kind::ServiceEntry).collect();
    assert!(entry.len() == 1 && entry[0].contains("calls go to b.example:50, and none to c.example:50"), "{told:?}");
    assert_eq!(told.len(), 3);
}

#[test]
fn external_names_of_no_service_are_resolved() {
    let alias = |host: &str, of: &str| Service {
        external_name: of.to_string(),
        ..service(host, Registry::Kubernetes, Resolution::Alias)
    };
    let services =
        vec![service("c", Registry::Kubernetes, Resolution::ClientSideLB), alias("in", "c"), alias("out", "a.example")];
    let context = context(services, &[], &[]);
    let routes = |host: &str| {
        let (made, told) = route_configuration(&context, &view(&context), &format!("outbound|9000||{host}")).unwrap();
        assert!(told.is_empty(), "{told:?}");
        cluster_names(&[made])
    };
    assert_eq!(routes("in"), ["outbound|9000||c"]);
    assert_eq!(routes("out"), ["outbound|9000||out"]);
    let (outside, told) = made(&context, "outbound|9000||out");
    assert_eq!((name_of(&outside), told.len()), (json!({"address": "a.example", "portValue": 9000}), 0));
    assert_eq!(kind_of(&made(&context, "outbound|9000||c").0), DiscoveryType::Eds);
}

#[test]
fn a_port_without_http_is_told_at_its_service() {
    for (registry, kind) in [(Registry::Kubernetes, Kind::Service), (Registry::External, Kind::ServiceEntry)] {
        let context = context(vec![service("h.example", registry, Resolution::ClientSideLB)], &[], &[]);
        let told = |name: &str| route_configuration(&context, &view(&context), name).unwrap();
        let (route, said) = told("outbound|7000||h.example");
        assert!(route.virtual_hosts.is_empty(), "as Istio has it");
        let [said] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!(said.object.as_ref().map(|o| (o.kind, &*o.namespace, &*o.name)), Some((kind, "shop", "o")));
        assert!(said.message.starts_with("port 7000 (\"raw\") is of protocol TCP"), "{}", said.message);
        for name in ["outbound|9000||h.example", "outbound|1||h.example", "outbound|7000||nobody"] {
            assert!(told(name).1.is_empty(), "{name}");
        }
    }
}
