//! Access logs from mesh settings: `accessLogFile` with `accessLogFormat` and `accessLogEncoding`, and the Envoy access log
//! service. Telemetry objects and the mesh's default logging providers, which come before these, have their place in
//! `of_telemetry`.

use serde_json::Value;

use super::builder::Builder;
use crate::{
    generate::proxy_config::ListenerClass,
    proto::{
        envoy::{
            config::{
                accesslog::v3::{
                    AccessLog, AccessLogFilter, ResponseFlagFilter, access_log::ConfigType,
                    access_log_filter::FilterSpecifier,
                },
                core::v3::{
                    ApiVersion, DataSource, GrpcService, JsonFormatOptions, SubstitutionFormatString,
                    TypedExtensionConfig, data_source, grpc_service, substitution_format_string::Format,
                },
            },
            extensions::{
                access_loggers::{
                    file::v3::{FileAccessLog, file_access_log::AccessLogFormat},
                    grpc::v3::{CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig},
                },
                formatter::req_without_query::v3::ReqWithoutQuery,
            },
        },
        json_to_struct,
        mesh::{MeshConfig, mesh_config::AccessLogEncoding},
        struct_to_json, to_any, wkt,
    },
};

/// The cluster of the access log service; it is in the proxy's bootstrap.
const SERVICE_CLUSTER: &str = "envoy_accesslog_service";

/// Filter state that is sent to the access log service.
const SERVICE_STATE: [&str; 6] = [
    "upstream_peer",
    "downstream_peer",
    "wasm.upstream_peer",
    "wasm.upstream_peer_id",
    "wasm.downstream_peer",
    "wasm.downstream_peer_id",
];

/// Istio's text format.
const TEXT_FORMAT: &str = concat!(
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% ",
    "%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" ",
    "%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" ",
    "\"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% ",
    "%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"
);

/// Istio's JSON format.
const JSON_FORMAT: [(&str, &str); 24] = [
    ("start_time", "%START_TIME%"),
    ("route_name", "%ROUTE_NAME%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("authority", "%REQ(:AUTHORITY)%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
];

/// The logs of an HTTP connection manager.
#[must_use]
pub fn http(builder: &Builder, class: ListenerClass) -> Vec<AccessLog> {
    of_telemetry(builder, class).unwrap_or_else(|| {
        let service = || {
            let config = HttpGrpcAccessLogConfig {
                common_config: Some(service_config("http_envoy_accesslog")),
                ..Default::default()
            };
            log("envoy.access_loggers.http_grpc", to_any(&config))
        };
        of_mesh(builder, None, service)
    })
}

/// The logs of a TCP proxy.
#[must_use]
pub fn tcp(builder: &Builder, class: ListenerClass) -> Vec<AccessLog> {
    of_telemetry(builder, class).unwrap_or_else(|| of_mesh(builder, None, || tcp_service("tcp_envoy_accesslog")))
}

/// The logs of a listener itself: only connections that no filter chain matches, which no filter could log.
#[must_use]
pub fn listener(builder: &Builder, class: ListenerClass) -> Vec<AccessLog> {
    if builder.mesh().disable_envoy_listener_log {
        return Vec::new();
    }
    let no_chain = AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
            flags: vec!["NR".to_string()],
        })),
    };
    of_telemetry(builder, class)
        .unwrap_or_else(|| of_mesh(builder, Some(&no_chain), || tcp_service("listener_envoy_accesslog")))
}

/// The access logs of Telemetry objects; `None` without any, so that the mesh settings count.
fn of_telemetry(_builder: &Builder, _class: ListenerClass) -> Option<Vec<AccessLog>> {
    None
}

fn of_mesh(builder: &Builder, filter: Option<&AccessLogFilter>, service: impl FnOnce() -> AccessLog) -> Vec<AccessLog> {
    let mesh = builder.mesh();
    let mut logs = Vec::new();
    if !mesh.access_log_file.is_empty() {
        logs.push(file(&mesh.access_log_file, mesh));
    }
    if mesh.enable_envoy_access_log_service {
        logs.push(service());
    }
    for log in &mut logs {
        log.filter = filter.cloned();
    }
    logs
}

fn log(name: &str, config: wkt::Any) -> AccessLog {
    AccessLog { name: name.to_string(), filter: None, config_type: Some(ConfigType::TypedConfig(config)) }
}

/// A file log with the mesh's format (Istio's `FileAccessLogFromMeshConfig`).
#[must_use]
pub fn file(path: &str, mesh: &MeshConfig) -> AccessLog {
    let (format, formatters) = match mesh.access_log_encoding() {
        AccessLogEncoding::Text => text_format(&mesh.access_log_format),
        AccessLogEncoding::Json => json_format(&mesh.access_log_format),
    };
    let json_format_options = matches!(format, Format::JsonFormat(_)).then(JsonFormatOptions::default);
    let format =
        SubstitutionFormatString { formatters, json_format_options, format: Some(format), ..Default::default() };
    let config = FileAccessLog { path: path.to_string(), access_log_format: Some(AccessLogFormat::LogFormat(format)) };
    log("envoy.access_loggers.file", to_any(&config))
}

fn text_format(given: &str) -> (Format, Vec<TypedExtensionConfig>) {
    let mut text = if given.is_empty() { TEXT_FORMAT.to_string() } else { given.to_string() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let formatters = formatters(&text);
    let source = DataSource { specifier: Some(data_source::Specifier::InlineString(text)), ..Default::default() };
    (Format::TextFormatSource(source), formatters)
}

fn json_format(given: &str) -> (Format, Vec<TypedExtensionConfig>) {
    let own = || serde_json::from_str::<Value>(given).ok().and_then(|v| json_to_struct(&v));
    let default = || wkt::Struct {
        fields: JSON_FORMAT
            .iter()
            .map(|(k, v)| {
                let value = wkt::Value { kind: Some(wkt::value::Kind::StringValue((*v).to_string())) };
                ((*k).to_string(), value)
            })
            .collect(),
    };
    let fields = Some(given).filter(|g| !g.is_empty()).and_then(|_| own()).unwrap_or_else(default);
    let formatters = formatters(&struct_to_json(&fields).to_string());
    (Format::JsonFormat(fields), formatters)
}

/// The extensions that commands of a format need.
fn formatters(format: &str) -> Vec<TypedExtensionConfig> {
    let needed = format.contains("%REQ_WITHOUT_QUERY");
    needed
        .then(|| TypedExtensionConfig {
            name: "envoy.formatter.req_without_query".to_string(),
            typed_config: Some(to_any(&ReqWithoutQuery {})),
        })
        .into_iter()
        .collect()
}

fn tcp_service(log_name: &str) -> AccessLog {
    let config = TcpGrpcAccessLogConfig { common_config: Some(service_config(log_name)) };
    log("envoy.tcp_grpc_access_log", to_any(&config))
}

fn service_config(log_name: &str) -> CommonGrpcAccessLogConfig {
    let target = grpc_service::EnvoyGrpc { cluster_name: SERVICE_CLUSTER.to_string(), ..Default::default() };
    CommonGrpcAccessLogConfig {
        log_name: log_name.to_string(),
        grpc_service: Some(GrpcService {
            target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(target)),
            ..Default::default()
        }),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: SERVICE_STATE.map(String::from).to_vec(),
        ..Default::default()
    }
}
