//! Patches that do not fit are skipped alone, and nothing else changes.

use std::sync::Arc;

use prost::Message;
use serde_json::{Value, json};

use super::*;
use crate::{
    model::{Config, ConfigSnapshot, Locality, Node, Origin, PushInputs, decode},
    proto::{
        envoy::config::{
            cluster::v3::Cluster,
            listener::v3::Listener,
            route::v3::{RouteConfiguration, VirtualHost},
        },
        from_json, to_json,
    },
    push::PushContext,
};

fn filter(patches: &Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "f", "namespace": "shop"}, "spec": {"configPatches": patches},
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an EnvoyFilter"))
}

fn set(patches: &Value) -> Arc<PatchSet> {
    let configs = ConfigSnapshot::of([filter(patches)]);
    let context = PushContext::build(PushInputs { configs, ..PushInputs::default() });
    let id = "sidecar~10.0.0.1~p.shop~shop.svc.cluster.local";
    context.view_of(&Node::from_parts(id, json!({}), Locality::default()).expect("a node")).patches
}

fn merge(target: &str, value: Value) -> Value {
    json!({"applyTo": target, "patch": {"operation": "MERGE", "value": value}})
}

fn cluster(name: &str) -> Cluster {
    from_json(&json!({"name": name, "connectTimeout": "10s"}), true).expect("a cluster")
}

fn listener() -> Listener {
    let proxy = json!({"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "a", "cluster": "c"});
    let value = json!({
        "name": "l", "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 80}},
        "filterChains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typedConfig": proxy}]}],
    });
    from_json(&value, true).expect("a listener")
}

#[test]
fn the_patches_that_envoy_would_refuse_are_found_among_many() {
    let mut patches: Vec<Value> =
        (0..20).map(|i| merge("CLUSTER", json!({"alt_stat_name": format!("n{i}")}))).collect();
    patches[3] = merge("CLUSTER", json!({"connect_timeout": "0s"}));
    patches[11] = merge("CLUSTER", json!({"max_requests_per_connection": 5, "dns_refresh_rate": "0s"}));
    patches[19] = merge("CLUSTER", json!({"connect_timeout": "3s"}));
    let set = set(&json!(patches));
    let mut patching = Patching::new(&set, PatchContext::SidecarOutbound);
    let patched = patching.cluster(cluster("c"), &[]).expect("it is not removed");
    assert_eq!(patched.alt_stat_name, "n18");
    assert_eq!(patched.connect_timeout.map(|t| t.seconds), Some(3));
    let told: Vec<String> = patching.into_refusals().into_iter().map(|refusal| refusal.message).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter().any(|m| m.starts_with("configPatches[3] (MERGE of CLUSTER) is skipped for cluster c: ")),
        "{told:?}"
    );
    assert!(told.iter().any(|m| m.starts_with("configPatches[11] ")), "{told:?}");
}

#[test]
fn where_too_many_do_not_fit_none_is_applied() {
    let patches: Vec<Value> = (0..30).map(|_| merge("CLUSTER", json!({"connect_timeout": "0s"}))).collect();
    let set = set(&json!(patches));
    let mut patching = Patching::new(&set, PatchContext::SidecarOutbound);
    assert_eq!(patching.cluster(cluster("c"), &[]), Some(cluster("c")));
    assert_eq!(patching.into_refusals().len(), 30);
}

#[test]
fn additions_with_a_name_that_is_taken_are_told() {
    let add = |name: &str| json!({"applyTo": "CLUSTER", "patch": {"operation": "ADD", "value": {"name": name, "connect_timeout": "1s"}}});
    let set = set(&json!([add("a"), add("b"), add("b")]));
    let mut patching = Patching::new(&set, PatchContext::SidecarOutbound);
    let added = patching.added_clusters(["a"].into_iter());
    assert_eq!(added.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(patching.into_refusals().len(), 2);
    let mut inbound = Patching::new(&set, PatchContext::SidecarInbound);
    assert!(inbound.added_clusters(std::iter::empty()).is_empty(), "a proxy gets it once");
}

#[test]
fn a_listener_keeps_its_other_patches_and_one_without_patches_its_bytes() {
    let elsewhere = json!({"listener": {"name": "other"}});
    let chain = json!({"filters": [{"name": "envoy.filters.network.echo", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}]});
    let set = set(&json!([
        {"applyTo": "LISTENER", "match": elsewhere, "patch": {"operation": "REMOVE"}},
        {"applyTo": "FILTER_CHAIN", "match": elsewhere, "patch": {"operation": "REMOVE"}},
        {"applyTo": "HTTP_FILTER", "match": elsewhere, "patch": {"operation": "ADD", "value": {"name": "x"}}},
    ]));
    let mut patching = Patching::new(&set, PatchContext::SidecarOutbound);
    assert_eq!(patching.listeners(vec![listener()], true), [listener()]);
    let set = self::set(&json!([
        {"applyTo": "FILTER_CHAIN", "patch": {"operation": "ADD", "value": chain}},
        {"applyTo": "LISTENER", "patch": {"operation": "MERGE", "value": {"per_connection_buffer_limit_bytes": 7}}},
        {"applyTo": "NETWORK_FILTER", "match": {"listener": {"filterChain": {"filter": {"name": "envoy.filters.network.tcp_proxy"}}}},
            "patch": {"operation": "INSERT_AFTER", "value": chain["filters"][0]}},
    ]));
    let mut patching = Patching::new(&set, PatchContext::SidecarOutbound);
    let [patched] = &patching.listeners(vec![listener()], true)[..] else { panic!("one listener") };
    assert_eq!(patched.per_connection_buffer_limit_bytes, Some(7));
    assert_eq!(patched.filter_chains, listener().filter_chains);
    let told: Vec<String> = patching.into_refusals().into_iter().map(|refusal| refusal.message).collect();
    assert!(told.iter().any(|m| m.contains("configPatches[0]") && m.contains("same connections")), "{told:?}");
    assert!(told.iter().any(|m| m.contains("configPatches[2]") && m.contains("wants last")), "{told:?}");
}

#[test]
fn virtual_hosts_stay_unique() {
    let host = |name: &str, domain: &str| VirtualHost {
        name: name.into(),
        domains: vec![domain.into()],
        ..Default::default()
    };
    let table = RouteConfiguration {
        name: "80".into(),
        virtual_hosts: vec![host("a", "a.test"), host("b", "b.test")],
        ..Default::default()
    };
    let add = |name: &str, domain: &str| json!({"applyTo": "VIRTUAL_HOST", "patch": {"operation": "ADD", "value": {"name": name, "domains": [domain]}}});
    let set = set(&json!([
        add("c", "a.test"),
        add("d", "d.test"),
        merge("VIRTUAL_HOST", json!({"domains": ["e.test"]})),
        merge("ROUTE_CONFIGURATION", json!({"name": "other"})),
        merge("ROUTE_CONFIGURATION", json!({"request_headers_to_remove": ["x"]})),
    ]));
    let mut patching = Patching::new(&set, PatchContext::SidecarOutbound);
    let patched = patching.route_configuration(table);
    let shown = to_json(&patched).expect("JSON");
    let names: Vec<&str> = patched.virtual_hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!((patched.name.as_str(), names), ("80", vec!["a", "b", "d"]), "{shown}");
    assert_eq!(patched.request_headers_to_remove, ["x"]);
    let told: Vec<String> = patching.into_refusals().into_iter().map(|refusal| refusal.message).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(patched.encoded_len() > 0);
}
