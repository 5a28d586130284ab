//! The sockets of a loop: what is in flight for each, and what the core asks of them.
//!
//! A socket is closed, and its connection forgotten, when the last of its operations has
//! completed. Until then the kernel may use the connection's output, and the descriptor's number
//! must not be given to another.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::Shutdown;

use crate::build::listen::TcpOptions;
use crate::driver::completion::ahead::Early;
use crate::driver::completion::probe::Abilities;
use crate::driver::completion::provided::Group;
use crate::driver::completion::receive::{Receiver, Watch};
use crate::driver::completion::ring::{Completion, Ring};
use crate::driver::completion::send::{Gather, Gathers};
use crate::driver::completion::token::{Kind, Token, next_generation};
use crate::driver::connect;
use crate::memory::table::Table;
use crate::reactor::core::{Core, Transport};
use crate::reactor::env::Env;
use crate::reactor::state::State;
use crate::vocabulary::endpoint::Endpoint;

pub(super) struct Sock {
    pub(super) fd: OwnedFd,
    pub(super) generation: u32,
    /// Operations that will still complete. The socket stays open until there are none.
    pub(super) in_flight: u8,
    pub(super) connecting: bool,
    pub(super) receiver: Receiver,
    pub(super) watch: Watch,
    /// The slices of the send in flight, if there are several.
    pub(super) gather: Option<Box<Gather>>,
    /// To be closed, and whether with a reset.
    closing: Option<Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    InOrder,
    Reset,
}

impl Sock {
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }
}

pub(super) struct Sockets<'r> {
    pub(super) ring: Ring<'r>,
    /// Small pieces, for connections that send small messages.
    pub(super) small: Group,
    /// Pieces of a whole chunk, for streams.
    pub(super) large: Group,
    socks: Table<Sock>,
    /// Of the socket made last.
    generation: u32,
    /// Pieces taken from their completions to be announced, in the order of these.
    pub(super) early: VecDeque<Early>,
    /// Connections whose receive found no buffer, and the group it looked in.
    pub(super) starved: VecDeque<Token>,
    /// Connections that may have to be told of a stop once they are settled.
    pub(super) swept: Vec<u32>,
    pub(super) gathers: Gathers,
    dial_options: Arc<TcpOptions>,
    pub(super) abilities: Abilities,
    /// A descriptor was closed, so accepting may go on.
    pub(super) closed_some: bool,
}

impl<'r> Sockets<'r> {
    pub(super) fn new(
        ring: Ring<'r>,
        small: Group,
        large: Group,
        dial_options: Arc<TcpOptions>,
        abilities: Abilities,
    ) -> Sockets<'r> {
        Sockets {
            ring,
            small,
            large,
            socks: Table::new(),
            generation: 0,
            early: VecDeque::new(),
            starved: VecDeque::new(),
            swept: Vec::new(),
            gathers: Gathers::default(),
            dial_options,
            abilities,
            closed_some: false,
        }
    }

    /// Takes the buffers from the kernel. To be called when nothing is in flight.
    pub(super) fn end(self) -> io::Result<()> {
        for group in [self.small, self.large] {
            group.unregister(self.ring.submitter())?;
        }
        Ok(())
    }

    /// Takes in a connection's socket. It must be a blocking one: io_uring waits only on those.
    pub(super) fn insert(&mut self, core: &Core, index: u32, fd: OwnedFd, connecting: bool) {
        self.generation = next_generation(self.generation);
        let sock = Sock {
            fd,
            generation: self.generation,
            in_flight: 0,
            connecting,
            receiver: Receiver::new(core.draining()),
            watch: Watch::Off,
            gather: None,
            closing: None,
        };
        self.socks.put(index as usize, sock);
    }

    #[inline]
    pub(super) fn sock(&mut self, index: u32) -> Option<&mut Sock> {
        self.socks.get_mut(index as usize)
    }

    #[inline]
    pub(super) fn sock_and_ring(&mut self, index: u32) -> Option<(&mut Sock, &mut Ring<'r>)> {
        let sock = self.socks.get_mut(index as usize)?;
        Some((sock, &mut self.ring))
    }

    /// The socket that a completion belongs to, unless it has gone.
    #[inline]
    pub(super) fn sock_of(&mut self, token: Token) -> Option<&mut Sock> {
        self.sock(token.index)
            .filter(|s| s.generation == token.generation)
    }

    pub(super) fn count(&self) -> u32 {
        self.socks.end() as u32
    }

    fn remove(&mut self, index: u32) -> Option<Sock> {
        let sock = self.socks.remove(index as usize)?;
        self.closed_some = true;
        Some(sock)
    }

    /// Closes a socket that is to be closed and of which nothing is in flight.
    pub(super) fn close_if_quiet(&mut self, core: &mut Core, index: u32) {
        let Some(sock) = self.sock(index) else { return };
        let (Some(ending), 0) = (sock.closing, sock.in_flight) else {
            return;
        };
        if ending == Ending::Reset {
            let _ = rustix::net::sockopt::set_socket_linger(&sock.fd, Some(Duration::ZERO));
        }
        self.remove(index);
        core.free(index);
    }

    /// A connect has come to an end.
    pub(super) fn connect_done(&mut self, core: &mut Core, done: Completion) {
        let index = done.token.index;
        let Some(sock) = self.sock_of(done.token) else {
            return;
        };
        sock.in_flight -= 1;
        if sock.is_closing() {
            return self.close_if_quiet(core, index);
        }
        let outcome =
            connect::outcome(&sock.fd).and_then(|()| rustix::io::ioctl_fionbio(&sock.fd, false));
        match outcome {
            Ok(()) => {
                sock.connecting = false;
                core.states[index as usize].peer.ask_kernel(&sock.fd);
                core.connected(index);
            }
            Err(e) => {
                self.remove(index);
                core.connect_failed(index, &e.into());
            }
        }
    }
}

impl Transport for Sockets<'_> {
    fn flush(&mut self, state: &mut State, _env: &mut Env) {
        self.send(state);
    }

    fn set_reading(&mut self, state: &mut State, _env: &mut Env, on: bool) {
        self.read(state, on);
    }

    fn shut_write(&mut self, _core: &mut Core, index: u32) {
        if let Some(sock) = self.sock(index) {
            // Fails only if the connection is broken, which reading will report.
            let _ = rustix::net::shutdown(&sock.fd, Shutdown::Write);
        }
    }

    fn close(&mut self, core: &mut Core, index: u32, reset: bool) {
        // What is left takes as long as it takes: nothing is due any more.
        core.states[index as usize].phase_ends = None;
        let Some(sock) = self.socks.get_mut(index as usize) else {
            return core.free(index);
        };
        if sock.closing.is_some() {
            return;
        }
        sock.closing = Some(if reset {
            Ending::Reset
        } else {
            Ending::InOrder
        });
        if sock.in_flight > 0 {
            self.ring.cancel_all_of(sock.fd.as_fd());
        } else {
            self.close_if_quiet(core, index);
        }
    }

    /// Connects without the ring's help and waits through it: the address need not outlive this
    /// call, and an attempt that is given up leaves nothing behind.
    fn connect(&mut self, core: &mut Core, index: u32, to: Endpoint, from: Option<SocketAddr>) {
        match connect::start(&to, from, &self.dial_options) {
            Ok((fd, _)) => {
                self.insert(core, index, fd, true);
                let sock = &mut self.socks[index as usize];
                sock.in_flight += 1;
                let token = Token::new(Kind::Connect, sock.generation, index);
                self.ring.poll(sock.fd.as_fd(), libc::POLLOUT, false, token);
            }
            Err(e) => core.connect_failed(index, &e),
        }
    }

    fn cancel_connect(&mut self, _core: &mut Core, index: u32) {
        let Some(sock) = self.remove(index) else {
            return;
        };
        self.ring
            .cancel(Token::new(Kind::Connect, sock.generation, index));
        // The kernel must have looked up the descriptor before its number may be reused.
        if let Err(e) = self.ring.submit() {
            tracing::warn!(error = %e, "cannot take back a connect");
        }
    }
}
