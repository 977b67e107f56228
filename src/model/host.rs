//! Host names and wildcard host names: matching, subset and order, as in Istio's `host.Name`.

use std::{cmp::Ordering, sync::Arc};

/// A host name, possibly with a leading `*`.
pub type Hostname = Arc<str>;

/// Whether the name begins with `*`.
#[must_use]
pub fn is_wildcard(name: &str) -> bool {
    name.starts_with('*')
}

/// Whether some host is covered by both names (Istio's `Name.Matches`). Either may be a wildcard.
#[must_use]
pub fn matches(a: &str, b: &str) -> bool {
    match (a.strip_prefix('*'), b.strip_prefix('*')) {
        (Some(a), Some(b)) => {
            if a.len() < b.len() {
                b.ends_with(a)
            } else {
                a.ends_with(b)
            }
        }
        (Some(a), None) => b.ends_with(a),
        (None, Some(b)) => a.ends_with(b),
        (None, None) => a == b,
    }
}

/// Whether every host that `a` covers is covered by `b` (Istio's `Name.SubsetOf`).
#[must_use]
pub fn subset_of(a: &str, b: &str) -> bool {
    match (a.strip_prefix('*'), b.strip_prefix('*')) {
        (Some(a), Some(b)) => a.len() >= b.len() && a.ends_with(b),
        (Some(_), None) => false,
        (None, Some(b)) => a.ends_with(b),
        (None, None) => a == b,
    }
}

/// Orders the more specific host first (Istio's `MoreSpecific`): exact before wildcard, longer before shorter, then
/// alphabetically.
#[must_use]
pub fn specificity(a: &str, b: &str) -> Ordering {
    match (is_wildcard(a), is_wildcard(b)) {
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        _ => b.len().cmp(&a.len()).then_with(|| a.cmp(b)),
    }
}

/// Expands a short name (one without a dot) to `name.namespace.svc.domain` (Istio's `ResolveShortnameToFQDN`). Other names, `*`
/// and IP addresses stay unchanged.
#[must_use]
pub fn resolve_short_name(name: &str, namespace: &str, domain: &str) -> Hostname {
    if name == "*" || name.is_empty() || name.contains('.') || name.parse::<std::net::IpAddr>().is_ok() {
        return name.into();
    }
    let mut full = name.to_string();
    if !namespace.is_empty() {
        full.push('.');
        full.push_str(namespace);
    }
    if !domain.is_empty() {
        full.push_str(".svc.");
        full.push_str(domain);
    }
    full.into()
}
