//! Which kinds a server has, as far as its CRDs are known.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::{ApiResource, GroupVersionKind};

use super::groups::is_custom;
use crate::model::Kind;

/// The CRDs of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Crds {
    /// Not known yet.
    #[default]
    Unknown,
    /// No right to read them: each kind is tried.
    Hidden,
    /// The established ones, each with the version that is read.
    Known(Arc<BTreeMap<Kind, String>>),
}

/// Whether a kind can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Presence {
    /// Not known yet.
    Unknown,
    /// It is there, in this version.
    Present(String),
    /// It may be there, in this version.
    Possible(String),
    /// It is not there.
    Absent,
}

impl Crds {
    pub(super) fn presence(&self, kind: Kind) -> Presence {
        let usual = || kind.versions().first().copied().unwrap_or_default().to_string();
        if !is_custom(kind) {
            return Presence::Present(usual());
        }
        match self {
            Self::Unknown => Presence::Unknown,
            Self::Hidden => Presence::Possible(usual()),
            Self::Known(kinds) => kinds.get(&kind).cloned().map_or(Presence::Absent, Presence::Present),
        }
    }
}

/// The resource type of CRDs.
pub(super) fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ApiResource::from_gvk_with_plural(&gvk, "customresourcedefinitions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_need_no_crd() {
        assert_eq!(Crds::Unknown.presence(Kind::Service), Presence::Present("v1".to_string()));
        assert_eq!(Crds::Unknown.presence(Kind::Sidecar), Presence::Unknown);
        assert_eq!(Crds::Hidden.presence(Kind::Sidecar), Presence::Possible("v1".to_string()));
        assert_eq!(Crds::Known(Arc::default()).presence(Kind::Sidecar), Presence::Absent);
    }
}
