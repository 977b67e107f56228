//! AuthorizationPolicies of a gRPC server: RBAC filters, the one that denies before the one that allows.
//!
//! gRPC has neither external authorizers nor logging by policy nor dry runs: requests of CUSTOM policies are refused, AUDIT
//! policies and those that are only tried are left out. The parts of rules that its engine passes over count as not usable,
//! which makes access narrower (see `authorization::rule`).

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    generate::{
        authorization::{
            self, is_dry_run, never, rule,
            setting::{Setting, Traffic},
        },
        listener::filter::http_filter,
    },
    model::{Config, ConfigKey},
    proto::envoy::{
        config::rbac::v3::{Policy, Rbac, rbac::Action},
        extensions::filters::{http::rbac::v3::Rbac as HttpRbac, network::http_connection_manager::v3::HttpFilter},
    },
    push::{ProxyView, PushContext},
};

const DENY: &str = "envoy.filters.http.rbac.DENY";
const ALLOW: &str = "envoy.filters.http.rbac";

/// The filters of the policies that apply to a server.
pub(super) fn of_server(context: &PushContext, view: &ProxyView) -> Vec<HttpFilter> {
    let policies = context.policies.authorization(view);
    let domains = authorization::trust_domains(context);
    let refused = policies.deny.iter().chain(&policies.custom);
    let deny = filter(DENY, Action::Deny, refused, &domains);
    let allow = filter(ALLOW, Action::Allow, policies.allow.iter(), &domains);
    deny.into_iter().chain(allow).collect()
}

/// The policies of a server that gRPC cannot enforce as they are written, each with the effect that they have instead.
#[must_use]
pub fn not_enforced(context: &PushContext, view: &ProxyView) -> Vec<(ConfigKey, &'static str)> {
    let policies = context.policies.authorization(view);
    let enforced = policies.allow.iter().chain(&policies.deny).chain(&policies.custom);
    let tried = enforced.filter(|c| is_dry_run(c));
    let tried = tried.map(|c| (c.key(), "gRPC servers have no dry runs: the policy has no effect on them"));
    let audit =
        policies.audit.iter().map(|c| (c.key(), "gRPC servers have no AUDIT: the policy has no effect on them"));
    let custom =
        policies.custom.iter().filter(|c| !is_dry_run(c)).map(|c| {
            (c.key(), "gRPC servers ask no external authorizer: they refuse the requests that the policy is for")
        });
    let tokens = context.policies.authentication(view);
    let tokens = tokens.map(|c| (c.key(), "gRPC servers verify no tokens: the policy has no effect on them"));
    let extensions = context.extensions.of(view);
    let extensions =
        extensions.iter().map(|e| (e.config.key(), "gRPC servers run no extensions: it has no effect on them"));
    tried.chain(audit).chain(custom).chain(tokens).chain(extensions).collect()
}

fn filter<'a>(
    name: &str,
    action: Action,
    policies: impl Iterator<Item = &'a Arc<Config>>,
    trust_domains: &[&str],
) -> Option<HttpFilter> {
    let mut rules: BTreeMap<String, Policy> = BTreeMap::new();
    let mut enforced = false;
    for config in policies.filter(|c| !is_dry_run(c)) {
        enforced = true;
        let (namespace, policy) = (&config.meta.namespace, config.authorization_policy());
        let setting = Setting { traffic: Traffic::Grpc, action, namespace, trust_domains };
        for (index, rule) in policy.into_iter().flat_map(|p| &p.rules).enumerate() {
            let Some(policy) = rule::policy(rule, &setting) else { continue };
            let mut name = format!("{namespace}-{}-{index}", config.meta.name);
            // Namespaces and names hold dashes themselves: no policy may take another's place.
            while rules.contains_key(&name) {
                name.push('-');
            }
            rules.insert(name, policy);
        }
    }
    if rules.is_empty() {
        // A policy that allows nothing refuses everything, and one that refuses nothing needs no filter.
        if !enforced || action == Action::Deny {
            return None;
        }
        rules.insert("allow-nothing".to_string(), never());
    }
    let rbac = Rbac { action: action.into(), policies: rules, ..Rbac::default() };
    Some(http_filter(name, &HttpRbac { rules: Some(rbac), ..HttpRbac::default() }))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::{Origin, decode},
        proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType,
    };

    fn denied(policies: &[(&str, &str, Value)]) -> BTreeMap<String, Policy> {
        let object = |(namespace, name, to): &(&str, &str, Value)| {
            let spec = json!({"action": "DENY", "rules": [{"to": [{"operation": to}]}]});
            let metadata = json!({"namespace": namespace, "name": name});
            let document = json!({"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
                "metadata": metadata, "spec": spec});
            Arc::new(decode::from_value(&document, Origin::default()).unwrap())
        };
        let policies: Vec<_> = policies.iter().map(object).collect();
        let Some(ConfigType::TypedConfig(any)) =
            filter(DENY, Action::Deny, policies.iter(), &[]).and_then(|filter| filter.config_type)
        else {
            panic!("no filter")
        };
        HttpRbac::decode(&*any.value).unwrap().rules.unwrap().policies
    }

    #[test]
    fn policies_whose_names_read_alike_are_all_there() {
        let paths = |path: &str| json!({"paths": [path]});
        let made = denied(&[("istio-system", "all", paths("/a")), ("istio", "system-all", paths("/b"))]);
        let all = format!("{made:?}");
        assert!(made.len() == 2 && all.contains("/a") && all.contains("/b"), "{all}");
    }

    #[test]
    fn a_value_that_grpc_cannot_match_takes_its_clause_along_so_that_more_is_denied() {
        let made = denied(&[("shop", "deny", json!({"paths": ["/admin", "/x/{*}"], "methods": ["POST"]}))]);
        let all = format!("{made:?}");
        assert!(!all.contains("/admin") && all.contains("POST"), "every path is denied: {all}");
        let whole = format!("{:?}", denied(&[("shop", "deny", json!({"paths": ["/admin", "/x/*"]}))]));
        assert!(whole.contains("/admin") && whole.contains("/x/"), "{whole}");
    }
}
