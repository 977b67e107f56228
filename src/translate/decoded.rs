//! Objects whose content is JSON, decoded for a translation. An object that does not decode is reported and left out.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::draft::Output;
use crate::model::{Config, Spec};

/// An object with its decoded content.
#[derive(Debug)]
pub struct Object<T> {
    /// The object as read.
    pub config: Arc<Config>,
    /// The decoded content.
    pub spec: T,
}

impl<T> Object<T> {
    /// Namespace of the object.
    pub fn namespace(&self) -> &str {
        &self.config.meta.namespace
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.config.meta.name
    }

    /// Generation of the object's spec.
    pub fn generation(&self) -> i64 {
        self.config.meta.generation
    }
}

/// Decodes the objects of the main cluster; reports those that do not decode.
pub fn decoded<T: DeserializeOwned + Default>(list: &[Arc<Config>], output: &mut Output) -> Vec<Object<T>> {
    let mut all = Vec::with_capacity(list.len());
    for config in list.iter().filter(|c| c.is_of_main_cluster()) {
        let Spec::Raw(_, document) = &config.spec else { continue };
        let decoded = match document.get("spec") {
            None | Some(Value::Null) => Ok(T::default()),
            Some(spec) => serde_path_to_error::deserialize(spec),
        };
        match decoded {
            Ok(spec) => all.push(Object { config: config.clone(), spec }),
            Err(e) => output.report(config.key(), format!("spec.{}: {}", e.path(), e.inner())),
        }
    }
    all
}

/// Deserializes a field whose `null` means the default, as its absence does.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}
