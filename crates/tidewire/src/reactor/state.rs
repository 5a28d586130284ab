//! One connection as the loop sees it, with any protocol and any engine.
//!
//! Callbacks never act on sockets. Callbacks change this record through [`Link`](crate::Link). When
//! a callback has returned, the loop *settles* the connection: it looks at the record and does what
//! the record calls for.

use std::io;

use crate::admission::Part;
use crate::build::limits::Limits;
use crate::memory::kept::Kept;
use crate::memory::output::Output;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::deadlines::Deadlines;
use crate::reactor::facts::{
    Appetite, Awaits, Flag, Hint, Owed, PeerEnd, Phase, Rest, Set, Told, Writing,
};
use crate::reactor::race::Race;
use crate::reactor::timers::Timers;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;

/// A dialled connection on its way.
pub(crate) struct Attempts {
    pub(crate) dial: Dial,
    pub(crate) failed: u32,
    /// An attempt is under way; else the pause between two.
    pub(crate) connecting: bool,
    /// The round under way, of a dial to a host.
    pub(crate) race: Option<Box<Race>>,
    /// The connection that the dial is tied to.
    pub(crate) by: Option<ConnId>,
}

pub(crate) struct State {
    pub(crate) id: ConnId,
    /// Which of the loop's services, and where in that service's table its protocol is.
    pub(crate) service: u16,
    pub(crate) slot: u32,
    pub(crate) phase: Phase,
    pub(crate) appetite: Appetite,
    pub(crate) writing: Writing,
    pub(crate) out: Output,
    pub(crate) carry: Vec<u8>,
    /// The chunks that the connection's protocol keeps; `None` if it never kept any.
    pub(crate) kept: Option<Kept>,
    /// Bytes that the connection of a protocol inside it holds, where it is a layer's.
    pub(crate) inside: u32,
    /// Bytes of these four that its loop has counted.
    pub(crate) counted: u32,
    pub(crate) peer: Peer,
    /// The earliest timer of the connection's protocol.
    pub(crate) timer: Option<Instant>,
    /// All timers, if one with a key was set.
    pub(crate) timers: Option<Box<Timers>>,
    /// The time at which a byte was last received or sent. For a connection with a layer, the inner protocol must have
    /// received or sent it.
    pub(crate) last_progress: Instant,
    /// When the present phase ends by force: the linger limit, a dial's next step, or an open
    /// connection's lifetime.
    pub(crate) phase_ends: Option<Instant>,
    pub(crate) deadlines: Deadlines,
    /// In the virtual time of its loop, until when it has had its share of what is made.
    pub(crate) made_until: u64,
    /// When the timer wheel will fire for this connection; `u64::MAX` if it will not.
    pub(crate) wheel_ns: u64,
    pub(crate) low: u32,
    pub(crate) high: u32,
    /// Queued output above this many bytes counts for the turn's budget: the high mark, or the size of
    /// output that is small.
    pub(crate) mark: u32,
    /// Output may not grow beyond this. 0 once this side writes no more: see `Link::may_queue`.
    pub(crate) hard: u32,
    /// The reason that `finish` records, where the loop itself suggested finishing.
    pub(crate) hint: Hint,
    /// The event for which the connection waits while it finishes.
    pub(crate) awaits: Awaits,
    /// The number of the delivery that takes this connection's latest messages to other connections: see
    /// [`Env::has_told`](crate::reactor::env::Env).
    pub(crate) tells: u32,
    pub(crate) peer_end: PeerEnd,
    pub(crate) told: Told,
    pub(crate) owed: Set<Owed>,
    pub(crate) flags: Set<Flag>,
    /// The attempts of a dialled connection that is not yet established.
    pub(crate) attempts: Option<Box<Attempts>>,
    /// The facts for the connection's access-log line; `None` if no such line is logged.
    pub(crate) tally: Option<Box<Tally>>,
}

/// Counts of a connection for its log line.
pub(crate) struct Tally {
    pub(crate) opened: Instant,
    /// Bytes.
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl State {
    pub(crate) fn new(
        id: ConnId,
        service: u16,
        peer: Peer,
        limits: &Limits,
        now: Instant,
    ) -> State {
        let mut flags = Set::empty();
        flags.add(Flag::Heavy);
        State {
            id,
            service,
            slot: 0,
            phase: Phase::Open,
            appetite: Appetite::SOME,
            writing: Writing::Open,
            out: Output::default(),
            carry: Vec::new(),
            kept: None,
            inside: 0,
            counted: 0,
            peer,
            timer: None,
            timers: None,
            last_progress: now,
            phase_ends: None,
            deadlines: Deadlines::new(limits),
            made_until: 0,
            wheel_ns: u64::MAX,
            low: u32::try_from(limits.output_low).unwrap_or(u32::MAX),
            high: u32::try_from(limits.output_high).unwrap_or(u32::MAX),
            mark: 0,
            hard: u32::try_from(limits.output_hard).unwrap_or(u32::MAX),
            hint: Hint::Finished,
            awaits: Awaits::PeerEnd,
            tells: u32::MAX,
            peer_end: PeerEnd::Unknown,
            told: Told::Nothing,
            owed: Set::empty(),
            flags,
            attempts: None,
            tally: None,
        }
    }

    /// Whether the protocol still gets input, and its requests still count.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Failing { .. })
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.flags.has(Flag::Paused)
    }

    #[inline]
    pub(crate) fn was_opened(&self) -> bool {
        self.flags.has(Flag::Opened)
    }

    /// The round under way, if it is a dial to a host.
    pub(crate) fn race(&mut self) -> Option<&mut Race> {
        self.attempts.as_mut()?.race.as_deref_mut()
    }

    /// Whether the connection counts among the open connections of its service.
    pub(crate) fn counts(&self) -> bool {
        self.was_opened() && !matches!(self.phase, Phase::Buried(_))
    }

    /// Sets as what the admission rules counted the connection when it came in.
    pub(crate) fn counts_as(&mut self, part: Part) {
        if part == Part::Nameless {
            self.flags.add(Flag::Nameless);
        }
    }

    /// As what the connection is counted, for taking it out of the counts when it closes.
    pub(crate) fn counted_as(&self) -> Part {
        match self.flags.has(Flag::Nameless) {
            true => Part::Nameless,
            false => Part::Whole,
        }
    }

    /// Whether all that the peer sent before its end has been received.
    #[inline]
    pub(crate) fn input_ended(&self) -> bool {
        self.peer_end == PeerEnd::Reached
    }

    /// The engine saw the peer's end of sending, perhaps behind data that is still to be read.
    pub(crate) fn announce_end(&mut self) {
        self.peer_end = self.peer_end.max(PeerEnd::Announced);
    }

    /// Whether the peer's end of sending was seen at all.
    #[inline]
    pub(crate) fn knows_peer_end(&self) -> bool {
        self.peer_end != PeerEnd::Unknown
    }

    /// The kernel takes no more output for now, or a send is in flight.
    #[inline]
    pub(crate) fn block_sending(&mut self) {
        self.flags.add(Flag::SendBlocked);
    }

    /// Notes that sending is not blocked any more; returns whether it was.
    #[inline]
    pub(crate) fn unblock_sending(&mut self) -> bool {
        self.flags.remove(Flag::SendBlocked)
    }

    #[inline]
    pub(crate) fn is_send_blocked(&self) -> bool {
        self.flags.has(Flag::SendBlocked)
    }

    /// Whether there is output that may be sent and nothing in its way.
    #[inline]
    pub(crate) fn may_flush(&self) -> bool {
        self.out.may_send() && !self.is_send_blocked()
    }

    /// Bytes that the connection holds: output, carried input, what its protocol keeps.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        let kept = self.kept.as_ref().map_or(0, Kept::bytes);
        self.out.footprint() + self.carry.capacity() + kept + self.inside as usize
    }

    /// Whether the engine should receive: open and hungry, or discarding what still comes.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        !self.input_ended()
            && match self.phase {
                Phase::Open | Phase::Failing { .. } => {
                    !self.is_paused() && !self.holds_input_back()
                }
                Phase::Finishing(_) | Phase::Lingering(_) => true,
                Phase::Dialling | Phase::Racing(_) | Phase::Dead { .. } | Phase::Buried(_) => false,
            }
    }

    /// Whether neither receiving nor sending would show that the peer has gone.
    pub(crate) fn shows_nothing(&self) -> bool {
        match self.phase {
            Phase::Open => {
                let held_back = self.flags.has(Flag::AwaitsMemory) && !self.out.may_send();
                self.is_paused() || self.input_ended() || held_back
            }
            // Held back until a mark is released.
            Phase::Finishing(_) => self.input_ended() && !self.out.may_send(),
            _ => false,
        }
    }

    /// Whether `received` may be called with `len` new bytes behind carried ones.
    #[inline]
    pub(crate) fn hungry_for(&self, len: usize) -> bool {
        match self.appetite {
            Appetite::Bytes(n) => {
                !self.is_paused()
                    && !self.owed.has(Owed::Replay)
                    && self.carry.len() + len >= n.get() as usize
            }
            Appetite::Drain => false,
        }
    }

    /// Whether the connection may be called so, and made little output at the last call: nearly
    /// always.
    #[inline]
    pub(crate) fn is_plainly_hungry_for(&self, len: usize) -> bool {
        !self.flags.has(Flag::Heavy) && self.hungry_for(len)
    }

    /// Carries bytes that may not be offered yet.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        let (room, need) = (self.carry.capacity(), self.carry.len() + bytes.len());
        if let Appetite::Bytes(n) = self.appetite
            && need > room
        {
            // Room grows by doubling, so that a long frame is moved only a few times, and never beyond the
            // frame's end. Room for the whole frame is not reserved at once: announcing a length costs the
            // peer nothing, and the room would count for memory.
            let room = (2 * room).min(n.get() as usize).max(need);
            self.carry.reserve_exact(room - self.carry.len());
        }
        self.carry.extend_from_slice(bytes);
    }

    /// Whether carried bytes may be offered again now.
    #[inline]
    pub(crate) fn replay_due(&self) -> bool {
        self.owed.has(Owed::Replay)
            && self.is_open()
            && !self.is_paused()
            && match self.appetite {
                Appetite::Bytes(n) => {
                    self.owed.has(Owed::GoOn)
                        || !self.carry.is_empty() && self.carry.len() >= n.get() as usize
                }
                Appetite::Drain => false,
            }
    }

    /// Releases output up to a mark; whether anything waited for it. A peer that could take nothing
    /// before has not been slow.
    pub(crate) fn release(&mut self, upto: u64, now: Instant) -> bool {
        let stuck = !self.out.may_send();
        let some = self.out.release(upto);
        if some && stuck {
            self.last_progress = now;
        }
        some
    }

    /// Whether output that had been full has fallen to the low mark.
    #[inline]
    pub(crate) fn drained(&self) -> bool {
        self.owed.has(Owed::Writable) && self.is_open() && self.out.footprint() <= self.low as usize
    }

    /// Whether a protocol that waits for its output to drain has waited long enough. Output that
    /// was never full must go altogether: a low mark above it would be no wait at all. A layer waits for
    /// the output inside it.
    #[inline]
    pub(crate) fn drain_over(&self) -> bool {
        self.appetite == Appetite::Drain
            && !self.owed.has(Owed::Writable)
            && self.out.is_empty()
            && !self.flags.has(Flag::HeldInside)
            && self.is_open()
    }

    /// Whether input is held back until output has drained, or more may be made, and by nothing else.
    pub(crate) fn waits_for_drain(&self) -> bool {
        self.is_open() && self.holds_input_back() && !self.is_paused() && !self.input_ended()
    }

    /// Whether input has to wait until output has drained, or until it is this connection's turn to
    /// make more. Only input that leads to replies waits for a turn: a connection that always has
    /// output would otherwise never be read from.
    #[inline]
    pub(crate) fn holds_input_back(&self) -> bool {
        let is_put_off = self.flags.has(Flag::AwaitsMaking) && self.owed.has(Owed::Replay);
        self.appetite == Appetite::Drain || is_put_off
    }

    /// Whether the connection may make no more output until its turn has come, or until output inside it has drained,
    /// however much of its own has been sent.
    fn is_put_off(&self) -> bool {
        let off = [Flag::OverShare, Flag::AwaitsMaking, Flag::HeldInside];
        !self.flags.has_none(&off)
    }

    /// Sets whether the protocol inside this layer takes input. Returns whether it takes input again: then the layer's
    /// own unconsumed input is offered once more.
    pub(crate) fn hold_inside(&mut self, on: bool) -> bool {
        let again = self.flags.has(Flag::HeldInside) && !on;
        if again {
            self.owed.add(Owed::Replay);
        }
        self.flags.set(Flag::HeldInside, on);
        again
    }

    /// Has `received` called with the carried input as soon as may be, if the connection waited for
    /// its output to drain.
    pub(crate) fn end_drain_wait(&mut self) {
        if self.appetite == Appetite::Drain {
            self.appetite = Appetite::SOME;
            if !mistaken(Mistake::DrainForgotten) {
                self.owed.add(Owed::Replay);
                self.owed.add(Owed::GoOn);
            }
        }
    }

    #[inline]
    pub(crate) fn end_of_input_due(&self) -> bool {
        self.input_ended()
            && self.told != Told::Finished
            && self.phase == Phase::Open
            && !self.owed.has(Owed::EndInside)
            && !self.is_paused()
            && self.appetite != Appetite::Drain
            && !self.replay_due()
    }

    #[inline]
    pub(crate) fn hang_up_due(&self) -> bool {
        self.knows_peer_end() && self.told == Told::Nothing && self.is_paused() && self.is_open()
    }

    /// Whether `draining` is to be called now. A connection that was never served is served first.
    #[inline]
    pub(crate) fn drain_due(&self) -> bool {
        self.owed.has(Owed::Draining)
            && self.phase == Phase::Open
            && (!self.flags.has(Flag::Unserved) || self.flags.has(Flag::Outlived))
            && !self.replay_due()
            && (self.appetite != Appetite::Drain || self.is_paused())
    }

    /// A cheap test that most connections fail at most times: false means that no callback is owed,
    /// and that this side is not to be shut.
    #[inline]
    pub(crate) fn may_owe_callbacks(&self) -> bool {
        !self.owed.is_empty()
            | self.knows_peer_end()
            | matches!(self.appetite, Appetite::Drain)
            | matches!(self.writing, Writing::Ending)
    }

    /// Whether the connection is open and owes no callback.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.phase, Phase::Open) && !self.may_owe_callbacks()
    }

    /// The earliest of the deadlines that matter in this phase; `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        let ns = |t: Option<Instant>| t.map_or(u64::MAX, Instant::as_nanos);
        match self.phase {
            Phase::Open => {}
            Phase::Finishing(_) | Phase::Lingering(_) => {
                return ns(self.phase_ends).min(self.deadlines.lifetime_ns());
            }
            _ => return ns(self.phase_ends),
        }
        let idle = match self.deadlines.idle_ns() {
            0 => u64::MAX,
            idle => self.last_progress.as_nanos().saturating_add(idle),
        };
        let own = ns(self.timer).min(ns(self.phase_ends));
        idle.min(own).min(self.peer_deadline_ns())
    }

    /// Whether a callback is owed in which it is to make more output.
    #[inline]
    pub(crate) fn more_due(&self) -> bool {
        self.drained() || self.drain_over() || self.replay_due()
    }

    /// Whether a callback is owed that needs nothing more from outside.
    #[inline]
    pub(crate) fn callback_due(&self) -> bool {
        self.more_due() && !self.flags.has(Flag::AwaitsMaking)
            || self.end_of_input_due()
            || self.end_inside_due()
            || self.hang_up_due()
            || self.drain_due()
    }

    /// Whether the protocol inside this layer is to be told of its peer's end, all that was answered before having been
    /// given to the kernel. A connection of its own only: a layer inside another one waits for that.
    pub(crate) fn end_inside_due(&self) -> bool {
        self.owed.has(Owed::EndInside) && self.is_open() && !self.flags.has(Flag::Embedded)
    }

    /// Cuts the connection unless it has ended already: the peer sees a reset.
    pub(crate) fn kill(&mut self, why: Closed) {
        self.end(why, true);
    }

    pub(crate) fn end(&mut self, why: Closed, reset: bool) {
        match self.phase {
            Phase::Dead { .. } | Phase::Buried(_) => {}
            _ => self.phase = Phase::Dead { why, reset },
        }
    }

    /// The kernel says that the connection is broken. That is no reason to lose data that the peer had sent
    /// before: see [`takes_the_rest`](State::takes_the_rest).
    pub(crate) fn fail(&mut self, kind: io::ErrorKind, rest: Rest) {
        let why = Closed::from_error(kind);
        match self.phase {
            // All output was taken and our side is shut: a peer that resets has merely not waited.
            Phase::Lingering(why) => self.kill(why),
            Phase::Open if self.takes_the_rest(rest) => {
                self.phase = Phase::Failing { why, rest };
                self.phase_ends = None;
            }
            // The first reason of the end counts.
            Phase::Failing { why, .. } if rest == Rest::Read => {
                self.phase = Phase::Failing { why, rest };
            }
            Phase::Failing { .. } => {}
            _ => self.kill(why),
        }
    }

    /// Whether a failed connection still gets the rest of its input. The connection does not get the rest if its
    /// protocol takes no input now: no output drains any more, and there is no peer left to wait for, so the protocol
    /// would never take the rest.
    pub(crate) fn takes_the_rest(&self, rest: Rest) -> bool {
        self.appetite != Appetite::Drain
            && self.flags.has_none(&[Flag::Paused, Flag::AwaitsMemory])
            && (rest != Rest::Read || self.replay_due())
    }

    pub(crate) fn finish(&mut self, why: Closed) {
        if self.is_open() {
            self.phase = Phase::Finishing(why);
            self.deadlines.keep_lifetime(self.phase_ends.take());
            self.deadlines.forget_look();
            self.carry = Vec::new();
            self.drop_timers();
            self.flags.remove(Flag::Paused);
            self.owed.remove(Owed::Replay);
            self.owed.remove(Owed::GoOn);
        }
    }

    /// Our side of the connection writes no more. If the peer does not either, that is the end.
    pub(crate) fn finish_writing(&mut self, why: Closed) {
        if self.told == Told::Finished {
            self.finish(why);
        } else if self.is_open() && self.writing == Writing::Open {
            self.writing = Writing::Ending;
            self.hard = 0;
        }
    }

    /// Whether all that this side had to say has been sent, and its end has not.
    pub(crate) fn shut_due(&self) -> bool {
        self.writing == Writing::Ending && self.out.is_empty()
    }

    /// Records what `received` asked for; `carried_max` is the limit on what may be asked, `progress`
    /// whether anything was consumed.
    #[inline]
    pub(crate) fn apply(&mut self, next: Next, carried_max: usize, progress: bool) {
        if !self.is_open() {
            return;
        }
        self.appetite = match next {
            Next::More => Appetite::SOME,
            Next::AtLeast(n) if n > carried_max => {
                self.kill(Closed::CarriedLimit);
                return;
            }
            // The bytes are there already.
            Next::AtLeast(n) if progress && n <= self.carry.len() => {
                self.owed.add(Owed::Replay);
                Appetite::of(n)
            }
            // Asking again for bytes that are there already, without consuming any, would spin.
            Next::AtLeast(n) => Appetite::of(n.max(self.carry.len() + 1)),
            Next::AfterDrain if !self.out.is_empty() || self.is_put_off() => Appetite::Drain,
            // Nothing is queued that could drain: wait for bytes instead of spinning.
            Next::AfterDrain => Appetite::SOME,
            Next::Paused => {
                self.flags.add(Flag::Paused);
                Appetite::SOME
            }
        };
        if self.carry.len() > carried_max {
            self.kill(Closed::CarriedLimit);
        }
    }
}
