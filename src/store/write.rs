//! Writes to the aggregate.

use serde_json::{Map, Value, json};

use super::StoreKey;
use crate::{
    model::{Config, Spec},
    proto::{ProtoError, to_json},
};

/// A write, as the aggregate takes it.
#[derive(Debug, Clone)]
pub enum WriteRequest {
    /// A new object.
    Create(Box<Config>),
    /// Another version of an object.
    Update(Box<Config>),
    /// A change of some fields.
    Patch(StoreKey, Patch),
    /// The end of an object, if its resource version is this one (`None`: whatever it is).
    Delete(StoreKey, Option<String>),
}

/// A JSON merge patch (RFC 7386) of an object's document.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch(Value);

impl Patch {
    /// A merge patch.
    #[must_use]
    pub const fn merge(patch: Value) -> Self {
        Self(patch)
    }

    /// The document of the object with the patch in it.
    pub(super) fn apply(&self, config: &Config) -> Result<Value, String> {
        let mut document = document(config).map_err(|e| e.to_string())?;
        merge(&mut document, &self.0, 0)?;
        Ok(document)
    }
}

fn merge(target: &mut Value, patch: &Value, depth: usize) -> Result<(), String> {
    const DEEPEST: usize = 64;
    if depth > DEEPEST {
        return Err(format!("the patch is nested deeper than {DEEPEST}"));
    }
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else { return Ok(()) };
    for (key, value) in patch {
        if value.is_null() {
            object.shift_remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value, depth + 1)?;
        }
    }
    Ok(())
}

/// An object as the document that it would be read from.
///
/// # Errors
/// When the content cannot be written as JSON.
pub fn document(config: &Config) -> Result<Value, ProtoError> {
    let (key, content) = content(&config.spec)?;
    let mut document = match (key, content) {
        ("", whole) => whole,
        (key, content) => json!({ key: content }),
    };
    let meta = &config.meta;
    document["apiVersion"] = Value::from(&*meta.api_version);
    document["kind"] = Value::from(config.kind().as_str());
    let created = k8s_openapi::jiff::Timestamp::from_second(meta.creation.0).map(|t| t.to_string()).unwrap_or_default();
    let mut metadata = Map::new();
    metadata.insert("name".to_string(), Value::from(&*meta.name));
    for (key, value, keep) in [
        ("namespace", Value::from(&*meta.namespace), !meta.namespace.is_empty()),
        ("labels", json!(meta.labels), !meta.labels.is_empty()),
        ("annotations", json!(meta.annotations), !meta.annotations.is_empty()),
        ("resourceVersion", json!(meta.resource_version), !meta.resource_version.is_empty()),
        ("creationTimestamp", json!(created), meta.creation.0 != 0),
        ("generation", json!(meta.generation), meta.generation != 0),
        ("uid", json!(meta.uid), !meta.uid.is_empty()),
    ] {
        if keep {
            metadata.insert(key.to_string(), value);
        }
    }
    document["metadata"] = Value::Object(metadata);
    if !config.status.is_null() {
        document["status"] = config.status.clone();
    }
    Ok(document)
}

/// The content and the key that it stands under; an empty key when the content is the whole document.
fn content(spec: &Spec) -> Result<(&'static str, Value), ProtoError> {
    macro_rules! whole {
        ($object:expr) => {
            ("", serde_json::to_value($object)?)
        };
    }
    Ok(match spec {
        Spec::AuthorizationPolicy(s) => ("spec", to_json(&**s)?),
        Spec::DestinationRule(s) => ("spec", to_json(&**s)?),
        Spec::EnvoyFilter(s) => ("spec", to_json(&**s)?),
        Spec::Gateway(s) => ("spec", to_json(&**s)?),
        Spec::PeerAuthentication(s) => ("spec", to_json(&**s)?),
        Spec::ProxyConfig(s) => ("spec", to_json(&**s)?),
        Spec::RequestAuthentication(s) => ("spec", to_json(&**s)?),
        Spec::ServiceEntry(s) => ("spec", to_json(&**s)?),
        Spec::Sidecar(s) => ("spec", to_json(&**s)?),
        Spec::Telemetry(s) => ("spec", to_json(&**s)?),
        Spec::TrafficExtension(s) => ("spec", to_json(&**s)?),
        Spec::VirtualService(s) => ("spec", to_json(&**s)?),
        Spec::WasmPlugin(s) => ("spec", to_json(&**s)?),
        Spec::WorkloadEntry(s) => ("spec", to_json(&**s)?),
        Spec::WorkloadGroup(s) => ("spec", to_json(&**s)?),
        Spec::ConfigMap(o) => whole!(o),
        Spec::Endpoints(o) => whole!(o),
        Spec::EndpointSlice(o) => whole!(o),
        Spec::Namespace(o) => whole!(o),
        Spec::Node(o) => whole!(o),
        Spec::Pod(o) => whole!(o),
        Spec::Secret(o) => whole!(o),
        Spec::Service(o) => whole!(o),
        Spec::Ingress(o) => whole!(o),
        Spec::IngressClass(o) => whole!(o),
        Spec::Raw(_, o) => ("", (**o).clone()),
    })
}
