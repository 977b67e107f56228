//! DestinationRule: host, traffic policy, subsets.

use std::collections::BTreeSet;

use super::{check::Check, names, traffic_policy};
use crate::{model::Config, proto::networking::DestinationRule};

pub(super) fn validate(c: &mut Check, config: &Config, rule: &DestinationRule) {
    let namespace = &config.meta.namespace;
    c.field("host", names::wildcard_domain(&rule.host));
    traffic_policy::validate(c, namespace, rule.traffic_policy.as_ref());
    let mut seen = BTreeSet::new();
    c.each("subsets", &rule.subsets, |c, subset| {
        c.need(seen.insert(subset.name.clone()), format_args!("subset name {:?} is used twice", subset.name));
        c.field("name", names::subset_name(&subset.name));
        names::labels(c, "labels", &subset.labels);
        c.errors_only(|c| traffic_policy::validate(c, namespace, subset.traffic_policy.as_ref()));
    });
    let export = if rule.workload_selector.is_some() { names::Export::SelectedWorkloads } else { names::Export::Plain };
    names::export_to(c, namespace, &rule.export_to, export);
    names::selector(c, "workloadSelector", rule.workload_selector.as_ref().map(|s| &s.match_labels));
}
