//! The listeners that routes may attach to and their Istio Gateways, one of each name.
//!
//! A listener is known by its owner's namespace and name and its own name, whatever the owner's kind. A ListenerSet with the
//! name of its Gateway so takes the place of the Gateway's listeners of the same names, as in Istio; where the ListenerSet is
//! another Gateway's, Istio lets chance decide, and here the Gateway keeps its own.

use std::collections::HashMap;

use super::gateway::Parent;
use crate::{model::Kind, translate::draft::Draft};

/// A listener that routes may name.
#[derive(Debug, Clone)]
pub struct Listening {
    /// As the parent of routes.
    pub parent: Parent,
    /// The Istio Gateway; none where the listener cannot be programmed.
    pub draft: Option<Draft>,
}

/// Listeners in order, each name once.
#[derive(Debug, Default)]
pub struct Listeners {
    all: Vec<Listening>,
    places: HashMap<String, usize>,
}

impl Listeners {
    /// Puts a listener in; it takes the place of one with its name.
    pub fn put(&mut self, listening: Listening) {
        let next = self.all.len();
        let place = *self.places.entry(listening.parent.internal_name.clone()).or_insert(next);
        match self.all.get_mut(place) {
            Some(before) => *before = listening,
            None => self.all.push(listening),
        }
    }

    /// Puts the listeners of another Gateway in. Of two with one name that of a Gateway's own spec stays.
    pub fn join(&mut self, others: Self) {
        for other in others.all {
            let is_taken = self.places.contains_key(&other.parent.internal_name);
            if !is_taken || other.parent.owner.kind == Kind::KubernetesGateway {
                self.put(other);
            }
        }
    }

    /// All of them.
    pub fn into_parts(self) -> (Vec<Parent>, Vec<Draft>) {
        let (parents, drafts): (Vec<_>, Vec<_>) = self.all.into_iter().map(|l| (l.parent, l.draft)).unzip();
        (parents, drafts.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ConfigKey;

    fn listening(kind: Kind, name: &str, port: u32) -> Listening {
        let owner = ConfigKey { kind, namespace: "edge".into(), name: "web".into() };
        let (internal_name, section_name) = (format!("edge/web~{name}"), name.to_string());
        let (allowed_kinds, hostnames, original_hostname) = (Vec::new(), Vec::new(), String::new());
        let protocol = "HTTP".to_string();
        let parent =
            Parent { owner, internal_name, allowed_kinds, hostnames, original_hostname, section_name, port, protocol };
        Listening { parent, draft: None }
    }

    fn ports(listeners: Listeners) -> Vec<u32> {
        listeners.into_parts().0.iter().map(|parent| parent.port).collect()
    }

    #[test]
    fn a_set_with_the_name_of_its_gateway_takes_the_place_and_one_of_another_gateway_does_not() {
        let mut own = Listeners::default();
        own.put(listening(Kind::KubernetesGateway, "a", 1));
        own.put(listening(Kind::KubernetesGateway, "b", 2));
        let mut foreign = Listeners::default();
        foreign.put(listening(Kind::ListenerSet, "a", 3));
        foreign.put(listening(Kind::ListenerSet, "c", 4));
        let mut first = Listeners::default();
        first.join(own);
        first.join(foreign);
        assert_eq!(ports(first), [1, 2, 4]);
        let mut own = Listeners::default();
        own.put(listening(Kind::KubernetesGateway, "a", 1));
        own.put(listening(Kind::ListenerSet, "a", 3));
        assert_eq!(ports(own), [3]);
    }
}
