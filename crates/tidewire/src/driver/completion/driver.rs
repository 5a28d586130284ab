//! The driver's part that the loop calls, by completions: each completion becomes an outcome.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::completion::receiver::SWEEP_NEW;
use crate::driver::completion::sockets::Sockets;
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::accept::Accepted;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::kernel::queues::{Operation, Queues, Target};
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::{Stop, Waker};
use crate::reactor::core::Core;
use crate::reactor::driver::{Driver, Fd, Outcome};
use crate::reactor::stop::QUIET_WAIT;
use crate::vocabulary::time::Instant;

impl<Q: Queues> Driver for Sockets<Q> {
    type Sys = Q::Sys;
    const ALWAYS_WAKEABLE: bool = true;

    #[inline]
    fn sys(&self) -> &Q::Sys {
        self.ring.sys()
    }

    fn watch(&mut self, waker: &Arc<Waker>) -> io::Result<()> {
        let token = Token::of_loop(Kind::Wake, 0);
        let fd = waker.descriptor(self.ring.sys())?;
        let fd = Target::Number(Q::Sys::number(Q::Sys::look(&fd)));
        let (events, multi) = (libc::POLLIN, true);
        self.ring
            .start(Operation::Poll { fd, events, multi }, token);
        Ok(())
    }

    fn watch_again(&mut self, waker: &Arc<Waker>) -> io::Result<()> {
        if waker.stopping() == Stop::Now {
            return Ok(());
        }
        waker.clear_descriptor();
        self.watch(waker)
    }

    #[inline]
    fn has_work(&self) -> bool {
        !self.ring.collected.is_empty()
    }

    fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    fn has_news(&mut self) -> bool {
        self.ring.has_news()
    }

    fn set_alarm(&mut self, at: Instant) -> bool {
        self.alarm.set(&mut self.ring, at)
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let entered = self.ring.enter(timeout);
        if entered.is_ok() && !self.unheard.is_empty() {
            self.unheard.clear();
        }
        entered
    }

    #[inline]
    fn next_outcome(&mut self, core: &mut Core) -> Option<Outcome<Fd<Self>>> {
        if self.batch.is_empty() {
            self.begin_batch(core);
        }
        while let Some(&done) = self.batch.get(self.dealt) {
            self.dealt += 1;
            match done.token.kind {
                Kind::Receive => self.received(core, done),
                Kind::Send => self.sent(core, done),
                Kind::Watch => self.watched(core, done),
                Kind::Connect => self.connect_done(core, done),
                Kind::Accept => {
                    if let Some(accepted) = self.listeners.accepted(&self.ring, done) {
                        return Some(accepted);
                    }
                }
                // A multishot wait reports every write, whether the eventfd was read or not. A
                // newly armed wait looks at the present value, and must not find a write that was
                // reported before.
                Kind::Wake if !done.more() && !mistaken(Mistake::WakeNotRearmed) => {
                    return Some(Outcome::Woken);
                }
                Kind::ShutWrite | Kind::ResetOnClose => self.asked(core, done.token),
                Kind::Alarm => {
                    self.alarm.went_off(done);
                    return Some(Outcome::AlarmOver);
                }
                Kind::Install if done.result >= 0 && mistaken(Mistake::InstallForgotten) => {}
                // The descriptor arrives too late for its connection. SAFETY: it has been made, and
                // no other code has seen this.
                Kind::Install if done.result >= 0 => drop(unsafe { self.ring.accepted(done) }),
                Kind::Wake | Kind::Cancel | Kind::Install => {}
            }
        }
        debug_assert!(self.early.is_empty());
        self.batch.clear();
        self.dealt = 0;
        self.listeners.go_on(&mut self.ring);
        None
    }

    fn receive(&mut self, _core: &mut Core) {
        // All that has come was handed over as it was taken out of the queue.
    }

    #[inline]
    fn resupply(&mut self, core: &mut Core) {
        if !self.parts.is_empty() {
            self.offer_stranded(core, false);
        }
        self.end_sweeps(core);
        // Last, because settling may drop what holds a buffer.
        while self.feed(core) {
            core.settle_all(self);
        }
    }

    fn listen(&mut self, listeners: Vec<Arc<Descriptor>>, _batch: usize) -> io::Result<()> {
        self.listeners.add(&mut self.ring, listeners);
        Ok(())
    }

    fn pause_accepting(&mut self) {
        self.listeners.pause(&mut self.ring);
    }

    fn resume_accepting(&mut self) -> io::Result<()> {
        self.listeners.resume(&mut self.ring);
        Ok(())
    }

    fn accepting_over(&self) -> bool {
        self.listeners.are_quiet()
    }

    fn accept_now(&mut self, listener: usize) -> Accepted<Fd<Self>> {
        self.listeners.accept_now(&self.ring, listener)
    }

    fn leave_listener(&mut self, listener: usize) {
        self.listeners.leave(listener);
    }

    fn close_listeners(&mut self) {
        self.listeners.close();
    }

    fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.closed_some)
    }

    fn adopt(&mut self, core: &Core, index: u32, socket: Fd<Self>) -> io::Result<()> {
        self.insert(core, index, socket, false);
        Ok(())
    }

    fn sweep(&mut self, core: &mut Core) {
        self.offer_stranded(core, true);
        if !mistaken(Mistake::InHandNotCounted) {
            self.ring.collect_held_back();
        }
        for index in 0..self.count() {
            if let Some((sock, ring)) = self.sock_and_ring(index) {
                let held = sock.with(ring, index, |sys, fd| sys.unread(fd));
                sock.receiver.sweep = Some(match held {
                    Ok(held) => u32::try_from(held.unwrap_or(0)).unwrap_or(u32::MAX),
                    // No descriptor is to be had.
                    Err(_) => SWEEP_NEW,
                });
                core.touch(index);
            }
        }
        if !mistaken(Mistake::InHandNotCounted) {
            self.count_what_is_in_hand();
        }
    }

    /// Takes everything back and waits until nothing is in flight.
    fn finish(mut self, core: Core) -> io::Result<()> {
        self.parts.clear();
        self.ring.cancel_all();
        let clock = core.env.clock.clone();
        let until = clock.monotonic() + QUIET_WAIT;
        while self.ring.in_flight() > 0 && clock.monotonic() < until {
            if let Err(e) = self.ring.enter(Some(QUIET_WAIT)) {
                tracing::error!(error = %e, "cannot wait for the last completions");
            }
            self.ring.collect();
        }
        self.close_unseen();
        let left = self.ring.in_flight();
        if left > 0 {
            tracing::error!(left, "operations of a loop did not end");
            std::mem::forget((core, self));
            return Ok(());
        }
        self.end()
    }
}

impl<Q: Queues> Sockets<Q> {
    /// Takes the completions, and announces received bytes to protocols that look ahead.
    #[inline]
    fn begin_batch(&mut self, core: &mut Core) {
        self.ring.collect();
        std::mem::swap(&mut self.batch, &mut self.ring.collected);
        if self.batch.len() > 1 && core.anybody_looks_ahead() {
            self.look_ahead(core);
        }
    }

    /// Counts received data that the kernel has given away and no protocol was offered: data whose completions did not
    /// fit into the completion queue, and data that arrived when the ring was entered to make a descriptor. Counting
    /// it twice does no harm, because a receive that finds nothing is the end as well.
    fn count_what_is_in_hand(&mut self) {
        for at in 0..self.ring.collected.len() {
            let done = self.ring.collected[at];
            if done.token.kind == Kind::Receive
                && let Ok(there @ 1..) = u32::try_from(done.result)
                && let Some(sock) = self.sock_of(done.token)
            {
                let receiver = &mut sock.receiver;
                receiver.sweep = receiver.sweep.map(|held| held.saturating_add(there));
            }
        }
    }

    /// Closes sockets that were accepted and not looked at: a loop that has panicked, for example,
    /// takes no client in. Descriptors that were made for a call that no longer waits are closed
    /// too.
    fn close_unseen(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let collected = std::mem::take(&mut self.ring.collected);
        for done in batch.into_iter().skip(self.dealt).chain(collected) {
            if matches!(done.token.kind, Kind::Accept | Kind::Install) && done.result >= 0 {
                // SAFETY: the operation has made this descriptor, and this is the first to look at its report.
                drop(unsafe { self.ring.accepted(done) });
            }
        }
    }

    /// Tells connections of the stop of which nothing is to be read.
    #[inline]
    fn end_sweeps(&mut self, core: &mut Core) {
        while !self.swept.is_empty() {
            for index in std::mem::take(&mut self.swept) {
                if let Some(sock) = self.sock(index).filter(|s| s.receiver.sweep.is_some()) {
                    sock.receiver.sweep = None;
                    self.drain_or_pass_on(core, index);
                }
            }
            core.settle_all(self);
        }
    }
}
