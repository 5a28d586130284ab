//! Connections that pass from one process to its successor: only connections of which nothing was
//! read.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::build::builder::Running;
use crate::build::drain::Drain;
use crate::build::engine::Engine;
use crate::kernel::descriptor::Descriptor;
use crate::reach::stop::PassedOn;
use crate::reach::waker::{Command, Unsent, Waker};

/// A connection that was accepted and of which nothing was read: see [`Running::hand_over_unserved`].
#[derive(Debug)]
pub struct Unserved {
    /// The number of the listener that it came by, as in [`Listening::number`](crate::Listening).
    pub listener: u32,
    /// The connection.
    pub socket: OwnedFd,
}

/// Lets connections in that another process has accepted: see [`Running::inbound`].
///
/// ```
/// use tidewire::{Inbound, NotInbound, Unserved};
///
/// fn let_in(inbound: &Inbound, unserved: Unserved) -> Result<(), NotInbound> {
///     inbound.accept(unserved)
/// }
/// ```
#[derive(Clone)]
pub struct Inbound {
    engine: Engine,
    acceptors: Vec<Arc<Waker>>,
    next: Arc<AtomicUsize>,
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbound({})", self.engine)
    }
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotInbound {
    /// As many wait for the loops as [`Builder::inbox`](crate::Builder::inbox) allows. The connection comes back.
    #[error("the loops have no room for another connection")]
    NoRoom(Unserved),
    /// All loops have ended. The connection was reset.
    #[error("the loops have ended")]
    Ended,
    /// The socket could not be set up for the engine. The socket was closed.
    #[error("cannot set up the socket: {0}")]
    Socket(#[from] std::io::Error),
}

impl Inbound {
    /// Has a loop take this connection as if the loop had accepted it itself: the admission rules count the connection,
    /// and may refuse it.
    ///
    /// # Errors
    /// See [`NotInbound`].
    pub fn accept(&self, unserved: Unserved) -> Result<(), NotInbound> {
        let Unserved { listener, socket } = unserved;
        // io_uring waits only on sockets that block.
        rustix::io::ioctl_fionbio(&socket, self.engine != Engine::Uring)
            .map_err(std::io::Error::from)?;
        let mut command = Command::Accept {
            socket: Descriptor::Linux(socket),
            listener,
        };
        let first = self.next.fetch_add(1, Relaxed);
        let mut is_full = false;
        for i in 0..self.acceptors.len() {
            let waker = &self.acceptors[(first + i) % self.acceptors.len()];
            command = match waker.send(command) {
                Ok(()) => return Ok(()),
                Err(Unsent::NoRoom(command)) => {
                    is_full = true;
                    *command
                }
                Err(Unsent::Ended(command)) => *command,
            };
        }
        match command {
            Command::Accept {
                socket: Descriptor::Linux(socket),
                listener,
            } if is_full => Err(NotInbound::NoRoom(Unserved { listener, socket })),
            Command::Accept { socket, .. } => {
                socket.reset_on_close();
                Err(NotInbound::Ended)
            }
            Command::Adopt { .. } | Command::Dial { .. } | Command::Look | Command::Answered(_) => {
                unreachable!("what was sent comes back")
            }
        }
    }
}

impl Running {
    /// Lets in connections that another process has accepted and of which it has read nothing: the successor's side of
    /// [`hand_over_unserved`](Running::hand_over_unserved).
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::time::Duration;
    /// use tidewire::{Builder, Drain, EngineChoice, Inbound, Listen, NotInbound, Running, Unserved, on_input};
    ///
    /// /// What has left the old loops is let in by the new ones.
    /// fn pass_on(drain: &Drain, inbound: &Inbound) {
    ///     for unserved in drain.take_unserved() {
    ///         let mut next: Option<Unserved> = Some(unserved);
    ///         while let Some(unserved) = next.take() {
    ///             match inbound.accept(unserved) {
    ///                 Ok(()) => {}
    ///                 Err(NotInbound::NoRoom(back)) => next = Some(back),
    ///                 Err(lost) => eprintln!("{lost}"),
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// let echo = || on_input(|input, link| link.forward_all(input));
    /// let start = |listen: Listen| Builder::new().engine(EngineChoice::Epoll).serve(listen, echo()).start();
    /// let old: Running = start("127.0.0.1:0".into())?;
    /// let mut silent = std::net::TcpStream::connect(&old.addrs()[0])?;
    /// while old.counters().open == 0 {
    ///     std::thread::yield_now();
    /// }
    ///
    /// let new = start("127.0.0.1:0".into())?;
    /// let inbound = new.inbound();
    /// let drain = old.hand_over_unserved(Duration::from_secs(10));
    /// while !drain.wait_for(Duration::from_millis(1)) {
    ///     pass_on(&drain, &inbound);
    /// }
    /// pass_on(&drain, &inbound);
    /// silent.write_all(b"x")?;
    /// silent.read_exact(&mut [0])?;
    /// assert_eq!(new.counters().accepted, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn inbound(&self) -> Inbound {
        Inbound {
            engine: self.engine(),
            acceptors: self.accepting_wakers(),
            next: Arc::default(),
        }
    }

    /// Like [`hand_over`](Running::hand_over), for a successor that also takes connections.
    /// Connections from which nothing was read and to which nothing was written are released; take
    /// them with [`Drain::take_unserved`] and pass them on. The protocols of released connections
    /// are told [`Closed::Stopped`](crate::Closed). A connection in the table of an io_uring
    /// ([`Builder::direct_descriptors`](crate::Builder::direct_descriptors)) cannot be released,
    /// and is served in this process.
    pub fn hand_over_unserved(self, deadline: Duration) -> Drain {
        self.clock().pass_on_unserved();
        self.hand_over(deadline)
    }
}

impl Drain {
    /// Connections that the loops have let go of since the last call: see [`Running::hand_over_unserved`]. More may come
    /// until the drain [is over](Drain::wait_for).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Builder, EngineChoice};
    ///
    /// let running = Builder::new().engine(EngineChoice::Epoll).start()?;
    /// let drain = running.hand_over_unserved(Duration::from_secs(1));
    /// while !drain.wait_for(Duration::from_millis(1)) {}
    /// assert!(drain.take_unserved().is_empty()); // no client had connected
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    #[must_use = "dropping a connection closes it"]
    pub fn take_unserved(&self) -> Vec<Unserved> {
        let owned = |passed: PassedOn| match passed.socket {
            Descriptor::Linux(socket) => Some(Unserved {
                listener: passed.listener,
                socket,
            }),
            Descriptor::Simulated(_) => None,
        };
        let all = self.clock().take_passed_on().into_iter();
        all.filter_map(owned).collect()
    }
}
