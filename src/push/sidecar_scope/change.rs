//! The difference between two scopes of one view.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use super::SidecarScope;
use crate::{
    model::{Config, Hostname, PushInputs, Service, difference, host::is_wildcard},
    push::destination_rules::DestinationRuleIndex,
};

/// The difference between the scope of a view and the one that it had before.
#[derive(Debug, Default)]
pub struct ScopeChange {
    /// Another Sidecar counts, or it says something else: anything may differ.
    pub sidecar: bool,
    /// Hosts whose services or DestinationRules differ.
    pub hosts: HashSet<Hostname>,
    /// VirtualServices differ.
    pub routes: bool,
    /// VirtualServices with TCP or TLS routes differ.
    pub stream_routes: bool,
}

/// A scope, with the rules of its context.
#[derive(Debug, Clone, Copy)]
pub struct ScopedRules<'a> {
    /// The scope.
    pub scope: &'a SidecarScope,
    /// The DestinationRules of the context.
    pub rules: &'a DestinationRuleIndex,
    /// The inputs of the context.
    pub inputs: &'a PushInputs,
}

impl ScopeChange {
    /// Compares the contents of two scopes, their DestinationRules left aside.
    pub fn between(before: &Arc<SidecarScope>, now: &Arc<SidecarScope>) -> Self {
        let mut change = Self::default();
        if Arc::ptr_eq(before, now) {
            return change;
        }
        let stamp = |sidecar: &Option<Arc<Config>>| sidecar.as_ref().map(|s| s.stamp);
        change.sidecar = stamp(&before.sidecar) != stamp(&now.sidecar)
            || before.egress.len() != now.egress.len()
            || before.outbound_traffic_policy.mode != now.outbound_traffic_policy.mode;
        if change.sidecar {
            change.routes = true;
            change.stream_routes = true;
            return change;
        }
        for (old, new) in before.egress.iter().zip(&now.egress) {
            change.add_services(&old.services, &new.services);
            let routes = difference::of_lists(&old.virtual_services, &new.virtual_services, |c| c.stamp);
            change.routes |= !routes.is_empty();
            change.stream_routes |= routes.iter().any(|c| has_streams(c));
        }
        change.add_services(&before.services, &now.services);
        change
    }

    fn add_services(&mut self, old: &[Arc<Service>], new: &[Arc<Service>]) {
        let changed = difference::of_lists(old, new, |s| s.stamp);
        self.hosts.extend(changed.into_iter().map(|s| s.hostname.clone()));
    }

    /// Adds the hosts whose rules differ, when rules for these hosts do.
    pub fn add_rules(&mut self, before: ScopedRules<'_>, now: ScopedRules<'_>, rule_hosts: &BTreeSet<Hostname>) {
        let exact = !rule_hosts.iter().any(|host| is_wildcard(host));
        let hosts: Vec<&Hostname> = match exact {
            true => rule_hosts.iter().collect(),
            false => before.scope.services.iter().chain(&now.scope.services).map(|s| &s.hostname).collect(),
        };
        let rules = |scope: &SidecarScope, host: &Hostname| {
            let selected = scope.selected_destination_rules.get(host);
            let plain = scope.destination_rules.get(host).map(|r| r.stamp);
            (plain, selected.map(|rules| rules.iter().map(|r| r.stamp).collect::<Vec<_>>()))
        };
        self.hosts
            .extend(hosts.into_iter().filter(|host| rules(before.scope, host) != rules(now.scope, host)).cloned());
        // Listeners may hold services of another namespace than the one that the scope has for the host.
        let of_other = |side: ScopedRules<'_>, host: &Hostname, namespace: &str| {
            let rules = side.rules.candidates(side.inputs, &side.scope.namespace, host, namespace);
            rules.iter().map(|rule| rule.stamp).collect::<Vec<_>>()
        };
        let others = before.scope.others.iter().chain(&now.scope.others);
        let changed = others.filter(|(host, ns)| of_other(before, host, ns) != of_other(now, host, ns));
        self.hosts.extend(changed.map(|(host, _)| host.clone()));
    }
}

/// Only TCP and TLS routes are in listeners of sidecars.
fn has_streams(config: &Config) -> bool {
    config.virtual_service().is_some_and(|v| !v.tls.is_empty() || !v.tcp.is_empty())
}
