//! Tokens: signed here, with keys that the policy holds or that are fetched from their server.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use rcgen::{KeyPair, PKCS_ED25519, SigningKey};
use serde_json::{Value, json};

use super::{Guarded, authorization, policy};
use crate::process::{free_port, wait_until};

/// Signs tokens.
pub(super) struct Issuer {
    name: &'static str,
    key: KeyPair,
}

/// Base64 for URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |at| DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char)
    });
    digits.collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Issuer {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, key: KeyPair::generate_for(&PKCS_ED25519).unwrap() }
    }

    /// The key set of the issuer.
    pub(super) fn keys(&self) -> String {
        let x = base64(self.key.public_key_raw());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": self.name, "x": x}]}).to_string()
    }

    /// A token with these claims beside issuer and time.
    pub(super) fn token(&self, claims: &Value) -> String {
        let mut all = json!({"iss": self.name, "sub": "ann", "exp": now() + 3600});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let head = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.name}).to_string();
        let signed = format!("{}.{}", base64(head.as_bytes()), base64(all.to_string().as_bytes()));
        let signature = self.key.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", base64(&signature))
    }
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn tokens_are_verified_and_their_claims_decide() {
    let (ours, foreign) = (Issuer::new("id.test"), Issuer::new("id.test"));
    let other = Issuer::new("other.test");
    let rule = json!({"issuer": "id.test", "jwks": ours.keys(), "audiences": ["shop"], "forwardOriginalToken": true,
        "outputPayloadToHeader": "x-payload",
        "outputClaimToHeaders": [{"header": "x-group", "claim": "group"}]});
    let allow = json!({"rules": [
        {"from": [{"source": {"requestPrincipals": ["id.test/ann"]}}], "to": [{"operation": {"paths": ["/ann"]}}]},
        {"from": [{"source": {"requestPrincipals": ["*"]}}], "to": [{"operation": {"paths": ["/any"]}}]},
        {"to": [{"operation": {"paths": ["/staff"]}}], "when": [{"key": "request.auth.claims[groups]", "values": ["staff"]}]},
        {"to": [{"operation": {"paths": ["/deep"]}}], "when": [{"key": "request.auth.claims[a][b]", "values": ["c*"]}]},
        {"to": [{"operation": {"paths": ["/open"]}}]},
    ]});
    let text =
        policy("RequestAuthentication", "tokens", &json!({"jwtRules": [rule]})) + &authorization("allow", &allow);
    let guarded = Guarded::start(&text, &json!({}), "");
    let of = |issuer: &Issuer, claims: Value| {
        let mut all = json!({"aud": "shop"});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        bearer(&issuer.token(&all))
    };
    let valid = of(&ours, json!({"groups": ["guest", "staff"], "group": "g", "a": {"b": "cd"}}));
    let bob = of(&ours, json!({"sub": "bob"}));
    let rows: &[(u16, &str, Option<&str>)] = &[
        (200, "/ann", Some(&valid)),
        (403, "/ann", None),
        (200, "/open", None),
        (200, "/staff", Some(&valid)),
        (200, "/deep", Some(&valid)),
        (403, "/ann", Some(&bob)),
        (200, "/any", Some(&bob)),
        (403, "/staff", Some(&bob)),
        (401, "/open", Some(&of(&ours, json!({"exp": now() - 3600})))),
        (401, "/open", Some(&of(&foreign, json!({})))),
        (401, "/open", Some(&of(&other, json!({})))),
        (403, "/open", Some(&of(&ours, json!({"aud": "bank"})))),
        (401, "/open", Some("Bearer nonsense")),
    ];
    guarded.until(200, "/ann", &[("authorization", &valid)]);
    for (status, path, token) in rows {
        let headers: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", *token)).collect();
        let answer = guarded.ask("GET", path, &headers).unwrap();
        assert_eq!(answer.status, *status, "{path} {token:?}: {}", answer.body);
    }
    let seen = guarded.ask("GET", "/ann", &[("authorization", &valid), ("x-group", "forged")]).unwrap();
    assert_eq!((seen.seen("x-group").as_str(), seen.seen("authorization")), ("g", valid.clone()));
    assert!(!seen.seen("x-payload").is_empty(), "{seen:?}");
    guarded.envoy.assert_no_nacks();
}

#[test]
fn each_issuer_has_its_place_and_a_required_token_must_be_there() {
    let (one, two) = (Issuer::new("one.test"), Issuer::new("two.test"));
    let rules = json!({"jwtRules": [
        {"issuer": "one.test", "jwks": one.keys(), "fromHeaders": [{"name": "x-token", "prefix": "Token "}], "fromParams": ["tok"]},
        {"issuer": "two.test", "jwks": two.keys(), "fromCookies": ["session"]},
    ]});
    let guarded = Guarded::start(&policy("RequestAuthentication", "tokens", &rules), &json!({}), "");
    let (of_one, of_two) = (one.token(&json!({})), two.token(&json!({})));
    let (header, cookie, wrong) = (format!("Token {of_one}"), format!("session={of_two}"), format!("session={of_one}"));
    guarded.assert_all(&[
        (401, "GET", "/", &[("cookie", &wrong)]),
        (200, "GET", "/", &[("x-token", &header)]),
        (200, "GET", "/", &[("cookie", &cookie)]),
        (200, "GET", "/", &[]),
        (200, "GET", &format!("/?tok={of_one}"), &[]),
        (401, "GET", &format!("/?tok={of_two}"), &[]),
    ]);
    let mut required = rules;
    required["jwtRules"][1]["presence"] = "REQUIRED".into();
    guarded.plane.write("policies.yaml", &policy("RequestAuthentication", "tokens", &required));
    guarded.until(401, "/", &[]);
    guarded.until(401, "/", &[("x-token", &header)]);
    guarded.until(200, "/", &[("cookie", &cookie)]);
    guarded.envoy.assert_no_nacks();
}

/// Serves a key set, or refuses while it has none; counts the requests.
struct KeyServer {
    port: u16,
    state: Arc<Mutex<(Option<String>, usize)>>,
}

impl KeyServer {
    fn start(keys: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { port: listener.local_addr().unwrap().port(), state: Arc::new(Mutex::new((Some(keys), 0))) };
        let state = server.state.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let keys = {
                    let mut state = state.lock().unwrap();
                    state.1 += 1;
                    state.0.clone()
                };
                let _ = stream.read(&mut [0; 4096]);
                let answer = match keys {
                    Some(keys) => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{keys}", keys.len()),
                    None => "HTTP/1.1 500 Down\r\ncontent-length: 0\r\n\r\n".to_string(),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        server
    }

    fn put(&self, keys: Option<String>) {
        self.state.lock().unwrap().0 = keys;
    }

    fn asked(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

#[test]
fn fetched_keys_are_rotated_and_outlive_their_server() {
    let (old, new) = (Issuer::new("id.test"), Issuer::new("id.test"));
    let server = KeyServer::start(old.keys());
    let of = |port: u16| {
        let rule = json!({"issuer": "id.test", "jwksUri": format!("http://127.0.0.1:{port}/keys")});
        policy("RequestAuthentication", "tokens", &json!({"jwtRules": [rule]}))
    };
    let often = [("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "1s")];
    let guarded = Guarded::start_with(&of(server.port), &json!({}), "", &often);
    let (of_old, of_new) = (bearer(&old.token(&json!({}))), bearer(&new.token(&json!({}))));
    guarded.until(200, "/", &[("authorization", &of_old)]);
    guarded.until(401, "/", &[("authorization", &of_new)]);
    server.put(Some(new.keys()));
    guarded.until(200, "/", &[("authorization", &of_new)]);
    guarded.until(401, "/", &[("authorization", &of_old)]);
    server.put(None);
    let asked = server.asked();
    wait_until("the keys are asked for in vain", || {
        if server.asked() > asked + 2 { Ok(()) } else { Err(server.asked().to_string()) }
    });
    assert_eq!(guarded.ask("GET", "/", &[("authorization", &of_new)]).unwrap().status, 200);
    // Of another server nothing is known: no token is valid.
    guarded.plane.write("policies.yaml", &of(free_port()));
    guarded.until(401, "/", &[("authorization", &of_new)]);
    guarded.until(200, "/", &[]);
    guarded.envoy.assert_no_nacks();
}
