//! Patched views: what no patch is for stays the same bytes, equal patches are made once, and a table that is put together from
//! encoded virtual hosts is the table that is patched as a whole.

use std::sync::Arc;

use prost::Message;
use serde_json::{Value, json};

use super::*;
use crate::{
    discovery::generator::{Audience, Claim, Generator},
    model::{Config, ConfigSnapshot, Locality, Node, Origin, PushInputs, decode},
    proto::envoy::config::route::v3::RouteConfiguration,
    registry::ServiceEntryStore,
};

fn object(kind: &str, name: &str, namespace: &str, spec: Value) -> Arc<Config> {
    let version = if kind == "EnvoyFilter" { "v1alpha3" } else { "v1" };
    let document = json!({
        "apiVersion": format!("networking.istio.io/{version}"), "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

fn context(filters: &[Arc<Config>]) -> PushContext {
    let service = |name: &str, protocol: &str, port: u32| {
        let spec = json!({"hosts": [format!("{name}.test")], "resolution": "STATIC", "endpoints": [{"address": "10.0.0.1"}],
            "addresses": [format!("172.16.0.{port}")],
            "ports": [{"number": port, "name": "main", "protocol": protocol}]});
        object("ServiceEntry", name, "shop", spec)
    };
    let mut all: Vec<Arc<Config>> = vec![service("a", "HTTP", 80), service("b", "HTTP", 80), service("c", "TCP", 90)];
    all.push(object(
        "VirtualService",
        "a",
        "shop",
        json!({"hosts": ["a.test"], "http": [{"name": "first", "match": [{"uri": {"prefix": "/x"}}], "redirect": {"uri": "/y"}},
            {"name": "second", "route": [{"destination": {"host": "a.test"}}]}]}),
    ));
    all.extend(filters.iter().cloned());
    let configs = ConfigSnapshot::of(all);
    let inputs = PushInputs { configs, ..PushInputs::default() };
    let registry = ServiceEntryStore::of(inputs.mesh.clone(), inputs.features.clone(), &inputs.configs).snapshot();
    PushContext::build(PushInputs { registry, ..inputs })
}

fn audience(generator: &MeshGenerator, context: &PushContext, namespace: &str) -> Audience {
    let id = format!("sidecar~10.1.0.1~p.{namespace}~{namespace}.svc.cluster.local");
    let node = Node::from_parts(&id, json!({}), Locality::default()).expect("a node");
    generator.audience(context, &node, Claim::default())
}

fn listed(generator: &MeshGenerator, context: &PushContext, part: Part, kind: ResourceType) -> Vec<Arc<Resource>> {
    generator.list(context, &audience(generator, context, "shop").slots[part.index()], kind)
}

fn routes(generator: &MeshGenerator, context: &PushContext) -> Arc<Resource> {
    let slot = &audience(generator, context, "shop").slots[Part::Routing.index()];
    generator.named(context, slot, ResourceType::Route, &["80".into()]).remove(0)
}

fn table(resource: &Resource) -> RouteConfiguration {
    let any = wkt::Any::decode(resource.any().clone()).expect("an Any");
    RouteConfiguration::decode(any.value.as_slice()).expect("a route configuration")
}

/// Patches that a filter may have, good ones and bad ones.
fn patches() -> Vec<Value> {
    let patch = |target: &str, operation: &str, condition: Value, value: Value| json!({"applyTo": target, "match": condition, "patch": {"operation": operation, "value": value}});
    let host = |condition: Value| json!({"routeConfiguration": {"vhost": condition}});
    let route = json!({"name": "own", "match": {"path": "/own"}, "direct_response": {"status": 204}});
    vec![
        patch("HTTP_ROUTE", "MERGE", host(json!({"route": {"action": "ROUTE"}})), json!({"route": {"timeout": "3s"}})),
        patch("HTTP_ROUTE", "REMOVE", host(json!({"name": "a.test:80", "route": {"name": "first"}})), json!({})),
        patch("HTTP_ROUTE", "INSERT_AFTER", host(json!({"route": {"name": "first"}})), route.clone()),
        patch("HTTP_ROUTE", "INSERT_FIRST", host(json!({"domainName": "b.test"})), route.clone()),
        patch("HTTP_ROUTE", "ADD", json!({"routeConfiguration": {"portNumber": 81}}), route),
        patch("VIRTUAL_HOST", "MERGE", host(json!({"name": "b.test:80"})), json!({"domains": ["more.test"]})),
        patch(
            "VIRTUAL_HOST",
            "REPLACE",
            host(json!({"name": "a.test:80"})),
            json!({"name": "b.test:81", "domains": ["z.test"]}),
        ),
        patch("VIRTUAL_HOST", "REMOVE", host(json!({"name": "b.test:80"})), json!({})),
        patch("VIRTUAL_HOST", "ADD", json!({}), json!({"name": "own", "domains": ["own.test"]})),
        patch("VIRTUAL_HOST", "MERGE", host(json!({"name": "own"})), json!({"domains": ["never.test"]})),
        patch("ROUTE_CONFIGURATION", "MERGE", json!({}), json!({"request_headers_to_remove": ["x-a"]})),
        patch("HTTP_ROUTE", "MERGE", json!({"context": "SIDECAR_INBOUND"}), json!({"name": "inbound"})),
        patch(
            "HTTP_ROUTE",
            "MERGE",
            host(json!({"name": "a.test:80"})),
            json!({"request_headers_to_remove": [":path"]}),
        ),
    ]
}

#[test]
fn a_table_of_encoded_hosts_is_the_table_that_is_patched_as_a_whole() {
    let plain = table(&routes(&MeshGenerator::default(), &context(&[])));
    let all = patches();
    let mut differ = 0;
    for chosen in 0_usize..400 {
        // A spread over the subsets, each of a few patches.
        let bits = chosen.wrapping_mul(0x9e37_79b9) >> 7;
        let some: Vec<Value> = all
            .iter()
            .enumerate()
            .filter(|(i, _)| bits >> i & 1 == 1 && (bits >> (i + 3)) & 1 == 0)
            .map(|(_, p)| p.clone())
            .collect();
        let context = context(&[object("EnvoyFilter", "f", "shop", json!({"configPatches": some}))]);
        let generator = MeshGenerator::default();
        let view = audience(&generator, &context, "shop").slots[Part::Routing.index()].view.clone();
        let whole = Patching::new(&view.patches, PatchContext::SidecarOutbound).route_configuration(plain.clone());
        let got = table(&routes(&generator, &context));
        assert_eq!(got, whole, "{some:#?}");
        assert_eq!(table(&routes(&generator, &context)), got, "remembered hosts are the same");
        differ += usize::from(got != plain);
    }
    assert!(differ > 100, "{differ} tables were patched");
}

#[test]
fn resources_that_no_patch_is_for_are_the_same_bytes() {
    let plain = context(&[]);
    let condition = json!({"context": "SIDECAR_OUTBOUND", "cluster": {"service": "a.test"}});
    let merge = json!({"applyTo": "CLUSTER", "match": condition, "patch": {"operation": "MERGE", "value": {"connect_timeout": "2.5s"}}});
    let patched = context(&[object("EnvoyFilter", "f", "shop", json!({"configPatches": [merge]}))]);
    let generator = MeshGenerator::default();
    let kinds = [
        (Part::Routing, ResourceType::Cluster),
        (Part::Own, ResourceType::Cluster),
        (Part::Outbound, ResourceType::Listener),
        (Part::Own, ResourceType::Listener),
    ];
    for (part, kind) in kinds {
        let (before, after) = (listed(&generator, &plain, part, kind), listed(&generator, &patched, part, kind));
        assert_eq!(before.len(), after.len());
        let differ = before.iter().zip(&after).filter(|(a, b)| a != b).map(|(a, _)| a.name().to_string());
        let expected = if (part, kind) == (Part::Routing, ResourceType::Cluster) { 1 } else { 0 };
        assert_eq!(differ.collect::<Vec<_>>(), vec!["outbound|80||a.test"; expected], "{part:?} {kind:?}");
    }
    assert_eq!(routes(&generator, &plain).any(), routes(&generator, &patched).any());
}

#[test]
fn equal_patches_are_made_once_for_all_views() {
    let patch = json!({"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"connect_timeout": "2.5s"}}});
    let context = context(&[object("EnvoyFilter", "f", "istio-system", json!({"configPatches": [patch]}))]);
    let generator = MeshGenerator::default();
    let of = |namespace: &str| {
        let slot = audience(&generator, &context, namespace).slots[Part::Routing.index()].clone();
        generator.list(&context, &slot, ResourceType::Cluster)
    };
    let (one, two) = (of("shop"), of("bank"));
    let same = one.iter().zip(&two).filter(|(a, b)| a.name().contains(".test") && Arc::ptr_eq(a, b)).count();
    assert_eq!(same, 3);
}

#[test]
fn ten_thousand_filters_on_nothing_change_nothing() {
    let filter = |i: usize| {
        let nobody = json!({"cluster": {"service": format!("nobody-{i}.test")}});
        let nowhere = json!({"listener": {"portNumber": 9, "name": format!("nowhere-{i}")}});
        let patches = json!([
            {"applyTo": "CLUSTER", "match": nobody, "patch": {"operation": "REMOVE"}},
            {"applyTo": "HTTP_FILTER", "match": nowhere, "patch": {"operation": "ADD", "value": {"name": "x"}}},
        ]);
        object("EnvoyFilter", &format!("f{i:05}"), "istio-system", json!({"configPatches": patches}))
    };
    let (plain, many) = (context(&[]), context(&(0..10_000).map(filter).collect::<Vec<_>>()));
    let generator = MeshGenerator::default();
    for (part, kind) in [(Part::Routing, ResourceType::Cluster), (Part::Outbound, ResourceType::Listener)] {
        assert_eq!(listed(&generator, &plain, part, kind), listed(&generator, &many, part, kind));
    }
    assert_eq!(routes(&generator, &plain).any(), routes(&generator, &many).any());
}

#[test]
fn the_gauges_of_a_filter_end_with_it() {
    let add = json!({"applyTo": "CLUSTER", "patch": {"operation": "ADD", "value": {"name": "outbound|80||a.test", "connect_timeout": "1s"}}});
    let merge = json!({"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"connect_timeout": "2.5s"}}});
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let says = |labels: &str, value: u8| {
        let line = format!("pilot_envoy_filter_status{{name=\"shop/f\",{labels}}} {value}");
        let page = recorder.handle().render();
        assert!(page.lines().any(|said| said == line), "{line} in {page}");
    };
    let (error, applied) = ("result=\"error\"", "patch=\"cluster\",result=\"applied\"");
    metrics::with_local_recorder(&recorder, || {
        let generator = MeshGenerator::default();
        let publish = |filters: &[Arc<Config>]| {
            let mut context = context(filters);
            let mut features = (*context.inputs.features).clone();
            features.enable_envoy_filter_metrics = true;
            context.inputs.features = Arc::new(features);
            let audience = audience(&generator, &context, "shop");
            generator.list(&context, &audience.slots[Part::Routing.index()], ResourceType::Cluster);
            let _ = generator.omissions();
            audience
        };
        let held = publish(&[object("EnvoyFilter", "f", "shop", json!({"configPatches": [add, merge.clone()]}))]);
        says(error, 1);
        says(applied, 1);
        drop(held);
        let held = publish(&[object("EnvoyFilter", "f", "shop", json!({"configPatches": [merge]}))]);
        says(error, 0);
        says(applied, 1);
        drop(held);
        publish(&[]);
        says(error, 0);
        says(applied, 0);
    });
}
