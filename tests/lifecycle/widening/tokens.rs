//! RequestAuthentications that are damaged at random are refused, or accept no token that their documentation does not accept.

use pilothouse::{
    generate::request_authentication,
    model::{ConfigSnapshot, Locality, Node},
    proto::envoy::config::core::v3::data_source::Specifier,
    proto::envoy::extensions::filters::{
        http::jwt_authn::v3::{
            JwtAuthentication, JwtProvider, JwtRequirement, jwt_provider::JwksSourceSpecifier,
            jwt_requirement::RequiresType, requirement_rule::RequirementType,
        },
        network::http_connection_manager::v3::http_filter::ConfigType,
    },
    push::{PushContext, context::PushInputs},
};
use prost::Message;
use serde_json::{Value, json};

use super::{
    damage::damaged,
    random::{Random, setting},
    taken,
};

const KIND: &str = "RequestAuthentication";
const ISSUERS: [&str; 3] = ["id.test", "other.test", "third.test"];
const AUDIENCES: [&str; 3] = ["bank", "shop", "all"];

/// A key set, and the name of its owner as the modulus: no token is verified here.
fn keys(owner: &str) -> String {
    json!({"keys": [{"kty": "oct", "alg": "HS256", "k": owner, "kid": owner}]}).to_string()
}

/// The place of a token in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Header { name: &'static str, prefix: &'static str },
    Param(&'static str),
    Cookie(&'static str),
}

const BEARER: Place = Place::Header { name: "authorization", prefix: "Bearer " };
const PLACES: [Place; 5] = [
    BEARER,
    Place::Param("access_token"),
    Place::Header { name: "x-token", prefix: "jwt " },
    Place::Param("token"),
    Place::Cookie("session"),
];

/// A token that somebody signed.
#[derive(Debug)]
struct Token {
    place: Place,
    issuer: &'static str,
    audience: &'static str,
    signed_by: &'static str,
}

impl Token {
    fn random(random: &mut Random) -> Self {
        let issuer = random.of(&ISSUERS);
        let signed_by = if random.chance(70) { issuer } else { random.of(&ISSUERS) };
        Self { place: PLACES[random.below(PLACES.len())].clone(), issuer, audience: random.of(&AUDIENCES), signed_by }
    }
}

fn rule(random: &mut Random) -> Value {
    let issuer = random.of(&ISSUERS);
    let mut rule = json!({"issuer": issuer, "jwks": keys(issuer)});
    if random.chance(50) {
        rule["audiences"] = json!(random.some(&AUDIENCES));
    }
    if random.chance(30) {
        rule["fromHeaders"] = json!([{"name": "x-token", "prefix": "jwt "}]);
    }
    if random.chance(30) {
        rule["fromParams"] = json!(["token"]);
    }
    if random.chance(30) {
        rule["fromCookies"] = json!(["session"]);
    }
    rule
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the rule accepts the token, from its documentation: it is in a place that the rule names (without any, in the header
/// `authorization` or the parameter `access_token`), of its issuer, for one of its audiences, and signed by one of its keys.
fn accepts(rule: &Value, token: &Token) -> bool {
    let headers = rule["fromHeaders"].as_array().cloned().unwrap_or_default();
    let (params, cookies) = (texts(&rule["fromParams"]), texts(&rule["fromCookies"]));
    let is_found = match &token.place {
        place if headers.is_empty() && params.is_empty() && cookies.is_empty() => PLACES[..2].contains(place),
        Place::Header { name, prefix } => headers.iter().any(|header| {
            let of_rule = header["name"].as_str().unwrap_or_default();
            of_rule.eq_ignore_ascii_case(name) && prefix.starts_with(header["prefix"].as_str().unwrap_or_default())
        }),
        Place::Param(name) => params.contains(name),
        Place::Cookie(name) => cookies.contains(name),
    };
    let audiences = texts(&rule["audiences"]);
    is_found
        && rule["issuer"] == token.issuer
        && (audiences.is_empty() || audiences.contains(&token.audience))
        && rule["jwks"].as_str().is_some_and(|text| has_key_of(text, token.signed_by))
}

/// Whether a key set holds the key of this owner.
fn has_key_of(set: &str, owner: &str) -> bool {
    serde_json::from_str::<Value>(set)
        .is_ok_and(|set| set["keys"].as_array().into_iter().flatten().any(|key| key["k"] == owner))
}

/// Whether Envoy would take the token for valid by this provider.
fn is_valid(provider: &JwtProvider, token: &Token) -> bool {
    let JwtProvider { from_headers, from_params, from_cookies, .. } = provider;
    let is_found = match &token.place {
        place if from_headers.is_empty() && from_params.is_empty() && from_cookies.is_empty() => {
            PLACES[..2].contains(place)
        }
        Place::Header { name, prefix } => {
            from_headers.iter().any(|h| h.name.eq_ignore_ascii_case(name) && prefix.starts_with(&*h.value_prefix))
        }
        Place::Param(name) => from_params.iter().any(|param| param == name),
        Place::Cookie(name) => from_cookies.iter().any(|cookie| cookie == name),
    };
    let Some(JwksSourceSpecifier::LocalJwks(local)) = &provider.jwks_source_specifier else { panic!("{provider:?}") };
    let Some(Specifier::InlineString(set)) = &local.specifier else { panic!("{local:?}") };
    is_found
        && (provider.issuer.is_empty() || provider.issuer == token.issuer)
        && (provider.audiences.is_empty() || provider.audiences.iter().any(|audience| audience == token.audience))
        && has_key_of(set, token.signed_by)
}

/// The providers that a requirement names.
fn named(requirement: &JwtRequirement) -> Vec<&str> {
    match requirement.requires_type.as_ref().unwrap() {
        RequiresType::ProviderName(name) => vec![name],
        RequiresType::RequiresAny(any) => any.requirements.iter().flat_map(named).collect(),
        RequiresType::RequiresAll(all) => all.requirements.iter().flat_map(named).collect(),
        RequiresType::AllowMissing(()) => Vec::new(),
        other => panic!("{other:?} admits tokens that are not valid"),
    }
}

#[test]
fn damaged_token_rules_are_refused_or_accept_no_more_than_they_say() {
    let node = json!({"NAMESPACE": "bank", "LABELS": {"app": "till"}});
    let node =
        Node::from_parts("sidecar~10.0.0.1~till.bank~bank.svc.cluster.local", node, Locality::default()).unwrap();
    let mut random = Random(setting("PILOTHOUSE_POLICY_SEED", 1));
    let (mut refused, mut accepted, mut declined) = (0, 0, 0);
    for _ in 0..setting("PILOTHOUSE_POLICIES", 2000) {
        let sound = json!({"jwtRules": (0..=random.below(2)).map(|_| rule(&mut random)).collect::<Vec<_>>()});
        let spec = damaged(&sound, &mut random);
        assert!(taken(KIND, "bank", "tokens", &sound).is_some(), "{sound} is refused");
        let Some(config) = taken(KIND, "bank", "tokens", &spec) else {
            refused += 1;
            continue;
        };
        let context = PushContext::build(PushInputs { configs: ConfigSnapshot::of([config]), ..PushInputs::default() });
        let (filter, _) = request_authentication::filter(&context, &context.view_of(&node));
        let rules = spec["jwtRules"].as_array().cloned().unwrap_or_default();
        let Some(filter) = filter else {
            assert!(rules.is_empty(), "no filter for {spec:#}");
            continue;
        };
        let Some(ConfigType::TypedConfig(any)) = &filter.config_type else { panic!("{filter:?}") };
        if !any.type_url.ends_with("JwtAuthentication") {
            // In the place of a filter that Envoy would refuse stands one that refuses each request.
            assert!(any.type_url.ends_with("RBAC"), "{}", any.type_url);
            continue;
        }
        let filter = JwtAuthentication::decode(any.value.as_slice()).unwrap();
        let [rule] = filter.rules.as_slice() else { panic!("{filter:?}") };
        let Some(RequirementType::Requires(requirement)) = &rule.requirement_type else { panic!("{rule:?}") };
        let names = named(requirement);
        assert!(
            filter.providers.keys().all(|name| names.contains(&&**name)),
            "a provider that nothing requires: {filter:?}"
        );
        for _ in 0..20 {
            let token = Token::random(&mut random);
            let by_proxy = filter.providers.values().any(|provider| is_valid(provider, &token));
            let by_rules = rules.iter().any(|rule| accepts(rule, &token));
            assert!(by_rules || !by_proxy, "accepted: {token:?}\nby {spec:#}\nonce {sound:#}\nas {filter:?}");
            accepted += usize::from(by_proxy);
            declined += usize::from(!by_proxy);
        }
    }
    println!(
        "damaged token rules: {refused} refused; of the tokens for the others {accepted} accepted, {declined} declined"
    );
    assert!(
        refused > 300 && accepted > 300 && declined > 300,
        "{refused} {accepted} {declined}: the damage says nothing"
    );
}
