//! Config objects: metadata, a typed spec, and the origin of the object.
//!
//! A `Config` is immutable and shared as `Arc<Config>`. Its identity is the kind, namespace and name ([`ConfigKey`]).

use std::{fmt, ops::Deref, path::PathBuf, sync::Arc};

use k8s_openapi::api::{core::v1 as core, discovery::v1 as discovery, networking::v1 as k8s_networking};
use serde_json::Value;

use super::{Kind, Labels, packed::Packed};
use crate::proto::{istio, networking};

/// Seconds since the Unix epoch; 0 when the object has no creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, serde::Serialize)]
pub struct Timestamp(pub i64);

/// The identity of an object within one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigKey {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// Metadata of an object, as read from `metadata`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Meta {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// `apiVersion` as written in the document.
    pub api_version: Arc<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: Labels,
    /// `metadata.resourceVersion`; opaque, compared for equality only.
    pub resource_version: Box<str>,
    /// `metadata.creationTimestamp`.
    pub creation: Timestamp,
    /// `metadata.generation`; 0 when absent.
    pub generation: i64,
    /// `metadata.uid`; empty when absent.
    pub uid: Box<str>,
}

/// `status` as read. An absent status, the usual case, takes one word and reads as `Null`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status(Option<Box<Value>>);

impl From<Value> for Status {
    fn from(value: Value) -> Self {
        Self((!value.is_null()).then(|| Box::new(value)))
    }
}

impl Deref for Status {
    type Target = Value;

    fn deref(&self) -> &Value {
        const NONE: &Value = &Value::Null;
        self.0.as_deref().unwrap_or(NONE)
    }
}

/// The source of an object and its place there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// Name of the source (`file:DIR`, `kube:CLUSTER`, `xds:ADDRESS`).
    pub source: Arc<str>,
    /// Cluster id that the object belongs to; empty means the main cluster.
    pub cluster: Arc<str>,
    /// Path of the file; `None` for sources without files.
    pub file: Option<Arc<PathBuf>>,
    /// Line of the document's first field, from 1; 0 when unknown.
    pub line: u32,
}

impl Origin {
    /// Whether the object was read from a Kubernetes API server.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.source.starts_with("kube:")
    }

    /// The origin for log and error texts: `FILE:LINE`, or the name of the source where there is no file.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.file {
            Some(file) => format!("{}:{}", file.display(), self.line),
            None => self.source.to_string(),
        }
    }
}

macro_rules! specs {
    ($($variant:ident($type:ty), $accessor:ident;)+) => {
        /// The content of an object, by kind.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the spec (Istio) or the whole object (Kubernetes) of that kind")]
        pub enum Spec { $($variant(Arc<$type>)),+, ServiceEntry(Packed<networking::ServiceEntry>), Raw(Kind, Box<Value>) }

        impl Spec {
            /// The kind of this content.
            #[must_use]
            pub const fn kind(&self) -> Kind { match self { $(Self::$variant(_) => Kind::$variant),+, Self::ServiceEntry(_) => Kind::ServiceEntry, Self::Raw(kind, _) => *kind } }
        }

        impl Config {
            $(
                #[doc = concat!("The content, if this is a ", stringify!($variant), ".")]
                #[must_use]
                pub fn $accessor(&self) -> Option<&$type> { match &self.spec { Spec::$variant(s) => Some(s), _ => None } }
            )+
        }
    };
}

specs! {
    AuthorizationPolicy(istio::security::v1beta1::AuthorizationPolicy), authorization_policy;
    DestinationRule(networking::DestinationRule), destination_rule;
    EnvoyFilter(networking::EnvoyFilter), envoy_filter;
    Gateway(networking::Gateway), gateway;
    PeerAuthentication(istio::security::v1beta1::PeerAuthentication), peer_authentication;
    ProxyConfig(istio::networking::v1beta1::ProxyConfig), proxy_config;
    RequestAuthentication(istio::security::v1beta1::RequestAuthentication), request_authentication;
    Sidecar(networking::Sidecar), sidecar;
    Telemetry(istio::telemetry::v1alpha1::Telemetry), telemetry;
    TrafficExtension(istio::extensions::v1alpha1::TrafficExtension), traffic_extension;
    VirtualService(networking::VirtualService), virtual_service;
    WasmPlugin(istio::extensions::v1alpha1::WasmPlugin), wasm_plugin;
    WorkloadEntry(networking::WorkloadEntry), workload_entry;
    WorkloadGroup(networking::WorkloadGroup), workload_group;
    ConfigMap(core::ConfigMap), config_map;
    Endpoints(core::Endpoints), endpoints;
    EndpointSlice(discovery::EndpointSlice), endpoint_slice;
    Namespace(core::Namespace), namespace_object;
    Node(core::Node), node;
    Pod(core::Pod), pod;
    Secret(core::Secret), secret;
    Service(core::Service), service;
    Ingress(k8s_networking::Ingress), ingress;
    IngressClass(k8s_networking::IngressClass), ingress_class;
}

/// An object: metadata, content and origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Metadata of the object.
    pub meta: Meta,
    /// Content. Kinds without a typed form (Gateway API, retired ones) hold the whole document as `Spec::Raw`.
    pub spec: Spec,
    /// `status` as read.
    pub status: Status,
    /// Source, cluster, file and line of the object.
    pub origin: Origin,
    /// Hash of metadata (without resource version) and content: equal stamps mean equal objects.
    pub stamp: u64,
}

impl Config {
    /// The kind of the content.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.spec.kind()
    }

    /// The decoded content, if this is a ServiceEntry.
    #[must_use]
    pub fn service_entry(&self) -> Option<networking::ServiceEntry> {
        match &self.spec {
            Spec::ServiceEntry(packed) => Some(packed.read()),
            _ => None,
        }
    }

    /// The identity of the object: kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> ConfigKey {
        ConfigKey { kind: self.kind(), namespace: self.meta.namespace.clone(), name: self.meta.name.clone() }
    }

    /// Whether the object is from the main cluster, the only one whose configuration is read. From other clusters only kinds
    /// that the registry reads have an effect.
    #[must_use]
    pub fn is_of_main_cluster(&self) -> bool {
        self.origin.cluster.is_empty()
    }

    /// The order "oldest first, ties by name, then namespace" (Istio's `sortConfigByCreationTime`).
    #[must_use]
    pub fn age_order(&self) -> (Timestamp, &str, &str) {
        (self.meta.creation, &self.meta.name, &self.meta.namespace)
    }
}

/// The type of a change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The object is new.
    Add,
    /// The content changed.
    Update,
    /// The object was deleted.
    Delete,
}

/// One change of one object, as published by the aggregate cache.
#[derive(Debug, Clone)]
pub struct ConfigEvent {
    /// The previous object; `None` on Add. On Delete both `old` and `current` are the deleted object.
    pub old: Option<std::sync::Arc<Config>>,
    /// The current object; on Delete the deleted object.
    pub current: std::sync::Arc<Config>,
    /// The type of the change.
    pub kind: EventKind,
}
