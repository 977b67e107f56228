//! The file source: folders of YAML and JSON, watched.
//!
//! `parse` (text → documents), `defaults` (of an API server), `scan` (folder → files), `tree` (documents → objects in force)
//! are pure or nearly so; `folder` joins them, `disk` makes file system calls with a deadline, `backlog` bounds the files of
//! a look, `long` parses long files beside the others; `watch` and `source` only move bytes and time. An unchanged file costs
//! a hash, an unchanged document nothing. Once the folder is known, a listing of it is made beside looks at single files, and
//! says nothing about files that were looked at in the meantime.

mod api_server;
mod backlog;
pub mod defaults;
pub mod disk;
mod findings;
pub mod folder;
pub mod load;
mod long;
pub mod parse;
pub mod place;
mod progress;
pub mod read;
pub mod scan;
pub mod settle;
pub mod source;
pub mod tree;
pub mod watch;
pub mod writing;
mod written;

pub use load::{Loaded, load, load_for_api_server, load_written};
pub use source::FileSource;
pub use written::Written;
