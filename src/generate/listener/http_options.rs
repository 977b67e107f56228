//! The differences between the connection managers of one proxy.

use std::sync::Arc;

use super::builder::Builder;
use crate::{
    generate::proxy_config::{ListenerClass, ProxyHeaders},
    model::{Protocol, Service},
    proto::envoy::{
        config::{core::v3::Http1ProtocolOptions, route::v3::RouteConfiguration},
        extensions::filters::network::http_connection_manager::v3::HttpConnectionManager,
    },
};

/// The source of a connection manager's routes.
#[derive(Debug, Clone)]
pub enum Routes {
    /// By name, over ADS.
    Rds(String),
    /// In place.
    Inline(Box<RouteConfiguration>),
}

/// The settings that differ between connection managers.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The source of the route configuration: RDS or in place.
    pub routes: Routes,
    /// Fields that the caller has decided; see `HttpOptions::base`.
    pub manager: HttpConnectionManager,
    /// Prefix of statistics.
    pub stat_prefix: String,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// The address of the connection is that of the client.
    pub use_remote_address: bool,
    /// `x-envoy-*` debug headers are left out.
    pub suppress_debug_headers: bool,
    /// Metadata exchange headers go only to clusters of the mesh.
    pub skip_mx_headers: bool,
    /// HTTP/3 over QUIC only.
    pub http3_only: bool,
    /// Whose traffic it is.
    pub class: ListenerClass,
    /// Peers have proven themselves by mutual TLS of the mesh.
    pub peer_is_proven: bool,
    /// The port that extensions choose by: of a service, or the workload's own; 0 for none.
    pub port: u32,
    /// The service, where the listener is for one only.
    pub service: Option<Arc<Service>>,
}

impl HttpOptions {
    /// Options with the header settings of the proxy for this class, and defaults otherwise.
    #[must_use]
    pub fn new(builder: &Builder, class: ListenerClass, protocol: Protocol, routes: Routes) -> Self {
        let headers = builder.headers(class);
        Self {
            routes,
            manager: Self::base(builder, &headers),
            stat_prefix: String::new(),
            protocol,
            use_remote_address: false,
            suppress_debug_headers: headers.suppress_debug_headers,
            skip_mx_headers: headers.skip_mx_headers,
            http3_only: false,
            class,
            peer_is_proven: false,
            port: 0,
            service: None,
        }
    }

    /// Server name, request id and HTTP/1.0, by the proxy's settings.
    fn base(builder: &Builder, headers: &ProxyHeaders) -> HttpConnectionManager {
        HttpConnectionManager {
            server_name: headers.server_name.clone(),
            server_header_transformation: headers.server_header_transformation.into(),
            generate_request_id: headers.generate_request_id,
            http_protocol_options: builder
                .http10()
                .then(|| Http1ProtocolOptions { accept_http_10: true, ..Default::default() }),
            ..Default::default()
        }
    }
}
