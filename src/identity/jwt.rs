//! JSON Web Tokens by ring: the signatures that `jsonwebtoken` leaves to its user.
//!
//! Verifies HS256, RS256 to RS512, ES256, ES384 and EdDSA, and signs HS256, which is what join tokens use. The algorithm is the
//! one that the verifier names, never the one that a token names of itself.

use std::sync::Once;

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self, Signer, Verifier},
};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
        UnparsedPublicKey, VerificationAlgorithm,
    },
};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Makes ring the cryptography of `jsonwebtoken` in this process. May be called again.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    // Another provider was installed by the program around us, which is as good.
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

struct Hs256(hmac::Key);

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

enum Key {
    Raw(&'static dyn VerificationAlgorithm, Vec<u8>),
    Rsa(&'static RsaParameters, Vec<u8>, Vec<u8>),
}

struct Public {
    algorithm: Algorithm,
    key: Key,
}

impl Verifier<Vec<u8>> for Public {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            Key::Raw(algorithm, key) => UnparsedPublicKey::new(*algorithm, key).verify(message, signature),
            Key::Rsa(parameters, n, e) => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Public {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

fn unsupported() -> Error {
    Error::from(ErrorKind::InvalidAlgorithm)
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    match algorithm {
        Algorithm::HS256 => Ok(Box::new(Hs256(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())))),
        _ => Err(unsupported()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let rsa = |parameters| -> Result<Key, Error> {
        match key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => Ok(Key::Rsa(parameters, n.clone(), e.clone())),
            DecodingKeyKind::SecretOrDer(_) => Err(Error::from(ErrorKind::InvalidKeyFormat)),
        }
    };
    let raw = |verification| -> Result<Key, Error> { Ok(Key::Raw(verification, key.try_get_as_bytes()?.to_vec())) };
    let key = match algorithm {
        Algorithm::HS256 => {
            return Ok(Box::new(Hs256(hmac::Key::new(hmac::HMAC_SHA256, key.try_get_as_bytes()?))));
        }
        Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256)?,
        Algorithm::RS384 => rsa(&RSA_PKCS1_2048_8192_SHA384)?,
        Algorithm::RS512 => rsa(&RSA_PKCS1_2048_8192_SHA512)?,
        Algorithm::ES256 => raw(&ECDSA_P256_SHA256_FIXED)?,
        Algorithm::ES384 => raw(&ECDSA_P384_SHA384_FIXED)?,
        Algorithm::EdDSA => raw(&ED25519)?,
        _ => return Err(unsupported()),
    };
    Ok(Box::new(Public { algorithm: *algorithm, key }))
}
