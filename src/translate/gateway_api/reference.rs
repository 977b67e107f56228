//! References between objects: group and kind, and ReferenceGrants.

use std::collections::BTreeSet;

use super::{input::Object, types::gateway::ReferenceGrantSpec};
use crate::model::{Credential, CredentialKind, Kind};

/// Group of Gateway API.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// A kind by group and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// Group; empty for core.
    pub group: String,
    /// Name of the kind.
    pub kind: String,
}

impl GroupKind {
    /// The group and kind of a known kind.
    pub fn of(kind: Kind) -> Self {
        Self { group: kind.group().into(), kind: kind.as_str().into() }
    }

    /// The group and kind as written; absent parts are those of `default`.
    pub fn normalized(group: Option<&str>, kind: Option<&str>, default: Kind) -> Self {
        Self { group: group.unwrap_or(default.group()).into(), kind: kind.unwrap_or(default.as_str()).into() }
    }

    /// Whether it is this kind.
    pub fn is(&self, kind: Kind) -> bool {
        self.group == kind.group() && self.kind == kind.as_str()
    }
}

/// One permission of a ReferenceGrant; without a name it covers all objects.
type Permission = (GroupKind, String, GroupKind, String, Option<String>);

/// All permissions given by ReferenceGrants.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeSet<Permission>);

impl Grants {
    /// Reads the grants; unknown kinds are ignored.
    pub fn of(grants: &[Object<ReferenceGrantSpec>]) -> Self {
        const FROM: [Kind; 6] = [
            Kind::KubernetesGateway,
            Kind::HTTPRoute,
            Kind::GRPCRoute,
            Kind::TLSRoute,
            Kind::TCPRoute,
            Kind::ListenerSet,
        ];
        const TO: [Kind; 5] = [Kind::ConfigMap, Kind::Secret, Kind::Service, Kind::XBackend, Kind::InferencePool];
        let known = |group: &str, kind: &str, of: &[Kind]| {
            let named = GroupKind { group: group.into(), kind: kind.into() };
            of.iter().any(|k| named.is(*k)).then_some(named)
        };
        let mut all = BTreeSet::new();
        for grant in grants {
            for from in &grant.spec.from {
                let Some(kind) = known(&from.group, &from.kind, &FROM) else { continue };
                for to in &grant.spec.to {
                    let Some(target) = known(&to.group, &to.kind, &TO) else { continue };
                    let namespace = grant.namespace().to_string();
                    all.insert((kind.clone(), from.namespace.clone(), target, namespace, to.name.clone()));
                }
            }
        }
        Self(all)
    }

    /// Whether objects of `from` may refer to the object.
    pub fn allow(&self, from: (Kind, &str), to: &GroupKind, namespace: &str, name: &str) -> bool {
        let key = |named: Option<String>| {
            (GroupKind::of(from.0), from.1.to_string(), to.clone(), namespace.to_string(), named)
        };
        self.0.contains(&key(None)) || self.0.contains(&key(Some(name.to_string())))
    }

    /// Whether objects of `from` may refer to the credential.
    pub fn allow_credential(&self, from: (Kind, &str), credential: &Credential) -> bool {
        let kind = match credential.kind {
            CredentialKind::ConfigMap => Kind::ConfigMap,
            CredentialKind::Secret | CredentialKind::GatewaySecret => Kind::Secret,
            CredentialKind::Invalid => return false,
        };
        !self.0.is_empty() && self.allow(from, &GroupKind::of(kind), &credential.namespace, &credential.name)
    }
}
