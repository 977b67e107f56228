//! Mesh-wide settings: `MeshNetworks`, and the user's `MeshConfig` merged over Istio's defaults.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    decode::unknown_fields,
    trust_anchors,
    validation::{self, Validation},
};
use crate::proto::{
    from_json,
    mesh::{MeshConfig, MeshNetworks},
};

/// The document that keeps mesh settings from being used, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// A fault of the mesh config; the text begins with the path of the field.
    #[error("mesh config: {0}")]
    Config(String),
    /// A fault of the mesh networks; the text begins with the path of the field.
    #[error("mesh networks: {0}")]
    Networks(String),
}

/// The effective mesh settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    /// `MeshConfig` with defaults filled in.
    pub config: Arc<MeshConfig>,
    /// `MeshNetworks` as written.
    pub networks: Arc<MeshNetworks>,
    /// DNS suffix of the cluster (`cluster.local`).
    pub domain: Arc<str>,
    /// Id of the main cluster (`Kubernetes`).
    pub cluster_id: Arc<str>,
    /// Hash of all other fields.
    pub stamp: u64,
}

impl Default for Mesh {
    fn default() -> Self {
        Self::from_values(&Value::Null, &Value::Null, "cluster.local", "Kubernetes").unwrap_or_else(|_| Self {
            config: Arc::default(),
            networks: Arc::default(),
            domain: "cluster.local".into(),
            cluster_id: "Kubernetes".into(),
            stamp: 0,
        })
    }
}

impl Mesh {
    /// Builds the settings. Top-level fields of `config` replace those of the default, and `null` unsets a default. As in
    /// Istio's `ApplyMeshConfig`, `defaultConfig` (with its `proxyMetadata`) and `defaultProviders` are merged field by field,
    /// `extensionProviders` by their names, and `trustDomainAliases` are the sorted union.
    ///
    /// # Errors
    /// The document whose value does not fit, with the field.
    pub fn from_values(config: &Value, networks: &Value, domain: &str, cluster_id: &str) -> Result<Self, MeshError> {
        let mut merged = default_mesh_config();
        if let (Some(base), Some(over)) = (merged.as_object_mut(), config.as_object()) {
            overlay(base, over);
        }
        let networks = if networks.is_null() { json!({}) } else { networks.clone() };
        let text = format!("{merged}{networks}{domain}{cluster_id}");
        let config = from_json(&merged, false).map_err(|e| MeshError::Config(e.to_string()))?;
        trust_anchors::check(&config).map_err(MeshError::Config)?;
        Ok(Self {
            config: Arc::new(config),
            networks: Arc::new(from_json(&networks, false).map_err(|e| MeshError::Networks(e.to_string()))?),
            domain: domain.into(),
            cluster_id: cluster_id.into(),
            stamp: xxhash_rust::xxh3::xxh3_64(text.as_bytes()).max(1),
        })
    }

    /// As [`Mesh::from_values`], for settings that a user wrote: those that Istio refuses are refused.
    ///
    /// # Errors
    /// The document at fault, with all its faults.
    pub fn validated(config: &Value, networks: &Value, domain: &str, cluster_id: &str) -> Result<Self, MeshError> {
        let mesh = Self::from_values(config, networks, domain, cluster_id)?;
        let sound = |found: Validation| if found.is_valid() { Ok(()) } else { Err(found.errors.join("; ")) };
        sound(validation::mesh_config(&mesh.config)).map_err(MeshError::Config)?;
        sound(validation::mesh_networks(&mesh.networks)).map_err(MeshError::Networks)?;
        Ok(mesh)
    }

    /// Settings of the mesh config that are valid but probably mistakes. Each text begins with the path of the field.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        validation::mesh_config(&self.config).warnings
    }

    /// Paths of the fields in a `MeshConfig` or `MeshNetworks` that the message with this name does not have.
    #[must_use]
    pub fn unknown_fields(message: &str, value: &Value) -> Vec<String> {
        unknown_fields(&format!("istio.mesh.v1alpha1.{message}"), value)
    }
}

/// The fields of a proxy's settings of which only one can be.
const CLUSTER_NAMES: [&str; 2] = ["serviceCluster", "tracingServiceName"];

/// Merges mesh settings over others, as [`Mesh::from_values`] merges them over the defaults.
#[must_use]
pub fn laid_over(base: Value, over: Value) -> Value {
    match (base, over) {
        (Value::Object(mut base), Value::Object(over)) => {
            overlay(&mut base, &over);
            Value::Object(base)
        }
        (base, Value::Null) => base,
        (_, over) => over,
    }
}

fn overlay(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (_, Value::Null) => {
                base.shift_remove(key);
            }
            (Some(Value::Object(old)), Value::Object(new)) if key == "defaultConfig" || key == "defaultProviders" => {
                for (field, value) in new {
                    if let Some(other) = CLUSTER_NAMES.iter().find(|name| *name != field)
                        && CLUSTER_NAMES.contains(&field.as_str())
                    {
                        old.shift_remove(*other);
                    }
                    match (old.get_mut(field), value) {
                        (_, Value::Null) => drop(old.shift_remove(field)),
                        (Some(Value::Object(old)), Value::Object(new)) if field == "proxyMetadata" => {
                            old.extend(new.clone());
                        }
                        _ => drop(old.insert(field.clone(), value.clone())),
                    }
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if key == "trustDomainAliases" => {
                old.extend(new.iter().cloned());
                old.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                old.dedup();
            }
            (Some(Value::Array(old)), Value::Array(new)) if key == "extensionProviders" => {
                for provider in new {
                    match old.iter_mut().find(|before| before["name"] == provider["name"]) {
                        Some(before) => before.clone_from(provider),
                        None => old.push(provider.clone()),
                    }
                }
            }
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Istio's `DefaultMeshConfig`.
fn default_mesh_config() -> Value {
    json!({
        "accessLogEncoding": "TEXT",
        "accessLogFile": "",
        "accessLogFormat": "",
        "connectTimeout": "10s",
        "defaultConfig": {
            "configPath": "./etc/istio/proxy",
            "binaryPath": "/usr/local/bin/envoy",
            "controlPlaneAuthPolicy": "MUTUAL_TLS",
            "discoveryAddress": "istiod.istio-system.svc:15012",
            "drainDuration": "45s",
            "proxyAdminPort": 15000,
            "serviceCluster": "istio-proxy",
            "statNameLength": 189,
            "statusPort": 15020,
            "terminationDrainDuration": "5s",
        },
        "defaultDestinationRuleExportTo": ["*"],
        "defaultServiceExportTo": ["*"],
        "defaultVirtualServiceExportTo": ["*"],
        "defaultHttpRetryPolicy": {
            "attempts": 2,
            "retryOn": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
        },
        "dnsRefreshRate": "60s",
        "enableAutoMtls": true,
        "enablePrometheusMerge": true,
        "enableTracing": true,
        "ingressClass": "istio",
        "ingressControllerMode": "STRICT",
        "ingressService": "istio-ingressgateway",
        "inboundClusterStatName": "",
        "localityLbSetting": {"enabled": true},
        "outboundClusterStatName": "",
        "outboundTrafficPolicy": {"mode": "ALLOW_ANY"},
        "inboundTrafficPolicy": {"mode": "PASSTHROUGH"},
        "protocolDetectionTimeout": "0s",
        "proxyHttpPort": 0,
        "proxyListenPort": 15001,
        "proxyInboundListenPort": 15006,
        "rootNamespace": "istio-system",
        "tcpKeepalive": null,
        "trustDomain": "cluster.local",
        "trustDomainAliases": [],
        "extensionProviders": [
            {"name": "prometheus", "prometheus": {}},
            {"name": "stackdriver", "stackdriver": {}},
            {"name": "envoy", "envoyFileAccessLog": {"path": "/dev/stdout"}}
        ],
        "defaultProviders": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_laid_over_others_by_their_top_level_fields() {
        let base = json!({"connectTimeout": "3s", "accessLogFile": "/a", "defaultConfig": {"concurrency": 1, "statusPort": 1}});
        let over = json!({"connectTimeout": "7s", "defaultConfig": {"concurrency": 2}, "accessLogFile": null});
        let want = json!({"connectTimeout": "7s", "defaultConfig": {"concurrency": 2, "statusPort": 1}});
        assert_eq!(laid_over(base.clone(), over.clone()), want);
        assert_eq!(laid_over(base.clone(), Value::Null), base);
        assert_eq!(laid_over(Value::Null, over.clone()), over);
    }

    #[test]
    fn aliases_are_a_sorted_union_and_proxy_metadata_is_merged() {
        let base = json!({
            "trustDomainAliases": ["old.example", "both.example"],
            "defaultConfig": {"proxyMetadata": {"A": "1", "B": "1"}, "concurrency": 1},
            "defaultProviders": {"metrics": ["prometheus"], "tracing": ["zipkin"]},
        });
        let over = json!({
            "trustDomainAliases": ["new.example", "both.example"],
            "defaultConfig": {"proxyMetadata": {"B": "2", "C": "2"}},
            "defaultProviders": {"tracing": ["otel"]},
        });
        let want = json!({
            "trustDomainAliases": ["both.example", "new.example", "old.example"],
            "defaultConfig": {"proxyMetadata": {"A": "1", "B": "2", "C": "2"}, "concurrency": 1},
            "defaultProviders": {"metrics": ["prometheus"], "tracing": ["otel"]},
        });
        assert_eq!(laid_over(base, over), want);
        let alone = json!({"trustDomainAliases": ["b.example", "a.example"]});
        let mesh = Mesh::validated(&alone, &Value::Null, "cluster.local", "Kubernetes").unwrap();
        assert_eq!(mesh.config.trust_domain_aliases, ["a.example", "b.example"]);
    }

    #[test]
    fn one_name_of_the_service_cluster_replaces_the_other() {
        let own = json!({"defaultConfig": {"tracingServiceName": "CANONICAL_NAME_ONLY", "drainDuration": "3s"}});
        let mesh = Mesh::validated(&own, &Value::Null, "cluster.local", "Kubernetes").unwrap();
        let kept = mesh.config.default_config.clone().unwrap().cluster_name;
        let wanted = crate::proto::mesh::proxy_config::ClusterName::TracingServiceName(1);
        assert_eq!(kept, Some(wanted));
        let merged = laid_over(own, json!({"defaultConfig": {"serviceCluster": "web", "drainDuration": null}}));
        assert_eq!(merged, json!({"defaultConfig": {"serviceCluster": "web"}}));
    }

    #[test]
    fn providers_stand_beside_those_of_other_names() {
        let own = json!({"extensionProviders": [
            {"name": "tracer", "zipkin": {"service": "a.b", "port": 1}},
            {"name": "envoy", "envoyFileAccessLog": {"path": "/own"}},
        ]});
        let mesh = Mesh::validated(&own, &Value::Null, "cluster.local", "Kubernetes").unwrap();
        let names: Vec<&str> = mesh.config.extension_providers.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["prometheus", "stackdriver", "envoy", "tracer"]);
        let merged = laid_over(default_mesh_config(), own);
        assert_eq!(merged["extensionProviders"][2]["envoyFileAccessLog"]["path"], "/own");
        let none = Mesh::validated(&json!({"extensionProviders": null}), &Value::Null, "cluster.local", "Kubernetes");
        assert!(none.unwrap().config.extension_providers.is_empty());
    }
}
