//! The line above every view: the server's state in numbers.

use serde_json::{Value, json};

use crate::{
    admin::{
        AdminState,
        standing::{Standing, standing},
    },
    sources::SourceState,
};

pub(super) fn overview(state: &AdminState) -> Value {
    let snapshot = state.store.snapshot();
    let objects: usize = snapshot.by_kind.values().map(|list| list.len()).sum();
    let sources = state.sources.all();
    let reports: Vec<_> = sources.iter().map(|source| source.board.read()).collect();
    let (mut refused, mut behind) = (0, 0);
    let connections = state.xds.connections();
    for connection in connections.iter().filter(|connection| connection.is_proxy()) {
        match standing(connection) {
            Standing::Refused => refused += 1,
            Standing::Behind => behind += 1,
            Standing::InSync | Standing::Idle => {}
        }
    }
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeSeconds": state.started.elapsed().as_secs(),
        "ready": state.is_ready(),
        "waitingFor": state.readiness.waiting_for(),
        "push": state.xds.current().map_or(0, |published| published.version),
        "proxies": connections.iter().filter(|connection| connection.is_proxy()).count(),
        "refused": refused,
        "behind": behind,
        "services": state.context().map_or(0, |context| context.inputs.registry.services.len()),
        "objects": objects,
        "sources": reports.len(),
        "staleSources": reports.iter().filter(|report| report.state == SourceState::Stale).count(),
        "holdingSources": reports.iter().filter(|report| !report.held_deletions.is_empty()).count(),
        "refusedDocuments": reports.iter().map(|report| report.findings.count_refused()).sum::<usize>(),
    })
}
