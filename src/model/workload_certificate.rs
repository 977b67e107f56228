//! Certificates that the control plane issued for workloads whose proxies have no agent, by identity.
//!
//! They are served to the clients that proved the identity and to no other. Private keys are in memory only.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;

use super::Identity;

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkloadCertificate {
    /// The certificate and the chain above it.
    pub chain: Bytes,
    /// The private key.
    pub key: Bytes,
}

impl fmt::Debug for WorkloadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadCertificate").finish_non_exhaustive()
    }
}

/// The certificates in force, and the roots of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadCertificates {
    /// The roots that workloads trust, in PEM.
    pub roots: Bytes,
    /// Lists of revoked certificates, in PEM; empty where there are none.
    pub revoked: Bytes,
    /// One for each identity whose clients are connected.
    pub by_identity: BTreeMap<Identity, Arc<WorkloadCertificate>>,
}

impl WorkloadCertificates {
    /// Whether the same certificates are trusted.
    #[must_use]
    pub fn trusts_as(&self, other: &Self) -> bool {
        self.roots == other.roots && self.revoked == other.revoked
    }

    /// Identities whose certificate, or whose roots, differ.
    #[must_use]
    pub fn differing(&self, other: &Self) -> Vec<Identity> {
        let all =
            self.by_identity.keys().chain(other.by_identity.keys().filter(|id| !self.by_identity.contains_key(id)));
        let same = |id: &Identity| {
            self.trusts_as(other)
                && match (self.by_identity.get(id), other.by_identity.get(id)) {
                    (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
                    (one, two) => one.is_none() && two.is_none(),
                }
        };
        all.filter(|id| !same(id)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificates(roots: &str, of: &[(&str, &str)]) -> WorkloadCertificates {
        let one = |(name, chain): &(&str, &str)| {
            let identity = Identity::parse(&format!("spiffe://td/ns/{name}/sa/a")).unwrap();
            let chain = Bytes::copy_from_slice(chain.as_bytes());
            (identity, Arc::new(WorkloadCertificate { chain, key: Bytes::new() }))
        };
        WorkloadCertificates {
            roots: Bytes::copy_from_slice(roots.as_bytes()),
            revoked: Bytes::new(),
            by_identity: of.iter().map(one).collect(),
        }
    }

    #[test]
    fn those_that_are_new_gone_or_renewed_differ() {
        let before = certificates("r", &[("a", "1"), ("b", "1"), ("c", "1")]);
        let now = certificates("r", &[("a", "1"), ("b", "2"), ("d", "1")]);
        let told: Vec<String> = now.differing(&before).iter().map(|id| id.namespace.to_string()).collect();
        assert_eq!(told, ["b", "d", "c"]);
        assert!(now.differing(&now.clone()).is_empty());
        assert_eq!(certificates("s", &[("a", "1")]).differing(&certificates("r", &[("a", "1")])).len(), 1);
    }
}
