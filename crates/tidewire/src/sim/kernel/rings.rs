//! How rings work on queued operations.
//!
//! As on Linux with deferred task work, ready operations are worked on when the ring is entered, in
//! any order; completions that find no room are kept and moved over later.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::kernel::queues::{Done, Operation};
use crate::sim::kernel::files::FileId;
use crate::sim::kernel::memory::{Lent, Sent};
use crate::sim::kernel::ring::{Group, InFlight, Ring, TakenBack};
use crate::sim::kernel::streams::{ERR, HUP, IN, OUT};
use crate::sim::kernel::{Kernel, Wait};

impl Kernel {
    pub(super) fn make_ring(&mut self) -> usize {
        self.rings.push(Ring::default());
        let ring = self.rings.len() - 1;
        self.record("ring", ring as RawFd, 0);
        ring
    }

    /// The program is done with a ring.
    pub(super) fn drop_ring(&mut self, ring: usize) {
        let left: Vec<u64> = self.rings[ring].in_flight.keys().copied().collect();
        if !left.is_empty() && !std::thread::panicking() {
            let n = left.len();
            self.wrong(format!("ring {ring} ends with {n} operations in flight"));
        }
        for id in left {
            self.forget(ring, id);
        }
        for file in std::mem::take(&mut self.rings[ring].table)
            .into_iter()
            .flatten()
        {
            self.release(file);
        }
    }

    pub(super) fn push(&mut self, ring: usize, operation: Operation, user_data: u64) -> bool {
        let most = self.faults.submissions;
        let queued = &mut self.rings[ring].queued;
        if queued.len() >= most {
            return false;
        }
        queued.push_back((operation, user_data));
        true
    }

    pub(super) fn enter_ring(
        &mut self,
        ring: usize,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        if !self.is_setting_up {
            self.fails("enter", ring as RawFd, self.faults.enter_fails_one_in)?;
        }
        let until = self.deadline(timeout);
        self.move_over(ring);
        while let Some((operation, user_data)) = self.rings[ring].queued.pop_front() {
            self.issue(ring, operation, user_data);
        }
        loop {
            self.work(ring, timeout != Some(Duration::ZERO));
            if !self.rings[ring].completions.is_empty() || timeout == Some(Duration::ZERO) {
                break;
            }
            if self.interrupted() || !self.wait(Wait::Ring(ring), until) {
                break;
            }
        }
        self.look_for_orphans(ring);
        let there = self.rings[ring].completions.len();
        self.record("enter", ring as RawFd, there as i64);
        Ok(())
    }

    /// Works on operations that are ready, in any order. Late operations are left for the next
    /// time, unless the program waits for a completion.
    fn work(&mut self, ring: usize, waits: bool) {
        let mut tasks = std::mem::take(&mut self.rings[ring].tasks);
        for last in (1..tasks.len()).rev() {
            tasks.swap(last, self.rng.below(last as u64 + 1) as usize);
        }
        let one_in = self.faults.late_one_in;
        let mut late = Vec::new();
        for id in tasks {
            if self.chance(one_in) {
                late.push(id);
            } else {
                self.attempt_task(ring, id);
            }
        }
        if waits && self.rings[ring].completions.is_empty() {
            for id in late {
                self.attempt_task(ring, id);
            }
        } else {
            self.rings[ring].tasks.append(&mut late);
        }
    }

    fn attempt_task(&mut self, ring: usize, id: u64) {
        let Some(operation) = self.rings[ring].in_flight.get_mut(&id) else {
            return;
        };
        operation.queued = false;
        let taken_back = operation.taken_back;
        if taken_back != TakenBack::Over {
            self.attempt(ring, id);
        }
        if taken_back != TakenBack::No {
            self.finish(ring, id, -Errno::CANCELED.raw_os_error(), 0);
        }
    }

    /// Takes in an operation that starts, and tries it at once unless it is to wait first.
    pub(super) fn take_in(
        &mut self,
        ring: usize,
        operation: Operation,
        user_data: u64,
        file: FileId,
        sends: Vec<Sent>,
    ) -> u64 {
        self.files.hold(file);
        let made = &mut self.rings[ring];
        made.last += 1;
        let id = made.last;
        let sum = sum(&sends);
        let operation = InFlight {
            user_data,
            operation,
            file,
            sends,
            sum,
            queued: false,
            taken_back: TakenBack::No,
        };
        made.in_flight.insert(id, operation);
        self.files.get(file).waits.push((ring, id));
        id
    }

    /// To be worked on when the ring is next entered.
    pub(super) fn queue(&mut self, ring: usize, id: u64) {
        let ring = &mut self.rings[ring];
        if let Some(operation) = ring.in_flight.get_mut(&id)
            && !std::mem::replace(&mut operation.queued, true)
        {
            ring.tasks.push(id);
        }
    }

    /// Something has happened to the file that an operation waits for.
    pub(super) fn stir(&mut self, ring: usize, id: u64, key: i32) {
        let Some(waiting) = self.rings[ring].in_flight.get(&id) else {
            return;
        };
        let interest = match waiting.operation {
            Operation::Poll { events, .. } => events.into(),
            Operation::Send { .. } | Operation::SendSeveral { .. } => OUT,
            _ => IN,
        };
        if key == 0 || key & (interest | ERR | HUP) != 0 {
            self.queue(ring, id);
        }
    }

    // ---- Completions ----

    /// Whether another completion would find room.
    pub(super) fn has_room(&self, ring: usize) -> bool {
        let ring = &self.rings[ring];
        ring.overflow.is_empty() && ring.completions.len() < self.faults.completions
    }

    pub(super) fn post(&mut self, ring: usize, user_data: u64, result: i32, flags: u32) {
        let done = Done {
            user_data,
            result,
            flags,
        };
        self.record("complete", user_data as RawFd, result.into());
        if self.has_room(ring) {
            self.rings[ring].completions.push_back(done);
        } else {
            self.rings[ring].overflow.push_back(done);
        }
    }

    /// The last completion of an operation.
    pub(super) fn finish(&mut self, ring: usize, id: u64, result: i32, flags: u32) {
        let Some(over) = self.rings[ring].in_flight.get(&id) else {
            return;
        };
        let user_data = over.user_data;
        if self.trusts() && sum(&over.sends) != over.sum {
            self.wrong("output was changed while it was being sent".into());
        }
        self.forget(ring, id);
        self.post(ring, user_data, result, flags);
    }

    fn forget(&mut self, ring: usize, id: u64) {
        if let Some(over) = self.rings[ring].in_flight.remove(&id) {
            let waits = &mut self.files.get(over.file).waits;
            waits.retain(|waiting| *waiting != (ring, id));
            self.release(over.file);
        }
    }

    fn move_over(&mut self, ring: usize) {
        let most = self.faults.completions;
        let ring = &mut self.rings[ring];
        while ring.completions.len() < most
            && let Some(done) = ring.overflow.pop_front()
        {
            ring.completions.push_back(done);
        }
    }

    pub(super) fn pop(&mut self, ring: usize) -> Option<Done> {
        self.rings[ring].completions.pop_front()
    }

    pub(super) fn overflowed(&self, ring: usize) -> bool {
        !self.rings[ring].overflow.is_empty()
    }

    pub(super) fn has_news(&mut self, ring: usize) -> bool {
        self.pass_a_look();
        self.rings[ring].has_something()
    }

    // ---- Buffers ----

    pub(super) fn register(&mut self, ring: usize, id: u16) {
        self.record("register", id.into(), 0);
        self.rings[ring].groups.push(Group {
            id,
            buffers: VecDeque::new(),
        });
    }

    pub(super) fn unregister(&mut self, ring: usize, id: u16) {
        self.record("unregister", id.into(), 0);
        if !self.rings[ring].in_flight.is_empty() {
            self.wrong("buffers are taken from a ring that receives".into());
        }
        self.rings[ring].groups.retain(|group| group.id != id);
    }

    pub(super) fn give(&mut self, ring: usize, group: u16, lent: Lent) {
        let mut groups = self.rings[ring].groups.iter_mut();
        let Some(group) = groups.find(|g| g.id == group) else {
            return self.wrong("a buffer is given to no group".into());
        };
        let (id, twice) = (lent.id, group.buffers.iter().any(|b| b.id == lent.id));
        group.buffers.push_back(lent);
        self.record("give", id.into(), 0);
        if twice {
            self.wrong(format!("receive buffer {id} is given twice"));
        }
    }

    /// A number was closed. A file that an operation uses must stay open until the operation is
    /// over, because the number may soon name another file; a cancelled wait may still be reported.
    pub(super) fn closed_under_operations(&mut self, id: FileId, number: RawFd) {
        if self.rings.iter().any(|ring| ring.table.contains(&Some(id))) {
            return;
        }
        for (ring, operation) in self.files.get(id).waits.clone() {
            let used = self.rings[ring].in_flight.get(&operation);
            match used.map(|o| o.operation) {
                None => {}
                Some(Operation::Poll { .. }) => self.rings[ring].orphans.push(operation),
                Some(_) => self.wrong(format!(
                    "{number} is closed with operations in flight on it"
                )),
            }
        }
    }

    /// No program would ever see the results of these operations, and the files that they wait on
    /// would stay.
    fn look_for_orphans(&mut self, ring: usize) {
        for id in std::mem::take(&mut self.rings[ring].orphans) {
            let waits = self.rings[ring].in_flight.get(&id);
            if waits.is_some_and(|o| o.taken_back == TakenBack::No) {
                self.wrong("a socket is closed, and still waited on".into());
            }
        }
    }
}

/// A hash of the bytes to send. The hash is computed with every send, so eight bytes at a time.
fn sum(sends: &[Sent]) -> u64 {
    let mut hash = 0u64;
    let mut mix = |word: u64| {
        hash = (hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    for sent in sends {
        let (words, rest) = sent.bytes().as_chunks::<8>();
        words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| mix(u64::from(*byte)));
    }
    hash
}
