//! The metrics that tell the present: read from the rooms when `/metrics` is asked for, under istiod's names where it has one.

mod objects;

use std::{
    collections::HashSet,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    AdminState,
    standing::{Standing, standing},
};
use crate::{
    discovery::Connection,
    model::{HealthStatus, ServiceTarget},
    push::PushContext,
    sources::{SourceState, kube::SyncStatus},
    telemetry::{Family, exposition},
    xds::{ResourceType, largest_request},
};
pub use objects::Measures;

/// All metrics of the present.
pub(super) fn text(state: &AdminState) -> String {
    let mut families = sources(state);
    families.extend(clusters(state));
    families.extend(proxies(state));
    families.extend(views(state));
    families.extend(queues(state));
    if let Some(context) = state.context() {
        families.extend(state.measures.families(&context, &state.store.snapshot()));
    }
    exposition(&families)
}

fn sources(state: &AdminState) -> Vec<Family> {
    let mut age = Family::gauge("pilothouse_source_age_seconds", "Seconds since a source last looked at its place.");
    let mut states = Family::gauge("pilothouse_source_state", "1 for the state that a source is in, 0 for the others.");
    let mut objects = Family::gauge("pilothouse_source_objects", "Objects of a source that are in force.");
    let mut refused = Family::gauge("pilothouse_source_refused", "Documents and objects of a source that are refused.");
    let mut kept = Family::gauge(
        "pilothouse_source_kept",
        "Objects in force as they were, since their present document is refused or their place is gone.",
    );
    let mut held = Family::gauge("pilothouse_source_held_deletions", "Deletions that wait for their confirmation.");
    let mut restarts = Family::counter("pilothouse_source_restarts", "Restarts of a source.");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    for source in state.sources.all().iter() {
        let report = source.board.read();
        let name = || [("source", report.source.to_string())];
        let seen = if report.last_look > 0 { report.last_look } else { report.since };
        age.add(name(), now.saturating_sub(seen) as f64);
        for (is, label) in [
            (SourceState::Starting, "starting"),
            (SourceState::Synced, "synced"),
            (SourceState::Stale, "stale"),
            (SourceState::Holding, "holding"),
        ] {
            let labels = [("source", report.source.to_string()), ("state", label.to_string())];
            states.add(labels, f64::from(u8::from(report.state == is)));
        }
        objects.add(name(), report.objects as f64);
        refused.add(name(), report.findings.count_refused() as f64);
        kept.add(name(), report.kept.len() as f64);
        held.add(name(), report.held_deletions.len() as f64);
        restarts.add(name(), f64::from(report.restarts));
    }
    vec![age, states, objects, refused, kept, held, restarts]
}

fn clusters(state: &AdminState) -> Vec<Family> {
    let mut count = Family::gauge("istiod_managed_clusters", "Number of clusters managed by istiod");
    let mut sync = Family::gauge(
        "istiod_remote_cluster_sync_status",
        "Synchronization state of remote clusters; 1 for the state that a cluster is in.",
    );
    let clusters = state.sources.remotes();
    let (all, local) = (clusters.statuses(), usize::from(clusters.has_main()));
    for (kind, number) in [("local", local), ("remote", all.len().saturating_sub(local))] {
        count.add([("cluster_type", kind.to_string())], number as f64);
    }
    for cluster in all.iter().skip(local) {
        let is = match cluster.sync_status {
            SyncStatus::Synced => "synced",
            SyncStatus::Syncing => "syncing",
            SyncStatus::Timeout => "timeout",
        };
        for status in ["synced", "syncing", "timeout", "closed"] {
            let labels = [
                ("cluster", cluster.id.clone()),
                ("cluster_type", "remote".to_string()),
                ("status", status.to_string()),
            ];
            sync.add(labels, f64::from(u8::from(is == status)));
        }
    }
    vec![count, sync]
}

/// The types whose held back resources are counted.
const SHOWN: [ResourceType; 4] =
    [ResourceType::Cluster, ResourceType::Endpoint, ResourceType::Listener, ResourceType::Route];

fn proxies(state: &AdminState) -> Vec<Family> {
    let mut by_state = Family::gauge(
        "pilothouse_proxies",
        "Connected proxies: in sync, waiting for a part of the configuration in force, or with a refusal that stands.",
    );
    let mut held_back = Family::gauge(
        "pilothouse_resources_held_back",
        "Resources that are held back from proxies since they refuse them, by type.",
    );
    let connections: Vec<Arc<Connection>> = state.xds.connections().into_iter().filter(|c| c.is_proxy()).collect();
    let (mut synced, mut waiting, mut refused) = (0u32, 0u32, 0u32);
    let mut held = [0usize; SHOWN.len()];
    for connection in &connections {
        for (kind, held) in SHOWN.iter().zip(&mut held) {
            *held += connection.status(*kind).held_back.len();
        }
        match standing(connection) {
            Standing::Refused => refused += 1,
            Standing::Behind => waiting += 1,
            Standing::InSync | Standing::Idle => synced += 1,
        }
    }
    for (label, count) in [("synced", synced), ("waiting", waiting), ("refused", refused)] {
        by_state.add([("state", label.to_string())], f64::from(count));
    }
    for (kind, held) in SHOWN.iter().zip(held) {
        held_back.add([("type", kind.label().to_string())], held as f64);
    }
    let (mut without, mut unready) = (0u32, 0u32);
    if let Some(context) = state.context() {
        for connection in &connections {
            let targets = context.inputs.registry.targets_of(&connection.node);
            without += u32::from(targets.is_empty());
            unready += u32::from(targets.iter().any(|target| is_unready(&context, connection, target)));
        }
    }
    let no_ip = Family::gauge("pilot_no_ip", "Pods not found in the endpoint table, possibly invalid.");
    let not_ready = Family::gauge("pilot_endpoint_not_ready", "Endpoint found in unready state.");
    vec![by_state, held_back, no_ip.of(f64::from(without)), not_ready.of(f64::from(unready))]
}

/// Whether a proxy's own endpoint of a service is not ready.
fn is_unready(context: &PushContext, connection: &Connection, target: &ServiceTarget) -> bool {
    let own: HashSet<&str> = connection.node.ips.iter().map(|ip| &**ip).collect();
    let set = context.endpoints().get(&target.service.hostname, &target.service.namespace);
    set.is_some_and(|set| {
        let mut of_proxy = set.iter().filter(|e| e.addresses.first().is_some_and(|address| own.contains(&**address)));
        of_proxy.any(|endpoint| endpoint.health == HealthStatus::UnHealthy)
    })
}

fn views(state: &AdminState) -> Vec<Family> {
    let load = state.xds.load();
    let (builds, resources) = state.xds.build_counts();
    let (hits, misses) = state.xds.cache_reads();
    let mut reads = Family::counter("xds_cache_reads", "Total number of xds cache xdsCacheReads.");
    reads.add([("type", "hit".to_string())], hits as f64);
    reads.add([("type", "miss".to_string())], misses as f64);
    vec![
        Family::gauge("pilothouse_views", "Views: sets of inputs that proxies share, each generated once.")
            .of(load.views as f64),
        Family::gauge("pilothouse_slots", "Parts of views, each generated once for all views that share it.")
            .of(load.slots as f64),
        Family::counter("pilothouse_builds", "Runs of a generator for one type of one part of a view.")
            .of(builds as f64),
        Family::gauge("pilothouse_unread_bytes", "Bytes of responses that wait for clients to read.")
            .of(load.unread_bytes as f64),
        Family::gauge("pilothouse_connections", "Open connections, with or without streams.")
            .of(load.connections as f64),
        Family::gauge("pilot_xds_recv_max", "The maximum size request we have received so far.")
            .of(largest_request() as f64),
        reads,
        Family::gauge("xds_cache_size", "Current size of xds cache").of(resources as f64),
        Family::gauge("xds_cache_dependent_config_size", "Current size of dependent configs").of(load.slots as f64),
    ]
}

fn queues(state: &AdminState) -> Vec<Family> {
    let mut depth = Family::gauge("pilot_worker_queue_depth", "Depth of the controller queues");
    let mut restarts = Family::counter("pilothouse_actor_restarts", "Restarts of an actor after a fault.");
    for queue in state.supervision.reports() {
        depth.add([("queueID", queue.actor.to_string())], queue.waiting as f64);
        restarts.add([("actor", queue.actor.to_string())], f64::from(queue.restarts));
    }
    vec![depth, restarts]
}
