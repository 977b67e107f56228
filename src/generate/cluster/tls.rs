//! TLS to the upstream: which settings are in force, and the transport sockets made of them
//! (Istio's `buildUpstreamTLSSettings`, `applyUpstreamTLSSettings`, `applyUpstreamProxyProtocol`).
//!
//! A stock Envoy has no agent that serves the workload's certificate. It gets mutual TLS where its metadata names certificate
//! files, or where it proved its identity and the control plane issues its certificate; automatic mutual TLS without them
//! stays plaintext, and a rule that demands `ISTIO_MUTUAL` asks for the certificate over ADS, so that without one requests
//! fail rather than go out in the clear.

use std::borrow::Cow;

use super::{draft::Draft, inputs::ClusterInputs, tls_context::ContextBuilder};
use crate::{
    generate::{names, sds::Holder},
    proto::{
        envoy::{
            config::{
                cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType, TransportSocketMatch},
                core::v3::{ProxyProtocolConfig, TransportSocket, transport_socket::ConfigType},
            },
            extensions::transport_sockets::{
                proxy_protocol::v3::ProxyProtocolUpstreamTransport, raw_buffer::v3::RawBuffer,
            },
        },
        networking::{ClientTlsSettings, client_tls_settings::TlSmode, traffic_policy::ProxyProtocol},
        to_any, wkt,
    },
    push::authn::MtlsMode,
};

const PROXY_PROTOCOL_SOCKET: &str = "envoy.transport_sockets.upstream_proxy_protocol";

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UpstreamTls<'a> {
    /// The settings; identities and SNI filled in for `ISTIO_MUTUAL`.
    pub(super) settings: Cow<'a, ClientTlsSettings>,
    /// No rule asks for TLS: mutual TLS is used because both sides can.
    pub(super) automatic: bool,
}

impl<'a> UpstreamTls<'a> {
    /// The settings in force for a cluster; `None` is plaintext.
    pub(super) fn of(inputs: &ClusterInputs<'a>, written: Option<&'a ClientTlsSettings>) -> Option<Self> {
        let capabilities = inputs.capabilities;
        let external = inputs.service.mesh_external;
        let has_files = capabilities.certificates.is_some();
        if let Some(tls) = written {
            let as_written = Some(Self { settings: Cow::Borrowed(tls), automatic: false });
            let istio_mutual = tls.mode() == TlSmode::IstioMutual;
            if matches!(tls.mode(), TlSmode::Disable | TlSmode::Simple) {
                return as_written;
            }
            if has_files && (capabilities.istio_proxy || !istio_mutual) {
                if capabilities.flags.prefer_rule_tls_for_external && external {
                    return as_written;
                }
                return Some(Self { settings: Cow::Owned(own_files(inputs, tls)), automatic: false });
            }
            if !istio_mutual {
                return as_written;
            }
            let mut settings = istio_mutual_settings(inputs);
            if !tls.sni.is_empty() {
                settings.sni.clone_from(&tls.sni);
            }
            if !tls.subject_alt_names.is_empty() {
                settings.subject_alt_names.clone_from(&tls.subject_alt_names);
            }
            settings.insecure_skip_verify = tls.insecure_skip_verify;
            return Some(Self { settings: Cow::Owned(settings), automatic: false });
        }
        let possible = !external
            && inputs.mesh.config.enable_auto_mtls == Some(true)
            && !matches!(inputs.mtls_mode, MtlsMode::Unknown | MtlsMode::Disable)
            && (capabilities.holder != Holder::Absent || has_files);
        if !possible {
            return None;
        }
        let mut settings = istio_mutual_settings(inputs);
        if has_files && capabilities.istio_proxy {
            settings = own_files(inputs, &settings);
        }
        Some(Self { settings: Cow::Owned(settings), automatic: true })
    }
}

/// `ISTIO_MUTUAL` with the identities of the servers and the SNI by which gateways between networks route.
fn istio_mutual_settings(inputs: &ClusterInputs<'_>) -> ClientTlsSettings {
    let sni = if inputs.is_dynamic() {
        // The host is not known before the request.
        String::new()
    } else {
        names::dns_srv_subset_key(inputs.subset_name(), &inputs.service.hostname, inputs.port.port)
    };
    ClientTlsSettings {
        mode: TlSmode::IstioMutual.into(),
        subject_alt_names: inputs.service_accounts.to_vec(),
        sni,
        ..ClientTlsSettings::default()
    }
}

/// `MUTUAL` with the files that the proxy's metadata names.
fn own_files(inputs: &ClusterInputs<'_>, tls: &ClientTlsSettings) -> ClientTlsSettings {
    let files = inputs.capabilities.certificates.as_ref();
    let path = |p: fn(&super::capabilities::ClientCertificates) -> &std::sync::Arc<str>| {
        files.map(|f| p(f).to_string()).unwrap_or_default()
    };
    ClientTlsSettings {
        mode: TlSmode::Mutual.into(),
        ca_certificates: path(|f| &f.root),
        client_certificate: path(|f| &f.chain),
        private_key: path(|f| &f.key),
        subject_alt_names: tls.subject_alt_names.clone(),
        sni: tls.sni.clone(),
        insecure_skip_verify: tls.insecure_skip_verify,
        ..ClientTlsSettings::default()
    }
}

/// Puts the transport sockets for the settings in. Automatic mutual TLS goes only to endpoints that are labelled for it.
pub(super) fn apply(draft: &mut Draft, inputs: &ClusterInputs<'_>, tls: Option<&UpstreamTls<'_>>) {
    let Some(tls) = tls else {
        return;
    };
    let socket = ContextBuilder::of(inputs).socket(draft, &tls.settings);
    let by_original_destination =
        draft.cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    if tls.automatic && tls.settings.mode() == TlSmode::IstioMutual && !by_original_destination {
        draft.cluster.transport_socket_matches = vec![
            TransportSocketMatch {
                name: "tlsMode-istio".to_string(),
                r#match: Some(tls_mode_istio()),
                transport_socket: socket,
            },
            TransportSocketMatch {
                name: "tlsMode-disabled".to_string(),
                r#match: Some(wkt::Struct::default()),
                transport_socket: Some(raw_buffer()),
            },
        ];
    } else {
        draft.cluster.transport_socket = socket;
    }
}

/// Wraps all transport sockets in the PROXY protocol.
pub(super) fn apply_proxy_protocol(draft: &mut Draft, settings: Option<&ProxyProtocol>) {
    let Some(settings) = settings else {
        return;
    };
    let wrap = |inner: Option<TransportSocket>| TransportSocket {
        name: PROXY_PROTOCOL_SOCKET.to_string(),
        config_type: Some(ConfigType::TypedConfig(to_any(&ProxyProtocolUpstreamTransport {
            config: Some(ProxyProtocolConfig { version: settings.version, ..ProxyProtocolConfig::default() }),
            transport_socket: inner,
            ..ProxyProtocolUpstreamTransport::default()
        }))),
    };
    let cluster = &mut draft.cluster;
    if cluster.transport_socket_matches.is_empty() {
        let inner = cluster.transport_socket.take().unwrap_or_else(raw_buffer);
        cluster.transport_socket = Some(wrap(Some(inner)));
        return;
    }
    if let Some(socket) = cluster.transport_socket.take() {
        cluster.transport_socket = Some(wrap(Some(socket)));
    }
    for socket_match in &mut cluster.transport_socket_matches {
        let inner = socket_match.transport_socket.take();
        socket_match.transport_socket = Some(wrap(inner));
    }
}

fn tls_mode_istio() -> wkt::Struct {
    let istio = wkt::Value { kind: Some(wkt::value::Kind::StringValue("istio".to_string())) };
    wkt::Struct { fields: [("tlsMode".to_string(), istio)].into() }
}

fn raw_buffer() -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".to_string(),
        config_type: Some(ConfigType::TypedConfig(to_any(&RawBuffer {}))),
    }
}
