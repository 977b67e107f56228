//! Tokens of a rule: those that hold, and each way in which one does not.

use jsonwebtoken::{EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::json;

use super::*;

const ISSUER: &str = "https://id.test";

/// URL-safe base64 without padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * at)) as usize & 63]));
        }
    }
    text
}

/// A key of the issuer, with its id.
struct Signer {
    pair: KeyPair,
    id: &'static str,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        Self { pair: KeyPair::generate().unwrap(), id }
    }

    fn public(&self) -> Vec<u8> {
        self.pair.der_bytes().to_vec()
    }

    fn jwk(&self) -> Value {
        let point = self.public();
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig",
            "x": base64(&point[1..33]), "y": base64(&point[33..65])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &self.pair.serialize_der(), &random).unwrap();
        format!("{signed}.{}", base64(key.sign(&random, signed.as_bytes()).unwrap().as_ref()))
    }

    fn token(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = claims();
        change(&mut claims);
        self.sign(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), &claims)
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "system:serviceaccount:shop:cart", "aud": ["other", "istio-ca"], "exp": 1_800_000_060})
}

fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn rule() -> IssuedTokens {
    let text = json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwksUri": "http://127.0.0.1:1/keys"}).to_string();
    IssuedTokens::of(IssuerRule::parse(&text).unwrap())
}

fn error(tokens: &IssuedTokens, token: &str) -> String {
    tokens.verify(token, now()).unwrap_err().to_string()
}

#[test]
fn a_token_of_the_issuer_proves_its_service_account() {
    let (tokens, signer) = (rule(), Signer::new("a"));
    assert_eq!(tokens.verify(&signer.token(|_| ()), now()), Err(IssuedError::NoKeys));
    tokens.set_keys(Some(&set(&[Signer::new("b").jwk(), signer.jwk()])));
    let account = Ok(("shop".to_string(), "cart".to_string()));
    assert_eq!(tokens.verify(&signer.token(|_| ()), now()), account);
    let one = signer.token(|claims| claims["aud"] = json!("istio-ca"));
    assert_eq!(tokens.verify(&one, now()), account);
    let without_id = signer.sign(&json!({"alg": "ES256"}), &claims());
    assert_eq!(tokens.verify(&without_id, now()), account);
    assert!(tokens.are_meant_by(&without_id) && !tokens.are_meant_by("x"));
}

#[test]
fn claims_that_do_not_hold_are_refused() {
    let (tokens, signer) = (rule(), Signer::new("a"));
    tokens.set_keys(Some(&set(&[signer.jwk()])));
    let changes: [(&str, Value, &str); 14] = [
        ("exp", json!(1_800_000_000), "expired"),
        ("exp", json!(null), "exp is missing"),
        ("nbf", json!(1_800_000_301), "time has not come"),
        ("iss", json!("https://other.test"), "another issuer"),
        ("iss", json!([ISSUER]), "another form"),
        ("aud", json!("other"), "audience"),
        ("aud", json!([]), "audience"),
        ("aud", json!(null), "another form"),
        ("sub", json!("system:serviceaccount:shop"), "subject"),
        ("sub", json!("system:serviceaccount:shop:"), "subject"),
        ("sub", json!("system:serviceaccount:shop:cart:x"), "subject"),
        ("sub", json!("system:serviceaccount:a/sa/b:cart"), "subject"),
        ("sub", json!("system:serviceaccounts:shop:cart"), "subject"),
        ("sub", json!("somebody"), "subject"),
    ];
    for (claim, value, reason) in changes {
        let found = error(&tokens, &signer.token(|claims| claims[claim] = value.clone()));
        assert!(found.contains(reason), "{claim} {value}: {found}");
    }
}

#[test]
fn neither_other_keys_nor_other_algorithms_are_believed() {
    let (tokens, signer) = (rule(), Signer::new("a"));
    tokens.set_keys(Some(&set(&[signer.jwk()])));
    let foreign = Signer::new("a").token(|_| ());
    assert!(error(&tokens, &foreign).contains("no key"), "another key of the same id");
    assert!(error(&tokens, &Signer::new("z").token(|_| ())).contains("none of the issuer's"));

    let payload = base64(claims().to_string().as_bytes());
    for algorithm in ["none", "None", "NONE", ""] {
        let header = base64(json!({"alg": algorithm, "kid": "a"}).to_string().as_bytes());
        for signature in ["", "x"] {
            tokens.verify(&format!("{header}.{payload}.{signature}"), now()).unwrap_err();
        }
    }
    // The public key as the secret of an HMAC, in each form that it is known in.
    super::jwt::install();
    let header = Header { kid: Some("a".to_string()), ..Header::new(Algorithm::HS256) };
    for secret in [signer.public(), signer.jwk().to_string().into_bytes(), signer.pair.public_key_pem().into_bytes()] {
        let token = jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_secret(&secret)).unwrap();
        assert!(error(&tokens, &token).contains("algorithm"), "HMAC with the public key");
    }
    let other_algorithm = signer.sign(&json!({"alg": "ES384", "kid": "a"}), &claims());
    assert!(error(&tokens, &other_algorithm).contains("algorithm"));
    let critical = signer.sign(&json!({"alg": "ES256", "kid": "a", "crit": ["x"], "x": 1}), &claims());
    assert!(error(&tokens, &critical).contains("critical"));

    let token = signer.token(|_| ());
    let parts: Vec<&str> = token.split('.').collect();
    let raised = base64(claims().to_string().replace("shop", "root").as_bytes());
    for forged in [
        format!("{}.{raised}.{}", parts[0], parts[2]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{token}.x"),
        String::new(),
        "...".to_string(),
    ] {
        tokens.verify(&forged, now()).unwrap_err();
    }
}

#[test]
fn secrets_and_keys_of_other_uses_are_no_keys() {
    let (tokens, signer) = (rule(), Signer::new("a"));
    let secret = json!({"kty": "oct", "kid": "a", "k": base64(b"secret"), "alg": "HS256"});
    let mut encrypts = signer.jwk();
    encrypts["use"] = json!("enc");
    let mut other = signer.jwk();
    other["alg"] = json!("RS256");
    tokens.set_keys(Some(&set(&[secret.clone(), encrypts, other, json!({"kty": "new"}), json!(7)])));
    assert_eq!(tokens.verify(&signer.token(|_| ()), now()), Err(IssuedError::NoKeys));
    tokens.set_keys(Some(&set(&[secret, signer.jwk()])));
    assert!(tokens.verify(&signer.token(|_| ()), now()).is_ok());
    tokens.set_keys(Some(r#"{"keys": []}"#));
    assert!(tokens.verify(&signer.token(|_| ()), now()).is_ok(), "the last good set stays");
    tokens.set_keys(None);
    assert!(tokens.verify(&signer.token(|_| ()), now()).is_err());
}

#[tokio::test]
async fn a_token_of_an_unknown_key_has_the_keys_fetched_but_not_for_each_token() {
    let (tokens, signer) = (rule(), Signer::new("a"));
    tokens.set_keys(Some(&set(&[signer.jwk()])));
    let rotated = Signer::new("b");
    let refetch = tokens.refetch();
    for _ in 0..100 {
        assert!(tokens.verify(&rotated.token(|_| ()), now()).is_err());
    }
    refetch.notified().await;
    assert!(futures::FutureExt::now_or_never(refetch.notified()).is_none(), "once for all of them");
    tokens.set_keys(Some(&set(&[rotated.jwk()])));
    assert!(tokens.verify(&rotated.token(|_| ()), now()).is_ok());
    assert!(tokens.verify(&signer.token(|_| ()), now()).is_err());
}

#[test]
fn a_rule_that_judges_nothing_is_refused() {
    let of = |text: &str| IssuerRule::parse(text).map(drop).unwrap_err().to_string();
    for (text, reason) in [
        ("", "not JSON"),
        ("[]", "JWT_RULE"),
        ("{}", "issuer is empty"),
        (r#"{"issuer": "https://id.test"}"#, "audiences is empty"),
        (r#"{"issuer": "pilothouse", "audiences": ["a"]}"#, "join tokens"),
        (r#"{"issuer": "somebody", "audiences": ["a"]}"#, "issuer, as no jwksUri is given, is no http"),
        (r#"{"issuer": "somebody", "audiences": ["a"], "jwksUri": "ftp://x"}"#, "jwksUri is no http"),
        (r#"{"issuer": "somebody", "audiences": ["a"], "jwks": "{}"}"#, "keys are no list"),
        (
            r#"{"issuer": "somebody", "audiences": ["a"], "jwks": "{\"keys\": [{\"kty\": \"oct\"}]}"}"#,
            "none of its keys",
        ),
        (r#"{"issuer": 1}"#, "expected a string"),
    ] {
        let found = of(text);
        assert!(found.starts_with("JWT_RULE: ") && found.contains(reason), "{text}: {found}");
    }
    let signer = Signer::new("a");
    // Istio's own spelling of the field, and keys within the rule.
    let by_name = r#"{"issuer": "foo", "jwks_uri": "https://id.test/keys", "audiences": ["aud1", "aud2"]}"#;
    assert_eq!(IssuerRule::parse(by_name).unwrap().location(), Some(&KeyLocation::Uri("https://id.test/keys".into())));
    let inline = json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks": set(&[signer.jwk()])}).to_string();
    let tokens = IssuedTokens::of(IssuerRule::parse(&inline).unwrap());
    assert!(tokens.rule().location().is_none() && tokens.verify(&signer.token(|_| ()), now()).is_ok());
}
