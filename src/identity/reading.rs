//! The authority that is to be in force: read from the files, or from the cluster, or from its copy of an earlier process.
//!
//! Invariants: material that makes no authority replaces neither the last one nor its copy; a cluster that answers that there is
//! no right to its Secrets is not an error, one that does not answer is.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    authority::Material,
    cluster_root::{ClusterRoot, Found},
    trust::{Trust, TrustError, TrustSettings},
};
use crate::sources::WriteError;

/// The age at which the cluster's material is read again.
const OF_CLUSTER: Duration = Duration::from_secs(30);
/// The time that a start waits for a cluster that does not answer.
const FIRST_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two questions of a start.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The content that stays between two looks.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// A self-made root without a folder.
    root: Option<Material>,
    /// The cluster's material, and when it was read.
    of_cluster: Option<(Found, SystemTime)>,
    /// The cluster gives no right to its Secrets.
    is_forbidden: bool,
}

/// The first authority. A cluster that does not answer, or whose Secret is broken, is stood in for by the kept copy; without
/// one, a cluster that does not answer is asked again for a while.
pub(super) async fn first(
    settings: &Arc<TrustSettings>,
    cluster: Option<&ClusterRoot>,
) -> Result<(Arc<Trust>, Memory), TrustError> {
    let deadline = tokio::time::Instant::now() + FIRST_PATIENCE;
    let (mut memory, mut copy_is_tried) = (Memory::default(), false);
    loop {
        let (loaded, after) = next(settings.clone(), cluster.cloned(), memory, None).await;
        let error = match loaded {
            Ok(trust) => return Ok((trust, after)),
            Err(error) => error,
        };
        let is_away = matches!(error, TrustError::Cluster(_));
        let is_broken = matches!(error, TrustError::Authority(..)) && after.of_cluster.is_some();
        if !is_away && !is_broken {
            return Err(error);
        }
        let kept = cluster.filter(|_| !std::mem::replace(&mut copy_is_tried, true)).and_then(ClusterRoot::kept);
        if let Some(kept) = kept {
            tracing::warn!(%error, "the copy of the cluster's authority in the state folder is in force");
            memory = Memory { of_cluster: Some((kept, SystemTime::now())), ..after };
            continue;
        }
        if is_broken || tokio::time::Instant::now() >= deadline {
            return Err(error);
        }
        memory = after;
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}

/// The cluster's material as it stands, or as it was read a moment ago; `None` where there is no right to it.
async fn of_cluster(cluster: &ClusterRoot, memory: &mut Memory, now: SystemTime) -> Result<Option<Found>, TrustError> {
    let is_young = |read: &SystemTime| now.duration_since(*read).is_ok_and(|age| age < OF_CLUSTER);
    if let Some((found, _)) = memory.of_cluster.as_ref().filter(|(_, read)| is_young(read)) {
        return Ok(Some(found.clone()));
    }
    match cluster.look(now).await {
        Ok(found) => {
            memory.of_cluster = Some((found.clone(), now));
            memory.is_forbidden = false;
            Ok(Some(found))
        }
        Err(WriteError::Forbidden(error)) if memory.of_cluster.is_none() => {
            if !std::mem::replace(&mut memory.is_forbidden, true) {
                tracing::warn!(
                    error,
                    "there is no right to the authority of the cluster: a root of this process is in force"
                );
            }
            Ok(None)
        }
        Err(error) => Err(TrustError::Cluster(error.to_string())),
    }
}

/// The authority as it is to be after `last`, or the reason that there is none. The cluster is asked, and files are read on a thread
/// of their own.
pub(super) async fn next(
    settings: Arc<TrustSettings>,
    cluster: Option<ClusterRoot>,
    mut memory: Memory,
    last: Option<Arc<Trust>>,
) -> (Result<Arc<Trust>, TrustError>, Memory) {
    let cluster = cluster.filter(|_| settings.cacerts.is_none());
    let found = match &cluster {
        Some(cluster) => match of_cluster(cluster, &mut memory, SystemTime::now()).await {
            Ok(found) => found,
            Err(error) => return (Err(error), memory),
        },
        None => None,
    };
    let kept = memory.clone();
    let read = tokio::task::spawn_blocking(move || {
        let loaded = Trust::load(&settings, found.clone(), &mut memory.root, last.as_ref(), SystemTime::now());
        // Material that makes no authority must not replace the last good copy.
        if let (Ok(_), Some(cluster), Some(found)) = (&loaded, &cluster, &found) {
            cluster.keep(&found.material);
        }
        (loaded, memory)
    });
    read.await.unwrap_or_else(|error| {
        let error = std::io::Error::other(error.to_string());
        (Err(TrustError::File("certificate authority".into(), error)), kept)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::{FutureExt, future::BoxFuture};

    use super::*;
    use crate::{identity::cluster_root::SecretStore, sources::kube::SecretContent};

    /// The self-made root of a cluster, which is read and written without conflicts.
    #[derive(Default)]
    struct OneSecret(Arc<Mutex<Option<SecretContent>>>);

    impl SecretStore for OneSecret {
        fn read(&self, name: &'static str) -> BoxFuture<'static, Result<Option<SecretContent>, WriteError>> {
            let found = self.0.lock().unwrap().clone().filter(|_| name == "istio-ca-secret");
            async move { Ok(found) }.boxed()
        }

        fn write(
            &self,
            _: &'static str,
            _: &'static str,
            content: SecretContent,
        ) -> BoxFuture<'static, Result<(), WriteError>> {
            *self.0.lock().unwrap() = Some(content);
            async { Ok(()) }.boxed()
        }
    }

    #[tokio::test]
    async fn a_start_with_a_broken_secret_goes_on_with_the_kept_copy() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Arc::new(Mutex::new(None));
        let cluster = ClusterRoot {
            store: Arc::new(OneSecret(secret.clone())),
            state_folder: Some(folder.path().into()),
            organization: "cluster.local".into(),
            root_lifetime: Duration::from_secs(86_400),
        };
        let settings = Arc::new(TrustSettings {
            root_lifetime: Duration::from_secs(86_400),
            server_names: vec!["localhost".into()],
            ..TrustSettings::default()
        });
        let (good, _) = first(&settings, Some(&cluster)).await.unwrap();
        for part in secret.lock().unwrap().as_mut().unwrap().data.values_mut() {
            *part = b"no certificate".to_vec();
        }
        let (kept, _) = first(&settings, Some(&cluster)).await.unwrap();
        assert_eq!(kept.authority.roots(), good.authority.roots());
    }
}
