//! Gateway API objects, decoded leniently: unknown fields are ignored, and `null` means the default.
//!
//! Constraints of the CRDs are not checked again. An object with a value that no CRD would admit is refused by name if it does
//! not decode; otherwise the value is handled as in Istio.

pub mod gateway;
pub mod policy;
pub mod route;

use serde::{Deserialize, Serialize};

pub use crate::translate::decoded::or_default;

/// A reference to the parent of a route, or in a status to the ancestor of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

/// A kind of route that a listener admits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteGroupKind {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub kind: String,
}

/// A reference to an object; group and kind may be defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}
