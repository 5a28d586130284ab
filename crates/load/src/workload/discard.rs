//! The discard load: bytes without an answer, as fast as they are taken.

use bytes::Bytes;
use tidewire::Link;

use super::DiscardLoad;
use super::client::Driver;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::stage::Desk;

/// One connection of it.
pub(super) struct Discard {
    size: usize,
    /// A full batch of zeros; sent again and again without a copy.
    batch: Bytes,
    /// Messages still to be sent; `u64::MAX` has no end.
    left: u64,
    /// Messages written that the kernel has not yet taken whole.
    writing: u64,
    flight: Flight,
}

impl Discard {
    pub(super) fn new(load: DiscardLoad, count: u64, flight: Flight) -> Discard {
        Discard {
            size: load.size,
            batch: Bytes::from(vec![0; load.size * load.batch as usize]),
            left: count,
            writing: 0,
            flight,
        }
    }
}

impl Driver for Discard {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if link.full() {
            return self.flight.blocked();
        }
        let taken = std::mem::take(&mut self.writing);
        if taken > 0 {
            desk.count(taken, taken * self.size as u64);
            if desk.measuring() {
                desk.answered(link.clock());
            }
        }
        let most = self.left.min((self.batch.len() / self.size) as u64);
        let messages = self.flight.take(most, link, desk);
        self.flight.forget();
        if messages == 0 {
            return;
        }
        self.left -= if self.left == u64::MAX { 0 } else { messages };
        self.writing = messages;
        link.write_shared(self.batch.slice(..messages as usize * self.size));
    }

    fn received(&mut self, bytes: &[u8], _: &mut Link<'_>, _: &mut Desk) -> Result<usize, Wrong> {
        let n = bytes.len();
        let what = format!("{n} bytes came from a service that answers nothing");
        Err(Fault::ReplyBeforeRequest.because(what))
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        Some(std::mem::take(&mut self.writing))
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.flight.end(self.left, link, desk);
        self.left = 0;
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.writing == 0
    }

    fn is_waiting(&self) -> bool {
        self.writing > 0
    }

    fn owed(&self) -> String {
        format!("{} messages not taken", self.writing)
    }
}
