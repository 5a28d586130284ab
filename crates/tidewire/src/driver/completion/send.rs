//! Sending: at most one operation in flight for each socket, with all output that was queued when
//! the operation was made.
//!
//! Queued output does not move or change while it is being sent, although more may be queued behind it. Blocks never grow
//! beyond their first allocation, and chunks and shared bytes do not move. Nothing is dropped before
//! [`Env::sent`](crate::reactor::env::Env::sent) or, if the connection dies, [`Core::free`]; both come after the last
//! completion.
//!
//! Sends may be short, by intention: asking the kernel to hold on to one until everything is taken
//! (`MSG_WAITALL`) would hide from the core that a slow peer makes progress, and would let output
//! drain to nothing before a paced protocol could write more.

use std::io::IoSlice;

use rustix::io::Errno;

use crate::driver::completion::gather::SLICES;
use crate::driver::completion::ring::Completion;
use crate::driver::completion::sockets::Sockets;
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Behind;
use crate::kernel::queues::{Operation, Queues};
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::env::Env;
use crate::reactor::sending::FREE;
use crate::reactor::state::State;

/// Bytes of one slice, so that lengths fit.
const SLICE_MAX: usize = 1 << 30;

impl<Q: Queues> Sockets<Q> {
    /// Starts to send what is queued, or as much as is this connection's share of the turn. No send is in
    /// flight.
    pub(super) fn send(&mut self, state: &mut State, env: &mut Env) {
        let index = state.id.index;
        let mut gather = None;
        let Some(sock) = self.sock(index) else { return };
        if sock.is_closing() {
            return;
        }
        let most = env.sending.share_of(state);
        if most == 0 {
            return;
        }
        if most != FREE {
            env.sending.charge(state.out.sendable().min(most));
        }
        sock.in_flight += 1;
        let socket = sock.target(index);
        let token = Token::new(Kind::Send, sock.generation, index);
        debug_assert!(state.may_flush());
        if !mistaken(Mistake::SendBesideSend) {
            state.block_sending();
        }
        let operation = match state.out.single() {
            Some(bytes) => {
                let (from, len) = (bytes.as_ptr(), bytes.len().min(most).min(SLICE_MAX) as u32);
                let behind = Behind::these(bytes.len() > len as usize);
                Operation::Send {
                    socket,
                    from,
                    len,
                    behind,
                }
            }
            None => {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let n = state.out.slices(&mut slices, most);
                let to = gather.insert(self.gathers.take());
                for (to, from) in to.slices.iter_mut().zip(&slices[..n]) {
                    to.iov_base = from.as_ptr().cast_mut().cast();
                    to.iov_len = from.len().min(SLICE_MAX);
                }
                to.header.msg_iov = to.slices.as_mut_ptr();
                to.header.msg_iovlen = n as _;
                let header = &raw const to.header;
                let all = state.out.sendable();
                let sum = |slices: &[IoSlice<'_>]| slices.iter().map(|s| s.len()).sum::<usize>();
                let behind = Behind::these(all > most || n == SLICES && all > sum(&slices));
                Operation::SendSeveral {
                    socket,
                    header,
                    behind,
                }
            }
        };
        // SAFETY: the operation points at queued output, which does not change until the completion
        // has been handled (see the top of this file), and at `gather`, which is kept as long.
        unsafe { self.ring.send(operation, token) };
        if mistaken(Mistake::SlicesReused) {
            return gather
                .into_iter()
                .for_each(|gather| self.gathers.give(gather));
        }
        if gather.is_some() {
            self.sock(index).expect("looked at above").gather = gather;
        }
    }

    /// The send in flight is over.
    pub(super) fn sent(&mut self, core: &mut Core, done: Completion) {
        let index = done.token.index;
        let Some(sock) = self.sock_of(done.token) else {
            debug_assert!(false, "a socket outlives its sends");
            return;
        };
        sock.in_flight -= 1;
        let closing = sock.is_closing();
        if let Some(gather) = sock.gather.take() {
            self.gathers.give(gather);
        }
        core.env.counters.sends.add(1);
        core.states[index as usize].unblock_sending();
        if done.result > 0 {
            let mut sent = done.result as usize;
            if mistaken(Mistake::ShortSendIgnored) {
                sent = core.states[index as usize].out.sendable();
            }
            core.sent(index, sent);
        } else if done.is(Errno::AGAIN) || done.is(Errno::INTR) || done.is(Errno::CANCELED) {
            core.touch(index);
        } else if done.result < 0 && !closing {
            core.failed(index, done.error().kind());
        } else {
            core.touch(index);
        }
        if closing {
            self.close_if_quiet(core, index);
        }
    }
}
