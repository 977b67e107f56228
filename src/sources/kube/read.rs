//! From an object's text to a typed object, by the same decoding and the same checks as documents in files.
//!
//! Parts that nothing reads are cut off first: they are most of a pod's and a node's size, they change all the time, and
//! a value that is not kept cannot leak.

use std::sync::Arc;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    CRL_MAP, ROOT_CERT_MAP, RawObject,
    content::{Item, Verdict},
};
use crate::{
    model::{ConfigKey, Kind, KindClass, Origin, decode::with_warnings, validation::validate},
    runtime::catch,
    sources::{Refused, Warned, yaml},
};

/// A copy of the object as it was last applied: large, and of a Secret it holds the secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Keys of a Secret that are ever read as a credential.
const CREDENTIAL_KEYS: &[&str] =
    &["tls.crt", "tls.key", "ca.crt", "ca.crl", "tls.ocsp-staple", "cert", "key", "cacert", "crl", ".dockerconfigjson"];
/// Keys of a ConfigMap that are ever read.
const CONFIG_MAP_KEYS: &[&str] =
    &["ca.crt", "ca.crl", "cacert", "crl", "mesh", "meshNetworks", ROOT_CERT_MAP.key, CRL_MAP.key];

/// Field of mesh settings.
const TRUST_DOMAIN: &str = "trustDomain";
/// Istio's default of it.
const DEFAULT_TRUST_DOMAIN: &str = "cluster.local";

/// The form that an object is read in.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub(super) kind: Kind,
    pub(super) api_version: String,
    pub(super) origin: Origin,
}

impl Reader {
    /// Reads an object. `is_same`: whether a text is the one in force.
    pub(super) fn read(&self, object: &RawObject, is_same: impl FnOnce(&ConfigKey, u64) -> bool) -> Item {
        let key = ConfigKey { kind: self.kind, namespace: object.namespace().into(), name: object.name().into() };
        let hash = xxh3_64(object.text().as_bytes());
        if is_same(&key, hash) {
            return Item { key, hash, verdict: Verdict::Same };
        }
        let verdict = match catch(|| self.decode(object)) {
            Ok(Ok(Verdict::Taken { config, warnings })) => {
                // The texts of the object in force, so that they are held once.
                return Item { key: config.key(), hash, verdict: Verdict::Taken { config, warnings } };
            }
            Ok(Ok(verdict)) => verdict,
            Ok(Err(reason)) => self.refuse(&key, reason),
            Err(_) => self.refuse(&key, "reading it failed inside pilothouse; please report this object".to_string()),
        };
        Item { key, hash, verdict }
    }

    fn decode(&self, object: &RawObject) -> Result<Verdict, String> {
        let mut value: Value = serde_json::from_str(object.text()).map_err(|e| self.without_secrets(e.to_string()))?;
        let fields = value.as_object_mut().ok_or("it is not an object")?;
        // Built-in kinds come without these in a list, and with them in a watch: that is no difference.
        fields.shift_insert(0, "apiVersion".to_string(), self.api_version.as_str().into());
        fields.shift_insert(1, "kind".to_string(), self.kind.as_str().into());
        cut(self.kind, fields);
        if self.kind == Kind::ConfigMap && !self.origin.cluster.is_empty() {
            keep_trust_domain(fields)?;
        }
        let (config, mut warnings) =
            with_warnings(&value, self.origin.clone()).map_err(|e| self.without_secrets(e.to_string()))?;
        if config.meta.name.is_empty() {
            return Err("metadata.name is missing".to_string());
        }
        let checked = validate(&config);
        if !checked.is_valid() {
            return Err(checked.errors.join("; "));
        }
        if self.kind.class() == KindClass::Kubernetes {
            // A newer server has newer fields; the server itself has checked them.
            warnings.clear();
        }
        warnings.extend(checked.warnings);
        warnings.extend(config.without_effect().map(String::from));
        let warnings = warnings.into_iter().map(|w| self.warn(&config.meta.namespace, &config.meta.name, w)).collect();
        Ok(Verdict::Taken { config: Arc::new(config), warnings })
    }

    /// A parser may quote the value that it fails at.
    fn without_secrets(&self, reason: String) -> String {
        if self.kind == Kind::Secret { "it does not have the form of a Secret".to_string() } else { reason }
    }

    fn refuse(&self, key: &ConfigKey, reason: String) -> Verdict {
        Verdict::Refused(Box::new(Refused {
            file: self.origin.source.to_string(),
            line: 0,
            column: 0,
            kind: self.kind.to_string(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            reason,
        }))
    }

    fn warn(&self, namespace: &str, name: &str, warning: String) -> Warned {
        Warned {
            file: self.origin.source.to_string(),
            line: 0,
            column: 0,
            kind: self.kind.to_string(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            warning,
        }
    }
}

/// Removes the parts of an object that nothing reads.
pub(super) fn cut(kind: Kind, fields: &mut Map<String, Value>) {
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.shift_remove(LAST_APPLIED);
        }
    }
    match kind {
        Kind::Secret => {
            keep(fields.get_mut("data"), CREDENTIAL_KEYS);
            keep(fields.get_mut("stringData"), CREDENTIAL_KEYS);
        }
        Kind::ConfigMap => {
            keep(fields.get_mut("data"), CONFIG_MAP_KEYS);
            fields.shift_remove("binaryData");
        }
        Kind::MutatingWebhookConfiguration => drop(fields.shift_remove("webhooks")),
        Kind::Node => {
            keep(fields.get_mut("spec"), &["providerID"]);
            keep(fields.get_mut("status"), &["addresses"]);
        }
        Kind::Pod => {
            keep(
                fields.get_mut("spec"),
                &[
                    "containers",
                    "initContainers",
                    "serviceAccountName",
                    "nodeName",
                    "hostNetwork",
                    "hostname",
                    "subdomain",
                ],
            );
            keep(fields.get_mut("status"), &["phase", "podIP", "podIPs", "hostIP", "hostIPs", "conditions"]);
            for list in ["containers", "initContainers"] {
                let containers = fields.get_mut("spec").and_then(|s| s.get_mut(list)).and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten() {
                    keep(Some(container), &["name", "ports", "readinessProbe", "restartPolicy"]);
                }
            }
        }
        _ => {}
    }
}

/// Of the mesh settings of another cluster only the trust domain counts: Istio's default where they name none.
fn keep_trust_domain(fields: &mut Map<String, Value>) -> Result<(), String> {
    let Some(data) = fields.get_mut("data").and_then(Value::as_object_mut) else { return Ok(()) };
    let Some(Value::String(mesh)) = data.shift_remove("mesh") else {
        data.clear();
        return Ok(());
    };
    let read = yaml::values(&mesh).map_err(|e| format!("mesh:{}:{}: {}", e.line, e.column, e.reason))?;
    let named = read.first().and_then(|mesh| mesh.get(TRUST_DOMAIN)).and_then(Value::as_str);
    let domain = named.filter(|domain| !domain.is_empty()).unwrap_or(DEFAULT_TRUST_DOMAIN).to_string();
    data.clear();
    data.insert(TRUST_DOMAIN.to_string(), domain.into());
    Ok(())
}

fn keep(value: Option<&mut Value>, keys: &[&str]) {
    if let Some(map) = value.and_then(Value::as_object_mut) {
        map.retain(|key, _| keys.contains(&key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: Kind, object: &Value) -> Item {
        let reader = Reader { kind, api_version: kind.api_version(), origin: Origin::default() };
        let raw: RawObject = serde_json::from_str(&object.to_string()).unwrap();
        reader.read(&raw, |_, _| false)
    }

    #[test]
    fn heartbeats_are_no_changes_and_managed_fields_are_never_kept() {
        let node = |beat: &str| {
            let object = json!({"metadata": {"name": "n", "managedFields": [{"time": beat}],
                "labels": {"topology.kubernetes.io/zone": "z"}},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "images": [{"names": ["x"]}]}});
            let Verdict::Taken { config, .. } = read(Kind::Node, &object).verdict else { panic!("refused") };
            config
        };
        let (one, two) = (node("2024-01-01T00:00:00Z"), node("2024-01-02T00:00:00Z"));
        assert_eq!(one.stamp, two.stamp);
        assert!(one.node().unwrap().metadata.managed_fields.is_none());
        assert!(one.node().unwrap().status.as_ref().unwrap().addresses.is_some());
    }

    #[test]
    fn an_item_of_a_list_is_the_object_of_a_watch() {
        let item = json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"}, "spec": {}});
        let event = json!({"kind": "Ingress", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "8"}, "spec": {}});
        let stamp = |object: &Value| match read(Kind::Ingress, object).verdict {
            Verdict::Taken { config, .. } => config.stamp,
            other => panic!("{other:?}"),
        };
        assert_eq!(stamp(&item), stamp(&event));
    }

    #[test]
    fn only_credentials_are_kept_of_a_secret_and_none_is_quoted() {
        let annotation = json!({LAST_APPLIED: "hunter2"});
        let object = json!({"metadata": {"name": "s", "namespace": "n", "annotations": annotation}, "type": "Opaque",
            "data": {"tls.crt": "YQ==", "password": "aHVudGVyMg=="}});
        let Verdict::Taken { config, .. } = read(Kind::Secret, &object).verdict else { panic!("refused") };
        let data = config.secret().unwrap().data.as_ref().unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["tls.crt"]);
        assert!(config.meta.annotations.is_empty());
        let object = json!({"metadata": {"name": "s", "namespace": "n"}, "data": {"tls.key": "hunter2!"}});
        let Verdict::Refused(refused) = read(Kind::Secret, &object).verdict else { panic!("taken") };
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }

    #[test]
    fn of_the_mesh_settings_of_another_cluster_the_trust_domain_is_kept() {
        let of = |data: Value| {
            let origin = Origin { cluster: "west".into(), ..Origin::default() };
            let reader = Reader { kind: Kind::ConfigMap, api_version: Kind::ConfigMap.api_version(), origin };
            let object = json!({"metadata": {"name": "istio", "namespace": "istio-system"}, "data": data});
            match reader.read(&serde_json::from_str(&object.to_string()).unwrap(), |_, _| false).verdict {
                Verdict::Taken { config, .. } => Ok(config.config_map().unwrap().data.clone().unwrap_or_default()),
                Verdict::Refused(refused) => Err(refused.reason),
                Verdict::Same => panic!("not the same"),
            }
        };
        let named = of(json!({"mesh": "trustDomain: west.example\nrootNamespace: x\n", "meshNetworks": "{}"})).unwrap();
        assert_eq!(named.into_iter().collect::<Vec<_>>(), [("trustDomain".to_string(), "west.example".to_string())]);
        assert_eq!(of(json!({"mesh": "rootNamespace: x\n"})).unwrap()["trustDomain"], "cluster.local");
        assert!(of(json!({"ca.crt": "x"})).unwrap().is_empty());
        assert!(of(json!({"mesh": "a: [\n"})).unwrap_err().starts_with("mesh:"));
    }

    #[test]
    fn a_bad_object_is_refused_by_name() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let text = format!(r#"{{"metadata":{{"name":"a","namespace":"n"}},"spec":{{"hosts":["a.b"],"x":{deep}}}}}"#);
        let raw: RawObject = serde_json::from_str(&text).unwrap();
        let reader = Reader {
            kind: Kind::ServiceEntry,
            api_version: Kind::ServiceEntry.api_version(),
            origin: Origin::default(),
        };
        for raw in
            [raw, serde_json::from_str(r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"hosts":7}}"#).unwrap()]
        {
            let item = reader.read(&raw, |_, _| false);
            let Verdict::Refused(refused) = item.verdict else { panic!("taken") };
            assert_eq!(
                (refused.kind.as_str(), refused.namespace.as_str(), refused.name.as_str()),
                ("ServiceEntry", "n", "a")
            );
        }
    }
}
