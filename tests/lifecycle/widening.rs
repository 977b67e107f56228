//! An invalid policy never widens access: AuthorizationPolicies that are damaged at random are refused, or admit no request that
//! their documentation denies; so for the other kinds of the security API. No Envoy runs: the rules that it would be sent are
//! evaluated here.
//!
//! `PILOTHOUSE_POLICIES` sets the number of policies, `PILOTHOUSE_POLICY_SEED` the seed.

mod damage;
mod meaning;
#[path = "../clients/policies/patterns.rs"]
mod patterns;
mod peers;
#[path = "../clients/policies/random.rs"]
mod random;
mod rbac;
mod tokens;

use std::sync::Arc;

use pilothouse::{
    generate::authorization::Filters,
    model::{Config, Origin, decode, validation::validate},
    push::{PushContext, context::PushInputs, policies::AuthorizationPolicies},
};
use random::{Random, field, setting};
use serde_json::{Value, json};

const KIND: &str = "AuthorizationPolicy";

/// A request as a proxy sees it behind the filters that verify tokens.
#[derive(Debug, Clone)]
struct Request {
    method: &'static str,
    host: &'static str,
    path: &'static str,
    port: u32,
    ip: &'static str,
    /// The header `x-tenant`; empty when it is absent.
    tenant: &'static str,
    /// The identity of the certificate, without `spiffe://`; empty on plain text.
    principal: &'static str,
    /// The claims of the token.
    claims: Option<Value>,
}

impl Request {
    fn random(random: &mut Random) -> Self {
        let claims = [
            None,
            Some(json!({"iss": "id.test", "sub": "ann", "groups": ["staff", "guest"]})),
            Some(json!({"iss": "id.test", "sub": "bob", "groups": "guest"})),
        ];
        Self {
            method: random.of(&["GET", "POST", "PUT"]),
            host: random.of(&["a.example", "B.example", "x.b.example"]),
            path: random.of(&["/", "/a", "/a/b", "/api/x", "/api/x/price", "/admin", "/x/admin"]),
            port: [80, 8080][random.below(2)],
            ip: random.of(&["127.0.0.1", "10.1.2.3", "192.0.2.7"]),
            tenant: random.of(&["", "one", "only", "two"]),
            principal: random.of(&[
                "",
                "cluster.local/ns/shop/sa/web",
                "cluster.local/ns/bank/sa/till",
                "other.test/ns/shop/sa/web",
            ]),
            claims: claims[random.below(claims.len())].clone(),
        }
    }
}

/// A policy that is sound.
fn policy(random: &mut Random) -> Value {
    let action = random.of(&["ALLOW", "ALLOW", "DENY"]);
    json!({"action": action, "rules": (0..=random.below(2)).map(|_| rule(random)).collect::<Vec<_>>()})
}

fn rule(random: &mut Random) -> Value {
    let mut rule = json!({});
    let lists: [(&str, usize, fn(&mut Random) -> Value); 3] =
        [("from", 60, source), ("to", 70, operation), ("when", 40, condition)];
    for (name, percent, make) in lists {
        if random.chance(percent) {
            rule[name] = (0..=random.below(2)).map(|_| make(random)).collect();
        }
    }
    rule
}

const BLOCKS: [&str; 4] = ["127.0.0.0/8", "127.0.0.1", "10.0.0.0/8", "0.0.0.0/0"];
const TOKENS: [&str; 5] = ["id.test/ann", "id.test/*", "*/bob", "*", "other.test/ann"];

fn source(random: &mut Random) -> Value {
    let fields: [(&str, &[&str]); 6] = [
        ("ipBlocks", &BLOCKS),
        ("remoteIpBlocks", &BLOCKS),
        ("requestPrincipals", &TOKENS),
        ("namespaces", &["shop", "b*", "*k", "*"]),
        ("principals", &["cluster.local/ns/shop/sa/web", "cluster.local/ns/bank/*", "*/sa/web", "*"]),
        ("serviceAccounts", &["shop/web", "till", "bank/till"]),
    ];
    let mut source = json!({});
    let (name, values) = fields[random.below(fields.len())];
    field(random, &mut source, name, values);
    if random.chance(40) {
        field(random, &mut source, "ipBlocks", &BLOCKS);
    }
    json!({ "source": source })
}

fn operation(random: &mut Random) -> Value {
    let fields: [(&str, &[&str]); 4] = [
        ("paths", &["/a", "/a*", "*/admin", "*", "/api/*", "/api/{*}/price", "/api/{**}"]),
        ("methods", &["GET", "P*", "*T", "*"]),
        ("hosts", &["a.example", "b.example", "*.b.example", "A*", "*"]),
        ("ports", &["80", "8080", "443"]),
    ];
    let mut operation = json!({});
    for _ in 0..=random.below(2) {
        let (name, values) = fields[random.below(fields.len())];
        field(random, &mut operation, name, values);
    }
    json!({ "operation": operation })
}

fn condition(random: &mut Random) -> Value {
    let conditions: [(&str, &[&str]); 7] = [
        ("request.headers[x-tenant]", &["one", "on*", "*o", "*"]),
        ("request.auth.claims[groups]", &["staff", "gu*", "*"]),
        ("request.auth.principal", &TOKENS),
        ("source.ip", &BLOCKS),
        ("source.namespace", &["shop", "b*"]),
        ("source.principal", &["cluster.local/ns/shop/sa/web", "*"]),
        ("destination.port", &["80", "8080"]),
    ];
    let (key, values) = conditions[random.below(conditions.len())];
    let mut condition = json!({ "key": key });
    field(random, &mut condition, "values", values);
    condition
}

/// The policy as the control plane takes it; `None` where it is refused.
fn taken(kind: &str, namespace: &str, name: &str, spec: &Value) -> Option<Arc<Config>> {
    let document = json!({
        "apiVersion": "security.istio.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    let config = decode::from_value(&document, Origin::default()).ok()?;
    validate(&config).is_valid().then(|| Arc::new(config))
}

#[test]
fn damaged_policies_are_refused_or_admit_no_more_than_they_say() {
    let context = PushContext::build(PushInputs::default());
    let filters = |config: &Arc<Config>| {
        let filters = Filters::of(&context, &AuthorizationPolicies::of([config.clone()]));
        rbac::decoded(&filters.http)
    };
    let mut random = Random(setting("PILOTHOUSE_POLICY_SEED", 1));
    let (mut refused, mut compared, mut admitted, mut denied) = (0, 0, 0, 0);
    for _ in 0..setting("PILOTHOUSE_POLICIES", 2000) {
        let sound = policy(&mut random);
        let damaged = damage::damaged(&sound, &mut random);
        let requests: Vec<Request> = (0..20).map(|_| Request::random(&mut random)).collect();
        // A sound policy means exactly what it says, or else the comparison says nothing about a damaged one.
        let config = taken(KIND, "bank", "sound", &sound).unwrap_or_else(|| panic!("{sound} is refused"));
        let rules = filters(&config);
        for request in &requests {
            let (sent, said) = (rbac::admits(&rules, request), meaning::admits(&sound, "bank", request));
            assert_eq!(Some(sent), said, "{request:?}\n{sound:#}\n{rules:?}");
        }
        let Some(config) = taken(KIND, "bank", "damaged", &damaged) else {
            refused += 1;
            continue;
        };
        let rules = filters(&config);
        for request in &requests {
            let Some(said) = meaning::admits(&damaged, "bank", request) else { continue };
            let sent = rbac::admits(&rules, request);
            assert!(said || !sent, "admitted: {request:?}\nby {damaged:#}\nonce {sound:#}\nas {rules:?}");
            compared += 1;
            admitted += usize::from(sent);
            denied += usize::from(!sent);
        }
    }
    println!(
        "damaged policies: {refused} refused; of {compared} requests to the others {admitted} admitted, {denied} denied"
    );
    assert!(refused > 300 && admitted > 300 && denied > 300, "{refused} {admitted} {denied}: the damage says nothing");
}
