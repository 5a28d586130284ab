//! How much a turn sends: a budget that all connections of a loop share, so that a turn ends soon,
//! however much the kernel would take.
//!
//! Small output is sent at once and does not use the budget, so that a connection with little
//! output never waits for connections with much. A connection with more output queues while other
//! connections wait, and gets a share when its turn has come. Alone, it gets the rest of the
//! budget, or a share if that is more.
//!
//! A share is whole, also where less of the budget is left: a reply that is no longer than a share leaves in one piece.
//! Bytes sent beyond the budget of a turn are missing in the next turns.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::mistakes::{Mistake, mistaken};
use crate::reactor::counters::LoopCounters;
use crate::reactor::facts::Flag;
use crate::reactor::state::State;

/// Shares of the bytes that may be sent in one turn of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendShares {
    /// By all connections together: on average, for one share may be on top of it.
    pub(crate) all: usize,
    /// Bytes by one connection while others wait.
    pub(crate) one: usize,
    /// Output up to this length does not count.
    pub(crate) small: usize,
}

impl SendShares {
    /// Bytes for all, unless something else is set.
    pub(crate) const ALL: usize = 1 << 20;
    /// The least share of one connection: what [`Link::write`](crate::Link::write) hands on in one piece.
    const ONE_MIN: usize = 64 << 10;

    /// For so many bytes a turn: see [`Builder::turn_send`](crate::Builder::turn_send).
    pub(crate) fn of(all: usize) -> SendShares {
        SendShares {
            all,
            one: (all / 4).max(SendShares::ONE_MIN),
            small: 16 << 10,
        }
    }
}

impl Default for SendShares {
    fn default() -> SendShares {
        SendShares::of(SendShares::ALL)
    }
}

/// A share without a bound, for a connection that has little to send.
pub(crate) const FREE: usize = usize::MAX;

/// The rest of a turn's budget for sending, and the connections that wait for a share.
pub(crate) struct Sending {
    shares: SendShares,
    counters: Arc<LoopCounters>,
    /// Bytes; below zero when more was sent.
    left: isize,
    /// Connections whose turn to send has not come, or that were settled before it came. First come,
    /// first served.
    queue: VecDeque<u32>,
    /// The connection being settled is the one whose turn it is.
    serving: bool,
}

impl Sending {
    pub(crate) fn new(shares: SendShares, counters: Arc<LoopCounters>) -> Sending {
        Sending {
            shares,
            counters,
            left: shares.all.cast_signed(),
            queue: VecDeque::new(),
            serving: false,
        }
    }

    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.left = self.left.min(0).saturating_add_unsigned(self.shares.all);
    }

    /// Whether a connection waits.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The waiting connection that came last.
    pub(crate) fn last(&self) -> Option<u32> {
        self.queue.back().copied()
    }

    /// Charges bytes of a share that were sent, or are about to be.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub_unsigned(bytes);
    }

    /// The connection whose turn it is, if there is anything left to send.
    pub(crate) fn next(&mut self) -> Option<u32> {
        match self.left {
            1.. => self.queue.pop_front(),
            _ => None,
        }
    }

    /// Has a connection that [`next`](Sending::next) gave send its share, by settling it. Settling
    /// costs something even if the connection sends little, so that a round comes to an end.
    pub(crate) fn begin_serving(&mut self) -> isize {
        self.serving = true;
        self.left
    }

    pub(crate) fn end_serving(&mut self, had: isize) {
        self.serving = false;
        if self.left == had {
            self.charge(self.shares.small.max(1));
        }
    }

    /// How many bytes this connection may send now: [`FREE`], or a number that is
    /// [charged](Sending::charge) as the bytes are sent. 0 if the connection has to wait for its
    /// turn; it is in the queue from then on.
    #[inline]
    pub(crate) fn share_of(&mut self, state: &mut State) -> usize {
        if state.out.len() <= self.shares.small {
            return FREE;
        }
        self.large_share_of(state)
    }

    #[inline(never)]
    fn large_share_of(&mut self, state: &mut State) -> usize {
        let is_due = std::mem::take(&mut self.serving) || !self.is_awaited();
        if !is_due || self.left <= 0 {
            self.wait(state);
            return 0;
        }
        match self.is_awaited() {
            true => self.shares.one,
            false => self.shares.one.max(self.left.unsigned_abs()),
        }
    }

    /// Whether a connection that has sent something and been called back may go on at once: else it
    /// could send without end, little by little. If not, it waits for its turn.
    pub(crate) fn may_go_on(&mut self, state: &mut State) -> bool {
        if self.is_awaited() || self.left <= 0 {
            self.wait(state);
            return false;
        }
        self.charge(self.shares.small);
        true
    }

    fn wait(&mut self, state: &mut State) {
        if !state.flags.has(Flag::AwaitsTurn) && !mistaken(Mistake::SendTurnForgotten) {
            state.flags.add(Flag::AwaitsTurn);
            self.counters.send_pauses.add(1);
            self.queue.push_back(state.id.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Limits;
    use crate::reactor::by_hand::ByHand;
    use crate::reactor::lines_of_tests::logged;

    const SHARES: SendShares = SendShares {
        all: 1000,
        one: 250,
        small: 10,
    };

    fn waiting(connections: usize) -> ByHand {
        ByHand::new(connections, Limits::default(), SHARES)
    }

    fn sum(sent: &[(u32, usize)]) -> usize {
        sent.iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn alone_a_connection_has_a_whole_turn() {
        let mut one = waiting(1);
        one.write(0, 2500);
        for left in [1000, 1000, 500] {
            assert_eq!(sum(&one.turn()), left);
        }
        assert!(!one.core.has_work());
    }

    #[test]
    fn many_have_their_turn_one_after_the_other() {
        let mut many = waiting(10);
        (0..10).for_each(|index| many.write(index, 5000));
        let mut shares = [0; 10];
        for turn in 0..50 {
            let sent = many.turn();
            assert_eq!(sum(&sent), 1000, "turn {turn}");
            sent.iter()
                .for_each(|(i, bytes)| shares[*i as usize] += bytes);
            let (least, most) = (shares.iter().min(), shares.iter().max());
            // The first has had the turn in which no other waited yet, and a share since.
            let ahead = SHARES.all + SHARES.one;
            assert!(most.unwrap() - least.unwrap() <= ahead, "{shares:?}");
        }
        assert_eq!(shares, [5000; 10]);
        assert!(many.turn().is_empty() && !many.core.has_work());
    }

    /// Ten of 210 bytes each: the budget ends within the fifth.
    #[test]
    fn a_reply_leaves_in_one_piece_and_what_that_takes_too_much_is_missing_later() {
        let mut many = waiting(10);
        (0..10).for_each(|index| many.write(index, 210));
        let turns: Vec<Vec<(u32, usize)>> = (0..4).map(|_| many.turn()).collect();
        let all: Vec<usize> = turns.iter().flatten().map(|(_, bytes)| *bytes).collect();
        assert_eq!(all, [210; 10], "{turns:?}");
        // 1,050 of 1,000; of the 950 that are left then, 1,050 again.
        let counts: Vec<usize> = turns.iter().map(Vec::len).collect();
        assert_eq!(counts, [5, 5, 0, 0], "{turns:?}");
        let mut deep = ByHand::new(2, Limits::default(), SendShares { all: 100, ..SHARES });
        (0..2).for_each(|index| deep.write(index, 240));
        let turns: Vec<usize> = (0..6).map(|_| sum(&deep.turn())).collect();
        assert_eq!(turns, [240, 0, 240, 0, 0, 0], "two turns pay for each");
    }

    #[test]
    fn waiting_is_counted_and_told_if_it_takes_long() {
        let mut many = waiting(3);
        let told = logged(|| {
            (0..3).for_each(|index| many.write(index, 5000));
            many.turn();
            many.at(Duration::from_secs(3));
            many.turn();
        });
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains(" limit=\"send\" seconds=3.0 held_back=0"),
            "{told:?}"
        );
        assert!(many.core.env.counters.send_pauses.value() >= 3);
    }

    #[test]
    fn a_connection_with_little_to_send_does_not_wait() {
        let mut many = waiting(10);
        (0..9).for_each(|index| many.write(index, 5000));
        many.turn();
        many.write(9, 10);
        let sent = many.turn();
        assert!(sent.contains(&(9, 10)), "{sent:?}");
        assert_eq!(sum(&sent), 1010);
    }

    #[test]
    fn waiting_connections_are_served_before_new_ones() {
        let mut many = waiting(3);
        many.write(0, 5000);
        many.turn();
        many.write(1, 11);
        many.write(2, 11);
        assert_eq!(many.turn(), [(0, 250), (2, 11), (1, 11), (0, 728)]);
    }

    #[test]
    fn a_gone_or_blocked_connection_costs_no_share() {
        let mut many = waiting(3);
        (0..3).for_each(|index| many.write(index, 5000));
        let first = many.turn()[0].0;
        let [gone, blocked] = [(first + 1) % 3, (first + 2) % 3];
        many.core.states[gone as usize].kill(crate::Closed::Aborted);
        many.core.touch(gone);
        many.core.states[blocked as usize].block_sending();
        let sent = many.turn();
        assert!(sent.iter().all(|(index, _)| *index == first), "{sent:?}");
        assert_eq!(sum(&sent), 1000 - SHARES.small);
        assert!(many.core.has_work());
    }
}
