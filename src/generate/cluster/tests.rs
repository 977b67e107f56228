//! Clusters of small meshes: those of Istio's proxy and those of a stock Envoy, and that keys follow their inputs.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{ConfigSnapshot, Features, Locality, Mesh, Node, Origin, decode},
    proto::to_json,
    push::context::PushInputs,
    registry::ServiceEntryStore,
};

fn context(mesh: Value, objects: &[Value]) -> PushContext {
    let mesh = Arc::new(Mesh::from_values(&mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap());
    let features = Arc::new(Features::default());
    let configs = ConfigSnapshot::of(
        objects.iter().map(|object| Arc::new(decode::from_value(object, Origin::default()).expect("an object"))),
    );
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() })
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "ns"}, "spec": spec})
}

fn entry(protocol: &str) -> Value {
    object(
        "ServiceEntry",
        "a",
        json!({
            "hosts": ["a.test"], "resolution": "STATIC", "location": "MESH_INTERNAL",
            "ports": [{"number": 80, "name": "p", "protocol": protocol}],
            "endpoints": [{"address": "1.1.1.1", "labels": {"security.istio.io/tlsMode": "istio"}, "serviceAccount": "sa"}]
        }),
    )
}

fn rule(spec: Value) -> Value {
    let mut spec = spec;
    spec["host"] = "a.test".into();
    object("DestinationRule", "r", spec)
}

fn view(context: &PushContext, metadata: Value) -> ProxyView {
    let node = Node::from_parts("sidecar~9.9.9.9~p.ns~ns.svc.cluster.local", metadata, Locality::default()).unwrap();
    context.view_of(&node)
}

fn istio(context: &PushContext) -> ProxyView {
    view(context, json!({"NAMESPACE": "ns", "ISTIO_VERSION": "1.32.0"}))
}

fn stock_with_files(context: &PushContext) -> ProxyView {
    let files = json!({"NAMESPACE": "ns", "TLS_CLIENT_CERT_CHAIN": "/c/cert.pem", "TLS_CLIENT_KEY": "/c/key.pem",
        "TLS_CLIENT_ROOT_CERT": "/c/root.pem"});
    view(context, files)
}

fn stock(context: &PushContext) -> ProxyView {
    view(context, json!({"NAMESPACE": "ns"}))
}

fn named(context: &PushContext, view: &ProxyView, name: &str) -> Value {
    let cluster = all(context, view).into_iter().find(|c| c.name == name).expect("the cluster");
    to_json(&cluster).unwrap()
}

const A: &str = "outbound|80||a.test";

#[test]
fn istios_proxy_gets_mutual_tls_where_the_endpoint_takes_it() {
    let context = context(json!({}), &[entry("TCP")]);
    let cluster = named(&context, &istio(&context), A);
    let tls = &cluster["transportSocketMatches"][0]["transportSocket"]["typedConfig"];
    assert_eq!(tls["sni"], "outbound_.80_._.a.test");
    assert_eq!(tls["commonTlsContext"]["alpnProtocols"], json!(["istio-peer-exchange", "istio"]));
    let validation = &tls["commonTlsContext"]["combinedValidationContext"];
    assert_eq!(
        validation["defaultValidationContext"]["matchSubjectAltNames"],
        json!([{"exact": "spiffe://cluster.local/ns/ns/sa/sa"}])
    );
    assert_eq!(cluster["transportSocketMatches"][1]["name"], "tlsMode-disabled");
}

#[test]
fn a_stock_envoy_is_sent_nothing_that_it_does_not_know() {
    let mutual = rule(json!({"trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}}}));
    for objects in [vec![entry("HTTP")], vec![entry("HTTP"), mutual]] {
        let context = context(json!({}), &objects);
        for view in [stock(&context), stock_with_files(&context)] {
            let text =
                serde_json::to_string(&all(&context, &view).iter().map(|c| to_json(c).unwrap()).collect::<Vec<_>>());
            let text = text.unwrap();
            for unknown in ["sds-grpc", "istio.metadata_exchange", "istio-peer-exchange"] {
                assert!(!text.contains(unknown), "{unknown} in {text}");
            }
        }
    }
}

#[test]
fn a_stock_envoy_uses_mutual_tls_with_its_files_and_plaintext_without() {
    let context = context(json!({}), &[entry("HTTP")]);
    let plain = named(&context, &stock(&context), A);
    assert!(plain["transportSocket"].is_null() && plain["transportSocketMatches"].is_null());
    let with_files = named(&context, &stock_with_files(&context), A);
    let common = &with_files["transportSocketMatches"][0]["transportSocket"]["typedConfig"]["commonTlsContext"];
    assert_eq!(common["tlsCertificates"][0]["certificateChain"]["filename"], "/c/cert.pem");
    assert_eq!(common["validationContext"]["trustedCa"]["filename"], "/c/root.pem");
    assert_eq!(common["alpnProtocols"], json!(["istio-http/1.1", "istio", "http/1.1"]));
}

#[test]
fn demanded_mutual_tls_never_becomes_plaintext() {
    let mutual = rule(json!({"trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}}}));
    let context = context(json!({}), &[entry("HTTP2"), mutual]);
    let cluster = named(&context, &stock(&context), A);
    let common = &cluster["transportSocket"]["typedConfig"]["commonTlsContext"];
    assert_eq!(common["tlsCertificateSdsSecretConfigs"][0]["sdsConfig"]["ads"], json!({}));
    assert_eq!(common["alpnProtocols"], json!(["istio-h2", "istio", "h2"]));
}

#[test]
fn certificates_of_servers_are_always_checked() {
    let simple = rule(json!({"trafficPolicy": {"tls": {"mode": "SIMPLE"}}}));
    let context = context(json!({}), &[entry("HTTPS"), simple]);
    let of_system = named(&context, &stock(&context), A);
    let common = &of_system["transportSocket"]["typedConfig"]["commonTlsContext"];
    assert_eq!(common["validationContext"]["trustedCa"]["filename"], "/etc/ssl/certs/ca-certificates.crt");
    let of_agent = named(&context, &istio(&context), A);
    let common = &of_agent["transportSocket"]["typedConfig"]["commonTlsContext"];
    assert_eq!(common["combinedValidationContext"]["validationContextSdsSecretConfig"]["name"], "file-root:system");
}

#[test]
fn subsets_and_their_policy() {
    let spec = json!({
        "trafficPolicy": {"connectionPool": {"tcp": {"maxConnections": 1}}, "loadBalancer": {"simple": "RANDOM"}},
        "subsets": [{"name": "v1"}, {"name": "v2", "trafficPolicy": {"loadBalancer": {"simple": "PASSTHROUGH"}}}]
    });
    let context = context(json!({}), &[entry("HTTP"), rule(spec)]);
    let view = istio(&context);
    let v1 = named(&context, &view, "outbound|80|v1|a.test");
    assert_eq!((&v1["lbPolicy"], &v1["type"]), (&json!("RANDOM"), &json!("EDS")));
    let v2 = named(&context, &view, "outbound|80|v2|a.test");
    assert_eq!((&v2["lbPolicy"], &v2["type"]), (&json!("CLUSTER_PROVIDED"), &json!("ORIGINAL_DST")));
    assert_eq!(v2["circuitBreakers"]["thresholds"][0]["maxConnections"], 1);
    assert!(v2["edsClusterConfig"].is_null());
}

#[test]
fn raced_names_are_one_host_of_both_families() {
    let mut raced = object(
        "ServiceEntry",
        "a",
        json!({
        "hosts": ["a.test"], "resolution": "DNS", "ports": [{"number": 80, "name": "p", "protocol": "TCP"}]}),
    );
    let plain = context(json!({}), &[raced.clone()]);
    assert_eq!(named(&plain, &istio(&plain), A)["type"], "STRICT_DNS");
    raced["metadata"]["annotations"] = json!({"istio.io/connect-strategy": "RACE_FIRST_TCP_CONNECT"});
    let context = context(json!({}), &[raced]);
    let cluster = named(&context, &istio(&context), A);
    assert_eq!(cluster["type"], "LOGICAL_DNS");
    assert_eq!(cluster["dnsLookupFamily"], "ALL");
}

#[test]
fn keys_follow_the_inputs_of_a_cluster() {
    let base = context(json!({}), &[entry("HTTP")]);
    let key = |context: &PushContext, view: ProxyView| {
        OutboundPlan::of(context, &view).inputs().map(|i| i.key()).next().expect("a cluster")
    };
    let own = key(&base, istio(&base));
    let again = context(json!({}), &[entry("HTTP")]);
    assert_eq!(own, key(&again, istio(&again)), "equal inputs, equal keys");
    let mut keys = BTreeSet::from([own, key(&base, stock(&base)), key(&base, stock_with_files(&base))]);
    for changed in [
        context(json!({}), &[entry("HTTP2")]),
        context(json!({"connectTimeout": "1s"}), &[entry("HTTP")]),
        context(json!({}), &[entry("HTTP"), rule(json!({"trafficPolicy": {"loadBalancer": {"simple": "RANDOM"}}}))]),
    ] {
        keys.insert(key(&changed, istio(&changed)));
    }
    assert_eq!(keys.len(), 6, "each difference shows");
    let labelled =
        view(&base, json!({"NAMESPACE": "ns", "ISTIO_VERSION": "1.32.0", "LABELS": {"pod-template-hash": "x"}}));
    assert_eq!(own, key(&base, labelled), "labels without a reader do not count");
}
