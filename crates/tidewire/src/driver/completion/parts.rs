//! Parts of what a connection's peer has sent, put together before they are offered.
//!
//! A receive into small pieces cuts data that is longer than a piece. When a piece is full and the kernel says that the socket
//! holds more, the kernel has made that cut, not the peer. So the piece waits for the rest, up to a chunk, and the protocol is
//! offered all of it together. A piece waits only for receives that are in flight; the first receive that finds no more ends
//! the waiting.
//!
//! Waiting data stands in a buffer of one chunk. If too much waits already, further data is carried by its connection
//! instead, which costs memory of its own, and is offered in front of the rest.

use crate::driver::completion::receiver::{Operation, Parts};
use crate::driver::completion::sockets::Sockets;
use crate::kernel::queues::Queues;
use crate::memory::buffer::Lease;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;

/// At most one of this many buffers may be filled with waiting pieces at once; the other buffers
/// keep the receives going.
const OF_BUFFERS: usize = 4;

impl<Q: Queues> Sockets<Q> {
    /// Puts a piece behind what waits already; offers all of it unless more is on its way.
    #[cold]
    pub(super) fn put_together(
        &mut self,
        core: &mut Core,
        index: u32,
        mut piece: Lease,
        len: usize,
        more_comes: bool,
    ) {
        let room = self.large.piece_len();
        if self.waits(index).is_none() {
            let most = core.env.pool.pieces() / OF_BUFFERS;
            let is_carried = self.sock(index).is_some_and(|s| s.receiver.has_parts);
            let whole = match more_comes && !is_carried && self.parts.len() < most {
                true => core.env.pool.lease(),
                false => None,
            };
            let Some(whole) = whole else {
                let most = room - self.small.piece_len();
                let waits = more_comes && core.carry_for_more(index, &piece.space()[..len], most);
                self.set_waiting(index, waits);
                if !waits {
                    core.received(index, &mut piece, len);
                }
                return;
            };
            self.parts.push(Parts {
                index,
                whole,
                len: 0,
            });
            self.set_waiting(index, true);
        }
        let at = self.waits(index).expect("it waits, or has begun to");
        let parts = &mut self.parts[at];
        if parts.len + len > room {
            self.offer_parts(core, index);
            return core.received(index, &mut piece, len);
        }
        parts.whole.space()[parts.len..parts.len + len].copy_from_slice(&piece.space()[..len]);
        parts.len += len;
        let is_full = parts.len + self.small.piece_len() > room;
        // The kernel may need the piece before this connection needs it again.
        drop(piece);
        if !more_comes || is_full {
            self.offer_parts(core, index);
        }
    }

    /// Offers what waits of a connection, if anything does.
    pub(super) fn offer_parts(&mut self, core: &mut Core, index: u32) {
        let Some(mut parts) = self.take_parts(index) else {
            if self.sock(index).is_some_and(|s| s.receiver.has_parts) {
                self.set_waiting(index, false);
                core.offer_what_is_carried(index);
            }
            return;
        };
        if mistaken(Mistake::PartsForgotten) {
            return;
        }
        core.received(index, &mut parts.whole, parts.len);
        core.touch(index);
    }

    /// Offers what waits of every connection for which nothing is on its way.
    pub(super) fn offer_stranded(&mut self, core: &mut Core, all: bool) {
        let waiting: Vec<u32> = self.parts.iter().map(|parts| parts.index).collect();
        if waiting.is_empty() {
            return;
        }
        for index in waiting {
            let receiver = self.sock(index).map(|sock| sock.receiver);
            let comes = receiver
                .is_some_and(|receiver| receiver.wanted && receiver.operation != Operation::None);
            if all || !comes {
                self.offer_parts(core, index);
            }
        }
        core.settle_all(self);
    }

    fn take_parts(&mut self, index: u32) -> Option<Parts> {
        let at = self.waits(index)?;
        self.set_waiting(index, false);
        Some(self.parts.swap_remove(at))
    }

    fn waits(&self, index: u32) -> Option<usize> {
        self.parts.iter().position(|parts| parts.index == index)
    }

    fn set_waiting(&mut self, index: u32, on: bool) {
        if let Some(sock) = self.sock(index) {
            sock.receiver.has_parts = on;
        }
    }
}
