//! The types pushed for each kind of change, after the recorded rules (only types that really can change are named).

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{
        Config, ConfigSnapshot, Endpoint, EndpointIndex, EndpointSet, Features, Locality, Node, Origin, Registry,
        RegistrySnapshot, Service, ShardKey, Visibility, decode,
    },
    push::{PushContext, context::PushInputs},
};

fn config(kind: &str, namespace: &str, name: &str, spec: Value) -> Arc<Config> {
    let group = match kind {
        "PeerAuthentication" | "AuthorizationPolicy" => "security",
        _ => "networking",
    };
    let document = json!({
        "apiVersion": format!("{group}.istio.io/v1"), "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

fn service(host: &str, namespace: &str) -> Service {
    Service { hostname: host.into(), name: host.into(), namespace: namespace.into(), ..Service::default() }
}

/// Services and objects of a mesh, and the endpoints of a service.
#[derive(Clone)]
struct Parts {
    services: Vec<Service>,
    configs: Vec<Arc<Config>>,
    endpoints: Vec<(&'static str, &'static str, Endpoint)>,
}

impl Parts {
    fn context(&self) -> PushContext {
        let services = self.services.iter().cloned().map(|s| Arc::new(s.stamped())).collect();
        let mut index = EndpointIndex::default();
        for (host, namespace, endpoint) in &self.endpoints {
            let shard = ShardKey { provider: Registry::Kubernetes, cluster: "c".into() };
            let set = EndpointSet::of(vec![(shard, Arc::from([Arc::new(endpoint.clone())]))]);
            index.by_service.insert(((*host).into(), (*namespace).into()), Arc::new(set));
        }
        let registry = RegistrySnapshot {
            services: Arc::new(services),
            endpoints: Arc::new(index),
            ..RegistrySnapshot::default()
        };
        let configs = ConfigSnapshot::of(self.configs.iter().cloned());
        PushContext::build(PushInputs { configs, registry, ..PushInputs::default() })
    }

    fn with(&self, extra: Arc<Config>) -> Self {
        let mut parts = self.clone();
        parts.configs.retain(|c| c.key() != extra.key());
        parts.configs.push(extra);
        parts
    }

    fn with_service(&self, service: Service) -> Self {
        let mut parts = self.clone();
        parts.services.retain(|s| s.hostname != service.hostname || s.namespace != service.namespace);
        parts.services.push(service);
        parts
    }

    fn with_endpoint(&self, host: &'static str, namespace: &'static str, endpoint: Endpoint) -> Self {
        let mut parts = self.clone();
        parts.endpoints.push((host, namespace, endpoint));
        parts
    }
}

fn mesh() -> Parts {
    let private = Service { export_to: [Visibility::Private].into(), ..service("till.com", "bank") };
    let alias =
        Service { resolution: Resolution::Alias, external_name: "cart.com".into(), ..service("other.com", "x") };
    let headless = Service { resolution: Resolution::Passthrough, ..service("headless.com", "shop") };
    Parts {
        services: vec![service("cart.com", "shop"), private, alias, headless],
        configs: vec![
            config(
                "VirtualService",
                "shop",
                "cart",
                json!({"hosts": ["cart.com"], "http": [{"delegate": {"name": "d"}}]}),
            ),
            config("VirtualService", "shop", "edge", json!({"hosts": ["edge.com"], "gateways": ["gw"]})),
            config("DestinationRule", "shop", "cart", json!({"host": "cart.com"})),
            config("DestinationRule", "shop", "nobody", json!({"host": "nobody.com"})),
            config("Sidecar", "bank", "own", json!({"egress": [{"hosts": ["./*"]}]})),
        ],
        endpoints: vec![("cart.com", "shop", Endpoint::default()), ("headless.com", "shop", Endpoint::default())],
    }
}

fn view(context: &PushContext, kind: &str, namespace: &str) -> ProxyView {
    let id = format!("{kind}~10.0.0.1~p.{namespace}~{namespace}.svc.cluster.local");
    context.view_of(&Node::from_parts(&id, Value::Null, Locality::default()).expect("a node"))
}

fn of_view(before: &Parts, after: &Parts, kind: &str, namespace: &str) -> Effects {
    let (before, after) = (before.context(), after.context());
    effects(&Change::between(&before, &after), &view(&after, kind, namespace))
}

/// The types that a change affects for a sidecar of shop, one of bank (which imports its own namespace only), and a router.
/// Undoing the change affects the same.
fn rows(after: &Parts) -> [Types; 3] {
    let before = mesh();
    [("sidecar", "shop"), ("sidecar", "bank"), ("router", "istio-system")].map(|(kind, namespace)| {
        let types = of_view(&before, after, kind, namespace).types;
        assert_eq!(of_view(after, &before, kind, namespace).types, types);
        types
    })
}

#[test]
fn recorded_rules() {
    let with =
        |kind: &str, namespace: &str, name: &str, spec: Value| rows(&mesh().with(config(kind, namespace, name, spec)));
    let none = Types::NONE;
    let service_types = SERVICE.without(Types::NDS);
    let labelled = |of: Service| Service { labels: [("a".to_string(), "b".to_string())].into(), ..of };
    let changed = |index: usize| rows(&mesh().with_service(labelled(mesh().services[index].clone())));
    assert_eq!(changed(0), [service_types, none, service_types]);
    assert_eq!(changed(1), [none, service_types, none]);
    assert_eq!(changed(2), [service_types, none, service_types]);
    let timeout = json!({"host": "cart.com", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "3s"}}}});
    assert_eq!(with("DestinationRule", "shop", "cart", timeout.clone()), [service_types, none, service_types]);
    let nobody = json!({"host": "nobody.com", "trafficPolicy": timeout["trafficPolicy"]});
    assert_eq!(with("DestinationRule", "shop", "nobody", nobody), [none, none, service_types]);
    let delegate = json!({"http": [{"name": "r"}]});
    assert_eq!(with("VirtualService", "shop", "d", delegate), [Types::RDS, none, ROUTES]);
    let edge = json!({"hosts": ["edge.com", "b.com"], "gateways": ["gw"]});
    assert_eq!(with("VirtualService", "shop", "edge", edge), [none, none, ROUTES]);
    let own = json!({"egress": [{"hosts": ["./*", "shop/*"]}]});
    assert_eq!(with("Sidecar", "bank", "own", own), [none, service_types, none]);
    assert_eq!(with("Gateway", "istio-system", "g", json!({}))[..2], [none, none]);
    let policy = json!({"action": "DENY"});
    assert_eq!(with("AuthorizationPolicy", "shop", "a", policy.clone()), [Types::LDS, none, none]);
    assert_eq!(with("AuthorizationPolicy", "istio-system", "a", policy), [Types::LDS; 3]);
    let strict = json!({"mtls": {"mode": "STRICT"}});
    let all = ENDPOINTS | Types::LDS;
    assert_eq!(with("PeerAuthentication", "bank", "p", strict.clone()), [none, all, all]);
    assert_eq!(with("PeerAuthentication", "shop", "p", strict), [all, none, all]);
    assert_eq!(with("WorkloadGroup", "shop", "g", json!({})), [none; 3]);
}

#[test]
fn endpoints_change_load_assignments_and_other_resources_made_from_them() {
    let with = |host, endpoint| mesh().with_endpoint(host, "shop", endpoint);
    let moved = || Endpoint { port: 1, ..Endpoint::default() };
    assert_eq!(rows(&with("cart.com", moved())), [Types::EDS, Types::NONE, Types::EDS]);
    assert_eq!(rows(&with("headless.com", moved()))[0], ENDPOINTS | Types::LDS);
    assert_eq!(rows(&with("nobody.com", moved())), [Types::NONE; 3]);
    let account = Endpoint { service_account: "spiffe://a/ns/b/sa/c".into(), ..Endpoint::default() };
    assert_eq!(rows(&with("cart.com", account))[0], ENDPOINTS, "clusters name accounts");
    let plain = Endpoint { tls_mode: "disabled".into(), ..Endpoint::default() };
    assert_eq!(rows(&with("cart.com", plain))[0], ENDPOINTS, "a rule may make clients dial endpoints themselves");
    let hosts = of_view(&mesh(), &with("cart.com", moved()), "sidecar", "shop").hosts;
    assert_eq!(hosts, Some(HashSet::from(["cart.com".into()])), "no other load assignment");
}

#[test]
fn a_route_that_imports_a_service_changes_clusters_too() {
    let route = json!({"hosts": ["till.com"], "tcp": [{"route": [{"destination": {"host": "cart.com"}}]}]});
    let after = mesh().with(config("VirtualService", "bank", "new", route));
    assert_eq!(rows(&after)[1], ROUTES | ENDPOINTS);
}

#[test]
fn only_tcp_and_tls_routes_are_in_listeners_of_sidecars() {
    let with = |kind: &str, host: &str| {
        let route = json!({"hosts": ["cart.com"], kind: [{"route": [{"destination": {"host": host}}]}]});
        mesh().with(config("VirtualService", "shop", "moved", route))
    };
    let affected = |before: &Parts, after: &Parts| of_view(before, after, "sidecar", "shop").types;
    let (http, tcp) = (with("http", "cart.com"), with("tcp", "cart.com"));
    assert_eq!(affected(&http, &with("http", "headless.com")), Types::RDS);
    assert_eq!(affected(&tcp, &with("tcp", "headless.com")), ROUTES);
    assert_eq!(affected(&http, &tcp), ROUTES);
    assert_eq!(affected(&tcp, &http), ROUTES);
}

#[test]
fn other_settings_mean_everything_and_no_difference_means_nothing() {
    let one = mesh().context();
    let features = Arc::new(Features { enable_quic_listeners: true, ..Features::default() });
    let other = PushContext::build(PushInputs { features, ..mesh().context().inputs });
    let of = |before: &PushContext, now: &PushContext| {
        effects(&Change::between(before, now), &view(now, "sidecar", "shop")).types
    };
    assert_eq!(of(&one, &other), Types::ALL.without(Types::NDS));
    assert_eq!(of(&one, &mesh().context()), Types::NONE);
}
