//! The dashboard: one page, its assets embedded, over JSON that is made for it, live over server-sent events.
//!
//! Invariants: the page loads nothing from elsewhere; every answer is bounded, however large the mesh is; equal questions of
//! several pages are answered once; the one request that changes something (the confirmation of a held deletion) is taken from
//! this machine only, and of all web pages from this one only.
//!
//! The views are plain functions of the published state.

mod analysis;
mod answers;
mod api;
mod assets;
mod calls;
mod changes;
mod events;
mod fleet;
mod graph;
mod listing;
mod object;
mod object_text;
mod objects;
mod overview;
mod peers;
mod proxy;
mod pushes;
mod resource;
mod service;
mod sources;
mod summary;
mod traffic;

use std::sync::Arc;

use actix_web::{middleware::from_fn, web};
use tokio::runtime::Handle;

use self::{analysis::Analyses, answers::Answers, changes::Changes, graph::Graphs};
use super::access::guarded;

/// The memory of the dashboard: what its pages share.
#[derive(Debug, Clone)]
pub struct Dashboard {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    changes: Changes,
    answers: Answers,
    analyses: Analyses,
    graphs: Graphs,
}

impl Dashboard {
    /// A dashboard whose notices are made on this runtime, while a page is open.
    #[must_use]
    pub fn on(runtime: &Handle) -> Self {
        let inner = Inner {
            changes: Changes::on(runtime),
            answers: Answers::default(),
            analyses: Analyses::default(),
            graphs: Graphs::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

/// Adds the page and everything below `/dashboard`.
pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/").wrap(from_fn(guarded)).route(web::get().to(assets::page))).service(
        web::scope("/dashboard")
            .wrap(from_fn(guarded))
            .route("/assets/{name}", web::get().to(assets::asset))
            .route("/events", web::get().to(events::events))
            .route("/api/confirm", web::post().to(sources::confirm))
            .route("/api/{page}", web::get().to(api::answer)),
    );
}
