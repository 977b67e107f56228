//! Whether and where traces are exported, as OpenTelemetry's environment variables say it. Pure.
//!
//! Off by default: `OTEL_TRACES_EXPORTER=otlp` or an endpoint turns traces on. Resource attributes, headers and the sampler
//! are read by OpenTelemetry's own crates. A value that is not understood is a warning, and its default holds, as the
//! specification of the variables demands.

use std::time::Duration;

/// The protocol of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    HttpProtobuf,
}

/// The export of traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceSettings {
    pub(super) protocol: Protocol,
    /// The endpoint, for the log.
    pub(super) endpoint: String,
    /// The certificate authorities that the collector is proven by, in a PEM file; those of the machine where it is absent.
    pub(super) authorities: Option<String>,
    /// The longest time of one export.
    pub(super) timeout: Duration,
    /// Spans that may wait.
    pub(super) most_waiting: usize,
    /// Spans of one export.
    pub(super) batch: usize,
    /// The pause in which spans are gathered for an export.
    pub(super) delay: Duration,
}

/// Spans that may wait, unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise: eight pushes of the largest size.
const WAITING: usize = 8192;
const BATCH: usize = 512;
const DELAY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

impl TraceSettings {
    /// The settings of these variables, `None` where traces are off, and warnings about values without effect.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> (Option<Self>, Vec<String>) {
        let mut warnings = Vec::new();
        let variable = |name: &str| variable(name).map(|v| v.trim().to_string()).filter(|v| !v.is_empty());
        // The variable of traces stands before the one of all signals.
        let of_traces = |name: &str| {
            let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
            names.into_iter().find_map(|name| Some((variable(&name)?, name)))
        };
        if variable("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return (None, warnings);
        }
        let on = match variable("OTEL_TRACES_EXPORTER") {
            None => of_traces("ENDPOINT").is_some(),
            Some(list) => {
                let (otlp, others): (Vec<&str>, Vec<&str>) =
                    list.split(',').map(str::trim).filter(|e| *e != "none").partition(|e| *e == "otlp");
                for other in others {
                    warnings.push(format!("OTEL_TRACES_EXPORTER: {other:?} is not supported, only otlp and none are"));
                }
                !otlp.is_empty()
            }
        };
        if !on {
            return (None, warnings);
        }
        let protocol = match of_traces("PROTOCOL").map(|(v, name)| (v.to_ascii_lowercase(), name)) {
            Some((protocol, _)) if protocol == "grpc" => Protocol::Grpc,
            Some((protocol, name)) if protocol != "http/protobuf" => {
                warnings.push(format!("{name}: {protocol:?} is not supported, http/protobuf is spoken"));
                Protocol::HttpProtobuf
            }
            _ => Protocol::HttpProtobuf,
        };
        for name in ["COMPRESSION", "CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((value, name)) = of_traces(name).filter(|(value, _)| value != "none") {
                warnings.push(format!("{name}: {value:?} is without effect"));
            }
        }
        let endpoint = of_traces("ENDPOINT").map(|(endpoint, _)| endpoint);
        let usual = match protocol {
            Protocol::Grpc => "http://localhost:4317",
            Protocol::HttpProtobuf => "http://localhost:4318",
        };
        let mut number = |value: Option<(String, String)>, usual: u64| match value {
            None => usual,
            Some((value, name)) => value.parse().ok().filter(|n| *n > 0).unwrap_or_else(|| {
                warnings.push(format!("{name}: {value:?} is no positive number, {usual} holds"));
                usual
            }),
        };
        let named = |name: &str| variable(name).map(|value| (value, name.to_string()));
        let millis = |usual: Duration| u64::try_from(usual.as_millis()).unwrap_or(u64::MAX);
        let timeout = Duration::from_millis(number(of_traces("TIMEOUT"), millis(TIMEOUT)));
        let delay = Duration::from_millis(number(named("OTEL_BSP_SCHEDULE_DELAY"), millis(DELAY)));
        let most_waiting = number(named("OTEL_BSP_MAX_QUEUE_SIZE"), WAITING as u64) as usize;
        let batch = number(named("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), BATCH as u64) as usize;
        let settings = Self {
            protocol,
            endpoint: endpoint.unwrap_or_else(|| usual.to_string()),
            authorities: of_traces("CERTIFICATE").map(|(path, _)| path),
            timeout,
            most_waiting,
            batch: batch.min(most_waiting),
            delay,
        };
        (Some(settings), warnings)
    }

    /// Whether the collector may be behind TLS: an endpoint without a scheme is, over gRPC.
    pub(super) fn is_tls(&self) -> bool {
        match self.endpoint.split_once("://") {
            Some((scheme, _)) => scheme.eq_ignore_ascii_case("https"),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<TraceSettings>, Vec<String>) {
        TraceSettings::read(|name| Some(variables.iter().find(|(n, _)| *n == name)?.1.to_string()))
    }

    #[test]
    fn traces_are_off_unless_an_exporter_or_an_endpoint_is_named() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for (variables, on) in [
            (&[][..], false),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[("OTEL_TRACES_EXPORTER", "none"), endpoint], false),
            (&[("OTEL_TRACES_EXPORTER", ""), endpoint], true),
            (&[endpoint], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces")], true),
            (&[endpoint, ("OTEL_SDK_DISABLED", "true")], false),
            (&[endpoint, ("OTEL_SDK_DISABLED", "false")], true),
            (&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://collector:4318")], false),
        ] {
            let (settings, warnings) = read(variables);
            assert_eq!((settings.is_some(), warnings), (on, Vec::new()), "{variables:?}");
        }
        let (settings, warnings) = read(&[("OTEL_TRACES_EXPORTER", "zipkin"), endpoint]);
        assert_eq!(settings, None);
        assert!(warnings[0].contains("zipkin"), "{warnings:?}");
    }

    #[test]
    fn the_variables_of_traces_stand_before_those_of_all_signals() {
        let (settings, warnings) = read(&[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces:4317"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ]);
        assert_eq!(warnings, Vec::<String>::new());
        let settings = settings.unwrap();
        assert!(settings.is_tls());
        let expected = TraceSettings {
            protocol: Protocol::Grpc,
            endpoint: "https://traces:4317".to_string(),
            authorities: Some("/ca.pem".to_string()),
            timeout: Duration::from_millis(2500),
            most_waiting: 100,
            batch: 100,
            delay: DELAY,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn values_that_are_not_understood_are_warnings_and_defaults_hold() {
        let (settings, warnings) = read(&[
            ("OTEL_TRACES_EXPORTER", "otlp,console"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
        ]);
        let settings = settings.unwrap();
        assert_eq!((settings.protocol, settings.timeout, settings.batch), (Protocol::HttpProtobuf, TIMEOUT, BATCH));
        assert_eq!(settings.endpoint, "http://localhost:4318");
        assert!(!settings.is_tls());
        for (warning, said) in warnings.iter().zip(["console", "http/json", "gzip", "soon", "\"0\""]) {
            assert!(warning.contains(said), "{warning}");
        }
        assert_eq!(warnings.len(), 5, "{warnings:?}");
    }
}
