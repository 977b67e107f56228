//! One object as it is analysed: its identity, its content, and the warnings of its decoding.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use crate::model::{Config, ConfigSnapshot, Kind, Labels, validation::validate};

/// The content of an object.
#[derive(Debug, Clone)]
pub enum Content {
    /// Of a kind that is read.
    Read(Arc<Config>),
    /// The document of any other kind, or one that does not fit its kind.
    Unread(Value),
}

/// An object.
#[derive(Debug, Clone)]
pub struct Object {
    /// API group; empty for core.
    pub group: String,
    /// Kind as written.
    pub kind: String,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Content.
    pub content: Content,
    /// Warnings of decoding and validation, each with the path of its field in front.
    pub warnings: Vec<String>,
    /// File and line, or the source.
    pub place: String,
}

impl Object {
    /// An object that is read.
    #[must_use]
    pub fn read(config: Arc<Config>, warnings: Vec<String>) -> Self {
        let kind = config.kind();
        Self {
            group: kind.group().to_string(),
            kind: kind.as_str().to_string(),
            namespace: config.meta.namespace.clone(),
            name: config.meta.name.clone(),
            place: config.origin.place(),
            content: Content::Read(config),
            warnings,
        }
    }

    /// All objects of a snapshot, with the warnings of their validation.
    #[must_use]
    pub fn all_of(snapshot: &ConfigSnapshot) -> Vec<Self> {
        let configs = snapshot.by_kind.values().flat_map(|list| list.iter());
        configs.map(|config| Self::read(config.clone(), validate(config).warnings)).collect()
    }

    /// An object of a kind that is not read; `None` for a document without kind or name.
    #[must_use]
    pub fn unread(document: Value, place: String) -> Option<Self> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_string();
        let meta = |key: &str| text(document.get("metadata").and_then(|m| m.get(key)));
        let (api_version, kind, name) = (text(document.get("apiVersion")), text(document.get("kind")), meta("name"));
        if kind.is_empty() || name.is_empty() {
            return None;
        }
        let written = meta("namespace");
        let known = Kind::parse(&api_version, &kind);
        let namespace = known.map_or(written.as_str(), |kind| kind.namespace(&written));
        let is_workload = written.is_empty() && TEMPLATES.contains(&kind.as_str());
        Some(Self {
            group: api_version.split_once('/').map(|(group, _)| group.to_string()).unwrap_or_default(),
            namespace: if is_workload { "default" } else { namespace }.into(),
            name: name.as_str().into(),
            kind,
            content: Content::Unread(document),
            warnings: Vec::new(),
            place,
        })
    }

    /// The object, if its kind is read and it fits that kind.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<Config>> {
        match &self.content {
            Content::Read(config) => Some(config),
            Content::Unread(_) => None,
        }
    }

    /// `namespace/name`, or the name alone without a namespace.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.namespace.is_empty() { self.name.to_string() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// The part of the document at a JSON pointer, for kinds whose content is kept as it was written.
    #[must_use]
    pub(super) fn pointer(&self, pointer: &str) -> Option<&Value> {
        match &self.content {
            Content::Unread(document) => document.pointer(pointer),
            Content::Read(config) => match &config.spec {
                crate::model::Spec::Raw(_, document) => document.pointer(pointer),
                _ => None,
            },
        }
    }

    /// Labels of the object.
    #[must_use]
    pub(super) fn labels(&self) -> Cow<'_, Labels> {
        match &self.content {
            Content::Read(config) => Cow::Borrowed(&config.meta.labels),
            Content::Unread(document) => Cow::Owned(pairs(document.pointer("/metadata/labels"))),
        }
    }

    /// Annotations of the object.
    #[must_use]
    pub(super) fn annotations(&self) -> Cow<'_, Labels> {
        match &self.content {
            Content::Read(config) => Cow::Borrowed(&config.meta.annotations),
            Content::Unread(document) => Cow::Owned(pairs(document.pointer("/metadata/annotations"))),
        }
    }

    /// The value of an annotation.
    #[must_use]
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        match &self.content {
            Content::Read(config) => config.meta.annotations.get(name).map(String::as_str),
            Content::Unread(document) => document.pointer("/metadata/annotations")?.get(name)?.as_str(),
        }
    }

    /// Whether it is one of Istio's own parts.
    #[must_use]
    pub(super) fn is_control_plane(&self) -> bool {
        let labels = self.labels();
        labels.contains_key("istio") || labels.get("release").is_some_and(|release| release == "istio")
    }
}

/// Kinds with a template of pods.
pub(super) const TEMPLATES: [&str; 6] =
    ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"];

/// The pairs of an object of strings.
pub(super) fn pairs(value: Option<&Value>) -> Labels {
    let pairs = value.and_then(Value::as_object).into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string()))).collect()
}
