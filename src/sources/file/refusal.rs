//! Files that are refused as a whole.

use std::path::Path;

use super::read::ReadError;
use crate::sources::Refused;

/// The finding for a file that cannot be read at all.
#[must_use]
pub fn whole_file(path: &Path, line: u32, reason: String) -> Refused {
    Refused {
        file: path.display().to_string(),
        line,
        column: 0,
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        reason,
    }
}

/// The line that a read error is about; 0 for the whole file.
#[must_use]
pub fn line_of(error: &ReadError) -> u32 {
    match error {
        ReadError::NotText { line, .. } => *line,
        _ => 0,
    }
}
