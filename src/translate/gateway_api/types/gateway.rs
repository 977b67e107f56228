//! GatewayClass, Gateway, ListenerSet, ReferenceGrant.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::{ObjectReference, RouteGroupKind, or_default};

/// `spec` of a GatewayClass.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    #[serde(deserialize_with = "or_default")]
    pub controller_name: String,
}

/// `spec` of a Gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    #[serde(deserialize_with = "or_default")]
    pub gateway_class_name: String,
    #[serde(deserialize_with = "or_default")]
    pub listeners: Vec<Listener>,
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<Address>,
    pub infrastructure: Option<Infrastructure>,
    pub allowed_listeners: Option<AllowedListeners>,
    pub tls: Option<GatewayTls>,
}

/// A requested address of a Gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    pub r#type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub value: String,
}

/// `infrastructure`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Infrastructure {
    pub parameters_ref: Option<ParametersReference>,
}

/// `infrastructure.parametersRef`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParametersReference {
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// ListenerSets that may attach.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedListeners {
    pub namespaces: Option<Namespaces>,
}

/// Namespaces, by rule or by selector.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespaces {
    pub from: Option<String>,
    pub selector: Option<LabelSelector>,
}

/// A listener of a Gateway or, in the same form, of a ListenerSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub hostname: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub port: u32,
    #[serde(deserialize_with = "or_default")]
    pub protocol: String,
    pub tls: Option<ListenerTls>,
    pub allowed_routes: Option<AllowedRoutes>,
}

/// `tls` of a listener.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    pub mode: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub certificate_refs: Vec<ObjectReference>,
    #[serde(deserialize_with = "or_default")]
    pub options: BTreeMap<String, String>,
}

/// `allowedRoutes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    pub namespaces: Option<Namespaces>,
    #[serde(deserialize_with = "or_default")]
    pub kinds: Vec<RouteGroupKind>,
}

/// `tls` of a Gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayTls {
    pub backend: Option<BackendTls>,
    pub frontend: Option<FrontendTls>,
}

/// `tls.backend`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTls {
    pub client_certificate_ref: Option<ObjectReference>,
}

/// `tls.frontend`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTls {
    #[serde(deserialize_with = "or_default")]
    pub default: FrontendTlsConfig,
    #[serde(deserialize_with = "or_default")]
    pub per_port: Vec<PortTls>,
}

/// `tls.frontend.perPort[]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortTls {
    #[serde(deserialize_with = "or_default")]
    pub port: u32,
    #[serde(deserialize_with = "or_default")]
    pub tls: FrontendTlsConfig,
}

/// Validation settings for client certificates.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendTlsConfig {
    pub validation: Option<FrontendValidation>,
}

/// `validation` of a frontend.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FrontendValidation {
    #[serde(rename = "caCertificateRefs", deserialize_with = "or_default")]
    pub ca_certificate_refs: Vec<ObjectReference>,
    #[serde(deserialize_with = "or_default")]
    pub mode: String,
}

/// `spec` of a ListenerSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetSpec {
    #[serde(deserialize_with = "or_default")]
    pub parent_ref: ObjectReference,
    #[serde(deserialize_with = "or_default")]
    pub listeners: Vec<Listener>,
}

/// `spec` of a ReferenceGrant.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReferenceGrantSpec {
    #[serde(deserialize_with = "or_default")]
    pub from: Vec<GrantFrom>,
    #[serde(deserialize_with = "or_default")]
    pub to: Vec<GrantTo>,
}

/// A kind and namespace that may refer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantFrom {
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
}

/// A kind, optionally with a name, that may be referred to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantTo {
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    pub name: Option<String>,
}
