//! Announcing what several connections have received before the first of their protocols is called,
//! for protocols that [look ahead](crate::Protocol::look_ahead).

use crate::driver::completion::ring::Completion;
use crate::driver::completion::sockets::{Early, Sockets};
use crate::driver::completion::token::Kind;
use crate::kernel::queues::Queues;
use crate::memory::buffer::Lease;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::{Core, LOOK_AHEAD_MAX};

impl<Q: Queues> Sockets<Q> {
    /// Announces what the completions of a turn have brought.
    pub(super) fn look_ahead(&mut self, core: &mut Core) {
        let batch = std::mem::take(&mut self.batch);
        let receives = batch.iter().filter(|d| d.token.kind == Kind::Receive);
        for done in receives.take(LOOK_AHEAD_MAX) {
            self.announce(core, *done);
        }
        self.batch = batch;
    }

    fn announce(&mut self, core: &mut Core, done: Completion) {
        let Ok(len @ 1..) = usize::try_from(done.result) else {
            return;
        };
        let Some(sock) = self.sock_of(done.token) else {
            return;
        };
        if sock.is_closing() || !core.looks_ahead(done.token.index) {
            return;
        }
        let large = sock.receiver.takes_large();
        if let Some(piece) = done.buffer() {
            let group = if large {
                &mut self.large
            } else {
                &mut self.small
            };
            let mut lease = group.returned(piece);
            core.look_ahead(done.token.index, &lease.space()[..len]);
            self.early.push_back(Early {
                large,
                piece,
                lease,
            });
        }
    }

    /// The piece of a completion, if it was taken already.
    #[inline]
    pub(super) fn taken_early(&mut self, large: bool, piece: u16) -> Option<Lease> {
        if self.early.is_empty() || mistaken(Mistake::EarlyTakenTwice) {
            return None;
        }
        let mut all = self.early.iter();
        let at = all.position(|early| early.large == large && early.piece == piece)?;
        Some(self.early.remove(at)?.lease)
    }
}
