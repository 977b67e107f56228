//! AuthorizationPolicies that read the identity of the peer where plain text is accepted (ISTIO-SECURITY-2021-004).
//!
//! A call in plain text has no identity. A DENY rule for an identity does not see it, and an ALLOW rule for all but an identity
//! lets it through.

use super::{code::Code, message::Report, world::World};
use crate::{
    model::{Config, Kind, Labels, PolicyTargets},
    proto::istio::security::v1beta1::{AuthorizationPolicy, authorization_policy::Action},
    push::authn::MtlsMode,
};

/// Attributes of conditions that only mutual TLS proves.
const ATTRIBUTES: [&str; 3] = ["source.principal", "source.namespace", "source.serviceAccount"];

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, config) in world.list(Kind::AuthorizationPolicy) {
        let Some(policy) = config.authorization_policy() else { continue };
        let Some((path, field)) = dangerous(policy) else { continue };
        let Some(namespace) = plain_text(world, config, policy) else { continue };
        let effect = if policy.action() == Action::Deny { "does not see" } else { "lets through" };
        let text = format!(
            "The policy {effect} calls in plain text, which have no identity, by its {field}; workloads of namespace \
             {namespace:?} accept plain text."
        );
        report.add(Code::PolicyReadsPlainText, index, path, text);
    }
}

/// The first field of a policy that a call in plain text evades, and its name.
fn dangerous(policy: &AuthorizationPolicy) -> Option<(String, String)> {
    let deny = match policy.action() {
        Action::Deny => true,
        Action::Allow => false,
        Action::Audit | Action::Custom => return None,
    };
    for (i, rule) in policy.rules.iter().enumerate() {
        for (j, source) in rule.from.iter().enumerate().filter_map(|(j, from)| Some((j, from.source.as_ref()?))) {
            let fields = if deny {
                [
                    ("principals", &source.principals),
                    ("namespaces", &source.namespaces),
                    ("serviceAccounts", &source.service_accounts),
                ]
            } else {
                [
                    ("notPrincipals", &source.not_principals),
                    ("notNamespaces", &source.not_namespaces),
                    ("notServiceAccounts", &source.not_service_accounts),
                ]
            };
            // Beside a positive field on the identity the negative one does no harm.
            let on_identity = [&source.principals, &source.namespaces, &source.service_accounts];
            let proven = !deny && on_identity.iter().any(|list| !list.is_empty());
            if let Some((name, _)) = fields.iter().find(|(_, list)| !list.is_empty()).filter(|_| !proven) {
                return Some((format!("spec.rules[{i}].from[{j}].source.{name}"), (*name).to_string()));
            }
        }
        for (j, condition) in rule.when.iter().enumerate().filter(|(_, c)| ATTRIBUTES.contains(&c.key.as_str())) {
            let (name, list) = if deny { ("values", &condition.values) } else { ("notValues", &condition.not_values) };
            if !list.is_empty() {
                return Some((format!("spec.rules[{i}].when[{j}].{name}"), format!("{} of {}", name, condition.key)));
            }
        }
    }
    None
}

/// A namespace of workloads that the policy is for and that accept plain text.
fn plain_text(world: &World<'_>, config: &Config, policy: &AuthorizationPolicy) -> Option<String> {
    if PolicyTargets::of(config).is_some_and(|targets| !targets.references.is_empty()) {
        return None;
    }
    let authn = &world.context.authn;
    let none = Labels::new();
    let selector = policy.selector.as_ref().map_or(&none, |selector| &selector.match_labels);
    let own = &*config.meta.namespace;
    let in_mesh = *own == *world.mesh().config.root_namespace;
    let mut workloads = world.selected(selector, (!in_mesh).then_some(own)).filter(|w| !w.is_assumed).peekable();
    if workloads.peek().is_none() {
        return (authn.mode(own, selector, None) != MtlsMode::Strict).then(|| own.to_string());
    }
    let mut open = workloads.filter(|workload| {
        let policy = authn.policy(workload.namespace, &*workload.labels);
        policy.mode != MtlsMode::Strict || policy.ports.values().any(|mode| *mode != MtlsMode::Strict)
    });
    open.next().map(|workload| workload.namespace.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::istio::security::v1beta1::{Condition, Rule, Source, rule::From};

    fn policy(action: Action, rule: Rule) -> AuthorizationPolicy {
        AuthorizationPolicy { action: action.into(), rules: vec![rule], ..AuthorizationPolicy::default() }
    }

    fn from(source: Source) -> Rule {
        Rule { from: vec![From { source: Some(source) }], ..Rule::default() }
    }

    #[test]
    fn only_fields_that_plain_text_evades_are_dangerous() {
        let one = || vec!["a".to_string()];
        let named = Source { principals: one(), ..Source::default() };
        let others = Source { not_principals: one(), ..Source::default() };
        let both = Source { namespaces: one(), not_principals: one(), ..Source::default() };
        let request = Source { request_principals: one(), ..Source::default() };
        let when = |values, not_values| Rule {
            when: vec![Condition { key: "source.principal".into(), values, not_values }],
            ..Rule::default()
        };
        for (action, rule, field) in [
            (Action::Deny, from(named.clone()), Some("spec.rules[0].from[0].source.principals")),
            (Action::Allow, from(named), None),
            (Action::Allow, from(others.clone()), Some("spec.rules[0].from[0].source.notPrincipals")),
            (Action::Deny, from(others), None),
            (Action::Allow, from(both), None),
            (Action::Deny, from(request), None),
            (Action::Deny, when(one(), Vec::new()), Some("spec.rules[0].when[0].values")),
            (Action::Allow, when(Vec::new(), one()), Some("spec.rules[0].when[0].notValues")),
            (Action::Allow, when(one(), Vec::new()), None),
        ] {
            let found = dangerous(&policy(action, rule.clone())).map(|(path, _)| path);
            assert_eq!(found.as_deref(), field, "{action:?} {rule:?}");
        }
    }
}
