//! The names of the secrets that clusters and listeners fetch over ADS: the names that their proxy will subscribe to.

use std::collections::BTreeSet;

use prost::{Message, Name};

use crate::proto::{
    envoy::{
        config::{
            cluster::v3::Cluster,
            core::v3::{TransportSocket, config_source::ConfigSourceSpecifier, transport_socket},
            listener::v3::Listener,
        },
        extensions::transport_sockets::{
            internal_upstream::v3::InternalUpstreamTransport,
            proxy_protocol::v3::ProxyProtocolUpstreamTransport,
            quic::v3::QuicDownstreamTransport,
            tls::v3::{
                CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, UpstreamTlsContext,
                common_tls_context::ValidationContextType,
            },
        },
    },
    wkt::Any,
};

/// The names, sorted.
#[must_use]
pub fn names(clusters: &[Cluster], listeners: &[Listener]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for cluster in clusters {
        let matches = cluster.transport_socket_matches.iter().filter_map(|m| m.transport_socket.as_ref());
        cluster.transport_socket.iter().chain(matches).for_each(|s| of_socket(s, &mut names));
    }
    for listener in listeners {
        let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
        chains.filter_map(|c| c.transport_socket.as_ref()).for_each(|s| of_socket(s, &mut names));
    }
    names.into_iter().collect()
}

fn of_socket(socket: &TransportSocket, names: &mut BTreeSet<String>) {
    let Some(transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else { return };
    if let Some(context) = unpack::<DownstreamTlsContext>(config) {
        of_context(context.common_tls_context.as_ref(), names);
    } else if let Some(context) = unpack::<UpstreamTlsContext>(config) {
        of_context(context.common_tls_context.as_ref(), names);
    } else if let Some(quic) = unpack::<QuicDownstreamTransport>(config) {
        of_context(quic.downstream_tls_context.and_then(|c| c.common_tls_context).as_ref(), names);
    } else if let Some(inner) = unpack::<InternalUpstreamTransport>(config).and_then(|t| t.transport_socket) {
        of_socket(&inner, names);
    } else if let Some(inner) = unpack::<ProxyProtocolUpstreamTransport>(config).and_then(|t| t.transport_socket) {
        of_socket(&inner, names);
    }
}

fn unpack<M: Message + Name + Default>(any: &Any) -> Option<M> {
    if any.type_url != M::type_url() {
        return None;
    }
    M::decode(any.value.as_slice()).ok()
}

fn of_context(context: Option<&CommonTlsContext>, names: &mut BTreeSet<String>) {
    let Some(context) = context else { return };
    let validation = match &context.validation_context_type {
        Some(ValidationContextType::ValidationContextSdsSecretConfig(secret)) => Some(secret),
        Some(ValidationContextType::CombinedValidationContext(combined)) => {
            combined.validation_context_sds_secret_config.as_ref()
        }
        _ => None,
    };
    let secrets = context.tls_certificate_sds_secret_configs.iter().chain(validation);
    names.extend(secrets.filter(|s| is_ads(s)).map(|s| s.name.clone()));
}

fn is_ads(secret: &SdsSecretConfig) -> bool {
    let source = secret.sds_config.as_ref().and_then(|s| s.config_source_specifier.as_ref());
    matches!(source, Some(ConfigSourceSpecifier::Ads(_)))
}
