//! Stopping: serve whoever was told that it is connected, read what is there, let everybody finish.

use crate::driver::accept::{self, Accepted};
use crate::driver::completion::reactor::{Accepting, QUIET_WAIT, Reactor};
use crate::kernel::calls::Sys;
use crate::kernel::queues::Queues;
use crate::reach::waker::Stop;

impl<Q: Queues> Reactor<Q> {
    /// Goes on with a stop, if there is one; true when the loop is to end.
    pub(super) fn stopped(&mut self) -> bool {
        let stop = self.waker.stopping();
        if stop == Stop::No {
            return false;
        }
        if !self.core.draining() {
            self.begin_drain();
        }
        let over = self.core.env.now >= self.setup.clock.deadline();
        if stop == Stop::Now || over {
            self.core.cut_all(&mut self.io);
        }
        let handed_over = over || stop == Stop::Now || self.waiting.is_empty();
        // A connection handed over just before the stop waits among the commands.
        handed_over && self.core.is_done()
    }

    fn begin_drain(&mut self) {
        self.core.begin_drain(&mut self.io);
        // Whoever was told that it is connected is served: first those whom the last completions
        // bring, then those who wait in the queue.
        self.end_accepting();
        let clock = self.core.env.clock.clone();
        let until = clock.monotonic() + QUIET_WAIT;
        while self.accepting.contains(&Accepting::Ending) && clock.monotonic() < until {
            if let Err(e) = self.io.ring.enter(Some(QUIET_WAIT)) {
                tracing::error!(error = %e, "cannot wait for the last accepted");
                break;
            }
            self.work_off();
        }
        if !self.setup.clock.is_succeeded() {
            for which in 0..self.setup.listeners.len() {
                self.empty_queue(which);
            }
        }
        self.setup.listeners.clear();
        self.accepting.clear();
        if self.waiting.is_empty() {
            self.accept_pause.end();
        }
        // What has been received already is not in the kernel's hands any more.
        self.work_off();
        for index in 0..self.io.count() {
            if let Some((sock, ring)) = self.io.sock_and_ring(index) {
                let held = ring.sys().unread(&sock.fd).unwrap_or(0);
                sock.receiver.sweep = Some(u32::try_from(held).unwrap_or(u32::MAX));
                self.core.touch(index);
            }
        }
    }

    fn empty_queue(&mut self, which: usize) {
        loop {
            let listener = &self.setup.listeners[which].socket;
            match accept::accept(self.io.ring.sys(), listener) {
                Accepted::Connection(socket, peer) => {
                    self.accept_pause.succeeded();
                    if self.io.ring.sys().set_blocking(&socket).is_ok() {
                        self.take_in(which, socket, peer);
                    }
                }
                Accepted::Gone(e) => {
                    if self.accept_pause.too_many_failed() {
                        tracing::warn!(error = %e, "connections that waited to be accepted are lost");
                        return;
                    }
                }
                Accepted::None | Accepted::Broken(_) => return,
                Accepted::Exhausted(e) => {
                    tracing::warn!(error = %e, "connections that waited to be accepted are lost");
                    return;
                }
            }
        }
    }

    /// Tells of the stop those of whom nothing is to be read.
    pub(super) fn sweep(&mut self) {
        while !self.io.swept.is_empty() {
            for index in std::mem::take(&mut self.io.swept) {
                if let Some(sock) = self.io.sock(index).filter(|s| s.receiver.sweep.is_some()) {
                    sock.receiver.sweep = None;
                    self.core.owe_drain(index);
                }
            }
            self.core.settle_all(&mut self.io);
        }
    }
}
