//! Config objects written back as JSON documents.

use serde_json::{Map, Value, json};

use super::{Config, Spec};
use crate::proto::{ProtoError, to_json};

/// The document of an object, in the form in which it is read.
///
/// # Errors
/// Fails when the content cannot be written as JSON.
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
        document["status"] = Value::clone(&config.status);
    }
    Ok(document)
}

/// The content and its top-level key; the key is empty when the content is the whole document.
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
        Spec::ServiceEntry(s) => ("spec", to_json(&s.read())?),
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
