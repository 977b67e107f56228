//! Tests of whole route configurations: encoded against built, the parts that a change re-encodes, unique names and domains.

use std::{collections::HashSet, sync::Arc};

use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};

use super::{VirtualHostMemo, empty, encoded, gateway, sidecar_outbound, sidecar_outbound_encoded};
use crate::{
    model::{
        Config, ConfigSnapshot, Features, Locality, Mesh, Node, Origin, Port, Protocol, Registry, RegistrySnapshot,
        Resolution, Service, decode,
    },
    proto::envoy::config::route::v3::RouteConfiguration,
    push::{ProxyView, PushContext, context::PushInputs},
};

fn config(kind: &str, name: &str, spec: Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "x"}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).unwrap())
}

fn service(host: &str, ports: &[(u32, Protocol)]) -> Service {
    let ports = ports.iter().map(|(port, protocol)| Port {
        name: format!("p{port}").as_str().into(),
        port: *port,
        protocol: *protocol,
    });
    Service {
        hostname: host.into(),
        name: host.into(),
        namespace: "x".into(),
        ports: ports.collect(),
        registry: Registry::Kubernetes,
        ..Service::default()
    }
}

fn context(mesh: &Value, features: Features, services: Vec<Service>, configs: Vec<Arc<Config>>) -> PushContext {
    let services = Arc::new(services.into_iter().map(|s| Arc::new(s.stamped())).collect());
    PushContext::build(PushInputs {
        mesh: Arc::new(Mesh::from_values(mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap()),
        features: Arc::new(features),
        configs: ConfigSnapshot::of(configs),
        registry: RegistrySnapshot { services, ..RegistrySnapshot::default() },
        ..PushInputs::default()
    })
}

fn view(kind: &str, namespace: &str, labels: &[(&str, &str)]) -> ProxyView {
    let id = format!("{kind}~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
    let mut view = ProxyView::of_node(&Node::from_parts(&id, Value::Null, Locality::default()).unwrap());
    view.labels = labels.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
    view
}

fn weighted(host: &str, first: i32) -> Arc<Config> {
    let route =
        |port: u32, weight: i32| json!({"destination": {"host": host, "port": {"number": port}}, "weight": weight});
    let spec = json!({"hosts": [host], "http": [{"route": [route(80, first), route(81, 100 - first)]}]});
    config("VirtualService", host, spec)
}

fn host(index: usize) -> String {
    format!("s{index}.x.svc.cluster.local")
}

#[test]
fn a_changed_weight_encodes_one_virtual_host() {
    let services = || (0..40).map(|i| service(&host(i), &[(80, Protocol::Http)])).collect::<Vec<_>>();
    let at = |weight| {
        let configs = (0..20).map(|i| weighted(&host(i), if i == 7 { weight } else { 50 })).collect();
        context(&Value::Null, Features::default(), services(), configs)
    };
    let (memo, view) = (VirtualHostMemo::default(), view("sidecar", "x", &[]));
    let (before, after) = (at(10), at(20));
    let old = sidecar_outbound_encoded(&before, &view, "80", &memo);
    assert_eq!(memo.built(), 40);
    assert_eq!(sidecar_outbound_encoded(&before, &view, "80", &memo), old);
    assert_eq!(memo.built(), 40);
    let new = sidecar_outbound_encoded(&after, &view, "80", &memo);
    assert_eq!(memo.built(), 41);
    assert_ne!(new, old);
    assert_eq!(RouteConfiguration::decode(new).unwrap(), sidecar_outbound(&after, &view, "80"));
}

#[test]
fn a_memo_forgets_routes_without_a_request() {
    let services = (0..50).map(|i| service(&host(i), &[(80, Protocol::Http)])).collect();
    let context = context(&Value::Null, Features::default(), services, vec![]);
    let (memo, view) = (VirtualHostMemo::with_limit(1000), view("sidecar", "x", &[]));
    let first = sidecar_outbound_encoded(&context, &view, "80", &memo);
    assert_eq!(sidecar_outbound_encoded(&context, &view, "80", &memo), first);
    assert!(memo.built() > 60, "50 virtual hosts do not fit, yet only {} were built", memo.built());
}

#[test]
fn names_without_anything_behind_them_are_empty() {
    let context = context(&Value::Null, Features::default(), vec![], vec![]);
    let (memo, sidecar, router) = (VirtualHostMemo::default(), view("sidecar", "x", &[]), view("router", "x", &[]));
    for name in ["", "x", "outbound|80||a", "http.80"] {
        assert_eq!(sidecar_outbound(&context, &sidecar, name), empty(name));
        let bytes = encoded(&context, &router, &[name], &memo).remove(0).0;
        assert_eq!(RouteConfiguration::decode(bytes).unwrap(), empty(name));
    }
}

#[test]
fn a_sniffed_port_serves_one_service() {
    let services = vec![
        service("a.x.svc.cluster.local", &[(90, Protocol::Unsupported)]),
        service("b.x.svc.cluster.local", &[(90, Protocol::Unsupported)]),
    ];
    let context = context(&Value::Null, Features::default(), services, vec![]);
    let routes = sidecar_outbound(&context, &view("sidecar", "x", &[]), "b.x.svc.cluster.local:90");
    let [only] = routes.virtual_hosts.as_slice() else { panic!("{routes:?}") };
    assert_eq!((only.name.as_str(), only.domains.as_slice()), ("b.x.svc.cluster.local:90", &["*".to_string()][..]));
}

#[test]
fn behind_a_proxy_port_only_port_80_goes_without_a_port() {
    let services = vec![service("a.y", &[(80, Protocol::Http), (81, Protocol::Http), (82, Protocol::Tcp)])];
    let context = context(&Value::Null, Features::default(), services, vec![]);
    let routes = sidecar_outbound(&context, &view("sidecar", "x", &[]), "http_proxy");
    let domains: Vec<_> = routes.virtual_hosts.iter().map(|v| v.domains.join(" ")).collect();
    assert_eq!(domains, ["a.y a.y:80 a.y. a.y.:80", "a.y:81 a.y.:81", "*"]);
}

fn any_configs() -> impl Strategy<Value = Vec<Arc<Config>>> {
    let hosts =
        prop::sample::select(vec!["s0.x.svc.cluster.local", "S1", "*.x.svc.cluster.local", "ext.test", "*", "s0.x"]);
    let rule = (prop::sample::select(vec!["s0", "s1", "gone.test"]), 0..3usize, 0..3u32, 0..100i32).prop_map(
        |(destination, matches, port, weight)| {
            let conditions = [
                json!([]),
                json!([{"sourceLabels": {"app": "a"}, "uri": {"prefix": "/a"}}, {"sourceNamespace": "x"}]),
                json!([{"port": 80}, {"gateways": ["x/g"], "uri": {"exact": "/b"}}]),
            ];
            let port = if port == 0 { json!({}) } else { json!({"port": {"number": 79 + port}}) };
            let mut to = json!({"host": destination});
            to.as_object_mut().unwrap().extend(port.as_object().unwrap().clone());
            let route = json!([{"destination": to, "weight": weight}, {"destination": {"host": "s0"}, "weight": 1}]);
            json!({"match": conditions[matches], "route": route})
        },
    );
    let spec = (prop::collection::vec(hosts, 1..3), prop::collection::vec(rule, 1..4), any::<bool>()).prop_map(
        |(hosts, http, everywhere)| {
            let gateways = if everywhere { json!(["mesh", "g"]) } else { json!(["g"]) };
            json!({"hosts": hosts, "http": http, "gateways": gateways})
        },
    );
    let hash = prop::option::of(prop::sample::select(vec!["h1", "h2"])).prop_map(|header| {
        let balancer = header.map(|h| json!({"consistentHash": {"httpHeaderName": h}}));
        let spec =
            json!({"host": "s0", "trafficPolicy": {"loadBalancer": balancer.unwrap_or(json!({"simple": "RANDOM"}))}});
        config("DestinationRule", "s0", spec)
    });
    let servers = any::<bool>().prop_map(|redirect| {
        let tls = if redirect { json!({"httpsRedirect": true}) } else { Value::Null };
        let port = json!({"number": 80, "name": "http", "protocol": "HTTP"});
        config("Gateway", "g", json!({"servers": [{"hosts": ["*"], "port": port, "tls": tls}]}))
    });
    (prop::collection::vec(spec, 0..5), hash, servers).prop_map(|(specs, hash, gateway)| {
        let numbered = specs.into_iter().enumerate();
        numbered.map(|(i, spec)| config("VirtualService", &format!("v{i}"), spec)).chain([hash, gateway]).collect()
    })
}

fn any_context() -> impl Strategy<Value = PushContext> {
    let services = (any::<bool>(), 0..3u8, prop::option::of("c(:/p)?")).prop_map(|(headless, ports, session)| {
        let mut s0 = service("s0.x.svc.cluster.local", &[(80, Protocol::Http), (81, Protocol::Unsupported)]);
        s0.default_address = "10.0.0.7".into();
        s0.resolution = if headless { Resolution::Passthrough } else { Resolution::ClientSideLB };
        s0.labels = session.into_iter().map(|s| ("istio.io/persistent-session".to_string(), s)).collect();
        let mut s1 = service("s1.x.svc.cluster.local", &[(80, Protocol::Http)]);
        s1.ports.truncate(ports.into());
        s1.default_address = "10.0.0.7".into();
        vec![s0, s1, service("s0.x", &[(80, Protocol::Http)])]
    });
    let mesh = (0..3i32, any::<bool>()).prop_map(|(attempts, attempt_count)| {
        json!({
            "defaultHttpRetryPolicy": {"attempts": attempts},
            "defaultConfig": {"proxyHeaders": {"attemptCount": {"disabled": attempt_count}}},
        })
    });
    (mesh, any::<bool>(), services, any_configs()).prop_map(|(mesh, sessions, services, configs)| {
        let features = Features { enable_persistent_session_filter: sessions, ..Features::default() };
        context(&mesh, features, services, configs)
    })
}

fn assert_unique(routes: &RouteConfiguration) {
    let mut seen = HashSet::new();
    for virtual_host in &routes.virtual_hosts {
        assert!(seen.insert(format!("name {}", virtual_host.name)), "{} twice", virtual_host.name);
        for domain in &virtual_host.domains {
            assert!(seen.insert(domain.to_lowercase()), "{domain} twice in {routes:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One memo over many snapshots and proxies: a key that forgot an input would hand out another's bytes.
    #[test]
    fn encoded_routes_decode_to_built_ones(contexts in prop::collection::vec(any_context(), 1..4)) {
        let memo = VirtualHostMemo::default();
        let sidecars =
            [view("sidecar", "x", &[]), view("sidecar", "y", &[]), view("sidecar", "x", &[("app", "a")])];
        let names = ["80", "81", "s0.x.svc.cluster.local:81", "http_proxy", "none"];
        for context in &contexts {
            for view in &sidecars {
                let all = encoded(context, view, &names, &memo);
                for (name, (bytes, _)) in names.iter().zip(all) {
                    let built = sidecar_outbound(context, view, name);
                    assert_unique(&built);
                    prop_assert_eq!(RouteConfiguration::decode(bytes).unwrap(), built);
                }
            }
            let router = view("router", "x", &[]);
            let merged = context.merged_gateway(&router).unwrap();
            let built = gateway(context, &router, &merged, "http.80");
            assert_unique(&built);
            let bytes = encoded(context, &router, &["http.80"], &memo).remove(0).0;
            prop_assert_eq!(RouteConfiguration::decode(bytes).unwrap(), built);
        }
    }
}
