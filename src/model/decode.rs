//! Decodes a JSON document into a typed [`Config`].
//!
//! Istio kinds are decoded as proto3 JSON, Kubernetes kinds by serde; kinds without a typed form stay JSON. Unknown fields are
//! ignored, as in Istio, and listed in a warning.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    hash::Hasher,
    io::{self, Write},
    sync::Arc,
};

use prost::{Message, Name};
use prost_reflect::{Kind as FieldKind, MessageDescriptor};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

use super::{Config, Interner, Kind, Labels, Meta, Origin, Spec, Timestamp, kind::KindClass, packed::Packed};
use crate::proto::{ProtoError, descriptor, dynamic_from_json, from_json};

/// The reason a document is refused or ignored.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The document is of an unknown kind: it is ignored, as in Istio.
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

/// Decodes one document. An absent namespace stays empty; the file source fills it in ([`Kind::namespace`]).
///
/// # Errors
/// [`DecodeError`] with the reason; the caller adds the place.
pub fn from_value(document: &Value, origin: Origin) -> Result<Config, DecodeError> {
    with_warnings(document, origin).map(|(config, _)| config)
}

/// Decodes one document and returns a warning for each unknown field.
///
/// # Errors
/// As [`from_value`].
pub fn with_warnings(document: &Value, origin: Origin) -> Result<(Config, Vec<String>), DecodeError> {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind_name) = (text("apiVersion"), text("kind"));
    let Some(kind) = Kind::parse(api_version, kind_name) else {
        return Err(DecodeError::UnknownKind { api_version: api_version.into(), kind: kind_name.into() });
    };
    let meta = meta(document.get("metadata").unwrap_or(&Value::Null), api_version)?;
    let mut warnings = Vec::new();
    let spec = spec(kind, document, &mut warnings)?;
    let status = document.get("status").cloned().unwrap_or(Value::Null).into();
    Ok((Config { meta, spec, status, origin, stamp: stamp(document) }, warnings))
}

/// Writes into a hash.
struct HashWriter(Xxh3Default);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stamp(document: &Value) -> u64 {
    let mut writer = HashWriter(Xxh3Default::new());
    for (key, value) in document.as_object().into_iter().flatten() {
        let _ = writer.write(key.as_bytes());
        let inner = value.as_object().filter(|_| key == "metadata");
        let Some(meta) = inner else {
            let _ = serde_json::to_writer(&mut writer, value);
            continue;
        };
        for (key, value) in meta.iter().filter(|(k, _)| !matches!(k.as_str(), "resourceVersion" | "managedFields")) {
            let _ = writer.write(key.as_bytes());
            let _ = serde_json::to_writer(&mut writer, value);
        }
    }
    writer.0.finish().max(1)
}

/// The thread's shared copy of this text, used by all objects that the thread decodes.
pub(super) fn shared(text: &str) -> Arc<str> {
    thread_local!(static TEXTS: RefCell<Interner> = RefCell::default());
    TEXTS.with_borrow_mut(|texts| texts.text(text))
}

fn meta(value: &Value, api_version: &str) -> Result<Meta, DecodeError> {
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(s)) => Ok(s.as_str()),
        Some(other) => Err(DecodeError::Invalid(format!("metadata.{key}: {other} is not a string; quote it"))),
    };
    let creation = text("creationTimestamp")?.parse::<k8s_openapi::jiff::Timestamp>().map_or(0, |t| t.as_second());
    Ok(Meta {
        name: text("name")?.into(),
        namespace: shared(text("namespace")?),
        api_version: shared(api_version),
        labels: pairs(value, "labels")?,
        annotations: pairs(value, "annotations")?,
        resource_version: text("resourceVersion")?.into(),
        creation: Timestamp(creation),
        generation: value.get("generation").and_then(Value::as_i64).unwrap_or_default(),
        uid: text("uid")?.into(),
    })
}

fn pairs(meta: &Value, key: &str) -> Result<Labels, DecodeError> {
    match meta.get(key) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| match value {
                Value::String(s) => Ok((name.clone(), s.clone())),
                Value::Null => Ok((name.clone(), String::new())),
                other => Err(DecodeError::Invalid(format!("metadata.{key}.{name}: {other} is not a string; quote it"))),
            })
            .collect(),
        Some(other) => Err(DecodeError::Invalid(format!("metadata.{key}: {other} is not a map"))),
    }
}

macro_rules! by_kind {
    ($kind:expr, istio: $istio:ident [$($i:ident),+], kubernetes: $kubernetes:ident [$($k:ident),+], raw: $raw:expr) => {
        match $kind {
            $(Kind::$i => $istio!($i),)+
            $(Kind::$k => $kubernetes!($k),)+
            kind => $raw(kind),
        }
    };
}

fn spec(kind: Kind, document: &Value, warnings: &mut Vec<String>) -> Result<Spec, DecodeError> {
    let ports = document.pointer("/spec/portLevelMtls").and_then(Value::as_object);
    if kind == Kind::PeerAuthentication && ports.is_some_and(serde_json::Map::is_empty) {
        // In Protobuf an empty map equals an absent one; Istio's validation refuses the empty one.
        return Err(DecodeError::Invalid("spec.portLevelMtls: it must have a port, or be left out".to_string()));
    }
    if kind == Kind::ServiceEntry {
        return istio(document, warnings).map(|s| Spec::ServiceEntry(Packed::of(&s)));
    }
    macro_rules! istio {
        ($variant:ident) => {
            istio(document, warnings).map(|s| Spec::$variant(exact(&s)))
        };
    }
    macro_rules! kubernetes {
        ($variant:ident) => {
            kubernetes(document, warnings).map(|s| Spec::$variant(Arc::new(s)))
        };
    }
    by_kind!(kind,
        istio: istio [
            AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
            RequestAuthentication, Sidecar, Telemetry, TrafficExtension, VirtualService, WasmPlugin,
            WorkloadEntry, WorkloadGroup
        ],
        kubernetes: kubernetes [
            ConfigMap, Endpoints, EndpointSlice, Namespace, Node, Pod, Secret, Service, Ingress, IngressClass
        ],
        raw: |kind: Kind| {
            if kind.class() == KindClass::Retired {
                warnings.push(format!("kind {kind} is retired: it is stored and has no effect"));
                retired(kind, document, warnings)?;
            }
            Ok(Spec::Raw(kind, Box::new(document.clone())))
        }
    )
}

/// A clone without spare capacity: the decoder grows a list of one to a capacity of four, which would stay allocated.
fn exact<M: Clone>(message: &M) -> Arc<M> {
    Arc::new(message.clone())
}

fn istio<M: Message + Name + Default>(document: &Value, warnings: &mut Vec<String>) -> Result<M, DecodeError> {
    let empty = Value::Object(serde_json::Map::new());
    let spec = document.get("spec").filter(|s| !s.is_null()).unwrap_or(&empty);
    for key in document.as_object().into_iter().flatten().map(|(k, _)| k) {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status") {
            warnings.push(format!("unknown field {key}"));
        }
    }
    if let Ok(message) = from_json(spec, true) {
        return Ok(message);
    }
    let mut unknown = Unknown::default();
    if let Some(descriptor) = descriptor(&M::full_name()) {
        unknown.look(spec, &descriptor, "spec");
    }
    if let Some(name) = unknown.names.first() {
        return Err(DecodeError::Invalid(name.clone()));
    }
    let message = from_json(spec, false).map_err(|e| match e {
        ProtoError::UnknownValue(reason) => DecodeError::Invalid(format!("spec.{reason}")),
        e => DecodeError::Invalid(format!("spec: {e}")),
    })?;
    warnings.append(&mut unknown.fields);
    Ok(message)
}

/// Checks an object of a retired kind against its message. The object stays JSON, because nothing reads it.
fn retired(kind: Kind, document: &Value, warnings: &mut Vec<String>) -> Result<(), DecodeError> {
    let (Some(descriptor), Some(spec)) = (spec_descriptor(kind), document.get("spec").filter(|s| !s.is_null())) else {
        return Ok(());
    };
    let mut unknown = Unknown::default();
    unknown.look(spec, &descriptor, "spec");
    if let Some(name) = unknown.names.first() {
        return Err(DecodeError::Invalid(name.clone()));
    }
    warnings.append(&mut unknown.fields);
    dynamic_from_json(descriptor, spec, false).map_err(|e| DecodeError::Invalid(format!("spec: {e}")))?;
    Ok(())
}

/// Names that a message does not have: fields, which are ignored, and enum values, which are refused.
#[derive(Default)]
struct Unknown {
    fields: Vec<String>,
    names: Vec<String>,
}

impl Unknown {
    /// Searches `value` for unknown names. `google.protobuf` types hold free JSON.
    fn look(&mut self, value: &Value, message: &MessageDescriptor, path: &str) {
        let Some(object) = value.as_object().filter(|_| message.package_name() != "google.protobuf") else { return };
        for (key, value) in object {
            let path = format!("{path}.{key}");
            let Some(field) = message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key)) else {
                self.fields.push(format!("unknown field {path}"));
                continue;
            };
            match (field.kind(), value) {
                (FieldKind::Message(entry), Value::Object(map)) if field.is_map() => {
                    let kind = entry.map_entry_value_field().kind();
                    let text = matches!(entry.map_entry_key_field().kind(), FieldKind::String);
                    for key in map.keys().filter(|key| !text && key.parse::<u64>().is_err()) {
                        self.names.push(format!("{path}.{key}: the key must be a number"));
                    }
                    map.iter().for_each(|(k, v)| self.look_at(v, &kind, &format!("{path}.{k}")));
                }
                (kind, Value::Array(list)) => {
                    for (i, _) in list.iter().enumerate().filter(|(_, v)| v.is_null() && !is_free(&kind)) {
                        self.names.push(format!("{path}[{i}]: it is null"));
                    }
                    list.iter().enumerate().for_each(|(i, v)| self.look_at(v, &kind, &format!("{path}[{i}]")));
                }
                (kind, value) => self.look_at(value, &kind, &path),
            }
        }
    }

    fn look_at(&mut self, value: &Value, kind: &FieldKind, path: &str) {
        match (kind, value) {
            (FieldKind::Message(inner), value) => self.look(value, inner, path),
            (FieldKind::Enum(names), Value::String(name)) if names.get_value_by_name(name).is_none() => {
                let known: Vec<String> = names.values().map(|v| v.name().to_string()).collect();
                self.names.push(format!("{path}: {name:?} is none of {}", known.join(", ")));
            }
            _ => {}
        }
    }
}

/// Whether a field holds free JSON, in which null is a value.
fn is_free(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Message(message) if message.package_name() == "google.protobuf")
}

/// Paths of the fields in a value that the message with this name does not have.
pub(super) fn unknown_fields(message: &str, value: &Value) -> Vec<String> {
    let mut unknown = Unknown::default();
    if let Some(descriptor) = descriptor(message) {
        unknown.look(value, &descriptor, "");
    }
    let path = |text: String| text.replacen("unknown field .", "", 1);
    unknown.fields.into_iter().map(path).collect()
}

fn kubernetes<T: DeserializeOwned + Serialize>(document: &Value, warnings: &mut Vec<String>) -> Result<T, DecodeError> {
    let object: T = serde_path_to_error::deserialize(document)
        .map_err(|e| DecodeError::Invalid(format!("{}: {}", e.path(), plain(&e.inner().to_string()))))?;
    if let Ok(known) = serde_json::to_value(&object) {
        absent_fields(document, &known, "", warnings);
    }
    Ok(object)
}

/// The reason a field does not fit, with base64 named where the decoder's own text does not name it.
fn plain(reason: &str) -> String {
    let base64 = ["Invalid symbol", "Invalid input length", "Invalid padding", "Invalid last symbol"];
    if base64.iter().any(|known| reason.starts_with(known)) {
        format!("it is not base64 ({reason})")
    } else {
        reason.to_string()
    }
}

/// Lists every field of `written` that decoding dropped.
fn absent_fields(written: &Value, known: &Value, path: &str, into: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written.iter().filter(|(_, v)| !v.is_null()) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match known.get(key) {
                    Some(inner) => absent_fields(value, inner, &path, into),
                    None => into.push(format!("unknown field {path}")),
                }
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            for (i, (value, inner)) in written.iter().zip(known).enumerate() {
                absent_fields(value, inner, &format!("{path}[{i}]"), into);
            }
        }
        _ => {}
    }
}

/// The message of the `spec` of an Istio kind, current or retired; `None` for other kinds.
#[must_use]
pub fn spec_descriptor(kind: Kind) -> Option<MessageDescriptor> {
    let package = match (kind.class(), kind.group()) {
        (KindClass::Istio, "security.istio.io") => "istio.security.v1beta1",
        (KindClass::Istio, "telemetry.istio.io") => "istio.telemetry.v1alpha1",
        (KindClass::Istio, "extensions.istio.io") => "istio.extensions.v1alpha1",
        (KindClass::Istio, _) if kind == Kind::ProxyConfig => "istio.networking.v1beta1",
        (KindClass::Istio, _) => "istio.networking.v1alpha3",
        (KindClass::Retired, "rbac.istio.io") => "istio.rbac.v1alpha1",
        (KindClass::Retired, "authentication.istio.io") => "istio.authentication.v1alpha1",
        (KindClass::Retired, _) => "istio.mixer.v1.config.client",
        _ => return None,
    };
    let message = match kind {
        Kind::MeshPolicy => "Policy",
        Kind::ClusterRbacConfig => "RbacConfig",
        kind => kind.as_str(),
    };
    descriptor(&format!("{package}.{message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service_entry(spec: Value) -> Value {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn every_istio_kind_has_a_descriptor() {
        for kind in Kind::ALL.iter().filter(|k| matches!(k.class(), KindClass::Istio | KindClass::Retired)) {
            assert!(spec_descriptor(*kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn fields_of_the_newest_api_are_known_and_kept() {
        let read = |api_version: &str, kind: &str, spec: Value| {
            let document = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "b"}, "spec": spec});
            let (config, warnings) = with_warnings(&document, Origin::default()).unwrap();
            let unknown: Vec<_> = warnings.iter().filter(|w| w.contains("unknown field")).cloned().collect();
            assert!(unknown.is_empty(), "{unknown:?}");
            config
        };
        let jwt = json!({"jwtRules": [{"issuer": "i", "presence": "REQUIRED"}]});
        let config = read("security.istio.io/v1", "RequestAuthentication", jwt);
        assert_eq!(config.request_authentication().unwrap().jwt_rules[0].presence().as_str_name(), "REQUIRED");
        let utilization = json!({"weightUpdatePeriod": "2s", "metricNamesForComputingUtilization": ["m"]});
        let spec = json!({"host": "h", "trafficPolicy": {"loadBalancer": {"backendUtilization": utilization}}});
        let config = read("networking.istio.io/v1", "DestinationRule", spec);
        let policy =
            config.destination_rule().unwrap().traffic_policy.clone().unwrap().load_balancer.unwrap().lb_policy;
        assert!(format!("{policy:?}").contains("weight_update_period: Some(Duration { seconds: 2"), "{policy:?}");
        let chain = json!({"listener": {"filterChain": {"transportSocket": "envoy.transport_sockets.tls"}}});
        let patch = json!({"applyTo": "FILTER_CHAIN", "match": chain, "patch": {"operation": "REMOVE"}});
        let config = read("networking.istio.io/v1alpha3", "EnvoyFilter", json!({"configPatches": [patch]}));
        assert!(format!("{:?}", config.envoy_filter().unwrap()).contains("envoy.transport_sockets.tls"));
    }

    #[test]
    fn retired_kinds_are_checked_and_keep_their_names() {
        let role = |rules: Value| {
            json!({"apiVersion": "rbac.istio.io/v1alpha1", "kind": "ServiceRole",
                "metadata": {"name": "a", "namespace": "b"}, "spec": {"rules": rules}})
        };
        let good = role(json!([{"services": ["x"], "method": ["GET"]}]));
        let (config, warnings) = with_warnings(&good, Origin::default()).unwrap();
        assert_eq!(config.key().to_string(), "ServiceRole/b/a");
        assert!(warnings[0].contains("retired") && warnings[1] == "unknown field spec.rules[0].method", "{warnings:?}");
        assert!(with_warnings(&role(json!([{"services": 1}])), Origin::default()).is_err());
        let policy = json!({"apiVersion": "authentication.istio.io/v1alpha1", "kind": "MeshPolicy",
            "metadata": {"name": "default"}, "spec": {"peers": [{"mtls": {}}]}});
        assert_eq!(with_warnings(&policy, Origin::default()).unwrap().1.len(), 1);
    }

    #[test]
    fn unknown_fields_are_passed_over_and_named() {
        let document = service_entry(json!({"hosts": ["a.b"], "prots": [], "endpoints": [{"adress": "1.1.1.1"}]}));
        let (config, warnings) = with_warnings(&document, Origin::default()).unwrap();
        assert_eq!(config.service_entry().unwrap().hosts, ["a.b"]);
        assert_eq!(warnings, ["unknown field spec.prots", "unknown field spec.endpoints[0].adress"]);
    }

    #[test]
    fn unknown_names_of_enums_are_refused() {
        let document = service_entry(json!({"hosts": ["a.b"], "resolution": "GUESS", "extra": 1}));
        let error = from_value(&document, Origin::default()).unwrap_err().to_string();
        assert!(error.starts_with("spec.resolution: \"GUESS\" is none of NONE, STATIC, DNS"), "{error}");
    }

    #[test]
    fn unknown_fields_of_kubernetes_objects_are_named_too() {
        let document = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"selektor": {}, "ports": [{"port": 80, "nam": "x"}]}});
        let (_, warnings) = with_warnings(&document, Origin::default()).unwrap();
        assert_eq!(warnings, ["unknown field spec.selektor", "unknown field spec.ports[0].nam"]);
    }

    #[test]
    fn the_stamp_ignores_the_resource_version_only() {
        let stamped = |version: &str, host: &str| {
            let mut document = service_entry(json!({"hosts": [host]}));
            document["metadata"]["resourceVersion"] = version.into();
            from_value(&document, Origin::default()).unwrap().stamp
        };
        assert_eq!(stamped("1", "a"), stamped("2", "a"));
        assert_ne!(stamped("1", "a"), stamped("1", "b"));
    }

    #[test]
    fn labels_that_are_not_strings_are_refused() {
        let mut document = service_entry(json!({}));
        document["metadata"]["labels"] = json!({"version": 1.10});
        let error = from_value(&document, Origin::default()).unwrap_err().to_string();
        assert_eq!(error, "metadata.labels.version: 1.1 is not a string; quote it");
    }
}
