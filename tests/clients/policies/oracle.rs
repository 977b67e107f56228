//! An interpreter of AuthorizationPolicy, written from its documentation alone, against a real Envoy: random policies, random
//! requests, the same answers. `PILOTHOUSE_POLICIES` sets the number of policies, `PILOTHOUSE_POLICY_SEED` the seed.

use serde_json::{Value, json};

use super::{
    Guarded, authorization,
    meaning::Subject,
    patterns::{is_in, is_like, is_like_path},
    policy,
    random::{Random, field, setting},
    tokens::Issuer,
};
use crate::process::wait_until;

const PATHS: [&str; 9] =
    ["/", "/a", "/a/b", "/a/b/c", "/api/x", "/api/x/price", "/admin", "/x/admin", "/api/x/price/now"];
const PATH_PATTERNS: [&str; 9] =
    ["/a", "/a*", "*/admin", "*", "/api/*", "/a/{*}", "/api/{*}/price", "/api/{**}", "/{*}/{*}/price"];
const METHODS: [&str; 3] = ["GET", "POST", "PUT"];
const METHOD_PATTERNS: [&str; 4] = ["GET", "P*", "*T", "*"];
const HOSTS: [&str; 3] = ["a.example", "B.example", "x.b.example"];
const HOST_PATTERNS: [&str; 5] = ["a.example", "b.example", "*.b.example", "A*", "*"];
const VALUES: [&str; 4] = ["", "one", "only", "two"];
const VALUE_PATTERNS: [&str; 4] = ["one", "on*", "*o", "*"];
const BLOCKS: [&str; 4] = ["127.0.0.0/8", "127.0.0.1", "10.0.0.0/8", "0.0.0.0/0"];
const PRINCIPALS: [&str; 6] = ["id.test/ann", "id.test/*", "*/bob", "*", "id.*", "other.test/ann"];
const GROUPS: [&str; 3] = ["staff", "st*", "*"];
const NAMESPACES: [&str; 2] = ["shop", "*"];

/// A token's subject and groups.
#[derive(Debug, Clone)]
struct Token {
    subject: &'static str,
    groups: &'static [&'static str],
}

#[derive(Debug)]
struct Request {
    method: &'static str,
    host: &'static str,
    path: &'static str,
    tenant: &'static str,
    token: Option<Token>,
}

impl Request {
    fn random(random: &mut Random) -> Self {
        let tokens = [
            None,
            Some(Token { subject: "ann", groups: &["staff", "guest"] }),
            Some(Token { subject: "bob", groups: &["guest"] }),
        ];
        Self {
            method: random.of(&METHODS),
            host: random.of(&HOSTS),
            path: random.of(&PATHS),
            tenant: random.of(&VALUES),
            token: tokens[random.below(tokens.len())].clone(),
        }
    }
}

fn source(random: &mut Random) -> Value {
    let mut source = json!({});
    match random.below(4) {
        0 => field(random, &mut source, "ipBlocks", &BLOCKS),
        1 => field(random, &mut source, "requestPrincipals", &PRINCIPALS),
        2 => field(random, &mut source, "namespaces", &NAMESPACES),
        _ => {
            field(random, &mut source, "ipBlocks", &BLOCKS);
            field(random, &mut source, "requestPrincipals", &PRINCIPALS);
        }
    }
    json!({ "source": source })
}

fn operation(random: &mut Random) -> Value {
    let mut operation = json!({});
    if random.chance(70) {
        field(random, &mut operation, "paths", &PATH_PATTERNS);
    }
    if random.chance(40) {
        field(random, &mut operation, "methods", &METHOD_PATTERNS);
    }
    if random.chance(30) || operation == json!({}) {
        field(random, &mut operation, "hosts", &HOST_PATTERNS);
    }
    json!({ "operation": operation })
}

fn condition(random: &mut Random) -> Value {
    let (key, values): (&str, &[&str]) = match random.below(4) {
        0 => ("request.headers[x-tenant]", &VALUE_PATTERNS),
        1 => ("request.auth.claims[groups]", &GROUPS),
        2 => ("source.ip", &BLOCKS),
        _ => ("request.auth.principal", &PRINCIPALS),
    };
    let mut condition = json!({ "key": key });
    field(random, &mut condition, "values", values);
    condition
}

fn rule(random: &mut Random) -> Value {
    let mut rule = json!({});
    let lists: [(&str, usize, fn(&mut Random) -> Value); 3] =
        [("from", 40, source), ("to", 80, operation), ("when", 30, condition)];
    for (name, percent, make) in lists {
        if random.chance(percent) {
            rule[name] = (0..=random.below(2)).map(|_| make(random)).collect();
        }
    }
    rule
}

fn policies(random: &mut Random) -> Vec<Value> {
    let of = |random: &mut Random| {
        let action = random.of(&["ALLOW", "ALLOW", "DENY", "AUDIT"]);
        json!({"action": action, "rules": (0..=random.below(2)).map(|_| rule(random)).collect::<Vec<_>>()})
    };
    (0..=random.below(3)).map(|_| of(random)).collect()
}

impl Subject for Request {
    fn has(&self, name: &str, value: &str) -> bool {
        match name {
            "paths" => is_like_path(self.path, value),
            "methods" => is_like(self.method, value),
            "hosts" => is_like(&self.host.to_lowercase(), &value.to_lowercase()),
            "ipBlocks" | "source.ip" => is_in("127.0.0.1", value),
            // A source over plain text has no identity.
            "namespaces" => false,
            "request.headers[x-tenant]" => is_like(self.tenant, value),
            "request.auth.claims[groups]" => {
                self.token.as_ref().is_some_and(|token| token.groups.iter().any(|group| is_like(group, value)))
            }
            "requestPrincipals" | "request.auth.principal" => {
                self.token.as_ref().is_some_and(|token| is_like(&format!("id.test/{}", token.subject), value))
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn random_policies_have_their_documented_meaning() {
    let issuer = Issuer::new("id.test");
    let rules = json!({"jwtRules": [{"issuer": "id.test", "jwks": issuer.keys()}]});
    let tokens = policy("RequestAuthentication", "tokens", &rules);
    let token = |token: &Token| issuer.token(&json!({"sub": token.subject, "groups": token.groups}));
    let mut random = Random(setting("PILOTHOUSE_POLICY_SEED", 1));
    let guarded = Guarded::start(&tokens, &json!({}), "");
    let mut asked = 0;
    for number in 0..setting("PILOTHOUSE_POLICIES", 60) {
        let policies = policies(&mut random);
        // Envoy holds the policies of this round when it holds their name.
        let name = |index: usize| format!("round-{number}-{index}");
        let text: String = policies.iter().enumerate().map(|(i, spec)| authorization(&name(i), spec)).collect();
        guarded.plane.write("policies.yaml", &(tokens.clone() + &text));
        wait_until("Envoy holds the policies", || {
            if guarded.envoy.holds(&format!("policy[{}]", name(0))) { Ok(()) } else { Err(text.clone()) }
        });
        for _ in 0..40 {
            let request = Request::random(&mut random);
            let bearer = request.token.as_ref().map(|t| format!("Bearer {}", token(t)));
            let mut headers: Vec<(&str, &str)> = bearer.iter().map(|b| ("authorization", b.as_str())).collect();
            headers.extend((!request.tenant.is_empty()).then_some(("x-tenant", request.tenant)));
            let wanted = if request.is_allowed(&policies) { 200 } else { 403 };
            wait_until("Envoy answers as the documentation says", || {
                match guarded.ask_as(request.method, request.host, request.path, &headers) {
                    Ok(answer) if answer.status == wanted => Ok(()),
                    other => Err(format!("{request:?}: {wanted} is right, not {other:?}\n{text}")),
                }
            });
            asked += 1;
        }
    }
    println!("oracle: {asked} requests agree");
    guarded.envoy.assert_no_nacks();
}
