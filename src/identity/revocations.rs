//! Join tokens that hold no more: the key and the list of the state folder, read again and again, so that a stream that a token
//! opened ends with it.
//!
//! A token that expires ends no stream, as with Istio: the age of connections bounds that. While the files cannot be read, the
//! last content holds for open streams, and no client is admitted.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::join_token::{JoinProof, JoinTokens, Standing};

/// The pause between two looks at the files.
const PAUSE: Duration = Duration::from_secs(5);

/// Follows the files; cheap to clone.
#[derive(Debug, Clone)]
pub struct Revocations(watch::Receiver<Option<Arc<Standing>>>);

impl Revocations {
    /// Follows the files of these tokens until all readers are dropped.
    #[must_use]
    pub fn follow(tokens: JoinTokens) -> Self {
        Self::follow_every(PAUSE, tokens)
    }

    fn follow_every(pause: Duration, tokens: JoinTokens) -> Self {
        let (sender, reader) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = sender.closed() => return,
                }
                let tokens = tokens.clone();
                let Ok(Ok(standing)) = tokio::task::spawn_blocking(move || tokens.standing()).await else { continue };
                sender.send_if_modified(|last| {
                    let changed = last.as_deref() != Some(&standing);
                    if changed {
                        *last = Some(Arc::new(standing));
                    }
                    changed
                });
            }
        });
        Self(reader)
    }

    /// Ends when the token holds no more.
    pub(super) async fn lapse(mut self, proof: JoinProof) {
        let is_over = |standing: &Option<Arc<Standing>>| standing.as_ref().is_some_and(|s| !s.holds(&proof));
        if self.0.wait_for(is_over).await.is_err() {
            // The sender is gone: the process ends.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_token_lapses_when_it_is_revoked_or_its_key_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = JoinTokens::of(folder.path());
        let make = || tokens.create("shop", "cart", Duration::from_secs(60), SystemTime::now()).unwrap();
        let (one, two) = (make(), make());
        let revocations = Revocations::follow_every(Duration::from_millis(5), tokens.clone());
        let lapse = |token: &str| {
            let (_, proof) = tokens.prove(token, SystemTime::now()).unwrap();
            revocations.clone().lapse(proof).boxed()
        };
        let (first, mut second) = (lapse(&one.0), lapse(&two.0));
        tokens.revoke(&one.1.jti).unwrap();
        first.await;
        assert!((&mut second).now_or_never().is_none(), "another token of the workload holds");
        // Files that cannot be read end nothing.
        let list = folder.path().join("identity/revoked-tokens");
        std::fs::remove_file(&list).unwrap();
        std::fs::create_dir(&list).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut second).await.is_err());
        std::fs::remove_dir(&list).unwrap();
        std::fs::write(folder.path().join("identity/join-key"), [7; 32]).unwrap();
        second.await;
    }
}
