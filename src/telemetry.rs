//! Logs, metrics and traces of the process: set up once, at the start.
//!
//! Metric names are Istio's, in its spelling (`pilot_xds_pushes`, no `_total`), because dashboards query them. Rooms record
//! through the `metrics` facade; this room only installs the recorder and renders its metrics.
//!
//! Logging never blocks: lines go through a bounded queue to a writer thread, and are dropped and counted while standard error
//! is blocked. Repeated lines of one kind are reduced to a few lines and a count, external text is escaped and truncated, and
//! metric labels with external values are bounded in number.
//!
//! Traces are off unless OpenTelemetry's environment variables name a collector. They go through a bounded queue as well, and
//! are dropped and counted while the collector does not take them.

mod exposition;
mod labels;
mod line;
mod log;
mod metrics;
mod repeats;
mod scopes;
mod span_tree;
mod throttle;
mod trace_settings;
mod traces;
mod writer;

pub use exposition::{Family, exposition};
pub use labels::{count_rejected, count_rejected_others};
pub use line::LogFormat;
pub use log::{flush_log, init_log, log_level, log_scopes, set_log_levels};
pub use metrics::{Metrics, SetupError};
pub use scopes::{Scope, ScopeLevel, scope_level};
pub use span_tree::SpanTree;
pub use throttle::LogThrottle;
pub use traces::{TraceExport, TraceQueue, traces_of_env};
