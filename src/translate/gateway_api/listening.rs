//! Listeners as parents of routes, with their Istio Gateways, unique by name.
//!
//! A listener is identified by its owner's namespace and name and its own name, not by the owner's kind. So a ListenerSet with
//! the name of its Gateway replaces the Gateway's listeners of the same names, as in Istio. For a ListenerSet of another
//! Gateway, Istio's result is random; here the Gateway keeps its own listeners.

use std::collections::HashMap;

use super::types::RouteGroupKind;
use crate::{
    model::{ConfigKey, Kind, Labels},
    translate::draft::Draft,
};

/// The owner of a listener.
pub struct Owner<'a> {
    /// `KubernetesGateway` or `ListenerSet`.
    pub kind: Kind,
    /// Namespace of the owner.
    pub namespace: &'a str,
    /// Labels of the owner.
    pub labels: &'a Labels,
}

/// A listener as the parent of routes.
#[derive(Debug, Clone)]
pub struct Parent {
    /// Identity of the owner.
    pub owner: ConfigKey,
    /// `NAMESPACE/NAME` of the Istio Gateway.
    pub internal_name: String,
    /// Kinds of routes that may attach.
    pub allowed_kinds: Vec<RouteGroupKind>,
    /// `NAMESPACE/HOST`, as in the server.
    pub hostnames: Vec<String>,
    /// Host name as the user wrote it.
    pub original_hostname: String,
    /// Name of the listener.
    pub section_name: String,
    /// Port of the listener.
    pub port: u32,
    /// Protocol of the listener.
    pub protocol: String,
}

/// A listener that routes may refer to.
#[derive(Debug, Clone)]
pub struct Listening {
    /// The listener as the parent of routes.
    pub parent: Parent,
    /// The Istio Gateway; `None` for a listener that cannot be programmed.
    pub draft: Option<Draft>,
}

/// Listeners in order, unique by name.
#[derive(Debug, Default)]
pub struct Listeners {
    all: Vec<Listening>,
    places: HashMap<String, usize>,
}

impl Listeners {
    /// Adds a listener; it replaces one with the same name.
    pub fn put(&mut self, listening: Listening) {
        let next = self.all.len();
        let place = *self.places.entry(listening.parent.internal_name.clone()).or_insert(next);
        match self.all.get_mut(place) {
            Some(before) => *before = listening,
            None => self.all.push(listening),
        }
    }

    /// Adds the listeners of another Gateway. Of two with the same name, one of a Gateway's own spec takes precedence.
    pub fn join(&mut self, others: Self) {
        for other in others.all {
            let is_taken = self.places.contains_key(&other.parent.internal_name);
            if !is_taken || other.parent.owner.kind == Kind::KubernetesGateway {
                self.put(other);
            }
        }
    }

    /// The parents, and the Istio Gateways of those that have one.
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
