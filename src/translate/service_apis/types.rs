//! Objects of the service APIs (v0.1 to v0.4, all `v1alpha1`), as written. Absent fields get the CRD's default, which an API
//! server would fill in.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, de::IgnoredAny};

use crate::{model::Kind, translate::decoded::or_default};

/// `spec` of a GatewayClass.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    #[serde(deserialize_with = "or_default")]
    pub controller: String,
}

/// `spec` of a Gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    #[serde(deserialize_with = "or_default")]
    pub gateway_class_name: String,
    #[serde(deserialize_with = "or_default")]
    pub listeners: Vec<Listener>,
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<IgnoredAny>,
}

/// A listener of a Gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    pub hostname: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub port: u32,
    #[serde(deserialize_with = "or_default")]
    pub protocol: String,
    pub tls: Option<ListenerTls>,
    #[serde(deserialize_with = "or_default")]
    pub routes: RouteBinding,
}

/// `tls` of a listener.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    #[serde(deserialize_with = "or_default")]
    pub mode: TlsMode,
    pub certificate_ref: Option<Reference>,
}

/// The place of TLS termination.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsMode {
    #[default]
    Terminate,
    Passthrough,
}

/// `routes` of a listener: the routes that it admits.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteBinding {
    pub group: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub selector: LabelSelector,
    #[serde(deserialize_with = "or_default")]
    pub namespaces: RouteNamespaces,
}

/// `routes.namespaces`: the namespaces of these routes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteNamespaces {
    #[serde(deserialize_with = "or_default")]
    pub from: RouteSelect,
    #[serde(deserialize_with = "or_default")]
    pub selector: LabelSelector,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum RouteSelect {
    All,
    Selector,
    #[default]
    Same,
}

/// `spec` of any route; rules differ by kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "R: Deserialize<'de>")]
pub struct RouteSpec<R> {
    #[serde(deserialize_with = "or_default")]
    pub gateways: RouteGateways,
    #[serde(deserialize_with = "or_default")]
    pub hostnames: Vec<String>,
    pub tls: Option<IgnoredAny>,
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<R>,
}

impl<R> Default for RouteSpec<R> {
    fn default() -> Self {
        Self { gateways: RouteGateways::default(), hostnames: Vec::new(), tls: None, rules: Vec::new() }
    }
}

/// `gateways` of a route: the Gateways that it admits.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteGateways {
    #[serde(deserialize_with = "or_default")]
    pub allow: GatewayAllow,
    #[serde(deserialize_with = "or_default")]
    pub gateway_refs: Vec<GatewayReference>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum GatewayAllow {
    All,
    FromList,
    #[default]
    SameNamespace,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayReference {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
}

/// A rule of an HTTPRoute.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRule {
    #[serde(deserialize_with = "or_default")]
    pub matches: Vec<HttpMatch>,
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
    #[serde(deserialize_with = "or_default")]
    pub forward_to: Vec<ForwardTo>,
}

/// The conditions of a match on an HTTP request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatch {
    #[serde(deserialize_with = "or_default")]
    pub path: PathMatch,
    #[serde(deserialize_with = "or_default")]
    pub headers: ValueMatch,
    #[serde(deserialize_with = "or_default")]
    pub query_params: ValueMatch,
    pub extension_ref: Option<Reference>,
}

/// A match of a path.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathMatch {
    #[serde(deserialize_with = "or_default")]
    pub r#type: PathMatchType,
    pub value: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PathMatchType {
    Exact,
    #[default]
    Prefix,
    RegularExpression,
    ImplementationSpecific,
}

/// A match on headers or query parameters: `values` by name, all of which must match.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ValueMatch {
    #[serde(deserialize_with = "or_default")]
    pub r#type: ValueMatchType,
    #[serde(deserialize_with = "or_default")]
    pub values: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ValueMatchType {
    #[default]
    Exact,
    RegularExpression,
    ImplementationSpecific,
}

/// A filter of a rule or of a destination.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    #[serde(deserialize_with = "or_default")]
    pub r#type: String,
    #[serde(deserialize_with = "or_default")]
    pub request_header_modifier: HeaderModifier,
}

/// Headers to set, add and remove.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderModifier {
    #[serde(deserialize_with = "or_default")]
    pub set: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub add: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub remove: Vec<String>,
}

/// A rule of a TCPRoute or TLSRoute.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRule {
    #[serde(deserialize_with = "or_default")]
    pub matches: Vec<StreamMatch>,
    #[serde(deserialize_with = "or_default")]
    pub forward_to: Vec<ForwardTo>,
}

/// The conditions of a match on a connection; TCP has none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamMatch {
    #[serde(deserialize_with = "or_default")]
    pub snis: Vec<String>,
    pub extension_ref: Option<Reference>,
}

/// A weighted destination of requests or connections.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardTo {
    pub service_name: Option<String>,
    pub backend_ref: Option<Reference>,
    pub port: Option<u32>,
    pub weight: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
}

/// `spec` of a BackendPolicy.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendPolicySpec {
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendReference>,
    #[serde(deserialize_with = "or_default")]
    pub tls: BackendTls,
}

/// A backend of a policy.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendReference {
    #[serde(flatten)]
    pub object: Reference,
    pub port: Option<u32>,
}

/// `tls` of a BackendPolicy.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTls {
    pub certificate_authority_ref: Option<Reference>,
}

/// A reference to an object of the same namespace.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

impl Reference {
    /// The name, if the reference can be to an object of this core kind. Absent parts are assumed to match; `core` is the empty
    /// group.
    ///
    /// # Errors
    /// A text that names the referenced object.
    pub fn to_core(&self, kind: Kind) -> Result<&str, String> {
        let fits = matches!(self.group.as_str(), "" | "core") && (self.kind.is_empty() || self.kind == kind.as_str());
        match fits && !self.name.is_empty() {
            true => Ok(&self.name),
            false => Err(format!("{}/{} {:?} is no {kind}", self.group, self.kind, self.name)),
        }
    }
}
