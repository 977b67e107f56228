//! Objects as documents that may be shown: secrets blanked.

use serde_json::Value;

use crate::{
    model::{Config, Kind},
    store::document,
};

/// The text in place of secret data.
pub(super) const REDACTED: &str = "[redacted]";

/// The annotation in which `kubectl apply` keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object as it would be written, without secret data; on a fault its key and the reason.
pub(super) fn shown(config: &Config) -> Value {
    let mut document = match document(config) {
        Ok(document) => document,
        Err(error) => serde_json::json!({ "key": config.key().to_string(), "error": error.to_string() }),
    };
    if config.kind() == Kind::Secret {
        for field in ["data", "stringData"] {
            if let Some(Value::Object(data)) = document.get_mut(field) {
                data.values_mut().for_each(|v| *v = Value::from(REDACTED));
            }
        }
        if let Some(copy) = document.pointer_mut("/metadata/annotations").and_then(|a| a.get_mut(LAST_APPLIED)) {
            *copy = Value::from(REDACTED);
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Origin, decode};

    #[test]
    fn data_of_secrets_is_never_shown() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"tls.key": "aHVzaA=="}, "stringData": {"key": "hush"},
            "metadata": {"name": "cert", "namespace": "edge", "annotations": {LAST_APPLIED: "{\"data\":\"aHVzaA==\"}"}},
        });
        let text = shown(&decode::from_value(&secret, Origin::default()).unwrap()).to_string();
        assert!(text.contains("cert") && !text.contains("hush") && !text.contains("aHVzaA"), "{text}");
    }
}
