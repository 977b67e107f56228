//! The properties of a proxy and the feature flags that its clusters depend on.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use crate::{
    generate::{dns_cache, proxy_config, sds},
    model::{Features, NodeType, features::CompliancePolicy},
    proto::envoy::config::cluster::v3::cluster::DnsLookupFamily,
    push::{ProxyView, PushContext},
};

/// Certificates of a proxy by path, from its metadata `TLS_CLIENT_…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificates {
    /// Certificate chain.
    pub chain: Arc<str>,
    /// Private key.
    pub key: Arc<str>,
    /// Root certificate; empty is the system's.
    pub root: Arc<str>,
}

/// The properties of a proxy and the flags that its clusters depend on. Proxies with equal capabilities get equal clusters for
/// equal services and rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Sidecar, router, …
    pub node_type: NodeType,
    /// Istio's own build of Envoy, with an agent that serves its certificates.
    pub istio_proxy: bool,
    /// A stock Envoy that counts: clusters tell it their services.
    pub counts: bool,
    /// The address families of DNS look-ups.
    pub dns_lookup_family: DnsLookupFamily,
    /// HTTP/1.1 header names keep their case.
    pub preserve_header_case: bool,
    /// The source of its workload certificate.
    pub holder: sds::Holder,
    /// Certificates that the proxy has as files.
    pub certificates: Option<ClientCertificates>,
    /// The path of the system's CA certificates for a stock Envoy: its metadata, else the flag.
    pub system_ca_file: Arc<str>,
    /// A local SDS server serves `credentialName` secrets.
    pub credential_socket: bool,
    /// A local SDS server serves files.
    pub file_credential_socket: bool,
    /// Flags of the process.
    pub flags: Flags,
    stamp: u64,
}

/// The feature flags that clusters depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the flags of that name in Features")]
pub struct Flags {
    pub metadata_exchange: bool,
    pub disable_mx_alpn: bool,
    pub mx_additional_labels: Vec<String>,
    pub disable_track_remaining: bool,
    pub telemetry_label: bool,
    pub locality_weighted_lb: bool,
    pub eds_for_headless: bool,
    pub redis_filter: bool,
    pub prefer_rule_tls_for_external: bool,
    pub send_unhealthy: bool,
    pub auto_send_unhealthy: bool,
    pub dual_stack: bool,
    pub dns_cares_udp_max_queries: u32,
    pub dns_jitter: Duration,
    pub persistent_session_label: String,
    pub persistent_session_header_label: String,
    pub compliance_policy: CompliancePolicy,
}

impl Flags {
    fn of(features: &Features) -> Self {
        Self {
            metadata_exchange: features.enable_metadata_exchange,
            mx_additional_labels: features.mx_additional_labels.0.clone(),
            disable_mx_alpn: features.disable_mx_alpn,
            disable_track_remaining: features.disable_track_remaining_cb_metrics,
            telemetry_label: features.enable_telemetry_label,
            locality_weighted_lb: features.enable_locality_weighted_lb_config,
            eds_for_headless: features.enable_eds_for_headless_services,
            redis_filter: features.enable_redis_filter,
            prefer_rule_tls_for_external: features.prefer_destinationrule_tls_for_external_services,
            send_unhealthy: features.send_unhealthy_endpoints,
            auto_send_unhealthy: features.auto_send_unhealthy_endpoints,
            dual_stack: features.istio_dual_stack,
            dns_cares_udp_max_queries: features.dns_cares_udp_max_queries,
            dns_jitter: features.dns_jitter_duration,
            persistent_session_label: features.persistent_session_label.clone(),
            persistent_session_header_label: features.persistent_session_header_label.clone(),
            compliance_policy: features.compliance_policy,
        }
    }
}

impl Capabilities {
    /// The capabilities of the proxy behind a view.
    #[must_use]
    pub fn of(context: &PushContext, view: &ProxyView) -> Self {
        let metadata = &view.metadata;
        let set = |key: &str| metadata.other.get(key).is_some_and(|v| v == "true");
        let certificates = (!metadata.tls_client_cert_chain.is_empty()).then(|| ClientCertificates {
            chain: metadata.tls_client_cert_chain.clone(),
            key: metadata.tls_client_key.clone(),
            root: metadata.tls_client_root_cert.clone(),
        });
        let mut capabilities = Self {
            node_type: view.node_type,
            istio_proxy: view.is_istio_proxy(),
            counts: view.counts,
            holder: sds::Holder::of(view),
            dns_lookup_family: dns_cache::lookup_family(context.features(), view),
            preserve_header_case: preserve_header_case(context, view),
            certificates,
            system_ca_file: match metadata.other("PILOTHOUSE_SYSTEM_CA_FILE") {
                "" => context.features().system_ca_file.as_str().into(),
                own => own.into(),
            },
            credential_socket: set("credential"),
            file_credential_socket: set("file-credential"),
            flags: Flags::of(context.features()),
            stamp: 0,
        };
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        capabilities.hash(&mut hasher);
        capabilities.stamp = hasher.finish();
        capabilities
    }

    /// Hash of the content: equal stamps mean equal capabilities.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Upstream connections carry Istio's metadata exchange.
    #[must_use]
    pub fn metadata_exchange(&self) -> bool {
        self.istio_proxy && self.flags.metadata_exchange
    }
}

/// `proxyHeaders.preserveHttp1HeaderCase` of the proxy's own settings, else of the mesh's.
fn preserve_header_case(context: &PushContext, view: &ProxyView) -> bool {
    let headers = proxy_config::effective(context, view).proxy_headers;
    headers.and_then(|h| h.preserve_http1_header_case) == Some(true)
}
