//! Listening sockets: which of them is ready, and accepting from it in batches.

use std::io;
use std::sync::Arc;

use crate::driver::readiness::Poller;
use crate::kernel::accept::{self, Accepted};
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::reactor::driver::Outcome;

type Fd<P> = <<P as Poller>::Sys as Sys>::Fd;

/// Listener `i` has the token `LISTENERS + i`; connections have smaller ones.
pub(super) const LISTENERS: u64 = u64::MAX - (1 << 16);

struct Listener {
    socket: Arc<Descriptor>,
    /// The listener is broken.
    left: bool,
}

/// The listening sockets of a loop.
#[derive(Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Connections taken from one listener before other listeners get their turn.
    batch: usize,
    /// The one that is accepted from, and how many more connections.
    now: Option<(usize, usize)>,
}

fn token(listener: usize) -> u64 {
    LISTENERS + listener as u64
}

impl Listeners {
    pub(super) fn add(
        &mut self,
        poller: &mut impl Poller,
        sockets: Vec<Arc<Descriptor>>,
        batch: usize,
    ) -> io::Result<()> {
        for socket in sockets {
            poller.add_listener(&socket, token(self.all.len()))?;
            let left = false;
            self.all.push(Listener { socket, left });
        }
        self.batch = batch;
        Ok(())
    }

    /// Connections wait at the one with this token.
    pub(super) fn ready(&mut self, token: u64) {
        self.now = Some(((token - LISTENERS) as usize, self.batch));
    }

    /// Accepts the next of a batch, if there is one.
    #[inline]
    pub(super) fn accept<P: Poller>(&mut self, poller: &P) -> Option<Outcome<Fd<P>>> {
        let (which, left) = self.now?;
        self.accept_next(poller, which, left)
    }

    fn accept_next<P: Poller>(
        &mut self,
        poller: &P,
        which: usize,
        left: usize,
    ) -> Option<Outcome<Fd<P>>> {
        self.now = None;
        let listener = self.all.get(which).filter(|_| left > 0)?;
        match accept::accept(poller.sys(), &listener.socket) {
            Accepted::None => None,
            accepted => {
                self.now = Some((which, left - 1));
                Some(Outcome::Accepted(which, accepted))
            }
        }
    }

    pub(super) fn accept_now<P: Poller>(&self, poller: &P, which: usize) -> Accepted<Fd<P>> {
        accept::accept(poller.sys(), &self.all[which].socket)
    }

    pub(super) fn pause(&mut self, poller: &mut impl Poller) {
        self.now = None;
        for listener in &self.all {
            poller.remove_listener(&listener.socket);
        }
    }

    /// Listens to all again; to none, if one cannot be added.
    pub(super) fn resume(&mut self, poller: &mut impl Poller) -> io::Result<()> {
        let mut there = self.all.iter().enumerate().filter(|(_, l)| !l.left);
        let resumed = there.try_for_each(|(i, l)| poller.add_listener(&l.socket, token(i)));
        if resumed.is_err() {
            self.pause(poller);
        }
        resumed
    }

    /// Listens no longer to what would be reported for ever.
    pub(super) fn leave(&mut self, poller: &mut impl Poller, which: usize) {
        self.now = None;
        let listener = &mut self.all[which];
        listener.left = true;
        poller.remove_listener(&listener.socket);
    }

    pub(super) fn close(&mut self) {
        self.now = None;
        self.all.clear();
    }
}
