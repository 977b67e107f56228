//! DestinationRules: merged per host, looked up by the proxy's namespace, the service's, then the root's
//! (Istio's `destination_rule.go`, `PushContext.destinationRule`).
//!
//! Invariants: rules are merged inside one namespace only; the first level of the look-up that has any match for a host
//! decides, the levels below it are not read. Host names are full ones.

mod merge;
mod policy;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{ProxyView, context::PushInputs};
use crate::{
    model::{Config, Hostname, Kind, Service, Visibility, labels},
    proto::networking,
};
use merge::MergedRules;

pub use policy::{merge_subset_policy, port_level_policy, subset};

/// One or more DestinationRules of one host, merged.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedDestinationRule {
    /// The merged rule, host resolved.
    pub rule: Arc<networking::DestinationRule>,
    /// Namespace of the rule.
    pub namespace: Arc<str>,
    /// Name of the first rule (metadata `istio.config`).
    pub name: Arc<str>,
    /// All rules that went in: `(name, namespace)`.
    pub from: Vec<(Arc<str>, Arc<str>)>,
    /// `exportTo` as declared; `.` alone for a rule with a workload selector.
    pub export_to: BTreeSet<Visibility>,
    /// The first rule stands for backend policies of Gateway API.
    of_backend_policy: bool,
    /// Hash of the content: equal stamps mean equal rules.
    pub stamp: u64,
}

impl MergedDestinationRule {
    /// The labels that a proxy must have for the rule to count; `None` for a rule without a workload selector.
    #[must_use]
    pub fn selector(&self) -> Option<&crate::model::Labels> {
        self.rule.workload_selector.as_ref().map(|s| &s.match_labels)
    }

    fn is_exported_to(&self, namespace: &str) -> bool {
        self.export_to.is_empty()
            || self.export_to.iter().any(|e| match e {
                Visibility::Public => true,
                Visibility::Namespace(name) => **name == *namespace,
                Visibility::Private | Visibility::None => false,
            })
    }
}

/// DestinationRules by namespace and host.
#[derive(Debug, Default)]
pub struct DestinationRuleIndex {
    /// Rules that count for proxies of their own namespace, by namespace.
    local: HashMap<Arc<str>, MergedRules>,
    /// Rules that count for proxies of other namespaces too, by their own namespace.
    exported: HashMap<Arc<str>, MergedRules>,
    /// Private rules of the root namespace.
    root_private: MergedRules,
}

impl DestinationRuleIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let mesh = &inputs.mesh.config;
        let private_by_default = mesh.default_destination_rule_export_to.iter().any(|e| e == ".");
        let enhanced = inputs.features.enable_enhanced_destinationrule_merge;
        let mut index = Self::default();
        for config in ordered(inputs.configs.list(Kind::DestinationRule)) {
            let Some(incoming) = merge::convert(config, &inputs.mesh.domain) else { continue };
            let own = &config.meta.namespace;
            let export_to = &incoming.export_to;
            let names_own = export_to.contains(&Visibility::Namespace(own.clone()));
            let names_private = export_to.contains(&Visibility::Private);
            if export_to.is_empty() || names_private || names_own || export_to.contains(&Visibility::Public) {
                index.local.entry(own.clone()).or_default().add(&incoming, enhanced);
            }
            let private_only =
                (export_to.is_empty() && private_by_default) || (export_to.len() == 1 && (names_private || names_own));
            if !private_only {
                index.exported.entry(own.clone()).or_default().add(&incoming, enhanced);
            } else if **own == *mesh.root_namespace {
                index.root_private.add(&incoming, enhanced);
            }
        }
        index.local.values_mut().chain(index.exported.values_mut()).for_each(MergedRules::seal);
        index.root_private.seal();
        index
    }

    /// The rule for a service as the proxy sees it: own namespace, service's namespace, root namespace; the first level that
    /// matches wins. Rules with a workload selector count only where the view's labels match.
    #[must_use]
    pub fn lookup(
        &self,
        inputs: &PushInputs,
        view: &ProxyView,
        service: &Service,
    ) -> Option<Arc<MergedDestinationRule>> {
        let rules = self.candidates(inputs, &view.namespace, &service.hostname, &service.namespace);
        select(&rules, &view.namespace, &view.labels).cloned()
    }

    /// The rule for a host that has no service (EDS of an unknown host, gRPC).
    #[must_use]
    pub fn lookup_host(
        &self,
        inputs: &PushInputs,
        view: &ProxyView,
        host: &Hostname,
    ) -> Option<Arc<MergedDestinationRule>> {
        select(&self.candidates(inputs, &view.namespace, host, ""), &view.namespace, &view.labels).cloned()
    }

    /// All rules of the first level that matches a host of a service in `service_namespace` (empty when unknown), those with
    /// a workload selector first (Istio's `PushContext.destinationRule`).
    #[must_use]
    pub fn candidates(
        &self,
        inputs: &PushInputs,
        proxy_namespace: &str,
        host: &str,
        service_namespace: &str,
    ) -> Vec<Arc<MergedDestinationRule>> {
        let root = inputs.mesh.config.root_namespace.as_str();
        // Rules of the root namespace are meant for the whole mesh: a proxy of that namespace must not prefer them to the
        // service's own, except for private ones.
        let own = if proxy_namespace == root { Some(&self.root_private) } else { self.local.get(proxy_namespace) };
        if let Some(rules) = own.and_then(|rules| rules.most_specific(host)) {
            return rules.to_vec();
        }
        for namespace in [service_namespace, root] {
            let rules = self.exported.get(namespace).and_then(|rules| rules.most_specific(host)).unwrap_or_default();
            let exported: Vec<_> = rules.iter().filter(|r| r.is_exported_to(proxy_namespace)).cloned().collect();
            if !exported.is_empty() {
                return exported;
            }
        }
        Vec::new()
    }
}

/// Of the rules of one host, the one for a workload: the first whose selector matches it, else the last one without a
/// selector. A selector counts only in the rule's own namespace.
#[must_use]
pub fn select<'a>(
    rules: &'a [Arc<MergedDestinationRule>],
    namespace: &str,
    workload: &labels::Labels,
) -> Option<&'a Arc<MergedDestinationRule>> {
    let selected = rules.iter().find(|rule| {
        *rule.namespace == *namespace && rule.selector().is_some_and(|selector| labels::matches(selector, workload))
    });
    selected.or_else(|| rules.iter().rfind(|rule| rule.selector().is_none()))
}

/// The host, written out, that a DestinationRule is for; it may be a wildcard.
pub(super) fn host_of(config: &Config, domain: &str) -> Option<Hostname> {
    merge::convert(config, domain).map(|rule| rule.rule.host.as_str().into())
}

/// Rules with a workload selector first, each part oldest first.
fn ordered(configs: &[Arc<Config>]) -> impl Iterator<Item = &Arc<Config>> {
    let has_selector =
        |config: &&Arc<Config>| config.destination_rule().is_some_and(|rule| rule.workload_selector.is_some());
    configs.iter().filter(has_selector).chain(configs.iter().filter(move |c| !has_selector(c)))
}

#[cfg(test)]
mod tests;
