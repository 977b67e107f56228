//! Access logs: files in text and JSON, Envoy's access log service over HTTP and TCP, OpenTelemetry.

use std::collections::BTreeMap;

use pilothouse::proto::{
    envoy::service::accesslog::v3::{StreamAccessLogsMessage, stream_access_logs_message::LogEntries},
    opentelemetry::proto::common::v1::{AnyValue, KeyValue, any_value},
};
use prost::Message;
use serde_json::{Value, json};

use super::{Told, telemetry};
use crate::process::wait_until;

const ALS: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";
const OTLP: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

fn mesh() -> Value {
    json!({"accessLogFile": "FOLDER/mesh.log", "extensionProviders": [
        {"name": "json", "envoyFileAccessLog": {"path": "FOLDER/json.log", "logFormat": {"labels": {
            "method": "%REQ(:METHOD)%", "path": "%REQ_WITHOUT_QUERY(:PATH)%", "status": "%RESPONSE_CODE%",
            "authority": "%REQ(:AUTHORITY)%", "protocol": "%PROTOCOL%", "who": "%REQ(X-USER)%", "none": "%REQ(X-NONE)%",
            "cluster": "%UPSTREAM_CLUSTER_RAW%", "nested": {"flags": "%RESPONSE_FLAGS%"},
        }}, "omitEmptyValues": true}},
        {"name": "text", "envoyFileAccessLog": {"path": "FOLDER/text.log",
            "logFormat": {"text": "%REQ(:PATH)% %RESPONSE_CODE% %CEL(request.method)%"}}},
        {"name": "default", "envoyFileAccessLog": {"path": "FOLDER/default.log"}},
        {"name": "bad-format", "envoyFileAccessLog": {"path": "FOLDER/bad.log", "logFormat": {"text": "%NOPE%"}}},
        {"name": "lost", "envoyHttpAls": {"service": "nowhere.example", "port": 4317}},
        {"name": "als", "envoyHttpAls": {"service": "grpc.example", "port": 4317, "logName": "of-http",
            "additionalRequestHeadersToLog": ["x-user"], "additionalResponseHeadersToLog": ["content-type"]}},
        {"name": "als-tcp", "envoyTcpAls": {"service": "shop/grpc.example", "port": 4317, "logName": "of-tcp"}},
        {"name": "otel", "envoyOtelAls": {"service": "grpc.example", "port": 4317, "logName": "of-otel",
            "logFormat": {"text": "%REQ(:PATH)%", "labels": {"status": "%RESPONSE_CODE%", "user": "%REQ(X-USER)%"}}}},
    ]})
}

/// Waits until a file has so many lines, and gives them.
fn lines(told: &Told, file: &str, count: usize) -> Vec<String> {
    wait_until(&format!("{count} lines in {file}"), || {
        let lines = told.lines(file);
        if lines.len() >= count { Ok(lines) } else { Err(format!("{lines:?}")) }
    })
}

fn in_files(oldest: bool) {
    let telemetries = telemetry(
        "logs",
        &json!({"accessLogging": [
            {"providers": [{"name": "json"}], "filter": {"expression": "response.code >= 400"}},
            {"providers": [{"name": "text"}], "match": {"mode": "CLIENT"}},
            {"providers": [{"name": "default"}], "match": {"mode": "SERVER"}},
        ]}),
    );
    let told = Told::start(oldest, &mesh(), &telemetries);
    assert_eq!(told.ask("/status/200?x=1", &[]).unwrap().status, 200);
    assert_eq!(told.ask("/status/503?x=1", &[("x-user", "me \"and\" you")]).unwrap().status, 503);
    // In and out, each a line; of the failed request alone.
    let json: Vec<Value> = lines(&told, "json.log", 2).iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut clusters: Vec<String> = Vec::new();
    for mut line in json.clone() {
        clusters.push(line.as_object_mut().unwrap().shift_remove("cluster").unwrap().as_str().unwrap().to_string());
        let all = json!({"method": "GET", "path": "/status/503", "status": 503, "authority": "web.example",
            "protocol": "HTTP/1.1", "who": "me \"and\" you"});
        // An older Envoy writes an empty field as null.
        line.as_object_mut().unwrap().retain(|key, value| key != "nested" && !value.is_null());
        assert_eq!(line, all);
    }
    clusters.sort();
    assert_eq!(clusters.len(), 2, "{json:?}");
    assert!(clusters[0].starts_with("inbound|") && clusters[1].starts_with("outbound|"), "{clusters:?}");
    let text = lines(&told, "text.log", 3);
    assert_eq!(text.last().map(String::as_str), Some("/status/503?x=1 503 GET"));
    assert!(text.iter().filter(|l| **l == "/status/200?x=1 200 GET").count() == 1, "{text:?}");
    let default = lines(&told, "default.log", 3);
    let last = default.last().unwrap();
    assert!(last.contains("\"GET /status/503?x=1 HTTP/1.1\" 503 - via_upstream - \"-\" 0 "), "{last}");
    assert!(last.contains(" inbound|") && last.starts_with("[20"), "{last}");
    assert!(told.lines("mesh.log").is_empty(), "the mesh settings give way");

    // Off, and on again: the time between has no line.
    let off = telemetry("logs", &json!({"accessLogging": [{"providers": [{"name": "text"}], "disabled": true}]}));
    told.change(&off, "text.log", false);
    told.ask("/silent", &[]).unwrap();
    let on = telemetry("logs", &json!({"accessLogging": [{"providers": [{"name": "text"}]}]}));
    told.change(&on, "text.log", true);
    wait_until("both sides log", || {
        told.ask("/loud", &[]).unwrap();
        let text = told.lines("text.log");
        assert!(!text.iter().any(|l| l.contains("/silent")), "{text:?}");
        if text.iter().filter(|l| l.starts_with("/loud 200")).count() >= 2 { Ok(()) } else { Err(format!("{text:?}")) }
    });
    // Without a Telemetry the mesh settings count.
    told.change("", "mesh.log", true);
    wait_until("both sides log to the mesh's file", || {
        told.ask("/mesh", &[]).unwrap();
        let all = told.lines("mesh.log");
        let side = |of: &str| all.iter().any(|l| l.contains("GET /mesh HTTP/1.1\" 200") && l.contains(of));
        if side(" inbound|") && side(" outbound|") { Ok(()) } else { Err(format!("{all:?}")) }
    });
    told.envoy.assert_no_nacks();
}

#[test]
fn lines_of_files_are_as_their_formats_say() {
    in_files(false);
}

#[test]
fn lines_of_files_are_as_their_formats_say_in_the_oldest_envoy() {
    in_files(true);
}

/// OpenTelemetry's request, as far as it is read here.
#[derive(Clone, PartialEq, Message)]
struct ExportLogs {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|v| v.value) {
        Some(any_value::Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

/// Bodies of records, with their attributes.
fn records(told: &Told) -> BTreeMap<String, BTreeMap<String, String>> {
    let requests = told.collector.to(OTLP);
    let records = requests
        .iter()
        .flat_map(|r| ExportLogs::decode(r.message.clone()).unwrap().resource_logs)
        .flat_map(|r| r.scope_logs)
        .flat_map(|s| s.log_records);
    records.map(|r| (text(r.body), r.attributes.into_iter().map(|a| (a.key, text(a.value))).collect())).collect()
}

#[test]
fn services_of_logs_receive_them() {
    let telemetries = telemetry(
        "logs",
        &json!({"accessLogging": [
            {"providers": [{"name": "als"}, {"name": "otel"}], "match": {"mode": "CLIENT"}},
            {"providers": [{"name": "als-tcp"}], "match": {"mode": "SERVER"}},
        ]}),
    );
    let told = Told::start(false, &mesh(), &telemetries);
    told.ask("/status/404", &[("x-user", "me")]).unwrap();
    wait_until("the access log service receives them", || {
        let messages = told.collector.to(ALS);
        let messages: Vec<_> =
            messages.iter().map(|r| StreamAccessLogsMessage::decode(r.message.clone()).unwrap()).collect();
        let names: Vec<String> =
            messages.iter().filter_map(|m| m.identifier.as_ref()).map(|i| i.log_name.clone()).collect();
        let http = messages.iter().filter_map(|m| match m.log_entries.as_ref()? {
            LogEntries::HttpLogs(logs) => Some(&logs.log_entry),
            LogEntries::TcpLogs(_) => None,
        });
        let entry = http.flatten().find(|entry| entry.response.as_ref().is_some_and(|r| r.response_code == Some(404)));
        let tcp = messages.iter().any(|m| matches!(m.log_entries, Some(LogEntries::TcpLogs(_))));
        let Some(entry) = entry.filter(|_| tcp && names.len() >= 2) else { return Err(format!("{messages:?}")) };
        assert!(names.contains(&"of-http".to_string()) && names.contains(&"of-tcp".to_string()), "{names:?}");
        let (request, response) = (entry.request.clone().unwrap(), entry.response.clone().unwrap());
        assert_eq!((request.path.as_str(), request.authority.as_str()), ("/status/404", "web.example"));
        assert_eq!(request.request_headers.get("x-user").map(String::as_str), Some("me"));
        assert_eq!(response.response_headers.get("content-type").map(String::as_str), Some("application/json"));
        let node = messages.iter().filter_map(|m| m.identifier.as_ref()).filter_map(|i| i.node.as_ref()).next();
        assert_eq!(node.map(|n| n.id.as_str()), Some(super::NODE));
        Ok(())
    });
    wait_until("OpenTelemetry's logs are received", || {
        let all = records(&told);
        let Some(attributes) = all.get("/status/404") else { return Err(format!("{all:?}")) };
        let wanted = [("status", "404"), ("user", "me")].map(|(k, v)| (k.to_string(), v.to_string()));
        assert_eq!(*attributes, BTreeMap::from(wanted));
        Ok(())
    });
    told.envoy.assert_no_nacks();
}

#[test]
fn a_bad_log_leaves_the_others_alone_and_is_told() {
    let with =
        |logging: Value| telemetry("logs", &json!({"accessLogging": [{"providers": [{"name": "text"}]}, logging]}));
    let told = Told::start(false, &mesh(), &with(json!({})));
    let bad = [
        (json!({"providers": [{"name": "nobody"}]}), "none of this name"),
        (json!({"providers": [{"name": "lost"}]}), "nowhere.example"),
        (json!({"providers": [{"name": "bad-format"}]}), "NOPE is no command"),
        (json!({"providers": [{"name": "default"}], "filter": {"expression": "nope(1)"}}), "no function nope"),
        (
            json!({"providers": [{"name": "default"}], "filter": {"expression": "[1].all(x, x > 0)"}}),
            "no all() over a list",
        ),
        (
            json!({"providers": [{"name": "default"}], "filter": {"expression": "'a'.matches('(')"}}),
            "regular expression",
        ),
        // This one is refused by its syntax: the last good version stays.
        (json!({"providers": [{"name": "default"}], "filter": {"expression": "a &&"}}), "text.log"),
    ];
    for (number, (logging, reason)) in bad.into_iter().enumerate() {
        told.plane.write("telemetries.yaml", &with(logging));
        if reason != "text.log" {
            told.until_says("logs", reason);
        }
        let path = format!("/logged-{number}");
        told.ask(&path, &[]).unwrap();
        wait_until("the good log has the line", || {
            let all = told.lines("text.log");
            if all.iter().any(|l| l.starts_with(&path)) { Ok(()) } else { Err(format!("{all:?}")) }
        });
    }
    assert!(told.lines("default.log").is_empty() && told.lines("bad.log").is_empty());
    told.envoy.assert_no_nacks();
}
