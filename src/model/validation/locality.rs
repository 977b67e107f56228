//! Locality-aware load balancing: weights between localities, failover between regions.

use super::check::{Check, Checked};
use crate::proto::networking::{LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};

const TOPOLOGY: [&str; 3] =
    ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"];

pub(super) fn locality(c: &mut Check, setting: Option<&LocalityLoadBalancerSetting>, outlier: bool) {
    let Some(setting) = setting else { return };
    c.at("localityLbSetting", |c| {
        let priorities = setting.failover_priority.iter().any(|l| TOPOLOGY.contains(&l.as_str()));
        if !setting.failover.is_empty() && !setting.distribute.is_empty() {
            return c.error("only one of distribute and failover may be set");
        }
        if !setting.failover.is_empty() && priorities {
            return c.error("failoverPriority cannot name topology labels beside failover");
        }
        for (i, distribute) in setting.distribute.iter().enumerate() {
            let total: u64 = distribute.to.values().map(|w| u64::from(*w)).sum();
            if total != 100 || distribute.to.values().any(|w| !(1..=100).contains(w)) {
                return c.error(format_args!("distribute[{i}].to: weights must be in 1..100 and add up to 100"));
            }
            let to: Vec<&str> = distribute.to.keys().map(String::as_str).collect();
            c.field(format_args!("distribute[{i}].to"), apart(&to));
        }
        let from: Vec<&str> = setting.distribute.iter().map(|d| d.from.as_str()).collect();
        c.field("distribute", apart(&from));
        let fails_over = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
        if fails_over && !outlier {
            c.warn("failover needs outlierDetection");
        }
        for failover in &setting.failover {
            c.field("failover", regions(&failover.from, &failover.to));
        }
    });
}

pub(super) fn zone_aware(c: &mut Check, setting: Option<&ZoneAwareLoadBalancerSetting>, outlier: bool) {
    let Some(setting) = setting else { return };
    c.at("zoneAwareLbSetting", |c| {
        c.need(
            !setting.failover_priority.iter().any(|l| TOPOLOGY.contains(&l.as_str())),
            "failoverPriority cannot name topology labels: regions and zones are handled by themselves",
        );
        let fails_over = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
        if fails_over && !outlier {
            c.warn("failover needs outlierDetection");
        }
        for failover in &setting.failover {
            c.field("failover", regions(&failover.from, &failover.to));
        }
    });
}

fn regions(from: &str, to: &str) -> Checked {
    if from == to {
        return Err(format!("from and to are both {from:?}; name different regions"));
    }
    if [from, to].iter().any(|r| r.contains(['/', '*'])) {
        return Err(format!("{from:?} to {to:?}: name regions only, without zones and wildcards"));
    }
    Ok(())
}

/// Checks that no locality is covered by an earlier one.
pub(super) fn apart(localities: &[&str]) -> Checked {
    let mut seen: Vec<Vec<&str>> = Vec::new();
    for text in localities {
        if text.contains('*') && (text.matches('*').count() > 1 || !text.ends_with('*')) {
            return Err(format!("locality {text:?}: '*' may stand once, at the end"));
        }
        let parts: Vec<&str> = text.splitn(3, '/').collect();
        if parts.iter().any(|p| p.is_empty()) {
            return Err(format!("locality {text:?} has an empty part; write region/zone/subzone"));
        }
        if seen.iter().any(|before| covered(&parts, before)) {
            return Err(format!("locality {text:?} overlaps one before it"));
        }
        seen.push(parts);
    }
    Ok(())
}

fn covered(parts: &[&str], before: &[&str]) -> bool {
    before == ["*"]
        || (parts.len() == 1 && parts.first() == before.first())
        || before.iter().zip(parts).take_while(|(b, p)| b == p).count() == before.len()
        || before
            .split_last()
            .is_some_and(|(last, rest)| *last == "*" && parts.len() > rest.len() && parts.starts_with(rest))
        || (parts.len() == 2 && before.len() == 3 && before.starts_with(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_localities_are_refused() {
        for good in [&["a", "b"][..], &["a/b/*", "a/c/*"], &["a/b", "a/c/d"], &["a/b/c", "a/b/d"]] {
            assert!(apart(good).is_ok(), "{good:?}");
        }
        for bad in
            [&["a", "a"][..], &["a/*", "a/b"], &["*", "a"], &["a/b/c", "a"], &["a/b/*", "a/b/c"], &["a//b"], &["*/a"]]
        {
            assert!(apart(bad).is_err(), "{bad:?}");
        }
    }
}
