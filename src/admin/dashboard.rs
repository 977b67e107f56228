//! The dashboard: one page, its assets embedded, over JSON that is made for it, live over server-sent events.
//!
//! Invariants: the page loads nothing from elsewhere; every answer is bounded, however large the mesh is; equal questions of
//! several pages are answered once; the one request that changes something (the confirmation of a held deletion) is taken from
//! this machine only, and of all web pages from this one only.
//!
//! The views are plain functions of the published state.

mod analysis;
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
mod refusal;
mod resource;
mod service;
mod sources;
mod summary;
mod traffic;

use actix_web::{middleware::from_fn, web};

use super::access::guarded;

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
