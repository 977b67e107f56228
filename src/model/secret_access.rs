//! The service accounts that may read the Secrets of their namespace, as the cluster that holds the Secrets says.
//!
//! Only Secrets of a cluster are asked about: whoever writes a folder of ours decides alone.

use std::collections::BTreeMap;

use super::Identity;

/// What a cluster answered about identities whose clients asked for Secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretAccess {
    /// A cluster is asked; without one nothing is denied.
    pub is_asked: bool,
    /// Whether each identity may; one without an answer may not yet.
    pub answers: BTreeMap<Identity, bool>,
}

/// Why an identity gets no Secret of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRefusal {
    /// The cluster denies it.
    Denied,
    /// The cluster has given no answer yet.
    Unanswered,
}

impl SecretAccess {
    /// Whether this identity may read the Secrets of its namespace.
    ///
    /// # Errors
    /// [`AccessRefusal`] when it may not, or not yet.
    pub fn check(&self, identity: &Identity) -> Result<(), AccessRefusal> {
        match self.answers.get(identity) {
            _ if !self.is_asked => Ok(()),
            Some(true) => Ok(()),
            Some(false) => Err(AccessRefusal::Denied),
            None => Err(AccessRefusal::Unanswered),
        }
    }

    /// Identities whose answers differ.
    #[must_use]
    pub fn differing(&self, other: &Self) -> Vec<Identity> {
        let all = self.answers.keys().chain(other.answers.keys().filter(|id| !self.answers.contains_key(id)));
        all.filter(|id| self.check(id) != other.check(id)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cluster_nothing_is_denied_and_with_one_an_answer_is_needed() {
        let id = |text: &str| Identity::parse(text).unwrap();
        let (one, two, three) = (id("spiffe://td/ns/a/sa/1"), id("spiffe://td/ns/a/sa/2"), id("spiffe://td/ns/a/sa/3"));
        assert_eq!(SecretAccess::default().check(&one), Ok(()));
        let answers = BTreeMap::from([(one.clone(), true), (two.clone(), false)]);
        let access = SecretAccess { is_asked: true, answers };
        assert_eq!(access.check(&one), Ok(()));
        assert_eq!(access.check(&two), Err(AccessRefusal::Denied));
        assert_eq!(access.check(&three), Err(AccessRefusal::Unanswered));
        let later = SecretAccess { is_asked: true, answers: BTreeMap::from([(one, true), (three.clone(), true)]) };
        assert_eq!(later.differing(&access), [three, two]);
    }
}
