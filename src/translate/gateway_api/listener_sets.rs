//! The ListenerSets that a Gateway admits.

use super::{
    input::{Input, Object},
    types::gateway::GatewaySpec,
};
use crate::translate::selector::selects_namespace;

/// Whether the Gateway admits ListenerSets of a namespace.
pub fn accepts_listeners_of(input: &Input<'_>, gateway: &Object<GatewaySpec>, namespace: &str) -> bool {
    let allowed = gateway.spec.allowed_listeners.as_ref().and_then(|a| a.namespaces.as_ref());
    let Some(allowed) = allowed else { return false };
    match allowed.from.as_deref() {
        Some("All") => true,
        Some("Same") => namespace == gateway.namespace(),
        None | Some("Selector") => {
            let labels = input.namespace_labels(namespace);
            let selector = allowed.selector.as_ref();
            labels.zip(selector).is_some_and(|(labels, selector)| selects_namespace(selector, namespace, labels))
        }
        Some(_) => false,
    }
}
