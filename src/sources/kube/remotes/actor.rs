//! The supervised actor that owns the set of remote clusters: the clusters that are named, in; sources started and stopped.
//!
//! A change is made in three steps: the set is changed, with the sources that come and go noted in it; the register of
//! sources is told; the sources are started. Each step may be repeated, so a change that a fault cut short is completed by
//! the next one. The set outlives a restart of the actor, since the sources in it do.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorFuture, ActorFutureExt, AsyncContext, AtomicResponse, Context, Handler, Message, Supervised,
    Supervisor, WrapFuture, fut,
};
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::sync::watch;

use super::{
    RemoteClusters,
    followed::{FollowedCluster, GROUPS},
};
use crate::{
    model::{Interrupted, Mesh},
    runtime::{ActorHealth, Mailbox, Shutdown, Supervision, catch_task},
    settings::{KubeAccess, KubeSettings, KubeconfigText, RemoteCluster, RemoteSettings},
    sources::{
        Source, SourceHandle, SourceId, SourceRegister, SourceStarter,
        kube::{Cluster, Group, KubeSource, RemoteClusterSink, RemoteFiles, RemoteSecrets, Wanted},
    },
};

/// Pause before the first clusters are tried again when the register was interrupted.
const RETRY: Duration = Duration::from_secs(1);

/// The main cluster, which may name others.
#[derive(Clone)]
pub struct MainCluster {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Its sources.
    pub sources: Vec<SourceHandle>,
}

/// The surroundings of the actor; they outlive its restarts.
#[derive(Clone)]
pub struct RemoteSetup {
    /// Starts sources.
    pub starter: SourceStarter,
    /// Knows which sources there are.
    pub register: Arc<dyn SourceRegister>,
    /// The main cluster, if there is one.
    pub main: Option<MainCluster>,
    /// The clusters of the command line.
    pub flagged: Vec<RemoteCluster>,
    /// The places where other clusters are named.
    pub settings: RemoteSettings,
    /// The mesh settings in force, and their changes.
    pub mesh: watch::Receiver<Arc<Mesh>>,
    /// Revision of this control plane.
    pub revision: String,
    /// The time that an unconfirmed mass deletion is held back.
    pub deletion_hold: Duration,
    /// Ends all sources.
    pub shutdown: Shutdown,
}

/// The clusters that are named now; all others that were named are gone. The reply waits for the first ones, if it is asked.
#[derive(Message)]
#[rtype(result = "Result<Option<BoxFuture<'static, ()>>, Interrupted>")]
struct Follow(Wanted);

/// The sources that the register has to be told of before others are started.
#[derive(Debug, Default)]
struct Announced {
    gone: Vec<SourceId>,
    expected: Vec<SourceId>,
}

/// Owns the set of remote clusters.
pub struct RemoteClustersActor {
    setup: RemoteSetup,
    clusters: BTreeMap<String, FollowedCluster>,
    naming: Option<SourceHandle>,
    has_begun: bool,
    /// The clusters were named once.
    were_named: bool,
    published: watch::Sender<Arc<RemoteClusters>>,
    actor_health: ActorHealth,
}

/// The handle of the remote clusters: a mailbox for changes, and the list to read.
#[derive(Clone)]
pub struct RemoteClustersHandle {
    mailbox: Mailbox<RemoteClustersActor>,
    published: watch::Receiver<Arc<RemoteClusters>>,
}

impl RemoteClustersActor {
    /// Starts the actor on this thread of actix. It follows the clusters of the command line, and those of the last process
    /// until the Secrets or files that name others were read.
    #[must_use]
    pub fn start(supervision: &Supervision, setup: RemoteSetup) -> RemoteClustersHandle {
        let actor_health = supervision.admit("remote-clusters");
        let (queue, published) = (actor_health.queue(), watch::Sender::default());
        let reader = published.subscribe();
        let address = Supervisor::start(move |_| Self {
            setup,
            clusters: BTreeMap::new(),
            naming: None,
            has_begun: false,
            were_named: false,
            published,
            actor_health,
        });
        RemoteClustersHandle { mailbox: Mailbox::new(address, queue), published: reader }
    }

    /// Follows the first clusters, again until that is done.
    fn begin(&mut self, context: &mut Context<Self>) {
        let (setup, clusters) = (&self.setup, &mut self.clusters);
        let Some(announced) = self.actor_health.run(context, || first(setup, clusters)) else { return };
        let done = self.complete(announced).map(|done, actor, context| {
            if done.is_ok() {
                actor.follow_names(context);
            } else if !actor.actor_health.is_down() {
                context.run_later(RETRY, Self::begin);
            }
        });
        context.wait(done);
    }

    /// Starts the source that names clusters.
    fn follow_names(&mut self, context: &mut Context<Self>) {
        let main = self.setup.main.clone().filter(|main| main.cluster.settings().registry);
        if let (Some(main), None) = (main, &self.naming) {
            let handle = RemoteClustersHandle {
                mailbox: self.actor_health.mailbox(context),
                published: self.published.subscribe(),
            };
            let source = naming(&self.setup, &main.cluster, Arc::new(handle));
            self.naming = Some(self.setup.starter.start(source, self.setup.shutdown.child()));
        }
        self.has_begun = true;
        self.publish();
    }

    /// Tells the register of the sources that come and go, and starts those that come.
    fn complete(&self, announced: Announced) -> impl ActorFuture<Self, Output = Result<(), Interrupted>> + 'static {
        self.publish();
        let register = self.setup.register.clone();
        let told = async move {
            for source in announced.gone {
                register.remove(source).await?;
            }
            for source in announced.expected {
                register.expect(source).await?;
            }
            Ok::<(), Interrupted>(())
        };
        catch_task(told).into_actor(self).map(|told, actor, context| {
            match told {
                Ok(told) => told?,
                Err(panicked) => {
                    actor.actor_health.fault(context, &panicked);
                    return Err(Interrupted);
                }
            }
            let (setup, clusters) = (&actor.setup, &mut actor.clusters);
            let started = actor.actor_health.run(context, || start_sources(setup, clusters));
            actor.publish();
            started.ok_or(Interrupted)
        })
    }

    fn publish(&self) {
        let main = self.setup.main.as_ref().map(|main| (main.cluster.id().clone(), main.sources.clone()));
        self.published.send_replace(Arc::new(RemoteClusters {
            clusters: self.clusters.values().filter(|c| !c.is_leaving).cloned().collect(),
            main,
            naming: self.naming.clone(),
            patience: self.setup.settings.patience,
            has_begun: self.has_begun,
        }));
    }
}

/// The clusters of the command line, and those that were named in the last life of the process: the saved content of
/// these holds until they are named again, or no longer.
fn first(setup: &RemoteSetup, clusters: &mut BTreeMap<String, FollowedCluster>) -> Announced {
    for RemoteCluster { name, path } in setup.flagged.iter().filter(|r| !r.path.is_dir()) {
        let access = KubeAccess::Kubeconfig { path: path.clone(), context: None };
        let named_by = path.display().to_string();
        clusters
            .entry(name.clone())
            .or_insert_with(|| FollowedCluster { is_flagged: true, ..followed(setup, name, access, named_by.into()) });
    }
    let main = setup.main.as_ref().filter(|main| main.cluster.settings().registry);
    let suffix = format!("/{}", Group::RemoteRegistry.as_str());
    for source in main.map(|_| setup.register.saved()).unwrap_or_default() {
        let id = source.strip_prefix("kube:").and_then(|rest| rest.strip_suffix(&suffix));
        let is_other = |id: &&str| main.is_some_and(|main| **main.cluster.id() != **id) && !is_flagged(setup, id);
        let Some(id) = id.filter(is_other) else { continue };
        let access = KubeAccess::Text(KubeconfigText("".into()));
        clusters.entry(id.to_string()).or_insert_with(|| followed(setup, id, access, Arc::default()));
    }
    announced(clusters)
}

fn is_flagged(setup: &RemoteSetup, id: &str) -> bool {
    setup.flagged.iter().any(|flagged| flagged.name == *id)
}

/// The source that names clusters: files, where there is a folder of them, else Secrets.
fn naming(setup: &RemoteSetup, main: &Arc<Cluster>, sink: Arc<dyn RemoteClusterSink>) -> Arc<dyn Source> {
    let (settings, allowed) = (&setup.settings, setup.settings.allowed.clone());
    let taken: Vec<String> = setup.flagged.iter().map(|flagged| flagged.name.clone()).collect();
    if let Some(folder) = &settings.kubeconfigs {
        return Arc::new(RemoteFiles::new(folder, main.id().clone(), taken, allowed, sink));
    }
    let cluster = match &settings.secrets_in {
        Some(access) => {
            let settings = KubeSettings { access: access.clone(), ..main.settings().clone() };
            Cluster::new(main.id(), settings, setup.mesh.clone())
        }
        None => main.clone(),
    };
    Arc::new(RemoteSecrets::new(cluster, taken, allowed, sink))
}

/// A cluster whose sources have not been started.
fn followed(setup: &RemoteSetup, id: &str, access: KubeAccess, named_by: Arc<str>) -> FollowedCluster {
    let settings = KubeSettings {
        deletion_hold: setup.deletion_hold,
        left_out: setup.settings.left_out.clone(),
        revision: setup.revision.clone(),
        ..KubeSettings::new(access.clone())
    };
    FollowedCluster {
        cluster: Cluster::remote(id, settings, setup.mesh.clone()),
        access,
        named_by,
        is_flagged: false,
        sources: Vec::new(),
        stop: setup.shutdown.child(),
        is_leaving: false,
        since: Instant::now(),
    }
}

/// Brings the set to the clusters that are named now.
fn change(setup: &RemoteSetup, clusters: &mut BTreeMap<String, FollowedCluster>, wanted: Wanted) -> Announced {
    let mut returning = Vec::new();
    for (id, cluster) in clusters.iter_mut().filter(|(id, c)| !c.is_flagged && !wanted.contains_key(*id)) {
        cluster.stop.cancel();
        if !cluster.is_leaving {
            tracing::info!(cluster = id, "remote cluster gone");
        }
        cluster.is_leaving = true;
    }
    for (id, named) in wanted {
        let Some(access) = named.kubeconfig.map(KubeAccess::Text) else { continue };
        match clusters.get_mut(&id) {
            Some(cluster) if cluster.is_leaving => {
                returning.extend(cluster.source_ids());
                *cluster = followed(setup, &id, access, named.by);
            }
            Some(cluster) => {
                cluster.named_by = named.by;
                if cluster.access != access {
                    // The content in force stays until the cluster has been listed in the new way.
                    cluster.cluster.set_access(access.clone());
                    cluster.access = access;
                    cluster.sources.iter().for_each(SourceHandle::restart);
                    tracing::info!(cluster = id, "remote cluster has another kubeconfig");
                }
            }
            None => drop(clusters.insert(id.clone(), followed(setup, &id, access, named.by))),
        }
    }
    let mut announced = announced(clusters);
    announced.gone.extend(returning);
    announced
}

/// The sources that the register does not know yet, and those that it may forget.
fn announced(clusters: &BTreeMap<String, FollowedCluster>) -> Announced {
    let of = |filter: &dyn Fn(&&FollowedCluster) -> bool| {
        clusters.values().filter(filter).flat_map(|c| c.source_ids().collect::<Vec<_>>()).collect()
    };
    Announced { gone: of(&|c| c.is_leaving), expected: of(&|c| !c.is_leaving && c.sources.is_empty()) }
}

/// Starts the sources of the clusters that came, and drops the clusters that went.
fn start_sources(setup: &RemoteSetup, clusters: &mut BTreeMap<String, FollowedCluster>) {
    clusters.retain(|_, cluster| !cluster.is_leaving);
    for (id, cluster) in clusters.iter_mut().filter(|(_, cluster)| cluster.sources.is_empty()) {
        let start = |group: &Group| {
            setup.starter.start(Arc::new(KubeSource::new(cluster.cluster.clone(), *group)), cluster.stop.clone())
        };
        cluster.sources = GROUPS.iter().map(start).collect();
        cluster.sources.iter().for_each(|source| setup.register.started(source.board.clone()));
        tracing::info!(cluster = id, "remote cluster followed");
    }
}

impl Actor for RemoteClustersActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        if self.actor_health.is_down() {
            self.actor_health.started(context, |actor: &mut Self, context| {
                actor.actor_health.up();
                if !actor.has_begun {
                    actor.begin(context);
                }
            });
        } else {
            self.begin(context);
        }
    }
}

impl Supervised for RemoteClustersActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
    }
}

impl Handler<Follow> for RemoteClustersActor {
    type Result = AtomicResponse<Self, Result<Option<BoxFuture<'static, ()>>, Interrupted>>;

    fn handle(&mut self, Follow(wanted): Follow, context: &mut Self::Context) -> Self::Result {
        let (setup, clusters) = (&self.setup, &mut self.clusters);
        let Some(announced) = self.actor_health.guard(context, || change(setup, clusters, wanted)) else {
            return AtomicResponse::new(Box::pin(fut::ready(Err(Interrupted))));
        };
        AtomicResponse::new(Box::pin(self.complete(announced).map(|done, actor, _| {
            done?;
            actor.actor_health.recovered();
            if std::mem::replace(&mut actor.were_named, true) {
                return Ok(None);
            }
            let patience = actor.setup.settings.patience;
            let named = actor.clusters.values().filter(|cluster| !cluster.is_flagged).cloned();
            let waits: Vec<_> = named.map(|cluster| cluster.synced(patience)).collect();
            Ok(Some(join_all(waits).map(drop).boxed()))
        })))
    }
}

impl RemoteClustersHandle {
    /// The clusters that are followed, and their changes.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Arc<RemoteClusters>> {
        self.published.clone()
    }

    /// Waits until the first clusters have delivered, or have taken too long about it.
    pub async fn synced(&self) {
        let mut published = self.published.clone();
        let first = published.wait_for(|remotes| remotes.has_begun).await.map(|remotes| remotes.clone());
        if let Ok(first) = first {
            first.synced().await;
        }
    }
}

impl RemoteClusterSink for RemoteClustersHandle {
    fn follow(&self, wanted: Wanted) -> BoxFuture<'static, Result<(), Interrupted>> {
        let mailbox = self.mailbox.clone();
        async move {
            if let Some(first) = mailbox.send(Follow(wanted)).await.map_err(|_| Interrupted)?? {
                first.await;
            }
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
