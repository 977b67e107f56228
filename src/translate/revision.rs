//! Ownership of statuses by revision: an object of another control plane's revision is translated, but gets no status.
//!
//! Istio translates objects of all revisions, so that an object stays in effect while its revision changes. It leaves their
//! statuses to the control plane that `istio.io/rev` names, by its revision or by a tag of it. A tag is a
//! MutatingWebhookConfiguration, or a Service in the control plane's namespace, with the labels `istio.io/tag` and
//! `istio.io/rev`. An object without the label on itself or its namespace belongs to this control plane, unless the tag
//! `default` is another's.

use std::collections::BTreeSet;

use super::objects::Objects;
use crate::model::{Config, ConfigKey, Kind, Labels};

const REVISION: &str = "istio.io/rev";
const TAG: &str = "istio.io/tag";
const DEFAULT: &str = "default";

/// The revision and tags of this control plane.
pub struct Revisions<'a> {
    objects: &'a Objects<'a>,
    own: &'a str,
    tags: BTreeSet<&'a str>,
    /// Whether the tag `default` names another revision.
    default_is_taken: bool,
}

impl<'a> Revisions<'a> {
    /// Reads the tags from the objects.
    pub fn of(objects: &'a Objects<'a>) -> Self {
        let own = objects.features().revision.as_str();
        let root = objects.mesh().config.root_namespace.as_str();
        let services = objects.list(Kind::Service).iter().filter(|c| *c.meta.namespace == *root);
        let holders = objects.list(Kind::MutatingWebhookConfiguration).iter().chain(services);
        let pairs: Vec<(&str, &str)> = holders.filter(|c| c.is_of_main_cluster()).filter_map(|c| tag_of(c)).collect();
        let is_own = |revision: &str| names_us(revision, own);
        let tags: BTreeSet<&str> = pairs.iter().filter(|(_, r)| is_own(r)).map(|(tag, _)| *tag).collect();
        let default_is_taken = !tags.contains(DEFAULT) && pairs.iter().any(|(tag, _)| *tag == DEFAULT);
        Self { objects, own, tags, default_is_taken }
    }

    /// Whether this control plane writes the status of an object.
    pub fn own(&self, key: &ConfigKey) -> bool {
        let Some(object) = self.objects.get(key.kind, &key.namespace, &key.name) else { return true };
        let of = |labels: &'a Labels| labels.get(REVISION).map(String::as_str);
        let namespace = || of(&self.objects.get(Kind::Namespace, "", &key.namespace)?.meta.labels);
        match of(&object.meta.labels).or_else(namespace).unwrap_or_default() {
            "" => !self.default_is_taken,
            named => {
                self.tags.contains(named) || (names_us(named, self.own) && !(named == DEFAULT && self.default_is_taken))
            }
        }
    }
}

/// The tag of an object and its revision.
fn tag_of(config: &Config) -> Option<(&str, &str)> {
    let labels = &config.meta.labels;
    Some((labels.get(TAG)?.as_str(), labels.get(REVISION)?.as_str())).filter(|(tag, _)| !tag.is_empty())
}

/// Whether a revision label names this control plane; an empty revision equals `default`.
fn names_us(named: &str, own: &str) -> bool {
    named.is_empty() || named == own || (named == DEFAULT && own.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::model::{ConfigSnapshot, Features, Origin, PushInputs, decode::from_value};

    #[test]
    fn another_revision_speaks_for_itself() {
        assert!(names_us("", "") && names_us("", "canary") && names_us("canary", "canary") && names_us("default", ""));
        assert!(!names_us("canary", "") && !names_us("canary", "default") && !names_us("default", "canary"));
    }

    /// The Ingresses `plain`, `REV…` whose status this control plane writes.
    fn own(revision: &str, tags: &[(&str, &str, &str)], revs: &[&str]) -> Vec<bool> {
        let read = |document: Value| Arc::new(from_value(&document, Origin::default()).unwrap());
        let tag = |(kind, tag, rev): &(&str, &str, &str)| {
            let labels = json!({TAG: tag, REVISION: rev});
            match *kind {
                "Service" => read(json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"name": format!("istiod-{tag}"), "namespace": "istio-system", "labels": labels}})),
                namespace if namespace != "webhook" => read(json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"name": "other", "namespace": namespace, "labels": labels}})),
                _ => read(
                    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                    "metadata": {"name": format!("istio-revision-tag-{tag}"), "labels": labels}}),
                ),
            }
        };
        let ingress = |(n, rev): (usize, &&str)| {
            let labels = if rev.is_empty() { json!({}) } else { json!({REVISION: rev}) };
            read(json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {},
                "metadata": {"name": format!("i{n}"), "namespace": "shop", "labels": labels}}))
        };
        let ingresses: Vec<_> = revs.iter().enumerate().map(ingress).collect();
        let keys: Vec<_> = ingresses.iter().map(|c| c.key()).collect();
        let features = Arc::new(Features { revision: revision.to_string(), ..Features::default() });
        let configs = ConfigSnapshot::of(tags.iter().map(tag).chain(ingresses));
        let inputs = PushInputs { features, configs, ..PushInputs::default() };
        let objects = Objects::of(&inputs);
        let revisions = Revisions::of(&objects);
        keys.iter().map(|key| revisions.own(key)).collect()
    }

    #[test]
    fn a_tag_of_our_revision_names_us_and_one_of_another_does_not() {
        let objects = ["", "1-30", "prod", "canary", "default"];
        assert_eq!(own("1-30", &[], &objects), [true, true, false, false, false]);
        let tags = [("webhook", "prod", "1-30"), ("Service", "canary", "1-31"), ("shop", "canary", "1-30")];
        assert_eq!(own("1-30", &tags, &objects), [true, true, true, false, false]);
        assert_eq!(own("1-31", &tags, &objects), [true, false, false, true, false]);
        // The control plane with the tag `default` owns objects without a revision.
        let tags = [("webhook", "default", "1-31")];
        assert_eq!(own("1-30", &tags, &objects), [false, true, false, false, false]);
        assert_eq!(own("1-31", &tags, &objects), [true, false, false, false, true]);
        assert_eq!(own("", &tags, &objects), [false, false, false, false, false]);
    }
}
