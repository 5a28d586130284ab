//! The file of a listening Unix socket: made where no process listens, removed if it is still ours.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Tries to lock the directory, and the pause between them.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The file of a listening Unix socket, removed on drop, unless another file is in its place. The
/// builder's listeners have a `SocketFile` already; use this type for other sockets.
///
/// ```
/// use std::os::unix::net::UnixListener;
/// use tidewire::SocketFile;
///
/// let path = std::env::temp_dir().join(format!("tidewire-doc-{}.sock", std::process::id()));
/// drop(UnixListener::bind(&path)?); // leaves its file behind, as a process does that was killed
/// let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
/// let file = SocketFile::listen(&socket, &path, 0o600, 8)?;
/// assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
/// drop(file);
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    made: Made,
}

/// Identifies a file, so that another file under the same name is noticed. The inode number alone
/// does not suffice: the file system reuses it as soon as it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl Made {
    fn of(path: &Path) -> io::Result<Made> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Made {
            device: meta.dev(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

/// Which users may connect to a Unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

impl SocketFile {
    /// Binds a stream or packet socket to `path`, with this access mode, and has it listen. A socket file that a
    /// dead process has left there is replaced.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there, or if it is no socket; or what the system says.
    pub fn listen(
        socket: &impl AsFd,
        path: &Path,
        mode: u32,
        backlog: i32,
    ) -> io::Result<SocketFile> {
        let access = Access {
            mode: Some(mode),
            ..Access::default()
        };
        SocketFile::listen_as(socket, path, access, backlog)
    }

    pub(crate) fn listen_as(
        socket: &impl AsFd,
        path: &Path,
        access: Access,
        backlog: i32,
    ) -> io::Result<SocketFile> {
        // Two servers may start at once. Neither must take the other's socket, which is bound and
        // not yet listening, for that of a dead process.
        let lock = lock_directory(path)?;
        let addr = SocketAddrUnix::new(path)?;
        match rustix::net::bind(socket, &addr) {
            Err(Errno::ADDRINUSE) => {
                remove_dead(path, &addr, rustix::net::sockopt::socket_type(socket)?)?;
                rustix::net::bind(socket, &addr)?;
            }
            other => other?,
        }
        let file = SocketFile {
            path: path.to_owned(),
            made: Made::of(path)?,
        };
        // No client can connect before it listens, so none slips in under a wider mode.
        let listens = give(path, access).and_then(|()| Ok(rustix::net::listen(socket, backlog)?));
        // The file of one that cannot listen is removed, which takes the lock itself.
        drop(lock);
        listens.map(|()| file)
    }
}

impl SocketFile {
    /// The file that a predecessor has made and left.
    ///
    /// # Errors
    /// The file is not there.
    pub fn adopt(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile {
            path: path.to_owned(),
            made: Made::of(path)?,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file to a successor.
    ///
    /// ```
    /// use std::path::Path;
    /// use tidewire::SocketFile;
    ///
    /// # let path = std::env::temp_dir().join(format!("tidewire-leave-{}.sock", std::process::id()));
    /// let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    /// SocketFile::listen(&socket, &path, 0o600, 8)?.leave();
    /// assert!(path.exists());
    ///
    /// // The successor, which has inherited the socket:
    /// let file = SocketFile::adopt(&path)?;
    /// drop(file);
    /// assert!(!path.exists());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave(self) {
        let mut this = std::mem::ManuallyDrop::new(self);
        drop(std::mem::take(&mut this.path));
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _lock = lock_directory(&self.path);
        if Made::of(&self.path).is_ok_and(|there| there == self.made)
            && let Err(e) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), error = %e, "cannot remove the socket");
        }
    }
}

/// Sets owner and mode of the socket, and of nothing else under its name: a user that may write to
/// the directory could replace the socket with a link to another user's file.
fn give(path: &Path, access: Access) -> io::Result<()> {
    if access == Access::default() {
        return Ok(());
    }
    let there = rustix::fs::open(
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if FileType::from_raw_mode(rustix::fs::fstat(&there)?.st_mode) != FileType::Socket {
        return Err(io::Error::other(
            "another program has put something else in the socket's place",
        ));
    }
    // By the descriptor: the name may mean another file by now.
    let there = format!("/proc/self/fd/{}", there.as_raw_fd());
    if access.uid.is_some() || access.gid.is_some() {
        std::os::unix::fs::chown(&there, access.uid, access.gid)
            .map_err(|e| io::Error::new(e.kind(), format!("its owner cannot be set: {e}")))?;
    }
    match access.mode {
        Some(mode) => fs::set_permissions(&there, Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

/// Removes a socket on which no process listens.
fn remove_dead(path: &Path, addr: &SocketAddrUnix, kind: SocketType) -> io::Result<()> {
    let in_use = |what: &str| io::Error::new(io::ErrorKind::AddrInUse, what);
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(in_use(
            "there is something else than a socket; move it away or choose another path",
        ));
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    match rustix::net::connect(&probe, addr) {
        Err(Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "a socket without a listener is replaced");
            fs::remove_file(path)
        }
        // Gone meanwhile.
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN) => Err(in_use("another process listens there")),
        Err(Errno::PROTOTYPE) => Err(in_use(
            "there is a socket of another type; choose another path",
        )),
        Err(e) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("there is a socket, and whether a server listens there is unknown ({e})"),
        )),
    }
}

/// Keeps others that keep to this out of the directory until the result is dropped. `None` where
/// the directory cannot be opened or the file system knows no locks.
fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) else {
        return Ok(None);
    };
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(directory)),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(_) => return Ok(None),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        "another process holds a lock on the directory of the socket",
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("tidewire-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn listen(path: &Path, access: Access) -> io::Result<(Socket, SocketFile)> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let file = SocketFile::listen_as(&socket, path, access, 8)?;
        Ok((socket, file))
    }

    #[test]
    fn the_dead_are_replaced_and_the_living_are_not() {
        let dir = directory("dead");
        let path = dir.join("it.sock");
        let refused = |what: &str| {
            let e = listen(&path, Access::default()).err().unwrap();
            assert_eq!(e.kind(), io::ErrorKind::AddrInUse);
            assert!(e.to_string().contains(what), "{e}");
        };
        drop(UnixListener::bind(&path).unwrap()); // leaves its file behind
        let (socket, file) = listen(&path, Access::default()).unwrap();
        refused("another process listens");
        drop((socket, file));
        assert!(!path.exists(), "removed in the end");

        fs::write(&path, b"precious").unwrap();
        refused("something else than a socket");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();

        let datagram = UnixDatagram::bind(&path).unwrap();
        refused("another type");
        drop(datagram);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let dir = directory("successor");
        let path = dir.join("it.sock");
        let (socket, file) = listen(&path, Access::default()).unwrap();
        drop(socket); // stopped listening, and still at work
        let (_successor, its_file) = listen(&path, Access::default()).unwrap();
        drop(file);
        assert!(path.exists());
        drop(its_file);
        assert!(!path.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_a_link_points_at_keeps_its_mode() {
        let dir = directory("link");
        let (path, other) = (dir.join("it.sock"), dir.join("other"));
        fs::write(&other, b"").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let access = Access {
            mode: Some(0o666),
            ..Access::default()
        };
        for place in [&path, &other] {
            let e = give(place, access).unwrap_err();
            assert!(e.to_string().contains("something else"), "{e}");
        }
        let mode = fs::metadata(&other).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn mode_and_group_are_as_asked() {
        let dir = directory("mode");
        let path = dir.join("it.sock");
        let access = Access {
            mode: Some(0o620),
            gid: Some(rustix::process::getgid().as_raw()),
            uid: None,
        };
        let (_socket, _file) = listen(&path, access).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.mode() & 0o777, 0o620);
        assert_eq!(Some(meta.gid()), access.gid);
        drop(_file);
        fs::remove_dir_all(dir).unwrap();
    }
}
