//! The service accounts that may read the Secrets of their namespace, as the workload's own cluster says.
//!
//! Only Secrets of a cluster are asked about: the author of a folder of ours decides alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Identity;

/// A workload that asks for Secrets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretReader {
    /// The identity that it proved.
    pub identity: Identity,
    /// The cluster that its node names (`CLUSTER_ID`), which is the one that is asked, as in Istio; empty for the main one.
    pub cluster: Arc<str>,
}

/// The answers of clusters about workloads that asked for Secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretAccess {
    /// A cluster is asked; without one nothing is denied.
    pub is_asked: bool,
    /// Whether each workload may; one without an answer may not yet.
    pub answers: BTreeMap<SecretReader, bool>,
}

/// The reason that a workload gets no Secret of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRefusal {
    /// The cluster denies it.
    Denied,
    /// The cluster has given no answer yet.
    Unanswered,
}

impl SecretAccess {
    /// Whether this workload may read the Secrets of its namespace.
    ///
    /// # Errors
    /// [`AccessRefusal`] when it may not, or not yet.
    pub fn check(&self, reader: &SecretReader) -> Result<(), AccessRefusal> {
        match self.answers.get(reader) {
            _ if !self.is_asked => Ok(()),
            Some(true) => Ok(()),
            Some(false) => Err(AccessRefusal::Denied),
            None => Err(AccessRefusal::Unanswered),
        }
    }

    /// Identities whose answers differ.
    #[must_use]
    pub fn differing(&self, other: &Self) -> BTreeSet<Identity> {
        let all = self.answers.keys().chain(other.answers.keys().filter(|reader| !self.answers.contains_key(reader)));
        all.filter(|reader| self.check(reader) != other.check(reader)).map(|reader| reader.identity.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cluster_nothing_is_denied_and_with_one_an_answer_is_needed() {
        let of = |text: &str, cluster: &str| SecretReader {
            identity: Identity::parse(text).unwrap(),
            cluster: cluster.into(),
        };
        let readers = ["spiffe://td/ns/a/sa/1", "spiffe://td/ns/a/sa/2", "spiffe://td/ns/a/sa/3"].map(|id| of(id, ""));
        let [one, two, three] = readers;
        assert_eq!(SecretAccess::default().check(&one), Ok(()));
        let answers = BTreeMap::from([(one.clone(), true), (two.clone(), false)]);
        let access = SecretAccess { is_asked: true, answers };
        assert_eq!(access.check(&one), Ok(()));
        assert_eq!(access.check(&two), Err(AccessRefusal::Denied));
        assert_eq!(access.check(&three), Err(AccessRefusal::Unanswered));
        let elsewhere = of("spiffe://td/ns/a/sa/1", "west");
        assert_eq!(access.check(&elsewhere), Err(AccessRefusal::Unanswered), "one cluster does not answer for another");
        let later = SecretAccess { is_asked: true, answers: BTreeMap::from([(one, true), (three.clone(), true)]) };
        assert_eq!(later.differing(&access), BTreeSet::from([two.identity, three.identity]));
    }
}
