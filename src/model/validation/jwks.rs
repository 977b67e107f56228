//! JSON Web Key Sets, validated as far as Istio does: they parse, and they hold public keys only.

use serde_json::Value;

/// Parses a set or a single key; returns the indices of keys with private material.
///
/// # Errors
/// The reason the text is neither.
pub(super) fn private_keys(text: &str) -> Result<Vec<usize>, String> {
    let set: Value = serde_json::from_str(text).map_err(|e| format!("the key set is not JSON: {e}"))?;
    let single = [set.clone()];
    let keys = match set.get("keys") {
        Some(Value::Array(keys)) => keys.as_slice(),
        Some(_) => return Err("keys must be a list".to_string()),
        None => single.as_slice(),
    };
    let mut private = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        if is_private(key).map_err(|e| format!("key {index}: {e}"))? {
            private.push(index);
        }
    }
    Ok(private)
}

fn is_private(key: &Value) -> Result<bool, String> {
    let has = |field: &str| key.get(field).is_some_and(Value::is_string);
    let needed: &[&str] = match key.get("kty").and_then(Value::as_str) {
        Some("RSA") => &["n", "e"],
        Some("EC") => &["crv", "x", "y"],
        Some("OKP") => &["crv", "x"],
        Some("oct") => &["k"],
        Some(other) => return Err(format!("key type {other:?} is not known; use RSA, EC, OKP or oct")),
        None => return Err("kty is missing".to_string()),
    };
    match needed.iter().find(|field| !has(field)) {
        Some(missing) => Err(format!("{missing} is missing")),
        None => Ok(needed == ["k"] || has("d")),
    }
}
