//! The order in which the sides run; the parent module has the reasons.

use std::fmt;

use serde::Serialize;

/// Which server a run is made against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The base of the comparison.
    A,
    /// The side that is compared with A.
    B,
    /// Set up as A, but another process: shows which differences mean nothing.
    Control,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::A => "A",
            Side::B => "B",
            Side::Control => "control",
        })
    }
}

/// One run's place in the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The server to run against.
    pub side: Side,
    /// Round from 0; warm-up rounds count on their own, also from 0.
    pub round: usize,
    /// The run's samples will be dropped.
    pub warm_up: bool,
}

/// In which order the sides take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Schedule {
    pub(super) rounds: usize,
    pub(super) warm_up_rounds: usize,
    pub(super) control: bool,
}

const WITHOUT_CONTROL: [[Side; 2]; 2] = [[Side::A, Side::B], [Side::B, Side::A]];

const WITH_CONTROL: [[Side; 3]; 6] = [
    [Side::A, Side::B, Side::Control],
    [Side::Control, Side::A, Side::B],
    [Side::B, Side::Control, Side::A],
    [Side::A, Side::Control, Side::B],
    [Side::B, Side::A, Side::Control],
    [Side::Control, Side::B, Side::A],
];

impl Schedule {
    /// `rounds` counted rounds with a control, after one warm-up round. 0 rounds are taken
    /// as 1; fewer than [six](crate::stats::ROUNDS_MIN) give no verdict, and small differences need 30 and
    /// more.
    pub fn new(rounds: usize) -> Self {
        Self {
            rounds: rounds.max(1),
            warm_up_rounds: 1,
            control: true,
        }
    }

    /// Sets how many rounds are run first and dropped.
    pub fn warm_up(mut self, rounds: usize) -> Self {
        self.warm_up_rounds = rounds;
        self
    }

    /// Leaves the control out, for a third less time and a weaker verdict.
    pub fn without_control(mut self) -> Self {
        self.control = false;
        self
    }

    /// Rounds up to whole cycles (2 rounds without a control, 6 with one), which the
    /// schedule needs for drift to cancel fully.
    pub fn whole_cycles(mut self) -> Self {
        self.rounds = self.rounds.next_multiple_of(self.cycle());
        self
    }

    /// Number of rounds that count.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether a control is run.
    pub fn has_control(&self) -> bool {
        self.control
    }

    /// Number of runs in all, warm-up included: what the whole comparison costs.
    pub fn runs(&self) -> usize {
        (self.warm_up_rounds + self.rounds) * self.order(0).len()
    }

    /// All runs in their order, warm-up rounds first.
    pub fn turns(&self) -> impl Iterator<Item = Turn> + use<> {
        let schedule = *self;
        let warm_up = (0..self.warm_up_rounds).map(|round| (round, true));
        let counted = (0..self.rounds).map(|round| (round, false));
        warm_up.chain(counted).flat_map(move |(round, warm_up)| {
            schedule.order(round).iter().map(move |&side| Turn {
                side,
                round,
                warm_up,
            })
        })
    }

    fn cycle(&self) -> usize {
        if self.control {
            WITH_CONTROL.len()
        } else {
            WITHOUT_CONTROL.len()
        }
    }

    fn order(&self, round: usize) -> &'static [Side] {
        let place = round % self.cycle();
        if self.control {
            &WITH_CONTROL[place]
        } else {
            &WITHOUT_CONTROL[place]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn letters(schedule: &Schedule) -> String {
        let letter = |turn: Turn| match turn.side {
            Side::A => 'A',
            Side::B => 'B',
            Side::Control => 'C',
        };
        schedule.turns().map(letter).collect()
    }

    #[test]
    fn the_plain_schedule_is_abba() {
        let schedule = Schedule::new(4).warm_up(0).without_control();
        assert_eq!(letters(&schedule), "ABBAABBA");
    }

    #[test]
    fn the_controlled_schedule_is_as_documented() {
        assert_eq!(letters(&Schedule::new(6).warm_up(0)), "ABCCABBCAACBBACCBA");
    }

    #[test]
    fn warm_up_rounds_come_first_and_are_marked() {
        let schedule = Schedule::new(2).warm_up(2);
        let turns: Vec<Turn> = schedule.turns().collect();
        assert_eq!(turns.len(), schedule.runs());
        assert!(turns[..6].iter().all(|turn| turn.warm_up));
        assert!(turns[6..].iter().all(|turn| !turn.warm_up));
        assert_eq!(turns[6].round, 0);
        assert_eq!(turns[9].round, 1);
    }

    #[test]
    fn a_cycle_is_balanced_in_every_way_it_claims() {
        for schedule in [
            Schedule::new(6).warm_up(0),
            Schedule::new(2).warm_up(0).without_control(),
        ] {
            let order: Vec<Side> = schedule.turns().map(|turn| turn.side).collect();
            let per_round = order.len() / schedule.rounds();
            let mut times: BTreeMap<Side, usize> = BTreeMap::new();
            let mut places: BTreeMap<(Side, usize), usize> = BTreeMap::new();
            let mut follows: BTreeMap<(Side, Side), usize> = BTreeMap::new();
            for (time, side) in order.iter().enumerate() {
                *times.entry(*side).or_default() += time;
                *places.entry((*side, time % per_round)).or_default() += 1;
                // The cycle repeats, so its last run precedes its first.
                let before = order[(time + order.len() - 1) % order.len()];
                *follows.entry((before, *side)).or_default() += 1;
            }
            let all_equal = |counts: Vec<usize>| counts.iter().all(|c| *c == counts[0]);
            assert!(all_equal(times.into_values().collect()));
            assert_eq!(places.len(), per_round * per_round);
            assert!(all_equal(places.into_values().collect()));
            assert_eq!(follows.len(), per_round * per_round);
            assert!(all_equal(follows.into_values().collect()));
        }
    }

    #[test]
    fn the_control_is_as_far_from_a_as_b_is() {
        let distances = |side: Side| {
            let mut found: Vec<isize> = WITH_CONTROL
                .iter()
                .map(|order| {
                    let place = |s| order.iter().position(|o| *o == s).unwrap() as isize;
                    place(side) - place(Side::A)
                })
                .collect();
            assert_eq!(found.iter().sum::<isize>(), 0);
            found.sort_unstable();
            found
        };
        assert_eq!(distances(Side::B), distances(Side::Control));
    }

    #[test]
    fn whole_cycles_round_up() {
        assert_eq!(Schedule::new(7).whole_cycles().rounds(), 12);
        assert_eq!(
            Schedule::new(7).without_control().whole_cycles().rounds(),
            8
        );
        assert_eq!(Schedule::new(0).rounds(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn every_side_runs_once_a_round(rounds in 1usize..40, warm_up in 0usize..4, control: bool) {
            let schedule = Schedule::new(rounds).warm_up(warm_up);
            let schedule = if control { schedule } else { schedule.without_control() };
            let mut seen: BTreeMap<(bool, usize, Side), usize> = BTreeMap::new();
            for turn in schedule.turns() {
                *seen.entry((turn.warm_up, turn.round, turn.side)).or_default() += 1;
            }
            prop_assert_eq!(seen.len(), schedule.runs());
            prop_assert!(seen.values().all(|times| *times == 1));
        }
    }
}
