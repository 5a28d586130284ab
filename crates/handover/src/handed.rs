//! A listening socket on its way from one server to its successor.

use std::io;
use std::os::fd::OwnedFd;

use tidewire::Endpoint;

/// A listening address that is handed over, with all its sockets.
#[derive(Debug)]
pub struct Handed {
    /// The name of the service, which both servers use.
    pub service: String,
    /// The address at which the socket listens.
    pub at: Endpoint,
    /// The service manager's, which has passed it on: the successor need not ask for it in its settings.
    pub is_given: bool,
    /// The socket has a file, made by the predecessor, which the successor removes in the end.
    pub owns_file: bool,
    /// One socket, or one for each loop of the predecessor that accepted for itself.
    pub sockets: Vec<OwnedFd>,
}

impl Handed {
    /// A copy of the handed sockets, with descriptors of its own.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Handed> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone);
        Ok(Handed {
            service: self.service.clone(),
            at: self.at.clone(),
            is_given: self.is_given,
            owns_file: self.owns_file,
            sockets: sockets.collect::<io::Result<_>>()?,
        })
    }
}
