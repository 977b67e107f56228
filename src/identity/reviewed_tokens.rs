//! Tokens of service accounts, whose issuer is asked: a Kubernetes API server by TokenReview.
//!
//! A client costs the API server one question at most, and a fleet that comes at once few at a time: answers are kept for
//! some seconds, by the digest of the token, and the number of questions under way is bounded. A failure to get an answer is
//! not kept.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use crate::sources::kube::{KubeWriter, TokenVerdict};

/// An answer is believed for this time: a token that is withdrawn is believed no longer.
const BELIEVED: Duration = Duration::from_secs(10);
/// Answers that are kept.
const KEPT: usize = 8192;
/// Questions under way.
const ASKED_AT_ONCE: usize = 32;
/// The time that a client waits for an answer, its turn included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The issuer's answer about a token; `Err` when there is none.
pub type Review = Result<TokenVerdict, String>;

/// Asks the issuer of tokens.
pub trait TokenReviewer: Send + Sync {
    /// The service account of a token of the cluster with this id; empty for the control plane's own.
    fn review(&self, cluster: &str, token: String) -> BoxFuture<'static, Review>;
}

/// Finds a cluster by its id, or by an empty one the control plane's own.
pub type FindCluster = Arc<dyn Fn(&str) -> Option<KubeWriter> + Send + Sync>;

/// TokenReview of the clusters of the mesh, for tokens of these audiences.
pub struct ClusterTokens {
    /// The clusters.
    pub clusters: FindCluster,
    /// A token has to be meant for one of them (`TOKEN_AUDIENCES`).
    pub audiences: Vec<String>,
}

impl TokenReviewer for ClusterTokens {
    fn review(&self, cluster: &str, token: String) -> BoxFuture<'static, Review> {
        let Some(writer) = (self.clusters)(cluster) else {
            let unknown = match cluster {
                "" => "no cluster reviews tokens".to_string(),
                cluster => format!("no cluster {:?} is followed", cluster.chars().take(64).collect::<String>()),
            };
            return ready(Ok(TokenVerdict::Refused(unknown))).boxed();
        };
        let audiences = self.audiences.clone();
        async move { writer.review_token(token, &audiences).await.map_err(|e| e.to_string()) }.boxed()
    }
}

type Key = [u8; 32];

/// Answers of a reviewer, kept for a while.
#[derive(Clone)]
pub(super) struct ReviewedTokens {
    reviewer: Arc<dyn TokenReviewer>,
    kept: Arc<Mutex<HashMap<Key, (Instant, TokenVerdict)>>>,
    turns: Arc<Semaphore>,
    believed: Duration,
    patience: Duration,
}

impl ReviewedTokens {
    pub(super) fn of(reviewer: Arc<dyn TokenReviewer>) -> Self {
        Self {
            reviewer,
            kept: Arc::default(),
            turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
            believed: BELIEVED,
            patience: PATIENCE,
        }
    }

    /// The verdict on a token.
    pub(super) async fn review(&self, cluster: &str, token: String) -> Review {
        let mut hash = Sha256::new();
        hash.update((cluster.len() as u64).to_be_bytes());
        hash.update(cluster);
        hash.update(&token);
        let key: Key = hash.finalize().into();
        if let Some(verdict) = self.known(&key) {
            return Ok(verdict);
        }
        let asked = tokio::time::timeout(self.patience, async {
            let turn = self.turns.acquire().await;
            // The same token may have been asked about by another connection meanwhile.
            if let Some(verdict) = self.known(&key) {
                return Ok(verdict);
            }
            let verdict = self.reviewer.review(cluster, token).await?;
            drop(turn);
            self.keep(key, verdict.clone());
            Ok(verdict)
        });
        asked.await.unwrap_or_else(|_| Err(format!("no answer within {} ms", self.patience.as_millis())))
    }

    fn known(&self, key: &Key) -> Option<TokenVerdict> {
        let kept = self.kept.lock();
        let (since, verdict) = kept.get(key)?;
        (since.elapsed() < self.believed).then(|| verdict.clone())
    }

    fn keep(&self, key: Key, verdict: TokenVerdict) {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT {
            kept.retain(|_, (since, _)| since.elapsed() < self.believed);
        }
        if kept.len() < KEPT {
            kept.insert(key, (Instant::now(), verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts questions; a token `ns:name` is of that account, `down` gets no answer, `hung` none in time.
    #[derive(Default)]
    struct Counting {
        asked: Arc<AtomicUsize>,
        at_once: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl TokenReviewer for Counting {
        fn review(&self, _: &str, token: String) -> BoxFuture<'static, Review> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let (at_once, most) = (self.at_once.clone(), self.most.clone());
            async move {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(if token == "hung" { 1_000_000 } else { 5 })).await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                match token.split_once(':') {
                    _ if token == "down" => Err("refused".to_string()),
                    Some((namespace, name)) => {
                        Ok(TokenVerdict::ServiceAccount { namespace: namespace.into(), name: name.into() })
                    }
                    None => Ok(TokenVerdict::Refused("unknown".to_string())),
                }
            }
            .boxed()
        }
    }

    fn counting() -> (ReviewedTokens, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let counting = Counting::default();
        let (asked, most) = (counting.asked.clone(), counting.most.clone());
        (ReviewedTokens::of(Arc::new(counting)), asked, most)
    }

    #[tokio::test]
    async fn an_answer_is_kept_for_a_while_and_a_missing_one_is_not() {
        let (mut tokens, asked, _) = counting();
        for token in ["a:b", "a:b", "none", "none"] {
            assert!(tokens.review("", token.to_string()).await.is_ok());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        tokens.review("west", "a:b".to_string()).await.unwrap();
        assert_eq!(asked.fetch_sub(1, Ordering::SeqCst), 3, "the answer of one cluster is none of another");
        for _ in 0..2 {
            assert_eq!(tokens.review("", "down".to_string()).await, Err("refused".to_string()));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 4);
        tokens.believed = Duration::ZERO;
        tokens.review("", "a:b".to_string()).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 5);
    }

    #[tokio::test]
    async fn a_fleet_asks_in_turns_and_no_client_waits_for_ever() {
        let (mut tokens, asked, most) = counting();
        let all = (0..500).map(|n| {
            let tokens = tokens.clone();
            async move { tokens.review("", format!("a:s{}", n % 250)).await }
        });
        assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
        assert!(most.load(Ordering::SeqCst) <= ASKED_AT_ONCE);
        assert!((250..=250 + ASKED_AT_ONCE).contains(&asked.load(Ordering::SeqCst)));
        tokens.patience = Duration::from_millis(20);
        assert!(tokens.review("", "hung".to_string()).await.unwrap_err().contains("within 20 ms"));
        assert_eq!(tokens.turns.available_permits(), ASKED_AT_ONCE);
    }

    #[tokio::test]
    async fn the_memory_for_answers_is_bounded() {
        let (tokens, ..) = counting();
        for n in 0..KEPT + 10 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_be_bytes());
            tokens.keep(key, TokenVerdict::Refused(String::new()));
        }
        assert_eq!(tokens.kept.lock().len(), KEPT);
    }
}
