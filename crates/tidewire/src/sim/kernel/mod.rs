//! A kernel of our own, from a seed and on virtual time: what production drivers call when they are
//! simulated.
//!
//! * [`sys`], [`queues`]: what drivers call, [`Sys`](crate::kernel::calls::Sys) and
//!   [`Queues`](crate::kernel::queues::Queues).
//! * [`streams`], [`epoll`], [`ring`], [`rings`], [`operations`]: the parts of the kernel behind
//!   it.
//! * [`files`], [`fd`], [`timers`]: open files, numbers and descriptors.
//! * [`places`]: the tables of rings.
//! * [`memory`]: buffers that programs lend.
//! * [`faults`]: the faults that the kernel causes to programs. [`log`]: what happened.
//!
//! Bytes travel over the simulated [network](super::net). A program never waits in here: a wait that
//! finds nothing [parks](Kernel::parked) the loop, and the simulation goes on with another.

mod epoll;
mod faults;
mod fd;
mod files;
mod log;
mod memory;
mod operations;
mod places;
pub(in crate::sim) mod queues;
mod ring;
mod rings;
mod streams;
pub(in crate::sim) mod sys;
mod timers;

use std::cell::{Cell, RefCell, RefMut};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use crate::reactor::random::Rng;
use crate::sim::kernel::fd::{Request, Requests};
use crate::sim::kernel::files::{FileId, Files, What};
use crate::sim::kernel::log::Log;
use crate::sim::kernel::ring::Ring;
use crate::sim::net::Net;
use crate::vocabulary::endpoint::Endpoint;

pub use faults::KernelFaults;
pub(crate) use fd::SimFd;

/// The event that a loop waits for.
#[derive(Clone, Debug)]
enum Wait {
    Epoll(FileId),
    Poll(Vec<(RawFd, i16)>),
    Ring(usize),
}

/// A loop's wait that has found nothing.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    wait: Wait,
    /// Virtual nanoseconds; never if there is none.
    pub(crate) until: Option<u64>,
}

/// A place where connections are accepted, by one listener or several.
struct Port {
    at: Endpoint,
    listeners: Vec<FileId>,
}

pub(crate) struct Kernel {
    pub(in crate::sim) net: Net,
    now: Rc<Cell<u64>>,
    rng: Rng,
    pub(crate) faults: KernelFaults,
    files: Files,
    rings: Vec<Ring>,
    ports: Vec<Port>,
    timers: Vec<FileId>,
    pub(crate) log: Log,
    /// Calls of programs that no kernel accepts, in words.
    wrongs: Vec<String>,
    /// The kernel's inbox on the network.
    actor: usize,
    /// A wait that finds nothing is for the simulation to go on with.
    parks: bool,
    parked: Option<Parked>,
    /// A loop is being set up: it is not to fail for want of memory before it has begun.
    is_setting_up: bool,
    /// Nanoseconds that pass with each look of a loop that polls busily; 0 if none does.
    look_ns: u64,
    requests: Requests,
    last_port: u16,
}

/// A kernel, shared by the loops of a simulation.
pub(crate) type Shared = Rc<RefCell<Kernel>>;

/// Has the kernel carry out the noted calls, and gives access to the kernel.
fn enter(kernel: &Shared) -> RefMut<'_, Kernel> {
    let mut kernel = kernel.borrow_mut();
    kernel.catch_up();
    kernel
}

impl Kernel {
    /// A kernel whose inbox on the network is that of `actor`.
    pub(in crate::sim) fn new(
        mut net: Net,
        now: Rc<Cell<u64>>,
        actor: usize,
        rng: Rng,
        faults: KernelFaults,
    ) -> Shared {
        net.slow_handshakes = faults.slow_handshakes;
        Rc::new(RefCell::new(Kernel {
            net,
            now,
            rng,
            faults,
            files: Files::default(),
            rings: Vec::new(),
            ports: Vec::new(),
            timers: Vec::new(),
            log: Log::default(),
            wrongs: Vec::new(),
            actor,
            parks: false,
            parked: None,
            is_setting_up: false,
            look_ns: 0,
            requests: Requests::new(),
            last_port: 1023,
        }))
    }

    // ---- For the simulation ----

    /// Sets the faults that programs meet from now on.
    pub(crate) fn be(&mut self, faults: KernelFaults) {
        self.net.slow_handshakes = faults.slow_handshakes;
        self.faults = faults;
    }

    /// Carries out the calls that were noted away from loops, and takes what has arrived from the
    /// network.
    pub(crate) fn catch_up(&mut self) {
        loop {
            let requests = self.requests.take();
            for request in &requests {
                match *request {
                    Request::Close(number) => self.close(number),
                    Request::ResetOnClose(number) => self.reset_on_close(number),
                    Request::Notify(number) => self.set_event(number, true),
                    Request::Clear(number) => self.set_event(number, false),
                }
            }
            self.hear();
            self.ring_timers();
            if requests.is_empty() {
                return;
            }
        }
    }

    /// From here on a wait that finds nothing parks its loop, or (false) lets time pass by itself.
    pub(crate) fn parking(&mut self, on: bool) {
        self.parks = on;
    }

    /// A loop is being set up from here on, or is set up.
    pub(crate) fn setting_up(&mut self, on: bool) {
        self.is_setting_up = on;
    }

    /// A loop's look for news takes so long from here on; nanoseconds.
    #[cfg(test)]
    pub(crate) fn looks_take(&mut self, ns: u64) {
        self.look_ns = ns;
    }

    /// Time passes with a look for news that is not a wait.
    fn pass_a_look(&mut self) {
        if self.look_ns == 0 {
            return;
        }
        let now = self.now.get() + self.look_ns;
        while let Some(at) = self.net.next_arrival().filter(|at| at.as_nanos() <= now) {
            self.now.set(self.now.get().max(at.as_nanos()));
            self.net.arrive();
        }
        self.now.set(now);
        self.catch_up();
    }

    /// The wait that was parked since the last call.
    pub(crate) fn parked(&mut self) -> Option<Parked> {
        self.parked.take()
    }

    /// Whether a parked wait would find something now.
    pub(crate) fn is_ready(&mut self, parked: &Parked) -> bool {
        self.catch_up();
        match &parked.wait {
            Wait::Epoll(epoll) => self.epoll_ready(*epoll),
            Wait::Poll(fds) => fds.iter().any(|&(fd, events)| self.polled(fd, events) != 0),
            Wait::Ring(ring) => self.rings[*ring].has_something(),
        }
    }

    /// Calls of programs that no kernel accepts.
    pub(crate) fn wrongs(&self) -> &[String] {
        &self.wrongs
    }

    /// Descriptors that are open.
    #[cfg(test)]
    pub(crate) fn open(&mut self) -> Vec<RawFd> {
        self.catch_up();
        self.files.open_numbers().collect()
    }

    /// A hash of every call and everything on the network.
    #[cfg(test)]
    pub(crate) fn hash(&self) -> u64 {
        self.log.hash() ^ self.net.trace.hash()
    }

    // ---- Inside ----

    /// A program has made a mistake.
    fn wrong(&mut self, what: String) {
        self.record("WRONG", 0, self.wrongs.len() as i64);
        self.log.say(|| format!("             {what}"));
        self.wrongs.push(what);
    }

    /// Whether lent memory may be looked at: no planted mistake has happened.
    fn trusts(&self) -> bool {
        self.wrongs.is_empty()
    }

    fn record(&mut self, call: &'static str, number: RawFd, result: i64) {
        let now = self.now.get();
        self.log.call(now, call, number, result);
    }

    fn record_name(&mut self, call: &'static str, number: RawFd, name: &Endpoint) {
        let hashed = log::hash_of(name.to_string().as_bytes());
        self.record(call, number, hashed);
        self.log.say(|| format!("             {name}"));
    }

    fn chance(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.rng.below(one_in) == 0
    }

    /// Whether something fails that goes wrong once in so many times.
    fn fails(&mut self, call: &'static str, number: RawFd, one_in: u64) -> Result<(), Errno> {
        if !self.chance(one_in) {
            return Ok(());
        }
        self.record(call, number, -i64::from(libc::ENOMEM));
        Err(Errno::NOMEM)
    }

    fn interrupted(&mut self) -> bool {
        let one_in = self.faults.interrupt_one_in;
        self.chance(one_in)
    }

    /// A new descriptor's number, if there may be one more.
    fn open_file(&mut self, what: What) -> Result<RawFd, Errno> {
        if self.files.open_numbers().count() >= self.faults.descriptors_max {
            return Err(Errno::MFILE);
        }
        Ok(self.files.open(what))
    }

    fn fd(&self, number: RawFd) -> SimFd {
        SimFd::new(number, &self.requests)
    }

    fn deadline(&self, timeout: Option<Duration>) -> Option<u64> {
        timeout.map(|t| self.now.get().saturating_add(t.as_nanos() as u64))
    }

    /// A wait has found nothing: parks it, or lets time pass until there may be something. False when
    /// that is as much as is to be waited.
    fn wait(&mut self, wait: Wait, until: Option<u64>) -> bool {
        let rings = self.next_timer(&wait);
        let by_timer = rings.is_some_and(|at| until.is_none_or(|until| at <= until));
        let until = if by_timer { rings } else { until };
        if self.parks {
            self.parked = Some(Parked { wait, until });
            return false;
        }
        let arrival = self.net.next_arrival().map(|at| at.as_nanos());
        match (arrival, until) {
            (Some(arrival), until) if until.is_none_or(|until| arrival <= until) => {
                self.now.set(self.now.get().max(arrival));
                self.net.arrive();
                self.catch_up();
                true
            }
            (_, Some(until)) => {
                self.now.set(self.now.get().max(until));
                self.catch_up();
                by_timer
            }
            (_, None) => {
                self.wrong("a loop waits for ever, and nothing is to come".into());
                false
            }
        }
    }
}
