//! Several DestinationRules for one host in one namespace become one, where they can
//! (Istio's `mergeDestinationRule`, with and without `ENABLE_ENHANCED_DESTINATIONRULE_MERGE`).
//!
//! Between rules of users the first traffic policy counts as a whole. Between a rule of a user and one that stands for
//! backend policies of Gateway API the user's fields count, whichever is older, and the other one's fill the gaps.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{MergedDestinationRule, policy};
use crate::model::{
    Config, Hostname, Spec, Visibility,
    host::{is_wildcard, resolve_short_name, specificity},
};

/// Annotation of a rule that stands for backend policies, with their names; users may not set it.
const BACKEND_POLICIES: &str = "internal.istio.io/parents";

type RuleList = Vec<Arc<MergedDestinationRule>>;

/// Merged rules by host.
#[derive(Debug, Default)]
pub(super) struct MergedRules {
    by_host: HashMap<Hostname, RuleList>,
    /// The wildcard hosts among the keys, most specific first.
    wildcards: Vec<Hostname>,
}

impl MergedRules {
    /// Adds a rule, merging it into those of the same host.
    pub(super) fn add(&mut self, incoming: &Arc<MergedDestinationRule>, enhanced: bool) {
        let host: Hostname = incoming.rule.host.as_str().into();
        let list = self.by_host.entry(host).or_default();
        let mut separate = true;
        for existing in list.iter_mut() {
            match relation(existing, incoming, enhanced, separate) {
                Relation::Apart => separate = true,
                Relation::Merge { separate: stays } => {
                    separate = stays;
                    merge_into(Arc::make_mut(existing), incoming);
                }
            }
        }
        if separate {
            list.push(incoming.clone());
        }
    }

    /// Sorts the wildcards for look-ups; to be called after the last rule.
    pub(super) fn seal(&mut self) {
        self.wildcards = self.by_host.keys().filter(|host| is_wildcard(host)).cloned().collect();
        self.wildcards.sort_by(|a, b| specificity(a, b));
    }

    /// The rules of the host itself, else those of the longest wildcard that covers it.
    pub(super) fn most_specific(&self, host: &str) -> Option<&[Arc<MergedDestinationRule>]> {
        if let Some(rules) = self.by_host.get(host) {
            return Some(rules);
        }
        let suffix = host.strip_prefix('*').unwrap_or(host);
        let covers = |wildcard: &&Hostname| wildcard.strip_prefix('*').is_some_and(|tail| suffix.ends_with(tail));
        self.wildcards.iter().find(covers).and_then(|wildcard| self.by_host.get(wildcard)).map(Vec::as_slice)
    }
}

enum Relation {
    /// The two cannot be merged.
    Apart,
    /// The incoming rule goes into the existing one, and also stands by itself if `separate`.
    Merge { separate: bool },
}

fn relation(
    existing: &MergedDestinationRule,
    incoming: &MergedDestinationRule,
    enhanced: bool,
    mut separate: bool,
) -> Relation {
    if enhanced {
        if incoming.export_to == existing.export_to {
            separate = false;
        } else if !existing.export_to.is_empty() && incoming.export_to.is_superset(&existing.export_to) {
            separate = true;
        } else {
            return Relation::Apart;
        }
    }
    match (existing.selector(), incoming.selector()) {
        (Some(a), Some(b)) if a != b => Relation::Apart,
        (Some(_), Some(_)) | (None, None) => Relation::Merge { separate: false },
        _ => Relation::Merge { separate },
    }
}

/// New subsets are added, and the traffic policy as the origin of the two says; everything else stays as the first rule says.
/// The merged rule keeps the origin of the first: behind a backend policy, each further rule of a user counts before it.
fn merge_into(existing: &mut MergedDestinationRule, incoming: &MergedDestinationRule) {
    let mut names: HashSet<String> = existing.rule.subsets.iter().map(|s| s.name.clone()).collect();
    let rule = Arc::make_mut(&mut existing.rule);
    for subset in &incoming.rule.subsets {
        if names.insert(subset.name.clone()) {
            rule.subsets.push(subset.clone());
        } else {
            tracing::debug!(host = rule.host, subset = subset.name, "duplicate subset in DestinationRules");
        }
    }
    let (own, other) = (rule.traffic_policy.as_ref(), incoming.rule.traffic_policy.as_ref());
    let policy = match (existing.of_backend_policy, incoming.of_backend_policy) {
        (false, true) => policy::over_backend(own, other),
        (true, false) => policy::over_backend(other, own),
        _ => own.or(other).cloned(),
    };
    rule.traffic_policy = policy;
    existing.from.extend(incoming.from.iter().cloned());
    existing.stamp = combined(existing.stamp, incoming.stamp);
}

fn combined(a: u64, b: u64) -> u64 {
    let mut bytes = a.to_le_bytes().to_vec();
    bytes.extend(b.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes).max(1)
}

/// A rule by itself: its host resolved, its visibility read. `None` for a config of another kind. The content is shared with
/// the config where there is nothing to resolve.
pub(super) fn convert(config: &Config, domain: &str) -> Option<Arc<MergedDestinationRule>> {
    let Spec::DestinationRule(written) = &config.spec else { return None };
    let mut rule = written.clone();
    let host = resolve_short_name(&rule.host, &config.meta.namespace, domain);
    if *host != *rule.host {
        Arc::make_mut(&mut rule).host = host.to_string();
    }
    let export_to = if rule.workload_selector.is_some() {
        BTreeSet::from([Visibility::Private])
    } else {
        rule.export_to.iter().map(|e| Visibility::parse(e)).collect()
    };
    let (name, namespace) = (config.meta.name.clone(), config.meta.namespace.clone());
    let from = vec![(name.clone(), namespace.clone())];
    let of_backend_policy = config.meta.annotations.contains_key(BACKEND_POLICIES);
    Some(Arc::new(MergedDestinationRule {
        rule,
        namespace,
        name,
        from,
        export_to,
        of_backend_policy,
        stamp: config.stamp,
    }))
}
