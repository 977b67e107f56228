//! Gateway API objects as they are written, decoded leniently: unknown fields are passed over, `null` is the default.
//!
//! What the CRDs enforce is not checked again; values that no CRD would admit are refused with the object's name where they
//! do not decode, and are handled where Istio handles them.

pub mod gateway;
pub mod policy;
pub mod route;

use serde::{Deserialize, Serialize};

pub use crate::translate::decoded::or_default;

/// A reference to a parent of a route, or from a status to an ancestor of a policy.
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

/// A reference to an object, group and kind possibly left to a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}
