//! The successor's side of a conversation.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tidewire::Endpoint;

use crate::message::{Connections, Hello, Listener, Message, Offer};
use crate::wire::Wire;
use crate::{Broken, Handed};

/// How long a running server may take to answer what it can answer at once.
const ANSWER: Duration = Duration::from_secs(10);

/// Why the listeners were not handed over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No server listens at the path.
    #[error("no server can be asked at {path}: {source}")]
    Nobody {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The running server refuses.
    #[error("the running server refuses: {0}")]
    Refused(String),
    /// The conversation with the running server was cut short.
    #[error("{0}")]
    Broken(Broken),
}

impl From<Broken> for ClaimError {
    fn from(broken: Broken) -> ClaimError {
        match broken {
            Broken::Refused(why) => ClaimError::Refused(why),
            broken => ClaimError::Broken(broken),
        }
    }
}

/// How a running server has let go of its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The other server ended in order.
    InOrder,
    /// The other server has ended meanwhile; its sockets are free.
    ItHasGone,
}

/// A conversation with the running server whose sockets are taken over. Dropping the claim before
/// [`serving`](Claim::serving) tells the running server to go on.
#[derive(Debug)]
pub struct Claim {
    wire: Wire,
}

impl Claim {
    /// Asks the server behind this control socket for its sockets.
    ///
    /// # Errors
    /// See [`ClaimError`]; the running server goes on then.
    pub fn ask(path: &Path, hello: Hello) -> Result<(Claim, Offer, Vec<Handed>), ClaimError> {
        let socket = connect(path).map_err(|e| ClaimError::Nobody {
            path: path.to_owned(),
            source: e.into(),
        })?;
        let claim = Claim {
            wire: Wire::of_friend(socket)?,
        };
        claim.wire.patience(ANSWER)?;
        let offer = match claim.wire.ask(Message::Hello(hello))?.0 {
            Message::Offer(offer) => offer,
            other => return Err(unexpected(&other).into()),
        };
        let mut all: VecDeque<Handed> = VecDeque::new();
        for _ in 0..offer.packets {
            let (message, sockets) = claim.wire.receive()?;
            let Message::Listener(listener) = message else {
                return Err(unexpected(&message).into());
            };
            if sockets.is_empty() || sockets.len() != listener.sockets {
                return Err(unexpected(&Message::Listener(listener)).into());
            }
            let handed = handed(listener, sockets)?;
            match all.back_mut() {
                Some(last) if last.service == handed.service && last.at == handed.at => {
                    last.sockets.extend(handed.sockets);
                }
                _ => all.push_back(handed),
            }
        }
        Ok((claim, offer, all.into()))
    }

    /// Has the running server accept nothing more and let go of its logs, and waits for that,
    /// `most` at the longest. Until [`serving`](Claim::serving) connecting clients wait in the
    /// queues.
    ///
    /// # Errors
    /// The predecessor refuses, or does not let go.
    pub fn take(&self, most: Duration) -> Result<Released, ClaimError> {
        self.wire.patience(most.max(Duration::from_millis(1)))?;
        match self.wire.ask(Message::Take {}) {
            Ok((Message::Released {}, _)) => Ok(Released::InOrder),
            Ok((other, _)) => Err(unexpected(&other).into()),
            Err(Broken::Gone) => Ok(Released::ItHasGone),
            Err(broken) => Err(broken.into()),
        }
    }

    /// Says that this process accepts, and waits for the running server to agree that it ends. If
    /// the predecessor has gone, or does not answer, no agreement is needed, and this process goes
    /// on. Connections may follow if both servers support that.
    ///
    /// # Errors
    /// The predecessor refuses, and goes on; this process is to end.
    pub fn serving(self) -> Result<Option<Following>, ClaimError> {
        self.wire.patience(ANSWER)?;
        match self.wire.ask(Message::Serving {}) {
            Ok((Message::Go { connections: true }, _)) => {
                self.wire.wait_without_end()?;
                Ok(Some(Following { wire: self.wire }))
            }
            Ok((Message::Go { .. }, _)) | Err(Broken::Gone | Broken::Silent) => Ok(None),
            Ok((other, _)) => Err(unexpected(&other).into()),
            Err(broken) => Err(broken.into()),
        }
    }

    /// Gives the claim up, and tells the other server why.
    pub fn refuse(self, why: &str) {
        self.wire.refuse(why);
    }
}

/// Connections that follow from a server that ends: it had accepted them, and had read nothing from them.
#[derive(Debug)]
pub struct Following {
    wire: Wire,
}

/// Some of the accepted connections, of one listening address.
#[derive(Debug)]
pub struct Followed {
    /// The name of the service, which both servers use.
    pub service: String,
    /// The address at which the connections were accepted.
    pub at: Endpoint,
    /// The connections.
    pub sockets: Vec<std::os::fd::OwnedFd>,
}

impl Following {
    /// Waits for the next connections; `None` once the other server has ended.
    ///
    /// # Errors
    /// The message is not understood. The sockets that came with the packet are closed.
    #[expect(clippy::should_implement_trait, reason = "it waits, and may fail")]
    pub fn next(&mut self) -> Result<Option<Followed>, Broken> {
        let (message, sockets) = match self.wire.receive() {
            Err(Broken::Gone) => return Ok(None),
            other => other?,
        };
        let Message::Connections(Connections { service, at, .. }) = message else {
            return Err(unexpected(&message));
        };
        let at = at
            .parse()
            .map_err(|_| Broken::Unexpected(format!("connections of {at:?}")))?;
        Ok(Some(Followed {
            service,
            at,
            sockets,
        }))
    }
}

fn connect(path: &Path) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // If too many successors wait, this call returns an error instead of waiting for ever.
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Send,
        Some(ANSWER),
    )?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn handed(listener: Listener, sockets: Vec<std::os::fd::OwnedFd>) -> Result<Handed, Broken> {
    let at: Endpoint = listener
        .at
        .parse()
        .map_err(|_| Broken::Unexpected(format!("a listener at {:?}", listener.at)))?;
    Ok(Handed {
        service: listener.service,
        at,
        is_given: listener.given,
        owns_file: listener.owns_file,
        sockets,
    })
}

fn unexpected(message: &Message) -> Broken {
    Broken::Unexpected(format!("{message:?}"))
}
