//! Private keys and other secret data in JSON documents are blanked, wherever they are.

use serde_json::{Map, Value};

/// The text in place of secret data; the server's pages use the same.
const REDACTED: &str = "[redacted]";

/// Fields of Envoy's messages whose content is secret, in both spellings of protobuf JSON.
const SECRET: [&str; 11] = [
    "privateKey",
    "private_key",
    "password",
    "sessionTicketKeys",
    "session_ticket_keys",
    "tokenSecret",
    "token_secret",
    "hmacSecret",
    "hmac_secret",
    "clientSecret",
    "client_secret",
];

/// Private parts of a JSON Web Key.
const JWK: [&str; 7] = ["d", "dp", "dq", "k", "p", "q", "qi"];

/// Fields whose inner `secret` is secret.
const GENERIC: [&str; 2] = ["genericSecret", "generic_secret"];

/// Blanks secret data in place: fields that Envoy marks as sensitive, and PEM keys in any text.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if is_authorization(fields) {
                fields.insert("value".to_string(), REDACTED.into());
            }
            if fields.contains_key("kty") {
                fields
                    .iter_mut()
                    .filter(|(key, _)| JWK.contains(&key.as_str()))
                    .for_each(|(_, v)| *v = REDACTED.into());
            }
            for (key, value) in fields.iter_mut() {
                let is_header = key.eq_ignore_ascii_case("authorization") && value.is_string();
                let is_source = SECRET.contains(&key.as_str()) && !value.is_null() && !is_reference(value);
                if is_header || is_source {
                    *value = Value::from(REDACTED);
                } else if GENERIC.contains(&key.as_str()) {
                    let secrets = value.as_object_mut().into_iter().flat_map(|inner| inner.iter_mut());
                    secrets.filter(|(key, _)| key.starts_with("secret")).for_each(|(_, v)| *v = REDACTED.into());
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(redact),
        Value::String(text) if holds_key(text) => *value = Value::from(REDACTED),
        _ => {}
    }
}

/// Whether the fields are those of a header that carries a proof, as `{key, value}` or `{name, value}`.
fn is_authorization(fields: &Map<String, Value>) -> bool {
    let named =
        |key: &str| fields.get(key).and_then(Value::as_str).is_some_and(|n| n.eq_ignore_ascii_case("authorization"));
    fields.contains_key("value") && (named("key") || named("name"))
}

/// Whether a source of data names a file, whose content is not in the document.
fn is_reference(value: &Value) -> bool {
    let Some(fields) = value.as_object() else { return false };
    fields.len() == 1 && fields.contains_key("filename")
}

/// Whether a text has a private key in PEM, one in base64 as Secrets and bytes hold it, or one as a JSON Web Key.
pub(super) fn holds_key(text: &str) -> bool {
    const LINES: [&str; 2] = ["PRIVATE KEY-----", "AGE-SECRET-KEY-"];
    if LINES.iter().any(|line| text.contains(line)) {
        return true;
    }
    if text.contains("\"kty\"") {
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        return has("d") || has("k");
    }
    // `-----BEGIN ` in base64, where it starts the text: a key's kind follows within the first line.
    if !text.starts_with("LS0tLS1CRUdJTi") {
        return false;
    }
    use base64::Engine;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text.trim_end());
    decoded.is_ok_and(|bytes| LINES.iter().any(|line| bytes.windows(line.len()).any(|w| w == line.as_bytes())))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_blanked_and_the_rest_stays() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nhush\n-----END EC PRIVATE KEY-----\n";
        let in_base64 = base64::engine::general_purpose::STANDARD.encode(key);
        let mut value = json!({
            "tls_certificate": {"certificate_chain": {"inline_string": "chain"}, "private_key": {"inline_bytes": "hush"}},
            "genericSecret": {"secret": {"inlineString": "hush"}},
            "privateKey": {"filename": "/etc/key.pem"},
            "anywhere": [key, {"data": in_base64}],
            "session_ticket_keys": {"keys": ["hush"]},
            "headers": [{"authorization": "Bearer hush"}, {"name": "Authorization", "value": "Bearer hush"}],
            "jwks": "{\"keys\":[{\"kty\":\"oct\",\"k\":\"hush\"}]}",
            "keys": [{"kty": "EC", "d": "hush", "x": "stays"}],
            "passwordless": "stays",
        });
        redact(&mut value);
        let text = value.to_string();
        assert!(!text.contains("hush") && !text.contains(&in_base64), "{text}");
        assert!(text.contains("chain") && text.contains("/etc/key.pem") && text.contains("stays"), "{text}");
    }
}
