//! The certificates of workloads without an agent: which identities are connected, when each certificate is due, and the set in
//! force.
//!
//! A certificate is issued when the first client of an identity connects, renewed around half of its life, and dropped some
//! time after the last client is gone. Renewals are spread: so many at a time, each at a moment of its own.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use ring::rand::{SecureRandom, SystemRandom};

use super::{
    authority::{Authority, IssueError},
    holders::Holders,
};
use crate::model::{Identity, WorkloadCertificate, WorkloadCertificates};

/// Certificates that are issued in one go.
const BATCH: usize = 50;

struct Entry {
    certificate: Arc<WorkloadCertificate>,
    renew_at: SystemTime,
    /// The authority that issued it.
    issuer: Arc<Authority>,
}

/// The certificates that were issued.
#[derive(Default)]
pub(super) struct Workloads {
    entries: BTreeMap<Identity, Entry>,
    roots: String,
    revoked: String,
}

/// The outcome of a look.
pub(super) struct Looked {
    /// The set, where it is another one than before.
    pub(super) changed: Option<Arc<WorkloadCertificates>>,
    /// More are due at once.
    pub(super) more: bool,
    /// The first failure.
    pub(super) failed: Option<IssueError>,
}

impl Workloads {
    /// Issues certificates that are missing, renews some of those that are due, and drops those without clients.
    pub(super) fn look(
        &mut self,
        holders: &Holders,
        authority: &Arc<Authority>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Looked {
        let current = holders.current(now);
        let before = self.entries.len();
        self.entries.retain(|identity, _| current.binary_search(identity).is_ok());
        let mut changed = before != self.entries.len() || self.roots != authority.roots();
        changed |= self.revoked != authority.revoked();
        let is_missing = |identity: &&Identity| !self.entries.contains_key(*identity);
        let mut due: Vec<Identity> = current.iter().filter(is_missing).cloned().collect();
        let missing = due.len();
        let is_due = |entry: &Entry| entry.renew_at <= now || !Arc::ptr_eq(&entry.issuer, authority);
        due.extend(self.entries.iter().filter(|(_, entry)| is_due(entry)).map(|(identity, _)| identity.clone()));
        let mut failed = None;
        for identity in due.iter().take(BATCH) {
            match authority.issue(identity, lifetime, now) {
                Ok(issued) => {
                    let (certificate, key) = (issued.certificate, issued.key);
                    certificate.audit(identity, now);
                    let valid_for = certificate.valid_for(now);
                    let entry = Entry {
                        certificate: Arc::new(WorkloadCertificate { chain: certificate.chain.into(), key: key.into() }),
                        renew_at: now + valid_for.mul_f64(part()),
                        issuer: authority.clone(),
                    };
                    self.entries.insert(identity.clone(), entry);
                    changed = true;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.roots = authority.roots().to_string();
        self.revoked = authority.revoked().to_string();
        let set = || WorkloadCertificates {
            roots: self.roots.clone().into(),
            revoked: self.revoked.clone().into(),
            by_identity: self.entries.iter().map(|(id, entry)| (id.clone(), entry.certificate.clone())).collect(),
        };
        Looked { changed: changed.then(|| Arc::new(set())), more: missing > BATCH && failed.is_none(), failed }
    }
}

/// The part of its life after which a certificate is renewed: 0.4 to 0.6.
pub(super) fn part() -> f64 {
    let mut byte = [128u8];
    // Without random numbers all are renewed at half.
    let _ = SystemRandom::new().fill(&mut byte);
    0.4 + f64::from(byte[0]) / 255.0 * 0.2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::authority::new_root;

    const DAY: Duration = Duration::from_secs(86_400);

    fn authority() -> Arc<Authority> {
        let now = SystemTime::now();
        Arc::new(Authority::new(&new_root("td", now, 100 * DAY).unwrap(), now).unwrap())
    }

    fn identity(n: usize) -> Identity {
        Identity::parse(&format!("spiffe://td/ns/n{n:03}/sa/a")).unwrap()
    }

    #[test]
    fn a_certificate_lives_with_its_clients_and_is_renewed_around_half() {
        let (holders, authority, mut workloads) = (Arc::new(Holders::default()), authority(), Workloads::default());
        let now = SystemTime::now();
        let hold = [holders.hold(&identity(1)), holders.hold(&identity(1))];
        let first = workloads.look(&holders, &authority, DAY, now).changed.unwrap();
        assert_eq!(first.by_identity.len(), 1);
        assert_eq!(&first.roots[..], authority.roots().as_bytes());
        assert!(workloads.look(&holders, &authority, DAY, now).changed.is_none(), "nothing is due");
        assert!(workloads.look(&holders, &authority, DAY, now + DAY.mul_f64(0.39)).changed.is_none());
        let later = now + DAY.mul_f64(0.61);
        let renewed = workloads.look(&holders, &authority, DAY, later).changed.unwrap();
        assert_ne!(renewed.by_identity, first.by_identity);
        drop(hold);
        let soon = workloads.look(&holders, &authority, DAY, SystemTime::now());
        assert!(soon.changed.is_none(), "kept for clients that come back");
        let gone = workloads.look(&holders, &authority, DAY, now + DAY).changed.unwrap();
        assert!(gone.by_identity.is_empty() && workloads.entries.is_empty());
    }

    #[test]
    fn a_fleet_is_served_in_batches_and_a_new_authority_replaces_all() {
        let (holders, one, mut workloads) = (Arc::new(Holders::default()), authority(), Workloads::default());
        let now = SystemTime::now();
        let _held: Vec<_> = (0..120).map(|n| holders.hold(&identity(n))).collect();
        let counts: Vec<(usize, bool)> = (0..3)
            .map(|_| {
                let looked = workloads.look(&holders, &one, DAY, now);
                (looked.changed.unwrap().by_identity.len(), looked.more)
            })
            .collect();
        assert_eq!(counts, [(50, true), (100, true), (120, false)]);
        let two = authority();
        let looked = workloads.look(&holders, &two, DAY, now);
        assert_eq!(&looked.changed.unwrap().roots[..], two.roots().as_bytes(), "the roots are told at once");
        let of_two = workloads.entries.values().filter(|entry| Arc::ptr_eq(&entry.issuer, &two));
        assert_eq!(of_two.count(), BATCH, "one look issues no more, whatever is due");
        for _ in 0..2 {
            workloads.look(&holders, &two, DAY, now);
        }
        assert!(workloads.entries.values().all(|entry| Arc::ptr_eq(&entry.issuer, &two)));
    }

    #[test]
    fn renewals_of_a_fleet_that_came_at_once_are_spread_over_a_fifth_of_its_life() {
        const FLEET: usize = 300;
        let (holders, authority, mut workloads) = (Arc::new(Holders::default()), authority(), Workloads::default());
        let now = SystemTime::now();
        let _held: Vec<_> = (0..FLEET).map(|n| holders.hold(&identity(n))).collect();
        while workloads.look(&holders, &authority, DAY, now).more {}
        assert_eq!(workloads.entries.len(), FLEET);
        // Each hundredth of the life, from 0.40 on.
        let mut hundredths = [0usize; 21];
        for entry in workloads.entries.values() {
            let part = entry.renew_at.duration_since(now).unwrap().as_secs_f64() / DAY.as_secs_f64();
            hundredths[((part - 0.4) * 100.0 + 1e-3) as usize] += 1;
        }
        assert!(hundredths.iter().all(|count| *count <= FLEET * 15 / 100), "{hundredths:?}");
        assert!(hundredths[..2].iter().any(|n| *n > 0) && hundredths[18..].iter().any(|n| *n > 0), "{hundredths:?}");
    }

    #[test]
    fn an_authority_that_has_expired_issues_nothing_and_says_so() {
        let (holders, authority, mut workloads) = (Arc::new(Holders::default()), authority(), Workloads::default());
        let _hold = holders.hold(&identity(1));
        let looked = workloads.look(&holders, &authority, DAY, SystemTime::now() + 200 * DAY);
        assert!(matches!(looked.failed, Some(IssueError::Expired)));
    }
}
