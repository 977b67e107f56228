//! Listener filters: what looks at a connection before a filter chain is chosen.

use prost::Name;

use crate::proto::{
    envoy::{
        config::listener::v3::{ListenerFilter, listener_filter::ConfigType},
        extensions::filters::listener::{proxy_protocol::v3::ProxyProtocol, tls_inspector::v3::TlsInspector},
    },
    to_any,
};

/// Reads SNI and ALPN. The first buffer is small: Envoy's default of 64 KiB per connection is more than a hello needs.
#[must_use]
pub fn tls_inspector() -> ListenerFilter {
    let config = TlsInspector { initial_read_buffer_size: Some(512), ..Default::default() };
    filter("envoy.filters.listener.tls_inspector", &config)
}

/// Strips the PROXY protocol header.
#[must_use]
pub fn proxy_protocol() -> ListenerFilter {
    filter("envoy.filters.listener.proxy_protocol", &ProxyProtocol::default())
}

fn filter<M: Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.to_string(),
        config_type: Some(ConfigType::TypedConfig(to_any(config))),
        ..Default::default()
    }
}
