//! From a JSON value to a typed [`Config`].

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Config, Kind, Meta, Origin, Spec, Timestamp};
use crate::proto::from_json;

/// Why a document is not an object that we take.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not an object of a kind that we know: passed over, as Istio does.
    #[error("kind {kind} of {api_version} is not read")]
    UnknownKind {
        /// `apiVersion` as written.
        api_version: String,
        /// `kind` as written.
        kind: String,
    },
    /// The document does not fit its kind.
    #[error("{0}")]
    Invalid(String),
}

/// Decodes one document. The namespace is left as written (Istio's file source does not default it).
///
/// # Errors
/// [`DecodeError`] with the reason; the caller adds the place.
pub fn from_value(document: &Value, origin: Origin) -> Result<Config, DecodeError> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let (api_version, kind_name) = (text(&document["apiVersion"]), text(&document["kind"]));
    let Some(kind) = Kind::parse(&api_version, &kind_name) else {
        return Err(DecodeError::UnknownKind { api_version, kind: kind_name });
    };
    let meta = meta(&document["metadata"], &api_version);
    let spec = spec(kind, document)?;
    let status = document["status"].clone();
    let mut config = Config { meta, spec, status, origin, stamp: 0 };
    config.stamp = stamp(document);
    Ok(config)
}

fn stamp(document: &Value) -> u64 {
    let mut bare = document.clone();
    if let Some(meta) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.shift_remove("resourceVersion");
        meta.shift_remove("managedFields");
    }
    xxhash_rust::xxh3::xxh3_64(&serde_json::to_vec(&bare).unwrap_or_default()).max(1)
}

fn meta(value: &Value, api_version: &str) -> Meta {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let map = |key: &str| {
        value[key]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string())))
            .collect()
    };
    let creation = text("creationTimestamp").parse::<k8s_openapi::jiff::Timestamp>().map_or(0, |t| t.as_second());
    Meta {
        name: text("name").into(),
        namespace: text("namespace").into(),
        api_version: api_version.into(),
        labels: map("labels"),
        annotations: map("annotations"),
        resource_version: text("resourceVersion").to_string(),
        creation: Timestamp(creation),
        generation: value["generation"].as_i64().unwrap_or_default(),
        uid: text("uid").to_string(),
    }
}

fn spec(kind: Kind, document: &Value) -> Result<Spec, DecodeError> {
    macro_rules! istio {
        ($variant:ident) => {{
            let empty = Value::Object(serde_json::Map::new());
            let spec = document.get("spec").filter(|s| !s.is_null()).unwrap_or(&empty);
            from_json(spec, false).map(|s| Spec::$variant(Box::new(s))).map_err(|e| DecodeError::Invalid(e.to_string()))
        }};
    }
    macro_rules! kubernetes {
        ($variant:ident) => {
            kubernetes(document).map(|s| Spec::$variant(Box::new(s)))
        };
    }
    match kind {
        Kind::AuthorizationPolicy => istio!(AuthorizationPolicy),
        Kind::DestinationRule => istio!(DestinationRule),
        Kind::EnvoyFilter => istio!(EnvoyFilter),
        Kind::Gateway => istio!(Gateway),
        Kind::PeerAuthentication => istio!(PeerAuthentication),
        Kind::ProxyConfig => istio!(ProxyConfig),
        Kind::RequestAuthentication => istio!(RequestAuthentication),
        Kind::ServiceEntry => istio!(ServiceEntry),
        Kind::Sidecar => istio!(Sidecar),
        Kind::Telemetry => istio!(Telemetry),
        Kind::TrafficExtension => istio!(TrafficExtension),
        Kind::VirtualService => istio!(VirtualService),
        Kind::WasmPlugin => istio!(WasmPlugin),
        Kind::WorkloadEntry => istio!(WorkloadEntry),
        Kind::WorkloadGroup => istio!(WorkloadGroup),
        Kind::ConfigMap => kubernetes!(ConfigMap),
        Kind::Endpoints => kubernetes!(Endpoints),
        Kind::EndpointSlice => kubernetes!(EndpointSlice),
        Kind::Namespace => kubernetes!(Namespace),
        Kind::Node => kubernetes!(Node),
        Kind::Pod => kubernetes!(Pod),
        Kind::Secret => kubernetes!(Secret),
        Kind::Service => kubernetes!(Service),
        Kind::Ingress => kubernetes!(Ingress),
        Kind::IngressClass => kubernetes!(IngressClass),
        raw => Ok(Spec::Raw(raw, Box::new(document.clone()))),
    }
}

fn kubernetes<T: DeserializeOwned>(document: &Value) -> Result<T, DecodeError> {
    serde_path_to_error::deserialize(document).map_err(|e| DecodeError::Invalid(format!("{}: {}", e.path(), e.inner())))
}
