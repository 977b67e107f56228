//! Access logs of extension providers: files, Envoy's access log service, OpenTelemetry (Istio's `telemetryAccessLog`).

use super::{SERVICE_STATE, file_log, format, log};
use crate::{
    generate::listener::telemetry::providers::{self, Target},
    proto::{
        envoy::{
            config::{
                accesslog::v3::AccessLog,
                core::v3::{ApiVersion, SubstitutionFormatString},
            },
            extensions::access_loggers::{
                grpc::v3::{CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig},
                open_telemetry::v3::OpenTelemetryAccessLogConfig,
            },
        },
        mesh::{
            MeshConfig,
            mesh_config::{
                ExtensionProvider,
                extension_provider::{
                    EnvoyFileAccessLogProvider, EnvoyHttpGrpcV3LogProvider, EnvoyOpenTelemetryLogProvider,
                    EnvoyTcpGrpcV3LogProvider, Provider, envoy_file_access_log_provider::log_format::LogFormat,
                },
            },
        },
        opentelemetry::proto::common::v1::{AnyValue, KeyValue, KeyValueList, any_value},
        to_any, wkt,
    },
    push::PushContext,
};

/// The provider that every mesh has; without a format of its own it takes that of the mesh settings.
const BUILT_IN: &str = "envoy";
const STDOUT: &str = "/dev/stdout";
/// Filter state that is sent to an access log service.
const STATE: [&str; 2] = ["upstream_peer", "downstream_peer"];

/// The log of a provider; `None` where providers of its kind have none.
///
/// # Errors
/// Its service is unknown.
pub fn of_provider(context: &PushContext, provider: &ExtensionProvider) -> Result<Option<AccessLog>, String> {
    Ok(Some(match &provider.provider {
        Some(Provider::EnvoyFileAccessLog(p)) => file(&provider.name, p, &context.mesh().config),
        Some(Provider::EnvoyHttpAls(p)) => http_service(p, &providers::target(context, &p.service, p.port)?),
        Some(Provider::EnvoyTcpAls(p)) => tcp_service(p, &providers::target(context, &p.service, p.port)?),
        Some(Provider::EnvoyOtelAls(p)) => open_telemetry(p, &providers::target(context, &p.service, p.port)?),
        _ => return Ok(None),
    }))
}

/// Whether Envoy takes the formats of a provider.
///
/// # Errors
/// The reason it would refuse them, and every listener with them.
pub fn check_formats(mesh: &MeshConfig, provider: &ExtensionProvider) -> Result<(), String> {
    match &provider.provider {
        Some(Provider::EnvoyFileAccessLog(p)) => {
            file_format(&provider.name, p, mesh).map_or(Ok(()), |given| format::check(&given))
        }
        Some(Provider::EnvoyOtelAls(p)) => texts(p).into_iter().try_for_each(|(_, text)| format::good(&text)),
        _ => Ok(()),
    }
}

fn file(name: &str, given: &EnvoyFileAccessLogProvider, mesh: &MeshConfig) -> AccessLog {
    let path = if given.path.is_empty() { STDOUT } else { &given.path };
    file_log(path, file_format(name, given, mesh))
}

fn file_format(name: &str, given: &EnvoyFileAccessLogProvider, mesh: &MeshConfig) -> Option<SubstitutionFormatString> {
    let omit = given.omit_empty_values;
    Some(match &given.log_format {
        None if name == BUILT_IN && !omit => format::of_mesh(mesh),
        None => format::text("", omit),
        Some(given) => match given.log_format.as_ref()? {
            LogFormat::Text(text) => format::text(text, omit),
            LogFormat::Labels(labels) => format::json(Some(labels.clone()).filter(|l| !l.fields.is_empty()), omit),
        },
    })
}

fn common(name: &str, default: &str, state: &[String], target: &Target) -> CommonGrpcAccessLogConfig {
    CommonGrpcAccessLogConfig {
        log_name: if name.is_empty() { default } else { name }.to_string(),
        grpc_service: Some(target.grpc()),
        transport_api_version: ApiVersion::V3.into(),
        filter_state_objects_to_log: state.to_vec(),
        ..Default::default()
    }
}

fn state(given: &[String]) -> Vec<String> {
    if given.is_empty() { STATE.map(String::from).to_vec() } else { given.to_vec() }
}

fn http_service(given: &EnvoyHttpGrpcV3LogProvider, target: &Target) -> AccessLog {
    let state = state(&given.filter_state_objects_to_log);
    let config = HttpGrpcAccessLogConfig {
        common_config: Some(common(&given.log_name, "http_envoy_accesslog", &state, target)),
        additional_request_headers_to_log: given.additional_request_headers_to_log.clone(),
        additional_response_headers_to_log: given.additional_response_headers_to_log.clone(),
        additional_response_trailers_to_log: given.additional_response_trailers_to_log.clone(),
    };
    log("envoy.access_loggers.http_grpc", to_any(&config))
}

fn tcp_service(given: &EnvoyTcpGrpcV3LogProvider, target: &Target) -> AccessLog {
    let state = state(&given.filter_state_objects_to_log);
    let common_config = Some(common(&given.log_name, "tcp_envoy_accesslog", &state, target));
    log("envoy.tcp_grpc_access_log", to_any(&TcpGrpcAccessLogConfig { common_config }))
}

/// The body, without a name, and the labels by name.
fn texts(given: &EnvoyOpenTelemetryLogProvider) -> Vec<(String, String)> {
    let format = given.log_format.as_ref();
    let body = format.map(|f| f.text.as_str()).filter(|text| !text.is_empty()).unwrap_or(format::TEXT_FORMAT);
    let text = |value: &wkt::Value| match &value.kind {
        Some(wkt::value::Kind::StringValue(text)) => text.clone(),
        _ => String::new(),
    };
    let labels = format.and_then(|f| f.labels.as_ref()).into_iter().flat_map(|labels| &labels.fields);
    let labels = labels.map(|(key, value)| (key.clone(), text(value)));
    std::iter::once((String::new(), body.to_string())).chain(labels).collect()
}

fn open_telemetry(given: &EnvoyOpenTelemetryLogProvider, target: &Target) -> AccessLog {
    let texts = texts(given);
    let value = |text: &str| Some(AnyValue { value: Some(any_value::Value::StringValue(text.to_string())) });
    let pair =
        |(key, text): &(String, String)| KeyValue { key: key.clone(), value: value(text), ..KeyValue::default() };
    let (body, labels) = texts.split_first().map_or((None, &[][..]), |((_, body), labels)| (value(body), labels));
    let state = SERVICE_STATE.map(String::from);
    #[allow(deprecated, reason = "older Envoys and Istio's know no other form")]
    let config = OpenTelemetryAccessLogConfig {
        common_config: Some(common(&given.log_name, "otel_envoy_accesslog", &state, target)),
        disable_builtin_labels: true,
        body,
        attributes: (!labels.is_empty()).then(|| KeyValueList { values: labels.iter().map(pair).collect() }),
        formatters: format::formatters(texts.iter().map(|(_, text)| text.as_str())),
        ..OpenTelemetryAccessLogConfig::default()
    };
    log("envoy.access_loggers.open_telemetry", to_any(&config))
}
