//! Key sets (JWKS) that a RequestAuthentication refers to: their addresses, and the keys fetched from there.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::proto::istio::security::v1beta1::JwtRule;

/// Where a key set is to be had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyLocation {
    /// At a URI.
    Uri(Arc<str>),
    /// Where the issuer's OpenID configuration says.
    Issuer(Arc<str>),
}

/// Key sets by location, each a JWKS as its server wrote it.
pub type KeySets = BTreeMap<KeyLocation, Arc<str>>;

/// The scheme, host and port of a key server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyServer {
    /// Whether it is asked over TLS.
    pub tls: bool,
    /// Host name, or IP address without brackets.
    pub host: String,
    /// Port, by the scheme where none is written.
    pub port: u16,
}

impl KeyLocation {
    /// Where the keys of a rule are; `None` for a rule that holds them.
    #[must_use]
    pub fn of(rule: &JwtRule) -> Option<Self> {
        if !rule.jwks.is_empty() {
            return None;
        }
        Some(if rule.jwks_uri.is_empty() {
            Self::Issuer(rule.issuer.as_str().into())
        } else {
            Self::Uri(rule.jwks_uri.as_str().into())
        })
    }

    /// As people name it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Uri(text) | Self::Issuer(text) => text,
        }
    }
}

impl KeyServer {
    /// The server of an `http` or `https` URI.
    #[must_use]
    pub fn of(uri: &str) -> Option<Self> {
        let uri: http::Uri = uri.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_string();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        (!host.is_empty()).then_some(Self { tls, host, port })
    }
}

/// Checks that a text is a key set: an object whose `keys` are a list. Proxies check the keys.
///
/// # Errors
/// The reason it is none.
pub fn check(text: &str) -> Result<(), String> {
    let set: Value = serde_json::from_str(text).map_err(|error| format!("the key set is not JSON: {error}"))?;
    match set.get("keys") {
        Some(Value::Array(_)) => Ok(()),
        Some(_) => Err("keys of the key set are no list".to_string()),
        None => Err("the key set has no keys".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_says_where_its_keys_are() {
        let rule = |jwks: &str, uri: &str| JwtRule {
            issuer: "https://id.test".to_string(),
            jwks: jwks.to_string(),
            jwks_uri: uri.to_string(),
            ..JwtRule::default()
        };
        assert_eq!(KeyLocation::of(&rule("{}", "https://a.test")), None);
        assert_eq!(KeyLocation::of(&rule("", "https://a.test")), Some(KeyLocation::Uri("https://a.test".into())));
        assert_eq!(KeyLocation::of(&rule("", "")), Some(KeyLocation::Issuer("https://id.test".into())));
    }

    #[test]
    fn a_uri_names_its_server() {
        let of = |uri: &str| KeyServer::of(uri).map(|s| (s.tls, s.host, s.port));
        assert_eq!(of("https://a.test/keys"), Some((true, "a.test".to_string(), 443)));
        assert_eq!(of("http://[::1]:8080"), Some((false, "::1".to_string(), 8080)));
        assert_eq!((of("ftp://a.test"), of("/keys"), of("")), (None, None, None));
    }

    #[test]
    fn only_a_list_of_keys_is_a_key_set() {
        assert!(check(r#"{"keys": []}"#).is_ok());
        for text in ["secret", "{}", r#"{"keys": 1}"#, "[]"] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
