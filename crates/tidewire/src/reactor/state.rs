//! One connection as the loop sees it, whatever its protocol and whatever its engine.
//!
//! Callbacks never act on sockets. They change this record through [`Link`](crate::Link); when
//! the callback has returned, the loop *settles* the connection: it looks at the record and does
//! what it calls for.

use std::io;

use crate::build::dial::Dial;
use crate::build::limits::Limits;
use crate::memory::output::Output;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Dialled; waiting for the next attempt, or for the attempt's outcome.
    Dialling,
    Open,
    /// This side wants no more; its output is still being sent, its input is discarded.
    Finishing(Closed),
    /// Output sent and our side shut; waiting for the peer to close. Input is discarded.
    Lingering(Closed),
    /// To be torn down, with a reset or in order.
    Dead {
        why: Closed,
        reset: bool,
    },
    /// Torn down and told why; an engine may still wait for operations in flight.
    Buried(Closed),
}

/// What a protocol that finishes was led to it by. A byte, where a [`Closed`] takes many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Finished,
    Stopped,
    Idle,
}

impl From<Hint> for Closed {
    fn from(hint: Hint) -> Closed {
        match hint {
            Hint::Finished => Closed::Finished,
            Hint::Stopped => Closed::Stopped,
            Hint::Idle => Closed::Idle,
        }
    }
}

/// How far this side's half-close has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// More may be written.
    Open,
    /// Asked for; output is still being sent.
    Ending,
    /// The peer has been told.
    Shut,
}

/// What is needed before `received` may be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appetite {
    /// New bytes, and at least this many together with those carried.
    Bytes(usize),
    /// The output must fall below the low mark first; then carried bytes are offered again.
    Drain,
}

/// A dialled connection on its way.
pub(crate) struct Attempts {
    pub(crate) dial: Dial,
    pub(crate) failed: u32,
    /// An attempt is under way; else the pause between two.
    pub(crate) connecting: bool,
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
    /// Bytes of these two that its loop has counted.
    pub(crate) counted: u32,
    /// Not read from until memory is no longer short.
    pub(crate) awaits_memory: bool,
    pub(crate) peer: Peer,
    pub(crate) timer: Option<Instant>,
    /// When a byte was last received or sent.
    pub(crate) last_progress: Instant,
    /// When the present phase ends by force: the linger limit, or a dial's next step.
    pub(crate) phase_ends: Option<Instant>,
    /// Time without progress that is allowed; nanoseconds, 0 for ever.
    pub(crate) idle_ns: u64,
    /// When the timer wheel will fire for this connection; `u64::MAX` if it will not.
    pub(crate) wheel_ns: u64,
    pub(crate) low: u32,
    pub(crate) high: u32,
    /// Output may not grow beyond this. 0 once this side writes no more: see `Link::may_queue`.
    pub(crate) hard: usize,
    /// The reason that `finish` records, where the loop itself suggested finishing.
    pub(crate) hint: Hint,
    /// In the loop's list of connections to settle.
    pub(crate) dirty: bool,
    /// Part of a layer: settled by it, not by the loop.
    pub(crate) embedded: bool,
    /// `opened` was called, so `closed` is owed.
    pub(crate) opened: bool,
    /// The protocol asked for quiet.
    pub(crate) paused: bool,
    /// Carried bytes are to be offered again although nothing new came.
    pub(crate) replay: bool,
    /// Output reached the high mark and has not been at the low mark since.
    pub(crate) was_full: bool,
    /// The peer finished sending.
    pub(crate) input_ended: bool,
    /// `peer_finished` was called.
    pub(crate) told_finished: bool,
    /// `hung_up` was called.
    pub(crate) told_hung_up: bool,
    /// The engine saw the peer's end of sending, perhaps behind data that is still to be read.
    pub(crate) hung_up: bool,
    /// The attempts of a dialled connection that is not yet established.
    pub(crate) attempts: Option<Box<Attempts>>,
    /// A graceful stop wants `draining` called when carried input has been offered.
    pub(crate) drain_owed: bool,
    /// The kernel takes no output until it says otherwise, or an engine's send is in flight.
    pub(crate) send_blocked: bool,
}

impl State {
    pub(crate) fn new(
        id: ConnId,
        service: u16,
        peer: Peer,
        limits: &Limits,
        now: Instant,
    ) -> State {
        State {
            id,
            service,
            slot: 0,
            phase: Phase::Open,
            appetite: Appetite::Bytes(1),
            writing: Writing::Open,
            out: Output::default(),
            carry: Vec::new(),
            counted: 0,
            awaits_memory: false,
            peer,
            timer: None,
            last_progress: now,
            phase_ends: None,
            idle_ns: limits
                .idle
                .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            wheel_ns: u64::MAX,
            low: u32::try_from(limits.output_low).unwrap_or(u32::MAX),
            high: u32::try_from(limits.output_high).unwrap_or(u32::MAX),
            hard: limits.output_hard,
            hint: Hint::Finished,
            dirty: false,
            embedded: false,
            opened: false,
            paused: false,
            replay: false,
            was_full: false,
            input_ended: false,
            told_finished: false,
            told_hung_up: false,
            hung_up: false,
            attempts: None,
            drain_owed: false,
            send_blocked: false,
        }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether the engine should receive: open and hungry, or discarding what still comes.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        !self.input_ended
            && match self.phase {
                Phase::Open => !self.paused && self.appetite != Appetite::Drain,
                Phase::Finishing(_) | Phase::Lingering(_) => true,
                Phase::Dialling | Phase::Dead { .. } | Phase::Buried(_) => false,
            }
    }

    /// Whether neither receiving nor sending would show that the peer has gone.
    pub(crate) fn shows_nothing(&self) -> bool {
        match self.phase {
            Phase::Open => self.paused || self.input_ended,
            // Held back until a mark is released.
            Phase::Finishing(_) => self.input_ended && !self.out.may_send(),
            _ => false,
        }
    }

    /// Whether `received` may be called with `len` new bytes behind those carried.
    #[inline]
    pub(crate) fn hungry_for(&self, len: usize) -> bool {
        match self.appetite {
            Appetite::Bytes(n) => !self.paused && !self.replay && self.carry.len() + len >= n,
            Appetite::Drain => false,
        }
    }

    /// Carries bytes that may not be offered yet.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        if let Appetite::Bytes(n) = self.appetite {
            // Room for the whole frame at once, so that it is never moved while it grows.
            let more = n.saturating_sub(self.carry.len()).max(bytes.len());
            self.carry.reserve_exact(more);
        }
        self.carry.extend_from_slice(bytes);
    }

    /// Whether carried bytes may be offered again now.
    #[inline]
    pub(crate) fn replay_due(&self) -> bool {
        self.replay
            && self.is_open()
            && !self.paused
            && match self.appetite {
                Appetite::Bytes(n) => !self.carry.is_empty() && self.carry.len() >= n,
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
        self.was_full && self.is_open() && self.out.footprint() <= self.low as usize
    }

    /// Whether a protocol that waits for its output to drain has waited long enough. Output that
    /// was never full must go altogether: a low mark above it would be no wait at all.
    #[inline]
    pub(crate) fn drain_over(&self) -> bool {
        self.appetite == Appetite::Drain && !self.was_full && self.out.is_empty() && self.is_open()
    }

    /// Whether input is held back until output has drained, and by nothing else.
    pub(crate) fn waits_for_drain(&self) -> bool {
        self.is_open() && self.appetite == Appetite::Drain && !self.paused && !self.input_ended
    }

    /// Offers what is carried as soon as may be, if draining was what it waited for.
    pub(crate) fn end_drain_wait(&mut self) {
        if self.appetite == Appetite::Drain {
            self.appetite = Appetite::Bytes(1);
            self.replay = true;
        }
    }

    #[inline]
    pub(crate) fn end_of_input_due(&self) -> bool {
        self.input_ended
            && !self.told_finished
            && self.is_open()
            && !self.paused
            && self.appetite != Appetite::Drain
            && !self.replay_due()
    }

    #[inline]
    pub(crate) fn hang_up_due(&self) -> bool {
        (self.hung_up || self.input_ended)
            && !self.told_hung_up
            && !self.told_finished
            && self.paused
            && self.is_open()
    }

    #[inline]
    pub(crate) fn drain_due(&self) -> bool {
        self.drain_owed
            && self.is_open()
            && !self.replay_due()
            && (self.appetite != Appetite::Drain || self.paused)
    }

    /// A cheap test that most connections fail at most times: false means that no callback is owed,
    /// and that this side is not to be shut.
    #[inline]
    pub(crate) fn may_owe_callbacks(&self) -> bool {
        self.was_full
            | self.replay
            | self.input_ended
            | self.hung_up
            | self.drain_owed
            | matches!(self.appetite, Appetite::Drain)
            | matches!(self.writing, Writing::Ending)
    }

    /// Whether it is open and owes no callback.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_open() && !self.may_owe_callbacks()
    }

    /// The earliest of the deadlines that matter in this phase; `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        let ns = |t: Option<Instant>| t.map_or(u64::MAX, Instant::as_nanos);
        if !self.is_open() {
            return ns(self.phase_ends);
        }
        let idle = match self.idle_ns {
            0 => u64::MAX,
            idle => self.last_progress.as_nanos().saturating_add(idle),
        };
        idle.min(ns(self.timer))
    }

    /// Whether a callback is owed that needs nothing more from outside.
    #[inline]
    pub(crate) fn callback_due(&self) -> bool {
        self.drained()
            || self.drain_over()
            || self.replay_due()
            || self.end_of_input_due()
            || self.hang_up_due()
            || self.drain_due()
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

    pub(crate) fn kill_for_error(&mut self, kind: io::ErrorKind) {
        match self.phase {
            // All output was taken and our side is shut: a peer that resets has merely not waited.
            Phase::Lingering(why) => self.kill(why),
            _ => self.kill(Closed::from_error(kind)),
        }
    }

    pub(crate) fn finish(&mut self, why: Closed) {
        if self.is_open() {
            self.phase = Phase::Finishing(why);
            self.carry = Vec::new();
            self.timer = None;
            self.paused = false;
            self.replay = false;
        }
    }

    /// This side writes no more. If the peer does not either, that is the end.
    pub(crate) fn finish_writing(&mut self, why: Closed) {
        if self.told_finished {
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
    pub(crate) fn apply(&mut self, next: Next, carried_max: usize, progress: bool) {
        if !self.is_open() {
            return;
        }
        self.appetite = match next {
            Next::More => Appetite::Bytes(1),
            Next::AtLeast(n) if n > carried_max => {
                self.kill(Closed::CarriedLimit);
                return;
            }
            // They are there already.
            Next::AtLeast(n) if progress && n <= self.carry.len() => {
                self.replay = true;
                Appetite::Bytes(n.max(1))
            }
            // Asking again for what is there, without consuming any of it, would spin.
            Next::AtLeast(n) => Appetite::Bytes(n.max(self.carry.len() + 1)),
            Next::AfterDrain if !self.out.is_empty() => Appetite::Drain,
            // Nothing is queued that could drain: wait for bytes instead of spinning.
            Next::AfterDrain => Appetite::Bytes(1),
            Next::Paused => {
                self.paused = true;
                Appetite::Bytes(1)
            }
        };
        if self.carry.len() > carried_max {
            self.kill(Closed::CarriedLimit);
        }
    }
}
