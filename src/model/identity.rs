//! The authenticated identity of a client: the SPIFFE id of its workload.

use std::{fmt, sync::Arc};

use super::Node;

/// A SPIFFE id of the form `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Identity {
    /// Trust domain of the workload.
    pub trust_domain: Arc<str>,
    /// Namespace of the workload.
    pub namespace: Arc<str>,
    /// Service account of the workload.
    pub service_account: Arc<str>,
}

impl Identity {
    /// The identity that a node claims: its namespace and service account, in the mesh's trust domain.
    #[must_use]
    pub fn claimed(node: &Node, trust_domain: &str) -> Self {
        let account = &node.metadata.service_account;
        Self {
            trust_domain: trust_domain.into(),
            namespace: node.namespace.clone(),
            service_account: if account.is_empty() { "default".into() } else { account.clone() },
        }
    }

    /// Whether each part is one that a trust domain, a namespace or a service account may have.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let is_name = |name: &str| {
            let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            !name.is_empty() && name.bytes().all(is_allowed)
        };
        // A trust domain may be followed by a port, as Istio has it.
        is_name(&self.trust_domain.replace(':', "-")) && is_name(&self.namespace) && is_name(&self.service_account)
    }

    /// Parses a SPIFFE id; `None` when it has another form (Istio's `spiffe.ParseIdentity`).
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        let parts: Vec<&str> = id.strip_prefix("spiffe://")?.split('/').collect();
        let [trust_domain, "ns", namespace, "sa", service_account] = parts.as_slice() else { return None };
        Some(Self {
            trust_domain: (*trust_domain).into(),
            namespace: (*namespace).into(),
            service_account: (*service_account).into(),
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/ns/{}/sa/{}", self.trust_domain, self.namespace, self.service_account)
    }
}
