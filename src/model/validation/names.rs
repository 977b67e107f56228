//! Rules about names: DNS labels, domains with and without wildcards, port names, labels, selectors, `exportTo`.

use std::collections::BTreeSet;

use super::check::{Answer, Check};
use crate::model::Labels;

const LABEL_MAX: usize = 63;
const DOMAIN_MAX: usize = 255;

/// A label of RFC 1123; capitals are allowed, as in Istio.
pub(super) fn is_dns_label(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= LABEL_MAX
        && ends(name.chars().next())
        && ends(name.chars().last())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn is_wildcard_label(name: &str) -> bool {
    if name == "*" {
        return true;
    }
    let bare = name.strip_prefix("*-").or_else(|| name.strip_prefix('*')).unwrap_or(name);
    name.len() <= LABEL_MAX && is_dns_label(bare)
}

fn length(domain: &str) -> Answer {
    match domain.len() {
        0 => Err("a domain name is missing".to_string()),
        1..=DOMAIN_MAX => Ok(()),
        _ => Err(format!("domain name {domain:?} is longer than {DOMAIN_MAX} characters; shorten it")),
    }
}

fn dns_labels(domain: &str) -> Answer {
    let parts: Vec<&str> = domain.split('.').collect();
    let last = parts.len() - 1;
    for (i, label) in parts.iter().enumerate() {
        if i == last && label.parse::<i64>().is_ok() {
            return Err(format!("domain name {domain:?} must not end in a number"));
        }
        // `istio.io.` is an unambiguous name.
        let closing_dot = i == last && label.is_empty();
        if !closing_dot && !is_dns_label(label) {
            return Err(format!(
                "domain name {domain:?} has the label {label:?}; use letters, digits and '-', at most {LABEL_MAX}"
            ));
        }
    }
    Ok(())
}

/// A domain name without a wildcard.
pub(super) fn fqdn(domain: &str) -> Answer {
    length(domain)?;
    dns_labels(domain)
}

/// A domain name whose first label may begin with `*`.
pub(super) fn wildcard_domain(domain: &str) -> Answer {
    length(domain)?;
    let (first, rest) = domain.split_once('.').map_or((domain, None), |(f, r)| (f, Some(r)));
    if !is_wildcard_label(first) {
        return Err(format!(
            "domain name {domain:?} has the label {first:?}; use letters, digits and '-', with '*' only in front"
        ));
    }
    rest.map_or(Ok(()), dns_labels)
}

/// A wildcard domain, or with `sni` a name that AUTO_PASSTHROUGH generates (`outbound_.80_._.host`).
pub(super) fn gateway_domain(sni: bool, domain: &str) -> Answer {
    length(domain)?;
    if !sni || !domain.starts_with("outbound_") {
        return wildcard_domain(domain);
    }
    let parts: Vec<&str> = domain.split('_').collect();
    let has = |i: usize, test: fn(char) -> bool| parts.get(i).is_some_and(|p| p.trim_matches('.').contains(test));
    if has(1, |c| c.is_ascii_digit()) && has(3, |c| c.is_ascii_alphabetic()) {
        return Ok(());
    }
    Err(format!("SNI name {domain:?} must be written outbound_.PORT_._.HOST"))
}

/// `*` stands for whole labels only.
pub(super) fn no_partial_wildcard(host: &str) -> Answer {
    if host.contains('*') && host.len() != 1 && !host.starts_with("*.") {
        return Err(format!("partial wildcard {host:?} is not allowed; write '*' or '*.domain'"));
    }
    Ok(())
}

/// Name of a port.
pub(super) fn port_name(name: &str) -> Answer {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(format!("port name {name:?} must be a DNS label: letters, digits and '-', at most {LABEL_MAX}"))
}

/// Name of a subset.
pub(super) fn subset_name(name: &str) -> Answer {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(format!("subset name {name:?} must be a DNS label: letters, digits and '-', at most {LABEL_MAX}"))
}

fn is_qualified(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(name.chars().next())
        && ends(name.chars().last())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_label_prefix(prefix: &str) -> bool {
    prefix.len() <= 253
        && prefix.split('.').all(|part| {
            // No limit per part here: only the whole prefix has one.
            !part.starts_with('-')
                && !part.ends_with('-')
                && !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
}

/// Kubernetes labels: `[prefix/]name` and a value.
pub(super) fn labels(c: &mut Check, field: &str, labels: &Labels) {
    c.at(field, |c| {
        for (key, value) in labels {
            let (prefix, name) = key.split_once('/').map_or((None, key.as_str()), |(p, n)| (Some(p), n));
            let good = prefix.is_none_or(is_label_prefix) && is_qualified(name) && name.len() <= LABEL_MAX;
            c.need(good, format_args!("label key {key:?} must be [prefix/]name of letters, digits, '-', '_' and '.'"));
            c.need(
                value.is_empty() || is_qualified(value),
                format_args!("label value {value:?} must be of letters, digits, '-', '_' and '.', or empty"),
            );
        }
    });
}

/// Labels that choose workloads.
pub(super) fn selector(c: &mut Check, field: &str, labels: Option<&Labels>) {
    let Some(labels) = labels else { return };
    c.at(field, |c| {
        for (key, value) in labels {
            c.need(!key.is_empty(), "a label without a key selects nothing; name it");
            c.need(
                !key.contains('*') && !value.contains('*'),
                format_args!("wildcards are not supported in a selector: {key}={value}"),
            );
        }
        if labels.is_empty() {
            c.warn("workload selector without labels: it applies to all workloads of the namespace");
        }
    });
}

/// What `exportTo` may hold for a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Export {
    Plain,
    /// `~` is allowed too.
    ServiceEntry,
    /// Only the own namespace.
    SelectedWorkloads,
}

/// `exportTo`: `.`, `*`, `~` or namespaces, each once.
pub(super) fn export_to(c: &mut Check, namespace: &str, list: &[String], rule: Export) {
    let mut seen = BTreeSet::new();
    c.at("exportTo", |c| {
        for entry in list {
            let key = if entry == "." { namespace } else { entry };
            if seen.contains(key) {
                c.error(format_args!("{entry:?} names a namespace twice; remove one"));
                continue;
            }
            let good = match key {
                "." | "*" => true,
                "~" => rule == Export::ServiceEntry,
                key => is_dns_label(key),
            };
            if good {
                seen.insert(key);
            } else {
                c.error(format_args!("{entry:?} must be '.', '*' or the name of a namespace"));
            }
        }
        if rule == Export::SelectedWorkloads && !seen.is_empty() {
            c.need(
                seen.len() == 1 && seen.contains(namespace),
                "a rule with workloadSelector can be exported to its own namespace only",
            );
        }
        for (sign, text) in [
            ("*", "'*' stands for all namespaces; remove the others"),
            ("~", "'~' stands for nobody; remove the others"),
        ] {
            c.need(!seen.contains(sign) || list.len() == 1, text);
        }
    });
}

/// `namespace/host` of a Gateway server or a Sidecar egress listener.
pub(super) fn namespaced_host(c: &mut Check, host: &str, gateway: bool, kubernetes_gateway: bool) {
    let Some((namespace, name)) = host.split_once('/') else {
        if gateway {
            host_part(c, host, true);
        } else {
            c.error(format_args!("{host:?} must be written namespace/host"));
        }
        return;
    };
    c.need(!namespace.is_empty() && !name.is_empty(), "neither the namespace nor the host may be empty");
    let good = if gateway {
        matches!(namespace, "*" | ".") || (namespace == "~" && kubernetes_gateway) || is_dns_label(namespace)
    } else {
        let bare = namespace.strip_prefix('~').unwrap_or(namespace);
        matches!(bare, "" | "*" | ".") || is_dns_label(bare)
    };
    c.need(good, format_args!("namespace {namespace:?} must be '*', '.' or the name of a namespace"));
    host_part(c, name, gateway);
}

fn host_part(c: &mut Check, host: &str, gateway: bool) {
    c.need(host == "*" || host.contains('.'), format_args!("short name {host:?} is not allowed; write the full name"));
    if let Err(text) = wildcard_domain(host)
        && !(gateway && super::address::is_ip(host))
    {
        c.error(text);
    }
    if let Err(text) = no_partial_wildcard(host) {
        c.error(text);
    }
}

/// Names of Gateways: `name`, `namespace/name`, or the legacy full name.
pub(super) fn gateways(c: &mut Check, names: &[String], kubernetes_gateway: bool) {
    for (i, name) in names.iter().enumerate() {
        let place = format!("gateways[{i}]");
        let Some((namespace, gateway)) = name.split_once('/') else {
            let mut parts = name.split('.');
            if let (Some(gateway), Some(namespace)) = (parts.next(), parts.next()) {
                c.at(&place, |c| c.warn(format_args!("{name:?} is a legacy form; write {namespace}/{gateway}")));
            }
            c.field(&place, fqdn(name));
            // Istio reads no further than the first name without a namespace.
            return;
        };
        c.at(&place, |c| {
            c.need(is_dns_label(namespace), format_args!("namespace {namespace:?} must be a DNS label"));
            c.need(
                kubernetes_gateway && !gateway.is_empty() || is_dns_label(gateway),
                format_args!("gateway name {gateway:?} must be a DNS label"),
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_in_front_only() {
        for good in ["*", "*.a.b", "*-x.a", "*x.a", "a.b.", "Reviews"] {
            assert!(wildcard_domain(good).is_ok(), "{good}");
        }
        for bad in ["", "a.*", "a*.b", "**.a", "a..b", "a.1", "-a.b", "a_b"] {
            assert!(wildcard_domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn export_to_names_a_namespace_once() {
        let errors = |list: &[&str], rule| {
            let list: Vec<String> = list.iter().map(ToString::to_string).collect();
            let mut c = Check::new("spec");
            export_to(&mut c, "here", &list, rule);
            c.finish().errors.len()
        };
        assert_eq!(errors(&[".", "other"], Export::Plain), 0);
        assert_eq!(errors(&[".", "here"], Export::Plain), 1);
        assert_eq!(errors(&["*", "other"], Export::Plain), 1);
        assert_eq!(errors(&["~"], Export::Plain), 1);
        assert_eq!(errors(&["~"], Export::ServiceEntry), 0);
        assert_eq!(errors(&["other"], Export::SelectedWorkloads), 1);
    }
}
