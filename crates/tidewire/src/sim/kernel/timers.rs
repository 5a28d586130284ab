//! Timers: descriptors that become readable at a time.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::sim::kernel::files::{FileId, Timer, What};
use crate::sim::kernel::streams::IN;
use crate::sim::kernel::{Kernel, Wait};

impl Kernel {
    pub(super) fn make_timer(&mut self) -> Result<RawFd, Errno> {
        self.fails("timerfd", 0, self.faults.setting_fails_one_in)?;
        let number = self.open_file(What::Timer(Timer::default()))?;
        self.record("timerfd", number, 0);
        self.timers.extend(self.files.id(number));
        Ok(number)
    }

    fn timer(&mut self, id: FileId) -> &mut Timer {
        match &mut self.files.get(id).what {
            What::Timer(timer) => timer,
            _ => unreachable!("only timers are listed"),
        }
    }

    pub(super) fn set_timer(&mut self, number: RawFd, at: u64) -> Result<(), Errno> {
        let id = self.files.id(number).ok_or(Errno::BADF)?;
        self.fails("settime", number, self.faults.setting_fails_one_in)?;
        self.record("settime", number, at as i64);
        let (at, rung) = (Some(at), false);
        *self.timer(id) = Timer { at, rung };
        self.ring_timers();
        Ok(())
    }

    /// Wakes programs that wait for a timer that is past its time.
    pub(super) fn ring_timers(&mut self) {
        let now = self.now.get();
        for id in self.timers.clone() {
            let timer = self.timer(id);
            if !timer.rung && timer.at.is_some_and(|at| at <= now) {
                timer.rung = true;
                self.wake(id, IN);
            }
        }
    }

    /// When the next timer goes off that ends this wait.
    pub(super) fn next_timer(&mut self, wait: &Wait) -> Option<u64> {
        let mut next = None;
        for id in self.timers.clone() {
            let file = self.files.get(id);
            let ends = match *wait {
                Wait::Epoll(epoll) => file.watchers.iter().any(|w| w.epoll == epoll),
                Wait::Ring(ring) => file.waits.iter().any(|(of, _)| *of == ring),
                Wait::Poll(_) => false,
            };
            let timer = self.timer(id);
            if ends && !timer.rung {
                next = next.into_iter().chain(timer.at).min();
            }
        }
        next
    }
}
