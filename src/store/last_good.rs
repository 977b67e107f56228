//! The last good content of each source on disk, for a start at which sources cannot be reached.
//!
//! `format` is the file's bytes, `folder` its place, `keeper` notes changes, writes them a little later off the actors'
//! threads, and puts old content in force for sources that do not deliver in time. Secrets are never written. A file that is
//! damaged, truncated or of another format is refused as a whole and left where it is.

mod folder;
mod format;
mod keeper;

pub use folder::{Folder, FolderError};
pub use format::{FormatError, Saved, decode, encode};
pub use keeper::Keeper;
