//! One run: a machine, peers that come and go, work done elsewhere, dials, and a stop; and the
//! conditions that must hold meanwhile and at the end.

use std::time::Duration;

use crate::build::limits::Limits;
use crate::reach::waker::Command;
use crate::reactor::host::host_of;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::Turn;
use crate::sim::conditions::Conditions;
use crate::sim::explore::peers::{Peer, Script};
use crate::sim::explore::record::{Job, Record, Seen};
use crate::sim::explore::role::Role;
use crate::sim::explore::roles::Explored;
use crate::sim::kernel::KernelFaults;
use crate::sim::machine::{Machine, Program};
use crate::sim::net::{Status, address};
use crate::sim::node::Shape;
use crate::sim::plain::PlainState;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;

/// Steps after which a run is taken to go round in circles.
const STEPS_MAX: u64 = 400_000;
/// Virtual time after which what has not come to its end never will.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) struct Run {
    machine: Machine,
    rng: Rng,
    record: Record,
    peers: Vec<Peer>,
    /// Peers that are still to come.
    to_come: usize,
    next_peer: u64,
    dials: u64,
    dials_to_come: u64,
    at: Endpoint,
    /// A place that is reached, and does not answer.
    nobody_answers: Endpoint,
    /// Peers send pieces of up to two to this power of bytes.
    largest: u64,
    /// Peers come at once.
    crowd: bool,
    /// One of so many turns of a loop is late: others had the processor. 0 for never.
    late_one_in: u64,
    latency_max: Duration,
    /// Neither the network nor the kernel cuts a connection by itself.
    is_reliable: bool,
    /// The network does not.
    network_cuts_nobody: bool,
    /// Descriptors are few: no peer keeps one for ever.
    is_scarce: bool,
    /// When the stop begins, if it is not to wait for all peers.
    stop_early: Option<u64>,
    stopping: Option<Instant>,
    /// The peers that a stop has found, and what they must still receive.
    owed: Vec<Owed>,
    /// Nothing but the stop itself keeps a connection from being taken in.
    is_welcoming: bool,
    steps: u64,
}

/// The state of a peer when a stop began.
struct Owed {
    of: Endpoint,
    /// Bytes.
    arrived: usize,
}

/// The result of a run.
pub(super) struct Outcome {
    /// Violated contracts, if any.
    pub(super) wrongs: Vec<String>,
    pub(super) hash: u64,
    pub(super) calls: u64,
    pub(super) words: String,
}

pub(super) fn run(seed: u64, shape: Shape, in_words: bool) -> Outcome {
    let mut run = Run::new(seed, shape);
    if in_words {
        run.machine.kernel.borrow_mut().log.keep_words();
    }
    run.go();
    let kernel = run.machine.kernel.borrow();
    let outcome = Outcome {
        hash: kernel.hash(),
        calls: kernel.log.calls(),
        words: kernel.log.words().to_owned(),
        wrongs: run.record.lock().wrongs.clone(),
    };
    drop(kernel);
    outcome
}

/// Shares of sending for a run: very small ones, or anything up to the shares of a real loop. With shares of a byte or two
/// a large reply takes so many turns that it looks like a circle (seed 50,265).
fn shares(seed: u64) -> SendShares {
    let mut rng = Rng::from_seed(seed ^ 0x5ead_5ba2);
    if rng.below(4) == 0 {
        return SendShares::default();
    }
    let one = 8 << rng.below(10);
    SendShares {
        all: one * (1 + rng.below(4) as usize),
        one,
        small: [0, 1 << rng.below(10)][rng.below(2) as usize],
    }
}

/// Down to a byte for all, so that every output is much, up to what a loop has.
fn made(seed: u64) -> MakeShares {
    let mut rng = Rng::from_seed(seed ^ 0x3ade_0f17);
    if rng.below(4) == 0 {
        return MakeShares::default();
    }
    let one = 1 << rng.below(13);
    MakeShares {
        all: one * (1 + rng.below(4) as usize),
        one,
        small: [0, 1 << rng.below(10)][rng.below(2) as usize],
    }
}

/// Shares of receiving for a run: how much a loop receives in one turn when many connections have
/// input, and when few have.
fn received(seed: u64) -> ReceiveShares {
    let mut rng = Rng::from_seed(seed ^ 0x4ece_17ed);
    match rng.below(2) {
        0 => ReceiveShares::default(),
        _ => ReceiveShares {
            all: 1 << rng.below(18),
            few: rng.below(5) as usize,
        },
    }
}

/// For how long loops poll busily: mostly not at all.
fn busy_poll(seed: u64) -> Duration {
    let mut rng = Rng::from_seed(seed ^ 0xb059_0110);
    match rng.below(4) {
        0 => Duration::from_micros(1 << rng.below(7)),
        _ => Duration::ZERO,
    }
}

/// Whether the kernel had no memory to watch it, to receive or to send, which is what fails only there.
fn lacked_memory(why: Closed) -> bool {
    use std::io::ErrorKind::{OutOfMemory, StorageFull};
    matches!(why, Closed::Failed(OutOfMemory | StorageFull))
}

fn explored<const AHEAD: bool>(record: &Record, seed: u64, is_scarce: bool) -> Explored<AHEAD> {
    Explored {
        record: record.clone(),
        seed,
        is_scarce,
    }
}

impl Run {
    fn new(seed: u64, shape: Shape) -> Run {
        let mut rng = Rng::from_seed(seed ^ 0x00e8_9105_ea11);
        let record = Record::default();
        let limits = Limits {
            idle: None,
            linger: PATIENCE / 2,
            output_low: 1 << rng.below(10),
            output_high: 1 << (10 + rng.below(7)),
            turn_bytes: 1 << rng.below(16),
            ..Limits::default()
        };
        let faults = KernelFaults::harsh(seed);
        let is_scarce = faults.descriptors_max < 100;
        let is_welcoming = !is_scarce
            && faults.accept_fails_one_in == 0
            && faults.accept_aborts_one_in == 0
            && faults.watch_fails_one_in == 0
            && faults.bytes_fail_one_in == 0
            && faults.backlog > 20;
        let hosted = match seed / 3 % 2 {
            0 => host_of(explored::<false>(&record, seed, is_scarce), limits),
            _ => host_of(explored::<true>(&record, seed, is_scarce), limits),
        };
        let at = address(0, 1);
        let program = Program {
            shape,
            loops: [1, 2, 2, 3][rng.below(4) as usize],
            shared: rng.below(3) == 0,
            turn: match seed % 4 {
                0 => Turn::LeastConnections,
                _ => Turn::Next,
            },
            hosts: vec![hosted],
            at: at.clone(),
            inbox: [1, 1, 2, 4][rng.below(4) as usize],
            made: made(seed),
            shares: shares(seed),
            received: received(seed),
            busy_poll: busy_poll(seed),
        };
        let mut conditions = Conditions::from_seed(seed);
        // Small pieces are more frequent: they fill up soon, and cost little.
        if rng.below(2) == 0 {
            conditions.chunk = 1 << 10;
        }
        conditions.refuse_one_in = if rng.below(4) == 0 { 6 } else { 0 };
        conditions.reset_one_in = if rng.below(4) == 0 { 40 } else { 0 };
        let smallest = conditions
            .segment_max
            .min(conditions.receive_max)
            .min(conditions.accept_max)
            .min(conditions.send_buffer)
            .min(conditions.receive_buffer);
        // As many steps, whatever the sizes of what travels.
        let largest = (7 + u64::from(smallest.ilog2())).min(17);
        let network_cuts_nobody = conditions.reset_one_in == 0;
        // A connection whose bytes fail is cut.
        let is_reliable = network_cuts_nobody && faults.bytes_fail_one_in == 0;
        let latency_max = *conditions.latency.end();
        let machine = Machine::new(seed, conditions, faults, &program);
        machine.leave_room_for_one();
        let nobody_answers = machine.nobody_answers();
        let stop_early = (rng.below(4) == 0).then(|| rng.below(20_000_000));
        Run {
            machine,
            record,
            peers: Vec::new(),
            to_come: 1 + rng.below(12) as usize,
            largest,
            crowd: rng.below(2) == 0,
            late_one_in: [0, 2, 4, 64][rng.below(4) as usize],
            latency_max,
            is_reliable,
            network_cuts_nobody,
            is_scarce,
            next_peer: 0,
            dials: 0,
            // A connection that waits to be accepted here holds the descriptor that it waits for.
            dials_to_come: if is_scarce { 0 } else { rng.below(5) },
            at,
            nobody_answers,
            stop_early,
            stopping: None,
            owed: Vec::new(),
            is_welcoming,
            steps: 0,
            rng,
        }
    }

    fn wrong(&self, what: impl Into<String>) {
        self.record.wrong(what.into());
    }

    fn go(&mut self) {
        while !self.is_over() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return self.wrong("it goes round in circles");
            }
            if !self.one_step() && !self.pass_time() {
                break;
            }
            if self.something_is_wrong() {
                return;
            }
        }
        self.check_end();
    }

    fn something_is_wrong(&mut self) -> bool {
        let mut kernel = self.machine.kernel.borrow_mut();
        kernel.catch_up();
        let mut notes = self.record.lock();
        notes.wrongs.extend_from_slice(kernel.wrongs());
        !notes.wrongs.is_empty()
    }

    /// Gives one of the actors that would go on its turn.
    fn one_step(&mut self) -> bool {
        let now = self.machine.now().as_nanos();
        self.maybe_stop(now);
        let loops = self.machine.runnable();
        let kernel = self.machine.kernel.borrow();
        let hearing = |p: &Peer| p.goes_on(&kernel, now);
        let peers: Vec<usize> = (0..self.peers.len())
            .filter(|at| hearing(&self.peers[*at]))
            .collect();
        drop(kernel);
        let comes = self.to_come > 0 && self.next_peer <= now;
        let dials = self.dials_to_come > 0 && self.stopping.is_none();
        let jobs = self.record.lock().jobs.len();
        let works = jobs > 0;
        let all = loops.len() + peers.len() + usize::from(comes) + usize::from(dials);
        let all = all + usize::from(works);
        if all == 0 {
            return false;
        }
        let mut which = self.rng.below(all as u64) as usize;
        if which < loops.len() {
            self.turn_of_loop(loops[which]);
            return true;
        }
        which -= loops.len();
        if which < peers.len() {
            self.turn_of_peer(peers[which], now);
            return true;
        }
        which -= peers.len();
        if comes && which == 0 {
            self.peer_comes(now);
        } else if dials && which <= usize::from(comes) {
            self.dial();
        } else {
            self.work(jobs);
        }
        true
    }

    fn turn_of_loop(&mut self, which: usize) {
        match self.late() {
            // The stall of one loop, or of the whole machine.
            Some(time) if self.rng.below(4) == 0 => self.machine.stall_all(time),
            Some(time) => self.machine.stall(which, time),
            None => self.machine.go_on(which),
        }
    }

    /// For how long a loop gets no processor now; `None` if it gets one.
    fn late(&mut self) -> Option<Duration> {
        let late = self.late_one_in > 0 && self.rng.below(self.late_one_in) == 0;
        // All that happens meanwhile is found at once.
        let most = self.latency_max.as_nanos() as u64 * 4;
        late.then(|| Duration::from_nanos(self.rng.below(most)))
    }

    fn turn_of_peer(&mut self, which: usize, now: u64) {
        if let Some(time) = self.late() {
            self.peers[which].late_until = now + time.as_nanos() as u64;
            return;
        }
        let mut kernel = self.machine.kernel.borrow_mut();
        let peer = &mut self.peers[which];
        peer.hear(&mut kernel);
        while peer.step_due(now) {
            peer.step(&mut kernel);
        }
        peer.let_go(&mut kernel);
        kernel.catch_up();
        let wrong = peer.look();
        drop(kernel);
        if let Some(what) = wrong {
            self.wrong(what);
        }
    }

    fn peer_comes(&mut self, now: u64) {
        let mut kernel = self.machine.kernel.borrow_mut();
        let script = Script {
            begins: now,
            largest: self.largest,
            may_stay: !self.is_scarce,
        };
        let peer = Peer::new(&mut kernel, &mut self.rng, &self.at, &script);
        self.peers.push(peer);
        self.to_come -= 1;
        let most = 1 << self.rng.below(24);
        self.next_peer = match self.crowd {
            true => now,
            false => now + self.rng.below(most),
        };
    }

    fn dial(&mut self) {
        self.dials_to_come -= 1;
        self.dials += 1;
        // Times from much shorter than a connect takes to much longer.
        let timeout = self.latency_max / 8 * (1 << self.rng.below(10));
        let pause = Duration::from_nanos(1 << self.rng.below(28));
        let to = match self.rng.below(6) {
            0 => self.nobody_answers.clone(),
            _ => self.at.clone(),
        };
        let dial = Dial::to(to)
            .token(self.dials)
            .attempts(1 + self.rng.below(3) as u32)
            .timeout(timeout)
            .backoff(pause, pause * 4);
        let which = self.rng.below(8) as usize;
        let sent = self
            .machine
            .waker(which)
            .send(Command::Dial { service: 0, dial });
        if sent.is_ok() {
            self.record.dialled(self.dials, |_| {});
        }
    }

    /// Does a piece of the work that connections wait for, as another thread.
    fn work(&mut self, jobs: usize) {
        let which = self.rng.below(jobs as u64) as usize;
        let (of, job) = self.record.lock().jobs.swap_remove(which);
        match job {
            Job::Reserved(permit, message) => permit.post(message),
            Job::Post(handle, message) => {
                if let Err(refused) = handle.try_post(message) {
                    let again = Job::Post(handle, refused.0);
                    self.record.lock().jobs.push((of, again));
                }
            }
        }
    }

    fn pass_time(&mut self) -> bool {
        let now = self.machine.now().as_nanos();
        let peers = self.peers.iter().filter_map(|p| p.next_time(now));
        let comes = (self.to_come > 0).then_some(self.next_peer);
        let stop = self.stop_early.filter(|_| self.stopping.is_none());
        let own = peers.chain(comes).chain(stop).map(Instant::from_nanos);
        let next = own.chain(self.machine.next_time()).min();
        let most = Instant::from_nanos(0) + PATIENCE * 4;
        match next {
            Some(at) if at <= most => self.machine.go_to(at),
            _ => return self.nothing_to_come(),
        }
        true
    }

    /// Everything has come to rest: begins the stop, unless it has begun.
    fn nothing_to_come(&mut self) -> bool {
        if self.stopping.is_some() {
            return false;
        }
        self.check_rest();
        self.begin_stop();
        true
    }

    fn maybe_stop(&mut self, now: u64) {
        if self.stopping.is_some() {
            return;
        }
        if self.stop_early.is_some_and(|at| at <= now) {
            self.to_come = 0;
            self.begin_stop();
        } else if self.to_come == 0
            && self.stop_early.is_none()
            && self.dials_to_come == 0
            && self.peers.iter().all(Peer::is_done)
            && self.record.lock().is_at_rest()
            && self.machine.counters().open == 0
        {
            self.check_rest();
            self.begin_stop();
        }
    }

    fn begin_stop(&mut self) {
        let patience = Duration::from_nanos(self.rng.below(1 << 32));
        let deadline = self.machine.now() + patience;
        self.stopping = Some(deadline);
        self.note_owed(patience);
        self.machine.stop(deadline);
    }

    /// Notes what a stop with enough time will find: which peers are connected or about to be, and
    /// how many bytes each has received.
    fn note_owed(&mut self, patience: Duration) {
        // Loops may be late, and each step of theirs; a fourth of the rest is for handshakes.
        let slow = self.latency_max * 40;
        self.is_welcoming &=
            self.is_reliable && patience > slow && slow < Duration::from_millis(500);
        if !self.is_reliable {
            return;
        }
        let kernel = self.machine.kernel.borrow();
        for peer in &self.peers {
            let end = peer.plain.end;
            let taken = peer.sent - peer.plain.unsent() - kernel.net.untaken(end);
            self.owed.push(Owed {
                of: peer.from.clone(),
                arrived: taken,
            });
        }
    }

    /// Every peer that heard that it was connected was served, and what had come before the stop
    /// was read.
    fn check_owed(&self, wrongs: &mut Vec<String>) {
        let notes = self.record.lock();
        for peer in self.peers.iter().filter(|peer| peer.is_clean) {
            let served = notes.accepted.get(&peer.from);
            if self.is_welcoming && peer.plain.was_connected && served.is_none() {
                let (of, state) = (&peer.from, peer.plain.state);
                wrongs.push(format!(
                    "{of}: was connected, is {state:?}, and was not served"
                ));
            }
        }
        for Owed { of, arrived } in &self.owed {
            let Some(seen) = notes.accepted.get(of) else {
                continue;
            };
            let reads = matches!(
                seen.role,
                Some(Role::Forward | Role::Write | Role::LockStep)
            );
            let in_order = matches!(seen.closed[..], [Closed::Stopped | Closed::Finished]);
            if reads && in_order && seen.consumed < *arrived {
                let n = seen.consumed;
                wrongs.push(format!(
                    "{of}: {arrived} bytes had come before the stop, {n} were read: {seen:?}"
                ));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stopping.is_some() && self.machine.ended()
    }

    /// Nothing more happens by itself: every peer that did nothing wrong has been served.
    fn check_rest(&self) {
        for peer in &self.peers {
            if !peer.is_clean {
                continue;
            }
            let notes = self.record.lock();
            let what = self.left_undone(peer, notes.accepted.get(&peer.from));
            drop(notes);
            if let Some(what) = what {
                self.wrong(format!("{}: {what}", peer.from));
            }
        }
        let counters = self.machine.counters();
        let open = counters.open;
        if counters.lingering > open {
            let n = counters.lingering;
            self.wrong(format!("{n} linger of {open} that are open"));
        }
        let notes = self.record.lock();
        // A connection that waits for ever may have the end of its peer behind bytes that are not
        // taken.
        let waiting = notes.accepted.values().filter(|s| s.waits()).count();
        drop(notes);
        self.check_resets();
        if open > waiting as u64 && self.peers.iter().all(Peer::is_done) {
            self.wrong(format!("{open} are left open, and no loop is left"));
        }
        let notes = self.record.lock();
        let lost: Vec<String> = notes
            .dialled
            .iter()
            .filter(|(_, d)| !d.has_one_outcome())
            .map(|(token, d)| format!("dial {token}: no outcome, or two: {d:?}"))
            .collect();
        drop(notes);
        for what in lost {
            self.wrong(what);
        }
    }

    /// Every protocol whose connection was reset has been told, whether it reads or not.
    fn check_resets(&self) {
        let kernel = self.machine.kernel.borrow();
        for peer in &self.peers {
            let open = self.record.seen(&peer.from, |seen| seen.is_open());
            if open && matches!(kernel.net.status(peer.plain.end.other()), Status::Broken(_)) {
                let of = &peer.from;
                self.wrong(format!("{of}: is reset, and no peer is told"));
            }
        }
    }

    /// The events that a correct peer has missed, if any.
    fn left_undone(&self, peer: &Peer, seen: Option<&Seen>) -> Option<String> {
        let (state, got) = (peer.plain.state, peer.plain.received.len());
        let Some(seen) = seen.filter(|seen| seen.opened > 0) else {
            return match state {
                PlainState::Failed(_) => None,
                _ => Some(format!("is {state:?}, and was never served, nor refused")),
            };
        };
        if seen.closed.iter().any(|why| lacked_memory(*why)) {
            let going = matches!(state, PlainState::Open | PlainState::Connecting);
            return going.then(|| format!("is {state:?}, and was cut for want of memory"));
        }
        let role = seen.role.expect("drawn when it was accepted");
        // The peer lets go as soon as it has got its end. Whose bytes fail is cut at once, and does
        // not wait for that.
        if seen.closed.contains(&Closed::LingerExpired) && self.network_cuts_nobody {
            return Some(format!("{role:?}: was not told the end"));
        }
        if seen.closed.contains(&Closed::Aborted) && !matches!(state, PlainState::Failed(_)) {
            return Some(format!("{role:?}: is {state:?} after an abort"));
        }
        if role == Role::Deaf && seen.is_open() {
            return None;
        }
        let Some(all) = role.comes_back(peer.sent, seen.unread) else {
            let going = matches!(state, PlainState::Open | PlainState::Connecting);
            return going.then(|| format!("{role:?}: is {state:?} for ever"));
        };
        let window = self.machine.kernel.borrow().net.conditions.receive_buffer;
        match state {
            PlainState::Ended if got == all => None,
            // The peer's end is behind bytes that are not taken.
            PlainState::Open if role == Role::Wait && peer.sent > window => None,
            PlainState::Failed(_) if !self.is_reliable => None,
            // A peer whose last bytes come when the connection is gone.
            PlainState::Failed(_) if !role.echoes_all() && got == all => None,
            _ => Some(format!(
                "{role:?}: is {state:?} after {got} of {all} bytes; {seen:?}"
            )),
        }
    }

    fn check_end(&self) {
        if !self.machine.ended() {
            return self.wrong("a stop does not end");
        }
        if let Some(deadline) = self.stopping
            && self.machine.now() > deadline + Duration::from_secs(30)
        {
            self.wrong("a stop takes longer than it may");
        }
        let mut wrongs = Vec::new();
        let notes = self.record.lock();
        for (of, seen) in &notes.accepted {
            if seen.opened > 1 || seen.opened as usize != seen.closed.len() {
                wrongs.push(format!("{of}: opened and closed unlike once: {seen:?}"));
            }
            let cut = seen.closed.iter().any(|why| *why != Closed::Finished);
            if seen.posted != seen.given
                && !cut
                && !seen.drained
                && seen.role.is_some_and(|r| r.echoes_all())
            {
                wrongs.push(format!("{of}: a message was lost: {seen:?}"));
            }
        }
        for (token, d) in &notes.dialled {
            if d.opened > 1 || d.opened as usize != d.closed.len() {
                wrongs.push(format!(
                    "dial {token}: opened and closed unlike once: {d:?}"
                ));
            }
        }
        drop(notes);
        self.check_owed(&mut wrongs);
        let counters = self.machine.counters();
        if counters.open != 0 {
            wrongs.push(format!("{} connections are counted as open", counters.open));
        }
        let open = self.machine.kernel.borrow_mut().open();
        if !open.is_empty() {
            wrongs.push(format!("descriptors are left open: {open:?}"));
        }
        wrongs.extend_from_slice(self.machine.kernel.borrow().wrongs());
        for what in wrongs {
            self.wrong(what);
        }
    }
}
