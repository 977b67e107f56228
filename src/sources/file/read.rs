//! The text of one file, with the stat that proves later that it is the same.

use std::{
    fs::{self, File, FileType},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    time::{Duration, SystemTime},
};

use super::progress::Progress;

/// A file that changed this recently before it was read may have changed again within the clock's grain.
const RACY: Duration = Duration::from_secs(2);
/// Read between two signs of progress.
const PIECE: u64 = 1 << 20;

/// The metadata of a file, by which a change is noticed without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub len: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stat {
    /// The stat of these metadata.
    #[must_use]
    pub fn of(meta: &fs::Metadata) -> Self {
        Self {
            len: meta.len(),
            device: meta.dev(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Device and inode.
    #[must_use]
    pub const fn id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// The time of the last change of content or metadata, in seconds and nanoseconds since the epoch.
    #[must_use]
    pub const fn changed(&self) -> (i64, i64) {
        self.changed
    }

    /// Whether a file with this stat, read now, can be trusted to be unchanged while the stat stays the same.
    #[must_use]
    pub fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(now).unwrap_or(i64::MAX) - self.changed.0.max(self.modified.0) > RACY.as_secs() as i64
    }
}

/// The reason why a file's text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file.
    #[error("the file is gone")]
    Gone,
    /// It is longer than allowed.
    #[error("the file is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: u64,
    },
    /// It is not UTF-8.
    #[error("byte {offset} is not UTF-8")]
    NotText {
        /// Line of the byte, from 1.
        line: u32,
        /// Offset of the byte, from 0.
        offset: usize,
    },
    /// It is a folder, or a link that is not to be followed.
    #[error("it is not a file")]
    NoFile,
    /// It is no regular file.
    #[error("it is {0}, not a regular file")]
    Special(&'static str),
    /// The file system does not answer.
    #[error("the file system does not answer")]
    NoAnswer,
    /// The system call failed.
    #[error("{0}")]
    Io(io::Error),
}

/// The name of a type of file that is neither a regular file nor a folder.
#[must_use]
pub fn special(kind: FileType) -> &'static str {
    match () {
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_block_device() || kind.is_char_device() => "a device",
        () => "a special file",
    }
}

impl ReadError {
    /// Whether another attempt may succeed although nothing happens to the file: the process may be out of descriptors.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, ReadError::Io(error) if error.kind() != io::ErrorKind::PermissionDenied)
    }
}

/// Reads a file that is at most `limit` bytes long.
///
/// # Errors
/// [`ReadError`].
pub fn read(path: &Path, limit: u64, progress: &Progress) -> Result<(String, Stat), ReadError> {
    let failed = |e: io::Error| if e.kind() == io::ErrorKind::NotFound { ReadError::Gone } else { ReadError::Io(e) };
    // Opening a named pipe waits for its writer.
    regular(&fs::metadata(path).map_err(failed)?)?;
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    regular(&meta)?;
    let stat = Stat::of(&meta);
    if stat.len > limit {
        return Err(ReadError::TooLong { limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stat.len).unwrap_or(0));
    let mut file = file.take(limit.saturating_add(1));
    while (&mut file).take(PIECE).read_to_end(&mut bytes).map_err(failed)? > 0 {
        progress.renew();
    }
    if bytes.len() as u64 > limit {
        return Err(ReadError::TooLong { limit });
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let offset = e.utf8_error().valid_up_to();
        let lines = e.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count();
        ReadError::NotText { line: u32::try_from(lines + 1).unwrap_or(u32::MAX), offset }
    })?;
    Ok((text, stat))
}

fn regular(meta: &fs::Metadata) -> Result<(), ReadError> {
    match meta.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(ReadError::NoFile),
        kind => Err(ReadError::Special(special(kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_encoding_and_type_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.yaml");
        let read = |path: &Path, limit| read(path, limit, &Progress::new());
        fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
        assert!(matches!(read(&path, 100), Err(ReadError::NotText { line: 2, offset: 8 })));
        assert!(matches!(read(&path, 5), Err(ReadError::TooLong { limit: 5 })));
        assert!(matches!(read(&dir.path().join("y"), 5), Err(ReadError::Gone)));
        assert!(matches!(read(dir.path(), 5), Err(ReadError::NoFile)));
        assert!(matches!(read(Path::new("/dev/zero"), 5), Err(ReadError::Special("a device"))));
    }
}
