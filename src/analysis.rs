//! Analysis across objects: references that lead nowhere, objects that contradict each other, settings without effect.
//!
//! Owns the codes of `istioctl analyze` as far as they concern a mesh without an injector, with their levels and wording, and
//! codes of its own (`PH…`) beside them. A pure room: objects and the push context made of them in, messages out; the place of
//! a field in its file is found by the caller from the path in the message.
//!
//! Invariants: the messages depend on the inputs alone, in a fixed order. What a folder does not show is not judged: a selector
//! is only looked for where there are workloads, a host of the cluster where there are Services, a Gateway where there are
//! Gateways, a credential where there are Secrets, since files often hold one part of a mesh.

mod annotation_table;
mod annotations;
mod clusters;
mod code;
mod conflicts;
mod deployments;
mod destination_rules;
mod destinations;
mod effects;
mod envoy_filters;
mod gateway_api;
mod gateways;
mod message;
mod mutual_tls;
mod networks;
mod object;
mod policies;
mod references;
mod routes;
mod schema;
mod selectors;
mod services;
mod shadowing;
mod words;
mod world;

pub use code::{Code, Level};
use message::Report;
pub use message::{Message, Subject, Suppression};
pub use object::{Content, Object};
use world::World;

use crate::push::PushContext;

/// Analyses objects. `context` is made of those among them that are read; `now` is in seconds since the Unix epoch, for the
/// expiry of certificates.
#[must_use]
pub fn analyze(objects: &[Object], context: &PushContext, now: i64) -> Vec<Message> {
    let world = World::of(objects, context, now);
    let mut report = Report::default();
    for analyzer in ANALYZERS {
        analyzer(&world, &mut report);
    }
    report.into_messages(objects)
}

const ANALYZERS: &[fn(&World<'_>, &mut Report)] = &[
    schema::analyze,
    effects::analyze,
    annotations::analyze,
    references::analyze,
    routes::analyze,
    shadowing::analyze,
    conflicts::analyze,
    gateways::analyze,
    destination_rules::analyze,
    services::analyze,
    deployments::analyze,
    selectors::analyze,
    policies::analyze,
    mutual_tls::analyze,
    envoy_filters::analyze,
    gateway_api::analyze,
    networks::analyze,
    clusters::analyze,
];
