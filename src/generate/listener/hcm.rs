//! The HTTP connection manager with Istio's options (Istio's `buildHTTPConnectionManager`).
//!
//! A caller gives the differences between listeners in [`HttpOptions`]; everything that follows from mesh settings and the
//! proxy's own settings is added here, in one place for sidecars and gateways.

use std::net::IpAddr;

use super::{
    builder::Builder,
    filter::network_filter,
    http_filters,
    http_options::{HttpOptions, Routes},
};
use crate::{
    generate::names::parse_prefix,
    proto::{
        envoy::{
            config::{
                core::v3::{
                    AggregatedConfigSource, ApiVersion, CidrRange, ConfigSource, Http3ProtocolOptions,
                    TypedExtensionConfig,
                    config_source::ConfigSourceSpecifier,
                    http_protocol_options::HeadersWithUnderscoresAction,
                    http1_protocol_options::{HeaderKeyFormat, header_key_format::HeaderFormat},
                },
                listener::v3::Filter,
            },
            extensions::{
                filters::network::http_connection_manager::v3::{
                    HttpConnectionManager, Rds, RequestIdExtension,
                    http_connection_manager::{
                        CodecType, InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier, UpgradeConfig,
                    },
                },
                http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig,
                request_id::uuid::v3::UuidRequestIdConfig,
            },
        },
        mesh::{
            MeshNetworks,
            mesh_config::proxy_path_normalization::NormalizationType,
            network::network_endpoints::Ne,
            proxy_config::{ConnectionSettings, connection_settings},
        },
        seconds, to_any,
    },
};

/// The network filter that holds a connection manager.
#[must_use]
pub fn filter(manager: &HttpConnectionManager) -> Filter {
    network_filter("envoy.filters.network.http_connection_manager", manager)
}

/// Statistics prefixes end with a delimiter, so that Istio's tag extraction finds their end.
#[must_use]
pub fn delimited(stat_prefix: &str) -> String {
    format!("{stat_prefix};")
}

/// Builds the connection manager.
#[must_use]
pub fn build(builder: &Builder, options: HttpOptions) -> HttpConnectionManager {
    let filters = http_filters::build(builder, &options);
    let features = builder.features();
    let HttpOptions { routes, manager: mut hcm, stat_prefix, use_remote_address, http3_only, class, .. } = options;
    if http3_only {
        hcm.codec_type = CodecType::Http3.into();
        hcm.http3_protocol_options = Some(Http3ProtocolOptions::default());
    } else {
        hcm.codec_type = CodecType::Auto.into();
    }
    preserve_case(builder, &mut hcm);
    hcm.stat_prefix = stat_prefix;
    hcm.append_x_forwarded_port = builder.headers(class).x_forwarded_port;
    normalize_path(builder, &mut hcm);
    hcm.use_remote_address = Some(use_remote_address);
    hcm.upgrade_configs = vec![UpgradeConfig { upgrade_type: "websocket".to_string(), ..Default::default() }];
    if let Some(idle) = builder.idle_timeout {
        hcm.common_http_protocol_options.get_or_insert_default().idle_timeout = Some(idle);
    }
    hcm.stream_idle_timeout = Some(seconds(0));
    if let Some(settings) = &builder.connection_settings {
        connections(&mut hcm, settings);
    }
    hcm.route_specifier = Some(match routes {
        Routes::Rds(name) => RouteSpecifier::Rds(rds(name)),
        Routes::Inline(config) => RouteSpecifier::RouteConfig(*config),
    });
    hcm.access_log = builder.telemetry(class).logs.http.clone();
    let spans = &builder.telemetry(class).spans;
    hcm.tracing.clone_from(&spans.tracing);
    hcm.http_filters = filters;
    hcm.request_id_extension = Some(request_id(spans.use_request_id));
    if features.enable_hcm_internal_networks || use_remote_address {
        hcm.internal_address_config = internal_addresses(&builder.context.mesh().networks);
    }
    hcm.proxy_100_continue = features.enable_100_continue_headers;
    hcm
}

fn rds(route_config_name: String) -> Rds {
    Rds {
        config_source: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
            initial_fetch_timeout: Some(seconds(0)),
            resource_api_version: ApiVersion::V3.into(),
            ..Default::default()
        }),
        route_config_name,
    }
}

fn request_id(samples: bool) -> RequestIdExtension {
    let config = UuidRequestIdConfig { use_request_id_for_trace_sampling: Some(samples), ..Default::default() };
    RequestIdExtension { typed_config: Some(to_any(&config)) }
}

fn preserve_case(builder: &Builder, hcm: &mut HttpConnectionManager) {
    let headers = builder.proxy_config.proxy_headers.as_ref();
    if headers.and_then(|h| h.preserve_http1_header_case) != Some(true) {
        return;
    }
    let formatter = TypedExtensionConfig {
        name: "preserve_case".to_string(),
        typed_config: Some(to_any(&PreserveCaseFormatterConfig::default())),
    };
    hcm.http_protocol_options.get_or_insert_default().header_key_format =
        Some(HeaderKeyFormat { header_format: Some(HeaderFormat::StatefulFormatter(formatter)) });
}

fn normalize_path(builder: &Builder, hcm: &mut HttpConnectionManager) {
    let normalization =
        builder.mesh().path_normalization.as_ref().map_or(NormalizationType::Default, |n| n.normalization());
    hcm.path_with_escaped_slashes_action = PathWithEscapedSlashesAction::KeepUnchanged.into();
    hcm.normalize_path = Some(normalization != NormalizationType::None);
    match normalization {
        NormalizationType::MergeSlashes => hcm.merge_slashes = true,
        NormalizationType::DecodeAndMergeSlashes => {
            hcm.merge_slashes = true;
            hcm.path_with_escaped_slashes_action = PathWithEscapedSlashesAction::UnescapeAndForward.into();
        }
        NormalizationType::Default | NormalizationType::None | NormalizationType::Base => {}
    }
}

/// `connectionSettings` of the proxy, over mesh settings and metadata (Istio's `applyConnectionSettingsToHCM`).
fn connections(hcm: &mut HttpConnectionManager, settings: &ConnectionSettings) {
    let common = [settings.http_idle_timeout, settings.http_max_connection_duration, settings.http_max_stream_duration];
    if common.iter().any(Option::is_some) {
        let options = hcm.common_http_protocol_options.get_or_insert_default();
        let [idle, connection, stream] = common;
        options.idle_timeout = idle.or(options.idle_timeout);
        options.max_connection_duration = connection.or(options.max_connection_duration);
        options.max_stream_duration = stream.or(options.max_stream_duration);
    }
    hcm.stream_idle_timeout = settings.http_stream_idle_timeout.or(hcm.stream_idle_timeout);
    hcm.request_timeout = settings.http_request_timeout.or(hcm.request_timeout);
    hcm.request_headers_timeout = settings.http_request_headers_timeout.or(hcm.request_headers_timeout);
    hcm.drain_timeout = settings.http_drain_timeout.or(hcm.drain_timeout);
    http2(hcm, settings);
    use connection_settings::HeadersWithUnderscoresAction as Underscores;
    let action = match settings.http_headers_with_underscores_action() {
        Underscores::HeadersWithUnderscoresUnspecified => None,
        Underscores::HeadersWithUnderscoresAllow => Some(HeadersWithUnderscoresAction::Allow),
        Underscores::HeadersWithUnderscoresRejectRequest => Some(HeadersWithUnderscoresAction::RejectRequest),
        Underscores::HeadersWithUnderscoresDropHeader => Some(HeadersWithUnderscoresAction::DropHeader),
    };
    if let Some(action) = action {
        hcm.common_http_protocol_options.get_or_insert_default().headers_with_underscores_action = action.into();
    }
    hcm.merge_slashes = settings.http_merge_slashes.unwrap_or(hcm.merge_slashes);
    use connection_settings::PathWithEscapedSlashesAction as Slashes;
    let action = match settings.http_path_with_escaped_slashes_action() {
        Slashes::PathWithEscapedSlashesUnspecified => return,
        Slashes::KeepUnchanged => PathWithEscapedSlashesAction::KeepUnchanged,
        Slashes::RejectRequest => PathWithEscapedSlashesAction::RejectRequest,
        Slashes::UnescapeAndRedirect => PathWithEscapedSlashesAction::UnescapeAndRedirect,
        Slashes::UnescapeAndForward => PathWithEscapedSlashesAction::UnescapeAndForward,
    };
    hcm.path_with_escaped_slashes_action = action.into();
}

fn http2(hcm: &mut HttpConnectionManager, settings: &ConnectionSettings) {
    let given = [
        settings.http_max_concurrent_streams,
        settings.http2_initial_stream_window_size,
        settings.http2_initial_connection_window_size,
    ];
    if given.iter().all(Option::is_none) {
        return;
    }
    let options = hcm.http2_protocol_options.get_or_insert_default();
    // A negative number would become a window of 4 GiB: it counts as not given.
    let [streams, stream_window, window] = given.map(|n| n.and_then(|n| u32::try_from(n).ok()));
    options.max_concurrent_streams = streams.or(options.max_concurrent_streams);
    options.initial_stream_window_size = stream_window.or(options.initial_stream_window_size);
    options.initial_connection_window_size = window.or(options.initial_connection_window_size);
}

/// Addresses of mesh networks, which count as internal; sorted, since the networks are a map.
fn internal_addresses(networks: &MeshNetworks) -> Option<InternalAddressConfig> {
    let mut prefixes: Vec<(IpAddr, u8)> = networks
        .networks
        .values()
        .flat_map(|n| &n.endpoints)
        .filter_map(|e| match &e.ne {
            Some(Ne::FromCidr(cidr)) => parse_prefix(cidr),
            _ => None,
        })
        .collect();
    if prefixes.is_empty() {
        return None;
    }
    prefixes.sort_unstable();
    let cidr_ranges = prefixes
        .into_iter()
        .map(|(ip, bits)| CidrRange { address_prefix: ip.to_string(), prefix_len: Some(u32::from(bits)) })
        .collect();
    Some(InternalAddressConfig { cidr_ranges, ..Default::default() })
}
