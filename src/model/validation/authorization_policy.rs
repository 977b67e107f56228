//! AuthorizationPolicy: rules must not be empty, values must be matchable, and `CUSTOM` supports only some attributes.

use super::{address, check::Check, policy};
use crate::{
    model::Config,
    proto::istio::security::v1beta1::{
        AuthorizationPolicy, Condition, Operation, Rule, Source,
        authorization_policy::{Action, ActionDetail},
    },
};

const DRY_RUN: &str = "istio.io/dry-run";
const MOST_SERVICE_ACCOUNTS: usize = 16;
const LONGEST_SERVICE_ACCOUNT: usize = 320;

/// Validates the dry-run annotation before all other rules.
pub(super) fn dry_run(c: &mut Check, config: &Config, policy: &AuthorizationPolicy) {
    let Some(value) = config.meta.annotations.get(DRY_RUN) else { return };
    if !matches!(policy.action(), Action::Allow | Action::Deny) {
        return c.error(format_args!("{DRY_RUN} works with action ALLOW and DENY only; remove it"));
    }
    let boolean = matches!(
        value.as_str(),
        "1" | "t" | "T" | "TRUE" | "true" | "True" | "0" | "f" | "F" | "FALSE" | "false" | "False"
    );
    c.need(boolean, format_args!("{DRY_RUN}: {value:?} is neither true nor false"));
}

pub(super) fn validate(c: &mut Check, policy: &AuthorizationPolicy) {
    policy::targets(c, policy.selector.as_ref(), policy.target_ref.as_ref(), &policy.target_refs);
    let action = policy.action();
    let provider = policy.action_detail.as_ref().map(|ActionDetail::Provider(p)| p);
    let unreachable = matches!(action, Action::Custom | Action::Deny) && policy.rules.is_empty();
    c.need(
        !unreachable,
        format_args!(
            "{} without rules never applies; add an empty rule `{{}}` to match every request",
            action.as_str_name()
        ),
    );
    if action != Action::Custom {
        c.need(provider.is_none(), "provider works with action CUSTOM only; remove it");
    } else if !unreachable {
        c.need(provider.is_some_and(|p| !p.name.is_empty()), "provider.name must be set for action CUSTOM");
    }
    c.each("rules", &policy.rules, |c, rule| {
        if action == Action::Custom {
            custom(c, rule);
        }
        self::rule(c, rule, action);
    });
}

/// The external authorizer is called before identities are known.
fn custom(c: &mut Check, rule: &Rule) {
    c.each("from", &rule.from, |c, from| {
        let Some(source) = &from.source else { return };
        let identities = [
            ("namespaces", &source.namespaces),
            ("notNamespaces", &source.not_namespaces),
            ("serviceAccounts", &source.service_accounts),
            ("notServiceAccounts", &source.not_service_accounts),
            ("trustDomains", &source.trust_domains),
            ("notTrustDomains", &source.not_trust_domains),
            ("principals", &source.principals),
            ("notPrincipals", &source.not_principals),
            ("requestPrincipals", &source.request_principals),
            ("notRequestPrincipals", &source.not_request_principals),
        ];
        for (name, values) in identities {
            c.need(values.is_empty(), format_args!("source.{name} is not supported with action CUSTOM; remove it"));
        }
    });
    c.each("when", &rule.when, |c, condition| {
        let key = condition.key.as_str();
        let identity =
            matches!(key, "source.namespace" | "source.serviceAccount" | "source.trustDomain" | "source.principal");
        c.need(
            !identity && !key.starts_with("request.auth."),
            format_args!("key {key} is not supported with action CUSTOM; remove it"),
        );
    });
}

fn rule(c: &mut Check, rule: &Rule, action: Action) {
    c.each("from", &rule.from, |c, from| match &from.source {
        Some(source) => self::source(c, source),
        None => c.error("source must be set"),
    });
    c.each("to", &rule.to, |c, to| match &to.operation {
        Some(operation) => self::operation(c, operation),
        None => c.error("operation must be set"),
    });
    c.each("when", &rule.when, condition);

    let sources = || rule.from.iter().filter_map(|f| f.source.as_ref());
    let operations = || rule.to.iter().filter_map(|t| t.operation.as_ref());
    let from_http = sources().next().is_some() && operations().next().is_none() && !sources().any(reads_tcp);
    let to_http = operations().next().is_some() && operations().all(|o| o.ports.is_empty() && o.not_ports.is_empty());
    if action == Action::Deny && (from_http || to_http) {
        c.warn("a DENY rule of HTTP attributes alone denies everything on TCP ports; name the ports that it is for");
    }
}

fn reads_tcp(source: &Source) -> bool {
    [
        &source.principals,
        &source.not_principals,
        &source.namespaces,
        &source.not_namespaces,
        &source.service_accounts,
        &source.not_service_accounts,
        &source.ip_blocks,
        &source.not_ip_blocks,
        &source.remote_ip_blocks,
        &source.not_remote_ip_blocks,
    ]
    .iter()
    .any(|values| !values.is_empty())
}

fn source(c: &mut Check, source: &Source) {
    let plain = [
        ("principals", &source.principals),
        ("notPrincipals", &source.not_principals),
        ("requestPrincipals", &source.request_principals),
        ("notRequestPrincipals", &source.not_request_principals),
        ("namespaces", &source.namespaces),
        ("notNamespaces", &source.not_namespaces),
    ];
    let addresses = [
        ("ipBlocks", &source.ip_blocks),
        ("notIpBlocks", &source.not_ip_blocks),
        ("remoteIpBlocks", &source.remote_ip_blocks),
        ("notRemoteIpBlocks", &source.not_remote_ip_blocks),
    ];
    let accounts =
        [("serviceAccounts", &source.service_accounts), ("notServiceAccounts", &source.not_service_accounts)];
    let domains = [("trustDomains", &source.trust_domains), ("notTrustDomains", &source.not_trust_domains)];
    c.at("source", |c| {
        let all = plain.iter().chain(&addresses).chain(&accounts).chain(&domains);
        c.need(all.map(|(_, values)| values.len()).sum::<usize>() > 0, "must not be empty; it would match nothing");
        let identities = [&source.principals, &source.not_principals, &source.namespaces, &source.not_namespaces];
        c.need(
            identities.iter().all(|v| v.is_empty()) || accounts.iter().all(|(_, v)| v.is_empty()),
            "serviceAccounts cannot be combined with namespaces or principals",
        );
        plain.iter().for_each(|(name, values)| not_empty(c, name, values));
        for (name, values) in addresses {
            c.each(name, values, |c, v| ip_block(c, v));
        }
        for (name, values) in accounts {
            service_accounts(c, name, values);
        }
        for (name, values) in domains {
            wildcards(c, name, values);
            c.each(name, values, |c, v| {
                c.need(!v.contains('/'), format_args!("trust domain {v:?} must not hold a '/'"))
            });
        }
    });
}

fn operation(c: &mut Check, operation: &Operation) {
    let texts = [
        ("methods", &operation.methods),
        ("notMethods", &operation.not_methods),
        ("hosts", &operation.hosts),
        ("notHosts", &operation.not_hosts),
    ];
    let ports = [("ports", &operation.ports), ("notPorts", &operation.not_ports)];
    let paths = [("paths", &operation.paths), ("notPaths", &operation.not_paths)];
    c.at("operation", |c| {
        let all = texts.iter().chain(&ports).chain(&paths);
        c.need(all.map(|(_, values)| values.len()).sum::<usize>() > 0, "must not be empty; it would match nothing");
        texts.iter().chain(&paths).for_each(|(name, values)| not_empty(c, name, values));
        for (name, values) in ports {
            c.each(name, values, |c, v| port(c, v));
        }
        for (name, values) in paths {
            c.each(name, values, |c, v| path_template(c, v));
        }
    });
}

fn not_empty(c: &mut Check, name: &str, values: &[String]) {
    c.each(name, values, |c, v| c.need(!v.is_empty(), "an empty value matches nothing; remove it"));
}

fn ip_block(c: &mut Check, text: &str) {
    let good = if text.contains('/') { text.parse::<ipnet::IpNet>().is_ok() } else { address::is_ip(text) };
    c.need(good, format_args!("{text:?} is neither an IP address nor a CIDR block"));
}

fn port(c: &mut Check, text: &str) {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    c.need(digits && text.parse::<u32>().is_ok_and(|p| p <= 65535), format_args!("{text:?} is not a port"));
}

/// Values with at most one `*`, at the start or at the end.
fn wildcards(c: &mut Check, name: &str, values: &[String]) {
    not_empty(c, name, values);
    c.each(name, values, |c, value| {
        let stars = value.matches('*').count();
        let outside = value.starts_with('*') || value.ends_with('*');
        c.need(
            stars == 0 || (stars == 1 && outside),
            format_args!("{value:?}: one `*` at the start or the end at most"),
        );
    });
}

/// Values of the form `name` or `namespace/name`.
fn service_accounts(c: &mut Check, name: &str, values: &[String]) {
    c.at(name, |c| c.need(values.len() <= MOST_SERVICE_ACCOUNTS, "more than 16 values"));
    c.each(name, values, |c, value| {
        let parts: Vec<&str> = value.split('/').collect();
        c.need(
            parts.len() < 3 && parts.iter().all(|p| !p.is_empty()),
            format_args!("{value:?} must be written as serviceAccount or namespace/serviceAccount"),
        );
        c.need(!value.contains('*'), format_args!("{value:?}: wildcards are not supported here"));
        c.need(value.len() <= LONGEST_SERVICE_ACCOUNT, "longer than 320 characters");
    });
}

/// A path of segments: `{*}` matches one, `{**}`, as the last segment, any number.
fn path_template(c: &mut Check, path: &str) {
    let template = path.contains("{*}") || path.contains("{**}");
    let mut ended = false;
    for segment in path.trim_matches('/').split('/') {
        match segment {
            "{*}" | "{**}" if ended => {
                return c.error(format_args!("{path:?}: {{**}} must be the last operator"));
            }
            "{*}" => {}
            "{**}" => ended = true,
            text if text.contains(['{', '}']) => {
                return c.error(format_args!("{path:?}: braces are for {{*}} and {{**}} as whole segments only"));
            }
            text if template && !is_literal(text) => {
                return c.error(format_args!("{path:?}: {text:?} has characters that no path has"));
            }
            _ => {}
        }
    }
}

fn is_literal(segment: &str) -> bool {
    !segment.is_empty() && segment.chars().all(|c| c.is_ascii_alphanumeric() || "-._~%!$&'()+,;:@=".contains(c))
}

fn condition(c: &mut Check, condition: &Condition) {
    if condition.key.is_empty() {
        return c.error("key must be set");
    }
    c.need(
        !condition.values.is_empty() || !condition.not_values.is_empty(),
        format_args!("key {}: values or notValues must be set", condition.key),
    );
    for (name, values) in [("values", &condition.values), ("notValues", &condition.not_values)] {
        if !condition.values.is_empty() || !condition.not_values.is_empty() {
            attribute(c, &condition.key, name, values);
        }
    }
}

fn attribute(c: &mut Check, key: &str, name: &str, values: &[String]) {
    not_empty(c, name, values);
    match key {
        "source.ip" | "remote.ip" | "destination.ip" => c.each(name, values, |c, v| ip_block(c, v)),
        "source.serviceAccount" => service_accounts(c, name, values),
        "source.trustDomain" => wildcards(c, name, values),
        "destination.port" => c.each(name, values, |c, v| port(c, v)),
        "source.namespace"
        | "source.principal"
        | "request.auth.principal"
        | "request.auth.audiences"
        | "request.auth.presenter"
        | "connection.sni" => {}
        "destination.namespace" => c.error("key destination.namespace is replaced by metadata.namespace"),
        "destination.name" | "destination.user" => c.error(format_args!("key {key} is retired")),
        _ if key.starts_with("destination.labels") => c.error(format_args!("key {key} is replaced by the selector")),
        _ if ["request.headers", "request.auth.claims", "experimental.envoy.filters."]
            .iter()
            .any(|prefix| key.starts_with(prefix)) =>
        {
            let open = key.find('[').unwrap_or(0);
            c.need(
                key.ends_with(']') && open > 0 && open + 2 < key.len(),
                format_args!("key {key} must be written as a[b]"),
            );
        }
        _ => c.error(format_args!("key {key} is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_paths() {
        let is_good = |path: &str| {
            let mut c = Check::new("");
            path_template(&mut c, path);
            c.finish().is_valid()
        };
        for path in ["/a/*", "/a/{*}/b", "/a/{**}", "/{*}/{**}", "/a b"] {
            assert!(is_good(path), "{path}");
        }
        for path in ["/{**}/{*}", "/{a}", "/a{*}", "/{*}/a b", "/{*}//b"] {
            assert!(!is_good(path), "{path}");
        }
    }
}
