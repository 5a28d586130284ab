//! Memory as a limit of the process: what all connections of all loops hold together.
//!
//! Each loop counts what its connections hold, output queued and input carried, as it settles them,
//! and adds what changed to the common sum once a turn, or at once where it is much. What is to be done follows from
//! the sum:
//!
//! * from three quarters of the limit on, a connection that holds much is not read from until it
//!   holds less;
//! * from seven eighths on, new connections are refused;
//! * beyond the limit, or where it does not fall for half a minute, the connections that hold most are closed, whatever loop they are on: a loop closes
//!   only what outranks the largest connection of every other one, and looks again soon.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::reactor::throttle::Throttle;
use crate::vocabulary::time::Instant;

/// A connection that holds no more than this is left alone; bytes.
pub(crate) const SMALL: usize = 16 << 10;
/// How long the sum may stay at three quarters of the limit without ever falling. A connection that
/// is not read from may be unable to give anything back, for example with half a frame, and then
/// one has to go.
const STUCK: Duration = Duration::from_secs(30);
/// What a loop's connections hold more than the sum knows is at most the limit divided by this.
const GRAINS: usize = 64;
/// How soon a loop looks at the sum again that others may change.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// The memory budget that all loops share.
pub(crate) struct Memory {
    limit: usize,
    /// Three quarters of the budget.
    short: usize,
    held: AtomicUsize,
    said: Throttle,
    /// The rank of each loop that looked while the sum was beyond the limit.
    ranks: Mutex<Vec<Arc<AtomicU64>>>,
    loops: AtomicU32,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(default_limit())
    }
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Memory {
        Memory {
            limit,
            short: limit / 4 * 3,
            held: AtomicUsize::new(0),
            said: Throttle::new(Duration::from_secs(1)),
            ranks: Mutex::default(),
            loops: AtomicU32::new(0),
        }
    }

    fn ranks(&self) -> std::sync::MutexGuard<'_, Vec<Arc<AtomicU64>>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// Half of the machine's memory, or of what the control group may use; 1 GiB where neither is known.
pub(crate) fn default_limit() -> usize {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let group = read("/sys/fs/cgroup/memory.max").trim().parse().ok();
    let info = read("/proc/meminfo");
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
    let machine = kib.map(|kib| kib.saturating_mul(1 << 10));
    let known = [group, machine].into_iter().flatten().min();
    known.map_or(1 << 30, |bytes: usize| bytes / 2)
}

/// One loop's part.
pub(crate) struct Meter {
    all: Arc<Memory>,
    /// Makes ranks of several loops differ.
    number: u32,
    /// Rank of the loop's largest connection, for other loops to see while the sum is beyond the
    /// limit.
    rank: Option<Arc<AtomicU64>>,
    /// Since when the loop has wanted to close connections.
    wants_room: Option<Instant>,
    /// When what connections hold was counted anew.
    counted: Instant,
    /// Bytes that the loop's connections hold, and how many of them the sum knows.
    held: usize,
    published: usize,
    shown: usize,
    /// The sum is at three quarters of the limit.
    tight: bool,
    /// Whether the loop looks at the budget in each turn: see `must_look`, or a connection waits.
    watching: bool,
    /// The lowest value since then, and when it was reached.
    least: (usize, Instant),
    /// Connections that are not read from for that.
    pub(crate) waiting: Vec<u32>,
}

impl Meter {
    pub(crate) fn new(all: Arc<Memory>) -> Meter {
        Meter {
            number: all.loops.fetch_add(1, Relaxed),
            all,
            rank: None,
            wants_room: None,
            counted: Instant::from_nanos(0),
            held: 0,
            published: 0,
            shown: 0,
            tight: false,
            watching: false,
            least: (usize::MAX, Instant::from_nanos(0)),
            waiting: Vec::new(),
        }
    }

    /// A connection that held `before` bytes now holds `now`.
    pub(crate) fn change(&mut self, before: usize, now: usize) {
        self.held = self.held - before + now;
        if now > before {
            self.look_within_turn();
        }
    }

    /// A turn may bring more than a quarter of the limit, so the end of the turn would be too late for the sum: a loop
    /// adds to it as soon as that makes memory short, or has grown so much that several loops could overdraw the limit.
    #[inline(never)]
    fn look_within_turn(&mut self) {
        let more = self.held.saturating_sub(self.published);
        let short = !self.tight && self.all.held.load(Relaxed) + more >= self.all.short;
        if short || more > self.all.limit / GRAINS {
            self.tight |= short;
            self.watching = true;
            self.publish();
        }
    }

    /// Whether a connection that holds this much is not read from at present.
    #[inline]
    pub(crate) fn holds_back(&self, bytes: usize) -> bool {
        self.tight && bytes > SMALL
    }

    /// Whether there is no room for another connection.
    pub(crate) fn refuses(&self) -> bool {
        self.all.held.load(Relaxed) >= self.all.limit / 8 * 7
    }

    /// Whether nothing has changed and nothing is short, nor was; then there is nothing to do.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        self.held == self.published
            && !self.watching
            && self.all.held.load(Relaxed) < self.all.short
    }

    /// Brings the sum up to date; how many bytes are to be freed on this loop.
    pub(crate) fn balance(&mut self, now: Instant) -> usize {
        let too_much = self.compare_sum(now);
        self.watching = self.must_look() || !self.waiting.is_empty();
        too_much
    }

    fn compare_sum(&mut self, now: Instant) -> usize {
        if self.held != self.published {
            self.publish();
        }
        let sum = self.all.held.load(Relaxed);
        let tight = sum >= self.all.short;
        if tight {
            self.tight = true;
            return self.tighten(sum, now);
        }
        if self.tight {
            self.relax();
        }
        0
    }

    #[cold]
    fn relax(&mut self) {
        self.tight = false;
        self.wants_room = None;
        self.least.0 = usize::MAX;
        if let Some(mine) = self.rank.take() {
            self.all.ranks().retain(|rank| !Arc::ptr_eq(rank, &mine));
        }
    }

    /// Says how much the largest connection of this loop holds; the highest rank of the other loops.
    pub(crate) fn compare(&mut self, largest: usize) -> u64 {
        let rank = self.rank_of(largest);
        let mut all = self.all.ranks();
        let mine = self.rank.get_or_insert_with(|| {
            all.push(Arc::default());
            all[all.len() - 1].clone()
        });
        mine.store(rank, Relaxed);
        let others = all.iter().filter(|rank| !Arc::ptr_eq(rank, mine));
        others.map(|rank| rank.load(Relaxed)).max().unwrap_or(0)
    }

    /// Whether this loop has wanted to close connections for so long that every other that has large ones has
    /// said so.
    pub(crate) fn all_have_looked(&mut self, now: Instant) -> bool {
        now >= *self.wants_room.get_or_insert(now) + 2 * LOOK
    }

    /// The number by which this loop's connection that holds `bytes` is compared with connections of
    /// other loops: no two loops have equal numbers.
    pub(crate) fn rank_of(&self, bytes: usize) -> u64 {
        (bytes.min(u32::MAX as usize) as u64) << 32 | u64::from(self.number)
    }

    /// Whether it is time to count again how many bytes connections hold: chunks may be dropped
    /// without an event of their connection.
    pub(crate) fn is_stale(&mut self, now: Instant) -> bool {
        let stale = now >= self.counted + LOOK;
        if stale {
            self.counted = now;
        }
        stale
    }

    /// Adds the change of this loop's memory since the last time to the common sum. The sum is kept
    /// by wrapping additions; the total is never below zero.
    #[cold]
    fn publish(&mut self) {
        let change = self.held.wrapping_sub(self.published);
        self.all.held.fetch_add(change, Relaxed);
        self.published = self.held;
    }

    #[cold]
    fn tighten(&mut self, sum: usize, now: Instant) -> usize {
        let limit = self.all.limit;
        if sum < self.least.0 {
            self.least = (sum, now);
        }
        let stuck = now >= self.least.1 + STUCK;
        if let Some(held_back) = self.all.said.pass(now) {
            let doing = if sum > limit || stuck {
                "closing those that hold most"
            } else if self.refuses() {
                "refusing new ones"
            } else {
                "not reading from those that hold much"
            };
            tracing::warn!(
                held = sum,
                limit,
                held_back,
                "connections hold much memory: {doing}"
            );
        }
        // Down to where new ones are taken in again, if so much is held here.
        if sum > limit {
            return sum - limit / 8 * 7;
        }
        if !stuck {
            self.wants_room = None;
        }
        usize::from(stuck)
    }

    /// Whether the sum must be looked at although nothing happens here.
    pub(crate) fn must_look(&self) -> bool {
        self.tight || self.held > self.all.limit / 16
    }

    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.tight
    }

    /// Bytes that this loop's connections hold, if that has changed since the last call.
    #[inline]
    pub(crate) fn changed(&mut self) -> Option<usize> {
        let before = std::mem::replace(&mut self.shown, self.held);
        (self.held != before).then_some(self.held)
    }
}

/// The budget that the loop held is free when the loop has ended.
impl Drop for Meter {
    fn drop(&mut self) {
        self.held = 0;
        self.publish();
        // Not before: others close theirs by the sum.
        self.relax();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_the_sum_over_all_loops() {
        let all = Arc::new(Memory::new(1 << 20));
        let (mut a, mut b) = (Meter::new(all.clone()), Meter::new(all.clone()));
        let now = Instant::from_nanos(1);
        a.change(0, 700 << 10);
        assert_eq!(a.balance(now), 0);
        assert!(!a.holds_back(700 << 10) && !b.refuses() && a.must_look());
        b.change(0, 100 << 10);
        assert_eq!((b.balance(now), a.balance(now)), (0, 0));
        assert!(a.holds_back(700 << 10) && b.holds_back(100 << 10) && !a.holds_back(SMALL));
        assert!(!a.refuses());
        b.change(100 << 10, 200 << 10);
        b.balance(now);
        assert!(a.refuses() && b.refuses());
        b.change(200 << 10, 400 << 10);
        assert_eq!(b.balance(now), (1100 << 10) - (896 << 10));
        drop(a);
        assert_eq!(b.balance(now), 0);
        assert!(!b.holds_back(1 << 20) && !b.refuses());
        drop(b);
        assert_eq!(all.held.load(Relaxed), 0);
    }

    /// Loops that take more and more within a turn stop before the limit: each adds at most a chunk when it is short,
    /// and the sum does not know of a 64th part for each.
    #[test]
    fn a_turn_does_not_overdraw_the_limit() {
        const CHUNK: usize = 70 << 10;
        let all = Arc::new(Memory::new(1 << 20));
        let mut loops = [(); 2].map(|()| Meter::new(all.clone()));
        let mut held = [0; 2];
        for _ in 0..100 {
            for (meter, held) in loops.iter_mut().zip(&mut held) {
                if !meter.holds_back(*held) {
                    meter.change(*held, *held + CHUNK);
                    *held += CHUNK;
                }
            }
        }
        let sum: usize = held.iter().sum();
        assert!((1 << 20) / 4 * 3 <= sum && sum <= 1 << 20, "{sum}");
        // What is given back within the turn is known at its end.
        for (meter, held) in loops.iter_mut().zip(held) {
            meter.change(held, 0);
            assert!(!meter.is_calm());
            assert_eq!(meter.changed(), None, "as it was shown last");
            assert_eq!(meter.balance(Instant::from_nanos(1)), 0);
        }
        let calm =
            |meter: &mut Meter| meter.balance(Instant::from_nanos(2)) == 0 && meter.is_calm();
        assert!(loops.iter_mut().all(calm));
        assert_eq!(all.held.load(Relaxed), 0);
    }

    #[test]
    fn a_shortage_that_does_not_move_is_ended() {
        let all = Arc::new(Memory::new(1 << 20));
        let mut meter = Meter::new(all);
        let at = |secs| Instant::from_nanos(1) + Duration::from_secs(secs);
        meter.change(0, 800 << 10);
        assert_eq!(meter.balance(at(1)), 0);
        assert_eq!(meter.balance(at(30)), 0);
        meter.change(800 << 10, 799 << 10);
        assert_eq!(meter.balance(at(31)), 0, "it moves");
        assert_eq!(meter.balance(at(60)), 0);
        assert_eq!(meter.balance(at(61)), 1, "one has to go");
        meter.change(799 << 10, 0);
        assert_eq!(meter.balance(at(63)), 0);
        meter.change(0, 800 << 10);
        assert_eq!(meter.balance(at(900)), 0, "another shortage");
    }

    #[test]
    fn one_loop_has_the_greediest() {
        let all = Arc::new(Memory::new(1 << 20));
        let (mut a, mut b) = (Meter::new(all.clone()), Meter::new(all.clone()));
        assert_eq!(a.compare(300), 0, "nobody else has looked");
        assert_eq!(b.compare(300), a.rank_of(300));
        assert!(b.rank_of(300) > a.rank_of(300), "equals are told apart");
        assert!(b.rank_of(299) < a.rank_of(300));
        drop(a);
        assert_eq!(b.compare(299), 0, "a loop that has ended counts for nobody");
        drop(b);
        assert!(all.ranks().is_empty());
    }

    #[test]
    fn the_default_is_a_part_of_what_there_is() {
        assert!(default_limit() >= 1 << 20);
    }
}
