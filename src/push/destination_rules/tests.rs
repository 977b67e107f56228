//! Tests of the DestinationRule index.

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{ConfigSnapshot, Features, Labels, Origin, decode},
    proto::{from_json, networking::TrafficPolicy},
};

fn rule(namespace: &str, name: &str, spec: Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("a DestinationRule"))
}

fn inputs(configs: Vec<Arc<Config>>) -> PushInputs {
    PushInputs { configs: ConfigSnapshot::of(configs), ..PushInputs::default() }
}

/// `names+names` of the rules found for a proxy of a namespace without labels.
fn found(inputs: &PushInputs, proxy: &str, host: &str, service_namespace: &str) -> String {
    let index = DestinationRuleIndex::build(inputs);
    let rules = index.candidates(inputs, proxy, host, service_namespace);
    let names =
        |r: &Arc<MergedDestinationRule>| r.from.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>().join("+");
    select(&rules, proxy, &Labels::new()).map(names).unwrap_or_default()
}

#[test]
fn levels_are_read_in_order_and_the_first_match_decides() {
    let all = inputs(vec![
        rule("client", "wide", json!({"host": "*.svc.cluster.local"})),
        rule("server", "exact", json!({"host": "a"})),
        rule("istio-system", "root", json!({"host": "*"})),
        rule("istio-system", "root-private", json!({"host": "a.server.svc.cluster.local", "exportTo": ["."]})),
    ]);
    let host = "a.server.svc.cluster.local";
    assert_eq!(found(&all, "client", host, "server"), "wide");
    assert_eq!(found(&all, "other", host, "server"), "exact");
    assert_eq!(found(&all, "other", "b.com", "server"), "root");
    assert_eq!(found(&all, "istio-system", host, "server"), "root-private");
    assert_eq!(found(&all, "other", "b.com", ""), "root");
}

#[test]
fn export_to_hides_rules_from_other_namespaces() {
    let all = inputs(vec![
        rule("server", "named", json!({"host": "a.com", "exportTo": ["client"]})),
        rule("server", "private", json!({"host": "b.com", "exportTo": ["."]})),
        rule("server", "none", json!({"host": "c.com", "exportTo": ["~"]})),
    ]);
    let of = |proxy: &str| ["a.com", "b.com", "c.com"].map(|host| found(&all, proxy, host, "server"));
    assert_eq!(of("client"), ["named", "", ""]);
    assert_eq!(of("other"), ["", "", ""]);
    assert_eq!(of("server"), ["", "private", ""]);
}

#[test]
fn rules_of_one_host_are_merged() {
    let subset = |name: &str| json!({"name": name, "labels": {"v": name}});
    let configs = vec![
        rule("x", "a", json!({"host": "h.com", "subsets": [subset("v1")]})),
        rule("x", "b", json!({"host": "h.com", "subsets": [subset("v1"), subset("v2")], "trafficPolicy": {"tls": {}}})),
        rule("x", "c", json!({"host": "h.com", "subsets": [subset("v3")], "exportTo": ["x"]})),
    ];
    let all = inputs(configs);
    let index = DestinationRuleIndex::build(&all);
    let rules = index.candidates(&all, "x", "h.com", "x");
    let names: Vec<Vec<&str>> = rules.iter().map(|r| r.rule.subsets.iter().map(|s| &*s.name).collect()).collect();
    assert_eq!(names, [vec!["v1", "v2"], vec!["v3"]]);
    assert!(rules[0].rule.traffic_policy.is_some());
    let features = Features { enable_enhanced_destinationrule_merge: false, ..Features::default() };
    let plain = PushInputs { features: Arc::new(features), ..all };
    assert_eq!(found(&plain, "x", "h.com", "x"), "a+b+c");
}

#[test]
fn a_workload_selector_counts_in_its_own_namespace_only() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let all = inputs(vec![
        rule("x", "all", json!({"host": "h.com"})),
        rule("x", "selected", json!({"host": "h.com", "workloadSelector": selector})),
    ]);
    let index = DestinationRuleIndex::build(&all);
    let labels = Labels::from([("app".to_string(), "a".to_string())]);
    let name = |proxy: &str, labels: &Labels| {
        let rules = index.candidates(&all, proxy, "h.com", "x");
        select(&rules, proxy, labels).map(|r| r.name.to_string())
    };
    assert_eq!(name("x", &labels).as_deref(), Some("selected"));
    assert_eq!(name("x", &Labels::new()).as_deref(), Some("all"));
    assert_eq!(name("y", &labels).as_deref(), Some("all"));
}

/// A rule as Gateway API's backend policies become one.
fn of_policy(name: &str, spec: Value) -> Arc<Config> {
    let mut config = Arc::unwrap_or_clone(rule("x", name, spec));
    config.meta.annotations.insert("internal.istio.io/parents".into(), "BackendTLSPolicy/x.tls".into());
    Arc::new(config)
}

/// The traffic policy of all rules for `h.com`.
fn merged(configs: Vec<Arc<Config>>) -> TrafficPolicy {
    let all = inputs(configs);
    let rules = DestinationRuleIndex::build(&all).candidates(&all, "x", "h.com", "x");
    rules[0].rule.traffic_policy.clone().expect("a policy")
}

#[test]
fn fields_of_a_user_win_over_those_of_a_backend_policy_whichever_is_first() {
    let lb = |simple: &str| json!({"simple": simple});
    let of_user = json!({"host": "h.com", "trafficPolicy": {
        "outlierDetection": {"consecutive5xxErrors": 1}, "loadBalancer": lb("RANDOM"), "retryBudget": {"percent": 1},
    }});
    let of_backend = json!({"host": "h.com", "trafficPolicy": {
        "loadBalancer": lb("ROUND_ROBIN"), "tls": {"mode": "SIMPLE"}, "retryBudget": {"percent": 2},
        "connectionPool": {"tcp": {"maxConnections": 7}}, "proxyProtocol": {}, "tunnel": {"targetHost": "t"},
    }});
    let want = policy(json!({
        "outlierDetection": {"consecutive5xxErrors": 1}, "loadBalancer": lb("RANDOM"), "retryBudget": {"percent": 1},
        "tls": {"mode": "SIMPLE"}, "connectionPool": {"tcp": {"maxConnections": 7}}, "proxyProtocol": {},
        "tunnel": {"targetHost": "t"},
    }));
    assert_eq!(merged(vec![rule("x", "a", of_user.clone()), of_policy("b", of_backend.clone())]), want);
    assert_eq!(merged(vec![of_policy("a", of_backend.clone()), rule("x", "b", of_user)]), want);
    let without = rule("x", "b", json!({"host": "h.com", "subsets": [{"name": "v1"}]}));
    assert_eq!(merged(vec![of_policy("a", of_backend.clone()), without]), policy(of_backend["trafficPolicy"].clone()));
}

#[test]
fn ports_of_a_user_and_of_a_backend_policy_are_merged_by_number() {
    let of_port = |number: u32, settings: Value| {
        let mut port = settings;
        port["port"] = json!({"number": number});
        port
    };
    let tls = |sni: &str| json!({"mode": "SIMPLE", "sni": sni});
    let spec = |ports: Value| json!({"host": "h.com", "trafficPolicy": {"portLevelSettings": ports}});
    let of_user = spec(json!([
        of_port(80, json!({"outlierDetection": {"consecutive5xxErrors": 1}})),
        of_port(90, json!({"tls": tls("user")})),
    ]));
    let of_backend = spec(json!([
        of_port(70, json!({"tls": tls("backend")})),
        of_port(80, json!({"tls": tls("backend")})),
        of_port(90, json!({"tls": tls("backend"), "loadBalancer": {"simple": "RANDOM"}})),
    ]));
    let want = policy(json!({"portLevelSettings": [
        of_port(80, json!({"outlierDetection": {"consecutive5xxErrors": 1}, "tls": tls("backend")})),
        of_port(90, json!({"tls": tls("user"), "loadBalancer": {"simple": "RANDOM"}})),
        of_port(70, json!({"tls": tls("backend")})),
    ]}));
    assert_eq!(merged(vec![rule("x", "a", of_user.clone()), of_policy("b", of_backend.clone())]), want);
    assert_eq!(merged(vec![of_policy("a", of_backend), rule("x", "b", of_user)]), want);
}

#[test]
fn two_rules_of_one_origin_keep_the_first_one_s_policy() {
    let spec = |sni: &str| json!({"host": "h.com", "trafficPolicy": {"tls": {"mode": "SIMPLE", "sni": sni}}});
    let with_lb = json!({"host": "h.com", "trafficPolicy": {"loadBalancer": {"simple": "RANDOM"}}});
    let want = policy(spec("one")["trafficPolicy"].clone());
    assert_eq!(merged(vec![rule("x", "a", spec("one")), rule("x", "b", with_lb.clone())]), want);
    assert_eq!(merged(vec![of_policy("a", spec("one")), of_policy("b", with_lb)]), want);
}

fn policy(value: Value) -> TrafficPolicy {
    from_json(&value, true).expect("a traffic policy")
}

#[test]
fn port_level_replaces_and_a_subset_overrides_field_by_field() {
    let lb = |simple: &str| json!({"simple": simple});
    let port = |number: u32, lb: &str| json!({"port": {"number": number}, "loadBalancer": {"simple": lb}});
    let top = policy(json!({
        "loadBalancer": lb("RANDOM"), "tls": {"mode": "SIMPLE"}, "portLevelSettings": [port(80, "LEAST_REQUEST")],
    }));
    let subset = policy(json!({"loadBalancer": lb("ROUND_ROBIN"), "portLevelSettings": [port(90, "PASSTHROUGH")]}));
    let merged = |port| merge_subset_policy(Some(&top), Some(&subset), Some(port)).expect("a policy");
    assert_eq!(merged(70), policy(json!({"loadBalancer": lb("ROUND_ROBIN"), "tls": {"mode": "SIMPLE"}})));
    assert_eq!(merged(80), policy(json!({"loadBalancer": lb("ROUND_ROBIN")})));
    assert_eq!(merged(90), policy(json!({"loadBalancer": lb("PASSTHROUGH")})));
    let only_top = merge_subset_policy(Some(&top), None, Some(80)).expect("a policy");
    assert_eq!(only_top, policy(json!({"loadBalancer": lb("LEAST_REQUEST")})));
}
