//! HTTPRoute, GRPCRoute, TCPRoute, TLSRoute.

use serde::Deserialize;

use super::{ParentReference, or_default};

/// `spec` of any route; rules differ by kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, bound = "R: Deserialize<'de>")]
pub struct RouteSpec<R> {
    #[serde(deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentReference>,
    #[serde(deserialize_with = "or_default")]
    pub hostnames: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<R>,
}

impl<R> Default for RouteSpec<R> {
    fn default() -> Self {
        Self { parent_refs: Vec::new(), hostnames: Vec::new(), rules: Vec::new() }
    }
}

/// A rule of an HTTPRoute.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRule {
    pub name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub matches: Vec<HttpMatch>,
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendReference>,
    pub timeouts: Option<Timeouts>,
    pub retry: Option<Retry>,
}

/// A rule of a GRPCRoute.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRule {
    pub name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub matches: Vec<GrpcMatch>,
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendReference>,
}

/// A rule of a TCPRoute or TLSRoute.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRule {
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendReference>,
}

/// The conditions of a match on an HTTP request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMatch {
    #[serde(deserialize_with = "or_default")]
    pub path: PathMatch,
    #[serde(deserialize_with = "or_default")]
    pub headers: Vec<ValueMatch>,
    #[serde(deserialize_with = "or_default")]
    pub query_params: Vec<ValueMatch>,
    pub method: Option<String>,
}

/// A match of a path.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathMatch {
    pub r#type: Option<String>,
    pub value: Option<String>,
}

/// A match of a header or query parameter.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ValueMatch {
    pub r#type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub value: String,
}

/// The conditions of a match on a gRPC call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcMatch {
    pub method: Option<GrpcMethodMatch>,
    #[serde(deserialize_with = "or_default")]
    pub headers: Vec<ValueMatch>,
}

/// A match of a gRPC method.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcMethodMatch {
    pub r#type: Option<String>,
    pub service: Option<String>,
    pub method: Option<String>,
}

/// A filter of a rule or of a backend.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    #[serde(deserialize_with = "or_default")]
    pub r#type: String,
    pub request_header_modifier: Option<HeaderModifier>,
    pub response_header_modifier: Option<HeaderModifier>,
    pub request_mirror: Option<RequestMirror>,
    pub request_redirect: Option<RequestRedirect>,
    pub url_rewrite: Option<UrlRewrite>,
    pub cors: Option<Cors>,
}

/// A header with its value.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderValue {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub value: String,
}

/// Headers to set, add and remove.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderModifier {
    #[serde(deserialize_with = "or_default")]
    pub set: Vec<HeaderValue>,
    #[serde(deserialize_with = "or_default")]
    pub add: Vec<HeaderValue>,
    #[serde(deserialize_with = "or_default")]
    pub remove: Vec<String>,
}

/// A mirror: the destination of copies of requests.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestMirror {
    #[serde(deserialize_with = "or_default")]
    pub backend_ref: BackendReference,
    pub percent: Option<i32>,
    pub fraction: Option<Fraction>,
}

/// A fraction of requests.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fraction {
    #[serde(deserialize_with = "or_default")]
    pub numerator: i32,
    pub denominator: Option<i32>,
}

/// A modification of a path.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    #[serde(deserialize_with = "or_default")]
    pub r#type: String,
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}

/// A redirect.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRedirect {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    pub port: Option<u32>,
    pub status_code: Option<u32>,
}

/// A rewrite.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UrlRewrite {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
}

/// A CORS policy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cors {
    #[serde(deserialize_with = "or_default")]
    pub allow_origins: Vec<String>,
    pub allow_credentials: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub allow_methods: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub allow_headers: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub expose_headers: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub max_age: i64,
}

/// Timeouts, as durations like `10s`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    pub request: Option<String>,
    pub backend_request: Option<String>,
}

/// A retry policy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    #[serde(deserialize_with = "or_default")]
    pub codes: Vec<u32>,
    pub attempts: Option<i32>,
    pub backoff: Option<String>,
}

/// A weighted backend of a rule.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendReference {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub port: Option<u32>,
    pub weight: Option<i32>,
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
}

impl BackendReference {
    /// The weight; 1 if absent.
    pub fn weight(&self) -> i32 {
        self.weight.unwrap_or(1)
    }
}
