//! A proxy's own settings: its `ProxyConfig` (node metadata before the mesh's default) and its consequences for the
//! headers that Envoy adds (Istio's `ProxyConfigOrDefault`, `GetProxyHeaders`).

use crate::{
    model::NodeType,
    proto::{
        envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
            ForwardClientCertDetails, ServerHeaderTransformation,
        },
        from_json,
        mesh::{
            self, ProxyConfig,
            proxy_config::{
                ConnectionSettings,
                connection_settings::{HeadersWithUnderscoresAction, PathWithEscapedSlashesAction, Profile},
                proxy_headers::{MetadataExchangeMode, SetCurrentClientCertDetails},
            },
        },
        seconds,
    },
    push::{ProxyView, PushContext},
};

/// Whose traffic a listener takes (Istio's `ListenerClass`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListenerClass {
    /// To the workload beside the sidecar.
    SidecarInbound,
    /// From the workload beside the sidecar.
    SidecarOutbound,
    /// Through a gateway.
    Gateway,
}

/// The settings of the proxy: metadata `PROXY_CONFIG` whole, else the mesh's `defaultConfig`.
#[must_use]
pub fn effective(context: &PushContext, view: &ProxyView) -> ProxyConfig {
    let own = serde_json::from_str(&view.metadata.proxy_config).ok().and_then(|value| from_json(&value, false).ok());
    own.or_else(|| context.mesh().config.default_config.clone()).unwrap_or_default()
}

/// A proxy's `proxyHeaders`, over Istio's defaults for the class of the listener.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyHeaders {
    /// Value of the `server` header; empty leaves Envoy's.
    pub server_name: String,
    /// Handling of the `server` header of an upstream.
    pub server_header_transformation: ServerHeaderTransformation,
    /// Handling of `x-forwarded-client-cert`.
    pub forward_client_cert: ForwardClientCertDetails,
    /// The parts of the client certificate that are forwarded; `None` is Istio's choice.
    pub set_current_client_cert: Option<SetCurrentClientCertDetails>,
    /// `x-envoy-attempt-count` is added.
    pub attempt_count: bool,
    /// `x-request-id` is made; `None` is Envoy's default (it is).
    pub generate_request_id: Option<bool>,
    /// `x-envoy-*` debug headers are left out.
    pub suppress_debug_headers: bool,
    /// Metadata exchange headers go only to clusters of the mesh.
    pub skip_mx_headers: bool,
    /// `x-forwarded-port` is added.
    pub x_forwarded_port: bool,
    /// `x-forwarded-host` is added where a host is rewritten.
    pub x_forwarded_host: bool,
}

impl ProxyHeaders {
    /// Reads them from a proxy's settings.
    #[must_use]
    pub fn of(config: &ProxyConfig, class: ListenerClass) -> Self {
        // Outbound listeners of Istio keep Envoy's own server name, all others set `istio-envoy`.
        let server_name = if class == ListenerClass::SidecarOutbound { "" } else { "istio-envoy" };
        let mut headers = Self {
            server_name: server_name.to_string(),
            server_header_transformation: ServerHeaderTransformation::Overwrite,
            forward_client_cert: ForwardClientCertDetails::AppendForward,
            set_current_client_cert: None,
            attempt_count: true,
            generate_request_id: None,
            suppress_debug_headers: false,
            skip_mx_headers: false,
            x_forwarded_port: false,
            x_forwarded_host: false,
        };
        let Some(given) = &config.proxy_headers else {
            return headers;
        };
        headers.attempt_count = given.attempt_count.as_ref().is_none_or(|c| c.disabled != Some(true));
        if let Some(details) = forward_client_cert(given.forwarded_client_cert()) {
            headers.forward_client_cert = details;
        }
        if let Some(server) = &given.server {
            if server.disabled == Some(true) {
                headers.server_name.clear();
                headers.server_header_transformation = ServerHeaderTransformation::PassThrough;
            } else if !server.value.is_empty() {
                headers.server_name.clone_from(&server.value);
            }
        }
        if given.request_id.as_ref().is_some_and(|r| r.disabled == Some(true)) {
            headers.generate_request_id = Some(false);
        }
        headers.suppress_debug_headers = given.envoy_debug_headers.as_ref().is_some_and(|d| d.disabled == Some(true));
        headers.skip_mx_headers =
            given.metadata_exchange_headers.as_ref().is_some_and(|m| m.mode() == MetadataExchangeMode::InMesh);
        headers.x_forwarded_port = given.x_forwarded_port.as_ref().is_some_and(|p| p.enabled == Some(true));
        headers.x_forwarded_host = given.x_forwarded_host.as_ref().is_some_and(|h| h.enabled == Some(true));
        headers.set_current_client_cert.clone_from(&given.set_current_client_cert_details);
        headers
    }
}

/// Istio's value as Envoy's; `None` when it is not given.
#[must_use]
pub fn forward_client_cert(details: mesh::ForwardClientCertDetails) -> Option<ForwardClientCertDetails> {
    use mesh::ForwardClientCertDetails as Istio;
    Some(match details {
        Istio::Undefined => return None,
        Istio::Sanitize => ForwardClientCertDetails::Sanitize,
        Istio::ForwardOnly => ForwardClientCertDetails::ForwardOnly,
        Istio::AppendForward => ForwardClientCertDetails::AppendForward,
        Istio::SanitizeSet => ForwardClientCertDetails::SanitizeSet,
        Istio::AlwaysForwardOnly => ForwardClientCertDetails::AlwaysForwardOnly,
    })
}

/// The connection settings of a proxy: its own, else the mesh's. With profile `EDGE` a gateway gets Envoy's edge defaults
/// for absent fields (Istio's `applyEdgeProfileDefaults`).
#[must_use]
pub fn connection_settings(
    context: &PushContext,
    view: &ProxyView,
    config: &ProxyConfig,
) -> Option<ConnectionSettings> {
    let of_mesh = || context.mesh().config.default_config.as_ref().and_then(|d| d.connection_settings);
    let mut settings = config.connection_settings.or_else(of_mesh)?;
    if settings.profile() != Profile::Edge || view.node_type != NodeType::Router {
        return Some(settings);
    }
    settings.listener_per_connection_buffer_limit_bytes.get_or_insert(32 * 1024);
    settings.http_idle_timeout.get_or_insert(seconds(3600));
    settings.http_stream_idle_timeout.get_or_insert(seconds(300));
    settings.http_request_timeout.get_or_insert(seconds(300));
    settings.http_request_headers_timeout.get_or_insert(seconds(60));
    settings.http_max_concurrent_streams.get_or_insert(100);
    settings.http2_initial_stream_window_size.get_or_insert(64 * 1024);
    settings.http2_initial_connection_window_size.get_or_insert(1024 * 1024);
    if settings.http_headers_with_underscores_action()
        == HeadersWithUnderscoresAction::HeadersWithUnderscoresUnspecified
    {
        settings.set_http_headers_with_underscores_action(
            HeadersWithUnderscoresAction::HeadersWithUnderscoresRejectRequest,
        );
    }
    settings.http_merge_slashes.get_or_insert(true);
    if settings.http_path_with_escaped_slashes_action()
        == PathWithEscapedSlashesAction::PathWithEscapedSlashesUnspecified
    {
        settings.set_http_path_with_escaped_slashes_action(PathWithEscapedSlashesAction::UnescapeAndRedirect);
    }
    Some(settings)
}
