//! One connection that gets its input in given pieces: for the property that **chunking is
//! invisible in meaning**.
//!
//! A connection of the tested service runs on the production loop, on virtual time. The peer of the
//! connection sends exactly the given pieces and takes output as slowly as it is told to.
//! [`collect`] returns the output; [`assert_invisible`] compares many splits with the whole.
//!
//! ```
//! use tidewire::sim::chunking;
//! # use tidewire::*;
//! # #[derive(Clone)] struct Upper;
//! # impl Service for Upper { type Conn = Upper; fn on_loop(&self, _: LoopHandle<()>) {}
//! #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Upper, Refusal> { Ok(Upper) } }
//! # impl Protocol for Upper { type Local = (); type Message = ();
//! #   fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
//! #     if cx.link.full() { return Next::AfterDrain }
//! #     cx.link.write(&input.bytes().to_ascii_uppercase()); input.consume(input.len()); Next::More
//! #   } }
//! let got = chunking::collect(Upper, b"hello", &[1, 3], true);
//! assert_eq!(got.output, b"HELLO");
//! assert_eq!(got.closed, Some(Closed::Finished));
//!
//! chunking::assert_invisible(|| Upper, b"hello", true, |got| got.clone(), 20);
//! ```

use std::cell::Cell;
use std::fmt;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::build::limits::{CHUNK, Limits};
use crate::kernel::clock::Clock;
use crate::protocol::service::Service;
use crate::reach::waker::Waker;
use crate::reactor::core::{Core, Plan};
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::facts::Phase;
use crate::reactor::host::host_of;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::{FREE, SendShares};
use crate::reactor::state::State;
use crate::sim::trace::{Event, Trace, What, files};
use crate::vocabulary::closed::Closed;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// Bytes of an input or output that are shown.
const SHOWN: usize = 2000;
/// Output that a connection may queue which is never to be full; bytes.
const UNPACED: usize = 1 << 31;

/// Turns after which a connection that never comes to rest is given up. A test that gets there
/// fails: its protocol spins.
const TURNS_MAX: usize = 10_000_000;

/// The output that one connection made of its input, and how it ended.
///
/// ```
/// use tidewire::sim::chunking::{Collected, collect};
/// use tidewire::{Closed, on_input};
///
/// let echo = on_input(|input, link| link.forward_all(input));
/// let got: Collected = collect(echo, b"hello", &[2], true);
/// assert_eq!((&got.output[..], got.closed), (&b"hello"[..], Some(Closed::Finished)));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// All bytes that the connection sent.
    pub output: Vec<u8>,
    /// Why the connection ended; `None` if it was refused, or was still open at the end of the
    /// simulation.
    pub closed: Option<Closed>,
}

/// Bytes as text, as in a byte string; of many, the first ones.
struct Shown<'a>(&'a [u8]);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = &self.0[..self.0.len().min(SHOWN)];
        write!(f, "b\"{}\"", first.escape_ascii())?;
        match self.0.len() - first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} bytes"),
        }
    }
}

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected")
            .field("output", &Shown(&self.output))
            .field("closed", &self.closed)
            .finish()
    }
}

/// How a connection is to be fed. [`run`](Feed::run) feeds it.
///
/// ```
/// use tidewire::sim::chunking::Feed;
/// use tidewire::{Limits, on_input};
///
/// // A peer that takes a byte now and then, of a connection that may queue ten.
/// let limits = Limits { output_low: 1, output_high: 10, ..Limits::default() };
/// let echo = on_input(|input, link| link.forward_all(input));
/// let got = Feed::new(b"hello, slow reader").splits(&[5, 2]).window(1).limits(limits).run(echo);
/// assert_eq!(got.output, b"hello, slow reader");
/// ```
#[derive(Clone)]
pub struct Feed<'a> {
    input: &'a [u8],
    splits: &'a [usize],
    half_close: bool,
    window: usize,
    limits: Limits,
    pause: Duration,
    after: Duration,
    patience: Duration,
    seed: u64,
    /// The link is never full.
    is_unpaced: bool,
}

impl fmt::Debug for Feed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("input", &Shown(self.input))
            .field("splits", &self.splits)
            .field("half_close", &self.half_close)
            .field("window", &self.window)
            .field("output_low", &self.limits.output_low)
            .field("output_high", &self.limits.output_high)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl<'a> Feed<'a> {
    /// All of `input` at once (as far as a chunk holds it), from a peer that takes all output, half-closes
    /// and waits for the end.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Feed<'a> {
        Feed {
            input,
            splits: &[],
            half_close: true,
            window: usize::MAX,
            limits: Limits::default(),
            pause: Duration::ZERO,
            after: Duration::ZERO,
            patience: Duration::from_secs(30),
            seed: 0,
            is_unpaced: false,
        }
    }

    /// The lengths of the pieces, in order; what is left of the input is the last piece. A piece
    /// of length 0 only lets the pause pass and the peer take output. Pieces longer than
    /// [`CHUNK`] arrive in several.
    #[must_use]
    pub fn splits(mut self, splits: &'a [usize]) -> Feed<'a> {
        self.splits = splits;
        self
    }

    /// Whether the peer finishes sending after the input. Default true.
    #[must_use]
    pub fn half_close(mut self, yes: bool) -> Feed<'a> {
        self.half_close = yes;
        self
    }

    /// Bytes of output that the peer takes for each piece that it sends, and each time that the
    /// connection will not read before more has been taken; at least 1. Default: all there are.
    #[must_use]
    pub fn window(mut self, bytes: usize) -> Feed<'a> {
        self.window = bytes.max(1);
        self
    }

    /// The connection's limits: low output marks exercise pacing.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Feed<'a> {
        self.limits = limits;
        self
    }

    /// Virtual time that passes before each piece. Default none.
    #[must_use]
    pub fn pause(mut self, each: Duration) -> Feed<'a> {
        self.pause = each;
        self
    }

    /// Virtual time that passes between the last piece and the peer's half-close, for protocols
    /// that answer by the clock. Default none.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Feed<'a> {
        self.after = time;
        self
    }

    /// Virtual time that the peer waits for a connection that does not read, or does not end.
    /// Default 30 s.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Feed<'a> {
        self.patience = time;
        self
    }

    /// Sets the seed of the loop's randomness. Default 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::chunking::Feed;
    /// use tidewire::{Limits, Next, on_input};
    ///
    /// // A die for each byte, and a peer that takes its time and never says that it is done.
    /// let dice = on_input(|input, link| {
    ///     for _ in 0..input.len() {
    ///         let eyes = 1 + link.random() % 6;
    ///         link.write(&[b'0' + eyes as u8]);
    ///     }
    ///     input.consume(input.len());
    ///     Next::More
    /// });
    /// let limits = Limits { idle: Some(Duration::from_secs(60)), ..Limits::default() };
    /// let second = Duration::from_secs(1);
    /// let got = Feed::new(b"????")
    ///     .splits(&[1, 1])
    ///     .pause(second)
    ///     .after(10 * second)
    ///     .half_close(false)
    ///     .patience(100 * second)
    ///     .limits(limits)
    ///     .seed(7)
    ///     .run(dice);
    /// assert_eq!(got.output.len(), 4);
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Feed<'a> {
        self.seed = seed;
        self
    }

    /// Feeds one connection of `service`.
    ///
    /// # Panics
    /// If the connection spins: callbacks that go on for ever while no time passes.
    pub fn run<S: Service>(self, service: S) -> Collected {
        let fed = self.fed(service, Trace::default());
        Collected {
            output: fed.wire.output,
            closed: fed.wire.closed,
        }
    }

    /// Takes all output at once, however much the connection writes: [`Link::full`](crate::Link::full) is never true.
    fn unpaced(mut self) -> Feed<'a> {
        self.is_unpaced = true;
        self.limits = Limits {
            output_high: UNPACED,
            output_hard: UNPACED,
            ..self.limits
        };
        self
    }

    fn fed<S: Service>(&self, service: S, trace: Trace) -> Fed {
        let mut fed = Fed::new(service, self, trace);
        if fed.open() {
            fed.feed(self);
        }
        fed
    }

    /// Feeds another connection in the same way, and writes a trace; returns the trace's path.
    fn recorded<S: Service>(&self, service: S) -> Option<PathBuf> {
        let mut trace = Trace::default();
        trace.record();
        let fed = self.fed(service, trace);
        files::write("split", &fed.wire.trace)
    }
}

/// Feeds one connection of `service` the pieces of `input` that `splits` says, then the end of
/// input if `half_close`. See [`Feed`] for pacing, time and limits.
///
/// ```
/// use tidewire::{on_input, sim::chunking::collect};
///
/// let echo = on_input(|input, link| link.forward_all(input));
/// assert_eq!(collect(echo, b"hello", &[1, 3], true).output, b"hello");
/// ```
pub fn collect<S: Service>(
    service: S,
    input: &[u8],
    splits: &[usize],
    half_close: bool,
) -> Collected {
    let feed = Feed::new(input).splits(splits).half_close(half_close);
    feed.run(service)
}

/// Lengths that split `len` bytes, drawn from `seed`: some seeds cut into single bytes, some into
/// a few large pieces, most into a mixture.
///
/// ```
/// let pieces = tidewire::sim::chunking::splits(7, 1000);
/// assert_eq!(pieces.iter().sum::<usize>(), 1000);
/// assert_eq!(pieces, tidewire::sim::chunking::splits(7, 1000));
/// ```
#[must_use]
pub fn splits(seed: u64, len: usize) -> Vec<usize> {
    let mut rng = Rng::from_seed(seed);
    // Log-uniform: every order of magnitude gets its share of seeds.
    let magnitude = rng.below(u64::from(usize::BITS - len.leading_zeros()) + 1);
    let most = 1u64 << magnitude;
    let mut pieces = Vec::new();
    let mut left = len;
    while left > 0 {
        let n = (1 + rng.below(most) as usize).min(left);
        pieces.push(n);
        left -= n;
    }
    pieces
}

/// Compares `rounds` different splits of `input`, some of them with a slow peer and low output
/// marks, with the input as a whole and a link that is never [full](crate::Link::full). `normalise` names what the
/// meaning of the output is: the output itself for echo, a set of ids for acknowledgements.
///
/// Let `input` end with the request that has the longest reply, longer than [`Limits::output_high`] (256 KiB) if there is such
/// a request. Then a protocol that does not go on when its output has drained, or that ends with its peer before the reply is
/// whole, is found: output is missing. If another request followed, its bytes could make such a protocol go on, and the fault
/// would stay hidden.
///
/// # Panics
/// If two meanings differ; the message has the round, the splits and both meanings, and says where to find the
/// [trace](super) of that round.
///
/// ```
/// use tidewire::{on_input, sim::chunking::assert_invisible};
///
/// let echo = || on_input(|input, link| link.forward_all(input));
/// assert_invisible(echo, b"hello", true, |got| got.output.clone(), 20);
/// ```
pub fn assert_invisible<S: Service, T: PartialEq + fmt::Debug>(
    mut make: impl FnMut() -> S,
    input: &[u8],
    half_close: bool,
    normalise: impl Fn(&Collected) -> T,
    rounds: u64,
) {
    let at_once = Feed::new(input).half_close(half_close);
    let whole = normalise(&at_once.clone().unpaced().run(make()));
    let paced = normalise(&at_once.run(make()));
    assert!(
        paced == whole,
        "a full link shows: it holds output back that does not come when it has drained\n  whole: {whole:?}\n  paced: {paced:?}"
    );
    for round in 0..rounds {
        let splits = splits(round, input.len());
        let mut feed = Feed::new(input).splits(&splits).half_close(half_close);
        if round % 2 == 1 {
            let mut rng = Rng::from_seed(round);
            let window = 1 + rng.below(2000) as usize;
            let (output_low, output_high) =
                (rng.below(100) as usize, 101 + rng.below(5000) as usize);
            feed = feed.window(window).limits(Limits {
                output_low,
                output_high,
                ..Limits::default()
            });
        }
        let got = normalise(&feed.clone().run(make()));
        if got != whole {
            let trace = feed.recorded(make());
            let trace = trace.map_or(String::new(), |path| path.display().to_string());
            panic!(
                "the split shows in round {round}: {feed:?}\n  whole: {whole:?}\n  split: {got:?}\n  what \
                 happened, in words, and beside it as pcap: {trace}"
            );
        }
    }
}

/// The peer's end.
struct Wire {
    output: Vec<u8>,
    /// Bytes that the peer takes before it stops.
    credit: usize,
    reading: bool,
    shut: bool,
    closed: Option<Closed>,
    trace: Trace,
}

impl Wire {
    fn note(&mut self, at: Instant, what: What, side: u8, len: usize) {
        self.trace.note(Event {
            at,
            what,
            stream: 0,
            side,
            len: len as u64,
        });
    }

    /// Bytes go from our side to the peer.
    fn passed(&mut self, at: Instant, side: u8, bytes: &[u8]) {
        self.trace.contents(0, side, bytes);
        self.note(at, What::Sent, side, bytes.len());
        self.note(at, What::Arrived, 1 - side, bytes.len());
    }
}

impl Transport for Wire {
    fn flush(&mut self, state: &mut State, env: &mut Env) {
        while self.credit > 0 {
            let mut slices = [IoSlice::new(&[]); 16];
            let n = state.out.slices(&mut slices, FREE);
            let mut sent = 0;
            for slice in &slices[..n] {
                let take = slice.len().min(self.credit);
                self.output.extend_from_slice(&slice[..take]);
                self.passed(env.now, 1, &slice[..take]);
                self.credit -= take;
                sent += take;
            }
            if sent == 0 {
                return;
            }
            env.sent(state, sent);
        }
        state.block_sending();
    }

    fn set_reading(&mut self, _state: &mut State, _env: &mut Env, on: bool) {
        self.reading = on;
    }

    fn untaken(&mut self, _index: u32) -> Option<usize> {
        None
    }

    /// The answer depends on the split, which is not to show.
    fn has_emptied(&self, _index: u32) -> bool {
        false
    }

    /// The wire never fails.
    fn read_rest(&mut self, _index: u32) {}

    fn shut_write(&mut self, core: &mut Core, _index: u32) {
        self.shut = true;
        self.note(core.env.now, What::EndArrived, 0, 0);
    }

    fn close(&mut self, core: &mut Core, index: u32, reset: bool) {
        let what = if reset {
            What::ResetArrived
        } else {
            What::Closed
        };
        self.note(core.env.now, what, u8::from(!reset), 0);
        if let Phase::Buried(why) = core.states[index as usize].phase {
            self.closed = Some(why);
        }
        core.free(index);
    }

    fn connect(&mut self, core: &mut Core, index: u32, _: Endpoint, _: Option<SocketAddr>) {
        core.connect_failed(index, &std::io::ErrorKind::ConnectionRefused.into());
    }

    fn cancel_connect(&mut self, _core: &mut Core, _index: u32) {}
}

/// The connection and its peer.
struct Fed {
    core: Core,
    wire: Wire,
    time: Rc<Cell<u64>>,
    window: usize,
    turns: usize,
}

/// The only connection there is.
const CONN: u32 = 0;
/// The address of the peer.
const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);
/// The address to which the connection goes.
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 1);

impl Fed {
    fn new<S: Service>(service: S, feed: &Feed<'_>, mut trace: Trace) -> Fed {
        trace.stream(&PEER.into(), &SERVER.into());
        let time = Rc::new(Cell::new(0));
        let plan = Plan {
            throttles: Arc::default(),
            log_connections: false,
            made: match feed.is_unpaced {
                true => MakeShares::of(UNPACED),
                false => MakeShares::default(),
            },
            shares: SendShares::default(),
            received: ReceiveShares::default(),
            memory: Arc::default(),
            hosts: vec![host_of(service, feed.limits.clone())],
            chunk: CHUNK,
            buffers: 4,
        };
        Fed {
            core: Core::new(
                &plan,
                Arc::new(Waker::new()),
                Arc::default(),
                Clock::Virtual(time.clone()),
                Rng::from_seed(feed.seed),
            ),
            wire: Wire {
                output: Vec::new(),
                credit: feed.window,
                reading: false,
                shut: false,
                closed: None,
                trace,
            },
            time,
            window: feed.window,
            turns: 0,
        }
    }

    fn open(&mut self) -> bool {
        let from = Peer::new(PEER, Origin::Accepted(0));
        let permit = self
            .core
            .env
            .door(0)
            .admit(0, &from.endpoint, self.core.env.now);
        match permit.and_then(|permit| self.core.admit(0, from, permit)) {
            Ok(index) => {
                assert_eq!(index, CONN);
                let now = self.core.env.now;
                self.wire.note(now, What::Dialled, 0, 0);
                self.wire.note(now, What::Accepted, 1, 0);
                self.wire.note(now, What::Connected, 0, 0);
                self.core.open(CONN);
                self.run_due();
                true
            }
            Err(_) => false,
        }
    }

    fn feed(&mut self, feed: &Feed<'_>) {
        let mut rest = feed.input;
        for &n in feed.splits {
            let piece;
            (piece, rest) = rest.split_at(n.min(rest.len()));
            self.pass(feed.pause);
            self.piece(piece, feed);
        }
        if !rest.is_empty() {
            self.pass(feed.pause);
            self.piece(rest, feed);
        }
        self.pass(feed.after);
        if feed.half_close {
            if !self.wait_until(feed.patience, |fed| fed.wire.reading) && self.is_there() {
                self.core.end_announced(CONN);
                self.run_due();
                self.wait_until(feed.patience, |fed| fed.wire.reading);
            }
            self.end_input();
            self.wait_until(feed.patience, |_| false);
        } else {
            // All output, without waiting for deadlines.
            self.wait_until(Duration::ZERO, |_| false);
        }
        if self.wire.shut {
            // A finished connection waits for its peer to close.
            self.end_input();
        }
        let closed = self.wire.closed;
        self.core.cut_all(&mut self.wire);
        self.wire.closed = closed;
    }

    fn piece(&mut self, piece: &[u8], feed: &Feed<'_>) {
        if piece.is_empty() {
            self.grant();
        }
        for chunk in piece.chunks(CHUNK) {
            if !self.wait_until(feed.patience, |fed| fed.wire.reading) {
                return;
            }
            let mut lease = self.core.env.pool.lease();
            for _ in 0..TURNS_MAX {
                if lease.is_some() || !self.progress(Instant::from_nanos(u64::MAX)) {
                    break;
                }
                lease = self.core.env.pool.lease();
            }
            let (Some(mut lease), true) = (lease, self.is_there()) else {
                return;
            };
            lease.space()[..chunk.len()].copy_from_slice(chunk);
            self.wire.passed(self.core.env.now, 0, chunk);
            self.core.received(CONN, &mut lease, chunk.len());
            self.run_due();
            self.grant();
        }
    }

    fn end_input(&mut self) {
        if self.is_there() {
            self.wire.note(self.core.env.now, What::EndArrived, 1, 0);
            self.core.input_ended(CONN);
            self.run_due();
        }
    }

    fn is_there(&self) -> bool {
        self.core.states.contains(CONN as usize)
    }

    /// Everything that needs neither the peer nor time.
    fn run_due(&mut self) {
        loop {
            self.turns += 1;
            assert!(self.turns < TURNS_MAX, "the connection never comes to rest");
            self.core.env.begin_turn();
            self.core.take_backlog();
            self.core.take_mail();
            self.core.settle_all(&mut self.wire);
            if !self.core.has_work() && !self.core.waker.is_pending() {
                return;
            }
        }
    }

    /// The peer takes up to its window of output.
    fn grant(&mut self) {
        self.wire.credit = self.window;
        if self.is_there() {
            self.core.states[CONN as usize].unblock_sending();
            self.core.touch(CONN);
        }
        self.run_due();
    }

    /// One step towards rest: the peer takes output, or else time goes on to the next deadline
    /// before `until`. False if there is nothing of either.
    fn progress(&mut self, until: Instant) -> bool {
        let state = self.core.states.get(CONN as usize);
        if state.is_some_and(|s| s.out.may_send()) {
            self.grant();
            return true;
        }
        match self.core.next_deadline() {
            Some(at) if at <= until && self.is_there() => {
                self.advance(at);
                true
            }
            _ => false,
        }
    }

    /// Whether `done` came true before `patience` ran out or nothing was left to happen.
    fn wait_until(&mut self, patience: Duration, done: impl Fn(&Fed) -> bool) -> bool {
        let until = self.core.env.now + patience;
        loop {
            if done(self) && self.is_there() {
                return true;
            }
            if !self.progress(until) {
                return false;
            }
        }
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let until = self.core.env.now + time;
        while let Some(at) = self.core.next_deadline().filter(|at| *at <= until) {
            self.advance(at);
        }
        self.advance(until);
    }

    fn advance(&mut self, to: Instant) {
        self.time.set(self.time.get().max(to.as_nanos()));
        self.core.env.now = self.core.env.clock.monotonic();
        self.core.expire(&mut self.wire);
        self.run_due();
    }
}
