//! Reads a counter around segments of a load.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::counter::{CountError, Counter, Threads};
use super::profile::Profile;
use super::quiet::Quiet;
use super::verdict::Mean;
use crate::workload::{Failure, Work};

/// How long is waited for a reading before the server is given something to do.
const WAKE_AFTER: Duration = Duration::from_millis(1_500);
/// How long is waited for a reading of a server that cannot be woken.
const ASLEEP_AFTER: Duration = Duration::from_millis(30);
/// Rounds until a reading has to have been made.
const READ_WITHIN: u32 = 200;
/// A thread works by the clock if it does less than this many times its idle work.
const BY_CLOCK: f64 = 2.0;

/// How many messages and segments are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Rounds before anything is counted.
    pub warm_up: u32,
    /// Rounds of a segment, at least 1.
    pub rounds: u32,
    /// Fewest segments, at least 1.
    pub segments: u32,
    /// Most segments: there are more than the fewest where their mean is not known well enough.
    pub segments_most: u32,
    /// The required accuracy: half of the interval, as a share of the value.
    pub within: f64,
    /// How long the server is looked at doing nothing.
    pub idle: Duration,
    /// Holds the server still while a round is sent: for rounds that are more than one piece of the network's.
    pub hold: bool,
}

/// Plays one round: calls the function that it is given, if any, when all messages were sent; returns how many messages
/// were answered so far.
pub type PlayRound<'a> = &'a mut dyn FnMut(Option<&mut dyn FnMut()>) -> Result<u64, Failure>;

/// The cost of messages in instructions and system calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counted {
    /// The cost of a message, in each segment.
    pub segments: Vec<f64>,
    /// The cost of a message by function, or by system call, over all segments.
    pub profile: Profile,
    /// Messages of all segments.
    pub messages: u64,
    /// The server never rests: what a turn finds depends on the clock.
    pub restless: bool,
    /// What the replies say of the work.
    #[serde(skip)]
    pub work: Work,
}

impl Counted {
    /// Several starts of one server, as if they were one.
    #[must_use]
    pub fn together(all: &[Counted]) -> Counted {
        let mut sum = Counted::default();
        for one in all {
            sum.segments.extend(&one.segments);
            sum.profile.merge(&one.profile);
            sum.messages += one.messages;
            sum.restless |= one.restless;
            sum.work.add(&one.work);
        }
        sum.profile = sum.profile.divided(all.len().max(1) as f64);
        sum
    }
}

/// Counts what messages cost a server whose process is `pid`.
///
/// # Errors
/// [`Failure`]: of the load, or of the counter.
pub fn sample(
    counter: &mut dyn Counter,
    pid: u32,
    sampling: &Sampling,
    play: PlayRound<'_>,
) -> Result<Counted, Failure> {
    let mut sampler = Sampler {
        counter,
        quiet: Quiet::of(pid),
        hold: sampling.hold,
        play,
        answered: 0,
    };
    sampler.rounds(sampling.warm_up)?;
    let begin = sampler.mark()?.1;
    let (wake, woken) = sampler.mark()?;
    let idle_since = Instant::now();
    thread::sleep(sampling.idle);
    let idle_time = idle_since.elapsed();
    let (idle, mut from) = sampler.mark()?;
    let beside = match woken == begin {
        true => Beside { wake, idle },
        // The server could not be read without a message, so its work without messages is unknown.
        false => Beside::default(),
    };
    let mut counted = Counted::default();
    let mut profile = Profile::default();
    for number in 0..sampling.segments_most.max(sampling.segments) {
        let is_known = || Mean::of(&[&counted.segments]).within <= sampling.within;
        if number >= sampling.segments && is_known() {
            break;
        }
        let begin = Instant::now();
        sampler.rounds(sampling.rounds)?;
        let elapsed = begin.elapsed();
        let (threads, to) = sampler.mark()?;
        let messages = to.saturating_sub(from);
        from = to;
        let times = elapsed.as_secs_f64() / idle_time.as_secs_f64().max(f64::MIN_POSITIVE);
        let spent = beside.of_messages(&threads, times);
        counted
            .segments
            .push(spent.total() / messages.max(1) as f64);
        counted.messages += messages;
        profile.merge(&spent);
    }
    counted.profile = profile.divided(counted.messages.max(1) as f64);
    counted.restless = sampler.quiet.is_restless();
    Ok(counted)
}

/// Work of a server that no message has caused.
#[derive(Default)]
struct Beside {
    /// The cost of one reading, which the reading itself causes.
    wake: Threads,
    /// The cost of a round at rest, caused by the reading and by the clock.
    idle: Threads,
}

impl Beside {
    /// The work that messages have caused. Threads that work by the clock are left out; for other threads, their work for a
    /// reading and by the clock is subtracted. `times` is the length of the measurement, in multiples of the idle one.
    fn of_messages(&self, threads: &Threads, times: f64) -> Profile {
        let mut sum = Profile::default();
        for (thread, profile) in threads {
            let of = |threads: &Threads| threads.get(thread).cloned().unwrap_or_default();
            let wake = of(&self.wake);
            let by_clock = of(&self.idle).without(&wake, 1.0);
            if profile.total() >= by_clock.total() * times * BY_CLOCK {
                sum.merge(
                    &profile
                        .clone()
                        .without(&wake, 1.0)
                        .without(&by_clock, times),
                );
            }
        }
        sum
    }
}

struct Sampler<'a> {
    counter: &'a mut dyn Counter,
    quiet: Quiet,
    hold: bool,
    play: PlayRound<'a>,
    answered: u64,
}

impl Sampler<'_> {
    fn rounds(&mut self, rounds: u32) -> Result<(), Failure> {
        (0..rounds).try_for_each(|_| self.round())
    }

    fn round(&mut self) -> Result<(), Failure> {
        self.quiet.rest();
        self.answered = match self.hold {
            true => {
                let quiet = &mut self.quiet;
                quiet.hold();
                (self.play)(Some(&mut || quiet.release()))?
            }
            false => (self.play)(None)?,
        };
        Ok(())
    }

    /// Reads the counter: what was counted since the reading before, and how many messages were answered by then.
    fn mark(&mut self) -> Result<(Threads, u64), Failure> {
        let failed = |e: CountError| Failure::Script(e.to_string());
        self.quiet.rest();
        self.counter.begin().map_err(failed)?;
        let mut at = self.answered;
        let mut patience = WAKE_AFTER;
        for _ in 0..READ_WITHIN {
            if self.counter.is_done(patience).map_err(failed)? {
                return Ok((self.counter.take().map_err(failed)?, at));
            }
            // The counter is read when the server runs next, before it has handled what comes.
            at = self.answered;
            self.round()?;
            patience = ASLEEP_AFTER;
        }
        Err(Failure::Script(
            "the counter of the server does not answer".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts 1,000 for each message on one thread, 70 for each reading on another that works by the clock, and makes
    /// a reading only when asked so often.
    struct Fake {
        messages: std::rc::Rc<std::cell::Cell<u64>>,
        read_to: u64,
        asked: u32,
        deaf_for: u32,
    }

    impl Counter for Fake {
        fn begin(&mut self) -> Result<(), CountError> {
            self.asked = 0;
            Ok(())
        }

        fn is_done(&mut self, _: Duration) -> Result<bool, CountError> {
            self.asked += 1;
            if self.asked <= self.deaf_for {
                // The reading is made before the message that wakes it is dealt with.
                return Ok(false);
            }
            Ok(true)
        }

        fn take(&mut self) -> Result<Threads, CountError> {
            let at = self.messages.get() - u64::from(self.deaf_for.min(1));
            let of = |function: &str, cost| Profile::from_iter([(function.to_owned(), cost)]);
            let done = (at - self.read_to) as f64;
            self.read_to = at;
            Ok(Threads::from([
                ("1".into(), of("serve", done * 1_000.0)),
                (
                    "2".into(),
                    of("watch", if self.deaf_for > 0 { 0.0 } else { 70.0 }),
                ),
            ]))
        }
    }

    fn counted(deaf_for: u32) -> Counted {
        let messages = std::rc::Rc::new(std::cell::Cell::new(0));
        let mut counter = Fake {
            messages: messages.clone(),
            read_to: 0,
            asked: 0,
            deaf_for,
        };
        let sampling = Sampling {
            warm_up: 3,
            rounds: 10,
            segments: 4,
            segments_most: 4,
            within: 0.0,
            idle: Duration::from_secs(1),
            hold: false,
        };
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let done = sample(&mut counter, sleeper.id(), &sampling, &mut |sent| {
            assert!(sent.is_none());
            messages.set(messages.get() + 1);
            Ok(messages.get())
        });
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        done.unwrap()
    }

    #[test]
    fn a_message_costs_what_it_costs_wherever_readings_fall() {
        for deaf_for in [0, 1] {
            let counted = counted(deaf_for);
            assert_eq!(counted.segments, [1_000.0; 4], "deaf for {deaf_for}");
            assert_eq!(counted.messages, 40 + 4 * u64::from(deaf_for));
            assert_eq!(counted.profile.dearest()[0], ("serve", 1_000.0));
        }
    }

    #[test]
    fn what_works_by_the_clock_is_left_out() {
        let of = |cost| Profile::from_iter([("f".to_owned(), cost)]);
        let beside = Beside {
            wake: Threads::from([("loop".into(), of(5.0))]),
            idle: Threads::from([("clock".into(), of(100.0)), ("loop".into(), of(15.0))]),
        };
        let busy = Threads::from([
            ("clock".into(), of(1_100.0)),
            ("loop".into(), of(5_000.0)),
            ("new".into(), of(7.0)),
        ]);
        assert_eq!(
            beside.of_messages(&busy, 10.0).total(),
            5_000.0 - 5.0 - 100.0 + 7.0
        );
        let short = beside.of_messages(&busy, 1.0).total();
        assert_eq!(short, 1_000.0 + 5_000.0 - 5.0 - 10.0 + 7.0);
    }

    #[test]
    fn a_counter_that_never_answers_is_an_error() {
        let mut counter = Fake {
            messages: std::rc::Rc::default(),
            read_to: 0,
            asked: 0,
            deaf_for: u32::MAX,
        };
        let mut sampler = Sampler {
            counter: &mut counter,
            quiet: Quiet::of(std::process::id()),
            hold: false,
            play: &mut |_| Ok(1),
            answered: 0,
        };
        // This process itself runs, so the sampler looks once only.
        let failed = sampler.mark().unwrap_err();
        assert!(failed.to_string().contains("does not answer"), "{failed}");
    }
}
