//! Sources against bad input: nothing crashes, the other objects stay in force, and the report names the fault and its place.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod files;
mod recorder;
mod resources;
mod upstream;
mod upstream_delta;
mod upstream_tls;

use std::time::Duration;

/// The longest time that a condition in these tests may take to come true.
const DEADLINE: Duration = Duration::from_secs(120);
