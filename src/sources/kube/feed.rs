//! One kind of objects, from its watch into its content.

use std::{sync::Arc, time::Instant};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::{
    Cluster, FeedReport, FeedState, RawObject,
    content::{Content, Item},
    crds::{ask, is_served},
    follower::{End, Follower, ObjectChange, WatchTarget},
    groups::{field_selector, is_custom, label_selector, resource},
    mesh,
    presence::{Crds, Presence},
    read::Reader,
};
use crate::model::{ConfigKey, Kind, Origin};

/// The content of a feed, shared between the feed that fills it and the source that delivers it.
#[derive(Debug, Clone)]
pub(super) struct SharedContent {
    pub(super) kind: Kind,
    content: Arc<Mutex<Content>>,
}

impl SharedContent {
    pub(super) fn new(kind: Kind, content: Content) -> Self {
        Self { kind, content: Arc::new(Mutex::new(content)) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock()
    }
}

/// Follows one kind, everywhere or in one namespace.
pub(super) struct KindFollower {
    cluster: Arc<Cluster>,
    kind: Kind,
    namespace: Option<String>,
    shared: SharedContent,
    changed: Arc<Notify>,
    crds: watch::Receiver<Crds>,
    reader: Reader,
}

impl KindFollower {
    pub(super) fn new(
        cluster: Arc<Cluster>,
        shared: SharedContent,
        namespace: Option<String>,
        origin: Origin,
        changed: Arc<Notify>,
    ) -> Self {
        let crds = cluster.crds.subscribe();
        let kind = shared.kind;
        let reader = Reader { kind, api_version: kind.api_version(), origin };
        Self { cluster, kind, namespace, shared, changed, crds, reader }
    }

    /// Waits until the kind can be read, and gives its version.
    async fn version(&mut self) -> String {
        loop {
            let presence = self.crds.borrow_and_update().presence(self.kind);
            match presence {
                Presence::Present(version) | Presence::Possible(version) => return version,
                Presence::Unknown => {}
                Presence::Absent => {
                    let mut content = self.shared.lock();
                    content.answer();
                    content.report.absent();
                    drop(content);
                    self.changed.notify_one();
                }
            }
            if self.crds.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the sources are complete without this kind when it is forbidden: Secrets, which many clusters hide, tags of
    /// revisions, kinds outside of the selected namespaces, and of a remote cluster all kinds that its services do not need.
    fn may_be_missing(&self) -> bool {
        let narrowed = !self.cluster.settings().watch_namespaces.is_empty();
        let is_beside = is_custom(self.kind) || self.kind == Kind::ConfigMap;
        let beside = !self.cluster.origin().is_empty() && is_beside;
        let optional = matches!(self.kind, Kind::Secret | Kind::MutatingWebhookConfiguration);
        optional || beside || (narrowed && !self.kind.namespaced())
    }

    /// Objects go with their CRD. One that is going takes nothing with it: its content stays.
    async fn crd_stands(&self) -> Result<(), End> {
        if !is_custom(self.kind) || *self.crds.borrow() == Crds::Hidden {
            return Ok(());
        }
        match ask(&self.cluster, self.kind).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(End::Absent("the kind is going with its CRD; its last content stays".to_string())),
            Err(error) => Err(End::Renew(error)),
        }
    }
}

impl Follower for KindFollower {
    type Object = RawObject;
    type Item = Item;

    fn target(&mut self) -> BoxFuture<'_, WatchTarget> {
        async {
            let version = self.version().await;
            let resource = resource(self.kind, &version);
            self.reader.api_version.clone_from(&resource.api_version);
            let fields = match self.kind {
                // Of a remote cluster its mesh settings only, and of those the registry reads the trust domain.
                Kind::ConfigMap if !self.cluster.origin().is_empty() => {
                    Some(format!("metadata.name={}", mesh::name(&self.cluster)))
                }
                kind => field_selector(kind).map(str::to_string),
            };
            let labels = label_selector(self.kind).map(str::to_string);
            WatchTarget { resource, namespace: self.namespace.clone(), fields, labels }
        }
        .boxed()
    }

    fn is_expected(&self) -> bool {
        // Servers without admission do not have it.
        self.kind != Kind::MutatingWebhookConfiguration
            && matches!(self.crds.borrow().presence(self.kind), Presence::Present(_))
    }

    fn is_absent(&mut self) -> BoxFuture<'_, bool> {
        async {
            // A role need not name kinds that the cluster does not have, and CRDs need not be shown.
            let hidden = is_custom(self.kind) && *self.crds.borrow() == Crds::Hidden;
            hidden && is_served(&self.cluster, self.kind, &self.reader.api_version).await == Some(false)
        }
        .boxed()
    }

    fn is_waited_for(&self) -> bool {
        !self.shared.lock().is_answered()
    }

    fn shifted(&mut self) -> BoxFuture<'_, ()> {
        async {
            if !is_custom(self.kind) || self.crds.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn read(&mut self, object: RawObject, listing: bool) -> Item {
        let shared = &self.shared;
        self.reader.read(&object, |key: &ConfigKey, hash| listing && shared.lock().is_same(key, hash))
    }

    fn listed(&mut self, list: Vec<Item>) -> BoxFuture<'_, Result<(), End>> {
        async move {
            if self.shared.lock().would_lose(&list) {
                self.crd_stands().await?;
            }
            let mut content = self.shared.lock();
            content.replace(list, Instant::now());
            content.report.lists += 1;
            Ok(())
        }
        .boxed()
    }

    fn told(&mut self, changes: Vec<ObjectChange<Item>>) -> BoxFuture<'_, Result<(), End>> {
        async move {
            if changes.iter().any(|c| matches!(c, ObjectChange::Gone(_))) {
                self.crd_stands().await?;
            }
            let mut content = self.shared.lock();
            for change in changes {
                match change {
                    ObjectChange::Put(item) => content.put(item),
                    ObjectChange::Gone(item) => content.remove(&item.key),
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn report(&mut self, change: &mut dyn FnMut(&mut FeedReport)) {
        let mut content = self.shared.lock();
        change(&mut content.report);
        let answers = match content.report.state {
            FeedState::Absent => true,
            FeedState::Forbidden => self.may_be_missing(),
            _ => false,
        };
        if answers {
            content.answer();
        }
        drop(content);
        self.changed.notify_one();
    }
}
