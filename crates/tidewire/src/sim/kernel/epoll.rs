//! Readiness: edges that coalesce, levels that stay, and waits.

use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::sim::kernel::files::{Epoll, FileId, Watcher, What};
use crate::sim::kernel::streams::{ANY, ERR, HUP};
use crate::sim::kernel::{Kernel, Wait};

impl Kernel {
    /// Something has happened to a file: `key` says what, or that anything may have.
    pub(super) fn wake(&mut self, id: FileId, key: i32) {
        let file = self.files.get(id);
        let mut queue = Vec::new();
        for watcher in &mut file.watchers {
            let heard = key == ANY || key & (watcher.flags | ERR | HUP) != 0;
            if heard && !std::mem::replace(&mut watcher.queued, true) {
                queue.push(watcher.epoll);
            }
        }
        let waits = file.waits.clone();
        for epoll in queue {
            self.epoll(epoll).ready.push(id);
        }
        for (ring, operation) in waits {
            self.stir(ring, operation, key);
        }
    }

    fn epoll(&mut self, id: FileId) -> &mut Epoll {
        match &mut self.files.get(id).what {
            What::Epoll(epoll) => epoll,
            _ => unreachable!("only epoll descriptors watch"),
        }
    }

    /// A file that was watched has gone.
    pub(super) fn forget_ready(&mut self, epoll: FileId, id: FileId) {
        if let Some(file) = self.files.find(epoll)
            && let What::Epoll(epoll) = &mut file.what
        {
            epoll.ready.retain(|ready| *ready != id);
        }
    }

    pub(super) fn epoll_add(
        &mut self,
        epoll: RawFd,
        number: RawFd,
        token: u64,
        flags: i32,
    ) -> Result<(), Errno> {
        let added = self.watch(epoll, number, token, flags);
        let result = added.map_or_else(|e| -i64::from(e.raw_os_error()), |()| flags.into());
        self.record("epoll_add", number, result);
        added
    }

    fn watch(&mut self, epoll: RawFd, number: RawFd, token: u64, flags: i32) -> Result<(), Errno> {
        const FAILS: [Errno; 2] = [Errno::NOMEM, Errno::NOSPC];
        let epoll = self.files.id(epoll).ok_or(Errno::BADF)?;
        let id = self.files.id(number).ok_or(Errno::BADF)?;
        let one_in = self.faults.watch_fails_one_in;
        if !self.is_setting_up && self.chance(one_in) {
            return Err(FAILS[self.rng.below(FAILS.len() as u64) as usize]);
        }
        let file = self.files.get(id);
        if file.watchers.iter().any(|w| w.epoll == epoll) {
            return Err(Errno::EXIST);
        }
        file.watchers.push(Watcher {
            epoll,
            token,
            flags,
            queued: false,
        });
        if self.mask(id) & (flags | ERR | HUP) != 0 {
            self.wake(id, ANY);
        }
        Ok(())
    }

    pub(super) fn epoll_delete(&mut self, epoll: RawFd, number: RawFd) {
        self.record("epoll_del", number, 0);
        if let (Some(epoll), Some(id)) = (self.files.id(epoll), self.files.id(number)) {
            self.files.get(id).watchers.retain(|w| w.epoll != epoll);
            self.forget_ready(epoll, id);
        }
    }

    /// Whether a wait would report anything.
    pub(super) fn epoll_ready(&mut self, epoll: FileId) -> bool {
        let ready = self.epoll(epoll).ready.clone();
        ready.into_iter().any(|id| self.reported(epoll, id) != 0)
    }

    /// The events to report of a file that is ready.
    fn reported(&mut self, epoll: FileId, id: FileId) -> i32 {
        let mask = self.mask(id);
        let watchers = &self.files.get(id).watchers;
        let watcher = watchers.iter().find(|w| w.epoll == epoll);
        watcher.map_or(0, |w| mask & (w.flags | ERR | HUP))
    }

    pub(super) fn epoll_wait(
        &mut self,
        epoll: RawFd,
        events: &mut Vec<libc::epoll_event>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        events.clear();
        let id = self.files.id(epoll).ok_or(Errno::BADF)?;
        if timeout == Some(Duration::ZERO) {
            self.pass_a_look();
        }
        let until = self.deadline(timeout);
        self.spurious_edge(id);
        loop {
            self.collect(id, events);
            if !events.is_empty() || timeout == Some(Duration::ZERO) {
                break;
            }
            if self.interrupted() {
                self.record("epoll_wait", epoll, -i64::from(libc::EINTR));
                return Err(Errno::INTR);
            }
            if !self.wait(Wait::Epoll(id), until) {
                break;
            }
        }
        self.record("epoll_wait", epoll, events.len() as i64);
        Ok(())
    }

    /// Now and then something is reported again that was known.
    fn spurious_edge(&mut self, epoll: FileId) {
        let one_in = self.faults.spurious_one_in;
        if !self.chance(one_in) {
            return;
        }
        let numbers: Vec<RawFd> = self.files.open_numbers().collect();
        let number = numbers[self.rng.below(numbers.len() as u64) as usize];
        let Some(id) = self.files.id(number) else {
            return;
        };
        let mut watchers = self.files.get(id).watchers.iter_mut();
        if let Some(watcher) = watchers.find(|w| w.epoll == epoll)
            && !std::mem::replace(&mut watcher.queued, true)
        {
            self.epoll(epoll).ready.push(id);
        }
    }

    /// Takes what is ready, in any order, as much as there is room for.
    fn collect(&mut self, epoll: FileId, events: &mut Vec<libc::epoll_event>) {
        let mut ready = std::mem::take(&mut self.epoll(epoll).ready);
        for last in (1..ready.len()).rev() {
            ready.swap(last, self.rng.below(last as u64 + 1) as usize);
        }
        let most = events.capacity().min(self.faults.events_max).max(1);
        let mut again = Vec::new();
        for id in ready {
            if events.len() == most {
                again.push(id);
                continue;
            }
            let reported = self.reported(epoll, id);
            let mut watchers = self.files.get(id).watchers.iter_mut();
            let Some(watcher) = watchers.find(|w| w.epoll == epoll) else {
                continue;
            };
            let stays = reported != 0 && watcher.flags & libc::EPOLLET == 0;
            watcher.queued = stays;
            if stays {
                again.push(id);
            }
            if reported != 0 {
                let token = watcher.token;
                events.push(libc::epoll_event {
                    events: reported as u32,
                    u64: token,
                });
                self.record("event", token as RawFd, reported.into());
            }
        }
        self.epoll(epoll).ready.append(&mut again);
    }

    // ---- poll(2) ----

    /// The events to report of a descriptor.
    pub(super) fn polled(&mut self, fd: RawFd, events: i16) -> i16 {
        match self.files.id(fd) {
            Some(id) => self.mask(id) as i16 & (events | (ERR | HUP) as i16),
            None => libc::POLLNVAL,
        }
    }

    pub(super) fn poll(
        &mut self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        self.fails("poll", fds.len() as RawFd, self.faults.enter_fails_one_in)?;
        if timeout == Some(Duration::ZERO) {
            self.pass_a_look();
        }
        let until = self.deadline(timeout);
        loop {
            let mut ready = 0;
            for fd in &mut *fds {
                fd.revents = self.polled(fd.fd, fd.events);
                if fd.revents != 0 {
                    self.record("polled", fd.fd, fd.revents.into());
                    ready += 1;
                }
            }
            self.record("poll", fds.len() as RawFd, ready);
            if ready > 0 || timeout == Some(Duration::ZERO) || self.interrupted() {
                return Ok(());
            }
            let all = fds.iter().map(|fd| (fd.fd, fd.events)).collect();
            if !self.wait(Wait::Poll(all), until) {
                return Ok(());
            }
        }
    }
}
