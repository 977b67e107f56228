//! The number of routes attached to each listener.

use std::{collections::BTreeMap, sync::Arc};

use crate::model::ConfigKey;

/// A listener by its owner's namespace and name and its own name. As in Istio the owner's kind is not part of it: a Gateway and
/// a ListenerSet with the same name share the count of listeners with the same name.
type Listener = (Arc<str>, Arc<str>, String);

/// Numbers of routes by listener.
#[derive(Debug, Default)]
pub struct Attachments(BTreeMap<Listener, u32>);

impl Attachments {
    /// Counts a route once for each listener that it is attached to.
    pub fn add<'a>(&mut self, listeners: impl Iterator<Item = (&'a ConfigKey, &'a str)>) {
        let mut all: Vec<Listener> = listeners.map(|(owner, name)| listener(owner, name)).collect();
        all.sort();
        all.dedup();
        for listener in all {
            *self.0.entry(listener).or_default() += 1;
        }
    }

    /// The number of routes attached to a listener.
    pub fn count(&self, owner: &ConfigKey, name: &str) -> u32 {
        self.0.get(&listener(owner, name)).copied().unwrap_or_default()
    }
}

fn listener(owner: &ConfigKey, name: &str) -> Listener {
    (owner.namespace.clone(), owner.name.clone(), name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    #[test]
    fn a_route_counts_once_for_a_listener_of_a_name_with_any_owner() {
        let owner = |kind, name: &str| ConfigKey { kind, namespace: "edge".into(), name: name.into() };
        let (gateway, set) = (owner(Kind::KubernetesGateway, "web"), owner(Kind::ListenerSet, "web"));
        let mut counts = Attachments::default();
        counts.add([(&gateway, "http"), (&gateway, "http"), (&set, "http"), (&set, "tcp")].into_iter());
        counts.add(std::iter::once((&set, "http")));
        assert_eq!((counts.count(&gateway, "http"), counts.count(&set, "http")), (2, 2));
        assert_eq!((counts.count(&set, "tcp"), counts.count(&owner(Kind::ListenerSet, "other"), "tcp")), (1, 0));
    }
}
