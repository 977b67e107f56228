//! Formats of access logs: Istio's own in text and JSON, those that are given, and the extensions that they need.

use serde_json::Value;

use crate::{
    generate::check,
    proto::{
        envoy::{
            config::core::v3::{
                DataSource, JsonFormatOptions, SubstitutionFormatString, TypedExtensionConfig, data_source,
                substitution_format_string::Format,
            },
            extensions::formatter::req_without_query::v3::ReqWithoutQuery,
        },
        json_to_struct,
        mesh::{MeshConfig, mesh_config::AccessLogEncoding},
        struct_to_json, to_any, wkt,
    },
};

/// The command of the extension that leaves a query out.
const WITHOUT_QUERY: &str = "%REQ_WITHOUT_QUERY";

/// Istio's text format.
pub(super) const TEXT_FORMAT: &str = concat!(
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

/// The format of the mesh settings.
pub(super) fn of_mesh(mesh: &MeshConfig) -> SubstitutionFormatString {
    let given = &mesh.access_log_format;
    match mesh.access_log_encoding() {
        AccessLogEncoding::Text => text(given, false),
        AccessLogEncoding::Json => {
            let own = serde_json::from_str::<Value>(given).ok().and_then(|v| json_to_struct(&v));
            json(own.filter(|_| !given.is_empty()), false)
        }
    }
}

/// A text, Istio's where none is given. Each line ends.
pub(super) fn text(given: &str, omit_empty_values: bool) -> SubstitutionFormatString {
    let mut text = if given.is_empty() { TEXT_FORMAT.to_string() } else { given.to_string() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let formatters = formatters([text.as_str()]);
    let source = DataSource { specifier: Some(data_source::Specifier::InlineString(text)), ..Default::default() };
    let format = Some(Format::TextFormatSource(source));
    SubstitutionFormatString { formatters, omit_empty_values, format, ..Default::default() }
}

/// Fields of JSON, Istio's where none are given.
pub(super) fn json(given: Option<wkt::Struct>, omit_empty_values: bool) -> SubstitutionFormatString {
    let text = |v: &str| wkt::Value { kind: Some(wkt::value::Kind::StringValue(v.to_string())) };
    let own = || JSON_FORMAT.iter().map(|(k, v)| ((*k).to_string(), text(v))).collect();
    let fields = given.unwrap_or_else(|| wkt::Struct { fields: own() });
    let value = struct_to_json(&fields);
    let mut texts = Vec::new();
    leaves(&value, &mut texts);
    SubstitutionFormatString {
        formatters: formatters(texts),
        json_format_options: Some(JsonFormatOptions::default()),
        omit_empty_values,
        format: Some(Format::JsonFormat(fields)),
        ..Default::default()
    }
}

/// Whether Envoy takes a format.
pub(super) fn check(format: &SubstitutionFormatString) -> Result<(), String> {
    match &format.format {
        Some(Format::TextFormatSource(DataSource {
            specifier: Some(data_source::Specifier::InlineString(text)),
            ..
        })) => good(text),
        Some(Format::JsonFormat(fields)) => {
            let value = struct_to_json(fields);
            let mut texts = Vec::new();
            leaves(&value, &mut texts);
            texts.into_iter().try_for_each(good)
        }
        _ => Ok(()),
    }
}

fn leaves<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => into.push(text),
        Value::Object(fields) => fields.values().for_each(|value| leaves(value, into)),
        Value::Array(values) => values.iter().for_each(|value| leaves(value, into)),
        _ => {}
    }
}

/// Whether Envoy takes the text of a format of an access log.
pub(super) fn good(format: &str) -> Result<(), String> {
    // The command of the extension is like any that needs an argument.
    check::format(&format.replace(WITHOUT_QUERY, "%QUERY_PARAM"))
}

/// The extensions that commands of these formats need.
pub(super) fn formatters<'a>(formats: impl IntoIterator<Item = &'a str>) -> Vec<TypedExtensionConfig> {
    let needed = formats.into_iter().any(|format| format.contains(WITHOUT_QUERY));
    needed
        .then(|| TypedExtensionConfig {
            name: "envoy.formatter.req_without_query".to_string(),
            typed_config: Some(to_any(&ReqWithoutQuery {})),
        })
        .into_iter()
        .collect()
}
