//! The traffic policy in force for a port and a subset: top level, port level, subset, port level of the subset (Istio's
//! `GetPortLevelTrafficPolicy`, `MergeSubsetTrafficPolicy`).

use std::borrow::Cow;

use crate::proto::networking::{DestinationRule, Subset, TrafficPolicy, traffic_policy::PortTrafficPolicy};

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
    Some(laid_over(top, subset, port_level))
}

/// A policy with the fields of another over its own, without ports. `replace` takes load balancer, connection pool, outlier
/// detection and TLS from the other one whether it sets them or not.
fn laid_over(base: TrafficPolicy, over: TrafficPolicy, replace: bool) -> TrafficPolicy {
    fn pick<T>(over: Option<T>, base: Option<T>, replace: bool) -> Option<T> {
        if replace { over } else { over.or(base) }
    }
    TrafficPolicy {
        load_balancer: pick(over.load_balancer, base.load_balancer, replace),
        connection_pool: pick(over.connection_pool, base.connection_pool, replace),
        outlier_detection: pick(over.outlier_detection, base.outlier_detection, replace),
        tls: pick(over.tls, base.tls, replace),
        tunnel: pick(over.tunnel, base.tunnel, false),
        proxy_protocol: pick(over.proxy_protocol, base.proxy_protocol, false),
        retry_budget: pick(over.retry_budget, base.retry_budget, false),
        port_level_settings: Vec::new(),
    }
}

/// A user's policy with the fields that it leaves out from a Gateway API backend policy (Istio's
/// `mergeBackendPolicyTrafficPolicy`). Ports are merged by number in the same way, those of the backend policy alone come last.
pub(super) fn over_backend(user: Option<&TrafficPolicy>, backend: Option<&TrafficPolicy>) -> Option<TrafficPolicy> {
    let (Some(user), Some(backend)) = (user, backend) else { return user.or(backend).cloned() };
    let number = |settings: &PortTrafficPolicy| settings.port.as_ref().map_or(0, |port| port.number);
    let mut ports = user.port_level_settings.clone();
    for of_backend in &backend.port_level_settings {
        match ports.iter_mut().rfind(|of_user| number(of_user) == number(of_backend)) {
            None => ports.push(of_backend.clone()),
            Some(of_user) => {
                let missing = of_backend.clone();
                of_user.load_balancer = of_user.load_balancer.take().or(missing.load_balancer);
                of_user.connection_pool = of_user.connection_pool.or(missing.connection_pool);
                of_user.outlier_detection = of_user.outlier_detection.take().or(missing.outlier_detection);
                of_user.tls = of_user.tls.take().or(missing.tls);
            }
        }
    }
    Some(TrafficPolicy { port_level_settings: ports, ..laid_over(backend.clone(), user.clone(), false) })
}

/// The subset of this name.
#[must_use]
pub fn subset<'a>(rule: &'a DestinationRule, name: &str) -> Option<&'a Subset> {
    rule.subsets.iter().find(|s| s.name == name)
}
