//! TLS contexts of upstream connections (Istio's `buildUpstreamClusterTLSContext`, `constructUpstreamTLS`).

use super::{
    capabilities::{Capabilities, ClientCertificates},
    draft::Draft,
    inputs::ClusterInputs,
};
use crate::{
    generate::{compliance, sds},
    model::{NodeType, Port, Registry, credential::CA_SUFFIX},
    proto::{
        envoy::{
            config::core::v3::{TransportSocket, transport_socket::ConfigType},
            extensions::transport_sockets::tls::v3::{
                CertificateValidationContext, CommonTlsContext, SdsSecretConfig, TlsCertificate, TlsParameters,
                UpstreamTlsContext,
                common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
                tls_parameters::TlsProtocol,
            },
            r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
        },
        mesh::MeshConfig,
        networking::{ClientTlsSettings, client_tls_settings::TlSmode},
        to_any,
    },
};

/// `caCertificates` of a rule that names none: the certificates of the system, which Istio's agent finds.
const SYSTEM: &str = "system";

/// The inputs of a TLS context besides the settings.
pub(super) struct ContextBuilder<'a> {
    /// Mesh settings.
    pub(super) mesh: &'a MeshConfig,
    /// The proxy.
    pub(super) capabilities: &'a Capabilities,
    /// The port, where there is one.
    pub(super) port: Option<&'a Port>,
    /// Identities of the servers, used where the settings name none.
    pub(super) service_accounts: &'a [String],
    /// The rule is for chosen workloads, so sidecars may fetch its credentials.
    pub(super) rule_has_selector: bool,
}

impl<'a> ContextBuilder<'a> {
    /// For a cluster of a service.
    pub(super) fn of(inputs: &ClusterInputs<'a>) -> Self {
        let external = inputs.service.registry == Registry::External;
        Self {
            mesh: &inputs.mesh.config,
            capabilities: inputs.capabilities,
            port: Some(inputs.port),
            service_accounts: if external { inputs.service_accounts } else { &[] },
            rule_has_selector: inputs.destination_rule().is_some_and(|r| r.workload_selector.is_some()),
        }
    }

    /// The transport socket for the settings; `None` is plaintext.
    pub(super) fn socket(&self, draft: &mut Draft, tls: &ClientTlsSettings) -> Option<TransportSocket> {
        let mut context = self.context(draft, tls)?;
        if let Some(common) = &mut context.common_tls_context {
            compliance::enforce(self.capabilities.flags.compliance_policy, self.capabilities.istio_proxy, common);
        }
        Some(TransportSocket {
            name: "envoy.transport_sockets.tls".to_string(),
            config_type: Some(ConfigType::TypedConfig(to_any(&context))),
        })
    }

    fn context(&self, draft: &mut Draft, tls: &ClientTlsSettings) -> Option<UpstreamTlsContext> {
        let originates = matches!(tls.mode(), TlSmode::Simple | TlSmode::Mutual);
        // A credential in a rule for all would be handed to sidecars that must not have it, and keep those waiting.
        let is_secret = !tls.credential_name.is_empty() && !tls.credential_name.starts_with("configmap://");
        if is_secret && originates && self.capabilities.node_type == NodeType::Sidecar && !self.rule_has_selector {
            return None;
        }
        match tls.mode() {
            TlSmode::Disable => None,
            TlSmode::IstioMutual => Some(self.istio_mutual(draft, tls)),
            TlSmode::Simple | TlSmode::Mutual => self.originate(draft, tls),
        }
    }

    /// Mutual TLS with the workload's own certificate.
    fn istio_mutual(&self, draft: &mut Draft, tls: &ClientTlsSettings) -> UpstreamTlsContext {
        let mut common = common_context();
        let identities = for_names(&tls.subject_alt_names);
        match (&self.capabilities.certificates, self.capabilities.istio_proxy) {
            (Some(files), false) => {
                common.tls_certificates = vec![certificate(files)];
                common.validation_context_type =
                    Some(ValidationContextType::ValidationContext(self.trust(&files.root, identities)));
            }
            _ => {
                let secret = |name| sds::workload(name, self.capabilities.holder);
                common.tls_certificate_sds_secret_configs = vec![secret(sds::DEFAULT)];
                common.validation_context_type = Some(combined(identities, secret(sds::ROOT_CA)));
            }
        }
        common.alpn_protocols = self.in_mesh_alpn(draft);
        let sni = if tls.sni.is_empty() && !draft.dynamic { draft.cluster.name.clone() } else { tls.sni.clone() };
        if draft.dynamic {
            self.verify_by_host(draft, tls);
        }
        UpstreamTlsContext { common_tls_context: Some(common), sni, ..UpstreamTlsContext::default() }
    }

    /// The ALPN offer to a sidecar. Istio's proxy adds the protocol per request; for a stock Envoy, which cannot, the port's
    /// declared protocol is named here, so that the server detects the right protocol.
    fn in_mesh_alpn(&self, draft: &mut Draft) -> Vec<String> {
        let http2 = draft.http2().is_some();
        let http = self.port.is_some_and(|p| p.protocol.is_http());
        let exchange = self.capabilities.flags.metadata_exchange && !self.capabilities.flags.disable_mx_alpn;
        let protocols: &[&str] = match (self.capabilities.istio_proxy, http2) {
            (true, true) if exchange => &["istio-peer-exchange", "istio", "h2"],
            (true, true) => &["istio", "h2"],
            (true, false) if exchange => &["istio-peer-exchange", "istio"],
            (false, true) => &["istio-h2", "istio", "h2"],
            (false, false) if http => &["istio-http/1.1", "istio", "http/1.1"],
            _ => &["istio"],
        };
        protocols.iter().map(|p| (*p).to_string()).collect()
    }

    /// TLS of the user's own, with or without a client certificate.
    fn originate(&self, draft: &mut Draft, tls: &ClientTlsSettings) -> Option<UpstreamTlsContext> {
        self.verify_by_host(draft, tls);
        let mut common = common_context();
        let names = if tls.subject_alt_names.is_empty() { self.service_accounts } else { &tls.subject_alt_names };
        if tls.credential_name.is_empty() {
            self.add_files(&mut common, tls, names)?;
        } else {
            self.add_credential(&mut common, tls, names);
        }
        if let (Some(defaults), Some(params)) = (&self.mesh.tls_defaults, &mut common.tls_params) {
            params.ecdh_curves.clone_from(&defaults.ecdh_curves);
            params.cipher_suites.clone_from(&defaults.cipher_suites);
        }
        if draft.http2().is_some() {
            common.alpn_protocols = vec!["h2".to_string()];
        }
        Some(UpstreamTlsContext {
            common_tls_context: Some(common),
            sni: tls.sni.clone(),
            ..UpstreamTlsContext::default()
        })
    }

    fn add_credential(&self, common: &mut CommonTlsContext, tls: &ClientTlsSettings, names: &[String]) {
        let secret = |name: &str| sds::credential(name, self.capabilities.holder, self.capabilities.credential_socket);
        if tls.mode() == TlSmode::Mutual {
            common.tls_certificate_sds_secret_configs = vec![secret(&tls.credential_name)];
        }
        if tls.insecure_skip_verify != Some(true) {
            let ca = secret(&format!("{}{CA_SUFFIX}", tls.credential_name));
            common.validation_context_type = Some(combined(for_names(names), ca));
        }
    }

    /// `None` when a client certificate is wanted and none is named: then there is no TLS at all, as in Istio.
    fn add_files(&self, common: &mut CommonTlsContext, tls: &ClientTlsSettings, names: &[String]) -> Option<()> {
        let root = if tls.ca_certificates.is_empty() { SYSTEM } else { &tls.ca_certificates };
        let stock = !self.capabilities.istio_proxy;
        let secret = |name: String| sds::files(&name, self.capabilities.file_credential_socket);
        if tls.mode() == TlSmode::Mutual {
            if tls.client_certificate.is_empty() || tls.private_key.is_empty() {
                return None;
            }
            if stock {
                let files = ClientCertificates {
                    chain: tls.client_certificate.as_str().into(),
                    key: tls.private_key.as_str().into(),
                    root: "".into(),
                };
                common.tls_certificates = vec![certificate(&files)];
            } else {
                let name = sds::file_certificate(&tls.client_certificate, &tls.private_key);
                common.tls_certificate_sds_secret_configs = vec![secret(name)];
            }
        }
        if tls.insecure_skip_verify == Some(true) {
            let unchecked = CertificateValidationContext::default();
            common.validation_context_type = Some(ValidationContextType::ValidationContext(unchecked));
            return Some(());
        }
        let identities = CertificateValidationContext {
            crl: (!tls.ca_crl.is_empty()).then(|| sds::file(&tls.ca_crl)),
            ..for_names(names)
        };
        common.validation_context_type = Some(if stock {
            ValidationContextType::ValidationContext(self.trust(root, identities))
        } else {
            combined(identities, secret(sds::file_root(root)))
        });
        Some(())
    }

    /// Trusts a file, or the system's certificates. Envoy has no setting that means those wherever they are; without the file
    /// it refuses the cluster, which is better than to trust everybody.
    fn trust(&self, root: &str, mut context: CertificateValidationContext) -> CertificateValidationContext {
        let system = root.is_empty() || root == SYSTEM;
        let path = if system { &*self.capabilities.system_ca_file } else { root };
        context.trusted_ca = Some(sds::file(path));
        context.watched_directory = sds::folder_of(path);
        context
    }

    /// Without an SNI the request's host is taken; without names the certificate has to be for that host.
    fn verify_by_host(&self, draft: &mut Draft, tls: &ClientTlsSettings) {
        let unchecked = tls.insecure_skip_verify == Some(true);
        let auto_sni = tls.sni.is_empty();
        let auto_san = !unchecked && (draft.dynamic || (auto_sni && tls.subject_alt_names.is_empty()));
        if draft.dynamic && (unchecked || !auto_sni || !auto_san) {
            super::dynamic::allow_insecure_options(&mut draft.cluster);
        }
        if auto_sni || auto_san {
            let options = draft.http().upstream_http_protocol_options.get_or_insert_default();
            options.auto_sni |= auto_sni;
            options.auto_san_validation |= auto_san;
        }
    }
}

fn common_context() -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..TlsParameters::default()
        }),
        ..CommonTlsContext::default()
    }
}

fn combined(identities: CertificateValidationContext, ca: SdsSecretConfig) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(identities),
        validation_context_sds_secret_config: Some(ca),
        ..CombinedCertificateValidationContext::default()
    })
}

fn certificate(files: &ClientCertificates) -> TlsCertificate {
    TlsCertificate {
        certificate_chain: Some(sds::file(&files.chain)),
        private_key: Some(sds::file(&files.key)),
        watched_directory: sds::folder_of(&files.chain),
        ..TlsCertificate::default()
    }
}

/// Accepts a certificate that has one of these names; any when there are none.
#[allow(deprecated, reason = "Istio still uses the untyped list, which matches names of every type")]
fn for_names(names: &[String]) -> CertificateValidationContext {
    let matcher = |name: &String| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(name.clone())),
        ..StringMatcher::default()
    };
    CertificateValidationContext {
        match_subject_alt_names: names.iter().map(matcher).collect(),
        ..CertificateValidationContext::default()
    }
}
