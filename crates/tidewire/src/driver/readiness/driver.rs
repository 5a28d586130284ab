//! The driver's part that the loop calls, by readiness: the poller's events become outcomes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::readiness::accept::LISTENERS;
use crate::driver::readiness::alarm::ALARM;
use crate::driver::readiness::sockets::Sockets;
use crate::driver::readiness::{Poller, Readiness, token};
use crate::kernel::accept::Accepted;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::Waker;
use crate::reactor::core::Core;
use crate::reactor::driver::{Driver, Fd, Outcome};
use crate::vocabulary::time::Instant;

const WAKER: u64 = u64::MAX;

impl<P: Poller> Driver for Sockets<P> {
    type Sys = P::Sys;
    const ALWAYS_WAKEABLE: bool = P::EDGE_TRIGGERED;

    #[inline]
    fn sys(&self) -> &P::Sys {
        self.poller.sys()
    }

    fn watch(&mut self, waker: &Arc<Waker>) -> io::Result<()> {
        self.poller.add_waker(waker, WAKER)
    }

    fn watch_again(&mut self, waker: &Arc<Waker>) -> io::Result<()> {
        if !mistaken(Mistake::WakeNotCleared) {
            waker.clear_descriptor();
        }
        Ok(())
    }

    #[inline]
    fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn has_news(&mut self) -> bool {
        let _ = self.poller.wait(Some(Duration::ZERO));
        self.poller.has_event()
    }

    fn set_alarm(&mut self, at: Instant) -> bool {
        self.alarm.set(self.poller.sys(), at)
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // Polling may have found events already.
        if self.poller.has_event() && !mistaken(Mistake::PolledNewsForgotten) {
            return Ok(());
        }
        self.poller.wait(timeout)
    }

    #[inline]
    fn next_outcome(&mut self, core: &mut Core) -> Option<Outcome<Fd<Self>>> {
        loop {
            if let Some(accepted) = self.listeners.accept(&self.poller) {
                return Some(accepted);
            }
            let event = self.poller.event()?;
            if event.token < LISTENERS {
                self.note(core, event);
            } else if event.token == WAKER {
                return Some(Outcome::Woken);
            } else if event.token != ALARM {
                self.listeners.ready(event.token);
            }
        }
    }

    fn receive(&mut self, core: &mut Core) {
        // Only connections that are ready now have their turn: a connection that needs another turn
        // queues behind them.
        let due = self.ready.len();
        self.receive_share = core.received.each(due, core.env.pool.piece_len());
        let ahead = due > 1 && core.anybody_looks_ahead();
        if ahead {
            self.look_ahead(core);
        }
        for _ in 0..due {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            if ahead {
                self.offer_early(core, index);
            }
            self.receive_from(core, index);
        }
        debug_assert!(self.early.is_empty());
    }

    #[inline]
    fn resupply(&mut self, core: &mut Core) {
        if !self.starved.is_empty() && core.env.pool.free() > 0 {
            for index in std::mem::take(&mut self.starved) {
                self.enqueue(index);
            }
        }
    }

    fn listen(&mut self, listeners: Vec<Arc<Descriptor>>, batch: usize) -> io::Result<()> {
        self.listeners.add(&mut self.poller, listeners, batch)
    }

    fn pause_accepting(&mut self) {
        self.listeners.pause(&mut self.poller);
    }

    fn resume_accepting(&mut self) -> io::Result<()> {
        self.listeners.resume(&mut self.poller)
    }

    fn accepting_over(&self) -> bool {
        true
    }

    fn accept_now(&mut self, listener: usize) -> Accepted<Fd<Self>> {
        self.listeners.accept_now(&self.poller, listener)
    }

    fn leave_listener(&mut self, listener: usize) {
        self.listeners.leave(&mut self.poller, listener);
    }

    fn close_listeners(&mut self) {
        self.listeners.close();
    }

    fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.closed_some)
    }

    fn adopt(&mut self, core: &Core, index: u32, socket: Fd<Self>) -> io::Result<()> {
        self.insert(core, index, socket, false)
    }

    fn sweep(&mut self, core: &mut Core) {
        for index in 0..self.socks.end() as u32 {
            let Some(sock) = self.socks.get_mut(index as usize) else {
                continue;
            };
            sock.sweep = Some(self.poller.sys().unread(&sock.fd).unwrap_or(0));
            sock.readable = true;
            self.enqueue(index);
            core.touch(index);
        }
    }

    fn finish(self, _core: Core) -> io::Result<()> {
        // The kernel uses nothing between two calls.
        Ok(())
    }
}

impl<P: Poller> Sockets<P> {
    /// Something happened to a connection's descriptor.
    fn note(&mut self, core: &mut Core, event: Readiness) {
        let index = event.token as u32;
        let Some(mut sock) = self.socks.get_mut(index as usize) else {
            return;
        };
        if token(index, sock.generation) != event.token {
            return;
        }
        // Once connected, the driver reads: the peer may have sent data already, and that is
        // announced only once.
        if sock.connecting {
            if !(event.writable || event.over || event.failed) || !self.finish_connect(core, index)
            {
                return;
            }
            let Some(connected) = self.socks.get_mut(index as usize) else {
                return;
            };
            sock = connected;
            if mistaken(Mistake::NewsOfConnectedIgnored) {
                return;
            }
        }
        if event.writable && !mistaken(Mistake::RoomIgnored) {
            let state = &mut core.states[index as usize];
            if state.unblock_sending() {
                core.env.touch(state);
            }
        }
        if !(event.readable || event.ended || event.over || event.failed) {
            return;
        }
        // A TCP connection whose both directions are over was reset. A Unix socket is so as soon as
        // its peer has closed, with all that the peer sent still to be read.
        let reset = event.over && core.states[index as usize].peer.endpoint.is_tcp();
        let broken = event.failed || reset;
        let ended = event.ended || event.over || event.failed;
        sock.readable |= sock.reading || !mistaken(Mistake::EdgeLost);
        sock.ended |= ended || event.urgent;
        sock.broken |= broken;
        if ended {
            core.end_announced(index);
        }
        if !sock.reading {
            if broken && !mistaken(Mistake::ErrorNotReported) {
                self.report_error(core, index);
            }
        } else if !std::mem::replace(&mut sock.queued, true) {
            self.ready.push_back(index);
        }
        // With a level-triggered poller, what is known already must not be reported again.
        if !P::EDGE_TRIGGERED {
            core.touch(index);
        }
    }
}
