//! Files that hold keys: written whole or not at all, readable by their owner only.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

/// The folder of identities inside the state folder.
pub(super) const FOLDER: &str = "identity";

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn aside(path: &Path) -> std::path::PathBuf {
    path.with_extension(format!("new-{}", std::process::id()))
}

fn write_aside(path: &Path, content: &[u8]) -> io::Result<std::path::PathBuf> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = aside(path);
    // Left by a process of the same number that was killed.
    let _ = fs::remove_file(&new);
    let written = options().open(&new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(new)
}

/// Writes a file that must not exist yet: of several processes one succeeds.
pub(super) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = write_aside(path, content)?;
    let linked = fs::hard_link(&new, path);
    let _ = fs::remove_file(&new);
    linked
}

/// Writes a file in place of one that may exist.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = write_aside(path, content)?;
    fs::rename(&new, path)
}
