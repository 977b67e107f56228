//! BackendTLSPolicy, XBackendTrafficPolicy, XBackend, InferencePool.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ObjectReference, or_default};

/// The target of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetReference {
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub section_name: Option<String>,
}

/// `spec` of a BackendTLSPolicy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsPolicySpec {
    #[serde(deserialize_with = "or_default")]
    pub target_refs: Vec<TargetReference>,
    #[serde(deserialize_with = "or_default")]
    pub validation: BackendValidation,
}

/// Settings for the validation of a backend's certificate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendValidation {
    #[serde(rename = "caCertificateRefs", deserialize_with = "or_default")]
    pub ca_certificate_refs: Vec<ObjectReference>,
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub hostname: String,
    #[serde(deserialize_with = "or_default")]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A subject alternative name that the certificate may have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubjectAltName {
    #[serde(deserialize_with = "or_default")]
    pub r#type: String,
    #[serde(deserialize_with = "or_default")]
    pub hostname: String,
    #[serde(deserialize_with = "or_default")]
    pub uri: String,
}

/// `spec` of an XBackendTrafficPolicy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTrafficPolicySpec {
    #[serde(deserialize_with = "or_default")]
    pub target_refs: Vec<TargetReference>,
    pub retry_constraint: Option<RetryConstraint>,
    pub session_persistence: Option<serde_json::Value>,
}

/// `retryConstraint`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryConstraint {
    #[serde(deserialize_with = "or_default")]
    pub budget: Budget,
    pub min_retry_rate: Option<RequestRate>,
}

/// `retryConstraint.budget`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    pub percent: Option<i32>,
    pub interval: Option<String>,
}

/// `retryConstraint.minRetryRate`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRate {
    pub count: Option<u32>,
}

/// `spec` of an XBackend.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendSpec {
    #[serde(deserialize_with = "or_default")]
    pub r#type: String,
    pub external_hostname: Option<ExternalHostname>,
    #[serde(deserialize_with = "or_default")]
    pub port: BackendPort,
    pub tls: Option<BackendTlsSettings>,
}

/// `externalHostname`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalHostname {
    #[serde(deserialize_with = "or_default")]
    pub hostname: String,
}

/// `port` of an XBackend.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendPort {
    #[serde(deserialize_with = "or_default")]
    pub port: u32,
}

/// `tls` of an XBackend.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsSettings {
    #[serde(deserialize_with = "or_default")]
    pub mode: String,
    #[serde(deserialize_with = "or_default")]
    pub validation: BackendValidation,
}

/// `spec` of an InferencePool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePoolSpec {
    #[serde(deserialize_with = "or_default")]
    pub endpoint_picker_ref: EndpointPickerReference,
    #[serde(deserialize_with = "or_default")]
    pub selector: PoolSelector,
    #[serde(deserialize_with = "or_default")]
    pub target_ports: Vec<PoolPort>,
}

/// Selector of the Pods of a pool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSelector {
    #[serde(deserialize_with = "or_default")]
    pub match_labels: BTreeMap<String, String>,
}

/// A port of a pool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolPort {
    #[serde(deserialize_with = "or_default")]
    pub number: u32,
}

/// Reference to the endpoint picker's service.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPickerReference {
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}
