//! Labels and label selectors.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Serialize, Serializer};

/// Labels of an object or workload, sorted by key.
pub type Labels = BTreeMap<String, String>;

/// Label of a Service or Gateway that is the gateway of a network.
pub const NETWORK: &str = "topology.istio.io/network";
/// Label with the cross-network port of such a gateway.
pub const GATEWAY_PORT: &str = "networking.istio.io/gatewayPort";
/// Cross-network port without that label.
const DEFAULT_GATEWAY_PORT: u32 = 15443;

/// The network that an object with these labels is a gateway of, and its cross-network port.
#[must_use]
pub fn gateway_of(labels: &Labels) -> Option<(&str, u32)> {
    let network = labels.get(NETWORK).filter(|n| !n.is_empty())?;
    let port = labels.get(GATEWAY_PORT).and_then(|p| p.parse().ok()).unwrap_or(DEFAULT_GATEWAY_PORT);
    Some((network, port))
}

/// Label with the whole locality of a workload, `.` or `/` between the parts.
const LOCALITY: &str = "topology.istio.io/locality";
/// The same under its old name.
const OLD_LOCALITY: &str = "istio-locality";

/// The whole locality that labels give to a workload as text, `.` read as `/` unless there is a `/`.
#[must_use]
pub fn whole_locality(labels: &Labels) -> Option<String> {
    let text = labels.get(LOCALITY).or_else(|| labels.get(OLD_LOCALITY)).filter(|t| !t.is_empty())?;
    Some(if text.contains('/') { text.clone() } else { text.replace('.', "/") })
}

/// Labels as each of many endpoints holds them: a sorted list of texts that are shared, where a map's node alone would take
/// half a kilobyte.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSet(Box<[(Arc<str>, Arc<str>)]>);

impl LabelSet {
    /// The set of these labels; `share` interns each text.
    #[must_use]
    pub fn of(labels: &Labels, mut share: impl FnMut(&str) -> Arc<str>) -> Self {
        Self(labels.iter().map(|(k, v)| (share(k), share(v))).collect())
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    /// All labels, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The labels as a mutable map.
    #[must_use]
    pub fn to_labels(&self) -> Labels {
        self.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }
}

impl From<&Labels> for LabelSet {
    fn from(labels: &Labels) -> Self {
        Self::of(labels, |text| text.into())
    }
}

impl Serialize for LabelSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// Lookup of labels in either form.
pub trait LabelLookup {
    /// The value of a label.
    fn value(&self, key: &str) -> Option<&str>;
}

impl LabelLookup for Labels {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl LabelLookup for LabelSet {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key)
    }
}

/// Whether `labels` has every pair of `selector`. An empty selector matches everything.
#[must_use]
pub fn matches(selector: &Labels, labels: &impl LabelLookup) -> bool {
    selector.iter().all(|(k, v)| labels.value(k) == Some(v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_locality_is_read_with_dots_or_slashes() {
        let of = |k: &str, v: &str| whole_locality(&Labels::from([(k.to_string(), v.to_string())]));
        assert_eq!(of("istio-locality", "a.b.c"), Some("a/b/c".into()));
        assert_eq!(of("topology.istio.io/locality", "a/b.c"), Some("a/b.c".into()));
        assert_eq!(of("istio-locality", ""), None);
    }

    #[test]
    fn a_set_answers_as_the_map_that_it_was_made_of() {
        let map: Labels = [("b", "2"), ("a", "1"), ("c", "")].map(|(k, v)| (k.to_string(), v.to_string())).into();
        let set = LabelSet::from(&map);
        assert_eq!(set.to_labels(), map);
        for key in ["", "a", "b", "bb", "c", "d"] {
            assert_eq!(set.get(key), map.get(key).map(String::as_str), "{key}");
        }
        assert!(
            matches(&map, &set)
                && matches(&Labels::new(), &LabelSet::default())
                && !matches(&map, &LabelSet::default())
        );
        assert_eq!(serde_json::to_value(&set).unwrap(), serde_json::to_value(&map).unwrap());
    }
}
