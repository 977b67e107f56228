//! Which service accounts may read Secrets: the cluster that holds the Secrets is asked (SubjectAccessReview), about the
//! identities of clients that asked for some.
//!
//! An answer is in force until the next one, which is asked for every minute (Istio keeps its own for as long). While the
//! cluster gives none, the last answer stays; an identity without any gets no Secret of the cluster.

mod actor;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{FutureExt, future::BoxFuture};

pub use self::actor::{SecretAccessActor, SecretAccessHandle};
use crate::{
    model::{Identity, SecretAccess},
    sources::kube::KubeWriter,
};

/// The age at which an answer is asked for again.
const RENEWED: Duration = Duration::from_secs(60);
/// The pause after a failure, of one identity.
const AGAIN: Duration = Duration::from_secs(5);
/// Questions under way.
const AT_ONCE: usize = 16;

/// Asks whether an identity may list the Secrets of its namespace; `Err` when there is no answer.
pub trait AccessReviewer: Send + Sync {
    /// Asks.
    fn may_list_secrets(&self, identity: &Identity) -> BoxFuture<'static, Result<bool, String>>;
}

/// SubjectAccessReview of a cluster.
pub struct ClusterAccess(pub KubeWriter);

impl AccessReviewer for ClusterAccess {
    fn may_list_secrets(&self, identity: &Identity) -> BoxFuture<'static, Result<bool, String>> {
        let (writer, identity) = (self.0.clone(), identity.clone());
        async move {
            let answer = writer.may_list_secrets(&identity.namespace, &identity.service_account).await;
            answer.map_err(|e| e.to_string())
        }
        .boxed()
    }
}

/// Puts answers in force.
pub type AccessPublisher = Arc<dyn Fn(Arc<SecretAccess>) + Send + Sync>;

/// The state of one identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    may: Option<bool>,
    due: SystemTime,
}

/// The answers that there are. Pure.
#[derive(Debug, Default)]
struct Answers {
    of: BTreeMap<Identity, Answer>,
}

impl Answers {
    /// Drops those of identities without clients, and returns some identities to ask about.
    fn due(&mut self, current: &[Identity], now: SystemTime) -> Vec<Identity> {
        self.of.retain(|identity, _| current.binary_search(identity).is_ok());
        let is_due = |identity: &&Identity| self.of.get(*identity).is_none_or(|answer| answer.due <= now);
        current.iter().filter(is_due).take(AT_ONCE).cloned().collect()
    }

    fn note(&mut self, identity: Identity, answer: Option<bool>, now: SystemTime) {
        let before = self.of.get(&identity).and_then(|before| before.may);
        let due = now + if answer.is_some() { RENEWED } else { AGAIN };
        self.of.insert(identity, Answer { may: answer.or(before), due });
    }

    fn in_force(&self) -> SecretAccess {
        let answers = self.of.iter().filter_map(|(identity, answer)| Some((identity.clone(), answer.may?)));
        SecretAccess { is_asked: true, answers: answers.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(n: usize) -> Identity {
        Identity::parse(&format!("spiffe://td/ns/n{n:03}/sa/a")).unwrap()
    }

    #[test]
    fn an_answer_stays_until_the_next_one_and_a_failure_changes_nothing() {
        let (mut answers, now) = (Answers::default(), SystemTime::UNIX_EPOCH);
        let current = [identity(1), identity(2)];
        assert_eq!(answers.due(&current, now), current);
        answers.note(identity(1), Some(true), now);
        answers.note(identity(2), None, now);
        let in_force = answers.in_force();
        assert_eq!(in_force.answers, BTreeMap::from([(identity(1), true)]));
        assert_eq!(answers.due(&current, now + AGAIN), [identity(2)]);
        assert_eq!(answers.due(&current, now + RENEWED), current);
        answers.note(identity(1), None, now + RENEWED);
        assert_eq!(answers.in_force(), in_force, "the cluster is away");
        answers.note(identity(1), Some(false), now + RENEWED);
        assert_eq!(answers.in_force().answers, BTreeMap::from([(identity(1), false)]));
        assert!(answers.due(&[], now).is_empty());
        assert!(answers.of.is_empty(), "identities without clients are forgotten");
    }

    #[test]
    fn a_fleet_is_asked_about_in_turns() {
        let (mut answers, now) = (Answers::default(), SystemTime::UNIX_EPOCH);
        let current: Vec<Identity> = (0..40).map(identity).collect();
        let mut rounds = 0;
        loop {
            let due = answers.due(&current, now);
            if due.is_empty() {
                break;
            }
            assert!(due.len() <= AT_ONCE);
            due.into_iter().for_each(|identity| answers.note(identity, Some(true), now));
            rounds += 1;
        }
        assert_eq!((rounds, answers.in_force().answers.len()), (3, 40));
    }
}
