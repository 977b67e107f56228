//! Tracing: spans as collectors receive them, of Zipkin, OpenTelemetry over gRPC and HTTP, SkyWalking and Datadog; sampling,
//! tags, the context that goes on.

use std::collections::BTreeMap;

use pilothouse::proto::opentelemetry::proto::common::v1::{KeyValue, any_value};
use prost::Message;
use serde_json::{Value, json};

use super::{Told, telemetry};
use crate::{http::Answer, process::wait_until};

const ZIPKIN: &str = "/api/v2/spans";
const OTLP: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

fn mesh() -> Value {
    let over_grpc = json!({"service": "grpc.example", "port": 4317});
    let mut otel = over_grpc.clone();
    otel["grpc"] = json!({"timeout": "3s", "initialMetadata": [{"name": "x-key", "envName": "COLLECTOR_KEY"}]});
    otel["resourceDetectors"] = json!({"environment": {}});
    let mut named = over_grpc.clone();
    named["serviceAttributeEnrichment"] = json!("OTEL_SEMANTIC_CONVENTIONS");
    json!({"extensionProviders": [
        {"name": "zipkin", "zipkin": {"service": "collector.example", "port": 9411, "timeout": "4s",
            "headers": [{"name": "x-key", "value": "k"}], "traceContextOption": "USE_B3_WITH_W3C_PROPAGATION"}},
        {"name": "otel", "opentelemetry": otel},
        {"name": "named", "opentelemetry": named},
        {"name": "otel-http", "opentelemetry": {"service": "collector.example", "port": 9411,
            "http": {"path": "/v1/traces", "timeout": "4s", "headers": [{"name": "x-key", "value": "k"}]}}},
        {"name": "skywalking", "skywalking": over_grpc},
        {"name": "datadog", "datadog": {"service": "collector.example", "port": 9411}},
        {"name": "hidden", "zipkin": {"service": "grpc.example", "port": 9999}},
        {"name": "lost", "zipkin": {"service": "nowhere.example", "port": 9411}},
    ], "defaultConfig": {"tracing": {"sampling": 0}}})
}

fn traced(provider: &str, further: Value) -> String {
    let mut spec = json!({"providers": [{"name": provider}], "randomSamplingPercentage": 100});
    spec.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    telemetry("spans", &json!({"tracing": [spec]}))
}

/// The spans that Zipkin received of a path.
fn zipkin(told: &Told, path: &str) -> Vec<Value> {
    let bodies = told.collector.to(ZIPKIN);
    let spans = bodies.iter().flat_map(|r| serde_json::from_slice::<Vec<Value>>(&r.message).unwrap());
    spans.filter(|span| span["tags"]["http.url"].as_str().is_some_and(|url| url.ends_with(path))).collect()
}

#[test]
fn zipkin_receives_the_spans_of_both_sides() {
    zipkin_receives(false);
}

#[test]
fn zipkin_receives_the_spans_of_both_sides_of_the_oldest_envoy() {
    zipkin_receives(true);
}

fn zipkin_receives(oldest: bool) {
    let tags = json!({"lit": {"literal": {"value": "abc"}}, "hdr": {"header": {"name": "x-t", "defaultValue": "-"}},
        "env": {"environment": {"name": "NOT_SET", "defaultValue": "none"}}, "fmt": {"formatter": {"value": "%PROTOCOL%"}},
        "empty": {}});
    let told = Told::start(oldest, &mesh(), &traced("zipkin", json!({"customTags": tags})));
    let answer = told.ask("/a/b?c=d", &[("x-t", "given")]).unwrap();
    let trace = answer.seen("x-b3-traceid");
    assert_eq!(trace.len(), 32, "{answer:?}");
    let spans = wait_until("the spans are received", || {
        let spans = zipkin(&told, "/a/b?c=d");
        if spans.len() == 2 { Ok(spans) } else { Err(format!("{spans:?}")) }
    });
    for span in &spans {
        assert_eq!(span["traceId"], trace.as_str());
        let tag = |name: &str| span["tags"][name].as_str().unwrap_or_default().to_string();
        assert_eq!((tag("lit"), tag("hdr"), tag("env")), ("abc".into(), "given".into(), "none".into()));
        assert_eq!(tag("fmt"), if oldest { "" } else { "HTTP/1.1" });
        assert_eq!((tag("istio.canonical_service"), tag("istio.namespace")), ("web".into(), "shop".into()));
        assert_eq!((tag("http.status_code"), tag("empty")), ("200".into(), String::new()));
    }
    // The server's span is below the client's.
    let kinds: BTreeMap<&str, &Value> = spans.iter().map(|s| (s["kind"].as_str().unwrap_or_default(), s)).collect();
    let (client, server) = (kinds["CLIENT"], kinds["SERVER"]);
    assert_eq!(server["parentId"], client["id"], "{spans:?}");
    told.until_says("spans", "empty");
    if !oldest {
        let headers = &told.collector.to(ZIPKIN)[0].headers;
        assert_eq!(headers.get("x-key").map(|v| v.as_bytes()), Some(&b"k"[..]));
        assert_eq!(answer.seen("traceparent").split('-').nth(1), Some(trace.as_str()));
    }

    // Nothing of what is off is received: a later span of what is on shows it.
    told.change(&traced("zipkin", json!({"disableSpanReporting": true})), "envoy.tracers.zipkin", false);
    let off = told.repeat("off", |path, answer| answer.seen("x-b3-traceid").is_empty().then(|| path.to_string()));
    told.change(
        &traced("zipkin", json!({"randomSamplingPercentage": 0, "customTags": {"zero": {"literal": {"value": "z"}}}})),
        "zero",
        true,
    );
    let unsampled = told.repeat("unsampled", |path, a| (a.seen("x-b3-sampled") == "0").then(|| path.to_string()));
    let one_side = json!({"match": {"mode": "SERVER"}, "enableIstioTags": false, "customTags": {"side": {"literal": {"value": "server"}}}});
    told.change(&traced("zipkin", one_side), "side", true);
    told.repeat("server", |path, _| {
        let spans = zipkin(&told, path);
        let of_server = |s: &Value| {
            s["kind"] == "SERVER" && s["tags"]["side"] == "server" && s["tags"]["istio.namespace"].is_null()
        };
        (spans.len() == 1 && of_server(&spans[0])).then_some(())
    });
    assert!(zipkin(&told, &off).is_empty() && zipkin(&told, &unsampled).is_empty());
    told.envoy.assert_no_nacks();
}

/// OpenTelemetry's request, as far as it is read here.
#[derive(Clone, PartialEq, Message)]
struct ExportSpans {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |a: &KeyValue| match a.value.as_ref().and_then(|v| v.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|a| (a.key.clone(), text(a))).collect()
}

/// Services with the attributes of their spans, of those that a path of the collector received.
fn received(told: &Told, path: &str) -> Vec<(String, Span, BTreeMap<String, String>)> {
    let mut all = Vec::new();
    for message in told.collector.to(path) {
        for of in ExportSpans::decode(message.message).unwrap().resource_spans {
            let resource = texts(&of.resource.unwrap_or_default().attributes);
            let service = resource.get("service.name").cloned().unwrap_or_default();
            for span in of.scope_spans.into_iter().flat_map(|s| s.spans) {
                let attributes = texts(&span.attributes);
                all.push((service.clone(), span, attributes));
            }
        }
    }
    all
}

/// The answer to a request, and both of its spans.
fn until_received(told: &Told, to: &str, name: &str) -> (Answer, Vec<(String, Span, BTreeMap<String, String>)>) {
    told.repeat(name, |path, answer| {
        let mut spans = received(told, to);
        spans.retain(|span| span.2.get("http.url").is_some_and(|url| url.ends_with(path)));
        (spans.len() == 2).then(|| (answer.clone(), spans))
    })
}

#[test]
fn open_telemetry_receives_spans_over_grpc_and_http() {
    let told =
        Told::start(false, &mesh(), &traced("otel", json!({"customTags": {"lit": {"literal": {"value": "abc"}}}})));
    let (answer, spans) = until_received(&told, OTLP, "over-grpc");
    let trace = answer.seen("traceparent").split('-').nth(1).unwrap().to_string();
    for (service, span, attributes) in &spans {
        assert_eq!(service, "web.shop", "the cluster of the node");
        let id: String = span.trace_id.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!((id.as_str(), attributes["lit"].as_str()), (trace.as_str(), "abc"));
    }
    let key = told.collector.to(OTLP)[0].headers.get("x-key").cloned();
    assert_eq!(key.as_ref().map(|v| v.as_bytes()), Some(&b"from the environment"[..]));
    // The name by OpenTelemetry's conventions.
    told.change(&traced("named", json!({"customTags": {"second": {"literal": {"value": "x"}}}})), "second", true);
    wait_until("spans have the name by the conventions", || {
        let (_, spans) = until_received(&told, OTLP, "named");
        let names: Vec<&str> = spans.iter().map(|span| span.0.as_str()).collect();
        if names == ["of-otel"; 2] { Ok(()) } else { Err(format!("{names:?}")) }
    });
    told.change(&traced("otel-http", json!({"disableContextPropagation": true})), "/v1/traces", true);
    let (answer, _) = until_received(&told, "/v1/traces", "over-http");
    assert_eq!(answer.seen("traceparent"), "", "the context stays here");
    told.envoy.assert_no_nacks();
}

#[test]
fn skywalking_and_datadog_receive_spans() {
    let told = Told::start(false, &mesh(), &traced("skywalking", json!({})));
    let until = |to: &str, name: &str| {
        told.repeat(name, |path, _| {
            let has = |message: &[u8]| message.windows(path.len()).any(|w| w == path.as_bytes());
            told.collector.to(to).iter().any(|received| has(&received.message)).then_some(())
        });
    };
    until("/skywalking.v3.TraceSegmentReportService/collect", "sky");
    told.change(&traced("datadog", json!({})), "envoy.tracers.datadog", true);
    until("/v0.4/traces", "dog");
    told.envoy.assert_no_nacks();
}

#[test]
fn a_tracer_that_cannot_be_used_leaves_traffic_alone_and_is_told() {
    let told = Told::start(false, &mesh(), &traced("zipkin", json!({})));
    for (provider, reason) in [("nobody", "none of this name"), ("lost", "nowhere.example")] {
        told.change(&traced(provider, json!({})), "envoy.tracers", false);
        told.until_says("spans", reason);
        assert_eq!(told.ask("/untraced", &[]).unwrap().status, 200);
        told.change(&traced("zipkin", json!({})), "envoy.tracers.zipkin", true);
    }
    // A port that the service has not: Envoy would refuse the listener.
    told.change(&traced("hidden", json!({})), "envoy.tracers", false);
    told.until_says("spans", "no cluster of grpc.example:9999");
    // Tags without end are cut, and told.
    let tags: serde_json::Map<String, Value> =
        (0..5000).map(|i| (format!("tag-{i:04}"), json!({"literal": {"value": "x".repeat(100)}}))).collect();
    told.change(&traced("zipkin", json!({"customTags": tags})), "tag-0200", true);
    assert!(!told.envoy.holds("tag-0300"));
    told.until_says("spans", "too many");
    assert_eq!(told.ask("/tagged", &[]).unwrap().status, 200);
    told.envoy.assert_no_nacks();
}
