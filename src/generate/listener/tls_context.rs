//! Downstream TLS contexts: mutual TLS of the mesh on inbound chains, and the TLS settings of Gateways and Sidecar ingress
//! (Istio's `BuildInboundTLS`, `BuildListenerTLSContext`, `security/model`).
//!
//! Sources of certificates:
//! - Istio's proxy has an agent that serves `default`, `ROOTCA`, `file-cert:…` and `file-root:…` on the cluster `sds-grpc`.
//! - A stock Envoy has no agent. It is given paths of files with a watched directory in place of `file-…` names, and asks for
//!   `default` and `ROOTCA` over ADS. Without an answer a listener that needs them would not become ready, so inbound chains
//!   of the mesh's mutual TLS are generated for a stock Envoy only where its metadata names certificate files
//!   ([`has_workload_certificate`]).
//! - `credentialName` secrets are served by us over ADS (`kubernetes://…`), to both.

use super::builder::Builder;
use crate::generate::{
    compliance,
    names::{Direction, subset_key},
    sds,
};
use crate::model::credential::CA_SUFFIX;
use crate::proto::{
    envoy::{
        config::core::v3::{TransportSocket, transport_socket},
        extensions::transport_sockets::tls::v3::{
            CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, TlsCertificate,
            TlsParameters,
            certificate_validation_context::TrustChainVerification,
            common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
            tls_parameters::TlsProtocol,
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
    mesh::{MeshConfig, mesh_config::extension_provider::Provider, mesh_config::tls_config},
    networking::{
        ServerTlsSettings,
        server_tls_settings::{TlSmode, TlsProtocol as GivenProtocol},
    },
    to_any,
};

/// Ciphers of the mesh's mutual TLS where mesh settings have none.
const MESH_CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

/// The use of a TLS context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// HTTP (or opaque bytes) over TCP.
    Tcp,
    /// TCP of a gateway that ends TLS: mutual TLS may exchange peer metadata.
    TerminatedTcp,
    /// HTTP/3.
    Quic,
}

/// A TLS transport socket.
#[must_use]
pub fn transport_socket(context: &DownstreamTlsContext) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_string(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(to_any(context))),
    }
}

/// Whether the proxy can show a workload certificate on mutual TLS of the mesh: Istio's proxy always, a stock Envoy where its
/// metadata names files or a socket, or the control plane issues one.
#[must_use]
pub fn has_workload_certificate(builder: &Builder) -> bool {
    let metadata = &builder.view.metadata;
    sds::Holder::of(builder.view) != sds::Holder::Absent
        || (!metadata.tls_server_cert_chain.is_empty()
            && !metadata.tls_server_key.is_empty()
            && !metadata.tls_server_root_cert.is_empty())
}

/// The context of the mesh's mutual TLS on inbound chains. `http` chains offer HTTP only, others metadata exchange too.
#[must_use]
pub fn mesh_mutual(builder: &Builder, http: bool) -> DownstreamTlsContext {
    let features = builder.features();
    let mesh = builder.mesh();
    let mx = !http && features.enable_metadata_exchange && !features.disable_mx_alpn && builder.is_istio_proxy();
    let of_mesh = mesh.mesh_m_tls.as_ref();
    let ciphers = of_mesh.map(|m| m.cipher_suites.clone()).filter(|c| !c.is_empty());
    let mut common = CommonTlsContext {
        alpn_protocols: if mx { alpn_with_mx() } else { alpn_http() },
        tls_params: Some(TlsParameters {
            cipher_suites: ciphers.unwrap_or_else(|| MESH_CIPHERS.map(String::from).to_vec()),
            tls_minimum_protocol_version: minimum_version(of_mesh.map(|m| m.min_protocol_version())).into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let files = Files::of_workload(builder);
    let validation = Validation { trust_domains: &trust_domains(builder), ..Default::default() };
    files.apply(builder, &mut common, Some(&validation));
    compliance::enforce(features.compliance_policy, builder.is_istio_proxy(), &mut common);
    DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(true),
        ..Default::default()
    }
}

/// The context for TLS settings of a Gateway's server or a Sidecar's ingress listener.
#[must_use]
pub fn server(builder: &Builder, settings: &ServerTlsSettings, transport: Transport) -> DownstreamTlsContext {
    let mode = settings.mode();
    let features = builder.features();
    let istio_mutual = mode == TlSmode::IstioMutual;
    let alpn_protocols = match transport {
        Transport::Quic => vec!["h3".to_string()],
        Transport::TerminatedTcp if istio_mutual && !features.disable_mx_alpn && builder.is_istio_proxy() => {
            alpn_with_mx()
        }
        Transport::Tcp | Transport::TerminatedTcp => alpn_http(),
    };
    // Envoy's QUIC cannot ask for client certificates.
    let require = matches!(mode, TlSmode::Mutual | TlSmode::IstioMutual) && transport != Transport::Quic;
    let validates = require || mode == TlSmode::OptionalMutual;
    let mut common = CommonTlsContext { alpn_protocols, ..Default::default() };
    let validation = Validation {
        subject_alt_names: &settings.subject_alt_names,
        crl: &settings.ca_crl,
        accept_untrusted: settings.insecure_skip_verify == Some(true),
        ..Default::default()
    };
    if istio_mutual {
        Files::of_workload(builder).apply(builder, &mut common, validates.then_some(&validation));
    } else if !settings.credential_names.is_empty() || !settings.credential_name.is_empty() {
        apply_credentials(builder, settings, &mut common);
    } else {
        Files::of_settings(settings).apply(builder, &mut common, validates.then_some(&validation));
    }
    if matches!(mode, TlSmode::Simple | TlSmode::Mutual | TlSmode::OptionalMutual) {
        apply_parameters(builder.mesh(), settings, &mut common);
    }
    compliance::enforce(features.compliance_policy, builder.is_istio_proxy(), &mut common);
    DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(require),
        ..Default::default()
    }
}

fn alpn_http() -> Vec<String> {
    ["h2", "http/1.1"].map(String::from).to_vec()
}

fn alpn_with_mx() -> Vec<String> {
    ["istio-peer-exchange", "h2", "http/1.1"].map(String::from).to_vec()
}

/// The minimum TLS version of the mesh: 1.2 unless 1.3 is set.
#[must_use]
pub fn minimum_version(given: Option<tls_config::TlsProtocol>) -> TlsProtocol {
    match given {
        Some(tls_config::TlsProtocol::Tlsv13) => TlsProtocol::TlSv13,
        _ => TlsProtocol::TlSv12,
    }
}

/// Trust domains whose identities are accepted: the mesh's, its aliases, those of its CA certificates.
fn trust_domains(builder: &Builder) -> Vec<String> {
    if builder.features().skip_validate_trust_domain {
        return Vec::new();
    }
    let mesh = builder.mesh();
    let of_certificates = mesh.ca_certificates.iter().flat_map(|c| &c.trust_domains);
    let mut domains: Vec<String> = Vec::new();
    for domain in std::iter::once(&mesh.trust_domain).chain(&mesh.trust_domain_aliases).chain(of_certificates) {
        if !domain.is_empty() && !domains.contains(domain) {
            domains.push(domain.clone());
        }
    }
    domains
}

/// The checks of a client's certificate beyond its chain.
#[derive(Debug, Default)]
struct Validation<'a> {
    subject_alt_names: &'a [String],
    trust_domains: &'a [String],
    crl: &'a str,
    accept_untrusted: bool,
}

impl Validation<'_> {
    #[allow(deprecated, reason = "Istio's proxies of all supported versions read this field")]
    fn context(&self) -> CertificateValidationContext {
        let exact = self.subject_alt_names.iter().map(|n| MatchPattern::Exact(n.clone()));
        let prefix = self.trust_domains.iter().map(|d| MatchPattern::Prefix(format!("spiffe://{d}/")));
        CertificateValidationContext {
            match_subject_alt_names: exact.chain(prefix).map(matcher).collect(),
            crl: (!self.crl.is_empty()).then(|| sds::file(self.crl)),
            trust_chain_verification: trust(self.accept_untrusted).into(),
            ..Default::default()
        }
    }
}

fn matcher(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

fn trust(accept_untrusted: bool) -> TrustChainVerification {
    if accept_untrusted { TrustChainVerification::AcceptUntrusted } else { TrustChainVerification::VerifyTrustChain }
}

/// Certificates that lie in files beside the proxy; an empty path stands for the workload's own certificate or root.
#[derive(Debug, Default)]
struct Files<'a> {
    /// `(chain, key)`.
    certificates: Vec<(&'a str, &'a str)>,
    root: &'a str,
}

impl<'a> Files<'a> {
    fn of_workload(builder: &Builder<'a>) -> Self {
        let metadata = &builder.view.metadata;
        Self {
            certificates: vec![(&metadata.tls_server_cert_chain, &metadata.tls_server_key)],
            root: &metadata.tls_server_root_cert,
        }
    }

    fn of_settings(settings: &'a ServerTlsSettings) -> Self {
        let single = vec![(settings.server_certificate.as_str(), settings.private_key.as_str())];
        let several: Vec<_> =
            settings.tls_certificates.iter().map(|c| (c.server_certificate.as_str(), c.private_key.as_str())).collect();
        Self { certificates: if several.is_empty() { single } else { several }, root: &settings.ca_certificates }
    }

    fn apply(&self, builder: &Builder, common: &mut CommonTlsContext, validation: Option<&Validation>) {
        for (chain, key) in &self.certificates {
            let given = !chain.is_empty() && !key.is_empty();
            if given && !builder.is_istio_proxy() {
                common.tls_certificates.push(TlsCertificate {
                    certificate_chain: Some(sds::file(chain)),
                    private_key: Some(sds::file(key)),
                    watched_directory: sds::folder_of(chain),
                    ..Default::default()
                });
                continue;
            }
            let name = if given { sds::file_certificate(chain, key) } else { String::new() };
            common.tls_certificate_sds_secret_configs.push(secret_of_files(builder, &name, sds::DEFAULT));
        }
        let Some(validation) = validation else {
            return;
        };
        let mut context = validation.context();
        common.validation_context_type = Some(if !self.root.is_empty() && !builder.is_istio_proxy() {
            context.trusted_ca = Some(sds::file(self.root));
            context.watched_directory = sds::folder_of(self.root);
            ValidationContextType::ValidationContext(context)
        } else {
            let name = if self.root.is_empty() { String::new() } else { sds::file_root(self.root) };
            combined(context, secret_of_files(builder, &name, sds::ROOT_CA))
        });
    }
}

fn combined(context: CertificateValidationContext, secret: SdsSecretConfig) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(context),
        validation_context_sds_secret_config: Some(secret),
        ..Default::default()
    })
}

/// The secret made from files by this name, or the workload's own `fallback` when it is empty.
fn secret_of_files(builder: &Builder, name: &str, fallback: &str) -> SdsSecretConfig {
    match (name.is_empty(), builder.is_istio_proxy()) {
        (true, _) => sds::workload(fallback, sds::Holder::of(builder.view)),
        (false, true) => sds::files(name, builder.view.metadata.other("file-credential") == "true"),
        (false, false) => sds::ads(name),
    }
}

/// The secret behind a `credentialName`. One of an `sds://` provider whose service is not known is named for ADS,
/// which will not serve it: Envoy would refuse the whole listener for a TLS context without the secret.
#[must_use]
pub fn credential_secret(builder: &Builder, name: &str) -> SdsSecretConfig {
    let socket = has_credential_socket(builder);
    let by_default = || sds::credential(name, sds::Holder::of(builder.view), socket);
    let Some(resource) = name.strip_prefix(sds::EXTERNAL_PREFIX).filter(|_| !socket) else {
        return by_default();
    };
    let provider = builder.mesh().extension_providers.iter().find_map(|p| match &p.provider {
        Some(Provider::Sds(sds)) => Some(sds),
        _ => None,
    });
    match provider.and_then(|sds| provider_cluster(builder, &sds.service, sds.port)) {
        Some((host, cluster)) => sds::over_grpc(resource, &cluster, &host),
        None => by_default(),
    }
}

fn has_credential_socket(builder: &Builder) -> bool {
    builder.view.metadata.other("credential") == "true"
}

/// Host and cluster of a provider's service.
#[must_use]
pub fn provider_cluster(builder: &Builder, service: &str, port: u32) -> Option<(String, String)> {
    let found = builder.context.services.of_provider(service)?;
    Some((found.hostname.to_string(), subset_key(Direction::Outbound, "", &found.hostname, port)))
}

#[allow(deprecated, reason = "Istio's proxies of all supported versions read this field")]
fn apply_credentials(builder: &Builder, settings: &ServerTlsSettings, common: &mut CommonTlsContext) {
    let single = std::slice::from_ref(&settings.credential_name);
    let names = if settings.credential_names.is_empty() { single } else { settings.credential_names.as_slice() };
    common.tls_certificate_sds_secret_configs = names.iter().map(|n| credential_secret(builder, n)).collect();
    let exact = || settings.subject_alt_names.iter().map(|n| matcher(MatchPattern::Exact(n.clone()))).collect();
    if matches!(settings.mode(), TlSmode::Mutual | TlSmode::OptionalMutual) {
        let context = CertificateValidationContext {
            match_subject_alt_names: exact(),
            verify_certificate_spki: settings.verify_certificate_spki.clone(),
            verify_certificate_hash: settings.verify_certificate_hash.clone(),
            trust_chain_verification: trust(settings.insecure_skip_verify == Some(true)).into(),
            ..Default::default()
        };
        let own = &settings.ca_cert_credential_name;
        let first = names.first().map(|n| format!("{n}{CA_SUFFIX}")).unwrap_or_default();
        let ca = if own.is_empty() { first } else { own.clone() };
        common.validation_context_type = Some(combined(context, credential_secret(builder, &ca)));
    } else if !settings.subject_alt_names.is_empty() {
        let context = CertificateValidationContext { match_subject_alt_names: exact(), ..Default::default() };
        common.validation_context_type = Some(ValidationContextType::ValidationContext(context));
    }
}

/// Versions, ciphers and curves: the mesh's `tlsDefaults`, then the settings' own.
fn apply_parameters(mesh: &MeshConfig, settings: &ServerTlsSettings, common: &mut CommonTlsContext) {
    let mut parameters = TlsParameters::default();
    if let Some(defaults) = &mesh.tls_defaults {
        parameters.ecdh_curves.clone_from(&defaults.ecdh_curves);
        parameters.cipher_suites.clone_from(&defaults.cipher_suites);
        if defaults.min_protocol_version() != tls_config::TlsProtocol::TlsAuto {
            parameters.tls_minimum_protocol_version = minimum_version(Some(defaults.min_protocol_version())).into();
        }
    }
    if !settings.ecdh_curves.is_empty() {
        parameters.ecdh_curves.clone_from(&settings.ecdh_curves);
    }
    if !settings.cipher_suites.is_empty() {
        parameters.cipher_suites.clone_from(&settings.cipher_suites);
    }
    for (given, field) in [
        (settings.min_protocol_version(), &mut parameters.tls_minimum_protocol_version),
        (settings.max_protocol_version(), &mut parameters.tls_maximum_protocol_version),
    ] {
        if given != GivenProtocol::TlsAuto {
            *field = version(given).into();
        }
    }
    if parameters != TlsParameters::default() {
        common.tls_params = Some(parameters);
    }
}

fn version(given: GivenProtocol) -> TlsProtocol {
    match given {
        GivenProtocol::TlsAuto => TlsProtocol::TlsAuto,
        GivenProtocol::Tlsv10 => TlsProtocol::TlSv10,
        GivenProtocol::Tlsv11 => TlsProtocol::TlSv11,
        GivenProtocol::Tlsv12 => TlsProtocol::TlSv12,
        GivenProtocol::Tlsv13 => TlsProtocol::TlSv13,
    }
}
