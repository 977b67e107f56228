//! The workload behind a stock Envoy that counts: the values of the labels that Istio's metrics have for it.

use std::sync::Arc;

use crate::model::{Labels, Node};

/// The first version of Envoy that has a logger that counts.
const FIRST: (u32, u32) = (1, 37);
/// Bytes of a value at most.
const LONGEST: usize = 253;
const UNKNOWN: &str = "unknown";

/// The values by field. They have letters, digits, dots, underscores, slashes, colons and dashes alone, so that they mean nothing
/// in a format, in CEL or in a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnPeer([Arc<str>; 7]);

impl OwnPeer {
    /// The fields, in their order.
    pub const FIELDS: [&'static str; 7] =
        ["workload", "namespace", "app", "version", "canonical_service", "canonical_revision", "cluster"];
    /// The metadata of endpoints, clusters and requests that has these fields of theirs.
    pub const METADATA: &'static str = "pilothouse";

    /// The workload of a node with these labels; `None` where its proxy cannot count. One that tells no version is not trusted
    /// with it.
    #[must_use]
    pub fn of(node: &Node, labels: &Labels) -> Option<Self> {
        let metadata = &node.metadata;
        let can = metadata.istio_version.is_empty()
            && metadata.generator.is_empty()
            && metadata.envoy_version.is_some_and(|version| version >= FIRST);
        let pod = node.id.split_once('.').map_or(&*node.id, |(pod, _)| pod);
        let of = [&*metadata.workload_name, &*node.namespace, &*node.cluster_id];
        can.then(|| Self::of_labels(|key| labels.get(key).map(String::as_str), of, pod))
    }

    /// A workload with these labels, of this name, namespace and cluster; `else_` is its name where nothing else tells one.
    #[must_use]
    pub fn of_labels<'a>(label: impl Fn(&str) -> Option<&'a str>, of: [&str; 3], else_: &str) -> Self {
        let [workload, namespace, cluster] = of;
        let first = |given: &[&str]| value(given.iter().find(|text| !text.is_empty()).copied().unwrap_or(UNKNOWN));
        let label = |key: &str| label(key).unwrap_or_default().to_string();
        let (app, version) = (label("app"), label("version"));
        let canonical = label("service.istio.io/canonical-name");
        let revision = label("service.istio.io/canonical-revision");
        Self([
            first(&[workload, &canonical, &app, else_]),
            first(&[namespace]),
            first(&[&app]),
            first(&[&version]),
            first(&[&canonical, &app, workload, else_]),
            first(&[&revision, &version, "latest"]),
            first(&[cluster]),
        ])
    }

    /// The value of a field; empty for one that there is not.
    #[must_use]
    pub fn value(&self, field: &str) -> &str {
        Self::FIELDS.iter().position(|known| *known == field).and_then(|at| self.0.get(at)).map_or("", |value| value)
    }
}

fn value(text: &str) -> Arc<str> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-/:".contains(c) { c } else { '_' };
    text.chars().take(LONGEST).map(plain).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_metadata_then_labels_then_the_id() {
        let of = |labels: &[(&'static str, &'static str)], workload: &str| {
            let get = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
            let peer = OwnPeer::of_labels(get, [workload, "shop", ""], "pod-1");
            OwnPeer::FIELDS.map(|field| peer.value(field).to_string())
        };
        let plain = ["pod-1", "shop", "unknown", "unknown", "pod-1", "latest", "unknown"];
        assert_eq!(of(&[], ""), plain);
        let labelled = ["web", "shop", "a", "v1", "c", "v1", "unknown"];
        assert_eq!(of(&[("app", "a"), ("version", "v1"), ("service.istio.io/canonical-name", "c")], "web"), labelled);
        assert_eq!(of(&[("app", "a';%\n")], "")[0], "a____", "nothing that a format would read");
    }
}
