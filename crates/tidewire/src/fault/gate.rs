//! Lets the pieces of one direction pass, or holds them back.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::fault::rates::{Rates, Shared, one_in};
use crate::reactor::random::Rng;
use crate::vocabulary::time::Instant;

/// Not before the next turn of the loop.
const A_TURN: Duration = Duration::from_nanos(1);

/// How a piece passes the gate.
pub(super) enum Passing {
    /// Number of bytes that are handed on.
    Some(usize),
    /// The piece waits.
    Not,
    /// The piece is the end of the connection.
    Cut,
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    /// No piece passes before this time.
    until: Option<Instant>,
    /// The fate of the piece that waits was drawn already: so much of it passes.
    drawn: Option<usize>,
}

impl Gate {
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Opens the gate, if it is time.
    pub(super) fn open(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
        }
    }

    /// How the next piece passes, of which there are `len` bytes.
    pub(super) fn next(
        &mut self,
        now: Instant,
        len: usize,
        rates: &Rates,
        rng: &mut Rng,
        shared: &Shared,
    ) -> Passing {
        self.open(now);
        if self.until.is_some() {
            return Passing::Not;
        }
        let passes = match self.drawn.take() {
            Some(drawn) => drawn.min(len),
            None => {
                if one_in(rng, rates.cut_one_in) {
                    shared.cut.fetch_add(1, Relaxed);
                    return Passing::Cut;
                }
                let mut passes = len.min(rates.window);
                if passes > 1 && one_in(rng, rates.split_one_in) {
                    passes = passes.min(1 + rng.below(rates.split_max as u64) as usize);
                }
                if one_in(rng, rates.delay_one_in) {
                    self.hold(now, rates, rng, shared);
                    self.drawn = Some(passes);
                    return Passing::Not;
                }
                passes
            }
        };
        if passes == rates.window {
            self.hold(now, rates, rng, shared);
        } else if passes < len {
            shared.splits.fetch_add(1, Relaxed);
            self.until = Some(now + A_TURN);
        }
        Passing::Some(passes)
    }

    fn hold(&mut self, now: Instant, rates: &Rates, rng: &mut Rng, shared: &Shared) {
        shared.delays.fetch_add(1, Relaxed);
        let (least, most) = (rates.delay.start().as_nanos(), rates.delay.end().as_nanos());
        let drawn = rng.below((most - least) as u64 + 1);
        self.until = Some(now + Duration::from_nanos((least as u64).saturating_add(drawn)));
    }
}
