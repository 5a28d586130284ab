//! How current a reader of a home is: the moment as of which everything there has been read.
//!
//! The one idea: silence proves nothing. What counts is that the home was asked for its end and has answered: once reading has
//! reached that end, everything that was there at the time of the *question* has been read.

use std::time::Duration;

/// Without an answer of the home for so long it counts as not reached.
pub const SILENCE: Duration = Duration::from_secs(5);

/// An age below this counts as 0.
const NOW: Duration = Duration::from_secs(2);

/// The facts about a reader's currency. Times are since any fixed moment, and never go back; offsets
/// are the home's.
#[derive(Clone, Debug)]
pub struct Currency {
    /// The end of the home, and when the home was asked for it.
    told: Option<(u64, Duration)>,
    /// All records before this position were read.
    read: u64,
    /// All that was there then was read.
    as_of: Option<Duration>,
    began: Duration,
}

impl Currency {
    /// The currency of a reader that begins now, and has read nothing.
    #[must_use]
    pub fn new(now: Duration) -> Currency {
        Currency {
            told: None,
            read: 0,
            as_of: None,
            began: now,
        }
    }

    /// The home has answered that it ends there; `asked` is when it was asked.
    pub fn told(&mut self, end: u64, asked: Duration) {
        self.told = Some((end, asked));
        self.settle();
    }

    /// Everything before this offset was read, or holds nothing to be read.
    pub fn read_to(&mut self, offset: u64) {
        self.read = self.read.max(offset);
        self.settle();
    }

    fn settle(&mut self) {
        if let Some((end, asked)) = self.told
            && self.read >= end
        {
            self.as_of = Some(asked);
        }
    }

    /// How many offsets are missing, by the last answer.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let (end, _) = self.told.unwrap_or_default();
        end.saturating_sub(self.read)
    }

    /// For how long the home has not answered, if that is too long.
    #[must_use]
    pub fn silent(&self, now: Duration) -> Option<Duration> {
        let since = self.told.map_or(self.began, |(_, asked)| asked);
        let silent = now.saturating_sub(since);
        (self.told.is_none() || silent >= SILENCE).then_some(silent)
    }

    /// How old the read data may be: newer data may be in the home. An age below two seconds counts as 0.
    #[must_use]
    pub fn behind(&self, now: Duration) -> Duration {
        let behind = now.saturating_sub(self.as_of.unwrap_or(self.began));
        match self.as_of {
            Some(_) if behind < NOW => Duration::ZERO,
            _ => behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_follower_that_has_read_all_and_is_cut_off_is_not_current_any_more() {
        let mut currency = Currency::new(s(0));
        assert!(currency.silent(s(0)).is_some(), "nobody has answered yet");
        assert_eq!(currency.behind(s(1)), s(1));
        currency.told(0, s(1));
        assert_eq!(currency.behind(s(1)), s(0));
        for at in 2..100 {
            currency.told(7, s(at));
            currency.read_to(7);
            assert_eq!((currency.behind(s(at + 1)), currency.missing()), (s(0), 0));
            assert_eq!(currency.silent(s(at + 1)), None);
        }
        // According to the last answer nothing is missing, but no new answer comes.
        assert_eq!(currency.silent(s(103)), None);
        assert_eq!(currency.silent(s(104)), Some(s(5)));
        assert_eq!(currency.behind(s(159)), s(60));
        currency.told(7, s(160));
        assert_eq!(
            (currency.silent(s(160)), currency.behind(s(160))),
            (None, s(0))
        );
    }

    #[test]
    fn a_follower_behind_the_end_is_as_old_as_what_is_missing() {
        let mut currency = Currency::new(s(0));
        currency.told(10, s(5));
        currency.read_to(9);
        assert_eq!((currency.behind(s(8)), currency.missing()), (s(8), 1));
        // The answer after the next is of something else.
        currency.told(20, s(9));
        currency.read_to(15);
        assert_eq!((currency.behind(s(10)), currency.missing()), (s(10), 5));
        currency.read_to(25);
        assert_eq!((currency.behind(s(12)), currency.missing()), (s(3), 0));
    }

    /// A home that grows, an answer and a record that take their time, and a line that is cut.
    #[test]
    fn no_follower_is_taken_for_more_current_than_it_is() {
        for seed in 0..2_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut currency = Currency::new(Duration::ZERO);
            let (mut now, mut end, mut read) = (0_u64, 0_u64, 0_u64);
            // The time at which each offset was written.
            let mut written = Vec::new();
            let mut asked: Option<(u64, u64)> = None;
            let (mut is_cut, mut heard) = (false, 0);
            for _ in 0..400 {
                now += rng.u64(..800);
                match rng.u8(..12) {
                    0..=3 => {
                        end += 1;
                        written.push(now);
                    }
                    4..=6 if !is_cut => asked = Some((end, now)),
                    7..=8 if !is_cut => {
                        if let Some((end, at)) = asked.take() {
                            currency.told(end, Duration::from_millis(at));
                            heard = at;
                        }
                    }
                    9..=10 if !is_cut && read < end => {
                        read += rng.u64(..=end - read);
                        currency.read_to(read);
                    }
                    11 => {
                        is_cut = rng.bool();
                        asked = None;
                    }
                    _ => {}
                }
                let at = Duration::from_millis(now);
                let oldest = written.get(read as usize).copied();
                let behind = currency.behind(at);
                if let Some(oldest) = oldest {
                    let age = Duration::from_millis(now - oldest);
                    assert!(
                        behind >= age || age < NOW,
                        "seed {seed}: {behind:?}, and {age:?}"
                    );
                }
                let silent = Duration::from_millis(now - heard);
                assert_eq!(
                    currency.silent(at).is_some(),
                    heard == 0 || silent >= SILENCE,
                    "seed {seed}"
                );
            }
        }
    }
}
