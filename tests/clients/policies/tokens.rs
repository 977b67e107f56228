//! Tokens: signed here, with keys that the policy holds or that are fetched from their server.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SigningKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio_rustls::rustls::{self, ServerConfig, ServerConnection};

use super::{Guarded, authorization, policy};
use crate::{
    certificate_files::{Authority, authority},
    config::service,
    process::{free_port, scratch, wait_until},
};

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
        Self::start_with(keys, |stream, answer| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        })
    }

    /// Over TLS, with a certificate of this authority for this name.
    fn start_tls(keys: String, authority: &Authority, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_string()]).unwrap().signed_by(&key, authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let config = Arc::new(config);
        Self::start_with(keys, move |stream, answer| {
            let mut tls = ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, stream);
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(answer.as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        })
    }

    /// Takes connections, and answers none of them.
    fn start_silent() -> Self {
        let held = Mutex::new(Vec::new());
        Self::start_with(String::new(), move |stream, _| held.lock().unwrap().push(stream.try_clone().unwrap()))
    }

    fn start_with(keys: String, speak: impl Fn(&mut TcpStream, String) + Send + 'static) -> Self {
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
                let answer = match keys {
                    Some(keys) => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{keys}", keys.len()),
                    None => "HTTP/1.1 500 Down\r\ncontent-length: 0\r\n\r\n".to_string(),
                };
                speak(&mut stream, answer);
            }
        });
        server
    }

    /// A rule for tokens of this issuer with the keys of this server.
    fn rule(&self, scheme: &str, issuer: &Issuer) -> Value {
        json!({"issuer": issuer.name, "jwksUri": format!("{scheme}://127.0.0.1:{}/keys", self.port)})
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

#[test]
fn key_servers_over_tls_prove_themselves() {
    let (ours, foreign) = (authority(), authority());
    let [one, two, three] = ["one.test", "two.test", "three.test"].map(Issuer::new);
    let servers = [
        (&one, KeyServer::start_tls(one.keys(), &ours, "127.0.0.1")),
        (&two, KeyServer::start_tls(two.keys(), &ours, "other.example")),
        (&three, KeyServer::start_tls(three.keys(), &foreign, "127.0.0.1")),
    ];
    let rules: Vec<Value> = servers.iter().map(|(issuer, server)| server.rule("https", issuer)).collect();
    let roots = scratch().join("roots.pem");
    std::fs::write(&roots, ours.pem()).unwrap();
    let environment = [("SSL_CERT_FILE", roots.to_str().unwrap()), ("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "1s")];
    let policy = policy("RequestAuthentication", "tokens", &json!({"jwtRules": rules}));
    let guarded = Guarded::start_with(&policy, &json!({}), "", &environment);
    guarded.until(200, "/", &[("authorization", &bearer(&one.token(&json!({}))))]);
    for (issuer, server) in &servers[1..] {
        wait_until("the keys are asked for", || if server.asked() > 1 { Ok(()) } else { Err(issuer.name.to_string()) });
        let answer = guarded.ask("GET", "/", &[("authorization", &bearer(&issuer.token(&json!({}))))]).unwrap();
        assert_eq!(answer.status, 401, "{}", issuer.name);
    }
    guarded.envoy.assert_no_nacks();
}

#[test]
fn a_key_server_that_never_answers_holds_nothing_up() {
    let (silent, known, waiting) = (KeyServer::start_silent(), Issuer::new("known.test"), Issuer::new("waiting.test"));
    let mut rule = silent.rule("http", &waiting);
    rule["timeout"] = "3s".into();
    let rules = json!({"jwtRules": [rule, {"issuer": known.name, "jwks": known.keys()}]});
    let tokens = policy("RequestAuthentication", "tokens", &rules);
    let deny = |path: &str| {
        authorization("deny", &json!({"action": "DENY", "rules": [{"to": [{"operation": {"paths": [path]}}]}]}))
    };
    let guarded = Guarded::start(&(tokens.clone() + &deny("/a")), &json!({}), "");
    guarded.until(403, "/a", &[]);
    guarded.plane.write("policies.yaml", &(tokens + &deny("/b")));
    guarded.until(403, "/b", &[]);
    let (of_known, of_waiting) = (bearer(&known.token(&json!({}))), bearer(&waiting.token(&json!({}))));
    guarded.assert_all(&[
        (200, "GET", "/", &[("authorization", &of_known)]),
        (401, "GET", "/", &[("authorization", &of_waiting)]),
        (200, "GET", "/", &[]),
    ]);
    wait_until("the failure is told", || {
        let said = guarded.plane.process.tail();
        if said.contains("no answer within 3s") { Ok(()) } else { Err(said) }
    });
}

#[test]
fn keys_are_fetched_by_envoy_where_a_flag_says_so() {
    // The host of the first is a service of the mesh, which the control plane's resolver does not know.
    let (inside, outside) = (Issuer::new("inside.test"), Issuer::new("outside.test"));
    let servers = [KeyServer::start(inside.keys()), KeyServer::start(outside.keys())];
    let rules = json!({"jwtRules": [
        {"issuer": inside.name, "jwksUri": "http://keys.example/keys"}, servers[1].rule("http", &outside)]});
    let policy = policy("RequestAuthentication", "tokens", &rules);
    let keys = service("keys.example", 80, "HTTP", &[(servers[0].port, "v1", "")]);
    let (of_inside, of_outside) = (bearer(&inside.token(&json!({}))), bearer(&outside.token(&json!({}))));
    let forged = bearer(&Issuer::new("inside.test").token(&json!({})));
    for (mode, status_of_outside) in [("envoy", 401), ("hybrid", 200)] {
        let guarded = Guarded::start_with(&policy, &json!({}), &keys, &[("PILOT_JWT_ENABLE_REMOTE_JWKS", mode)]);
        guarded.until(200, "/", &[("authorization", &of_inside)]);
        guarded.until(status_of_outside, "/", &[("authorization", &of_outside)]);
        let answer = guarded.ask("GET", "/", &[("authorization", &forged)]).unwrap();
        assert_eq!(answer.status, 401, "{mode}");
        guarded.envoy.assert_no_nacks();
    }
}
