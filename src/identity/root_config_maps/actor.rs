//! The actor that writes the ConfigMaps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Supervised, Supervisor, WrapFuture};
use futures::future::join_all;
use tokio::{sync::watch, time::Instant};

use super::{Lacking, RootConfigMaps, lacking, texts};
use crate::{
    identity::trust::Trust,
    model::{ConfigSnapshot, Mesh},
    runtime::{ActorHealth, Supervision},
    sources::WriteError,
};

/// Writes under way.
const AT_ONCE: usize = 8;
/// The pause after a change of the inputs: more come with it.
const SETTLED: Duration = Duration::from_millis(200);
/// The pause after a failure of one ConfigMap.
const AGAIN: Duration = Duration::from_secs(10);

/// The inputs: the objects, the mesh settings, the authority.
pub struct Readers {
    /// The objects.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// The mesh settings.
    pub mesh: watch::Receiver<Arc<Mesh>>,
    /// The authority in force.
    pub trust: watch::Receiver<Arc<Trust>>,
}

/// Writes the ConfigMaps.
pub struct RootConfigMapsActor {
    maps: Arc<dyn RootConfigMaps>,
    readers: Readers,
    /// ConfigMaps that were written or refused, with the text and the time until which nothing is tried again: the watch
    /// brings our own writes a moment later.
    tried: BTreeMap<Lacking, (Arc<str>, Instant)>,
    /// The last failure, told once.
    failed: String,
    actor_health: ActorHealth,
}

impl RootConfigMapsActor {
    /// Starts the actor.
    pub fn start(supervision: &Supervision, maps: Arc<dyn RootConfigMaps>, readers: Readers) -> Addr<Self> {
        let actor_health = supervision.admit("root-config-maps");
        Supervisor::start(move |_| Self { maps, readers, tried: BTreeMap::new(), failed: String::new(), actor_health })
    }

    fn look(&mut self, context: &mut Context<Self>) {
        let now = Instant::now();
        let texts = texts(&self.readers.trust.borrow_and_update().authority);
        let configs = self.readers.configs.borrow_and_update().clone();
        let mesh = self.readers.mesh.borrow_and_update().clone();
        let lacking = self.actor_health.guard(context, || lacking(&configs, &mesh, &texts)).unwrap_or_default();
        let is_told = |map: &Lacking, text: &Arc<str>| texts.get(&map.1) == Some(text);
        self.tried.retain(|map, (text, until)| *until > now && is_told(map, text) && lacking.contains(map));
        let due: Vec<(Lacking, Arc<str>)> = lacking
            .into_iter()
            .filter(|map| !self.tried.contains_key(map))
            .filter_map(|map| texts.get(&map.1).cloned().map(|text| (map, text)))
            .take(AT_ONCE)
            .collect();
        let is_full = due.len() == AT_ONCE;
        let writes = due.into_iter().map(|((namespace, place), text)| {
            let write = self.maps.write(&namespace, place, &text);
            async move { ((namespace, place), text, write.await) }
        });
        let written = join_all(writes.collect::<Vec<_>>());
        context.spawn(written.into_actor(self).map(move |written, actor, context| {
            actor.take(written);
            actor.wait(context, is_full);
        }));
    }

    fn take(&mut self, written: Vec<(Lacking, Arc<str>, Result<(), WriteError>)>) {
        for (map, text, written) in written {
            let error = match written {
                // The namespace is being deleted.
                Ok(()) | Err(WriteError::Gone) => String::new(),
                Err(error) => error.to_string(),
            };
            if !error.is_empty() && error != self.failed {
                let (namespace, place) = &map;
                tracing::warn!(
                    namespace = &**namespace,
                    config_map = place.name,
                    error,
                    "a ConfigMap of the authority is not written"
                );
            }
            self.failed = error;
            self.tried.insert(map, (text, Instant::now() + AGAIN));
        }
    }

    fn wait(&self, context: &mut Context<Self>, is_full: bool) {
        let Readers { configs, mesh, trust } = &self.readers;
        let (mut configs, mut mesh, mut trust) = (configs.clone(), mesh.clone(), trust.clone());
        let next = async move {
            if is_full {
                return;
            }
            // The other rooms end after this one.
            tokio::select! {
                _ = configs.changed() => {}
                _ = mesh.changed() => {}
                _ = trust.changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
            tokio::time::sleep(SETTLED).await;
        };
        context.spawn(next.into_actor(self).map(|(), actor, context| actor.look(context)));
    }
}

impl Actor for RootConfigMapsActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.actor_health.recovered();
        });
        self.look(context);
    }
}

impl Supervised for RootConfigMapsActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
    }
}
