//! Whether a workload may call another one, as far as AuthorizationPolicies decide it before there is a request.
//!
//! The order is Envoy's: CUSTOM, then DENY, then ALLOW. A rule that also asks for a path, a method, a port, a token, an address or
//! another condition decides nothing here: the answer is then that it depends.

use std::sync::Arc;

use crate::{
    model::{Config, Identity},
    proto::istio::security::v1beta1::{Rule, Source},
    push::policies::AuthorizationPolicies,
};

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    Depends,
}

impl Verdict {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Allowed => "may call",
            Self::Denied => "may not call",
            Self::Depends => "depends on the request",
        }
    }
}

/// The answer with the policy that gives it.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    pub(super) by: Option<Arc<Config>>,
    pub(super) why: &'static str,
}

/// The caller, as the workload that is called sees it.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// Mutual TLS proves it.
    Known(Identity),
    /// Mutual TLS proves its namespace; the service account is not known here.
    OfNamespace(Arc<str>),
    /// Nothing proves it.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    Maybe,
    Yes,
}

impl Match {
    const fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Maybe => Self::Maybe,
            Self::Yes => Self::No,
        }
    }
}

/// Decides. `own_domains` are the mesh's trust domain and its aliases: each stands for all of them.
pub(super) fn decide(policies: &AuthorizationPolicies, caller: &Caller, own_domains: &[&str]) -> Decision {
    let best = |list: &[Arc<Config>]| {
        let all = list.iter().map(|config| (of_policy(config, caller, own_domains), config.clone()));
        all.reduce(|best, next| if next.0 > best.0 { next } else { best })
    };
    let decision = |verdict, by, why| Decision { verdict, by, why };
    let denies = best(&policies.deny);
    if let Some((Match::Yes, by)) = denies {
        return decision(Verdict::Denied, Some(by), "a rule of this DENY policy matches");
    }
    let allows = best(&policies.allow);
    if let Some((Match::No, by)) = allows {
        return decision(Verdict::Denied, Some(by), "no rule of an ALLOW policy matches");
    }
    if let Some((Match::Yes | Match::Maybe, by)) = best(&policies.custom) {
        return decision(Verdict::Depends, Some(by), "an external authorizer decides");
    }
    if let Some((Match::Maybe, by)) = denies {
        return decision(Verdict::Depends, Some(by), "this DENY policy looks at the request");
    }
    match allows {
        Some((Match::Yes, by)) => decision(Verdict::Allowed, Some(by), "a rule of this ALLOW policy matches"),
        Some((_, by)) => decision(Verdict::Depends, Some(by), "this ALLOW policy looks at the request"),
        None => decision(Verdict::Allowed, None, "no ALLOW policy restricts the callers"),
    }
}

fn of_policy(config: &Config, caller: &Caller, own_domains: &[&str]) -> Match {
    let Some(policy) = config.authorization_policy() else { return Match::No };
    let namespace = &*config.meta.namespace;
    let rules = policy.rules.iter().map(|rule| of_rule(rule, caller, namespace, own_domains));
    rules.max().unwrap_or(Match::No)
}

fn of_rule(rule: &Rule, caller: &Caller, namespace: &str, own_domains: &[&str]) -> Match {
    let of_source = |source: &Source| of_source(source, caller, namespace, own_domains);
    let sources = rule.from.iter().map(|from| from.source.as_ref().map_or(Match::Yes, of_source));
    let from = if rule.from.is_empty() { Match::Yes } else { sources.max().unwrap_or(Match::No) };
    if rule.to.is_empty() && rule.when.is_empty() { from } else { from.min(Match::Maybe) }
}

fn of_source(source: &Source, caller: &Caller, namespace: &str, own_domains: &[&str]) -> Match {
    let account = |pattern: &String| match pattern.split_once('/') {
        Some((of, account)) => of_identity(caller, |id| *id.namespace == *of && *id.service_account == *account),
        None => of_identity(caller, |id| *id.namespace == *namespace && *id.service_account == **pattern),
    };
    let principal = |pattern: &String| {
        let domains = |id: &Identity| {
            let all = std::iter::once(&*id.trust_domain);
            all.chain(own_domains.iter().copied().filter(|_| own_domains.contains(&&*id.trust_domain)))
                .any(|domain| fits(pattern, &format!("{domain}/ns/{}/sa/{}", id.namespace, id.service_account)))
        };
        of_identity(caller, domains)
    };
    let of_namespace = |pattern: &String| match caller {
        Caller::Known(id) => certain(fits(pattern, &id.namespace)),
        Caller::OfNamespace(namespace) => certain(fits(pattern, namespace)),
        Caller::Unknown => Match::No,
    };
    let domain = |pattern: &String| of_identity(caller, |id| fits(pattern, &id.trust_domain));
    let unknown = |_: &String| Match::Maybe;
    [
        both(&source.principals, &source.not_principals, principal),
        both(&source.namespaces, &source.not_namespaces, of_namespace),
        both(&source.service_accounts, &source.not_service_accounts, account),
        both(&source.trust_domains, &source.not_trust_domains, domain),
        both(&source.request_principals, &source.not_request_principals, unknown),
        both(&source.ip_blocks, &source.not_ip_blocks, unknown),
        both(&source.remote_ip_blocks, &source.not_remote_ip_blocks, unknown),
    ]
    .into_iter()
    .min()
    .unwrap_or(Match::Yes)
}

/// Whether one of `values` matches, if there are any, and none of `not_values`.
fn both(values: &[String], not_values: &[String], matches: impl Fn(&String) -> Match) -> Match {
    let wanted = values.iter().map(&matches).max().unwrap_or(Match::Yes);
    let unwanted = not_values.iter().map(&matches).max().unwrap_or(Match::No);
    wanted.min(unwanted.not())
}

fn of_identity(caller: &Caller, is: impl Fn(&Identity) -> bool) -> Match {
    match caller {
        Caller::Known(identity) => certain(is(identity)),
        Caller::OfNamespace(_) => Match::Maybe,
        Caller::Unknown => Match::No,
    }
}

const fn certain(matches: bool) -> Match {
    if matches { Match::Yes } else { Match::No }
}

/// Istio's match of strings: exact, by prefix, by suffix, or presence.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern == "*" => !text.is_empty(),
        (Some(suffix), _) => text.ends_with(suffix),
        (None, Some(prefix)) => text.starts_with(prefix),
        (None, None) => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Origin, decode};

    fn policy(name: &str, spec: Value) -> Arc<Config> {
        let document = json!({"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        Arc::new(decode::from_value(&document, Origin::default()).unwrap())
    }

    fn asked(policies: &[Value], caller: &Caller) -> (Verdict, String) {
        let policies = policies.iter().enumerate().map(|(n, spec)| policy(&n.to_string(), spec.clone()));
        let decision = decide(&AuthorizationPolicies::of(policies), caller, &["cluster.local", "old.example"]);
        (decision.verdict, decision.by.map(|by| by.meta.name.to_string()).unwrap_or_default())
    }

    fn known(account: &str) -> Caller {
        Caller::Known(Identity::parse(&format!("spiffe://cluster.local/ns/shop/sa/{account}")).unwrap())
    }

    fn from(source: Value) -> Value {
        json!({"rules": [{"from": [{"source": source}]}]})
    }

    #[test]
    fn the_order_of_actions_is_envoys() {
        let of_web = [from(json!({"principals": ["cluster.local/ns/shop/sa/web"]}))];
        let mut deny_web = of_web[0].clone();
        deny_web["action"] = "DENY".into();
        assert_eq!(asked(&[], &Caller::Unknown), (Verdict::Allowed, String::new()));
        assert_eq!(asked(&of_web, &known("web")), (Verdict::Allowed, "0".into()));
        assert_eq!(asked(&of_web, &known("cart")), (Verdict::Denied, "0".into()));
        assert_eq!(asked(&of_web, &Caller::Unknown), (Verdict::Denied, "0".into()), "plain text proves nothing");
        assert_eq!(asked(&of_web, &Caller::OfNamespace("shop".into())).0, Verdict::Depends);
        assert_eq!(asked(&[of_web[0].clone(), deny_web], &known("web")), (Verdict::Denied, "1".into()));
        assert_eq!(asked(&[json!({})], &known("web")).0, Verdict::Denied, "a policy without rules allows nothing");
        let custom = json!({"action": "CUSTOM", "provider": {"name": "x"}, "rules": [{}]});
        assert_eq!(asked(&[custom], &known("web")).0, Verdict::Depends);
    }

    #[test]
    fn a_rule_that_looks_at_the_request_decides_nothing() {
        let of = |rule: Value| asked(&[json!({"rules": [rule]})], &known("web")).0;
        assert_eq!(of(json!({"to": [{"operation": {"paths": ["/a"]}}]})), Verdict::Depends);
        assert_eq!(of(json!({"when": [{"key": "request.headers[x]", "values": ["a"]}]})), Verdict::Depends);
        assert_eq!(of(json!({"from": [{"source": {"ipBlocks": ["10.0.0.0/8"]}}]})), Verdict::Depends);
        assert_eq!(
            of(json!({"from": [{"source": {"namespaces": ["other"]}}], "to": [{"operation": {}}]})),
            Verdict::Denied
        );
    }

    #[test]
    fn sources_match_as_istio_has_it() {
        let allowed = |source: Value| asked(&[from(source)], &known("web")).0;
        for source in [
            json!({"principals": ["*"]}),
            json!({"principals": ["*/sa/web"]}),
            json!({"principals": ["cluster.local/ns/shop/*"]}),
            json!({"principals": ["old.example/ns/shop/sa/web"]}),
            json!({"namespaces": ["sh*"]}),
            json!({"serviceAccounts": ["web"]}),
            json!({"serviceAccounts": ["shop/web"]}),
            json!({"notNamespaces": ["other"]}),
        ] {
            assert_eq!(allowed(source.clone()), Verdict::Allowed, "{source}");
        }
        for source in [
            json!({"principals": ["other.example/ns/shop/sa/web"]}),
            json!({"principals": ["*"], "notPrincipals": ["*/web"]}),
            json!({"namespaces": ["shop"], "principals": ["*/sa/cart"]}),
            json!({"notNamespaces": ["shop"]}),
        ] {
            assert_eq!(allowed(source.clone()), Verdict::Denied, "{source}");
        }
        let plain = |source: Value| asked(&[from(source)], &Caller::Unknown).0;
        assert_eq!(plain(json!({"notPrincipals": ["*"]})), Verdict::Allowed, "Envoy knows no principal of it");
        assert_eq!(plain(json!({"namespaces": ["shop"]})), Verdict::Denied);
    }
}
