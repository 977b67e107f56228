//! A listening Unix socket, for clients on this machine: its file is made with the wanted rights from the first moment, and is
//! removed with the listener.
//!
//! A socket file without a listener, as a process that was killed leaves it, is replaced. Anything else under the path stays: a
//! socket that a process listens on, a file, and a symbolic link, which is not followed.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
        net::{SocketAddr, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::net::UnixListener;

/// A listening Unix socket.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket; removed when it is dropped, unless another one is there by then, or another process has the listener.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    left: Arc<AtomicBool>,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let made = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_path_buf(), id: (made.dev(), made.ino()), left: Arc::default() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.left.load(Ordering::Relaxed)
            && fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl UnixSocket {
    /// Listens at a path; the file has this mode. Must run inside a runtime.
    ///
    /// # Errors
    /// When something else is under the path, or the system refuses it.
    pub fn listen(path: &Path, mode: u32) -> io::Result<Self> {
        // A file may have a longer path than a client of the socket can name.
        SocketAddr::from_pathname(path)?;
        make_room(path)?;
        // Made aside, in a folder that no other user can enter, and moved into place: no moment with other rights.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let aside = Aside::within(parent)?;
        let new = aside.0.join("s");
        let listener = std::os::unix::net::UnixListener::bind(&new)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, path)?;
        let file = SocketFile::of(path)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, file })
    }

    /// The listener that another process made at a path; the file gets this mode. Must run inside a runtime.
    ///
    /// # Errors
    /// When no socket is under the path, or the system refuses it.
    pub fn adopt(listener: std::os::unix::net::UnixListener, path: &Path, mode: u32) -> io::Result<Self> {
        if !fs::symlink_metadata(path)?.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "a file that is no socket is there"));
        }
        listener.set_nonblocking(true)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Ok(Self { listener: UnixListener::from_std(listener)?, file: SocketFile::of(path)? })
    }

    /// Its listener for another process, and the switch that leaves the file where it is.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn share(&self) -> io::Result<(OwnedFd, Arc<AtomicBool>)> {
        Ok((self.listener.as_fd().try_clone_to_owned()?, self.file.left.clone()))
    }

    /// The listener, and its file, which is removed when it is dropped.
    #[must_use]
    pub fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// A folder for a moment.
struct Aside(PathBuf);

impl Aside {
    fn within(parent: &Path) -> io::Result<Self> {
        // A random name, which is not taken yet; short, for a socket's path may have 107 bytes.
        let random = RandomState::new().build_hasher().finish() as u32;
        let path = parent.join(format!(".{random:08x}"));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join("s"));
        let _ = fs::remove_dir(&self.0);
    }
}

/// Fails unless the path is free, or holds a socket without a listener.
fn make_room(path: &Path) -> io::Result<()> {
    let in_the_way = |text: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, text.to_string()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => in_the_way("a file that is no socket is there"),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
            Ok(_) => in_the_way("another process listens there"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn a_socket_file_comes_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("xds.sock");
        for mode in [0o600, 0o660] {
            let socket = UnixSocket::listen(&path, mode).unwrap();
            assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            UnixStream::connect(&path).unwrap();
            assert!(UnixSocket::listen(&path, mode).unwrap_err().to_string().contains("another process"));
            UnixStream::connect(&path).unwrap();
            drop(socket);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("xds.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = UnixSocket::listen(&path, 0o600).unwrap();
        // Another socket under its path is not removed with it.
        fs::remove_file(&path).unwrap();
        let second = UnixSocket::listen(&path, 0o600).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);

        let file = folder.path().join("file");
        fs::write(&file, "kept").unwrap();
        symlink(&file, &path).unwrap();
        for path in [&path, &file] {
            assert!(UnixSocket::listen(path, 0o600).unwrap_err().to_string().contains("no socket"));
        }
        fs::remove_file(&path).unwrap();
        symlink(folder.path().join("nowhere"), &path).unwrap();
        assert!(UnixSocket::listen(&path, 0o600).is_err(), "a dangling link is not followed");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        assert!(UnixSocket::listen(&folder.path().join("no/folder"), 0o600).is_err());
        assert!(UnixSocket::listen(&folder.path().join("a".repeat(200)), 0o600).is_err());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
