//! Who needs what, after the recorded rules (only types that really can change are named).

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{Config, ConfigSnapshot, Locality, Node, Origin, Reason, RegistrySnapshot, Service, Visibility, decode},
    push::context::PushInputs,
};

fn config(kind: &str, namespace: &str, name: &str, spec: Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

fn service(host: &str, namespace: &str) -> Service {
    Service { hostname: host.into(), name: host.into(), namespace: namespace.into(), ..Service::default() }
}

fn context(extra: Vec<Arc<Config>>) -> PushContext {
    let private = Service { export_to: [Visibility::Private].into(), ..service("till.com", "bank") };
    let alias =
        Service { resolution: Resolution::Alias, external_name: "cart.com".into(), ..service("other.com", "x") };
    let headless = Service { resolution: Resolution::Passthrough, ..service("headless.com", "shop") };
    let services = [service("cart.com", "shop"), private, alias, headless].map(|s| Arc::new(s.stamped())).to_vec();
    let mut configs = vec![
        config("VirtualService", "shop", "cart", json!({"hosts": ["cart.com"], "http": [{"delegate": {"name": "d"}}]})),
        config("VirtualService", "shop", "edge", json!({"hosts": ["edge.com"], "gateways": ["gw"]})),
        config("DestinationRule", "shop", "cart", json!({"host": "cart.com"})),
        config("DestinationRule", "shop", "nobody", json!({"host": "nobody.com"})),
        config("Sidecar", "bank", "own", json!({"egress": [{"hosts": ["./*"]}]})),
    ];
    configs.extend(extra);
    let registry = RegistrySnapshot { services: Arc::new(services), ..RegistrySnapshot::default() };
    PushContext::build(PushInputs { configs: ConfigSnapshot::of(configs), registry, ..PushInputs::default() })
}

fn view(context: &PushContext, kind: &str, namespace: &str) -> ProxyView {
    let id = format!("{kind}~10.0.0.1~p.{namespace}~{namespace}.svc.cluster.local");
    context.view_of(&Node::from_parts(&id, Value::Null, Locality::default()).expect("a node"))
}

fn key(kind: PushKind, namespace: &str, name: &str) -> PushRequest {
    PushRequest::of(PushKey { kind, name: name.into(), namespace: namespace.into() }, Reason::Config)
}

/// What a change means for a sidecar of shop, one of bank (which imports its own namespace only), and a router.
fn rows(request: &PushRequest, context: &PushContext) -> [Types; 3] {
    [("sidecar", "shop"), ("sidecar", "bank"), ("router", "istio-system")]
        .map(|(kind, namespace)| affects(request, context, Some(context), &view(context, kind, namespace)))
}

#[test]
fn recorded_rules() {
    let context = context(vec![]);
    let of = |kind, namespace: &str, name: &str| rows(&key(PushKind::Config(kind), namespace, name), &context);
    let ends = |namespace: &str, name: &str| rows(&key(PushKind::Endpoints, namespace, name), &context);
    let none = Types::NONE;
    let service = SERVICE.without(Types::NDS);
    assert_eq!(ends("shop", "cart.com"), [Types::EDS, none, Types::EDS]);
    assert_eq!(ends("shop", "headless.com")[0], Types::EDS | Types::CDS | Types::LDS);
    assert_eq!(of(Kind::ServiceEntry, "shop", "cart.com"), [service, none, service]);
    assert_eq!(of(Kind::ServiceEntry, "x", "other.com"), [service, none, service]);
    assert_eq!(of(Kind::ServiceEntry, "bank", "till.com"), [none, service, none]);
    assert_eq!(of(Kind::DestinationRule, "shop", "cart"), [service, none, service]);
    assert_eq!(of(Kind::DestinationRule, "shop", "nobody"), [none, none, service]);
    assert_eq!(of(Kind::VirtualService, "shop", "cart"), [Types::RDS, none, ROUTES]);
    assert_eq!(of(Kind::VirtualService, "shop", "d"), [Types::RDS, none, ROUTES]);
    assert_eq!(of(Kind::VirtualService, "shop", "edge"), [none, none, ROUTES]);
    assert_eq!(of(Kind::Sidecar, "bank", "own"), [none, ROUTES | Types::CDS, none]);
    assert_eq!(of(Kind::Gateway, "istio-system", "g")[..2], [none, none]);
    assert_eq!(of(Kind::AuthorizationPolicy, "shop", "a"), [Types::LDS, none, Types::LDS]);
    assert_eq!(of(Kind::AuthorizationPolicy, "istio-system", "a"), [Types::LDS; 3]);
    let clusters = Types::CDS | Types::EDS;
    assert_eq!(of(Kind::PeerAuthentication, "bank", "p"), [none, clusters | Types::LDS, clusters | Types::LDS]);
    assert_eq!(of(Kind::PeerAuthentication, "shop", "p"), [clusters | Types::LDS, none, clusters | Types::LDS]);
    assert_eq!(of(Kind::WorkloadGroup, "shop", "g"), [none; 3]);
    assert_eq!(of(Kind::ProxyConfig, "shop", "p"), [none; 3]);
}

#[test]
fn a_route_that_imports_a_service_changes_clusters_too() {
    let before = context(vec![]);
    let route = json!({"hosts": ["till.com"], "tcp": [{"route": [{"destination": {"host": "cart.com"}}]}]});
    let after = context(vec![config("VirtualService", "bank", "new", route)]);
    let request = key(PushKind::Config(Kind::VirtualService), "bank", "new");
    let types = affects(&request, &after, Some(&before), &view(&after, "sidecar", "bank"));
    assert_eq!(types, ROUTES | Types::CDS | Types::EDS);
    let gone = affects(&request, &before, Some(&after), &view(&before, "sidecar", "bank"));
    assert_eq!(gone, ROUTES | Types::CDS | Types::EDS);
}

#[test]
fn only_tcp_and_tls_routes_are_in_listeners_of_sidecars() {
    let with = |kind: &str, host: &str| {
        let route = json!({"hosts": ["cart.com"], kind: [{"route": [{"destination": {"host": host}}]}]});
        context(vec![config("VirtualService", "shop", "moved", route)])
    };
    let request = key(PushKind::Config(Kind::VirtualService), "shop", "moved");
    let affected = |before: &PushContext, after: &PushContext| {
        affects(&request, after, Some(before), &view(after, "sidecar", "shop"))
    };
    let (http, tcp) = (with("http", "cart.com"), with("tcp", "cart.com"));
    assert_eq!(affected(&http, &with("http", "headless.com")), Types::RDS);
    assert_eq!(affected(&tcp, &with("tcp", "headless.com")), ROUTES);
    assert_eq!(affected(&http, &tcp), ROUTES);
    assert_eq!(affected(&tcp, &http), ROUTES);
}

#[test]
fn forced_means_everything_and_no_key_means_nothing() {
    let context = context(vec![]);
    let view = view(&context, "sidecar", "shop");
    let everything = PushRequest::everything(Reason::Global);
    assert_eq!(affects(&everything, &context, Some(&context), &view), Types::ALL.without(Types::NDS));
    let nothing = PushRequest { forced: false, ..everything };
    assert_eq!(affects(&nothing, &context, Some(&context), &view), Types::NONE);
}
