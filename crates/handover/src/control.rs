//! The control socket, at which successors ask.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tidewire::{Endpoint, SocketFile};

use crate::session::Session;
use crate::wire::Wire;
use crate::{Broken, Handed};

/// File mode of the control socket: the owner may ask.
const MODE: u32 = 0o600;
/// Successors that wait to be heard.
const BACKLOG: i32 = 8;

/// A listening control socket; its file is removed when the value is dropped.
///
/// ```
/// use tidewire_handover::{Claim, Control, Hello};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("control.sock");
/// let control = Control::listen(&path)?;
/// let theirs = path.clone();
/// let successor = std::thread::spawn(move || {
///     let hello = Hello { version: "1.0".into(), pid: 1, forget: false, takes_connections: false };
///     Claim::ask(&theirs, hello).err().map(|e| e.to_string())
/// });
/// let session = loop {
///     if let Some(session) = control.accept()? {
///         break session;
///     }
/// };
/// session.refuse("not today");
/// assert!(successor.join().unwrap().unwrap().contains("not today"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
    path: Arc<Path>,
    file: Option<SocketFile>,
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Control {
    /// The name of the control socket for a successor.
    pub const SERVICE: &str = "control";

    /// Listens at a path. A socket file that a dead process has left there is replaced.
    ///
    /// # Errors
    /// `AddrInUse` if a server listens there, or the error of the operating system.
    pub fn listen(path: &Path) -> io::Result<Control> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let file = SocketFile::listen(&socket, path, MODE, BACKLOG)?;
        Ok(Control {
            socket,
            path: path.into(),
            file: Some(file),
        })
    }

    /// Goes on with the control socket of a predecessor. The file stays the predecessor's until this process
    /// [adopts](Control::adopt) it.
    ///
    /// # Errors
    /// The listener has no socket, or none with a path.
    pub fn inherit(handed: Handed) -> io::Result<Control> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let Endpoint::Unix(path) = handed.at else {
            return Err(invalid("a control socket without a path"));
        };
        let mut sockets = handed.sockets.into_iter();
        let socket = sockets.next().ok_or_else(|| invalid("no control socket"))?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Control {
            socket,
            file: None,
            path,
        })
    }

    /// The predecessor has released the socket: this process removes the file at its end. A file
    /// that is already gone need not be removed.
    pub fn adopt(&mut self) {
        if self.file.is_none() {
            self.file = SocketFile::adopt(&self.path).ok();
        }
    }

    /// The path of the control socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A duplicate of the control socket for a successor.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn hand(&self) -> io::Result<Handed> {
        Ok(Handed {
            service: Control::SERVICE.into(),
            at: Endpoint::Unix(self.path.clone()),
            is_given: false,
            owns_file: self.file.is_some(),
            sockets: vec![self.socket.try_clone()?],
        })
    }

    /// Accepts a waiting peer, if there is one, without blocking. A peer of another user
    /// is refused.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn accept(&self) -> io::Result<Option<Session>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(&self.socket, flags) {
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            other => other?,
        };
        match Wire::of_friend(socket) {
            Ok(wire) => Ok(Some(Session::new(wire))),
            // The peer sees the end.
            Err(Broken::Refused(why)) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            Err(Broken::Io(e)) => Err(e),
            Err(_) => Ok(None),
        }
    }

    /// Leaves the file to a successor that has the socket.
    pub fn leave(self) {
        if let Some(file) = self.file {
            file.leave();
        }
    }
}
