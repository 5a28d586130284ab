//! How much output a turn makes, and in which order: by what connections have had.
//!
//! A connection with large replies makes its output a share at a time. While no connection waits
//! and the turn's budget lasts, each connection is served at once, at no extra cost. After that,
//! only connections whose last share was small are served at once. The other connections wait in a
//! queue, ordered by fair queueing: a virtual clock advances with each byte by the part that falls
//! to one waiting connection, and a connection's own bytes move its next turn back. So a new
//! connection comes before connections that have had output, and none waits for ever. A connection
//! whose share is used up sees a link that is full, as if its output had not drained.
//!
//! Queued output of up to [`small`](MakeShares::small) bytes does not count, nor does output that is no
//! longer than the input that it answers: the input has a budget already.
//!
//! Time counts as output does, where a protocol [says](crate::Link::spend) that a message took long: a turn's budget is
//! [some milliseconds](TURN_TIME) of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use crate::mistakes::{Mistake, mistaken};
use crate::reactor::counters::LoopCounters;
use crate::reactor::facts::{Flag, Owed};
use crate::reactor::state::State;

/// Work that costs a turn as much as all the output that may be made in it.
const TURN_TIME: Duration = Duration::from_millis(2);

/// Shares of the bytes that may be made in one turn of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MakeShares {
    /// Bytes that all connections together may make. The budget may be exceeded by one share and
    /// one reply, and by connections with small shares at most once more.
    pub(crate) all: usize,
    /// Bytes by one connection while others wait.
    pub(crate) one: usize,
    /// Queued output up to this length does not count.
    pub(crate) small: usize,
}

impl MakeShares {
    /// Bytes for all, unless something else is set.
    pub(crate) const ALL: usize = 256 << 10;

    /// For so many bytes a turn: see [`Builder::turn_output`](crate::Builder::turn_output).
    pub(crate) fn of(all: usize) -> MakeShares {
        MakeShares {
            all,
            one: all / 4,
            small: 16 << 10,
        }
    }
}

impl Default for MakeShares {
    fn default() -> MakeShares {
        MakeShares::of(MakeShares::ALL)
    }
}

/// The connection whose turn it is.
struct Served {
    index: u32,
    /// Bytes of output that the connection may still make.
    left: usize,
}

/// The rest of a turn's budget for making output, and the connections that wait for a share.
pub(crate) struct Making {
    shares: MakeShares,
    counters: Arc<LoopCounters>,
    /// The turn that the next two are of: see [`renew`](Making::renew).
    turn: u64,
    /// Bytes; below zero when more was made.
    left: isize,
    /// A connection waits, or nothing is left: not all are served at once.
    closed: bool,
    /// Bytes of the chunk being answered that no output was set against.
    fed: usize,
    served: Option<Served>,
    /// Virtual time, in bytes.
    clock: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Connections that began to wait, counted: first come, first served at one time.
    arrivals: u64,
    /// The connection that came last.
    last: u32,
}

/// The connection's next turn, its place among equal turns, and its index.
type Waiting = (u64, u64, u32);

impl Making {
    pub(crate) fn new(shares: MakeShares, counters: Arc<LoopCounters>) -> Making {
        Making {
            shares,
            turn: counters.turns.value(),
            counters,
            left: shares.all.cast_signed(),
            closed: false,
            fed: 0,
            served: None,
            clock: 0,
            waiting: BinaryHeap::new(),
            arrivals: 0,
            last: 0,
        }
    }

    /// Each turn has the whole budget. The budget is renewed when a connection asks for a share,
    /// not when a turn begins: in turns with small output only, no connection asks.
    fn renew(&mut self) {
        let turn = self.counters.turns.value();
        if turn != self.turn {
            self.turn = turn;
            self.left = self.shares.all.cast_signed();
            self.closed = self.is_awaited();
        }
    }

    /// Whether a connection waits.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The waiting connection that came last.
    pub(crate) fn last(&self) -> Option<u32> {
        self.is_awaited().then_some(self.last)
    }

    /// From how many queued bytes on each write is to be [charged](Making::charge).
    pub(crate) fn mark(&self, high: u32) -> u32 {
        let small = u32::try_from(self.shares.small).unwrap_or(u32::MAX);
        high.min(small.saturating_add(1))
    }

    /// Whether the next connection is served at once, as far as that is known without looking:
    /// debts of an earlier turn may still delay it.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.closed
    }

    /// A chunk is about to be offered to its connection: whether it may be. Else the connection waits from here
    /// on. Need not be asked of one that made little while [all are served](Making::is_open).
    pub(crate) fn lets_in(&mut self, state: &mut State) -> bool {
        self.renew();
        if self.closed && !self.admits(state) {
            return false;
        }
        state.flags.remove(Flag::Heavy);
        true
    }

    /// A chunk of so many bytes is offered.
    #[inline]
    pub(crate) fn feed(&mut self, bytes: usize) {
        self.fed = bytes;
    }

    /// A connection is about to be called that may make more then: whether it may be, as above.
    #[inline(never)]
    pub(crate) fn admits(&mut self, state: &mut State) -> bool {
        self.renew();
        let overdrawn = self.left <= -self.shares.all.cast_signed();
        let light = !state.flags.has(Flag::Heavy) && !overdrawn;
        if self.closed && !light && !self.serves(state) {
            self.wait(state);
            return false;
        }
        state.flags.remove(Flag::OverShare);
        self.fed = 0;
        true
    }

    /// Whether it is this connection's turn.
    fn serves(&self, state: &State) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| served.index == state.id.index && served.left > 0)
    }

    /// Charges bytes that were queued by a connection with more than a little in its queue.
    pub(crate) fn charge(&mut self, state: &mut State, bytes: usize) {
        self.renew();
        let free = bytes.min(self.fed);
        if !state.flags.has(Flag::Embedded) {
            // Otherwise the layer's output would be set against the same input a second time.
            self.fed -= free;
        }
        self.hold_against(state, bytes - free);
    }

    /// A connection has worked for so long on its input: that costs the turn as much as output does that takes as long.
    #[cold]
    pub(crate) fn charge_time(&mut self, state: &mut State, took: Duration) {
        self.renew();
        let (all, turn_us) = (self.shares.all as u64, TURN_TIME.as_micros() as u64);
        let ns = took.as_nanos().min(u32::MAX.into()) as u64;
        let bytes = ns.saturating_mul(all) / (1000 * turn_us);
        self.hold_against(state, bytes as usize);
    }

    fn hold_against(&mut self, state: &mut State, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // More than a few turns at once would shut out all connections for as long.
        let bytes = bytes.min(8 * self.shares.all);
        if let Some(served) = &mut self.served
            && served.index == state.id.index
        {
            served.left = served.left.saturating_sub(bytes);
        }
        self.spend(bytes);
        if state.flags.has(Flag::Around) {
            // The output costs the turn, and was charged to the connection where it was made.
            return;
        }
        state.flags.add(Flag::Heavy);
        state.made_until = state.made_until.max(self.clock) + bytes as u64;
        if self.closed && (self.left <= 0 || !self.serves(state)) {
            // Full from here on, and told when it is not any more.
            state.flags.add(Flag::OverShare);
            state.owed.add(Owed::Writable);
        }
    }

    fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub_unsigned(bytes);
        self.closed |= self.left <= 0;
        self.clock += (bytes / (1 + self.waiting.len())).max(1) as u64;
    }

    /// The connection waits until its turn has come.
    pub(crate) fn wait(&mut self, state: &mut State) {
        if state.flags.has(Flag::AwaitsMaking) {
            return;
        }
        state.flags.add(Flag::AwaitsMaking);
        // The layer's connection waits for both: see `Link::await_making`.
        if state.flags.has(Flag::Embedded) || mistaken(Mistake::MakeTurnForgotten) {
            return;
        }
        self.counters.turn_pauses.add(1);
        self.arrivals += 1;
        self.last = state.id.index;
        let at = state.made_until.max(self.clock);
        let place = Reverse((at, self.arrivals, state.id.index));
        self.waiting.push(place);
        self.closed = true;
    }

    /// The connection whose turn it is, if there is anything left to make. The first one of a turn
    /// is served all the same: connections that made little before could take all there is, turn by
    /// turn.
    pub(crate) fn next(&mut self, is_first: bool) -> Option<u32> {
        self.renew();
        if self.left <= 0 && !is_first {
            return None;
        }
        let Reverse((_, _, index)) = self.waiting.pop()?;
        self.closed = self.is_awaited() || self.left <= 0;
        Some(index)
    }

    /// Has a connection that [`next`](Making::next) gave make its share, by settling it. Settling
    /// costs something even if the connection makes little, so that a round comes to an end.
    pub(crate) fn begin_serving(&mut self, index: u32) -> isize {
        let left = self.shares.one.max(1);
        self.served = Some(Served { index, left });
        self.left
    }

    pub(crate) fn end_serving(&mut self, had: isize) {
        self.served = None;
        if self.left == had {
            self.spend(self.shares.small.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::conn_id::ConnId;
    use crate::vocabulary::time::Instant;
    use crate::{Limits, Origin, Peer};

    const SHARES: MakeShares = MakeShares {
        all: 1000,
        one: 250,
        small: 10,
    };

    /// Connections that all ask for more than they are given, in replies of these sizes.
    struct Asking {
        making: Making,
        states: Vec<State>,
        replies: Vec<usize>,
        made: Vec<usize>,
    }

    fn asking(replies: &[usize]) -> Asking {
        let mut asking = Asking {
            making: Making::new(SHARES, Arc::default()),
            states: Vec::new(),
            replies: Vec::new(),
            made: Vec::new(),
        };
        replies.iter().for_each(|&reply| asking.add(reply));
        asking
    }

    impl Asking {
        fn begin_turn(&mut self) {
            self.making.counters.begin_turn();
        }

        fn add(&mut self, reply: usize) {
            let index = self.states.len() as u32;
            let id = ConnId::new(index, 1);
            let from: std::net::SocketAddr = ([127, 0, 0, 1], 1).into();
            let peer = Peer::new(from, Origin::Accepted(0));
            let state = State::new(id, 0, peer, &Limits::default(), Instant::default());
            self.states.push(state);
            self.replies.push(reply);
            self.made.push(0);
        }

        /// A connection comes, and wants more from then on; returns whether it is served at once.
        fn comes(&mut self, which: usize) -> bool {
            let is_in = self.comes_once(which);
            self.making.wait(&mut self.states[which]);
            is_in
        }

        fn comes_once(&mut self, which: usize) -> bool {
            let state = &mut self.states[which];
            let is_in = self.making.lets_in(state);
            if is_in {
                self.making.feed(0);
                self.answers(which);
            }
            is_in
        }

        /// A connection replies until its link is full, at the latest when it has queued as much as
        /// a turn may make.
        fn answers(&mut self, which: usize) {
            let (state, reply) = (&mut self.states[which], self.replies[which]);
            let mut queued = 0;
            while !state.flags.has(Flag::OverShare) && queued < SHARES.all {
                queued += reply;
                self.made[which] += reply;
                if queued > SHARES.small {
                    self.making.charge(state, reply);
                }
            }
        }

        /// The rest of a turn: connections whose turn it is make more, and want more yet.
        fn goes_on(&mut self) {
            let mut is_first = true;
            while let Some(index) = self.making.next(std::mem::take(&mut is_first)) {
                let which = index as usize;
                self.states[which].flags.remove(Flag::AwaitsMaking);
                let had = self.making.begin_serving(index);
                if self.making.admits(&mut self.states[which]) {
                    self.answers(which);
                }
                self.making.end_serving(had);
                self.making.wait(&mut self.states[which]);
            }
            self.begin_turn();
        }
    }

    #[test]
    fn alone_a_connection_has_a_whole_turn() {
        let mut one = asking(&[100]);
        assert!(one.comes(0));
        assert_eq!(one.made[0], SHARES.all);
        assert!(!one.making.admits(&mut one.states[0]), "in this turn");
        one.begin_turn();
        assert_eq!(one.making.next(false), Some(0));
    }

    /// No call says that a turn begins.
    #[test]
    fn what_was_spent_in_an_earlier_turn_keeps_no_connection_out() {
        let mut two = asking(&[SHARES.all, 300]);
        assert!(two.comes_once(0));
        assert!(!two.making.is_open() && !two.comes_once(1));
        two.states[1].flags.remove(Flag::AwaitsMaking);
        two.making.waiting.clear();
        two.begin_turn();
        assert!(!two.making.is_open(), "nobody has looked");
        assert!(two.making.lets_in(&mut two.states[1]));
        assert!(two.making.is_open());
    }

    #[test]
    fn a_turn_ends_however_many_ask() {
        let mut many = asking(&[300; 100]);
        let let_in = (0..100).filter(|&which| many.comes(which)).count();
        assert_eq!(let_in, 1, "the first has had all there was");
        for turn in 1..50 {
            many.goes_on();
            let made: usize = many.made.iter().sum();
            assert!(made <= (turn + 1) * (SHARES.all + 300), "{made} by {turn}");
        }
    }

    #[test]
    fn a_connection_that_made_little_is_let_in_before_all_that_wait() {
        let mut many = asking(&[300; 10]);
        many.states[9].flags.remove(Flag::Heavy);
        (0..9).for_each(|which| {
            many.comes(which);
        });
        for _ in 0..20 {
            // This connection's replies are so small that it is never charged.
            assert!(many.making.lets_in(&mut many.states[9]));
            many.goes_on();
        }
    }

    #[test]
    fn a_good_name_is_lost_with_the_first_large_reply() {
        let mut many = asking(&[300; 30]);
        for state in &mut many.states {
            state.flags.remove(Flag::Heavy);
        }
        let let_in = (0..30).filter(|&which| many.comes(which)).count();
        // The first had the budget, and the next ones as much again.
        assert!(let_in <= 1 + SHARES.all.div_ceil(300), "{let_in}");
        assert!(many.making.left >= -2 * SHARES.all as isize);
        many.goes_on();
        assert!(!many.comes(0));
    }

    #[test]
    fn bytes_are_shared_and_not_turns() {
        let mut many = asking(&[50, 100, 200, 400, 800]);
        (0..5).for_each(|which| {
            many.comes(which);
        });
        let first = many.made.clone();
        for _ in 0..400 {
            many.goes_on();
        }
        let made: Vec<_> = many.made.iter().zip(&first).map(|(n, f)| n - f).collect();
        let (least, most) = (made.iter().min().unwrap(), made.iter().max().unwrap());
        // Output that the first connection made before others waited is charged to it.
        let apart = 2 * SHARES.all + SHARES.one + 800;
        assert!(most - least <= apart, "{made:?}");
        assert!(*least > 40_000, "{made:?}");
    }

    /// The connection makes no output at all.
    #[test]
    fn a_long_callback_has_a_share_of_the_turn_and_no_more() {
        let mut two = asking(&[10, 10]);
        two.states[1].flags.remove(Flag::Heavy);
        assert!(two.making.lets_in(&mut two.states[0]));
        let mut messages = 0;
        while !two.states[0].flags.has(Flag::OverShare) {
            messages += 1;
            let took = TURN_TIME / 8;
            two.making.charge_time(&mut two.states[0], took);
            assert!(messages <= 8, "alone it has the turn");
        }
        two.making.wait(&mut two.states[0]);
        assert!(
            two.making.lets_in(&mut two.states[1]),
            "it has done nothing"
        );
        two.begin_turn();
        assert_eq!(two.making.next(true), Some(0));
        two.making.wait(&mut two.states[1]);
        let had = two.making.begin_serving(0);
        two.states[0].flags.remove(Flag::AwaitsMaking);
        assert!(two.making.admits(&mut two.states[0]));
        let mut messages = 0;
        while !two.states[0].flags.has(Flag::OverShare) {
            messages += 1;
            two.making.charge_time(&mut two.states[0], TURN_TIME / 8);
            assert!(messages <= 2, "a quarter while another one waits");
        }
        two.making.end_serving(had);
    }

    #[test]
    fn newcomers_come_before_connections_that_have_had_much() {
        let mut many = asking(&[300; 20]);
        (0..20).for_each(|which| {
            many.comes(which);
        });
        (0..30).for_each(|_| many.goes_on());
        many.add(300);
        assert!(!many.comes(20));
        let before = std::iter::from_fn(|| many.making.next(false)).position(|which| which == 20);
        // A connection whose time has come just now is served before it.
        assert!(before.is_some_and(|n| n <= 2), "{before:?}");
    }

    #[test]
    fn good_names_that_come_every_turn_starve_no_connection() {
        let mut many = asking(&[300; 12]);
        (10..12).for_each(|which| {
            many.comes(which);
        });
        let before = many.made[11];
        for _ in 0..200 {
            for which in 0..10 {
                many.states[which].flags.remove(Flag::Heavy);
                many.comes_once(which);
            }
            many.goes_on();
        }
        assert!(many.made[11] > before + 600, "{}", many.made[11]);
    }

    #[test]
    fn a_stream_of_newcomers_starves_no_connection() {
        let mut many = asking(&[300; 2]);
        (0..2).for_each(|which| {
            many.comes(which);
        });
        let before = many.made[1];
        for _ in 0..200 {
            // More than a turn can serve, each of which is never heard of again.
            for _ in 0..5 {
                many.add(300);
                let newcomer = many.states.len() - 1;
                many.comes_once(newcomer);
            }
            many.goes_on();
        }
        assert!(many.made[1] > before + 600, "{}", many.made[1]);
    }

    #[test]
    fn what_a_layer_makes_of_it_costs_the_turn_and_not_the_name() {
        let mut one = asking(&[300]);
        one.states[0].flags.add(Flag::Around);
        assert!(one.making.lets_in(&mut one.states[0]));
        one.making.feed(100);
        one.making.charge(&mut one.states[0], 2000);
        assert_eq!(one.making.left, SHARES.all as isize - 1900);
        let flags = &one.states[0].flags;
        assert!(flags.has_none(&[Flag::Heavy, Flag::OverShare]));
    }

    #[test]
    fn what_answers_as_much_input_does_not_count() {
        let mut many = asking(&[5000, 300]);
        for _ in 0..100 {
            assert!(many.making.lets_in(&mut many.states[0]));
            many.making.feed(5000);
            many.making.charge(&mut many.states[0], 5000);
            assert_eq!(many.making.left, SHARES.all as isize);
        }
        // The rest of one connection's share does not go to another connection.
        for (which, fed) in [(0, 5000), (1, 1)] {
            assert!(many.making.lets_in(&mut many.states[which]));
            many.making.feed(fed);
        }
        many.making.charge(&mut many.states[1], 300);
        assert_eq!(many.making.left, SHARES.all as isize - 299);
    }
}
