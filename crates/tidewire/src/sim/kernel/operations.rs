//! The work of a ring's operations, when they are submitted and whenever they may go on.

use std::io::IoSlice;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::kernel::queues::{Once, Operation, Target};
use crate::sim::kernel::Kernel;
use crate::sim::kernel::files::FileId;
use crate::sim::kernel::memory::Sent;
use crate::sim::kernel::ring::{BUFFER, MORE, SOCK_NONEMPTY, TakenBack};
use crate::sim::kernel::streams::{ERR, HUP};

fn code(e: Errno) -> i32 {
    -e.raw_os_error()
}

impl Kernel {
    /// An operation is handed over.
    pub(super) fn issue(&mut self, ring: usize, operation: Operation, user_data: u64) {
        let target = match operation {
            Operation::Install { place } => {
                let result = self.install(ring, place);
                self.record(word(operation), place as RawFd, 0);
                return self.post(ring, user_data, result.unwrap_or_else(code), 0);
            }
            Operation::Cancel { .. } | Operation::CancelAllOf { .. } | Operation::CancelAll => {
                return self.cancel(ring, operation, user_data);
            }
            Operation::Accept { listener } => Target::Number(listener),
            Operation::ShutWrite { socket }
            | Operation::ResetOnClose { socket }
            | Operation::ReceiveMany { socket, .. }
            | Operation::ReceiveOnce { socket, .. }
            | Operation::Send { socket, .. }
            | Operation::SendSeveral { socket, .. } => socket,
            Operation::Poll { fd, .. } => fd,
        };
        let number = match target {
            Target::Number(number) => number,
            Target::Place(place) => place as RawFd,
        };
        self.record(word(operation), number, 0);
        let Some(file) = self.target(ring, target) else {
            self.wrong(format!("an operation on {target:?}, which is closed"));
            return self.post(ring, user_data, code(Errno::BADF), 0);
        };
        if let Operation::ResetOnClose { .. } = operation {
            self.set_reset_on_close(file);
            return self.post(ring, user_data, 0, 0);
        }
        self.look_for_another(ring, file, operation);
        if !self.trusts() {
            return self.post(ring, user_data, code(Errno::FAULT), 0);
        }
        let sends = match operation {
            Operation::Send { from, len, .. } => {
                // SAFETY: the caller that pushed it promised that the bytes live until its
                // completion.
                vec![unsafe { Sent::new(from, len as usize) }]
            }
            // SAFETY: as above; the header too.
            Operation::SendSeveral { header, .. } => unsafe { Sent::gathered(header) },
            _ => Vec::new(),
        };
        let id = self.take_in(ring, operation, user_data, file, sends);
        let waits_first = matches!(
            operation,
            Operation::ReceiveOnce {
                how: Once::Later,
                ..
            }
        );
        let late = self.faults.late_one_in;
        if self.chance(late) && !is_now(operation) {
            self.queue(ring, id);
        } else if waits_first {
            if self.mask(file) & (libc::EPOLLIN | ERR | HUP) != 0 {
                self.queue(ring, id);
            }
        } else {
            self.attempt(ring, id);
        }
    }

    /// Two operations of the same kind on one stream would run in any order.
    fn look_for_another(&mut self, ring: usize, file: FileId, operation: Operation) {
        let kind = kind(operation);
        let mut others = self.rings[ring].in_flight.values();
        if kind.is_some() && others.any(|o| o.file == file && self::kind(o.operation) == kind) {
            self.wrong(format!("two operations at once: {}", word(operation)));
        }
    }

    /// An operation may be able to go on.
    pub(super) fn attempt(&mut self, ring: usize, id: u64) {
        let Some(tried) = self.rings[ring].in_flight.get(&id) else {
            return;
        };
        let (operation, file) = (tried.operation, tried.file);
        match operation {
            Operation::Accept { .. } => self.accept_many(ring, id, file),
            Operation::ReceiveMany { group, share, .. } => {
                self.receive_many(ring, id, file, group, share);
            }
            Operation::ReceiveOnce { group, how, .. } => {
                self.receive_once(ring, id, file, group, how);
            }
            Operation::Send { .. } | Operation::SendSeveral { .. } => {
                self.send_queued(ring, id, file);
            }
            Operation::Poll { events, multi, .. } => self.poll_once(ring, id, file, events, multi),
            Operation::ShutWrite { .. } => {
                let shut = self.shut_file(file);
                self.finish(ring, id, shut.map_or_else(code, |()| 0), 0);
            }
            Operation::ResetOnClose { .. }
            | Operation::Cancel { .. }
            | Operation::CancelAllOf { .. }
            | Operation::CancelAll
            | Operation::Install { .. } => {}
        }
    }

    /// Whether something that goes on ends with this completion.
    fn ends(&mut self, ring: usize) -> bool {
        let one_in = self.faults.ends_one_in;
        self.chance(one_in) || !self.has_room(ring)
    }

    fn accept_many(&mut self, ring: usize, id: u64, file: FileId) {
        loop {
            let accepted = match self.accept_from(file) {
                Err(Errno::AGAIN) => return,
                Err(e) => return self.finish(ring, id, code(e), 0),
                Ok((number, _)) => number,
            };
            // Waiting is left to the ring.
            if let Some(stream) = self.stream(accepted) {
                stream.nonblocking = false;
            }
            if self.ends(ring) {
                return self.finish(ring, id, accepted, 0);
            }
            self.go_on(ring, id, accepted, MORE);
        }
    }

    fn go_on(&mut self, ring: usize, id: u64, result: i32, flags: u32) {
        if let Some(goes_on) = self.rings[ring].in_flight.get(&id) {
            let user_data = goes_on.user_data;
            self.post(ring, user_data, result, flags);
        }
    }

    /// Receives into the next buffer of a group: bytes, and the flags that tell of them.
    fn receive(&mut self, ring: usize, file: FileId, group: u16) -> Result<(usize, u32), Errno> {
        if self.stream_of(file).is_some_and(|s| s.nonblocking) {
            // io_uring waits on blocking sockets only.
            self.wrong("a ring receives from a socket that is not blocking".into());
        }
        let groups = &self.rings[ring].groups;
        let group = groups.iter().position(|g| g.id == group);
        let group = group.ok_or(Errno::NOBUFS)?;
        let next = self.rings[ring].groups[group].buffers.front();
        let mut lent = *next.ok_or(Errno::NOBUFS)?;
        if !self.trusts() {
            return Err(Errno::AGAIN);
        }
        if !lent.is_untouched() {
            let id = lent.id;
            self.wrong(format!("buffer {id} was written while it was the kernel's"));
        }
        let n = self.recv_from(file, lent.space())?;
        if n == 0 {
            return Ok((0, 0));
        }
        self.rings[ring].groups[group].buffers.pop_front();
        let end = self.stream_of(file).map(|s| s.end);
        let more = end.is_some_and(|end| self.net.unread(end) > 0);
        let nonempty = if more { SOCK_NONEMPTY } else { 0 };
        Ok((n, BUFFER | u32::from(lent.id) << 16 | nonempty))
    }

    fn receive_many(&mut self, ring: usize, id: u64, file: FileId, group: u16, share: u32) {
        let mut taken = 0;
        loop {
            match self.receive(ring, file, group) {
                Err(Errno::AGAIN) => return,
                Err(e) => return self.finish(ring, id, code(e), 0),
                Ok((0, _)) => return self.finish(ring, id, 0, 0),
                Ok((n, flags)) => {
                    if self.ends(ring) {
                        return self.finish(ring, id, n as i32, flags);
                    }
                    self.go_on(ring, id, n as i32, flags | MORE);
                    taken += n;
                    if share > 0 && taken >= share as usize {
                        // Other operations get their turn.
                        return self.queue(ring, id);
                    }
                }
            }
        }
    }

    fn receive_once(&mut self, ring: usize, id: u64, file: FileId, group: u16, how: Once) {
        match self.receive(ring, file, group) {
            Err(Errno::AGAIN) if how != Once::OrNot => {}
            Err(e) => self.finish(ring, id, code(e), 0),
            Ok((n, flags)) => self.finish(ring, id, n as i32, flags),
        }
    }

    fn send_queued(&mut self, ring: usize, id: u64, file: FileId) {
        if !self.trusts() {
            return;
        }
        let sends = self.rings[ring].in_flight[&id].sends.clone();
        let slices: Vec<IoSlice<'_>> = sends.iter().map(|s| IoSlice::new(s.bytes())).collect();
        match self.send_to(file, &slices) {
            Err(Errno::AGAIN) => {}
            Err(e) => self.finish(ring, id, code(e), 0),
            Ok(n) => self.finish(ring, id, n as i32, 0),
        }
    }

    fn poll_once(&mut self, ring: usize, id: u64, file: FileId, events: i16, multi: bool) {
        let mask = self.mask(file) & (i32::from(events) | ERR | HUP);
        if mask == 0 {
            return;
        }
        if multi && !self.ends(ring) {
            self.go_on(ring, id, mask, MORE);
        } else {
            self.finish(ring, id, mask, 0);
        }
    }

    // ---- Taking back ----

    fn cancel(&mut self, ring: usize, which: Operation, user_data: u64) {
        let of = match which {
            Operation::CancelAllOf { fd } => self.target(ring, fd),
            _ => None,
        };
        let meant = |o: &crate::sim::kernel::ring::InFlight| match which {
            Operation::Cancel { user_data } => o.user_data == user_data,
            Operation::CancelAllOf { .. } => of == Some(o.file),
            _ => true,
        };
        let in_flight = self.rings[ring].in_flight.iter();
        let meant: Vec<u64> = in_flight
            .filter(|(_, o)| o.taken_back == TakenBack::No && meant(o))
            .map(|(id, _)| *id)
            .collect();
        let told_first = self.rng.below(2) == 0;
        let (mut taken, mut too_late) = (Vec::new(), 0);
        for id in meant {
            // An operation that is being worked on goes on, for this time.
            let racing = self.rings[ring].is_queued(id);
            if racing && self.rng.below(2) == 0 {
                too_late += 1;
                self.taken_back(ring, id, TakenBack::Racing);
            } else {
                taken.push(id);
            }
        }
        let result = match (which, taken.len(), too_late) {
            (Operation::Cancel { .. }, 0, 0) => code(Errno::NOENT),
            (Operation::Cancel { .. }, 0, _) => code(Errno::ALREADY),
            (Operation::Cancel { .. }, ..) => 0,
            (_, n, _) => n as i32,
        };
        self.record(word(which), taken.len() as RawFd, result.into());
        if told_first {
            self.post(ring, user_data, result, 0);
        }
        for id in taken {
            let late = self.faults.late_one_in;
            if self.chance(late) {
                self.taken_back(ring, id, TakenBack::Over);
            } else {
                self.finish(ring, id, code(Errno::CANCELED), 0);
            }
        }
        if !told_first {
            self.post(ring, user_data, result, 0);
        }
    }

    fn taken_back(&mut self, ring: usize, id: u64, how: TakenBack) {
        if let Some(operation) = self.rings[ring].in_flight.get_mut(&id) {
            operation.taken_back = how;
        }
        self.queue(ring, id);
    }
}

/// Whether the operation never waits.
fn is_now(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::ReceiveOnce {
            how: Once::OrNot,
            ..
        }
    )
}

/// The kind of an operation that must not run twice at once.
fn kind(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::ReceiveMany { .. } | Operation::ReceiveOnce { .. } => Some("receive"),
        Operation::Send { .. } | Operation::SendSeveral { .. } => Some("send"),
        Operation::Accept { .. } => Some("accept"),
        _ => None,
    }
}

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Accept { .. } => "accept*",
        Operation::ReceiveMany { .. } => "receive*",
        Operation::ReceiveOnce { .. } => "receive",
        Operation::Send { .. } => "send",
        Operation::SendSeveral { .. } => "sendmsg",
        Operation::Poll { .. } => "poll",
        Operation::Cancel { .. } => "cancel",
        Operation::CancelAllOf { .. } => "cancelfd",
        Operation::CancelAll => "cancelall",
        Operation::Install { .. } => "install",
        Operation::ShutWrite { .. } => "shut*",
        Operation::ResetOnClose { .. } => "linger*",
    }
}
