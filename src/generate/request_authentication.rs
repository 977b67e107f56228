//! RequestAuthentications as Envoy's JWT filter (Istio's `authn/policy_applier.go`).
//!
//! A token that is found must be valid; a request without one passes, unless a rule says that a token is required. The keys
//! are those of the rule, or those fetched from its location; by feature flag Envoy fetches them itself.
//!
//! Invariant: without keys no token is valid.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    authorization,
    check::{self, Refusal},
    listener::filter::http_filter,
    names::{self, Direction},
};
use crate::{
    model::{
        Config, Kind, features,
        key_set::{KeyLocation, KeyServer},
    },
    proto::{
        envoy::{
            config::{
                core::v3::{DataSource, HttpUri, data_source::Specifier, http_uri::HttpUpstreamType},
                route::v3::{RouteMatch, route_match::PathSpecifier},
            },
            extensions::filters::{
                http::jwt_authn::v3::{
                    JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement, JwtRequirementAndList,
                    JwtRequirementOrList, RemoteJwks, RequirementRule, jwt_provider::JwksSourceSpecifier,
                    jwt_provider::NormalizePayload, jwt_requirement::RequiresType, requirement_rule::RequirementType,
                },
                network::http_connection_manager::v3::HttpFilter,
            },
        },
        istio::security::v1beta1::{JwtRule, jwt_rule::JwtRequirement as Presence},
        seconds,
    },
    push::{ProxyView, PushContext},
};

const FILTER: &str = "envoy.filters.http.jwt_authn";
/// Key of the claims in the metadata of the filter.
const PAYLOAD: &str = "payload";
/// Claims that are lists written as one text.
const SPACE_DELIMITED: [&str; 2] = ["permission", "scope"];
/// Time that fetching keys may take, without a setting, in seconds.
const TIMEOUT: i64 = 5;
/// Time that Envoy keeps keys which it fetched, in seconds.
const KEPT: i64 = 5 * 60;

/// Stands for keys that are not known: the private half was thrown away when it was made, so that no token is valid.
const UNKNOWN_KEYS: &str = concat!(
    r#"{"keys":[{"kty":"RSA","e":"AQAB","n":""#,
    "5mzxXwZJ1Elfc_ojd6jqJy0RWSOBgzibGB8grh5kqgx3BpzK9xL5VOyrY8mAc_bNh6f3vjsZ27Ee7sM8u_lpWWen-zAHX9xPVyqLodJHnqp8lU_2SzgC",
    "jLL8u5uLZ_rb9p9m4zSiSwJ_aEdjb2JKHl6tl_65LMXAoIfiqC9dd65iLI-5JTiXolr9NduKYbH2Y7TgDHhKb8os9LThsra_Z10vEtk_2gmxsJHojgXt",
    "ylAC81zaYMvQ0dLPelc4Usc35NssO5KsTYyK8qqdfeLoWs8tu-e2CjSlPUiwjC2dHPGvEQiSNuP6eoJ8FREBik05gvRn_DlMOut2iyFyrNAsLQ",
    r#""}]}"#
);

/// The filter for the policies that apply to a workload, none without rules, and the policies that Envoy would refuse.
#[must_use]
pub fn filter(context: &PushContext, view: &ProxyView) -> (Option<HttpFilter>, Vec<Refusal>) {
    let policies: Vec<&Arc<Config>> = context.policies.authentication(view).collect();
    // Claims choose routes at gateways alone; elsewhere the routes stay.
    let mut filter = unchecked(context, &policies, view.is_router());
    let mut refused = Vec::new();
    if filter.as_mut().is_some_and(authorization::or_refuse_http) {
        let refusal = |policy: &&Arc<Config>| authorization::refusal(policy, &filter_error(context, policy)?);
        refused.extend(policies.iter().filter_map(refusal));
    }
    (filter, refused)
}

/// The reason Envoy would refuse the filter of a policy: in its place the workloads refuse every request.
#[must_use]
pub fn filter_error(context: &PushContext, config: &Arc<Config>) -> Option<String> {
    let filter = unchecked(context, &[config], false)?;
    check::encoded(&filter).err().map(|found| check::reasons(&found))
}

fn unchecked(context: &PushContext, policies: &[&Arc<Config>], clear_route_cache: bool) -> Option<HttpFilter> {
    let mut rules: Vec<&JwtRule> =
        policies.iter().filter_map(|c| c.request_authentication()).flat_map(|policy| &policy.jwt_rules).collect();
    rules.sort_by(|a, b| a.issuer.cmp(&b.issuer));
    let named: Vec<_> = rules.iter().enumerate().map(|(index, rule)| (format!("origins-{index}"), *rule)).collect();
    let requirement = requirement(&named)?;
    let providers = named.iter().map(|(name, rule)| (name.clone(), provider(context, rule, clear_route_cache)));
    let every_path = RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".to_string())), ..Default::default() };
    let config = JwtAuthentication {
        providers: providers.collect(),
        rules: vec![RequirementRule {
            r#match: Some(every_path),
            requirement_type: Some(RequirementType::Requires(requirement)),
        }],
        bypass_cors_preflight: true,
        ..JwtAuthentication::default()
    };
    Some(http_filter(FILTER, &config))
}

/// The locations of keys that a policy needs and that are not known.
#[must_use]
pub fn missing_keys(context: &PushContext, config: &Config) -> Vec<KeyLocation> {
    let fetched = &context.inputs.registry.keys;
    fetched_rules(context, config).map(|(at, _)| at).filter(|at| !fetched.contains_key(at)).collect()
}

/// Hosts that Envoy fetches keys from.
#[must_use]
pub fn key_servers(context: &PushContext, view: &ProxyView) -> Vec<String> {
    if context.features().jwt_enable_remote_jwks == features::JwksFetchMode::Istiod {
        return Vec::new();
    }
    let policies = context.policies.authentication(view).filter_map(|c| c.request_authentication());
    let uris = policies.flat_map(|policy| &policy.jwt_rules).map(|rule| &rule.jwks_uri);
    uris.filter_map(|uri| KeyServer::of(uri)).map(|server| server.host).collect()
}

/// The keys that the control plane has to fetch, each with the longest time that a policy gives for it.
#[must_use]
pub fn wanted_keys(context: &PushContext) -> BTreeMap<KeyLocation, Duration> {
    let mut wanted: BTreeMap<KeyLocation, Duration> = BTreeMap::new();
    let policies = context.inputs.configs.list(Kind::RequestAuthentication);
    for (at, rule) in policies.iter().flat_map(|config| fetched_rules(context, config)) {
        let given = rule.timeout.unwrap_or_else(|| seconds(TIMEOUT));
        let patience = Duration::try_from(given).unwrap_or_default();
        let known = wanted.entry(at).or_default();
        *known = patience.max(*known);
    }
    wanted
}

/// The rules of a policy whose keys the control plane has to fetch.
fn fetched_rules<'a>(context: &'a PushContext, config: &'a Config) -> impl Iterator<Item = (KeyLocation, &'a JwtRule)> {
    let rules = config.request_authentication().map_or(&[][..], |policy| &policy.jwt_rules);
    let by_us = |rule: &&JwtRule| matches!(keys(context, rule), JwksSourceSpecifier::LocalJwks(_));
    rules.iter().filter(by_us).filter_map(|rule| Some((KeyLocation::of(rule)?, rule)))
}

fn requires(requirement: RequiresType) -> JwtRequirement {
    JwtRequirement { requires_type: Some(requirement) }
}

fn one_of(requirements: Vec<JwtRequirement>) -> JwtRequirement {
    requires(RequiresType::RequiresAny(JwtRequirementOrList { requirements }))
}

/// Every token that is found is valid. Of issuers whose tokens are in the same place only one can be, so that one valid token
/// is enough; where some rule requires a token, one of such a rule.
fn requirement(rules: &[(String, &JwtRule)]) -> Option<JwtRequirement> {
    let valid = |name: &String| requires(RequiresType::ProviderName(name.clone()));
    let is_required = |rule: &JwtRule| rule.presence() == Presence::Required;
    let each = rules.iter().map(|(name, rule)| match is_required(rule) {
        true => valid(name),
        false => one_of(vec![valid(name), requires(RequiresType::AllowMissing(()))]),
    });
    let mut each: Vec<_> = each.collect();
    if each.len() < 2 {
        return each.pop();
    }
    let any_required = rules.iter().any(|(_, rule)| is_required(rule));
    let enough = rules.iter().filter(|(_, rule)| !any_required || is_required(rule)).map(|(name, _)| valid(name));
    let all = requires(RequiresType::RequiresAll(JwtRequirementAndList { requirements: each }));
    Some(one_of(enough.chain([all]).collect()))
}

fn provider(context: &PushContext, rule: &JwtRule, clear_route_cache: bool) -> JwtProvider {
    let space_delimited: BTreeSet<&str> =
        rule.space_delimited_claims.iter().map(String::as_str).chain(SPACE_DELIMITED).collect();
    JwtProvider {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        forward: rule.forward_original_token,
        forward_payload_header: Some(rule.output_payload_to_header.clone())
            .filter(|h| is_header(h))
            .unwrap_or_default(),
        payload_in_metadata: PAYLOAD.to_string(),
        normalize_payload_in_metadata: Some(NormalizePayload {
            space_delimited_claims: space_delimited.into_iter().map(String::from).collect(),
        }),
        claim_to_headers: rule
            .output_claim_to_headers
            .iter()
            .map(|o| JwtClaimToHeader {
                header_name: o.header.clone(),
                claim_name: o.claim.clone(),
                ..JwtClaimToHeader::default()
            })
            .collect(),
        from_headers: rule
            .from_headers
            .iter()
            .filter(|l| is_header(&l.name))
            .map(|l| JwtHeader { name: l.name.clone(), value_prefix: l.prefix.clone() })
            .collect(),
        from_params: rule.from_params.clone(),
        from_cookies: rule.from_cookies.clone(),
        clear_route_cache,
        jwks_source_specifier: Some(keys(context, rule)),
        ..JwtProvider::default()
    }
}

/// No request has a header with another name, and Envoy would refuse the filter.
fn is_header(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn keys(context: &PushContext, rule: &JwtRule) -> JwksSourceSpecifier {
    let mode = context.features().jwt_enable_remote_jwks;
    if rule.jwks_uri.is_empty() || mode == features::JwksFetchMode::Istiod {
        return local(context, rule);
    }
    let server = KeyServer::of(&rule.jwks_uri);
    let known = server.as_ref().and_then(|s| Some((context.services.of_provider(&s.host)?, s.port)));
    let cluster = |host: &str, port: u16| names::subset_key(Direction::Outbound, "", host, u32::from(port));
    match (known, server) {
        (Some((service, port)), _) => remote(rule, cluster(&service.hostname, port)),
        // There is no such cluster: Envoy reports that it has no keys.
        (None, Some(server)) if mode == features::JwksFetchMode::Envoy => {
            remote(rule, cluster(&server.host, server.port))
        }
        _ => local(context, rule),
    }
}

fn local(context: &PushContext, rule: &JwtRule) -> JwksSourceSpecifier {
    let fetched = || KeyLocation::of(rule).and_then(|at| context.inputs.registry.keys.get(&at));
    let keys = match rule.jwks.as_str() {
        "" => fetched().map_or(UNKNOWN_KEYS, |keys| &**keys),
        own => own,
    };
    let specifier = Some(Specifier::InlineString(keys.to_string()));
    JwksSourceSpecifier::LocalJwks(DataSource { specifier, ..DataSource::default() })
}

fn remote(rule: &JwtRule, cluster: String) -> JwksSourceSpecifier {
    let http_uri = HttpUri {
        uri: rule.jwks_uri.clone(),
        timeout: Some(rule.timeout.unwrap_or_else(|| seconds(TIMEOUT))),
        http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
    };
    JwksSourceSpecifier::RemoteJwks(RemoteJwks {
        http_uri: Some(http_uri),
        cache_duration: Some(seconds(KEPT)),
        ..RemoteJwks::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(issuer: &str, presence: Presence) -> JwtRule {
        JwtRule { issuer: issuer.to_string(), presence: presence.into(), ..JwtRule::default() }
    }

    /// The requirement as text: `a?` is a token that may be missing.
    fn text(requirement: &JwtRequirement) -> String {
        let list =
            |all: &[JwtRequirement], by: &str| format!("({})", all.iter().map(text).collect::<Vec<_>>().join(by));
        match requirement.requires_type.as_ref() {
            Some(RequiresType::ProviderName(name)) => name.clone(),
            Some(RequiresType::AllowMissing(())) => "missing".to_string(),
            Some(RequiresType::RequiresAny(any)) => list(&any.requirements, "|"),
            Some(RequiresType::RequiresAll(all)) => list(&all.requirements, "&"),
            other => format!("{other:?}"),
        }
    }

    fn of(presences: &[Presence]) -> Option<String> {
        let rules: Vec<_> = presences.iter().map(|p| rule("i", *p)).collect();
        let named: Vec<_> = rules.iter().zip('a'..).map(|(rule, name)| (name.to_string(), rule)).collect();
        requirement(&named).as_ref().map(text)
    }

    #[test]
    fn a_token_may_be_missing_unless_it_is_required() {
        use Presence::{Optional, Required};
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[Optional]).unwrap(), "(a|missing)");
        assert_eq!(of(&[Required]).unwrap(), "a");
        assert_eq!(of(&[Optional, Optional]).unwrap(), "(a|b|((a|missing)&(b|missing)))");
        assert_eq!(of(&[Required, Optional]).unwrap(), "(a|(a&(b|missing)))");
        assert_eq!(of(&[Required, Required]).unwrap(), "(a|b|(a&b))");
    }

    #[test]
    fn the_keys_that_stand_for_unknown_ones_are_a_key_set() {
        assert_eq!(crate::model::key_set::check(UNKNOWN_KEYS), Ok(()));
    }
}
