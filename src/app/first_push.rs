//! The first push: once every source has delivered, everything is pushed, and the process is ready when the inputs that this
//! push asks for have arrived.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::{sync::watch, time::timeout};

use super::{polled::Answered, process::Process};
use crate::{
    discovery::XdsServerHandle,
    model::{PushRequest, Reason, XdsUpdater},
    sources::kube::RemoteClustersHandle,
};

/// The time that the start waits for name servers and key servers that do not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The parts that the first push waits for.
pub(super) struct FirstPush {
    /// Every config source has delivered.
    pub(super) synced: BoxFuture<'static, ()>,
    pub(super) remotes: RemoteClustersHandle,
    /// The publication that each polled source has answered.
    pub(super) answered: Answered,
}

impl FirstPush {
    /// Pushes when the sources have delivered; the process is not ready before.
    pub(super) fn begin(self, process: &Process, xds: &XdsServerHandle) {
        let Self { synced, remotes, answered } = self;
        let remotes_synced = process.readiness.guard("remote clusters");
        let resolved = process.readiness.guard("addresses of network gateways and keys of issuers");
        let (mut publications, xds) = (xds.state().publications(), xds.clone());
        tokio::spawn(async move {
            let remotes = async move {
                remotes.synced().await;
                drop(remotes_synced);
            };
            tokio::join!(synced, remotes);
            publications.mark_unchanged();
            // An empty mesh is published as well: it has proxies too.
            xds.config_update(PushRequest::everything(Reason::Global));
            answers(publications, answered, PATIENCE).await;
            drop(resolved);
        });
    }
}

/// Waits until each name, and each key set, of the next publication has had an answer or a failure.
async fn answers(mut publications: watch::Receiver<u64>, Answered { names, keys }: Answered, patience: Duration) {
    if publications.changed().await.is_err() {
        return;
    }
    let number = *publications.borrow();
    let in_time = |mut answered: watch::Receiver<u64>| async move {
        timeout(patience, answered.wait_for(|level| *level >= number)).await.is_ok()
    };
    let (names, keys) = tokio::join!(in_time(names), in_time(keys));
    if !names {
        tracing::warn!("ready although name servers have not answered for all gateways between networks");
    }
    if !keys {
        tracing::warn!("ready although servers have not answered for all keys of RequestAuthentications");
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::{FutureExt, poll};

    use super::*;

    /// A publication with number 5 is waited for, and names and keys were answered up to these; whether the wait is over.
    async fn is_over(names: u64, keys: u64) -> bool {
        let (published, publications) = watch::channel(4);
        let ((name_server, names_read), (key_server, keys_read)) = (watch::channel(4), watch::channel(4));
        let mut wait = pin!(answers(publications, Answered { names: names_read, keys: keys_read }, PATIENCE));
        assert!(poll!(&mut wait).is_pending(), "nothing was published yet");
        published.send_replace(5);
        name_server.send_replace(names);
        key_server.send_replace(keys);
        poll!(&mut wait).is_ready()
    }

    #[tokio::test]
    async fn the_start_waits_for_answers_to_its_own_publication() {
        assert!(is_over(5, 6).await, "both have answered this publication or a later one");
        assert!(!is_over(5, 4).await, "keys were answered for the publication before");
        assert!(!is_over(4, 5).await, "names were answered for the publication before");
    }

    #[tokio::test]
    async fn servers_that_do_not_answer_do_not_prevent_the_start() {
        let (published, mut publications) = watch::channel(4);
        let ((_names, names), (_keys, keys)) = (watch::channel(4), watch::channel(4));
        publications.mark_unchanged();
        published.send_replace(5);
        let wait = answers(publications, Answered { names, keys }, Duration::ZERO);
        timeout(Duration::from_secs(60), wait).await.unwrap();
    }

    #[test]
    fn a_server_that_ends_before_its_first_publication_holds_nothing_back() {
        let (published, publications) = watch::channel(0);
        drop(published);
        let ((_names, names), (_keys, keys)) = (watch::channel(0), watch::channel(0));
        assert_eq!(answers(publications, Answered { names, keys }, PATIENCE).now_or_never(), Some(()));
    }
}
