//! The only way out of a protocol: everything one connection may ask of its engine.

use std::time::Duration;

use bytes::Bytes;

use crate::memory::buffer::{Chunk, Piece};
use crate::mistakes::{Mistake, mistaken};
use crate::protocol::input::Input;
use crate::reactor::env::Env;
use crate::reactor::facts::{Awaits, Flag, Owed, Writing};
use crate::reactor::state::State;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// A connection's way out: write, set a timer, ask the time, pause or resume reading, finish or
/// abort. No method blocks or fails; the loop acts on the requests when the callback has returned.
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
    /// This link for a shorter time, to be put into something that a callback hands on.
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

    /// Queues a copy of `bytes`. The call never fails: ask [`full`](Link::full) between messages
    /// and stop when it is true. Output beyond the hard limit aborts the connection. A write of at
    /// most 64 KiB reaches the kernel in one piece if the kernel takes it.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        if self.may_queue(bytes.len()) {
            self.state.out.write(bytes, &mut self.env.blocks);
            self.queued(bytes.len());
        }
    }

    /// Queues what `fill` writes into a slice of `most` bytes (at most 64 KiB); `fill` returns how
    /// many it wrote. Saves the copy of [`write`](Link::write) for encoders; asking for more than
    /// is used costs neither time nor memory. The slice may contain old bytes, even of another
    /// connection: `fill` must count no byte that it did not write. If `fill` panics, nothing is
    /// queued.
    ///
    /// # Panics
    /// If `most` is more than 64 KiB or `fill` claims more than `most`.
    ///
    /// ```
    /// use std::io::Write;
    /// use tidewire::{Next, on_input, sim::chunking::collect};
    ///
    /// // Doubles numbers of four bytes, and says them in decimal.
    /// let doubles = on_input(|input, link| {
    ///     while let Some(number) = input.bytes().first_chunk() {
    ///         let doubled = 2 * u64::from(u32::from_be_bytes(*number));
    ///         link.write_with(11, |space| {
    ///             let mut rest = &mut space[..];
    ///             writeln!(rest, "{doubled}").expect("at most ten digits, and the end of the line");
    ///             11 - rest.len()
    ///         });
    ///         input.consume(4);
    ///     }
    ///     Next::AtLeast(4)
    /// });
    /// assert_eq!(collect(doubles, b"\0\0\0\x15\0\0\x01\0", &[3], true).output, b"42\n512\n");
    /// ```
    #[inline]
    pub fn write_with(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        if self.may_queue(1) {
            let blocks = &mut self.env.blocks;
            let written = self.state.out.write_with(most, blocks, fill);
            if self.state.out.footprint() > self.state.hard as usize {
                return self.too_much();
            }
            self.queued(written);
        }
    }

    /// Queues shared bytes without a copy, unless they are so few that copying is cheaper.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use tidewire::{Next, on_input, sim::chunking::collect};
    ///
    /// // One page for all clients, in memory once.
    /// let page = Bytes::from(vec![b'x'; 100_000]);
    /// let pages = on_input(move |input, link| {
    ///     while !input.is_empty() {
    ///         if link.full() {
    ///             return Next::AfterDrain;
    ///         }
    ///         link.write_shared(page.clone());
    ///         input.consume(1);
    ///     }
    ///     Next::More
    /// });
    /// assert_eq!(collect(pages, b"123", &[2], true).output.len(), 300_000);
    /// ```
    pub fn write_shared(&mut self, bytes: Bytes) {
        let len = bytes.len();
        if self.may_queue(len) {
            self.state.out.push_shared(bytes, &mut self.env.blocks);
            self.queued(len);
        }
    }

    /// Queues a taken chunk without a copy.
    ///
    /// ```
    /// use tidewire::{Chunk, Cx, Input, Next, Protocol, service_fn, sim::chunking::collect};
    ///
    /// /// Keeps what it is sent, and gives it back at the end.
    /// struct Keeper(Vec<Chunk>);
    ///
    /// impl Protocol for Keeper {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         self.0.push(input.take(input.len()));
    ///         Next::More
    ///     }
    ///
    ///     fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
    ///         for chunk in self.0.drain(..) {
    ///             cx.link.write_chunk(chunk);
    ///         }
    ///         cx.link.finish();
    ///     }
    /// }
    ///
    /// let keeper = service_fn(|_| Keeper(Vec::new()));
    /// assert_eq!(collect(keeper, b"one two", &[4], true).output, b"one two");
    /// ```
    pub fn write_chunk(&mut self, chunk: Chunk) {
        self.write_piece(chunk.into_piece());
    }

    fn write_piece(&mut self, piece: Piece) {
        let len = piece.len();
        if self.may_queue(piece.footprint()) {
            self.state.out.push_piece(piece, &mut self.env.blocks);
            self.queued(len);
        }
    }

    /// Consumes the first `n` bytes of `input` and queues them: without a copy where that pays,
    /// gathered with other small writes otherwise.
    ///
    /// # Panics
    /// If fewer than `n` bytes are left.
    ///
    /// ```
    /// use tidewire::{Next, on_input, sim::chunking::collect};
    ///
    /// // A byte says how many follow; those are sent back.
    /// let bodies = on_input(|input, link| {
    ///     while let Some(&n) = input.bytes().first() {
    ///         let whole = 1 + usize::from(n);
    ///         if input.len() < whole {
    ///             return Next::AtLeast(whole);
    ///         }
    ///         if link.full() {
    ///             return Next::AfterDrain;
    ///         }
    ///         input.consume(1);
    ///         link.forward(input, usize::from(n));
    ///     }
    ///     Next::More
    /// });
    /// assert_eq!(collect(bodies, b"\x02hi\x01!", &[1, 1], true).output, b"hi!");
    /// ```
    #[inline]
    pub fn forward(&mut self, input: &mut Input<'_>, n: usize) {
        match input.take_shared(n) {
            Some(piece) => self.write_piece(piece),
            None => self.write(&input.bytes()[..n]),
        }
        input.consume(n);
    }

    /// Holds back output that is written from now on until marks up to `mark` are released, by
    /// [`release`](Link::release) here, or for many connections at once by
    /// [`Conns::release_all`](crate::Conns::release_all). For replies that must wait for an event,
    /// such as a commit whose number is the mark.
    ///
    /// Held output is queued output: the order is kept, held bytes count against the marks and the
    /// hard limit, and [`finish`](Link::finish) waits for them. The peer cannot take held output,
    /// so the connection is not closed for being idle or slow meanwhile; only a stop's deadline
    /// ends the wait.
    ///
    /// Marks rise: a mark that is not above the last one, or that is released already, changes
    /// nothing. Mark 0 is always released. Holding costs nothing while it is not used, and 16 bytes
    /// for each mark that output waits for.
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
    ///     // The committing thread stores `durable`, then signals each loop.
    ///     fn woken(&self, _: &mut u64, all: &mut Conns<'_, Conn>) {
    ///         all.release_all(self.durable.load(SeqCst));
    ///     }
    /// }
    /// ```
    pub fn hold_until(&mut self, mark: u64) {
        if self.state.is_open() && mark > self.env.barriers.released(self.state.service) {
            self.state.out.hold(mark);
            self.env.list_holding(self.state);
        }
    }

    /// Releases what waits for marks up to `upto` on this connection.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// /// Says what it is sent when a line is complete.
    /// struct Lines(u64);
    ///
    /// impl Protocol for Lines {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         for &byte in input.bytes() {
    ///             cx.link.hold_until(self.0);
    ///             cx.link.write(&[byte]);
    ///             if byte == b'\n' {
    ///                 cx.link.release(self.0);
    ///                 assert_eq!(cx.link.held_len(), 0);
    ///                 self.0 += 1;
    ///             }
    ///         }
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Lines(1)), Limits::default());
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"a line\nhalf a l");
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.received(peer), b"a line\n");
    /// ```
    pub fn release(&mut self, upto: u64) {
        self.env.release(self.state, upto);
    }

    /// Queued bytes that wait for a mark to be released.
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
    /// [`Limits::output_high`](crate::Limits::output_high); or this connection has been given its share of what its
    /// loop makes in a turn, and others wait for theirs. The protocol then leaves the rest
    /// of its input unconsumed and returns [`Next::AfterDrain`](crate::Next::AfterDrain), or waits
    /// for [`writable`](crate::Protocol::writable).
    #[inline]
    #[must_use]
    pub fn full(&self) -> bool {
        let queued = self.state.out.footprint();
        self.state.owed.has(Owed::Writable)
            && (queued > self.state.low as usize || self.state.flags.has(Flag::OverShare))
            || queued >= self.state.high as usize
    }

    /// Says that the last message has taken the time `took`, if that was more than a moment: the
    /// time counts like output of the connection. Once the connection's share of the turn is used
    /// up, the link is [full](Link::full), and the protocol should leave the rest of its input.
    /// Read the [clock](Link::clock) around messages that may take long, and not around others.
    ///
    /// ```
    /// use tidewire::{Next, on_input, sim::chunking::collect};
    ///
    /// // Each byte is a message that takes its time.
    /// let slow = on_input(|input, link| {
    ///     while let Some(&byte) = input.bytes().first() {
    ///         if link.full() {
    ///             return Next::AfterDrain;
    ///         }
    ///         let begun = link.clock();
    ///         link.write(&[byte.to_ascii_uppercase()]);
    ///         input.consume(1);
    ///         link.spend(link.clock().since(begun));
    ///     }
    ///     Next::More
    /// });
    /// assert_eq!(collect(slow, b"abc", &[3], true).output, b"ABC");
    /// ```
    pub fn spend(&mut self, took: Duration) {
        self.env.making.charge_time(self.state, took);
    }

    /// Bytes of memory that this connection holds: queued output, input that is carried from one call of
    /// [`received`](crate::Protocol::received) to the next, and [taken chunks](crate::Input::take).
    /// [`Builder::memory`](crate::Builder::memory) bounds the sum of these bytes. Within `received`, carried input
    /// does not count, because it is the input that is shown.
    ///
    /// ```
    /// use tidewire::{Next, on_input, sim::chunking::collect};
    ///
    /// let echo = on_input(|input, link| {
    ///     link.write(input.bytes());
    ///     input.consume(input.len());
    ///     assert!(link.held() >= 5); // what is queued, and room in its block
    ///     Next::More
    /// });
    /// assert_eq!(collect(echo, b"hello", &[], true).output, b"hello");
    /// ```
    #[inline]
    #[must_use]
    pub fn held(&self) -> usize {
        self.state.held()
    }

    /// Bytes of input that wait to be offered: those that the protocol has left unconsumed, and those that have come while
    /// it was paused. Within [`received`](crate::Protocol::received), where they are in the input, 0.
    ///
    /// ```
    /// use tidewire::{Next, on_input, sim::chunking::collect};
    ///
    /// let echo = on_input(|input, link| {
    ///     assert_eq!(link.unread_len(), 0); // all of it is in `input`
    ///     link.forward_all(input);
    ///     Next::More
    /// });
    /// assert_eq!(collect(echo, b"hello", &[], true).output, b"hello");
    /// ```
    #[must_use]
    pub fn unread_len(&self) -> usize {
        self.state.carry.len()
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
    /// Panics if `low >= high`.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol, service_fn, sim::chunking::collect};
    ///
    /// /// Sends a thousand of each byte, and nothing before the last thousand has gone.
    /// struct Gentle;
    ///
    /// impl Protocol for Gentle {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.set_marks(0, 1);
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         while !cx.link.full() {
    ///             let Some(&byte) = input.bytes().first() else {
    ///                 return Next::More;
    ///             };
    ///             assert_eq!(cx.link.queued_len(), 0);
    ///             cx.link.write(&[byte; 1000]);
    ///             input.consume(1);
    ///         }
    ///         Next::AfterDrain
    ///     }
    /// }
    ///
    /// assert_eq!(collect(service_fn(|_| Gentle), b"abc", &[], true).output.len(), 3000);
    /// ```
    pub fn set_marks(&mut self, low: u32, high: u32) {
        assert!(
            low < high,
            "the low mark {low} is not below the high mark {high}"
        );
        (self.state.low, self.state.high) = (low, high);
        self.state.mark = self.env.making.mark(high);
    }

    /// Calls [`expired`](crate::Protocol::expired) once at `at`, or as soon as may be if that has
    /// passed; replaces the timer set before. Cheap enough to call for every batch: a later
    /// deadline is only stored. Fires within 66 microseconds plus the wake-up of the machine.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Instant, Limits, Next, Protocol, service_fn};
    ///
    /// /// Sends a dot a second, until something is said.
    /// #[derive(Default)]
    /// struct Beat {
    ///     due: Instant,
    /// }
    ///
    /// impl Beat {
    ///     fn again(&mut self, cx: &mut Cx<'_, Self>) {
    ///         // From when it was due, not from now: so no lateness adds up.
    ///         self.due = self.due + Duration::from_secs(1);
    ///         cx.link.set_timer(self.due);
    ///     }
    /// }
    ///
    /// impl Protocol for Beat {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         self.due = cx.link.now();
    ///         self.again(cx);
    ///     }
    ///
    ///     fn expired(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(b".");
    ///         self.again(cx);
    ///         assert_eq!(cx.link.timer(), Some(self.due));
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         cx.link.clear_timer();
    ///         Next::More
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Beat::default()), Limits::default());
    /// let peer = sim.plain(addr);
    /// sim.run_for(Duration::from_millis(3500));
    /// sim.send(peer, b"enough");
    /// sim.run_for(Duration::from_secs(5));
    /// assert_eq!(sim.received(peer), b"...");
    /// ```
    #[inline]
    pub fn set_timer(&mut self, at: Instant) {
        if self.state.is_open() {
            self.state.set_timer(Some(at));
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
        self.state.set_timer(None);
    }

    /// When the timer is set to expire.
    #[must_use]
    pub fn timer(&self) -> Option<Instant> {
        self.state.own_timer()
    }

    /// Calls [`timer_expired`](crate::Protocol::timer_expired) with `key` once at `at`, or as soon as may be if that has
    /// passed; replaces the timer with that key. A connection may set many such timers, beside the [one](Link::set_timer)
    /// without a key; they expire in the order of their times. Each timer costs two entries in trees, and counts for 128 bytes
    /// of what the connection [holds](crate::Builder::memory) until it has expired. When a connection finishes, its timers are
    /// removed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// /// Says each byte again, as many seconds later as it says. A `c` takes the last seconds back.
    /// struct Later;
    ///
    /// impl Protocol for Later {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         for &byte in input.bytes() {
    ///             match byte {
    ///                 b'c' => cx.link.clear_keyed_timer(9),
    ///                 _ => {
    ///                     let seconds = u64::from(byte - b'0');
    ///                     let after = Duration::from_secs(seconds);
    ///                     cx.link.set_keyed_timer(seconds, cx.link.now() + after); // or, which is no different:
    ///                     cx.link.set_keyed_timer_after(seconds, after);
    ///                     assert!(cx.link.keyed_timer(seconds).is_some());
    ///                 }
    ///             }
    ///         }
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn timer_expired(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(&[b'0' + key as u8]);
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Later), Limits::default());
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"5193c");
    /// sim.run_for(Duration::from_secs(20));
    /// assert_eq!(sim.received(peer), b"135");
    /// ```
    pub fn set_keyed_timer(&mut self, key: u64, at: Instant) {
        if self.state.is_open() {
            // A timer in the past must not go off before timers that are due.
            self.state.set_keyed_timer(key, at.max(self.env.now));
            self.env.touch(self.state);
        }
    }

    /// [`set_keyed_timer`](Link::set_keyed_timer) for `after` from now.
    pub fn set_keyed_timer_after(&mut self, key: u64, after: Duration) {
        self.set_keyed_timer(key, self.env.now + after);
    }

    /// Forgets the timer of this key.
    pub fn clear_keyed_timer(&mut self, key: u64) {
        self.state.clear_keyed_timer(key);
        self.env.touch(self.state);
    }

    /// When the timer of this key is set to expire.
    #[must_use]
    pub fn keyed_timer(&self, key: u64) -> Option<Instant> {
        self.state.keyed_timer(key)
    }

    /// The time of this turn of the loop: read once after each wait, so free of cost, and late by
    /// at most the work of one turn.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// The time now, read from the clock. For measurements; the call takes some tens of
    /// nanoseconds.
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
    ///
    /// ```
    /// use tidewire::{on_input, sim::chunking::collect, Next};
    ///
    /// // A nonce, the time of day, and how long this turn has taken so far.
    /// let greeting = on_input(|input, link| {
    ///     input.consume(input.len());
    ///     let (nonce, took) = (link.random(), link.clock().since(link.now()));
    ///     let text = format!("{nonce:016x} at {} s, after {took:?}\n", link.wall().as_secs());
    ///     link.write(text.as_bytes());
    ///     Next::More
    /// });
    /// assert!(!collect(greeting, b"?", &[], true).output.is_empty());
    /// ```
    pub fn random(&mut self) -> u64 {
        self.env.rng.next()
    }

    /// Stops calls of `received`. Bytes that are on their way are kept. The connection still
    /// notices that its peer goes: see [`hung_up`](crate::Protocol::hung_up).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::chunking::Feed;
    /// use tidewire::{Cx, Input, Next, Protocol, service_fn};
    ///
    /// /// Answers one question at a time, after a second's thought.
    /// struct Slow;
    ///
    /// impl Protocol for Slow {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         if !input.is_empty() {
    ///             input.consume(1);
    ///             cx.link.pause(); // the other questions wait
    ///             cx.link.set_timer_after(Duration::from_secs(1));
    ///         }
    ///         Next::More
    ///     }
    ///
    ///     fn expired(&mut self, cx: &mut Cx<'_, Self>) {
    ///         assert!(cx.link.paused());
    ///         cx.link.write(b"an answer\n");
    ///         cx.link.resume();
    ///     }
    /// }
    ///
    /// let got = Feed::new(b"??").half_close(false).after(Duration::from_secs(5)).run(service_fn(|_| Slow));
    /// assert_eq!(got.output, b"an answer\nan answer\n");
    /// ```
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

    /// Ends the connection in order: flushes the output (the [held](Link::hold_until) part once it
    /// is released), half-closes, discards further input until the peer closes or the linger limit
    /// passes, then closes. No callback but `closed` follows.
    pub fn finish(&mut self) {
        let why = self.state.hint.into();
        self.state.finish(why);
        self.env.touch(self.state);
    }

    /// [`finish`](Link::finish) for a peer that has said that it sends nothing more, as a client of HTTP does
    /// with its last request: the connection is closed once the kernel has taken the output, which saves the
    /// wait for the peer's own end. The kernel goes on to deliver what it has.
    ///
    /// If bytes have come from the peer all the same, this is `finish`. Bytes that come later reset the
    /// connection, and a reset may destroy output that is on its way. So do not use this with peers that
    /// may still send. Inside a layer with a farewell of its own, such as TLS, this is `finish` too.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol, service_fn};
    ///
    /// /// Answers the one question that a peer may ask.
    /// struct Oracle;
    ///
    /// impl Protocol for Oracle {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         if input.bytes().ends_with(b"?") {
    ///             cx.link.write(b"42");
    ///             cx.link.finish_without_waiting();
    ///         }
    ///         Next::More
    ///     }
    /// }
    ///
    /// use tidewire::sim::chunking::Feed;
    /// let got = Feed::new(b"What is it?").half_close(false).run(service_fn(|_| Oracle));
    /// assert_eq!(got.output, b"42");
    /// ```
    pub fn finish_without_waiting(&mut self) {
        if self.state.is_open() {
            self.state.awaits = Awaits::Nothing;
        }
        self.finish();
    }

    /// Ends this side's output while reading goes on: flushes the output, then half-closes, so that
    /// the peer sees EOF. Later writes have no effect. When the peer finishes too, the connection ends
    /// by itself after [`peer_finished`](crate::Protocol::peer_finished). If the peer has finished
    /// already, this is [`finish`](Link::finish).
    ///
    /// The limits go on to hold: output that is not taken makes the connection stalled, and a peer
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
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol, service_fn, sim::chunking::collect};
    ///
    /// /// Says who is there, and then only listens.
    /// struct Herald;
    ///
    /// impl Protocol for Herald {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         let (who, name) = (&cx.link.peer().endpoint, cx.link.id());
    ///         let hello = format!("{who} is {name:?}");
    ///         cx.link.write(hello.as_bytes());
    ///         cx.link.finish_writing();
    ///         assert!(cx.link.has_finished_writing() && !cx.link.is_closing());
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    /// }
    ///
    /// assert!(!collect(service_fn(|_| Herald), b"", &[], true).output.is_empty());
    /// ```
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
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    /// use tidewire::{Limits, Next, on_input};
    ///
    /// let fussy = on_input(|input, link| {
    ///     match input.bytes() {
    ///         [0x16, 0x03, ..] => link.abort_because("TLS where none is spoken"),
    ///         [0, ..] => link.abort(),
    ///         _ => return link.forward_all(input),
    ///     }
    ///     assert!(link.is_closing());
    ///     Next::More
    /// });
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let service = sim.service(at, fussy, Limits::default());
    /// let addr = sim.listen(service);
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"\x16\x03\x01");
    /// sim.run_for(Duration::from_secs(1));
    /// assert!(matches!(sim.state(peer), PlainState::Failed(_)));
    /// assert_eq!(sim.counters(at).closed_because("TLS where none is spoken"), 1);
    /// ```
    pub fn abort_because(&mut self, why: &'static str) {
        self.state.kill(Closed::ByProtocol(why));
        self.env.touch(self.state);
    }

    /// Has `writable` called as soon as there is room: as if output had been full.
    pub(crate) fn ask_to_write(&mut self) {
        self.state.owed.add(Owed::Writable);
        self.env.touch(self.state);
    }

    /// Has `writable` called when it is this connection's turn to make output: for the protocol inside it.
    pub(crate) fn await_making(&mut self) {
        self.state.owed.add(Owed::Writable);
        self.env.making.wait(self.state);
        self.env.touch(self.state);
    }

    /// The layer has learned more about the peer. If a proxy names the client, the client's address
    /// is counted, unless another layer stands around this one.
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

    /// Whether the loop stops: a reply that is made now may say that it is the last. [`draining`](crate::Protocol::draining)
    /// is called later where the connection has not been served yet.
    ///
    /// ```
    /// use tidewire::{Next, on_input};
    ///
    /// let polite = on_input(|input, link| {
    ///     link.forward_all(input);
    ///     if link.is_stopping() {
    ///         link.write(b" (and goodbye)");
    ///     }
    ///     Next::More
    /// });
    /// # tidewire::Builder::new().engine(tidewire::EngineChoice::Epoll).serve("127.0.0.1:0", polite).start()?;
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.env.stopping
    }

    /// Whether [`draining`](crate::Protocol::draining) is called as soon as what has come was offered: of a stop, all that
    /// the kernel held when it began was received, and what comes now was sent later.
    ///
    /// ```
    /// use tidewire::{Next, on_input};
    ///
    /// let polite = on_input(|input, link| {
    ///     link.forward_all(input);
    ///     if link.will_drain() {
    ///         link.write(b" (the last reply)");
    ///     }
    ///     Next::More
    /// });
    /// # tidewire::Builder::new().engine(tidewire::EngineChoice::Epoll).serve("127.0.0.1:0", polite).start()?;
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    #[must_use]
    pub fn will_drain(&self) -> bool {
        self.state.owed.has(Owed::Draining)
    }

    /// Whether a stop serves this connection first if it was never served: it was accepted, has not lived for as long as it
    /// may, and the stop has time for it.
    pub(crate) fn waits_for_unserved(&self) -> bool {
        matches!(self.state.peer.origin, Origin::Accepted(_))
            && !self.state.flags.has(Flag::Outlived)
            && self.env.waits_for_unserved(self.state.service)
    }

    /// [`draining`](crate::Protocol::draining) is called once more, after the connection has consumed or sent something.
    pub(crate) fn drain_once_served(&mut self) {
        self.state.flags.add(Flag::Unserved);
        self.state.owed.add(Owed::Draining);
    }

    /// Whether this side has finished or aborted.
    #[inline]
    #[must_use]
    pub fn is_closing(&self) -> bool {
        !self.state.is_open()
    }

    /// When a byte of this connection was last received or sent, or it was made: since when it has been
    /// quiet. Inside a layer it is the layer's connection that counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// struct Quiet;
    ///
    /// impl Protocol for Quiet {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         cx.link.set_timer_after(Duration::from_millis(3500));
    ///         cx.link.forward_all(input)
    ///     }
    ///
    ///     fn expired(&mut self, cx: &mut Cx<'_, Self>) {
    ///         let quiet = cx.link.now().since(cx.link.last_progress());
    ///         cx.link.write(format!("{} s", quiet.as_secs()).as_bytes());
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Quiet), Limits::default());
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"hush: ");
    /// sim.run_for(Duration::from_secs(4));
    /// assert_eq!(sim.received(peer), b"hush: 3 s");
    /// ```
    #[must_use]
    pub fn last_progress(&self) -> Instant {
        self.state.last_progress
    }

    /// The peer of the connection.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.state.peer
    }

    /// The name of this connection on its loop.
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

    /// Refuses further writes for want of room, or because no more is to be written: the limit is 0
    /// then, so that a write has one thing to look at.
    #[cold]
    fn too_much(&mut self) {
        if self.state.writing != Writing::Open {
            return;
        }
        self.state.kill(Closed::OutputLimit);
        self.env.touch(self.state);
    }

    #[inline]
    fn queued(&mut self, bytes: usize) {
        if self.state.out.footprint() >= self.state.mark as usize {
            self.env.made_much(self.state, bytes);
        }
        self.env.touch(self.state);
    }
}
