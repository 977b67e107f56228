//! A cluster while it is being built: beside the message, the parts that end up packed inside of it.

use crate::proto::{
    envoy::{
        config::{
            cluster::v3::{Cluster, Filter, cluster::CommonLbConfig},
            core::v3::{
                self as core, Http1ProtocolOptions, Http2ProtocolOptions, TypedExtensionConfig,
                http1_protocol_options::{HeaderKeyFormat, header_key_format::HeaderFormat},
            },
        },
        extensions::upstreams::http::v3::{
            HttpProtocolOptions,
            http_protocol_options::{
                ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
                explicit_http_config::ProtocolConfig,
            },
        },
    },
    to_any, udpa, wkt,
};

const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// A cluster while it is being built.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The message.
    pub(super) cluster: Cluster,
    /// HTTP options; packed at the end.
    pub(super) http: Option<HttpProtocolOptions>,
    /// The host is resolved per request (dynamic forward proxy).
    pub(super) dynamic: bool,
}

impl Draft {
    /// A cluster of that name; its statistics have the name with the delimiter that Istio's patterns expect.
    pub(super) fn named(name: &str) -> Self {
        let cluster = Cluster { name: name.to_string(), alt_stat_name: format!("{name};"), ..Cluster::default() };
        Self { cluster, ..Self::default() }
    }

    /// The HTTP options, made if there are none.
    pub(super) fn http(&mut self) -> &mut HttpProtocolOptions {
        self.http.get_or_insert_default()
    }

    /// The common load balancer settings, made if there are none.
    pub(super) fn common_lb(&mut self) -> &mut CommonLbConfig {
        self.cluster.common_lb_config.get_or_insert_default()
    }

    /// HTTP/2 to the upstream, unless a protocol was chosen before.
    pub(super) fn set_http2(&mut self) {
        let http2 = ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default());
        self.http().upstream_protocol_options.get_or_insert(explicit(http2));
    }

    /// HTTP/1.1 to the upstream, with header names as they came.
    pub(super) fn set_preserved_http1(&mut self) {
        self.http().upstream_protocol_options =
            Some(explicit(ProtocolConfig::HttpProtocolOptions(preserve_case_options())));
    }

    /// The client's protocol to the upstream; settings for HTTP/1.1 are kept.
    pub(super) fn set_use_downstream_protocol(&mut self) {
        let http = self.http();
        let http1 = match http.upstream_protocol_options.take() {
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::HttpProtocolOptions(http1)),
            })) => http1,
            _ => Http1ProtocolOptions::default(),
        };
        http.upstream_protocol_options = Some(use_downstream_protocol(http1));
    }

    /// The settings for HTTP/2, if that is the protocol to the upstream.
    pub(super) fn http2(&mut self) -> Option<&mut Http2ProtocolOptions> {
        match self.http.as_mut()?.upstream_protocol_options.as_mut()? {
            UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(http2)),
            }) => Some(http2),
            _ => None,
        }
    }

    /// The finished cluster.
    pub(super) fn build(mut self) -> Cluster {
        if let Some(mut http) = self.http {
            // Envoy demands a protocol where there are options.
            let http1 = ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default());
            http.upstream_protocol_options.get_or_insert(explicit(http1));
            self.cluster.typed_extension_protocol_options.insert(HTTP_PROTOCOL_OPTIONS.to_string(), to_any(&http));
        }
        self.cluster
    }
}

/// A protocol that is used whatever the client speaks.
pub(super) fn explicit(protocol: ProtocolConfig) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig { protocol_config: Some(protocol) })
}

/// The client's protocol.
pub(super) fn use_downstream_protocol(http1: Http1ProtocolOptions) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
        http_protocol_options: Some(http1),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        http3_protocol_options: None,
    })
}

/// HTTP/1.1 with header names as they came.
pub(super) fn preserve_case_options() -> Http1ProtocolOptions {
    const FORMATTER: &str =
        "type.googleapis.com/envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig";
    Http1ProtocolOptions {
        header_key_format: Some(HeaderKeyFormat {
            header_format: Some(HeaderFormat::StatefulFormatter(TypedExtensionConfig {
                name: "preserve_case".to_string(),
                typed_config: Some(wkt::Any { type_url: FORMATTER.to_string(), value: Vec::new() }),
            })),
        }),
        ..Http1ProtocolOptions::default()
    }
}

/// Istio's exchange of peer metadata on upstream connections; only its own build of Envoy has the filter.
pub(super) fn metadata_exchange_filter(labels: &[String]) -> Filter {
    use wkt::value::Kind;
    let value = |kind| wkt::Value { kind: Some(kind) };
    let text = |text: &str| value(Kind::StringValue(text.to_string()));
    let mut exchange = wkt::Struct {
        fields: [
            ("protocol".to_string(), text("istio-peer-exchange")),
            ("enable_discovery".to_string(), value(Kind::BoolValue(true))),
        ]
        .into(),
    };
    if !labels.is_empty() {
        let values = labels.iter().map(|label| text(label)).collect();
        exchange.fields.insert("additional_labels".to_string(), value(Kind::ListValue(wkt::ListValue { values })));
    }
    let config = udpa::r#type::v1::TypedStruct {
        type_url: "type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange".to_string(),
        value: Some(exchange),
    };
    Filter { name: "istio.metadata_exchange".to_string(), typed_config: Some(to_any(&config)), config_discovery: None }
}

/// A source address without a port.
pub(super) fn source_address(ip: &str) -> core::SocketAddress {
    core::SocketAddress {
        address: ip.to_string(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(0)),
        ..core::SocketAddress::default()
    }
}
