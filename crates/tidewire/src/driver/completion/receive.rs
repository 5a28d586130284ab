//! Receiving: in many small pieces, or as a stream of large ones.
//!
//! A connection starts with one multishot receive into small pieces, which costs nothing to keep: a piece is picked when bytes
//! arrive. A connection whose pieces come back full sends more than small messages: the cut data is [put together](super::parts),
//! and the connection becomes a *stream*, with one receive of a whole chunk at a time, armed again after the chunk was dealt
//! with. Streams make bulk data cheaper, and keep a flood from taking the whole loop. When the receives of a stream have been
//! small for a while, the connection goes back to small pieces.
//!
//! A pause does nothing at first: bytes that arrive during the pause are kept by the core. Only
//! when these bytes add up to a small piece is a multishot receive cancelled; other receives are
//! not renewed. So a connection that pauses and resumes while little arrives, as most do, pays
//! nothing for it.

use rustix::io::Errno;

use crate::driver::completion::receiver::{Operation, Receiver, Watch};
use crate::driver::completion::ring::Completion;
use crate::driver::completion::sockets::Sockets;
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Once, Operation as Op, Queues};
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::facts::Writing;
use crate::reactor::state::State;

impl<Q: Queues> Sockets<Q> {
    /// Has the socket receive, or stop to. The usual case, that nothing changes, comes first.
    #[inline]
    pub(super) fn read(&mut self, state: &State, on: bool) {
        let index = state.id.index;
        let Some(sock) = self.sock(index) else { return };
        let receiver = &mut sock.receiver;
        receiver.wanted = on;
        if on {
            receiver.unwanted = 0;
        }
        if on && receiver.operation == Operation::Many && receiver.sweep.is_none() {
            return;
        }
        self.change(state);
    }

    /// Starts and cancels operations of a socket as its connection's wishes require.
    fn change(&mut self, state: &State) {
        let index = state.id.index;
        let Some(sock) = self.sock(index) else { return };
        if sock.connecting || sock.is_closing() {
            return;
        }
        let receiver = sock.receiver;
        if receiver.wanted {
            self.unwatch(index);
            match receiver.operation {
                Operation::None => self.receive(index),
                Operation::Many if receiver.sweep.is_some() => self.end_many(index),
                Operation::Once if receiver.sweep.is_some() => self.end_once(index),
                _ => {}
            }
        } else {
            let idle = receiver.operation == Operation::None;
            if receiver.sweep.is_some() && (state.is_paused() || state.input_ended()) {
                self.swept.push(index);
            }
            if idle && state.shows_nothing() && !mistaken(Mistake::WatchNotArmed) {
                self.watch(index);
            }
        }
    }

    /// Arms the receive that suits the connection.
    fn receive(&mut self, index: u32) {
        let share = if self.abilities.share {
            // As much as a stream receives at once.
            self.large.piece_len() as u32
        } else {
            0
        };
        let groups = (self.small.id(), self.large.id());
        let Some((sock, ring)) = self.sock_and_ring(index) else {
            return;
        };
        let token = Token::new(Kind::Receive, sock.generation, index);
        let socket = sock.target(index);
        let receiver = &mut sock.receiver;
        sock.in_flight += 1;
        if receiver.sweep.is_some() || receiver.stream {
            let how = match *receiver {
                Receiver { sweep: Some(_), .. } => Once::OrNot,
                Receiver { more: true, .. } => Once::Now,
                _ => Once::Later,
            };
            receiver.operation = match how {
                Once::OrNot => Operation::Sweep,
                Once::Now | Once::Later => Operation::Once,
            };
            let group = groups.1;
            ring.start(Op::ReceiveOnce { socket, group, how }, token);
        } else {
            receiver.operation = Operation::Many;
            let group = groups.0;
            let many = Op::ReceiveMany {
                socket,
                group,
                share,
            };
            ring.start(many, token);
        }
    }

    /// Takes back a multishot receive.
    fn end_many(&mut self, index: u32) {
        if let Some((sock, ring)) = self.sock_and_ring(index)
            && sock.receiver.operation == Operation::Many
        {
            sock.receiver.operation = Operation::ManyEnding;
            ring.cancel(Token::new(Kind::Receive, sock.generation, index));
        }
    }

    /// Takes back a stream's receive, which would wait for more to come.
    fn end_once(&mut self, index: u32) {
        if let Some((sock, ring)) = self.sock_and_ring(index)
            && sock.receiver.operation == Operation::Once
        {
            sock.receiver.operation = Operation::OnceEnding;
            ring.cancel(Token::new(Kind::Receive, sock.generation, index));
        }
    }

    /// A receive has completed, perhaps to go on.
    pub(super) fn received(&mut self, core: &mut Core, done: Completion) {
        let index = done.token.index;
        let small = self.small.piece_len();
        let Some(sock) = self.sock_of(done.token) else {
            // The buffer cannot be returned: only the socket knows which group it is from.
            debug_assert!(done.buffer().is_none(), "a socket outlives its receives");
            return;
        };
        let receiver = &mut sock.receiver;
        let once = receiver.operation.is_once();
        if !done.more() {
            sock.in_flight -= 1;
            if !mistaken(Mistake::ReceiveNotRearmed) || done.result <= 0 {
                receiver.operation = Operation::None;
            }
        }
        let closing = sock.is_closing();
        let lease = done.buffer().map(|piece| {
            if let Some(lease) = self.taken_early(once, piece) {
                return lease;
            }
            let group = if once {
                &mut self.large
            } else {
                &mut self.small
            };
            group.returned(piece)
        });
        if closing {
            if mistaken(Mistake::BufferForgotten) {
                std::mem::forget(lease);
            } else {
                drop(lease);
            }
            return self.close_if_quiet(core, index);
        }
        match (done.result, lease) {
            (n @ 1.., Some(mut lease)) => {
                let n = n as usize;
                let receiver = &mut self.sock(index).expect("looked at above").receiver;
                receiver.more = done.socket_has_more();
                let is_cut = !once && receiver.is_cut(n, small);
                let wrong = receiver.learn(n, small);
                receiver.sweep = receiver.sweep.map(|rest| rest.saturating_sub(n as u32));
                let swept = receiver.sweep == Some(0);
                core.env.counters.receives.add(1);
                if is_cut || receiver.has_parts {
                    self.put_together(core, index, lease, n, is_cut);
                } else {
                    core.received(index, &mut lease, n);
                }
                if wrong && done.more() {
                    self.end_many(index);
                }
                if swept {
                    self.swept.push(index);
                }
                // The receive is looked at even where the core only kept the bytes: what is armed
                // may have to change.
                core.touch(index);
            }
            (0, _) => {
                self.offer_parts(core, index);
                if core.states[index as usize].is_paused() {
                    core.end_announced(index);
                }
                core.input_ended(index);
            }
            _ => self.receive_failed(core, index, once, done),
        }
    }

    fn receive_failed(&mut self, core: &mut Core, index: u32, once: bool, done: Completion) {
        let sock = self.sock(index).expect("its completion came");
        if sock.receiver.has_parts {
            if done.is(Errno::NOBUFS) && !once {
                // The rest of the cut piece goes into a large piece.
                sock.receiver.stream = true;
                return core.touch(index);
            }
            // A connection that finds no large piece waits for one: waiting connections hold only a
            // part of them.
            if ![Errno::CANCELED, Errno::INTR, Errno::NOBUFS]
                .iter()
                .any(|&e| done.is(e))
            {
                self.offer_parts(core, index);
            }
        }
        if done.is(Errno::NOBUFS) && !mistaken(Mistake::NoBufferFails) {
            let group = if once {
                &mut self.large
            } else {
                &mut self.small
            };
            if !group.ran_dry() {
                core.env.await_buffers();
            }
            let sock = self.sock(index).expect("its completion came");
            sock.receiver.operation = Operation::Starved;
            if !mistaken(Mistake::StarvedCompletionForgotten) {
                self.starved.push_back(done.token);
            }
        } else if done.is(Errno::AGAIN) || done.is(Errno::CANCELED) || done.is(Errno::INTR) {
            let sock = self.sock(index).expect("its completion came");
            sock.receiver.more = false;
            if done.is(Errno::AGAIN) && sock.receiver.sweep.is_some() {
                sock.receiver.sweep = None;
                self.drain_or_pass_on(core, index);
            }
            if !mistaken(Mistake::CancelledReceiveForgotten) {
                core.touch(index);
            }
        } else {
            core.receive_failed(index, done.error().kind());
        }
    }

    /// Gives the kernel the buffers that are free again, and lets the starved try; whether there
    /// were any.
    pub(super) fn feed(&mut self, core: &mut Core) -> bool {
        let there = [self.small.refill(), self.large.refill()];
        if self.starved.is_empty() || there == [0, 0] {
            return false;
        }
        let mut fed = false;
        // Starved connections in the order they came, each once: a connection that finds no piece
        // again queues behind the others.
        for _ in 0..self.starved.len() {
            let Some(token) = self.starved.pop_front() else {
                break;
            };
            let Some(sock) = self.sock_of(token) else {
                continue;
            };
            let large = sock.receiver.stream || sock.receiver.sweep.is_some();
            if there[usize::from(large)] == 0 {
                self.starved.push_back(token);
            } else if sock.receiver.operation == Operation::Starved {
                sock.receiver.operation = Operation::None;
                core.touch(token.index);
                fed = true;
            }
        }
        fed
    }

    // ---- Watching connections that are not read ----

    /// Waits for the peer to finish or to vanish. Each is reported as it happens, so that a peer
    /// that has finished is not reported for ever.
    fn watch(&mut self, index: u32) {
        if let Some((sock, ring)) = self.sock_and_ring(index)
            && sock.watch == Watch::Off
        {
            sock.watch = Watch::On;
            sock.in_flight += 1;
            let token = Token::new(Kind::Watch, sock.generation, index);
            let (fd, events) = (sock.target(index), libc::POLLRDHUP);
            let multi = true;
            ring.start(Op::Poll { fd, events, multi }, token);
        }
    }

    fn unwatch(&mut self, index: u32) {
        if let Some((sock, ring)) = self.sock_and_ring(index)
            && sock.watch == Watch::On
        {
            sock.watch = Watch::Ending;
            ring.cancel(Token::new(Kind::Watch, sock.generation, index));
        }
    }

    /// The watch has seen something, or was taken back.
    pub(super) fn watched(&mut self, core: &mut Core, done: Completion) {
        let index = done.token.index;
        let Some((sock, ring)) = self.sock_and_ring_of(done.token) else {
            return;
        };
        if !done.more() {
            sock.in_flight -= 1;
            sock.watch = Watch::Off;
        }
        if sock.is_closing() {
            return self.close_if_quiet(core, index);
        }
        if !done.more() {
            // The receive was cancelled, or ended by itself. The connection may be wanted again,
            // also after it knows of the end.
            core.touch(index);
        }
        if done.result < 0 {
            return;
        }
        let events = done.result as i16;
        // A Unix socket is hung up as soon as its peer has closed, with all that the peer sent
        // still to be read.
        let reset = libc::POLLHUP * i16::from(core.states[index as usize].peer.endpoint.is_tcp());
        if events & (libc::POLLERR | reset) != 0 {
            // The connection is not read, so the error would not be seen there. Without a
            // descriptor, which one it is stays unknown.
            let error = sock.with(ring, index, |sys, fd| sys.error(fd));
            let failed = events & libc::POLLERR != 0;
            let error = error.unwrap_or(failed.then_some(Errno::CONNRESET));
            if error.is_none() && core.states[index as usize].writing == Writing::Shut {
                // Both sides have closed in order; the data that the peer sent still waits to be
                // read.
                if !core.states[index as usize].knows_peer_end() {
                    core.end_announced(index);
                }
                return;
            }
            let error = error.unwrap_or(Errno::CONNRESET);
            core.failed(index, std::io::Error::from(error).kind());
        } else if !core.states[index as usize].knows_peer_end() {
            core.end_announced(index);
        }
    }
}
