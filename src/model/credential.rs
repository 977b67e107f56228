//! Names of credentials: the meaning of `credentialName`, and the SDS resource names derived from it (Istio's `credentials`
//! package).
//!
//! A name determines the store of the material and the access rule for proxies. This file reads no material.

use std::sync::Arc;

/// Suffix of the name of a secret that holds only CA certificates.
pub const CA_SUFFIX: &str = "-cacert";

/// `builtin://`: the workload's own certificate.
pub const BUILTIN: &str = "builtin://";

const KUBERNETES: &str = "kubernetes://";
const KUBERNETES_GATEWAY: &str = "kubernetes-gateway://";
const CONFIG_MAP: &str = "configmap://";
const INVALID: &str = "invalid://";

/// The store of a credential and its access rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CredentialKind {
    /// `kubernetes://[NAMESPACE/]NAME`: a Secret in the proxy's namespace.
    Secret,
    /// `kubernetes-gateway://NAMESPACE/NAME`: a Secret that a gateway's configuration refers to.
    GatewaySecret,
    /// `configmap://NAMESPACE/NAME`: CA certificates in a ConfigMap.
    ConfigMap,
    /// `invalid://`: never valid, so that a broken reference cannot fall back to another credential.
    Invalid,
}

/// A parsed SDS resource name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Credential {
    /// Store and access rule.
    pub kind: CredentialKind,
    /// Namespace of the object; the proxy's where the resource name has none.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
    /// The resource name as requested.
    pub resource_name: Arc<str>,
}

impl Credential {
    /// Parses a resource name; `None` when it names no credential that the control plane serves.
    #[must_use]
    pub fn parse(resource_name: &str, proxy_namespace: &str) -> Option<Self> {
        let of = |kind, namespace: &str, name: &str| Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            resource_name: resource_name.into(),
        };
        let qualified = |kind, rest: &str| {
            let mut parts = rest.split('/');
            let (namespace, name) = (parts.next()?, parts.next()?);
            (!namespace.is_empty() && !name.is_empty()).then(|| of(kind, namespace, name))
        };
        if let Some(rest) = resource_name.strip_prefix(KUBERNETES) {
            let mut parts = rest.split('/');
            let first = parts.next().unwrap_or_default();
            return Some(match parts.next() {
                Some(name) => of(CredentialKind::Secret, first, name),
                None => of(CredentialKind::Secret, proxy_namespace, first),
            });
        }
        if let Some(rest) = resource_name.strip_prefix(CONFIG_MAP) {
            return qualified(CredentialKind::ConfigMap, rest);
        }
        if let Some(rest) = resource_name.strip_prefix(KUBERNETES_GATEWAY) {
            return qualified(CredentialKind::GatewaySecret, rest);
        }
        resource_name.starts_with(INVALID).then(|| of(CredentialKind::Invalid, "", ""))
    }

    /// Whether the resource holds CA certificates only.
    #[must_use]
    pub fn is_ca_only(&self) -> bool {
        self.kind == CredentialKind::ConfigMap || self.name.ends_with(CA_SUFFIX)
    }
}

/// The SDS resource name of a `credentialName` (Istio's `ToResourceName`).
#[must_use]
pub fn resource_name(credential_name: &str) -> String {
    if credential_name.starts_with(BUILTIN) {
        return "default".to_string();
    }
    if credential_name.starts_with(INVALID) {
        return INVALID.to_string();
    }
    if [CONFIG_MAP, KUBERNETES, KUBERNETES_GATEWAY].iter().any(|p| credential_name.starts_with(p)) {
        return credential_name.to_string();
    }
    format!("{KUBERNETES}{credential_name}")
}

/// Whether the `credentialName` refers to a Gateway API Secret (`kubernetes-gateway://`).
#[must_use]
pub fn is_gateway_secret(credential_name: &str) -> bool {
    credential_name.starts_with(KUBERNETES_GATEWAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        let own = Credential::parse(&resource_name("web"), "edge").unwrap();
        assert_eq!((&*own.namespace, &*own.name, own.kind), ("edge", "web", CredentialKind::Secret));
        let other = Credential::parse("kubernetes://istio-system/web-cacert", "edge").unwrap();
        assert_eq!((&*other.namespace, other.is_ca_only()), ("istio-system", true));
        assert_eq!(Credential::parse("kubernetes-gateway://web", "edge"), None);
        assert_eq!(Credential::parse("configmap:///x", "edge"), None);
        assert_eq!(Credential::parse("default", "edge"), None);
        assert_eq!(resource_name("builtin://"), "default");
    }
}
