//! Private keys of authorities, in the three forms that tools write.

use rcgen::KeyPair;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use yasna::models::ObjectIdentifier;

use crate::model::pem;

/// A reason that a private key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not PEM, or holds no key.
    #[error("no private key in PEM ({0})")]
    Pem(String),
    /// Its kind is not one that signs certificates here.
    #[error("neither RSA nor ECDSA on P-256 or P-384 nor Ed25519, or malformed")]
    Kind,
}

const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
const EC: &[u64] = &[1, 2, 840, 10_045, 2, 1];
const CURVES: [&[u64]; 2] = [&[1, 2, 840, 10_045, 3, 1, 7], &[1, 3, 132, 0, 34]];

/// The key pair of a private key in PEM: PKCS #8, PKCS #1 (`openssl genrsa`, Istio's Makefiles) or SEC 1 (`openssl ecparam`).
pub(super) fn parse(text: &str) -> Result<KeyPair, KeyError> {
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| KeyError::Pem(pem::fault(&e)))?;
    let read = |pkcs8: Vec<u8>| KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8)).ok();
    let pair = match &key {
        PrivateKeyDer::Pkcs8(key) => read(key.secret_pkcs8_der().to_vec()),
        PrivateKeyDer::Pkcs1(key) => read(pkcs8(RSA, None, key.secret_pkcs1_der())),
        PrivateKeyDer::Sec1(key) => CURVES.iter().find_map(|curve| read(pkcs8(EC, Some(curve), key.secret_sec1_der()))),
        _ => None,
    };
    pair.ok_or(KeyError::Kind)
}

/// A private key in PKCS #8's envelope (RFC 5208).
fn pkcs8(algorithm: &[u64], curve: Option<&[u64]>, key: &[u8]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_sequence(|writer| {
                writer.next().write_oid(&ObjectIdentifier::from_slice(algorithm));
                match curve {
                    Some(curve) => writer.next().write_oid(&ObjectIdentifier::from_slice(curve)),
                    None => writer.next().write_null(),
                }
            });
            writer.next().write_bytes(key);
        });
    })
}
