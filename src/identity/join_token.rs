//! Join tokens: the first proof of identity of a machine outside of any cluster. JWTs that a key of the state folder signs.
//!
//! `pilothouse token create` writes one for a namespace and service account; the server believes it until it expires or is
//! revoked. Key and revocations are files of the folder, so that both processes see the same:
//!
//! | file | content |
//! |---|---|
//! | `identity/join-key` | 32 random bytes, readable by its owner only |
//! | `identity/revoked-tokens` | ids of revoked tokens, one in a line |

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use super::{files, jwt};

/// The issuer of join tokens.
pub const ISSUER: &str = "pilothouse";
/// The audience of tokens for the control plane, as Istio's.
pub const AUDIENCE: &str = "istio-ca";
/// Bytes of a token, several times those that a join token has.
pub const MAX_TOKEN: usize = 16 << 10;
/// Bytes of the file of revoked tokens.
const MAX_REVOKED: u64 = 4 << 20;

/// A reason that a token is not accepted, or cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A file of the state folder cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// The key is damaged.
    #[error("{0}: not a key of 32 bytes")]
    Key(PathBuf),
    /// The token is malformed, expired, of another issuer or audience, or signed by another key.
    #[error("the join token is refused: {0}")]
    Refused(String),
    /// The token was revoked.
    #[error("the join token {0} is revoked")]
    Revoked(String),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The issuer, which is always this program.
    iss: String,
    /// The audience: the secure listener.
    aud: String,
    /// Id, by which it is revoked.
    pub jti: String,
    /// Namespace of the workload.
    pub namespace: String,
    /// Service account of the workload.
    pub service_account: String,
    /// When it was made, in seconds since 1970.
    iat: u64,
    /// When it expires, in seconds since 1970.
    pub exp: u64,
}

/// Digest of a key of join tokens.
type KeyDigest = [u8; 32];

/// The conditions by which a join token goes on to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinProof {
    /// Id of the token.
    id: String,
    /// The key that signed it.
    key: KeyDigest,
}

/// The files as they stand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    key: Option<KeyDigest>,
    revoked: BTreeSet<String>,
}

impl Standing {
    /// Whether a token holds by them.
    pub(super) fn holds(&self, proof: &JoinProof) -> bool {
        self.key == Some(proof.key) && !self.revoked.contains(&proof.id)
    }
}

/// The issuer that a token names; nothing of it was verified.
pub(super) fn issuer_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        iss: String,
    }
    jsonwebtoken::dangerous::insecure_decode::<Issuer>(token).ok().map(|data| data.claims.iss)
}

/// The moment at which a token of any issuer says that it expires; nothing of it was verified.
#[must_use]
pub fn expiry_of(token: &str) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Expiry {
        exp: f64,
    }
    let exp = jsonwebtoken::dangerous::insecure_decode::<Expiry>(token).ok()?.claims.exp;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(exp).ok()?)
}

/// The key and the revocations of a state folder.
#[derive(Debug, Clone)]
pub struct JoinTokens {
    folder: PathBuf,
}

impl JoinTokens {
    /// The tokens of a state folder.
    #[must_use]
    pub fn of(state_folder: &Path) -> Self {
        Self { folder: state_folder.join(files::FOLDER) }
    }

    fn key_path(&self) -> PathBuf {
        self.folder.join("join-key")
    }

    fn revoked_path(&self) -> PathBuf {
        self.folder.join("revoked-tokens")
    }

    /// The key; `None` when no token was ever made.
    fn key(&self) -> Result<Option<Vec<u8>>, TokenError> {
        let path = self.key_path();
        match fs::read(&path) {
            Ok(key) if key.len() == 32 => Ok(Some(key)),
            Ok(_) => Err(TokenError::Key(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TokenError::File(path, error)),
        }
    }

    fn key_or_new(&self) -> Result<Vec<u8>, TokenError> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let mut key = vec![0; 32];
        SystemRandom::new().fill(&mut key).map_err(|_| TokenError::Random)?;
        let path = self.key_path();
        match files::write_new(&path, &key) {
            Ok(()) => Ok(key),
            // Another process was first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.key()?.ok_or(TokenError::File(path, error))
            }
            Err(error) => Err(TokenError::File(path, error)),
        }
    }

    /// The token says of itself that it is a join token; its signature was not looked at.
    #[must_use]
    pub fn is_meant_by(token: &str) -> bool {
        issuer_of(token).is_some_and(|issuer| issuer == ISSUER)
    }

    /// Makes a token.
    ///
    /// # Errors
    /// [`TokenError`] when the key cannot be read or made.
    pub fn create(
        &self,
        namespace: &str,
        service_account: &str,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<(String, Claims), TokenError> {
        jwt::install();
        let key = self.key_or_new()?;
        let mut id = [0u8; 8];
        SystemRandom::new().fill(&mut id).map_err(|_| TokenError::Random)?;
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let claims = Claims {
            iss: ISSUER.to_string(),
            aud: AUDIENCE.to_string(),
            jti: format!("{:016x}", u64::from_be_bytes(id)),
            namespace: namespace.to_string(),
            service_account: service_account.to_string(),
            iat: seconds(now),
            exp: seconds(now).saturating_add(lifetime.as_secs()),
        };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(&key));
        Ok((token.map_err(|e| TokenError::Refused(e.to_string()))?, claims))
    }

    /// The claims of a token that is in force at this time.
    ///
    /// # Errors
    /// [`TokenError`] when it is not.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Claims, TokenError> {
        jwt::install();
        if token.len() > MAX_TOKEN {
            return Err(TokenError::Refused(format!("it has more than {MAX_TOKEN} bytes")));
        }
        let key = self.key()?.ok_or_else(|| TokenError::Refused("no join token was ever made".to_string()))?;
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // The time is the caller's, so the expiry is looked at here.
        validation.validate_exp = false;
        let data = jsonwebtoken::decode::<Claims>(token, &DecodingKey::from_secret(&key), &validation)
            .map_err(|e| TokenError::Refused(e.to_string()))?;
        let claims = data.claims;
        if SystemTime::UNIX_EPOCH + Duration::from_secs(claims.exp.min(u64::from(u32::MAX) * 100)) <= now {
            return Err(TokenError::Refused("it has expired".to_string()));
        }
        if self.revoked()?.contains(&claims.jti) {
            return Err(TokenError::Revoked(claims.jti));
        }
        Ok(claims)
    }

    fn revoked(&self) -> Result<BTreeSet<String>, TokenError> {
        let path = self.revoked_path();
        match fs::metadata(&path).and_then(|m| {
            if m.len() > MAX_REVOKED {
                return Err(io::Error::other(format!("more than {MAX_REVOKED} bytes")));
            }
            fs::read_to_string(&path)
        }) {
            Ok(text) => Ok(text.lines().map(|line| line.trim().to_string()).filter(|id| !id.is_empty()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            // A list that cannot be read must not let a revoked token in.
            Err(error) => Err(TokenError::File(path, error)),
        }
    }

    /// The files as they stand.
    pub(super) fn standing(&self) -> Result<Standing, TokenError> {
        let key = self.key()?.map(|key| Sha256::digest(key).into());
        Ok(Standing { key, revoked: self.revoked()? })
    }

    /// As [`JoinTokens::verify`], with the conditions that the token goes on to hold by.
    pub(super) fn prove(&self, token: &str, now: SystemTime) -> Result<(Claims, JoinProof), TokenError> {
        let claims = self.verify(token, now)?;
        let key = self.standing()?.key.ok_or_else(|| TokenError::Refused("its key is gone".to_string()))?;
        let proof = JoinProof { id: claims.jti.clone(), key };
        Ok((claims, proof))
    }

    /// Revokes the token of this id; false when it was revoked before.
    ///
    /// # Errors
    /// [`TokenError::File`] when the list cannot be written.
    pub fn revoke(&self, id: &str) -> Result<bool, TokenError> {
        let mut revoked = self.revoked()?;
        if !revoked.insert(id.to_string()) {
            return Ok(false);
        }
        let text = revoked.into_iter().map(|id| id + "\n").collect::<String>();
        let path = self.revoked_path();
        files::replace(&path, text.as_bytes()).map_err(|e| TokenError::File(path, e))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn a_token_is_believed_until_it_expires_or_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = JoinTokens::of(folder.path());
        assert!(tokens.verify("x", now()).is_err(), "before the first there is no key");
        let (token, made) = tokens.create("shop", "cart", HOUR, now()).unwrap();
        let claims = tokens.verify(&token, now()).unwrap();
        assert_eq!((&*claims.namespace, &*claims.service_account), ("shop", "cart"));
        assert_eq!(claims, made);
        assert!(tokens.verify(&token, now() + HOUR).unwrap_err().to_string().contains("expired"));
        let (other, _) = tokens.create("shop", "cart", HOUR, now()).unwrap();
        assert!(tokens.revoke(&claims.jti).unwrap() && !tokens.revoke(&claims.jti).unwrap());
        assert!(matches!(tokens.verify(&token, now()), Err(TokenError::Revoked(id)) if id == claims.jti));
        assert!(tokens.verify(&other, now()).is_ok(), "another token of the same workload stays");
    }

    #[test]
    fn forged_tokens_are_refused() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (tokens, foreign) = (JoinTokens::of(folder.path()), JoinTokens::of(other.path()));
        let (token, _) = tokens.create("shop", "cart", HOUR, now()).unwrap();
        let (of_other_key, _) = foreign.create("shop", "cart", HOUR, now()).unwrap();
        let part = |n: usize| token.split('.').nth(n).unwrap();
        let unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
        for forged in [
            of_other_key.clone(),
            format!("{unsigned}.{}.", part(1)),
            format!("{}.{}.{}", part(0), of_other_key.split('.').nth(1).unwrap(), part(2)),
            format!("{}.{}", part(0), part(1)),
            String::new(),
            "a".repeat(MAX_TOKEN + 1),
        ] {
            assert!(tokens.verify(&forged, now()).is_err(), "{forged}");
        }
    }

    #[test]
    fn an_unreadable_list_of_revocations_admits_no_client() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = JoinTokens::of(folder.path());
        let (token, _) = tokens.create("shop", "cart", HOUR, now()).unwrap();
        fs::create_dir(tokens.revoked_path()).unwrap();
        assert!(matches!(tokens.verify(&token, now()), Err(TokenError::File(..))));
        fs::remove_dir(tokens.revoked_path()).unwrap();
        fs::write(tokens.key_path(), "short").unwrap();
        assert!(matches!(tokens.verify(&token, now()), Err(TokenError::Key(_))));
        assert!(
            matches!(tokens.create("a", "b", HOUR, now()), Err(TokenError::Key(_))),
            "a damaged key is not replaced"
        );
    }

    #[cfg(unix)]
    #[test]
    fn the_key_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let tokens = JoinTokens::of(folder.path());
        tokens.create("shop", "cart", HOUR, now()).unwrap();
        assert_eq!(fs::metadata(tokens.key_path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
