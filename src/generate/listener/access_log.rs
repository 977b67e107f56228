//! Access logs: those of Telemetries and of the mesh's default logging providers, else those of the mesh settings:
//! `accessLogFile` with `accessLogFormat` and `accessLogEncoding`, and the Envoy access log service.
//!
//! Invariant: a log whose format or filter Envoy would refuse is left out alone.

mod format;
mod provider;

pub use provider::{check_formats, of_provider};

use super::telemetry::{
    filter,
    metrics::{CountingLogs, without_starts},
};
use crate::proto::{
    envoy::{
        config::{
            accesslog::v3::{
                AccessLog, AccessLogFilter, AndFilter, ResponseFlagFilter, access_log::ConfigType,
                access_log_filter::FilterSpecifier,
            },
            core::v3::{ApiVersion, GrpcService, SubstitutionFormatString, grpc_service},
        },
        extensions::{
            access_loggers::{
                file::v3::{FileAccessLog, file_access_log::AccessLogFormat},
                grpc::v3::{CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig},
            },
            filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::TcpAccessLogOptions},
        },
    },
    mesh::MeshConfig,
    to_any, wkt,
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

/// The access logs of one class of listeners.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccessLogs {
    /// Those of an HTTP connection manager.
    pub http: Vec<AccessLog>,
    /// Those of a TCP proxy.
    pub tcp: Vec<AccessLog>,
    /// The TCP proxy logs the start of connections too.
    pub starts: bool,
    /// Those of a listener itself: only connections that no filter chain matches, which no filter could log.
    pub listener: Vec<AccessLog>,
}

impl AccessLogs {
    /// The logs of Telemetries and of default providers.
    #[must_use]
    pub fn of_telemetry(logs: Vec<AccessLog>, mesh: &MeshConfig) -> Self {
        let listener = if mesh.disable_envoy_listener_log { Vec::new() } else { logs.clone() };
        Self {
            http: logs.clone(),
            tcp: logs,
            starts: false,
            listener: listener.into_iter().map(without_chain).collect(),
        }
    }

    /// The logs of the mesh settings.
    ///
    /// # Errors
    /// The reason Envoy would refuse the format; the logs are those without the file then.
    pub fn of_mesh(mesh: &MeshConfig) -> (Self, Result<(), String>) {
        let path = Some(&mesh.access_log_file).filter(|path| !path.is_empty());
        let outcome = path.map_or(Ok(()), |_| format::check(&format::of_mesh(mesh)));
        let file = path.filter(|_| outcome.is_ok()).map(|path| file(path, mesh));
        let with = |service: AccessLog| {
            let service = Some(service).filter(|_| mesh.enable_envoy_access_log_service);
            file.clone().into_iter().chain(service).collect::<Vec<_>>()
        };
        let mut logs =
            Self { http: with(http_service()), tcp: with(tcp_service("tcp_envoy_accesslog")), ..Self::default() };
        if !mesh.disable_envoy_listener_log {
            logs.listener = with(tcp_service("listener_envoy_accesslog")).into_iter().map(without_chain).collect();
        }
        (logs, outcome)
    }
}

impl AccessLogs {
    /// With the logs that count; the others say nothing of the start of connections.
    #[must_use]
    pub fn with(mut self, counting: CountingLogs) -> Self {
        self.http.extend(counting.http);
        if !counting.tcp.is_empty() {
            self.starts = true;
            self.tcp = self.tcp.into_iter().map(without_starts).collect();
            self.tcp.extend(counting.tcp);
        }
        self
    }

    /// Gives a TCP proxy its logs.
    pub fn log_connections(&self, proxy: &mut TcpProxy) {
        proxy.access_log.clone_from(&self.tcp);
        proxy.access_log_options =
            self.starts.then(|| TcpAccessLogOptions { flush_access_log_on_connected: true, ..Default::default() });
    }
}

/// The log with a filter of Telemetry, an expression of CEL.
///
/// # Errors
/// The reason Envoy would refuse the expression.
pub fn filtered(log: AccessLog, expression: &str) -> Result<AccessLog, String> {
    Ok(AccessLog { filter: Some(filter::access_log(expression)?), ..log })
}

/// The log of connections alone that no filter chain matches.
fn without_chain(log: AccessLog) -> AccessLog {
    let no_chain = AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
            flags: vec!["NR".to_string()],
        })),
    };
    let filter = match log.filter {
        None => no_chain,
        Some(own) => AccessLogFilter {
            filter_specifier: Some(FilterSpecifier::AndFilter(AndFilter { filters: vec![no_chain, own] })),
        },
    };
    AccessLog { filter: Some(filter), ..log }
}

fn log(name: &str, config: wkt::Any) -> AccessLog {
    AccessLog { name: name.to_string(), filter: None, config_type: Some(ConfigType::TypedConfig(config)) }
}

/// A file log with the mesh's format (Istio's `FileAccessLogFromMeshConfig`).
fn file(path: &str, mesh: &MeshConfig) -> AccessLog {
    file_log(path, Some(format::of_mesh(mesh)))
}

fn file_log(path: &str, format: Option<SubstitutionFormatString>) -> AccessLog {
    let config = FileAccessLog { path: path.to_string(), access_log_format: format.map(AccessLogFormat::LogFormat) };
    log("envoy.access_loggers.file", to_any(&config))
}

fn http_service() -> AccessLog {
    let config =
        HttpGrpcAccessLogConfig { common_config: Some(service_config("http_envoy_accesslog")), ..Default::default() };
    log("envoy.access_loggers.http_grpc", to_any(&config))
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
