//! The settings that a workload's proxy starts with (Istio's `EffectiveProxyConfig`): the mesh's `defaultConfig`, under the
//! ProxyConfig objects of the root namespace, of the workload's namespace and of the workload, the last of which goes over the
//! annotation `proxy.istio.io/config`.
//!
//! Fields replace each other whole; environment variables (`proxyMetadata`) are merged by their names. Of several objects for
//! the same place the oldest counts.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Config, Labels, Mesh, labels, mesh::laid_over};
use crate::proto::{
    from_json,
    istio::networking::v1beta1,
    mesh::{MeshConfig, ProxyConfig},
    to_json,
};

/// The annotation with settings of one workload, in YAML.
pub const ANNOTATION: &str = "proxy.istio.io/config";

/// The workload that the proxy stands beside.
#[derive(Debug, Clone, Copy)]
pub struct ProxyOwner<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its labels.
    pub labels: &'a Labels,
    /// The document in its annotation; null without one.
    pub annotation: &'a Value,
    /// Settings of the proxy itself (`PROXY_CONFIG` of its metadata), which go over all others; null without them.
    pub own: &'a Value,
}

/// The settings of one proxy.
///
/// # Errors
/// A setting that Istio refuses in a mesh config, with its path.
pub fn proxy_settings(
    mesh: &MeshConfig,
    objects: &[Arc<Config>],
    owner: &ProxyOwner<'_>,
) -> Result<ProxyConfig, String> {
    let default = mesh.default_config.clone().unwrap_or_default();
    let mut settings = to_json(&default).map_err(|error| error.to_string())?;
    let mut objects: Vec<&Arc<Config>> = objects.iter().collect();
    objects.sort_by(|a, b| a.age_order().cmp(&b.age_order()));
    let root = mesh.root_namespace.as_str();
    if !root.is_empty() {
        lay(&mut settings, of_namespace(&objects, root));
    }
    if owner.namespace != root {
        lay(&mut settings, of_namespace(&objects, owner.namespace));
    }
    lay(&mut settings, sound(&format!("annotation {ANNOTATION}"), owner.annotation)?);
    lay(&mut settings, of_workload(&objects, owner));
    lay(&mut settings, sound("PROXY_CONFIG of the metadata", owner.own)?);
    let whole = json!({"defaultConfig": settings});
    Mesh::validated(&whole, &Value::Null, "cluster.local", "").map_err(|error| error.to_string())?;
    from_json(&settings, false).map_err(|error| error.to_string())
}

/// A document that a workload brings, when it holds settings.
fn sound(place: &str, document: &Value) -> Result<Value, String> {
    if !document.is_null() {
        from_json::<ProxyConfig>(document, false).map_err(|error| format!("{place}: {error}"))?;
    }
    Ok(document.clone())
}

fn lay(settings: &mut Value, over: Value) {
    if let Value::Object(over) = over {
        let whole = laid_over(json!({"defaultConfig": settings.take()}), json!({"defaultConfig": over}));
        *settings = whole["defaultConfig"].clone();
    }
}

/// The oldest object without a selector.
fn of_namespace(objects: &[&Arc<Config>], namespace: &str) -> Value {
    let specs = objects.iter().filter(|config| *config.meta.namespace == *namespace).filter_map(|c| c.proxy_config());
    specs.into_iter().find(|spec| spec.selector.is_none()).map_or(Value::Null, settings_of)
}

/// The oldest object whose selector picks the workload.
fn of_workload(objects: &[&Arc<Config>], owner: &ProxyOwner<'_>) -> Value {
    let specs = objects.iter().filter(|config| *config.meta.namespace == *owner.namespace);
    let picks = |spec: &&v1beta1::ProxyConfig| {
        let selector = spec.selector.as_ref().map(|s| &s.match_labels).filter(|labels| !labels.is_empty());
        selector.is_some_and(|selector| {
            let selector = selector.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            labels::matches(&selector, owner.labels)
        })
    };
    specs.filter_map(|c| c.proxy_config()).find(picks).map_or(Value::Null, settings_of)
}

/// The object as fields of the mesh config's message.
fn settings_of(spec: &v1beta1::ProxyConfig) -> Value {
    let mut fields = Map::new();
    if let Some(concurrency) = spec.concurrency {
        fields.insert("concurrency".to_string(), concurrency.into());
    }
    if !spec.environment_variables.is_empty() {
        fields.insert("proxyMetadata".to_string(), json!(spec.environment_variables));
    }
    if let Some(image) = spec.image.as_ref().and_then(|image| to_json(image).ok()) {
        fields.insert("image".to_string(), image);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, decode};

    fn object(namespace: &str, age: u32, spec: Value) -> Arc<Config> {
        let document = json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "spec": spec,
            "metadata": {"name": format!("n{age}"), "namespace": namespace,
                "creationTimestamp": format!("2025-01-0{age}T00:00:00Z")},
        });
        Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
    }

    fn settings(objects: &[Arc<Config>], annotation: Value) -> Result<ProxyConfig, String> {
        let own = json!({"defaultConfig": {"concurrency": 1, "statsdUdpAddress": "stats:8125", "proxyMetadata": {"A": "mesh", "B": "mesh"}}});
        let mesh = Mesh::validated(&own, &Value::Null, "cluster.local", "Kubernetes").expect("mesh settings");
        let labels: Labels = [("app".to_string(), "web".to_string())].into();
        let owner = ProxyOwner { namespace: "shop", labels: &labels, annotation: &annotation, own: &Value::Null };
        proxy_settings(&mesh.config, objects, &owner)
    }

    #[test]
    fn nearer_settings_go_over_further_ones() {
        let objects = [
            object("istio-system", 1, json!({"concurrency": 2, "environmentVariables": {"A": "root", "C": "root"}})),
            object("shop", 2, json!({"concurrency": 3, "image": {"imageType": "debug"}})),
            object("shop", 1, json!({"selector": {"matchLabels": {"app": "other"}}, "concurrency": 9})),
            object("other", 1, json!({"concurrency": 8})),
        ];
        let made = settings(&objects, Value::Null).unwrap();
        assert_eq!((made.concurrency, &*made.statsd_udp_address), (Some(3), "stats:8125"));
        assert_eq!(made.image.unwrap().image_type, "debug");
        let variables: Vec<&str> = ["A", "B", "C"].map(|key| made.proxy_metadata[key].as_str()).into();
        assert_eq!(variables, ["root", "mesh", "root"]);
        let annotation = json!({"concurrency": 5, "drainDuration": "7s"});
        let annotated = settings(&objects, annotation.clone()).unwrap();
        assert_eq!((annotated.concurrency, annotated.drain_duration.map(|d| d.seconds)), (Some(5), Some(7)));
        let own = object("shop", 3, json!({"selector": {"matchLabels": {"app": "web"}}, "concurrency": 6}));
        let all: Vec<_> = objects.into_iter().chain([own]).collect();
        assert_eq!(settings(&all, annotation).unwrap().concurrency, Some(6));
    }

    #[test]
    fn the_oldest_object_of_a_place_counts() {
        let objects = [object("shop", 2, json!({"concurrency": 2})), object("shop", 1, json!({"concurrency": 4}))];
        assert_eq!(settings(&objects, Value::Null).unwrap().concurrency, Some(4));
    }

    #[test]
    fn settings_that_istio_refuses_are_refused_by_their_path() {
        let text = settings(&[], json!({"statsdUdpAddress": "no-port"})).unwrap_err();
        assert!(text.contains("statsdUdpAddress"), "{text}");
        assert!(settings(&[], json!({"concurrency": "many"})).unwrap_err().contains(ANNOTATION));
        assert!(settings(&[], json!("text")).unwrap_err().contains(ANNOTATION));
    }
}
