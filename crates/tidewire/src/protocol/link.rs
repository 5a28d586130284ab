//! The only way out of a protocol: everything one connection may ask of its engine.

use std::time::Duration;

use bytes::Bytes;

use crate::memory::buffer::{Chunk, Piece};
use crate::mistakes::{Mistake, mistaken};
use crate::protocol::input::Input;
use crate::reactor::env::Env;
use crate::reactor::facts::{Flag, Owed, Phase, Writing};
use crate::reactor::state::State;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;

/// A connection's way out: write, set a timer, ask the time, pause or resume reading, finish or
/// abort. Nothing here blocks or fails; what is asked for is done when the callback has returned.
///
/// After [`finish`](Link::finish) every other call but [`abort`](Link::abort) is without effect, after
/// `abort` every one.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Cx, Input, Next, Protocol, service_fn};
///
/// /// Says goodbye to those who are silent for a second.
/// struct Impatient;
///
/// impl Protocol for Impatient {
///     type Local = ();
///     type Message = ();
///
///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
///         cx.link.set_timer_after(Duration::from_secs(1));
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         cx.link.set_timer_after(Duration::from_secs(1)); // only stored: cheap for every batch
///         cx.link.forward_all(input)
///     }
///
///     fn expired(&mut self, cx: &mut Cx<'_, Self>) {
///         cx.link.write(b"goodbye\n");
///         cx.link.finish_because("silent for a second");
///     }
/// }
///
/// use tidewire::sim::chunking::Feed;
/// let got = Feed::new(b"hello\n").half_close(false).after(Duration::from_secs(5)).run(service_fn(|_| Impatient));
/// assert_eq!(got.output, b"hello\ngoodbye\n");
/// ```
pub struct Link<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) env: &'a mut Env,
}

impl Link<'_> {
    /// The same link for a shorter time, to be put into something that a callback hands on.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Link, Next, Protocol, service_fn};
    ///
    /// /// What a handler of lines is given.
    /// struct Answer<'a> {
    ///     link: Link<'a>,
    /// }
    ///
    /// struct Conn;
    ///
    /// impl Protocol for Conn {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         let mut answer = Answer { link: cx.link.reborrow() };
    ///         answer.link.write(input.bytes());
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    /// }
    ///
    /// let got = tidewire::sim::chunking::collect(service_fn(|_| Conn), b"ab", &[1], true);
    /// assert_eq!(got.output, b"ab");
    /// ```
    #[inline]
    pub fn reborrow(&mut self) -> Link<'_> {
        Link {
            state: &mut *self.state,
            env: &mut *self.env,
        }
    }

    /// Queues a copy of `bytes`. Never fails: ask [`full`](Link::full) between messages and stop
    /// when it says so. Output beyond the hard limit aborts the connection. A write of at most
    /// 64 KiB is handed to the kernel in one piece where the kernel takes it.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        if self.may_queue(bytes.len()) {
            self.state.out.write(bytes, &mut self.env.blocks);
            self.queued();
        }
    }

    /// Queues what `fill` writes into a slice of `most` bytes (at most 64 KiB); it returns how many
    /// it wrote. Saves the copy of [`write`](Link::write) for encoders; asking for more than is used
    /// costs neither time nor memory. What the slice holds before is of no meaning and may have been
    /// somebody else's: `fill` counts no byte that it did not write. If it panics nothing is queued.
    ///
    /// # Panics
    /// If `most` is more than 64 KiB or `fill` claims more than `most`.
    #[inline]
    pub fn write_with(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        if self.may_queue(1) {
            self.state.out.write_with(most, &mut self.env.blocks, fill);
            if self.state.out.footprint() > self.state.hard as usize {
                return self.too_much();
            }
            self.queued();
        }
    }

    /// Queues shared bytes without a copy, unless they are so few that copying is cheaper.
    pub fn write_shared(&mut self, bytes: Bytes) {
        if self.may_queue(bytes.len()) {
            self.state.out.push_shared(bytes, &mut self.env.blocks);
            self.queued();
        }
    }

    /// Queues a taken chunk without a copy.
    pub fn write_chunk(&mut self, chunk: Chunk) {
        self.write_piece(chunk.into_piece());
    }

    fn write_piece(&mut self, piece: Piece) {
        if self.may_queue(piece.footprint()) {
            self.state.out.push_piece(piece, &mut self.env.blocks);
            self.queued();
        }
    }

    /// Consumes the first `n` bytes of `input` and queues them: without a copy where that pays,
    /// gathered with other small writes otherwise.
    ///
    /// # Panics
    /// If fewer than `n` bytes are left.
    #[inline]
    pub fn forward(&mut self, input: &mut Input<'_>, n: usize) {
        match input.take_shared(n) {
            Some(piece) => self.write_piece(piece),
            None => self.write(&input.bytes()[..n]),
        }
        input.consume(n);
    }

    /// Holds back what is written from now on until marks up to `mark` are released, by
    /// [`release`](Link::release) here, or for many at once by
    /// [`Conns::release_all`](crate::Conns::release_all). For replies that must wait for something,
    /// such as a commit whose number is the mark.
    ///
    /// Held output is queued output: order is kept, it counts against the marks and the hard limit,
    /// and [`finish`](Link::finish) waits for it. Its peer cannot take it, so it is not closed for
    /// being idle or slow meanwhile; only a stop's deadline still ends the wait.
    ///
    /// Marks rise: one that is not above the last, or that is released already, changes nothing.
    /// Mark 0 is always released. Costs nothing while it is not used, and 16 bytes for each mark
    /// that is waited for.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    /// use tidewire::*;
    ///
    /// /// Confirms each line once it is stored.
    /// struct Store { durable: Arc<AtomicU64> }
    /// struct Conn;
    ///
    /// impl Protocol for Conn {
    ///     type Local = u64;
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         while let Some(n) = input.bytes().iter().position(|&b| b == b'\n') {
    ///             *cx.local += 1; // what storing it would return
    ///             cx.link.hold_until(*cx.local);
    ///             cx.link.write(b"stored\n");
    ///             input.consume(n + 1);
    ///         }
    ///         Next::More
    ///     }
    /// }
    ///
    /// impl Service for Store {
    ///     type Conn = Conn;
    ///     fn on_loop(&self, _: LoopHandle<()>) -> u64 { 0 }
    ///     fn accept(&self, _: &Peer, _: &mut u64) -> Result<Conn, Refusal> { Ok(Conn) }
    ///     // Whoever commits stores `durable`, then signals each loop.
    ///     fn woken(&self, _: &mut u64, all: &mut Conns<'_, Conn>) {
    ///         all.release_all(self.durable.load(SeqCst));
    ///     }
    /// }
    /// ```
    pub fn hold_until(&mut self, mark: u64) {
        if self.state.is_open() && mark > self.env.barriers.released(self.state.service) {
            self.state.out.hold(mark);
            self.env.barriers.list(self.state);
        }
    }

    /// Releases what waits for marks up to `upto` on this connection.
    pub fn release(&mut self, upto: u64) {
        self.env.release(self.state, upto);
    }

    /// Bytes among those queued that wait for a mark to be released.
    #[must_use]
    pub fn held_len(&self) -> usize {
        self.state.out.len() - self.state.out.sendable()
    }

    /// Consumes and queues all of `input`, as [`forward`](Link::forward) does, unless output is full;
    /// what `received` returns then.
    pub fn forward_all(&mut self, input: &mut Input<'_>) -> Next {
        if self.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        self.forward(input, n);
        Next::More
    }

    /// Whether as much output is queued as may be without asking, in memory: see
    /// [`Limits::output_high`](crate::Limits::output_high). The protocol then leaves the rest
    /// of its input unconsumed and returns [`Next::AfterDrain`](crate::Next::AfterDrain), or waits
    /// for [`writable`](crate::Protocol::writable).
    #[inline]
    #[must_use]
    pub fn full(&self) -> bool {
        let queued = self.state.out.footprint();
        self.state.owed.has(Owed::Writable) && queued > self.state.low as usize
            || queued >= self.state.high as usize
    }

    /// Bytes queued that the kernel has not yet taken.
    #[inline]
    #[must_use]
    pub fn queued_len(&self) -> usize {
        self.state.out.len()
    }

    /// Sets this connection's marks (bytes): `full` from `high` on, `writable` at `low` or below.
    /// `low` 0 and `high` 1 make every write wait for the one before.
    ///
    /// # Panics
    /// If `low >= high`.
    pub fn set_marks(&mut self, low: u32, high: u32) {
        assert!(
            low < high,
            "the low mark {low} is not below the high mark {high}"
        );
        (self.state.low, self.state.high) = (low, high);
    }

    /// Calls [`expired`](crate::Protocol::expired) once at `at`, or as soon as may be if that has
    /// passed; replaces the timer set before. Cheap enough to call for every batch: a later
    /// deadline is only stored. Fires within 66 microseconds plus the wake-up of the machine.
    #[inline]
    pub fn set_timer(&mut self, at: Instant) {
        if self.state.is_open() {
            self.state.timer = Some(at);
            self.env.touch(self.state);
        }
    }

    /// [`set_timer`](Link::set_timer) for `after` from now.
    #[inline]
    pub fn set_timer_after(&mut self, after: Duration) {
        self.set_timer(self.env.now + after);
    }

    /// Forgets the timer.
    pub fn clear_timer(&mut self) {
        self.state.timer = None;
    }

    /// When the timer is set to expire.
    #[must_use]
    pub fn timer(&self) -> Option<Instant> {
        self.state.timer
    }

    /// The time of this turn of the loop: read once after each wait, so free of cost, and late by
    /// at most the work of one turn.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// The time now, read from the clock. For measuring; some tens of nanoseconds.
    #[must_use]
    pub fn clock(&self) -> Instant {
        self.env.clock.monotonic()
    }

    /// Time since 1970-01-01T00:00:00Z by the wall clock, which may jump.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.env.clock.wall()
    }

    /// Random bits, not for secrets; from the seed in a simulation.
    pub fn random(&mut self) -> u64 {
        self.env.rng.next()
    }

    /// Stops calls of `received`. Bytes that are on their way are kept. The connection still
    /// notices that its peer goes: see [`hung_up`](crate::Protocol::hung_up).
    pub fn pause(&mut self) {
        if self.state.is_open() && !self.state.is_paused() {
            self.state.flags.add(Flag::Paused);
            self.env.touch(self.state);
        }
    }

    /// Allows calls of `received` again; bytes that were kept are offered without waiting for new
    /// ones.
    pub fn resume(&mut self) {
        if self.state.is_open() && self.state.flags.remove(Flag::Paused) {
            if !mistaken(Mistake::ResumeForgotten) {
                self.state.owed.add(Owed::Replay);
            }
            self.env.touch(self.state);
        }
    }

    /// Whether reading is paused by [`pause`](Link::pause).
    #[must_use]
    pub fn paused(&self) -> bool {
        self.state.is_paused()
    }

    /// Ends the connection in order: flushes the output (what is [held](Link::hold_until) once it is
    /// released), half-closes, discards what the peer still
    /// sends until it closes or the linger limit passes, then closes. No callback but `closed`
    /// follows.
    pub fn finish(&mut self) {
        let why = self.state.hint.into();
        self.state.finish(why);
        self.env.touch(self.state);
    }

    /// Says that this side has said all, while reading goes on: flushes the output, then half-closes,
    /// so that the peer sees the end of what it is sent. Nothing can be written afterwards; writes are
    /// without effect. When the peer finishes too, the connection ends by itself after
    /// [`peer_finished`](crate::Protocol::peer_finished). If it has finished already, this is
    /// [`finish`](Link::finish).
    ///
    /// The limits go on to hold: output that nobody takes makes the connection stalled, and a peer
    /// that says nothing any more makes it [idle](crate::Protocol::idle).
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol};
    ///
    /// /// Asks once, and takes the answer up to its end.
    /// struct Asks {
    ///     answer: Vec<u8>,
    /// }
    ///
    /// impl Protocol for Asks {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(b"what do you know?");
    ///         cx.link.finish_writing();
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         self.answer.extend_from_slice(input.bytes());
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    /// }
    /// # use tidewire::*;
    /// # use tidewire::sim::{Outcome, Pair};
    /// # struct Quotes;
    /// # impl Protocol for Quotes { type Local = (); type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next { Next::AtLeast(i.len() + 1) }
    /// #   fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
    /// #     cx.link.write(format!("{unread} bytes").as_bytes()); cx.link.finish() } }
    /// # struct Quote;
    /// # impl Service for Quote { type Conn = Quotes; fn on_loop(&self, _: LoopHandle<()>) {}
    /// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Quotes, Refusal> { Ok(Quotes) } }
    /// # struct Ask;
    /// # impl Service for Ask { type Conn = Asks; fn on_loop(&self, _: LoopHandle<()>) {}
    /// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Asks, Refusal> { Ok(Asks { answer: vec![] }) } }
    /// # let mut pair = Pair::new(1, Quote, Ask);
    /// # assert_eq!(pair.run(std::time::Duration::from_secs(10)), Outcome::Idle);
    /// # assert_eq!(pair.client_counters().bytes_in, 8);
    /// # assert_eq!(pair.client_counters().closed_for(Closed::Finished), 1);
    /// ```
    pub fn finish_writing(&mut self) {
        let why = self.state.hint.into();
        self.state.finish_writing(why);
        self.env.touch(self.state);
    }

    /// Whether nothing can be written any more, because this side has said that it has said all.
    #[must_use]
    pub fn has_finished_writing(&self) -> bool {
        self.state.writing != Writing::Open || self.is_closing()
    }

    /// [`finish`](Link::finish), recorded as [`Closed::ByProtocol`] with this reason, and counted by
    /// it: see [`Counters::closed_because`](crate::Counters::closed_because).
    pub fn finish_because(&mut self, why: &'static str) {
        self.state.finish(Closed::ByProtocol(why));
        self.env.touch(self.state);
    }

    /// Cuts the connection: queued output is dropped and the peer sees a reset. No callback but
    /// `closed` follows.
    pub fn abort(&mut self) {
        self.state.kill(Closed::Aborted);
        self.env.touch(self.state);
    }

    /// [`abort`](Link::abort), recorded as [`Closed::ByProtocol`] with this reason.
    pub fn abort_because(&mut self, why: &'static str) {
        self.state.kill(Closed::ByProtocol(why));
        self.env.touch(self.state);
    }

    /// Has `writable` called as soon as there is room: as if output had been full.
    pub(crate) fn ask_to_write(&mut self) {
        self.state.owed.add(Owed::Writable);
        self.env.touch(self.state);
    }

    /// Who is at the other end is known better now. Of one whom a proxy names, the address is counted, unless
    /// another layer stands around this one.
    pub(crate) fn meet(&mut self, peer: &Peer) -> Result<(), Refusal> {
        if !self.state.flags.has(Flag::Embedded) {
            let door = self.env.door(self.state.service);
            door.count_named(&self.state.peer, peer, self.env.now)?;
        }
        self.state.peer = peer.clone();
        Ok(())
    }

    /// Turns the connection away after it was accepted: counted as a refusal; told in these words, or reset.
    pub(crate) fn refuse(&mut self, why: Refusal, peer: &Peer, words: Option<&[u8]>) {
        self.env.refuse(self.state.service, why, peer);
        match words {
            Some(words) => {
                self.write(words);
                self.state.finish(Closed::Refused(why));
            }
            None => self.state.kill(Closed::Refused(why)),
        }
        self.env.touch(self.state);
    }

    /// Whether this side has finished or aborted.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.state.phase != Phase::Open
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.state.peer
    }

    /// This connection's name on its loop.
    #[must_use]
    pub fn id(&self) -> ConnId {
        self.state.id
    }

    #[inline]
    fn may_queue(&mut self, len: usize) -> bool {
        if !self.state.is_open() {
            return false;
        }
        if self.state.out.footprint() + len > self.state.hard as usize {
            self.too_much();
            return false;
        }
        true
    }

    /// There is no room for more, or more is not to be written: the limit is 0 then, so that a write
    /// has one thing to look at.
    #[cold]
    fn too_much(&mut self) {
        if self.state.writing != Writing::Open {
            return;
        }
        self.state.kill(Closed::OutputLimit);
        self.env.touch(self.state);
    }

    #[inline]
    fn queued(&mut self) {
        if self.state.out.footprint() >= self.state.high as usize {
            self.state.owed.add(Owed::Writable);
        }
        self.env.touch(self.state);
    }
}
