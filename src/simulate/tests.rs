//! The steps of a call, each by itself, and a whole call.

use serde_json::{Value, json};

use super::*;
use crate::proto::from_json;

fn listener(value: &Value) -> Listener {
    from_json(value, true).unwrap()
}

fn at(address: &str, port: u32) -> Value {
    json!({"socketAddress": {"address": address, "portValue": port}})
}

fn to_cluster(cluster: &str) -> Value {
    json!([{"name": "tcp", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "statPrefix": "t", "cluster": cluster}}])
}

fn chain(name: &str, matching: &Value) -> Value {
    json!({"name": name, "filterChainMatch": matching, "filters": to_cluster(name)})
}

fn tcp(address: &str, port: u32) -> Call {
    Call { address: address.into(), port, protocol: CallProtocol::Tcp, ..Call::default() }
}

#[test]
fn the_own_address_comes_before_any_address_and_the_catch_all_comes_last() {
    let named = |name: &str, address: &str, port| {
        listener(&json!({"name": name, "address": at(address, port), "filterChains": [chain(name, &json!({}))]}))
    };
    let listeners = vec![
        named("any", "0.0.0.0", 80),
        named("own", "10.0.0.1", 80),
        named("virtualOutbound", "0.0.0.0", 15001),
        named("virtualInbound", "0.0.0.0", 15006),
    ];
    let proxy = Proxy { listeners, ..Proxy::default() };
    let cluster = |call: &Call| proxy.call(call).cluster;
    assert_eq!(cluster(&tcp("10.0.0.1", 80)), "own");
    assert_eq!(cluster(&tcp("10.0.0.2", 80)), "any");
    assert_eq!(cluster(&tcp("10.0.0.1", 81)), "virtualOutbound");
    assert_eq!(cluster(&Call { inbound: true, ..tcp("10.0.0.1", 80) }), "virtualInbound");
    let error = Proxy::default().call(&tcp("10.0.0.1", 80)).error;
    assert_eq!(error, Some("no listener matched"));
}

fn of_chains(chains: &[Value], call: &Call) -> Outcome {
    let inspector = json!({"name": "envoy.filters.listener.tls_inspector", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}});
    let listener = listener(
        &json!({"name": "l", "address": at("0.0.0.0", 80), "listenerFilters": [inspector], "filterChains": chains}),
    );
    Proxy { listeners: vec![listener], ..Proxy::default() }.call(call)
}

#[test]
fn the_most_specific_chain_takes_the_call() {
    let range = |prefix: &str, length: u32| json!({"prefixRanges": [{"addressPrefix": prefix, "prefixLen": length}]});
    let chains =
        [chain("wide", &range("10.0.0.0", 8)), chain("narrow", &range("10.1.0.0", 16)), chain("other", &json!({}))];
    let named = |call: &Call| of_chains(&chains, call).filter_chain;
    assert_eq!(named(&tcp("10.1.2.3", 80)), "narrow");
    assert_eq!(named(&tcp("10.2.2.3", 80)), "wide");
    assert_eq!(named(&tcp("192.168.0.1", 80)), "other");
    let twice = [chain("a", &json!({})), chain("b", &json!({}))];
    assert_eq!(of_chains(&twice, &tcp("10.0.0.1", 80)).error, Some("multiple filter chains matched"));
    assert_eq!(
        of_chains(&[chain("a", &range("10.0.0.0", 8))], &tcp("11.0.0.1", 80)).error,
        Some("no filter chains matched")
    );
}

#[test]
fn server_names_count_exactly_before_by_suffix_and_only_in_tls() {
    let chains = [
        chain("exact", &json!({"serverNames": ["a.test"], "transportProtocol": "tls"})),
        chain("suffix", &json!({"serverNames": ["*.test"], "transportProtocol": "tls"})),
        chain("plain", &json!({"transportProtocol": "raw_buffer"})),
    ];
    let call = |sni: &str, tls| Call { sni: sni.into(), tls, ..tcp("10.0.0.1", 80) };
    let named = |call: &Call| of_chains(&chains, call).filter_chain;
    assert_eq!(named(&call("a.test", CallTls::Tls)), "exact");
    assert_eq!(named(&call("b.test", CallTls::Tls)), "suffix");
    assert_eq!(named(&call("", CallTls::Plaintext)), "plain");
    assert_eq!(of_chains(&chains, &call("b.example", CallTls::Tls)).error, Some("no filter chains matched"));
}

#[test]
fn a_chain_of_the_mesh_wants_mutual_tls_and_nothing_else() {
    let socket = json!({"name": "envoy.transport_sockets.tls", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "requireClientCertificate": true,
        "commonTlsContext": {"tlsCertificateSdsSecretConfigs": [{"name": "default"}]}}});
    let mut of_mesh = chain("mesh", &json!({}));
    of_mesh["transportSocket"] = socket;
    let error = |tls| of_chains(std::slice::from_ref(&of_mesh), &Call { tls, ..tcp("10.0.0.1", 80) }).error;
    assert_eq!(error(CallTls::Mtls), None);
    assert_eq!(error(CallTls::Tls), Some("invalid mTLS"));
    assert_eq!(error(CallTls::Plaintext), Some("invalid TLS"));
    let alpn = Call { alpn: "h2".into(), ..tcp("10.0.0.1", 80) };
    assert_eq!(
        of_chains(&[chain("a", &json!({}))], &alpn).error,
        Some("invalid call, ALPN can only be sent in TLS requests")
    );
}

fn routed(config: &Value, call: &Call) -> Outcome {
    let manager = json!([{"name": "http", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "statPrefix": "h", "rds": {"routeConfigName": "80", "configSource": {"ads": {}}}}}]);
    let listener = listener(
        &json!({"name": "l", "address": at("0.0.0.0", 80), "filterChains": [{"name": "c", "filters": manager}]}),
    );
    let routes = BTreeMap::from([("80".to_string(), from_json(config, true).unwrap())]);
    Proxy { listeners: vec![listener], routes }.call(call)
}

fn http(host: &str, path: &str) -> Call {
    Call { address: "10.0.0.1".into(), port: 80, host: host.into(), path: path.into(), ..Call::default() }
}

#[test]
fn domains_match_exactly_then_by_the_longest_suffix_then_by_prefix() {
    let host = |name: &str, domain: &str| {
        json!({"name": name, "domains": [domain],
            "routes": [{"name": name, "match": {"prefix": "/"}, "route": {"cluster": name}}]})
    };
    let mut config = json!({"name": "80", "ignorePortInHostMatching": true, "virtualHosts": [
        host("prefix", "a.*"), host("short", "*.test"), host("long", "*.b.test"), host("exact", "a.b.test")]});
    assert_eq!(routed(&config, &http("a.example", "/")).cluster, "prefix");
    assert_eq!(routed(&config, &http("other.example", "/")).error, Some("no virtual host matched"));
    // As in Istio's simulation, `*` counts among the suffixes and so hides prefixes.
    config["virtualHosts"].as_array_mut().unwrap().push(host("all", "*"));
    let cluster = |name: &str| routed(&config, &http(name, "/")).cluster;
    for (name, wanted) in [
        ("a.b.test", "exact"),
        ("a.b.test:80", "exact"),
        ("c.b.test", "long"),
        ("a.test", "short"),
        ("a.example", "all"),
        ("other.example", "all"),
        ("[::1]:80", "all"),
    ] {
        assert_eq!(cluster(name), wanted, "{name}");
    }
    let none = json!({"name": "80", "virtualHosts": [host("exact", "a.b.test")]});
    assert_eq!(routed(&none, &http("b.test", "/")).error, Some("no virtual host matched"));
    assert_eq!(routed(&none, &http("a.b.test:80", "/")).error, Some("no virtual host matched"), "the port counts");
}

#[test]
fn the_first_route_whose_path_matches_is_taken() {
    let route = |name: &str, matching: &Value| json!({"name": name, "match": matching, "route": {"cluster": name}});
    let mut host = json!({"name": "h", "domains": ["*"], "routes": [
        route("exact", &json!({"path": "/a"})),
        route("regex", &json!({"safeRegex": {"regex": "^/[0-9]+$"}})),
        route("prefix", &json!({"prefix": "/a"})),
        {"name": "answer", "match": {"prefix": "/z"}, "directResponse": {"status": 404}}]});
    let config = |host: &Value| json!({"name": "80", "virtualHosts": [host]});
    let named = |path: &str| routed(&config(&host), &http("x", path)).route;
    assert_eq!((named("/a"), named("/a/b"), named("/42")), ("exact".into(), "prefix".into(), "regex".into()));
    let answer = routed(&config(&host), &http("x", "/z"));
    assert_eq!((answer.error, answer.route.as_str(), answer.cluster.as_str()), (None, "answer", ""));
    assert_eq!(routed(&config(&host), &http("x", "/b")).error, Some("no route matched"));
    host["requireTls"] = "ALL".into();
    assert_eq!(routed(&config(&host), &http("x", "/a")).error, Some("tls required, sending 301"));
    let tcp = Call { protocol: CallProtocol::Tcp, ..http("x", "/a") };
    assert_eq!(routed(&config(&host), &tcp).error, Some("protocol error"));
}
