//! One patch, as it was read from its object.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use prost::Message;
use prost_reflect::ReflectMessage;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::{
    model::{Config, ConfigKey, LabelLookup, Labels, Timestamp, labels, merge_bytes::merge_bytes, patch_value},
    proto::{
        istio::r#type::v1beta1::PolicyTargetReference,
        networking::envoy_filter::{
            ApplyTo, EnvoyConfigObjectPatch, PatchContext, ProxyMatch, envoy_config_object_match::ObjectTypes,
            patch::Operation,
        },
    },
};

/// Longer expressions of versions match no proxy, as in Istio.
const LONGEST_VERSION: usize = 1024;

/// Limit of a compiled expression.
const LARGEST_VERSION: usize = 256 << 10;

/// Services that gateways get clusters for although none of their routes leads there.
const REFERENCED_SERVICES: &str = "envoyfilter.istio.io/referenced-services";

/// Group of the Gateway API.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The workloads of a filter.
#[derive(Debug)]
pub(super) struct Targets {
    selector: Labels,
    pub(super) references: Vec<PolicyTargetReference>,
}

impl Targets {
    pub(super) fn select(&self, workload: &impl LabelLookup) -> bool {
        labels::matches(&self.selector, workload)
    }

    /// The labels of the workloads; those that references name may have any.
    pub(super) const fn selector(&self) -> &Labels {
        &self.selector
    }

    pub(super) fn name_gateway(&self, gateway: &str, namespace: &str) -> bool {
        let here = |r: &PolicyTargetReference| r.namespace.is_empty() || r.namespace == namespace;
        let is_gateway = |r: &PolicyTargetReference| r.group == GATEWAY_GROUP && r.kind == "Gateway";
        self.references.iter().any(|r| is_gateway(r) && r.name == gateway && here(r))
    }
}

/// One EnvoyFilter, read.
#[derive(Debug)]
pub(super) struct ReadFilter {
    pub(super) key: ConfigKey,
    pub(super) stamp: u64,
    pub(super) priority: i32,
    pub(super) created: Timestamp,
    pub(super) targets: Targets,
    /// Hosts, or `namespace/host`.
    pub(super) services: BTreeSet<Arc<str>>,
    pub(super) patches: Vec<Arc<Patch>>,
    /// Patches that no resource can take, each with its place and the reason.
    pub(super) faults: Vec<String>,
}

/// The value of a patch, encoded as the message that its target is.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchValue {
    /// The encoded message.
    pub bytes: Bytes,
    /// The same in the form in which a decoder merges it.
    pub merged: Bytes,
    /// Its name, where it has one.
    pub name: String,
    /// It has a transport socket, which is merged in its own way.
    pub has_socket: bool,
}

impl PatchValue {
    /// The value as its message; an empty one where it is of another type, which its reader excludes.
    #[must_use]
    pub fn decoded<M: Message + Default>(&self) -> M {
        M::decode(self.bytes.clone()).unwrap_or_default()
    }
}

/// A patch of an EnvoyFilter.
#[derive(Debug)]
pub struct Patch {
    /// The EnvoyFilter.
    pub filter: ConfigKey,
    /// Position in `configPatches`.
    pub index: usize,
    /// The kind of thing that is patched.
    pub apply_to: ApplyTo,
    /// The change. Insertions into lists without an order are additions.
    pub operation: Operation,
    /// The class of resources.
    pub context: PatchContext,
    /// The thing that is patched; `None` is any.
    pub object: Option<ObjectTypes>,
    /// The content; none for removals.
    pub value: Option<PatchValue>,
    stamp: u64,
    version: Version,
    metadata: BTreeMap<String, String>,
    applied: AtomicBool,
}

#[derive(Debug)]
enum Version {
    Any,
    Matching(Regex),
    None,
}

impl ReadFilter {
    /// Reads a filter; `None` for objects of other kinds.
    pub(super) fn of(config: &Arc<Config>) -> Option<Self> {
        let spec = config.envoy_filter()?;
        let key = config.key();
        let (mut patches, mut faults) = (Vec::new(), Vec::new());
        for (index, given) in spec.config_patches.iter().enumerate() {
            match Patch::read(&key, config.stamp, index, given) {
                Ok(patch) => patches.push(Arc::new(patch)),
                Err(reason) => faults.push(format!("configPatches[{index}] is skipped: {reason}")),
            }
        }
        let services = config.meta.annotations.get(REFERENCED_SERVICES).map_or("", String::as_str);
        Some(Self {
            stamp: config.stamp,
            priority: spec.priority,
            created: config.meta.creation,
            targets: Targets {
                selector: spec
                    .workload_selector
                    .as_ref()
                    .map(|s| s.labels.clone().into_iter().collect())
                    .unwrap_or_default(),
                references: spec.target_refs.clone(),
            },
            services: services.split(',').map(str::trim).filter(|s| !s.is_empty()).map(Arc::from).collect(),
            patches,
            faults,
            key,
        })
    }
}

impl Patch {
    fn read(filter: &ConfigKey, stamp: u64, index: usize, given: &EnvoyConfigObjectPatch) -> Result<Self, String> {
        let apply_to = given.apply_to();
        let patch = given.patch.as_ref().ok_or("it has no patch")?;
        let operation = ordered(apply_to, patch.operation());
        if let Some(reason) = without_effect(apply_to, operation) {
            return Err(reason);
        }
        let value = match &patch.value {
            Some(value) if operation != Operation::Remove => {
                let value = patch_value::with_known_types(value)?;
                let message = patch_value::read(apply_to, &value, false).map_err(|error| error.to_string())?;
                let bytes = message.encode_to_vec();
                let merged = merge_bytes(&message.descriptor(), &bytes).ok_or("its value is no message")?.into();
                let has_socket = message.has_field_by_name("transport_socket");
                let name = message.get_field_by_name("name").and_then(|name| name.as_str().map(str::to_string));
                Some(PatchValue { bytes: bytes.into(), merged, name: name.unwrap_or_default(), has_socket })
            }
            None if operation != Operation::Remove => return Err("it has no value".to_string()),
            _ => None,
        };
        let condition = given.r#match.as_ref();
        let proxy = condition.and_then(|m| m.proxy.as_ref());
        Ok(Self {
            filter: filter.clone(),
            index,
            apply_to,
            operation,
            context: condition.map_or(PatchContext::Any, |m| m.context()),
            object: condition.and_then(|m| m.object_types.clone()),
            value,
            stamp,
            version: Version::of(proxy),
            metadata: proxy.map(|p| p.metadata.clone()).unwrap_or_default(),
            applied: AtomicBool::new(false),
        })
    }

    /// Whether the patch is for proxies of this version that tell this metadata.
    pub(super) fn matches_proxy(&self, version: &str, metadata: &Value) -> bool {
        let of_version = match &self.version {
            Version::Any => true,
            Version::Matching(expression) => !version.is_empty() && expression.is_match(version),
            Version::None => false,
        };
        of_version && self.metadata.iter().all(|(key, value)| metadata[key.as_str()].as_str() == Some(value))
    }

    /// The version of the object and the position in it: equal identities are equal patches.
    #[must_use]
    pub const fn identity(&self) -> (u64, usize) {
        (self.stamp, self.index)
    }

    /// Whether the resources of a context are patched.
    #[must_use]
    pub fn is_for(&self, context: PatchContext) -> bool {
        self.context == PatchContext::Any || self.context == context
    }

    /// Notes that some resource was patched.
    pub fn note_applied(&self) {
        self.applied.store(true, Ordering::Relaxed);
    }

    /// Whether some resource was patched since the object was read.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.applied.load(Ordering::Relaxed)
    }

    /// A text about the patch, with its place: `configPatches[2] (MERGE of CLUSTER) is skipped for RESOURCE: REASON`.
    #[must_use]
    pub fn skipped(&self, resource: &str, reason: &str) -> String {
        format!("{self} is skipped for {resource}: {reason}")
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, target) = (self.operation.as_str_name(), self.apply_to.as_str_name());
        write!(f, "configPatches[{}] ({operation} of {target})", self.index)
    }
}

impl Version {
    fn of(proxy: Option<&ProxyMatch>) -> Self {
        let text = proxy.map_or("", |p| p.proxy_version.as_str());
        if text.is_empty() {
            return Self::Any;
        }
        if text.len() > LONGEST_VERSION {
            return Self::None;
        }
        let compiled = RegexBuilder::new(text).size_limit(LARGEST_VERSION).build();
        compiled.map_or(Self::None, Self::Matching)
    }
}

/// Insertions where there is no order are additions.
const fn ordered(apply_to: ApplyTo, operation: Operation) -> Operation {
    match (apply_to, operation) {
        (ApplyTo::HttpFilter | ApplyTo::NetworkFilter | ApplyTo::HttpRoute | ApplyTo::ListenerFilter, _) => operation,
        (_, Operation::InsertBefore | Operation::InsertAfter | Operation::InsertFirst) => Operation::Add,
        _ => operation,
    }
}

/// The reason why an operation changes nothing on a target, as in Istio.
fn without_effect(apply_to: ApplyTo, operation: Operation) -> Option<String> {
    use ApplyTo as T;
    use Operation as O;
    let fits = match operation {
        O::Invalid => false,
        O::Merge => apply_to != T::ExtensionConfig,
        O::MergeAndReplaceList => !matches!(
            apply_to,
            T::ExtensionConfig | T::HttpFilter | T::NetworkFilter | T::ListenerFilter | T::Bootstrap
        ),
        O::Add => !matches!(apply_to, T::RouteConfiguration | T::Bootstrap),
        O::Remove => !matches!(apply_to, T::RouteConfiguration | T::ExtensionConfig | T::Bootstrap),
        O::Replace => matches!(apply_to, T::HttpFilter | T::NetworkFilter | T::ListenerFilter | T::VirtualHost),
        O::InsertBefore | O::InsertAfter | O::InsertFirst => true,
    };
    (!fits || apply_to == T::Invalid)
        .then(|| format!("{} has no effect on {}", operation.as_str_name(), apply_to.as_str_name()))
}
