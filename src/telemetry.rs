//! Logs and metrics of the process: set up once, at the start.
//!
//! Metric names are Istio's, spelt exactly (`pilot_xds_pushes`, no `_total`), since dashboards query them. Rooms record through
//! the `metrics` facade; this room only installs the recorder and renders it.
//!
//! Logging never waits: lines go through a bounded queue to a thread that writes, and are dropped and counted when nobody
//! reads. A flood of one kind of line is a few lines and a count, text from outside is escaped and cut, and labels of metrics
//! that come from outside are bounded.

mod labels;
mod line;
mod log;
mod metrics;
mod repeats;
mod throttle;
mod writer;

pub use labels::count_rejected;
pub use log::{LogFormat, flush_log, init_log, log_level};
pub use metrics::{Metrics, SetupError};
pub use throttle::LogThrottle;
