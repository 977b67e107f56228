//! Requests to write to the aggregate.

use serde_json::{Map, Value};

use crate::model::{Config, document};

/// A JSON merge patch (RFC 7386) of an object's document.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch(Value);

impl Patch {
    /// A merge patch.
    #[must_use]
    pub const fn merge(patch: Value) -> Self {
        Self(patch)
    }

    /// The document of the object with the patch applied.
    pub(super) fn apply(&self, config: &Config) -> Result<Value, String> {
        let mut document = document(config).map_err(|e| e.to_string())?;
        merge(&mut document, &self.0, 0)?;
        Ok(document)
    }
}

fn merge(target: &mut Value, patch: &Value, depth: usize) -> Result<(), String> {
    const DEEPEST: usize = 64;
    if depth > DEEPEST {
        return Err(format!("the patch is nested deeper than {DEEPEST}"));
    }
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else { return Ok(()) };
    for (key, value) in patch {
        if value.is_null() {
            object.shift_remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value, depth + 1)?;
        }
    }
    Ok(())
}
