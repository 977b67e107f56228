//! Tokens of an issuer outside of any cluster: JSON Web Tokens whose keys are public (Istio's `JWT_RULE`, OIDC).
//!
//! A token is believed if a key of the issuer signed it, it is meant for one of the rule's audiences, it has not expired, and
//! its subject is a service account. The algorithm is one that the key allows, never one that the token alone names: a public
//! key is no secret of HMAC, and `none` is no algorithm. Keys are fetched elsewhere; a token of an unknown key has them fetched
//! anew, at most every few seconds.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwapOption;
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

use super::{join_token, jwt};
use crate::{
    model::key_set::{KeyLocation, KeyServer},
    proto::{self, istio::security::v1beta1 as security},
};

/// Keys of a set that are looked at.
const MAX_KEYS: usize = 64;
/// Keys of unknown tokens have the key set fetched anew, but not more often than this.
const LEAST_REFETCH: Duration = Duration::from_secs(10);
/// A token may be used so long before its time: clocks differ.
const LEEWAY: f64 = 300.0;
/// The prefix of the subjects of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A rule that tokens cannot be judged by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("JWT_RULE: {0}")]
pub struct RuleError(String);

/// The issuer of tokens, their audiences, and the place of the keys.
#[derive(Debug, Clone)]
pub struct IssuerRule {
    issuer: String,
    audiences: Vec<String>,
    /// Keys that the rule itself holds.
    inline: Option<Arc<[Key]>>,
    /// Where the others are to be had.
    location: Option<KeyLocation>,
}

impl IssuerRule {
    /// Reads the JSON of a `JWTRule`, as Istio's variable holds it.
    ///
    /// # Errors
    /// [`RuleError`] when no token could ever be judged by it.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let wrong = |reason: &str| RuleError(reason.to_string());
        let value: Value = serde_json::from_str(text).map_err(|e| RuleError(format!("not JSON: {e}")))?;
        let rule: security::JwtRule = proto::from_json(&value, false).map_err(|e| RuleError(e.to_string()))?;
        if rule.issuer.is_empty() {
            return Err(wrong("issuer is empty"));
        }
        if rule.issuer == join_token::ISSUER {
            return Err(wrong("this issuer is the one of join tokens"));
        }
        if rule.audiences.iter().all(String::is_empty) {
            return Err(wrong("audiences is empty: no token would be accepted"));
        }
        let location = KeyLocation::of(&rule);
        if let Some(location) = &location
            && KeyServer::of(location.as_str()).is_none()
        {
            let place = if rule.jwks_uri.is_empty() { "issuer, as no jwksUri is given," } else { "jwksUri" };
            return Err(RuleError(format!("{place} is no http or https URI")));
        }
        let inline = match location {
            Some(_) => None,
            None => Some(keys(&rule.jwks).map_err(|e| RuleError(format!("jwks: {e}")))?),
        };
        let audiences = rule.audiences.into_iter().filter(|audience| !audience.is_empty()).collect();
        Ok(Self { issuer: rule.issuer, audiences, inline, location })
    }

    /// Where the keys are to be fetched; `None` where the rule holds them.
    #[must_use]
    pub const fn location(&self) -> Option<&KeyLocation> {
        self.location.as_ref()
    }
}

/// A public key, and the algorithms that a token signed with it may name.
#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The keys of a set that can verify tokens. Others, such as those of unknown types and secrets, are passed over.
fn keys(text: &str) -> Result<Arc<[Key]>, String> {
    let set: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let listed = set.get("keys").and_then(Value::as_array).ok_or("keys are no list")?;
    let keys: Arc<[Key]> = listed.iter().take(MAX_KEYS).filter_map(key).collect();
    if keys.is_empty() { Err("none of its keys can verify a token".to_string()) } else { Ok(keys) }
}

fn key(value: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature) {
        return None;
    }
    let of_type: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => &[Algorithm::ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => &[Algorithm::ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
        _ => return None,
    };
    let named = value.get("alg").and_then(Value::as_str);
    let is_allowed = |algorithm: &&Algorithm| named.is_none_or(|named| format!("{algorithm:?}") == named);
    let algorithms: Vec<Algorithm> = of_type.iter().filter(is_allowed).copied().collect();
    let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| !algorithms.is_empty())?;
    Some(Key { id: jwk.common.key_id, algorithms, key })
}

/// Why a token proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum IssuedError {
    /// The token does not hold.
    #[error("the token is refused: {0}")]
    Refused(&'static str),
    /// No key of the issuer is known yet; the client may come again.
    #[error("the keys of the issuer are not known yet")]
    NoKeys,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audiences,
    exp: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

/// Judges tokens of one issuer; cheap to clone.
#[derive(Clone)]
pub struct IssuedTokens {
    rule: Arc<IssuerRule>,
    keys: Arc<ArcSwapOption<Vec<Key>>>,
    /// Tells the poller of the keys that they are wanted anew.
    refetch: Arc<Notify>,
    refetched: Arc<Mutex<Option<Instant>>>,
}

impl std::fmt::Debug for IssuedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedTokens").field("issuer", &self.rule.issuer).finish_non_exhaustive()
    }
}

impl IssuedTokens {
    /// Tokens of this rule. Its keys, where it holds none, are those of the last [`IssuedTokens::set_keys`].
    #[must_use]
    pub fn of(rule: IssuerRule) -> Self {
        let keys = rule.inline.as_ref().map(|keys| Arc::new(keys.to_vec()));
        Self {
            rule: Arc::new(rule),
            keys: Arc::new(ArcSwapOption::new(keys)),
            refetch: Arc::default(),
            refetched: Arc::default(),
        }
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &IssuerRule {
        &self.rule
    }

    /// Notified when the keys are wanted anew.
    #[must_use]
    pub fn refetch(&self) -> Arc<Notify> {
        self.refetch.clone()
    }

    /// Puts the fetched key set in force; `None` when the last good one has outlived its time. A set without a usable key
    /// leaves the last one.
    pub fn set_keys(&self, text: Option<&str>) {
        match text.map(keys) {
            None => self.keys.store(None),
            Some(Ok(keys)) => self.keys.store(Some(Arc::new(keys.to_vec()))),
            Some(Err(error)) => {
                let issuer = self.rule.issuer.as_str();
                tracing::warn!(issuer, error, "the key set of the issuer is of no use; the last good one stays");
            }
        }
    }

    /// The token says of itself that it is of this issuer; its signature was not looked at.
    pub(super) fn are_meant_by(&self, token: &str) -> bool {
        join_token::issuer_of(token).is_some_and(|issuer| issuer == self.rule.issuer)
    }

    /// Namespace and name of the service account whose token this is.
    pub(super) fn verify(&self, token: &str, now: SystemTime) -> Result<(String, String), IssuedError> {
        jwt::install();
        let refused = IssuedError::Refused;
        let Some(keys) = self.keys.load_full() else {
            self.want_keys();
            return Err(IssuedError::NoKeys);
        };
        let header = jsonwebtoken::decode_header(token).map_err(|_| refused("it is malformed"))?;
        if header.crit.is_some() {
            return Err(refused("it has critical parameters that are not understood"));
        }
        let id = header.kid.as_deref();
        let is_of_id = |key: &&Key| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
        let candidates: Vec<&Key> = keys.iter().filter(is_of_id).collect();
        if candidates.is_empty() {
            self.want_keys();
            return Err(refused("its key is none of the issuer's"));
        }
        let fitting: Vec<&&Key> = candidates.iter().filter(|key| key.algorithms.contains(&header.alg)).collect();
        if fitting.is_empty() {
            return Err(refused("its algorithm is none of its key's"));
        }
        let mut validation = Validation::new(header.alg);
        // The claims are looked at below, at the caller's time.
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        validation.set_required_spec_claims::<&str>(&[]);
        for key in fitting {
            match jsonwebtoken::decode::<Claims>(token, &key.key, &validation) {
                Ok(data) => return self.account(data.claims, now),
                Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Json(_)) => {
                    return Err(refused("iss, sub, aud or exp is missing or of another form"));
                }
                Err(_) => return Err(refused("it is malformed")),
            }
        }
        // A key that was replaced without another id.
        self.want_keys();
        Err(refused("no key of the issuer signed it"))
    }

    fn account(&self, claims: Claims, now: SystemTime) -> Result<(String, String), IssuedError> {
        let refused = |reason| Err(IssuedError::Refused(reason));
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        if claims.iss != self.rule.issuer {
            return refused("it is of another issuer");
        }
        if claims.exp <= now {
            return refused("it has expired");
        }
        if claims.nbf.is_some_and(|begin| begin > now + LEEWAY) {
            return refused("its time has not come");
        }
        let is_ours = |audience: &String| self.rule.audiences.contains(audience);
        let is_meant = match &claims.aud {
            Audiences::One(audience) => is_ours(audience),
            Audiences::Several(audiences) => audiences.iter().any(is_ours),
        };
        if !is_meant {
            return refused("it is meant for another audience");
        }
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        };
        match claims.sub.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':')) {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok((namespace.to_string(), name.to_string()))
            }
            _ => refused("its subject is not system:serviceaccount:NAMESPACE:NAME"),
        }
    }

    /// Has the keys fetched anew, unless they were a moment ago.
    fn want_keys(&self) {
        let mut last = self.refetched.lock();
        if last.is_none_or(|at| at.elapsed() >= LEAST_REFETCH) {
            *last = Some(Instant::now());
            self.refetch.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
