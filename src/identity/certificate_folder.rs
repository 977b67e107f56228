//! A folder with the certificate of a workload, for programs that read files: `cert-chain.pem`, `key.pem` and `root-cert.pem`, as
//! Istio's agent names them.
//!
//! The three change at once, as Kubernetes changes the files of a volume: each is a link into `..data`, which is a link to the
//! folder in force. A reader never sees a key of one certificate beside another certificate, and a write that fails leaves the
//! files that there are. The key is readable by its owner alone.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::certificate_request::WorkloadFiles;

/// The certificate, and those between it and a root.
pub const CHAIN: &str = "cert-chain.pem";
/// The private key.
pub const KEY: &str = "key.pem";
/// The roots.
pub const ROOTS: &str = "root-cert.pem";
/// The link to the folder in force.
const DATA: &str = "..data";
/// Begins the names of the folders that were or are in force.
const VERSION: &str = "..certificate-";
/// Held while a process writes.
const LOCK: &str = "..lock";
/// Bytes of a file that is read.
const MAX_FILE: u64 = 1 << 20;

/// A folder that holds the certificate of one workload.
#[derive(Debug, Clone)]
pub struct CertificateFolder {
    path: PathBuf,
}

impl CertificateFolder {
    /// The folder of this path, which may not exist yet.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// The files that are there, if they belong together and the certificate is in force.
    #[must_use]
    pub fn read(&self, now: SystemTime) -> Option<WorkloadFiles> {
        let text = |name: &str| {
            let mut text = String::new();
            io::Read::read_to_string(&mut io::Read::take(File::open(self.path.join(name)).ok()?, MAX_FILE), &mut text)
                .ok()?;
            Some(text)
        };
        WorkloadFiles::judge(text(CHAIN)?, text(KEY)?, text(ROOTS)?, now).ok()
    }

    /// Puts these files in place of those that there are, if any.
    ///
    /// # Errors
    /// The folder cannot be written, or another process is writing to it.
    pub fn write(&self, files: &WorkloadFiles) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        let lock = File::create(self.path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::new(io::ErrorKind::WouldBlock, "another process writes to it"),
        })?;
        let before = fs::read_link(self.path.join(DATA)).ok();
        let number = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let version = format!("{VERSION}{number}");
        let written = self.write_version(&version, files).and_then(|()| {
            self.link(DATA, &version)?;
            [CHAIN, KEY, ROOTS].iter().try_for_each(|name| self.link(name, &format!("{DATA}/{name}")))?;
            File::open(&self.path)?.sync_all()
        });
        if written.is_err() && fs::read_link(self.path.join(DATA)).ok() == before {
            let _ = fs::remove_dir_all(self.path.join(&version));
            return written;
        }
        // A reader may be on its way to the folder before.
        self.remove_versions_but(&[Some(version.into()), before]);
        written
    }

    fn write_version(&self, version: &str, files: &WorkloadFiles) -> io::Result<()> {
        let folder = self.path.join(version);
        fs::create_dir(&folder)?;
        for (name, text, mode) in [(CHAIN, &files.chain, 0o644), (KEY, &files.key, 0o600), (ROOTS, &files.roots, 0o644)]
        {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(folder.join(name))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        File::open(&folder)?.sync_all()
    }

    /// Makes a name a link to this place, whatever it is now, unless it is one.
    fn link(&self, name: &str, to: &str) -> io::Result<()> {
        let path = self.path.join(name);
        if fs::read_link(&path).is_ok_and(|there| there == Path::new(to)) {
            return Ok(());
        }
        let new = self.path.join(format!("{VERSION}link"));
        // Left by a process that was killed.
        let _ = fs::remove_file(&new);
        symlink(to, &new)?;
        fs::rename(&new, &path)
    }

    fn remove_versions_but(&self, kept: &[Option<PathBuf>]) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = PathBuf::from(entry.file_name());
            let is_version = name.to_string_lossy().starts_with(VERSION);
            if is_version && !kept.iter().flatten().any(|kept| *kept == name) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, time::Duration};

    use super::*;
    use crate::{
        identity::authority::{Authority, new_root},
        model::Identity,
    };

    fn files() -> WorkloadFiles {
        let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
        let authority = Authority::new(&new_root("mesh", now, day).unwrap(), now).unwrap();
        let id = Identity::parse("spiffe://mesh/ns/shop/sa/cart").unwrap();
        let issued = authority.issue(&id, day, now).unwrap();
        WorkloadFiles::judge(issued.certificate.chain, issued.key, authority.roots().to_string(), now).unwrap()
    }

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn all_files_change_at_once_and_one_version_is_kept_beside_the_one_in_force() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/certs");
        let folder = CertificateFolder::of(&path);
        let now = SystemTime::now();
        assert!(folder.read(now).is_none());
        let mut last = None;
        for _ in 0..4 {
            let next = files();
            folder.write(&next).unwrap();
            assert_eq!(folder.read(now).as_ref(), Some(&next));
            assert_ne!(last.replace(next.clone()), Some(next));
        }
        // Three links, `..data`, the lock, and two versions.
        assert_eq!(entries(&path), 7);
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(KEY), mode(CHAIN) & 0o600), (0o600, 0o600));
        assert!(folder.read(now + Duration::from_secs(2 * 86_400)).is_none(), "an expired certificate");
    }

    #[test]
    fn files_of_another_program_are_replaced_and_a_failed_write_leaves_those_that_there_are() {
        let root = tempfile::tempdir().unwrap();
        let folder = CertificateFolder::of(root.path());
        fs::write(root.path().join(KEY), "of another program").unwrap();
        fs::create_dir(root.path().join(format!("{VERSION}1"))).unwrap();
        let first = files();
        folder.write(&first).unwrap();
        let now = SystemTime::now();
        assert_eq!(folder.read(now), Some(first.clone()));
        assert_eq!(entries(root.path()), 6, "the leftovers of a killed process are gone");

        let held = File::create(root.path().join(LOCK)).unwrap();
        held.lock().unwrap();
        assert!(folder.write(&files()).unwrap_err().to_string().contains("another process"));
        drop(held);
        // No link can be made.
        let obstacle = root.path().join(format!("{VERSION}link"));
        fs::create_dir(&obstacle).unwrap();
        fs::write(obstacle.join("x"), "").unwrap();
        folder.write(&files()).unwrap_err();
        assert_eq!(folder.read(now), Some(first));
    }
}
