//! The service accounts that may read Secrets: the cluster of a client that asked for some is asked about its identity
//! (SubjectAccessReview).
//!
//! An answer is in force until the next one, which is asked for every minute (Istio keeps its own for as long). While the
//! cluster gives none, the last answer stays; a client without any gets no Secret of a cluster.

mod actor;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

pub use self::actor::{SecretAccessActor, SecretAccessHandle};
use crate::{
    identity::FindCluster,
    model::{SecretAccess, SecretReader},
};

/// The age at which an answer is asked for again.
const RENEWED: Duration = Duration::from_secs(60);
/// The pause after a failure, of one workload.
const AGAIN: Duration = Duration::from_secs(5);
/// Questions under way.
const AT_ONCE: usize = 16;

/// Asks whether a workload may list the Secrets of its namespace; `Err` when there is no answer.
pub trait AccessReviewer: Send + Sync {
    /// Requests the answer for one workload from its cluster.
    fn may_list_secrets(&self, reader: &SecretReader) -> BoxFuture<'static, Result<bool, String>>;
}

/// SubjectAccessReview of the clusters of the mesh. The main one is asked about clients whose node names none that is followed.
pub struct ClusterAccess(pub FindCluster);

impl AccessReviewer for ClusterAccess {
    fn may_list_secrets(&self, reader: &SecretReader) -> BoxFuture<'static, Result<bool, String>> {
        let Some(writer) = (self.0)(&reader.cluster).or_else(|| (self.0)("")) else {
            return ready(Ok(false)).boxed();
        };
        let identity = reader.identity.clone();
        async move {
            let answer = writer.may_list_secrets(&identity.namespace, &identity.service_account).await;
            answer.map_err(|e| e.to_string())
        }
        .boxed()
    }
}

/// Puts answers in force.
pub type AccessPublisher = Arc<dyn Fn(Arc<SecretAccess>) + Send + Sync>;

/// The state of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    may: Option<bool>,
    due: SystemTime,
}

/// The answers that there are. Pure.
#[derive(Debug, Default)]
struct Answers {
    of: BTreeMap<SecretReader, Answer>,
}

impl Answers {
    /// Drops those of workloads without clients, and returns some to ask about.
    fn due(&mut self, current: &[SecretReader], now: SystemTime) -> Vec<SecretReader> {
        self.of.retain(|reader, _| current.binary_search(reader).is_ok());
        let is_due = |reader: &&SecretReader| self.of.get(*reader).is_none_or(|answer| answer.due <= now);
        current.iter().filter(is_due).take(AT_ONCE).cloned().collect()
    }

    fn note(&mut self, reader: SecretReader, answer: Option<bool>, now: SystemTime) {
        let before = self.of.get(&reader).and_then(|before| before.may);
        let due = now + if answer.is_some() { RENEWED } else { AGAIN };
        self.of.insert(reader, Answer { may: answer.or(before), due });
    }

    fn in_force(&self) -> SecretAccess {
        let answers = self.of.iter().filter_map(|(reader, answer)| Some((reader.clone(), answer.may?)));
        SecretAccess { is_asked: true, answers: answers.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Identity;

    fn reader(n: usize) -> SecretReader {
        let identity = Identity::parse(&format!("spiffe://td/ns/n{n:03}/sa/a")).unwrap();
        SecretReader { identity, cluster: "west".into() }
    }

    #[test]
    fn without_any_cluster_no_one_may_read() {
        let access = ClusterAccess(Arc::new(|_| None));
        assert_eq!(access.may_list_secrets(&reader(1)).now_or_never(), Some(Ok(false)));
    }

    #[test]
    fn an_answer_stays_until_the_next_one_and_a_failure_changes_nothing() {
        let (mut answers, now) = (Answers::default(), SystemTime::UNIX_EPOCH);
        let current = [reader(1), reader(2)];
        assert_eq!(answers.due(&current, now), current);
        answers.note(reader(1), Some(true), now);
        answers.note(reader(2), None, now);
        let in_force = answers.in_force();
        assert_eq!(in_force.answers, BTreeMap::from([(reader(1), true)]));
        assert_eq!(answers.due(&current, now + AGAIN), [reader(2)]);
        assert_eq!(answers.due(&current, now + RENEWED), current);
        answers.note(reader(1), None, now + RENEWED);
        assert_eq!(answers.in_force(), in_force, "the cluster is away");
        answers.note(reader(1), Some(false), now + RENEWED);
        assert_eq!(answers.in_force().answers, BTreeMap::from([(reader(1), false)]));
        assert!(answers.due(&[], now).is_empty());
        assert!(answers.of.is_empty(), "identities without clients are forgotten");
    }

    #[test]
    fn a_fleet_is_asked_about_in_turns() {
        let (mut answers, now) = (Answers::default(), SystemTime::UNIX_EPOCH);
        let current: Vec<SecretReader> = (0..40).map(reader).collect();
        let mut rounds = 0;
        loop {
            let due = answers.due(&current, now);
            if due.is_empty() {
                break;
            }
            assert!(due.len() <= AT_ONCE);
            due.into_iter().for_each(|reader| answers.note(reader, Some(true), now));
            rounds += 1;
        }
        assert_eq!((rounds, answers.in_force().answers.len()), (3, 40));
    }
}
