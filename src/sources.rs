//! From the outside world to [`SourceBatch`]es: one supervised actor per source, conversion pure and apart from watching.
//!
//! Invariants: a source that fails deletes nothing; one bad object never stops the others; one batch is in flight per
//! source and its reply is the back-pressure. A source never decides which of two sources wins: that is the store's.

pub mod actor;
pub mod board;
mod deletion_guard;
mod delivery;
pub mod event;
pub mod file;
mod findings_log;
pub mod handle;
pub mod keys;
pub mod kube;
pub mod list;
pub mod mesh;
pub mod names;
pub mod polled;
pub mod port;
mod register;
mod starter;
pub mod trust_bundles;
mod write_error;
pub mod xds;
pub mod yaml;

pub use actor::SourceActor;
pub use board::{SourceBoard, SourceReport, SourceState};
pub use deletion_guard::MassDeletionGuard;
pub use event::{Change, Findings, FurtherFindings, Ignored, MOST_FINDINGS, Refused, SourceBatch, SourceId, Warned};
pub use findings_log::FindingsLog;
pub use handle::SourceHandle;
pub use list::SourceList;
pub use mesh::{MeshSink, MeshSource, check_mesh, read_mesh};
pub use port::{Applied, ConfigSink, Source, SourcePort};
pub use register::SourceRegister;
pub use starter::SourceStarter;
pub use write_error::WriteError;
