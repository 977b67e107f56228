//! The traffic policy in force for a port and a subset: top level, port level, subset, port level of the subset (Istio's
//! `GetPortLevelTrafficPolicy`, `MergeSubsetTrafficPolicy`).

use std::borrow::Cow;

use crate::proto::networking::{DestinationRule, Subset, TrafficPolicy};

/// The policy for a port, and whether it is a port-level one. A port-level policy replaces the whole policy: a field that it
/// leaves out has its default and inherits nothing.
#[must_use]
pub fn port_level_policy(policy: Option<&TrafficPolicy>, port: Option<u32>) -> (Option<Cow<'_, TrafficPolicy>>, bool) {
    let Some(policy) = policy else { return (None, false) };
    let settings = policy
        .port_level_settings
        .iter()
        .find(|s| port.is_some() && s.port.as_ref().map(|selector| selector.number) == port);
    let Some(settings) = settings else { return (Some(Cow::Borrowed(policy)), false) };
    let own = TrafficPolicy {
        load_balancer: settings.load_balancer.clone(),
        connection_pool: settings.connection_pool,
        outlier_detection: settings.outlier_detection.clone(),
        tls: settings.tls.clone(),
        ..TrafficPolicy::default()
    };
    (Some(Cow::Owned(own)), true)
}

/// The policy of a subset at a port: the subset's fields over the rule's, field by field; where the subset has a port-level
/// policy, that one replaces load balancer, connection pool, outlier detection and TLS whether it sets them or not.
/// Without a subset policy it is the rule's own policy for the port.
#[must_use]
pub fn merge_subset_policy(
    top: Option<&TrafficPolicy>,
    subset: Option<&TrafficPolicy>,
    port: Option<u32>,
) -> Option<TrafficPolicy> {
    let (top, _) = port_level_policy(top, port);
    let (subset, port_level) = port_level_policy(subset, port);
    let (top, subset) = match (top, subset) {
        (top, None) => return top.map(Cow::into_owned),
        (None, subset) => return subset.map(Cow::into_owned),
        (Some(top), Some(subset)) => (top.into_owned(), subset.into_owned()),
    };
    fn over<T>(subset: Option<T>, top: Option<T>, replace: bool) -> Option<T> {
        if replace { subset } else { subset.or(top) }
    }
    Some(TrafficPolicy {
        load_balancer: over(subset.load_balancer, top.load_balancer, port_level),
        connection_pool: over(subset.connection_pool, top.connection_pool, port_level),
        outlier_detection: over(subset.outlier_detection, top.outlier_detection, port_level),
        tls: over(subset.tls, top.tls, port_level),
        tunnel: over(subset.tunnel, top.tunnel, false),
        proxy_protocol: over(subset.proxy_protocol, top.proxy_protocol, false),
        retry_budget: over(subset.retry_budget, top.retry_budget, false),
        port_level_settings: Vec::new(),
    })
}

/// The subset of this name.
#[must_use]
pub fn subset<'a>(rule: &'a DestinationRule, name: &str) -> Option<&'a Subset> {
    rule.subsets.iter().find(|s| s.name == name)
}
