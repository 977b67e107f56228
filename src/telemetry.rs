//! Logs and metrics of the process: set up once, at the start.
//!
//! Metric names are Istio's, spelt exactly (`pilot_xds_pushes`, no `_total`), since dashboards query them. Rooms record through
//! the `metrics` facade; this room only installs the recorder and renders it.

mod log;
mod metrics;

pub use log::{LogFormat, init_log};
pub use metrics::{Metrics, SetupError};
