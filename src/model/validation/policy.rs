//! Targets of a policy: workloads by labels, or objects by reference.

use super::{check::Check, names};
use crate::proto::istio::r#type::v1beta1::{PolicyTargetReference, WorkloadSelector};

/// Kinds that a policy may target, with their groups.
const TARGETS: [(&str, &str); 4] = [
    ("", "Service"),
    ("networking.istio.io", "ServiceEntry"),
    ("gateway.networking.k8s.io", "Gateway"),
    ("gateway.networking.k8s.io", "GatewayClass"),
];

/// Validates the selector, reference or references: at most one of them, each valid.
pub(super) fn targets(
    c: &mut Check,
    selector: Option<&WorkloadSelector>,
    reference: Option<&PolicyTargetReference>,
    references: &[PolicyTargetReference],
) {
    let given = [selector.is_some(), reference.is_some(), !references.is_empty()];
    c.need(
        given.iter().filter(|g| **g).count() < 2,
        "only one of selector, targetRef and targetRefs may be set; remove the others",
    );
    names::selector(c, "selector", selector.map(|s| &s.match_labels));
    if let Some(reference) = reference {
        c.at("targetRef", |c| target(c, reference));
    }
    c.each("targetRefs", references, target);
}

fn target(c: &mut Check, reference: &PolicyTargetReference) {
    c.need(!reference.name.is_empty(), "name must be set");
    c.need(reference.namespace.is_empty(), "namespace must not be set: a policy reaches its own namespace only");
    let group = if reference.group == "core" { "" } else { &reference.group };
    c.need(
        TARGETS.contains(&(group, &reference.kind)),
        format_args!(
            "{}/{} cannot be a target; use Service, ServiceEntry, Gateway or GatewayClass with its group",
            reference.group, reference.kind
        ),
    );
}
