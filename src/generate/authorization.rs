//! AuthorizationPolicies as Envoy's RBAC and ext_authz filters (Istio's `security/authz`).
//!
//! Order: CUSTOM, then (behind the filters that verify tokens) AUDIT, DENY, ALLOW. On TCP connections an HTTP condition
//! makes an ALLOW rule match nothing and any other rule match more. An ALLOW policy without a usable rule allows nothing.
//!
//! Invariant: a condition that cannot be expressed never widens access; see `rule` and `provider`.

mod attribute;
mod condition;
mod matcher;
mod provider;
pub(super) mod rule;
pub(super) mod setting;
mod trust_domain;

use std::{collections::BTreeMap, sync::Arc};

use self::{
    condition::Condition,
    provider::{Provider, Providers},
    setting::{Setting, Traffic},
};
use super::{
    check::{self, Refusal},
    listener::filter::{http_filter, network_filter},
};
use crate::{
    model::Config,
    proto::{
        envoy::{
            config::{
                listener::v3::Filter,
                rbac::v3::{Permission, Policy, Principal, Rbac, rbac::Action},
            },
            extensions::filters::{
                http::rbac::v3::Rbac as HttpRbac,
                network::{http_connection_manager::v3::HttpFilter, rbac::v3::Rbac as NetworkRbac},
            },
            r#type::matcher::v3::MetadataMatcher,
        },
        istio::security::v1beta1::authorization_policy::{Action as PolicyAction, ActionDetail},
    },
    push::{PushContext, policies::AuthorizationPolicies},
};

const HTTP_RBAC: &str = "envoy.filters.http.rbac";
const HTTP_EXT_AUTHZ: &str = "envoy.filters.http.ext_authz";
const NETWORK_RBAC: &str = "envoy.filters.network.rbac";
const NETWORK_EXT_AUTHZ: &str = "envoy.filters.network.ext_authz";
/// Prefix of statistics of network filters.
const TCP: &str = "tcp.";
/// Policies with this annotation are evaluated and counted, not enforced.
const DRY_RUN: &str = "istio.io/dry-run";
/// Prefix of the results of a dry run, by action.
const DRY_RUN_ALLOW: &str = "istio_dry_run_allow_";
const DRY_RUN_DENY: &str = "istio_dry_run_deny_";
/// Prefix of the result that asks for the external authorizer.
const EXT_AUTHZ: &str = "istio_ext_authz_";
const SEVERAL_PROVIDERS: &str = "several providers for one workload need PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS";
/// Names of CUSTOM policies begin with this and the provider.
const CUSTOM_POLICY: &str = "istio-ext-authz";
/// Names of CUSTOM policies that are enforced by refusal end with this.
const BAD_CUSTOM: &str = "-deny-due-to-bad-CUSTOM-action";

/// The filters of a workload's policies.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// CUSTOM policies on HTTP.
    pub custom_http: Vec<HttpFilter>,
    /// CUSTOM policies on TCP.
    pub custom_tcp: Vec<Filter>,
    /// Policies of other actions on HTTP.
    pub http: Vec<HttpFilter>,
    /// Policies of other actions on TCP.
    pub tcp: Vec<Filter>,
    /// Policies whose filters Envoy would refuse, which refuse every request in its place, and those of too many providers, which
    /// refuse the requests that they are for.
    pub refused: Vec<Refusal>,
}

impl Filters {
    /// The filters of these policies.
    #[must_use]
    pub fn of(context: &PushContext, policies: &AuthorizationPolicies) -> Self {
        let mut all = Self::unchecked(context, policies);
        let http = all.custom_http.iter_mut().chain(&mut all.http).map(or_refuse_http);
        let tcp = all.custom_tcp.iter_mut().chain(&mut all.tcp).map(or_refuse_tcp);
        if http.chain(tcp).fold(false, |any, refused| any | refused) {
            let each = [&policies.custom, &policies.audit, &policies.deny, &policies.allow].into_iter().flatten();
            all.refused.extend(each.filter_map(|policy| refusal(policy, &filter_error(context, policy)?)));
        }
        all
    }

    fn unchecked(context: &PushContext, policies: &AuthorizationPolicies) -> Self {
        let trust_domains = &trust_domains(context)[..];
        let by_action =
            [(&policies.audit, Action::Log), (&policies.deny, Action::Deny), (&policies.allow, Action::Allow)];
        let mut all = Self::default();
        for (policies, action) in by_action.into_iter().filter(|(policies, _)| !policies.is_empty()) {
            let rules = |traffic| Rules::of(policies, action, traffic, trust_domains);
            all.http.push(rules(Traffic::Http).http());
            all.tcp.push(rules(Traffic::Tcp).tcp());
        }
        if !policies.custom.is_empty() {
            all.add_custom(context, &policies.custom, trust_domains);
        }
        all
    }

    /// A pair of filters for each provider: the first finds whether a request needs the decision of the provider, the second
    /// asks for it. Without a provider to ask, the requests are refused.
    fn add_custom(&mut self, context: &PushContext, policies: &[Arc<Config>], trust_domains: &[&str]) {
        let mut by_provider: BTreeMap<&str, Vec<&Arc<Config>>> = BTreeMap::new();
        for config in policies.iter().filter(|c| !is_dry_run(c)) {
            by_provider.entry(provider_of(config)).or_default().push(config);
        }
        let providers = Providers::of(context);
        let several = by_provider.len() > 1 && !context.features().enable_multiple_custom_authz_providers;
        if several {
            let message = format!("its workloads refuse the requests that it is for: {SEVERAL_PROVIDERS}");
            let each = by_provider.values().flatten();
            self.refused.extend(each.map(|policy| Refusal::new(Some(policy.key()), message.clone())));
        }
        for (name, policies) in by_provider {
            let rules = |traffic| custom_rules(&policies, name, traffic, trust_domains);
            let provider = if several { Err(SEVERAL_PROVIDERS.to_string()) } else { providers.get(name) };
            match provider {
                Ok(provider) => {
                    self.custom_http.extend(ask_http(rules(Traffic::Http), &provider, name));
                    self.custom_tcp.extend(ask_tcp(|| rules(Traffic::Tcp), &provider, name));
                }
                Err(error) => {
                    tracing::debug!(provider = name, error, "requests of CUSTOM policies are refused");
                    self.custom_http.push(http_filter(HTTP_RBAC, &enforced_http(refused(rules(Traffic::Http)))));
                    self.custom_tcp.push(network_filter(NETWORK_RBAC, &enforced_tcp(refused(rules(Traffic::Tcp)))));
                }
            }
        }
    }
}

/// The trust domain of the mesh and its aliases.
pub(super) fn trust_domains(context: &PushContext) -> Vec<&str> {
    let mesh = &context.mesh().config;
    let aliases = mesh.trust_domain_aliases.iter().filter(|_| !mesh.trust_domain.is_empty());
    std::iter::once(&mesh.trust_domain).filter(|d| !d.is_empty()).chain(aliases).map(String::as_str).collect()
}

/// Where Envoy would not take the filter, one that refuses every request takes its place: without it the chain would be left
/// out, and its traffic would find another one.
/// True where it took the place.
pub(super) fn or_refuse_http(filter: &mut HttpFilter) -> bool {
    let is_refused = check::encoded(filter).is_err();
    if is_refused {
        *filter = http_filter(HTTP_RBAC, &enforced_http(nothing()));
    }
    is_refused
}

fn or_refuse_tcp(filter: &mut Filter) -> bool {
    let is_refused = check::encoded(filter).is_err();
    if is_refused {
        *filter = network_filter(NETWORK_RBAC, &enforced_tcp(nothing()));
    }
    is_refused
}

/// A policy whose filter Envoy would refuse for this reason.
pub(super) fn refusal(policy: &Config, reason: &str) -> Option<Refusal> {
    let message = format!("its workloads refuse every request, since Envoy would refuse the policy: {reason}");
    Some(Refusal::new(Some(policy.key()), message))
}

/// Rules that allow nothing.
fn nothing() -> Rbac {
    rbac(Action::Allow, BTreeMap::new())
}

/// The reason a CUSTOM policy refuses requests instead of asking about them.
#[must_use]
pub fn provider_error(context: &PushContext, config: &Config) -> Option<String> {
    let custom = config.authorization_policy().is_some_and(|policy| policy.action() == PolicyAction::Custom);
    if custom { Providers::of(context).get(provider_of(config)).err() } else { None }
}

/// The reason Envoy would refuse the filters of a policy: in their place its workloads refuse every request.
#[must_use]
pub fn filter_error(context: &PushContext, config: &Arc<Config>) -> Option<String> {
    let filters = Filters::unchecked(context, &AuthorizationPolicies::of([config.clone()]));
    let http = filters.custom_http.iter().chain(&filters.http).find_map(|f| check::encoded(f).err());
    let tcp = || filters.custom_tcp.iter().chain(&filters.tcp).find_map(|f| check::encoded(f).err());
    http.or_else(tcp).map(|found| check::reasons(&found))
}

/// Enforced and tried rules of one action.
struct Rules {
    enforced: Option<Rbac>,
    tried: Option<Rbac>,
}

impl Rules {
    fn of(policies: &[Arc<Config>], action: Action, traffic: Traffic, trust_domains: &[&str]) -> Self {
        let mut rules = Self { enforced: None, tried: None };
        for config in policies {
            let set = if is_dry_run(config) { &mut rules.tried } else { &mut rules.enforced };
            let set = set.get_or_insert_with(|| rbac(action, BTreeMap::new()));
            let namespace = &config.meta.namespace;
            let setting = Setting { traffic, action, namespace, trust_domains };
            set.policies.extend(policies_of(config, "", &setting));
        }
        rules
    }

    fn tried_prefix(&self) -> String {
        let prefix = match self.tried.as_ref().map(Rbac::action) {
            // Istio names it also where nothing is tried.
            None | Some(Action::Allow) => DRY_RUN_ALLOW,
            Some(Action::Deny) => DRY_RUN_DENY,
            Some(Action::Log) => "",
        };
        prefix.to_string()
    }

    fn http(self) -> HttpFilter {
        let shadow_rules_stat_prefix = self.tried_prefix();
        let (rules, shadow_rules) = (self.enforced, self.tried);
        http_filter(HTTP_RBAC, &HttpRbac { rules, shadow_rules, shadow_rules_stat_prefix, ..HttpRbac::default() })
    }

    fn tcp(self) -> Filter {
        let shadow_rules_stat_prefix = self.tried_prefix();
        let (rules, shadow_rules, stat_prefix) = (self.enforced, self.tried, TCP.to_string());
        let config =
            NetworkRbac { rules, shadow_rules, shadow_rules_stat_prefix, stat_prefix, ..NetworkRbac::default() };
        network_filter(NETWORK_RBAC, &config)
    }
}

fn rbac(action: Action, policies: BTreeMap<String, Policy>) -> Rbac {
    Rbac { action: action.into(), policies, ..Rbac::default() }
}

/// The rules of a policy by name; a policy without rules has one that never matches.
fn policies_of(config: &Config, prefix: &str, setting: &Setting) -> BTreeMap<String, Policy> {
    let (namespace, name) = (&config.meta.namespace, &config.meta.name);
    let named = |index: usize| format!("{prefix}ns[{namespace}]-policy[{name}]-rule[{index}]");
    let rules = config.authorization_policy().map_or(&[][..], |policy| &policy.rules);
    if rules.is_empty() {
        return BTreeMap::from([(named(0), never())]);
    }
    let translated = rules.iter().enumerate().map(|(index, rule)| (named(index), rule::policy(rule, setting)));
    translated.filter_map(|(name, policy)| Some((name, policy?))).collect()
}

/// A policy that never matches.
pub(super) fn never() -> Policy {
    Policy { permissions: vec![Permission::never()], principals: vec![Principal::never()], ..Policy::default() }
}

fn provider_of(config: &Config) -> &str {
    match config.authorization_policy().and_then(|p| p.action_detail.as_ref()) {
        Some(ActionDetail::Provider(provider)) => &provider.name,
        None => "",
    }
}

/// Whether a policy is a dry run. The dry run of a CUSTOM policy calls no external authorizer.
pub(super) fn is_dry_run(config: &Config) -> bool {
    let value = config.meta.annotations.get(DRY_RUN).map(String::as_str);
    matches!(value, Some("1" | "t" | "T" | "TRUE" | "true" | "True"))
}

fn custom_rules(policies: &[&Arc<Config>], provider: &str, traffic: Traffic, trust_domains: &[&str]) -> Rbac {
    let prefix = if provider.is_empty() { format!("{CUSTOM_POLICY}-") } else { format!("{CUSTOM_POLICY}-{provider}-") };
    let of = |config: &&Arc<Config>| {
        let setting = Setting { traffic, action: Action::Deny, namespace: &config.meta.namespace, trust_domains };
        policies_of(config, &prefix, &setting)
    };
    rbac(Action::Deny, policies.iter().flat_map(of).collect())
}

fn refused(rules: Rbac) -> Rbac {
    let named = rules.policies.into_iter().map(|(name, policy)| (format!("{name}{BAD_CUSTOM}"), policy));
    rbac(Action::Deny, named.collect())
}

fn enforced_http(rules: Rbac) -> HttpRbac {
    HttpRbac { rules: Some(rules), ..HttpRbac::default() }
}

fn enforced_tcp(rules: Rbac) -> NetworkRbac {
    NetworkRbac { rules: Some(rules), stat_prefix: TCP.to_string(), ..NetworkRbac::default() }
}

fn ask_http(rules: Rbac, provider: &Provider, name: &str) -> [HttpFilter; 2] {
    let rbac =
        HttpRbac { shadow_rules: Some(rules), shadow_rules_stat_prefix: EXT_AUTHZ.to_string(), ..HttpRbac::default() };
    [http_filter(HTTP_RBAC, &rbac), http_filter(HTTP_EXT_AUTHZ, &provider.http(matched_by(HTTP_RBAC, name)))]
}

/// Nothing for a provider that is asked over HTTP: it cannot be asked about a connection.
fn ask_tcp(rules: impl FnOnce() -> Rbac, provider: &Provider, name: &str) -> Vec<Filter> {
    let Some(ext_authz) = provider.tcp(matched_by(NETWORK_RBAC, name)) else { return Vec::new() };
    let rbac = NetworkRbac {
        shadow_rules: Some(rules()),
        shadow_rules_stat_prefix: EXT_AUTHZ.to_string(),
        stat_prefix: TCP.to_string(),
        ..NetworkRbac::default()
    };
    vec![network_filter(NETWORK_RBAC, &rbac), network_filter(NETWORK_EXT_AUTHZ, &ext_authz)]
}

/// Set where the RBAC filter before found a policy of this provider to match.
fn matched_by(filter: &str, provider: &str) -> MetadataMatcher {
    let key = format!("{EXT_AUTHZ}shadow_effective_policy_id");
    let value = matcher::value_text(matcher::prefix(&format!("{CUSTOM_POLICY}-{provider}")));
    matcher::metadata(filter, [key.as_str()], value)
}
