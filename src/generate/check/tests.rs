//! Values that Envoy refuses, each in a valid object: the object's own route, cluster or filter chain is left out or fails,
//! its neighbours are unchanged, and the object is named.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    generate::{
        cluster, endpoint, listener,
        route::{self, VirtualHostMemo},
    },
    model::{ConfigSnapshot, Features, Locality, Mesh, Node, Origin, decode, validation::validate},
    proto::{
        envoy::config::{
            core::v3::{HeaderValue, HeaderValueOption},
            route::v3::{RouteAction, RouteConfiguration, RouteMatch, route_action, route_match::PathSpecifier},
        },
        to_json,
    },
    push::{ProxyView, PushContext, context::PushInputs},
    registry::ServiceEntryStore,
};

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "edge"}, "spec": spec})
}

fn service(name: &str) -> Value {
    let spec = json!({"hosts": [format!("{name}.example")], "location": "MESH_INTERNAL", "resolution": "STATIC",
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "endpoints": [{"address": "10.0.0.1"}]});
    object("ServiceEntry", name, &spec)
}

fn decoded(object: &Value) -> Config {
    decode::from_value(object, Origin::default()).unwrap_or_else(|e| panic!("{object}: {e}"))
}

fn assert_valid(object: &Value) {
    assert_eq!(validate(&decoded(object)).errors, Vec::<String>::new(), "{object}");
}

/// A context of objects, with a gateway on port 80.
fn context(objects: &[Value]) -> PushContext {
    let server = json!({"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]});
    let gateway = object("Gateway", "gw", &json!({"servers": [server]}));
    let decoded = objects.iter().chain([&gateway]).map(decoded);
    let configs = ConfigSnapshot::of(decoded.map(Arc::new));
    let mesh = Arc::new(Mesh::from_values(&json!({}), &json!({}), "cluster.local", "Kubernetes").unwrap());
    let features = Arc::new(Features::default());
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() })
}

fn view(context: &PushContext, kind: &str) -> ProxyView {
    let id = format!("{kind}~10.1.0.1~p.edge~edge.svc.cluster.local");
    context.view_of(&Node::from_parts(&id, json!({}), Locality::default()).unwrap())
}

fn web(http: &Value) -> Value {
    object("VirtualService", "bad", &json!({"hosts": ["bad.example"], "gateways": ["gw"], "http": [http]}))
}

/// The gateway's routes by virtual host, and the refusals.
fn routes(objects: &[Value]) -> (Value, Vec<Refusal>) {
    let good = json!({"hosts": ["good.example"], "gateways": ["gw"], "http": [{"route": [to()]}]});
    let mut all = vec![service("web"), object("VirtualService", "good", &good)];
    all.extend_from_slice(objects);
    let context = context(&all);
    let view = view(&context, "router");
    let (bytes, refused) = route::encoded(&context, &view, &["http.80"], &VirtualHostMemo::default()).remove(0);
    assert_eq!(violations("envoy.config.route.v3.RouteConfiguration", &bytes), []);
    (to_json(&RouteConfiguration::decode(bytes).unwrap()).unwrap(), refused)
}

fn to() -> Value {
    json!({"destination": {"host": "web.example"}})
}

fn host<'a>(routes: &'a Value, name: &str) -> &'a Value {
    routes["virtualHosts"].as_array().unwrap().iter().find(|h| h["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn a_route_that_envoy_refuses_fails_alone() {
    let set = |value: &str| json!({"route": [to()], "headers": {"request": {"set": {"x-a": value}}}});
    let cases = [
        set("%NOPE%"),
        set("%REQ(a b)%"),
        set("%PROTOCOL(x)%"),
        json!({"route": [to()], "rewrite": {"uri": "/a\nb"}}),
        json!({"route": [to()], "rewrite": {"authority": "a\nb"}}),
        json!({"redirect": {"uri": "/a\nb"}}),
        json!({"redirect": {"authority": "a\nb"}}),
        json!({"redirect": {"uri": "/a", "redirectCode": 304}}),
        json!({"directResponse": {"status": 600}}),
        json!({"route": [to()], "fault": {"abort": {"httpStatus": 600, "percentage": {"value": 1}}}}),
        json!({"route": [
            {"destination": {"host": "web.example"}, "weight": 2_147_483_647},
            {"destination": {"host": "web.example"}, "weight": 2_147_483_647},
            {"destination": {"host": "web.example"}, "weight": 2_147_483_647},
        ]}),
    ];
    let (alone, told) = routes(&[]);
    assert_eq!(told, []);
    for http in cases {
        assert_valid(&web(&http));
        let (routes, told) = routes(&[web(&http)]);
        assert_eq!(host(&routes, "good.example:80"), host(&alone, "good.example:80"), "{http}");
        let bad = &host(&routes, "bad.example:80")["routes"];
        assert_eq!(bad[0]["directResponse"]["status"], 500, "{http}: {bad}");
        assert_eq!(told.len(), 1, "{http}: {told:?}");
        let object = told[0].object.as_ref().map(ToString::to_string);
        assert_eq!(object.as_deref(), Some("VirtualService/edge/bad"), "{http}");
    }
}

/// Validation refuses most of these; a source that does not validate may still deliver them.
#[test]
fn a_route_whose_match_envoy_refuses_is_left_out_alone() {
    let cases = [
        json!({"uri": {"regex": "/v(1"}}),
        json!({"headers": {"x-a": {"regex": "["}}}),
        json!({"queryParams": {"a": {"regex": "["}}}),
        json!({"uri": {"regex": "/a{1001}"}}),
        json!({"uri": {"regex": "/(?=x)"}}),
        json!({"headers": {"x-a": {"prefix": ""}}}),
        json!({"headers": {"x\ny": {"exact": "a"}}}),
    ];
    for condition in cases {
        let http = json!({"match": [condition, {"uri": {"exact": "/fine"}}], "route": [to()]});
        let (routes, told) = routes(&[web(&http)]);
        let bad = host(&routes, "bad.example:80")["routes"].as_array().unwrap();
        assert_eq!((bad.len(), &bad[0]["match"]["path"]), (1, &json!("/fine")), "{condition}");
        assert_eq!(told.len(), 1, "{condition}: {told:?}");
    }
}

/// An API server refuses these by the schema, and so do files. Another control plane may deliver them.
#[test]
fn an_http_route_that_envoy_refuses_fails_alone() {
    let redirect = |with: Value| json!({"type": "RequestRedirect", "requestRedirect": with});
    let rewrite = |path: Value| json!({"type": "URLRewrite", "urlRewrite": {"path": path}});
    let full = |path: &str| json!({"type": "ReplaceFullPath", "replaceFullPath": path});
    let filters = [
        redirect(json!({"statusCode": 299})),
        redirect(json!({"path": full("/a\nb")})),
        redirect(json!({"hostname": "a\nb"})),
        rewrite(full("/a\nb")),
    ];
    // Each of these is a route that Envoy takes, with an effect or without.
    let taken = [
        rewrite(full("\\9")),
        rewrite(json!({"type": "ReplaceFullPath", "replacePrefixMatch": "/a"})),
        rewrite(json!({"type": "ReplacePrefixMatch", "replaceFullPath": "/a"})),
        redirect(json!({"path": {"type": "ReplaceFullPath", "replacePrefixMatch": "/a"}})),
    ];
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "edge"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]}});
    for (filter, fails) in filters.iter().map(|f| (f, true)).chain(taken.iter().map(|f| (f, false))) {
        let prefix = |path: &str| json!([{"path": {"type": "PathPrefix", "value": path}}]);
        let to = json!([{"name": "web", "port": 80}]);
        let backends = if filter["type"] == "RequestRedirect" { json!([]) } else { to.clone() };
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "bad", "namespace": "edge"},
            "spec": {"parentRefs": [{"group": "", "kind": "Service", "name": "web", "port": 80}], "rules": [
                {"matches": prefix("/bad"), "filters": [filter], "backendRefs": backends},
                {"matches": prefix("/good"), "backendRefs": to}]}});
        let context = context(&[service.clone(), route]);
        let view = view(&context, "sidecar");
        let (bytes, refused) = route::encoded(&context, &view, &["80"], &VirtualHostMemo::default()).remove(0);
        assert_eq!(violations("envoy.config.route.v3.RouteConfiguration", &bytes), [], "{filter}");
        let routes = to_json(&RouteConfiguration::decode(bytes).unwrap()).unwrap();
        let routes = &host(&routes, "web.edge.svc.cluster.local:80")["routes"];
        let at = |path: &str| {
            let is = |r: &&Value| r["match"]["pathSeparatedPrefix"] == path;
            routes.as_array().unwrap().iter().find(is).unwrap_or_else(|| panic!("{filter}: no {path} in {routes}"))
        };
        assert_eq!(at("/good")["route"]["cluster"], "outbound|80||web.edge.svc.cluster.local", "{filter}");
        assert_eq!(at("/bad")["directResponse"]["status"] == 500, fails, "{filter}: {routes}");
        assert_eq!(refused.iter().any(|r| r.object.is_some()), fails, "{filter}: {refused:?}");
    }
}

#[test]
fn a_large_regular_expression_is_no_reason() {
    let regex = json!({"uri": {"regex": "^/api/items/[a-zA-Z0-9_-]{1,64}$"}});
    let (_, told) = routes(&[web(&json!({"match": [regex], "route": [to()]}))]);
    assert_eq!(told, []);
}

fn rule(policy: &Value) -> Value {
    object("DestinationRule", "bad", &json!({"host": "bad.example", "trafficPolicy": policy}))
}

#[test]
fn a_cluster_that_envoy_refuses_is_left_out_alone() {
    let hash = |with: Value| json!({"loadBalancer": {"consistentHash": with}});
    let cases = [
        hash(json!({"httpHeaderName": "x-a", "ringHash": {"minimumRingSize": 8_388_609}})),
        json!({"tls": {"mode": "SIMPLE", "sni": "a".repeat(400)}}),
    ];
    for policy in cases {
        assert_valid(&rule(&policy));
        let context = context(&[service("web"), service("bad"), rule(&policy)]);
        let view = view(&context, "router");
        let names: Vec<_> = cluster::all(&context, &view).into_iter().map(|c| c.name).collect();
        assert!(names.iter().any(|n| n == "outbound|80||web.example"), "{names:?}");
        assert!(!names.iter().any(|n| n == "outbound|80||bad.example"), "{policy}");
        let plan = cluster::OutboundPlan::of(&context, &view);
        let refused: Vec<Refusal> = plan.inputs().filter_map(|i| Some(*i.checked().err()?)).collect();
        let object = refused[0].object.as_ref().map(ToString::to_string);
        assert_eq!((refused.len(), object.as_deref()), (1, Some("DestinationRule/edge/bad")), "{policy}");
    }
}

#[test]
fn a_hash_that_envoy_refuses_fails_its_routes_alone() {
    for key in [
        json!({"httpHeaderName": "x\ny"}),
        json!({"httpHeaderName": ""}),
        json!({"httpCookie": {"name": "c", "ttl": "-1s"}}),
    ] {
        let rule = rule(&json!({"loadBalancer": {"consistentHash": key}}));
        assert_valid(&rule);
        let http = json!({"route": [{"destination": {"host": "bad.example"}}]});
        let (routes, told) = routes(&[service("bad"), rule, web(&http)]);
        assert_eq!(host(&routes, "bad.example:80")["routes"][0]["directResponse"]["status"], 500, "{key}");
        assert_eq!(told.len(), 1, "{key}: {told:?}");
    }
}

#[test]
fn a_filter_chain_that_envoy_refuses_is_left_out_alone() {
    let server = |name: &str, hash: &str| {
        json!({"port": {"number": 443, "name": name, "protocol": "HTTPS"}, "hosts": [format!("{name}.example")],
            "tls": {"mode": "MUTUAL", "credentialName": name, "verifyCertificateHash": [hash]}})
    };
    let good = "ab".repeat(32);
    let gateway = json!({"servers": [server("good", &good), server("bad", "zz")]});
    assert_valid(&object("Gateway", "tls", &gateway));
    let context = context(&[object("Gateway", "tls", &gateway)]);
    let built = listener::gateway(&context, &view(&context, "router"));
    let mut of_port = built.into_iter().find(|l| l.name.ends_with("_443")).unwrap();
    assert_eq!(of_port.filter_chains.len(), 2);
    let (left, told) = super::listener(&mut of_port, |names| {
        listener::object_of(&context, &view(&context, "router"), "0.0.0.0_443", names)
    });
    let (closing, chains): (Vec<_>, Vec<_>) = of_port.filter_chains.iter().partition(|chain| chain.filters.is_empty());
    let server_names = |chain: &FilterChain| chain.filter_chain_match.clone().unwrap_or_default().server_names;
    assert_eq!(closing.len(), 1, "{told:?}");
    assert!(server_names(closing[0]) != ["good.example"] && closing[0].transport_socket.is_none(), "{told:?}");
    let names: Vec<_> =
        chains.iter().filter_map(|c| c.filter_chain_match.as_ref()).flat_map(|m| &m.server_names).collect();
    assert!(left.is_some());
    assert_eq!(names, ["good.example"], "{told:?}");
    let object = told[0].object.as_ref().map(ToString::to_string);
    assert_eq!((told.len(), object.as_deref()), (1, Some("Gateway/edge/tls")), "{told:?}");
}

#[test]
fn a_listener_whose_address_is_a_name_is_left_out() {
    let service = |name: &str, address: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "edge"},
            "spec": {"clusterIP": address, "ports": [{"name": "tcp", "port": 5000}]}})
    };
    let context = context(&[service("good", "10.96.0.1"), service("bad", "web.example")]);
    let built = listener::sidecar_outbound(&context, &view(&context, "sidecar"));
    let checked: Vec<_> = built.into_iter().map(|built| (built.name.clone(), listener_of(built))).collect();
    let of = |name: &str| &checked.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1;
    assert_eq!(of("10.96.0.1_5000"), &(true, 0));
    assert_eq!(of("web.example_5000"), &(false, 1));
}

/// Whether a listener is left, and the number of refusals.
fn listener_of(mut built: crate::proto::envoy::config::listener::v3::Listener) -> (bool, usize) {
    let (left, refused) = super::listener(&mut built, |_| None);
    (left.is_some(), refused.len())
}

#[test]
fn an_endpoint_that_envoy_refuses_is_left_out_alone() {
    let path = format!("unix:///{}", "a".repeat(110));
    let mut object = service("bad");
    object["spec"]["endpoints"] = json!([{"address": path}, {"address": "10.0.0.1"}]);
    assert_valid(&object);
    let context = context(&[object]);
    let view = view(&context, "router");
    let name = "outbound|80||bad.example";
    let checked = endpoint::with_inputs(&context, &view, name, |inputs| {
        load_assignment(inputs.load_assignment(), || inputs.object())
    });
    let checked = checked.unwrap();
    let left: usize = checked.assignment.endpoints.iter().map(|group| group.lb_endpoints.len()).sum();
    assert_eq!((left, checked.refused.len()), (1, 1), "{:?}", checked.refused);
    assert_eq!(checked.refused[0].object.as_ref().map(ToString::to_string).as_deref(), Some("ServiceEntry/edge/bad"));
}

#[test]
fn a_host_that_envoy_refuses_is_left_out_alone() {
    let route = Route {
        r#match: Some(RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".into())), ..RouteMatch::default() }),
        action: Some(Action::Route(RouteAction {
            cluster_specifier: Some(route_action::ClusterSpecifier::Cluster("c".into())),
            ..RouteAction::default()
        })),
        ..Route::default()
    };
    let host = |domains: &[&str]| VirtualHost {
        name: "h".into(),
        domains: domains.iter().map(ToString::to_string).collect(),
        routes: vec![route.clone()],
        ..VirtualHost::default()
    };
    let checked = virtual_host(host(&["a", "b\nc"]), || vec![None]);
    assert_eq!((checked.host.unwrap().domains, checked.refused.len()), (vec!["a".to_string()], 1));
    let checked = virtual_host(host(&["b\nc"]), || vec![None]);
    assert!(checked.host.is_none() && checked.bytes.is_empty());
    assert_eq!(checked.refused.len(), 2);
    let whole = virtual_host(host(&["a"]), || unreachable!("nothing is wrong"));
    assert_eq!(whole.bytes, host(&["a"]).encode_to_vec());
}

#[test]
fn paths_and_values_are_told() {
    let header = HeaderValue { key: "x".into(), value: "100%".into(), ..HeaderValue::default() };
    let option = HeaderValueOption { header: Some(header), ..HeaderValueOption::default() };
    let route = Route { request_headers_to_add: vec![HeaderValueOption::default(), option], ..Route::default() };
    let found = encoded(&route).unwrap_err();
    let text = reasons(&found);
    assert!(text.contains("request_headers_to_add[1].header: \"100%\""), "{text}");
    assert!(text.contains("request_headers_to_add[0].header"), "{text}");
    assert!(text.contains("match"), "{text}");
}
