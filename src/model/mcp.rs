//! Conversion between config objects and the resources of config distribution over xDS (MCP).
//!
//! The type URL is `group/version/Kind`. The resource is an `istio.mcp.v1alpha1.Resource` with metadata, the name
//! `namespace/name`, and a body. The body of an Istio kind is its spec; that of a Gateway API or service APIs kind is a
//! `Struct` of its spec (as in Istio); that of a Kubernetes kind, which Istio does not distribute, is a `Struct` of the whole
//! object. Secrets are never distributed.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use prost::{Message, Name};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    Config, Kind, Meta, Origin, Spec, Timestamp,
    decode::{self, from_value},
    document,
    kind::KindClass,
    packed::Packed,
};
use crate::proto::{ProtoError, istio::mcp::v1alpha1 as mcp, json_to_struct, struct_to_json, to_any, wkt};

/// Type URL of the mesh settings, which are sent as plain `MeshConfig`, without a `Resource` around them.
pub const MESH_CONFIG_URL: &str = "core/v1alpha1/MeshConfig";

/// Message name of JSON bodies.
const STRUCT: &str = "google.protobuf.Struct";

/// Maximum length of a name in bytes; Kubernetes allows 63 for a namespace and 253 for a name.
const LONGEST_NAME: usize = 320;

/// The reason a resource is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The resource is not a `Resource` message.
    #[error("not an istio.mcp.v1alpha1.Resource: {0}")]
    Envelope(String),
    /// The name is not `namespace/name`.
    #[error("the name {0:?} is not namespace/name")]
    Name(String),
    /// The body is another message than the type URL says.
    #[error("the body is a {found:?}, not a {kind}")]
    Body {
        /// The expected kind.
        kind: Kind,
        /// Type URL of the body; empty when there is no body.
        found: String,
    },
    /// The body does not decode.
    #[error("the body does not decode: {0}")]
    Malformed(String),
}

/// Whether objects of this kind are distributed. Retired kinds have no effect, and Secrets are never distributed.
#[must_use]
pub fn is_carried(kind: Kind) -> bool {
    kind.class() != KindClass::Retired && !matches!(kind, Kind::Secret | Kind::MutatingWebhookConfiguration)
}

/// The type URLs of a kind, `group/version/Kind` for each version; the one used for writing comes first.
pub fn type_urls(kind: Kind) -> impl Iterator<Item = String> {
    let group = if kind.group().is_empty() { "core" } else { kind.group() };
    kind.versions().iter().map(move |version| format!("{group}/{version}/{}", kind.as_str()))
}

/// Encodes the object as a resource. The version of an object without `resourceVersion` is a hash of its content.
///
/// # Errors
/// Fails when the content cannot be written as JSON (kinds that are not messages).
pub fn to_resource(config: &Config) -> Result<mcp::Resource, ProtoError> {
    let meta = &config.meta;
    let version = match meta.resource_version.as_ref() {
        "" => format!("{:016x}", config.stamp),
        version => version.to_string(),
    };
    let created = (meta.creation.0 != 0).then_some(wkt::Timestamp { seconds: meta.creation.0, nanos: 0 });
    Ok(mcp::Resource {
        metadata: Some(mcp::Metadata {
            name: format!("{}/{}", meta.namespace, meta.name),
            create_time: created,
            version,
            labels: meta.labels.clone(),
            annotations: meta.annotations.clone(),
        }),
        body: Some(body(config)?),
    })
}

/// The name inside the resource's metadata, before any validation.
#[must_use]
pub fn name_of(resource: &mcp::Resource) -> &str {
    resource.metadata.as_ref().map_or("", |m| m.name.as_str())
}

/// Decodes the object of a resource. `api_version` is that of the type URL.
///
/// # Errors
/// [`McpError`]; nothing of a refused resource is used.
pub fn from_resource(
    kind: Kind,
    api_version: &str,
    resource: mcp::Resource,
    origin: Origin,
) -> Result<Config, McpError> {
    let metadata = resource.metadata.ok_or_else(|| McpError::Envelope("no metadata".to_string()))?;
    let (namespace, name) = split_name(kind, &metadata.name)?;
    let found = resource.body.as_ref().map(|b| b.type_url.clone()).unwrap_or_default();
    let body = resource.body.ok_or(McpError::Body { kind, found })?;
    let mut hasher = Xxh3Default::new();
    (kind, namespace, name, &metadata.labels, &metadata.annotations).hash(&mut hasher);
    (metadata.create_time.map(|t| t.seconds), &body.value).hash(&mut hasher);
    let (spec, status) = content(kind, api_version, &metadata, &body, &origin)?;
    let meta = Meta {
        name: name.into(),
        namespace: decode::shared(namespace),
        api_version: decode::shared(api_version),
        labels: metadata.labels,
        annotations: metadata.annotations,
        resource_version: metadata.version.into(),
        creation: Timestamp(metadata.create_time.map_or(0, |t| t.seconds)),
        ..Meta::default()
    };
    Ok(Config { meta, spec, status: status.into(), origin, stamp: hasher.finish().max(1) })
}

fn split_name(kind: Kind, text: &str) -> Result<(&str, &str), McpError> {
    let wrong = || McpError::Name(text.chars().take(LONGEST_NAME).collect());
    let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
    let fits = !name.is_empty()
        && !name.contains('/')
        && text.len() <= LONGEST_NAME
        && namespace.is_empty() != kind.namespaced()
        && !text.chars().any(char::is_control);
    if fits { Ok((namespace, name)) } else { Err(wrong()) }
}

macro_rules! istio_kinds {
    ($($kind:ident),+) => {
        fn body(config: &Config) -> Result<wkt::Any, ProtoError> {
            match &config.spec {
                Spec::ServiceEntry(spec) => Ok(to_any(&spec.read())),
                $(Spec::$kind(spec) => Ok(to_any(&**spec)),)+
                _ => json_body(config),
            }
        }

        fn content(
            kind: Kind,
            api_version: &str,
            metadata: &mcp::Metadata,
            body: &wkt::Any,
            origin: &Origin,
        ) -> Result<(Spec, Value), McpError> {
            match kind {
                Kind::ServiceEntry => {
                    message(kind, body).map(|m| (Spec::ServiceEntry(Packed::of(&m)), Value::Null))
                }
                $(Kind::$kind => message(kind, body).map(|m| (Spec::$kind(Arc::new(m)), Value::Null)),)+
                _ => json_content(kind, api_version, metadata, body, origin),
            }
        }
    };
}

istio_kinds!(
    AuthorizationPolicy,
    DestinationRule,
    EnvoyFilter,
    Gateway,
    PeerAuthentication,
    ProxyConfig,
    RequestAuthentication,
    Sidecar,
    Telemetry,
    TrafficExtension,
    VirtualService,
    WasmPlugin,
    WorkloadEntry,
    WorkloadGroup
);

/// Istio's packages of all versions have the same messages, so a body of any version is accepted.
fn message<M: Message + Name + Default>(kind: Kind, body: &wkt::Any) -> Result<M, McpError> {
    let full = body.type_url.rsplit('/').next().unwrap_or_default();
    let named = full.starts_with("istio.") && full.rsplit('.').next() == Some(M::NAME);
    if !named {
        return Err(McpError::Body { kind, found: body.type_url.clone() });
    }
    M::decode(body.value.as_slice()).map_err(|e| McpError::Malformed(e.to_string()))
}

fn json_body(config: &Config) -> Result<wkt::Any, ProtoError> {
    let mut document = document(config)?;
    if config.kind().class() == KindClass::GatewayApi {
        document = document.get_mut("spec").map(Value::take).unwrap_or_else(|| Value::Object(Map::new()));
    }
    let body = json_to_struct(&document).unwrap_or_default();
    Ok(wkt::Any { type_url: format!("type.googleapis.com/{STRUCT}"), value: body.encode_to_vec() })
}

fn json_content(
    kind: Kind,
    api_version: &str,
    metadata: &mcp::Metadata,
    body: &wkt::Any,
    origin: &Origin,
) -> Result<(Spec, Value), McpError> {
    if body.type_url.rsplit('/').next() != Some(STRUCT) {
        return Err(McpError::Body { kind, found: body.type_url.clone() });
    }
    let body = wkt::Struct::decode(body.value.as_slice()).map_err(|e| McpError::Malformed(e.to_string()))?;
    let mut document = struct_to_json(&body);
    if kind.class() == KindClass::GatewayApi {
        document = json!({ "spec": document });
    }
    let (namespace, name) = split_name(kind, &metadata.name)?;
    document["apiVersion"] = api_version.into();
    document["kind"] = kind.as_str().into();
    let known = document.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    document["metadata"] = Value::Object(known);
    let meta = &mut document["metadata"];
    meta["name"] = name.into();
    meta["labels"] = json!(metadata.labels);
    meta["annotations"] = json!(metadata.annotations);
    if kind.namespaced() {
        meta["namespace"] = namespace.into();
    }
    if let Some(created) = metadata.create_time.filter(|_| meta.get("creationTimestamp").is_none()) {
        let created = k8s_openapi::jiff::Timestamp::from_second(created.seconds);
        meta["creationTimestamp"] = json!(created.map(|t| t.to_string()).unwrap_or_default());
    }
    let decoded = from_value(&document, origin.clone());
    let decoded = decoded.map_err(|e: decode::DecodeError| McpError::Malformed(e.to_string()))?;
    Ok((decoded.spec, Value::clone(&decoded.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(document: &Value) -> (Config, Config) {
        let config = from_value(document, Origin::default()).unwrap();
        let resource = to_resource(&config).unwrap();
        let back = from_resource(config.kind(), &config.meta.api_version, resource, Origin::default()).unwrap();
        (config, back)
    }

    #[test]
    fn every_family_of_kinds_survives() {
        for document in [
            json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
                "metadata": {"name": "a", "namespace": "shop", "labels": {"x": "1"}, "creationTimestamp": "2024-01-01T00:00:00Z"},
                "spec": {"hosts": ["a.example"], "ports": [{"number": 80, "name": "http"}]}}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {"name": "r", "namespace": "shop"}, "spec": {"hostnames": ["a.example"], "rules": []}}),
            json!({"apiVersion": "networking.x-k8s.io/v1alpha1", "kind": "HTTPRoute",
                "metadata": {"name": "r", "namespace": "shop"}, "spec": {"hostnames": ["b.example"], "rules": []}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop"},
                "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}),
        ] {
            let (config, back) = round_trip(&document);
            assert_eq!(back.key(), config.key());
            assert_eq!((&back.meta.labels, back.meta.creation), (&config.meta.labels, config.meta.creation));
            let spec = |c: &Config| super::document(c).unwrap()["spec"].clone();
            assert_eq!(spec(&back), spec(&config), "{document}");
        }
    }

    #[test]
    fn names_bodies_and_bytes_that_do_not_fit_are_refused() {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": "a", "namespace": "shop"}, "spec": {"hosts": ["a.example"]}});
        let good = to_resource(&from_value(&document, Origin::default()).unwrap()).unwrap();
        let read = |r: mcp::Resource| from_resource(Kind::ServiceEntry, "networking.istio.io/v1", r, Origin::default());
        for name in ["", "a", "/a", "shop/", "a/b/c", "sh\nop/a"] {
            let mut bad = good.clone();
            bad.metadata.as_mut().unwrap().name = name.to_string();
            assert!(matches!(read(bad), Err(McpError::Name(_))), "{name:?}");
        }
        let mut other = good.clone();
        other.body.as_mut().unwrap().type_url = "type.googleapis.com/istio.networking.v1alpha3.Gateway".to_string();
        assert!(matches!(read(other), Err(McpError::Body { .. })));
        let mut bad = good.clone();
        bad.body.as_mut().unwrap().value = vec![0xff; 8];
        assert!(matches!(read(bad), Err(McpError::Malformed(_))));
        assert!(read(mcp::Resource { body: None, ..good.clone() }).is_err());
        assert!(read(mcp::Resource { metadata: None, ..good }).is_err());
    }

    #[test]
    fn older_packages_are_the_same_messages() {
        let body = wkt::Any { type_url: "type.googleapis.com/istio.networking.v1beta1.Sidecar".into(), value: vec![] };
        let metadata = mcp::Metadata { name: "shop/a".into(), ..Default::default() };
        let resource = mcp::Resource { metadata: Some(metadata), body: Some(body) };
        assert!(from_resource(Kind::Sidecar, "networking.istio.io/v1beta1", resource, Origin::default()).is_ok());
    }

    #[test]
    fn secrets_and_retired_kinds_are_not_carried() {
        assert!(!is_carried(Kind::Secret) && !is_carried(Kind::MeshPolicy) && is_carried(Kind::Service));
        let urls: Vec<String> = type_urls(Kind::ServiceEntry).collect();
        assert_eq!(urls[0], "networking.istio.io/v1/ServiceEntry");
        assert!(urls.contains(&"networking.istio.io/v1alpha3/ServiceEntry".to_string()));
        assert_eq!(type_urls(Kind::Pod).next().as_deref(), Some("core/v1/Pod"));
    }
}
