//! A group of kinds of one cluster as a source: feeds fill contents, the source delivers their changes.
//!
//! Contents outlive a run, so that a restart begins with the last good ones. Changes that come while a batch is under way
//! are parts of the next.

use std::{collections::HashSet, sync::Arc, time::Instant};

use anyhow::bail;
use futures::future::BoxFuture;
use metrics::counter;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use super::{
    Cluster, FeedReport, FeedState, Group,
    admit::is_ours,
    content::Content,
    crds::CrdFollower,
    feed::{KindFollower, SharedContent},
    groups::crd_name,
    namespaces::Namespaces,
    watch::{BEAT, drive},
};
use crate::{
    model::{Config, ConfigKey, ConfigSet, Kind, Mesh, Origin},
    runtime::{Panicked, catch_task},
    sources::{
        Change, Findings, FindingsLog, Source, SourceId, SourcePort,
        delivery::{Delivery, Request, Status},
    },
};

/// A group of kinds of one cluster as a source.
pub struct KubeSource {
    id: SourceId,
    cluster: Arc<Cluster>,
    group: Group,
    feeds: Vec<(SharedContent, Option<String>)>,
}

impl KubeSource {
    /// The name of a group's source.
    #[must_use]
    pub fn name(cluster: &Cluster, group: Group) -> SourceId {
        format!("kube:{}/{}", cluster.id(), group.as_str()).into()
    }

    /// The source `kube:CLUSTER/GROUP`.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>, group: Group) -> Self {
        let id = Self::name(&cluster, group);
        let settings = cluster.settings();
        let mut feeds = Vec::new();
        for kind in group.kinds().into_iter().filter(|kind| !settings.left_out.contains(kind)) {
            let narrowed = kind.namespaced() && !settings.watch_namespaces.is_empty();
            let mesh_only = group == Group::RemoteRegistry && kind == Kind::ConfigMap;
            let namespaces: Vec<Option<String>> = if mesh_only {
                vec![Some(settings.namespace.clone())]
            } else if narrowed {
                settings.watch_namespaces.iter().cloned().map(Some).collect()
            } else {
                vec![None]
            };
            for namespace in namespaces {
                let report = FeedReport {
                    resource: crd_name(kind).trim_end_matches('.').to_string(),
                    namespace: namespace.clone().unwrap_or_default(),
                    ..FeedReport::default()
                };
                feeds.push((SharedContent::new(kind, Content::new(settings.deletion_hold, report)), namespace));
            }
        }
        Self { id, cluster, group, feeds }
    }
}

impl Source for KubeSource {
    fn id(&self) -> SourceId {
        self.id.clone()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let changed = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        for (shared, namespace) in &self.feeds {
            let (cluster, shared, namespace) = (self.cluster.clone(), shared.clone(), namespace.clone());
            let origin = Origin { source: self.id.clone(), cluster: self.cluster.origin(), ..Origin::default() };
            let changed = changed.clone();
            tasks.spawn(catch_task(async move {
                drive(&cluster, &mut KindFollower::new(cluster.clone(), shared, namespace, origin, changed)).await;
            }));
        }
        if self.group == Group::Discovery {
            let (cluster, board, changed) = (self.cluster.clone(), self.cluster.crd_board.clone(), changed.clone());
            tasks.spawn(catch_task(async move {
                drive(&cluster, &mut CrdFollower::new(cluster.clone(), board, changed)).await;
            }));
        }
        let run = Run {
            feeds: self.feeds.iter().map(|(shared, _)| shared.clone()).collect(),
            shows_crds: self.group == Group::Discovery,
            namespaces: self.cluster.namespaces.subscribe(),
            mesh: self.cluster.mesh(),
            cluster: self.cluster.clone(),
            published: ConfigSet::default(),
            log: FindingsLog::new(self.id.clone()),
            delivery: Delivery::new(self.id.clone(), port, false),
        };
        Box::pin(run.run(tasks, changed))
    }
}

struct Run {
    cluster: Arc<Cluster>,
    feeds: Vec<SharedContent>,
    /// The state of the watch of CRDs is part of this source's report.
    shows_crds: bool,
    namespaces: watch::Receiver<Namespaces>,
    mesh: watch::Receiver<Arc<Mesh>>,
    /// The objects that the store holds once every batch is taken.
    published: ConfigSet,
    log: FindingsLog,
    delivery: Delivery,
}

impl Run {
    async fn run(mut self, mut tasks: JoinSet<Result<(), Panicked>>, changed: Arc<Notify>) -> anyhow::Result<()> {
        // Changes before this run were not delivered by it.
        let mut anew = true;
        loop {
            self.settle();
            self.select_namespaces();
            self.recall().await;
            let change = self.changes(anew);
            if self.is_deliverable() {
                self.delivery.send(change, || self.published.iter().cloned().collect()).await;
            }
            self.report();
            anew = false;
            let soon = self.feeds.iter().filter_map(|f| f.lock().held_until()).min();
            let retry = self.delivery.retry_at(Instant::now()).filter(|_| self.is_deliverable());
            let until = soon.into_iter().chain(retry).fold(Instant::now() + BEAT, Instant::min);
            tokio::select! {
                biased;
                ended = tasks.join_next() => match ended {
                    Some(Err(error)) => bail!("a feed failed: {error}"),
                    Some(Ok(Err(panicked))) => bail!("a feed {panicked}"),
                    _ => bail!("a feed ended"),
                },
                request = self.delivery.request() => match request {
                    Request::Stop => return Ok(()),
                    Request::Resync => self.delivery.owe_full(),
                    Request::Confirm => self.feeds.iter().for_each(|f| f.lock().confirm(Instant::now())),
                },
                Ok(()) = self.namespaces.changed() => anew = true,
                Ok(()) = self.mesh.changed() => {}
                () = changed.notified() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    /// Puts saved versions in force of objects that are refused from the beginning.
    async fn recall(&self) {
        let forgotten = |feed: &SharedContent| feed.lock().take_forgotten();
        let forgotten: HashSet<ConfigKey> = self.feeds.iter().flat_map(forgotten).collect();
        if forgotten.is_empty() {
            return;
        }
        let saved = self.delivery.saved().await;
        for config in saved.into_iter().filter(|config| forgotten.contains(&config.key())) {
            if let Some(feed) = self.feeds.iter().find(|feed| feed.kind == config.kind()) {
                feed.lock().recall(config);
            }
        }
    }

    /// Removes objects whose deletion was held long enough.
    fn settle(&self) {
        let now = Instant::now();
        for feed in &self.feeds {
            let mut content = feed.lock();
            if content.held_until().is_some_and(|at| at <= now) {
                content.settle(now);
            }
        }
    }

    /// Publishes the selected namespaces to all sources of the cluster.
    fn select_namespaces(&self) {
        let Some(feed) = self.feeds.iter().find(|f| f.kind == Kind::Namespace) else { return };
        let content = feed.lock();
        // Without the right to see namespaces it is unknown which are selected.
        let known = content.is_answered() && content.report.lists > 0;
        let selected = Namespaces::select(&self.mesh.borrow(), known.then(|| content.objects()));
        drop(content);
        self.cluster.namespaces.send_if_modified(|now| {
            // A selection that is unknown takes no namespace away.
            let other = *now != selected && selected != Namespaces::Unknown;
            if other {
                *now = selected;
            }
            other
        });
    }

    /// Whether everything is known that a first snapshot needs.
    fn is_complete(&self) -> bool {
        self.feeds.iter().all(|f| f.lock().is_answered()) && *self.namespaces.borrow() != Namespaces::Unknown
    }

    /// Whether the batch that comes next can be sent: changes always, a full snapshot when its content is known.
    fn is_deliverable(&self) -> bool {
        !self.delivery.owes_full() || self.is_complete()
    }

    /// Brings the published objects up to the contents. `anew` looks at every object, not only at changed ones.
    fn changes(&mut self, anew: bool) -> Change {
        let is_deliverable = self.is_deliverable();
        let namespaces = self.namespaces.borrow_and_update().clone();
        let (mut upserts, mut deletes) = (Vec::new(), Vec::new());
        if !is_deliverable {
            // The full snapshot that is owed will be made of the contents.
            return Change::Delta { upserts, deletes };
        }
        let all = anew || self.delivery.owes_full();
        let revision = &self.cluster.settings().revision;
        let mut wanted = Vec::new();
        for feed in &self.feeds {
            let mut content = feed.lock();
            let changes = content.take_changes();
            if all {
                wanted.extend(content.objects().filter(|c| is_ours(c, &namespaces, revision)).cloned());
                continue;
            }
            for (key, now) in changes {
                match now.filter(|c| is_ours(c, &namespaces, revision)) {
                    Some(config) => {
                        let before = self.published.insert(config.clone());
                        upserts.extend(is_news(before.as_ref(), &config).then_some(config));
                    }
                    None => {
                        let gone = self.published.remove(&key.within(&self.cluster.origin()));
                        deletes.extend(gone.is_some().then_some(key).inspect(|key| count(key.kind, "delete")));
                    }
                }
            }
        }
        if all {
            let before = std::mem::replace(&mut self.published, wanted.into_iter().collect());
            let gone = before.iter().filter(|c| !self.published.contains(*c));
            deletes.extend(gone.map(|c| c.key()).inspect(|key| count(key.kind, "delete")));
            upserts.extend(self.published.iter().filter(|c| is_news(before.get(*c), c)).cloned());
        }
        Change::Delta { upserts, deletes }
    }

    /// Writes the report.
    fn report(&mut self) {
        let mut reports = Vec::new();
        let (mut held, mut kept, mut findings, mut refused) = (Vec::new(), Vec::new(), None, None);
        let changed = self.feeds.iter().fold(false, |any, f| f.lock().take_findings_changed() | any);
        if changed {
            findings = Some(Findings::default());
        }
        for feed in &self.feeds {
            let content = feed.lock();
            reports.push(FeedReport { objects: content.len(), ..content.report.clone() });
            if content.report.state == FeedState::Forbidden && !content.is_answered() {
                refused.get_or_insert_with(|| trouble_of(&content.report));
            }
            held.extend(content.held().map(|c| c.key().to_string()));
            kept.extend(content.refused().filter_map(|(_, c)| c).map(|c| c.key().to_string()));
            if let Some(findings) = &mut findings {
                findings.refused.extend(content.refused().map(|(r, _)| r.clone()));
                findings.warned.extend(content.warned().cloned());
                findings.bound();
            }
        }
        let crds = self.cluster.crd_board.read();
        let unknown = reports.iter().any(|r| r.state == FeedState::Starting) && is_stale(&crds);
        let waits_for = unknown.then(|| trouble_of(&crds));
        reports.extend(self.shows_crds.then_some(crds));
        if let Some(findings) = findings {
            self.log.log(findings);
        }
        let trouble = refused.or_else(|| reports.iter().find(|r| is_stale(r)).map(trouble_of)).or(waits_for);
        let status = Status {
            objects: self.published.len(),
            is_stale: trouble.is_some(),
            trouble: trouble.unwrap_or_default(),
            held,
            kept,
            findings: changed.then(|| self.log.last().clone()),
        };
        // Troubles of feeds are logged by the cluster, together.
        self.delivery.report(status, |report| report.feeds = reports);
    }
}

/// Whether an object is another than before. Counts it, if so.
fn is_news(before: Option<&Arc<Config>>, now: &Config) -> bool {
    let event = match before {
        Some(old) if old.stamp == now.stamp => return false,
        Some(_) => "update",
        None => "add",
    };
    count(now.kind(), event);
    true
}

/// The error of a feed, in one line.
fn trouble_of(report: &FeedReport) -> String {
    format!("{}: {}", report.resource, report.last_error)
}

/// Whether a feed's content may be old. A feed without objects that may be missing is not.
fn is_stale(report: &FeedReport) -> bool {
    match report.state {
        FeedState::Retrying => true,
        FeedState::Forbidden | FeedState::Absent => report.objects > 0,
        FeedState::Starting | FeedState::Watching => false,
    }
}

/// Counts a change under Istio's names.
fn count(kind: Kind, event: &'static str) {
    let name = match kind {
        Kind::Service => "Services",
        Kind::Pod => "Pods",
        Kind::Node => "Nodes",
        Kind::EndpointSlice => "EndpointSlice",
        // Counted by the store, where config comes from every source.
        _ => return,
    };
    counter!("pilot_k8s_reg_events", "type" => name, "event" => event).increment(1);
}
