//! The actor that owns the authority: it reads the files again and again, and publishes the authority in force.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Supervised, Supervisor, WrapFuture};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use super::{
    authority::{Authority, IssueError, Lifetimes, Material},
    client_certificate::ClientRoots,
    cluster_root::{ClusterRoot, Found},
    holders::{Holders, IdentityHold},
    root_config_maps::{Readers, RootConfigMaps, RootConfigMapsActor},
    trust::{Trust, TrustError, TrustSettings},
    workloads::Workloads,
};
use crate::{
    model::{ConfigSnapshot, Identity, Mesh, WorkloadCertificates},
    runtime::{ActorHealth, Supervision},
    sources::WriteError,
};

/// The pause between two looks at the files.
const PAUSE: Duration = Duration::from_secs(5);
/// The age at which the cluster's material is read again.
const OF_CLUSTER: Duration = Duration::from_secs(30);
/// The time that a start waits for a cluster that does not answer.
const FIRST_PATIENCE: Duration = Duration::from_secs(60);

/// Puts the certificates of connected workloads in force.
pub type CertificatePublisher = Arc<dyn Fn(Arc<WorkloadCertificates>) + Send + Sync>;

/// The inputs of the authority, and its readers.
pub struct AuthoritySetup {
    /// The files and rules of the authority and of the secure listener.
    pub settings: TrustSettings,
    /// The Secrets of the cluster, where there is one.
    pub cluster: Option<ClusterRoot>,
    /// The lifetimes of certificates that it signs.
    pub lifetimes: Lifetimes,
    /// Puts the certificates of connected workloads in force.
    pub publish: CertificatePublisher,
    /// The roots of client certificates are published here.
    pub roots: ClientRoots,
}

/// The inputs of the ConfigMaps that tell each namespace the roots.
#[derive(Debug, Clone)]
pub struct NamespaceReaders {
    /// The objects in force, whose namespaces are told.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// The mesh settings in force.
    pub mesh: watch::Receiver<Arc<Mesh>>,
}

/// Owns the authority.
pub struct AuthorityActor {
    settings: Arc<TrustSettings>,
    cluster: Option<ClusterRoot>,
    memory: Memory,
    published: watch::Sender<Arc<Trust>>,
    server: watch::Sender<Arc<ServerConfig>>,
    roots: ClientRoots,
    holders: Arc<Holders>,
    workloads: Workloads,
    lifetime: Duration,
    publish: CertificatePublisher,
    /// The last failure, told once.
    failed: String,
    actor_health: ActorHealth,
}

/// Handles of the authority for other rooms.
#[derive(Clone)]
pub struct AuthorityHandle {
    trust: watch::Receiver<Arc<Trust>>,
    server: watch::Receiver<Arc<ServerConfig>>,
    lifetimes: Lifetimes,
    holders: Arc<Holders>,
    /// The actors live as long as the handles.
    _address: Addr<AuthorityActor>,
    _config_maps: Option<Addr<RootConfigMapsActor>>,
}

impl std::fmt::Debug for AuthorityHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityHandle").field("lifetimes", &self.lifetimes).finish_non_exhaustive()
    }
}

impl AuthorityHandle {
    /// The authority in force.
    #[must_use]
    pub fn authority(&self) -> Arc<Authority> {
        self.trust.borrow().authority.clone()
    }

    /// Tells the namespaces of a cluster the roots, by a ConfigMap in each.
    #[must_use]
    pub fn telling_namespaces(
        mut self,
        supervision: &Supervision,
        maps: Arc<dyn RootConfigMaps>,
        NamespaceReaders { configs, mesh }: NamespaceReaders,
    ) -> Self {
        let readers = Readers { configs, mesh, trust: self.trust.clone() };
        self._config_maps = Some(RootConfigMapsActor::start(supervision, maps, readers));
        self
    }

    /// TLS of the secure listener, to follow.
    #[must_use]
    pub fn server(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.server.clone()
    }

    /// Has a certificate issued for this identity, and renewed for as long as it is held.
    #[must_use]
    pub fn hold(&self, identity: &Identity) -> IdentityHold {
        self.holders.hold(identity)
    }

    /// Signs a request for a certificate of this identity; `seconds` is the lifetime that it asks for. The answer holds the
    /// certificate, the chain above it and the roots, each in PEM, as Istio's agent reads it. One audit line tells of it.
    ///
    /// # Errors
    /// [`IssueError`] when the request is refused.
    pub fn sign(&self, request: &str, identity: &Identity, seconds: i64) -> Result<Vec<String>, IssueError> {
        let now = SystemTime::now();
        let lifetime = self.lifetimes.of(seconds)?;
        let authority = self.authority();
        let issued = authority.sign(request, identity, lifetime, now)?;
        issued.audit(identity, now);
        Ok(vec![issued.chain, authority.roots().to_string()])
    }
}

impl AuthorityActor {
    /// Starts the actor with the present content of the files.
    ///
    /// # Errors
    /// [`TrustError`] when there is nothing that could be in force.
    pub async fn start(supervision: &Supervision, setup: AuthoritySetup) -> Result<AuthorityHandle, TrustError> {
        let AuthoritySetup { settings, cluster, lifetimes, publish, roots } = setup;
        let settings = Arc::new(settings);
        let (first, memory) = first(&settings, cluster.as_ref()).await?;
        let root_valid_for = authority_end(&first);
        let (server, server_reader) = watch::channel(first.server.clone());
        tracing::info!(origin = ?first.origin, root_valid_for, "the certificate authority is in force");
        tell_roots_without_list(&first);
        roots.publish(first.clients.clone());
        let (published, trust) = watch::channel(first);
        let actor_health = supervision.admit("certificate-authority");
        let holders = Arc::<Holders>::default();
        let shared = holders.clone();
        let address = Supervisor::start(move |_| Self {
            settings,
            cluster,
            memory,
            published,
            server,
            roots,
            holders: shared,
            workloads: Workloads::default(),
            lifetime: lifetimes.default,
            publish,
            failed: String::new(),
            actor_health,
        });
        Ok(AuthorityHandle { trust, server: server_reader, lifetimes, holders, _address: address, _config_maps: None })
    }

    fn look(&mut self, context: &mut Context<Self>) {
        let last = self.published.borrow().clone();
        let (settings, cluster) = (self.settings.clone(), self.cluster.clone());
        let memory = std::mem::take(&mut self.memory);
        let look = async move {
            let loaded = load(settings, cluster, memory, Some(last)).await;
            tokio::time::sleep(PAUSE).await;
            loaded
        };
        context.spawn(look.into_actor(self).map(|(loaded, memory), actor, context| {
            actor.memory = memory;
            actor.take(loaded);
            actor.issue(context);
            actor.look(context);
        }));
    }

    /// Issues as soon as an identity is new.
    fn follow(&self, context: &mut Context<Self>) {
        let holders = self.holders.clone();
        let wanted = async move { holders.wanted.notified().await };
        context.spawn(wanted.into_actor(self).map(|(), actor, context| {
            actor.issue(context);
            actor.follow(context);
        }));
    }

    fn issue(&mut self, context: &mut Context<Self>) {
        let authority = self.published.borrow().authority.clone();
        let (workloads, holders, lifetime) = (&mut self.workloads, &self.holders, self.lifetime);
        let looked =
            self.actor_health.guard(context, || workloads.look(holders, &authority, lifetime, SystemTime::now()));
        let Some(looked) = looked else { return };
        if let Some(error) = looked.failed {
            tracing::error!(%error, "workload certificates are not issued");
        }
        if let Some(certificates) = looked.changed {
            (self.publish)(certificates);
        }
        if looked.more {
            self.holders.wanted.notify_one();
        }
    }

    fn take(&mut self, loaded: Result<Arc<Trust>, TrustError>) {
        match loaded {
            Ok(trust) => {
                if !std::mem::take(&mut self.failed).is_empty() {
                    tracing::info!("the files of the certificate authority are whole again");
                }
                if Arc::ptr_eq(&trust, &self.published.borrow()) {
                    return;
                }
                let root_valid_for = authority_end(&trust);
                tracing::info!(origin = ?trust.origin, root_valid_for, "a new certificate authority is in force");
                tell_roots_without_list(&trust);
                self.server.send_replace(trust.server.clone());
                self.roots.publish(trust.clients.clone());
                self.published.send_replace(trust);
            }
            Err(error) => {
                let text = error.to_string();
                if text != self.failed {
                    tracing::error!(error = text, "the certificate authority stays the last good one");
                    self.failed = text;
                }
            }
        }
    }
}

fn tell_roots_without_list(trust: &Trust) {
    let roots = trust.authority.roots_without_list();
    if !roots.is_empty() {
        tracing::warn!(?roots, "ca-crl.pem has no list of these roots: proxies refuse every peer below them");
    }
}

fn authority_end(trust: &Trust) -> u64 {
    let end = trust.authority.not_after();
    let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    metrics::gauge!("citadel_server_root_cert_expiry_timestamp").set(since_1970 as f64);
    end.duration_since(SystemTime::now()).unwrap_or_default().as_secs()
}

/// The content that stays between two looks.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// A self-made root without a folder.
    root: Option<Material>,
    /// The cluster's material, and when it was read.
    of_cluster: Option<(Found, SystemTime)>,
    /// The cluster gives no right to its Secrets.
    is_forbidden: bool,
}

/// The first authority. A cluster that does not answer, or whose Secret is broken, is stood in for by the kept copy; without
/// one, a cluster that does not answer is asked again for a while.
async fn first(
    settings: &Arc<TrustSettings>,
    cluster: Option<&ClusterRoot>,
) -> Result<(Arc<Trust>, Memory), TrustError> {
    let deadline = tokio::time::Instant::now() + FIRST_PATIENCE;
    let (mut memory, mut copy_is_tried) = (Memory::default(), false);
    loop {
        let (loaded, after) = load(settings.clone(), cluster.cloned(), memory, None).await;
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
        tokio::time::sleep(PAUSE / 10).await;
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

/// Asks the cluster, and reads files on a thread of its own.
async fn load(
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

impl Actor for AuthorityActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.actor_health.recovered();
        });
        self.look(context);
        self.follow(context);
    }
}

impl Supervised for AuthorityActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        // Every certificate is issued anew: its key is nowhere else.
        self.workloads = Workloads::default();
    }
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
