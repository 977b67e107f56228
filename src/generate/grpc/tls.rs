//! The TLS context of gRPC: certificates come from the provider instance `default` of the client's bootstrap. Both the
//! current fields and those that older clients read are set.

use crate::proto::envoy::{
    extensions::transport_sockets::tls::v3::{
        CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
        common_tls_context::{
            CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
        },
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};

/// The only name of a transport socket that gRPC accepts.
pub(super) const TRANSPORT_SOCKET: &str = "envoy.transport_sockets.tls";

#[allow(deprecated, reason = "older gRPC clients read only the deprecated provider fields")]
pub(super) fn common_context(sans: &[String]) -> CommonTlsContext {
    let plugin = |name: &str| CertificateProviderPluginInstance {
        instance_name: "default".to_string(),
        certificate_name: name.to_string(),
    };
    let older = |name: &str| CertificateProviderInstance {
        instance_name: "default".to_string(),
        certificate_name: name.to_string(),
    };
    let exact =
        |san: &String| StringMatcher { match_pattern: Some(MatchPattern::Exact(san.clone())), ignore_case: false };
    CommonTlsContext {
        tls_certificate_provider_instance: Some(plugin("default")),
        tls_certificate_certificate_provider_instance: Some(older("default")),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(
            CombinedCertificateValidationContext {
                default_validation_context: Some(CertificateValidationContext {
                    match_subject_alt_names: sans.iter().map(exact).collect(),
                    ca_certificate_provider_instance: Some(plugin("ROOTCA")),
                    ..CertificateValidationContext::default()
                }),
                validation_context_certificate_provider_instance: Some(older("ROOTCA")),
                ..CombinedCertificateValidationContext::default()
            },
        )),
        ..CommonTlsContext::default()
    }
}
