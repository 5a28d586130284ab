//! Deadlines of a loop's connections: a hierarchical timer wheel.
//!
//! The idea a reader needs: **re-arming is lazy, and the caller is the lazy one.** A connection
//! whose deadline moves with every message (an idle limit) just stores the new deadline. When the
//! wheel fires for the old deadline, the loop looks at the stored one, and arms the timer again if
//! that lies ahead. The wheel thus sees one operation for each time-out, not one for each message.
//!
//! After Varghese and Lauck, *Hashed and hierarchical timing wheels* (SOSP 1987). Level 0 has a slot for each
//! of the next 64 ticks, level 1 for each of the next 64 stretches of 64 ticks, and so on. A key sits at the
//! level that its distance asks for and moves down ("cascades") when the wheel reaches the start of its slot.
//! One bitmap a level says which slots are in use, so empty time costs nothing, however long.

use std::mem;

use crate::memory::table::Table;

/// A tick is 2^16 ns (65.536 us): fine enough for pacing, and a shift instead of a division.
const TICK_SHIFT: u32 = 16;
const TICK_NS: u64 = 1 << TICK_SHIFT;
/// 64 slots a level, so that a level's occupancy is one word.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Six levels reach 2^36 ticks, some 52 days.
const LEVELS: usize = 6;
/// Whatever is farther away waits in the last slot in reach and is looked at again from there.
const REACH_TICKS: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

/// The end of an empty list; hence no key.
const NO_KEY: u32 = u32::MAX;
/// The slot of a key that is not armed.
const NO_SLOT: u16 = u16::MAX;

/// Deadlines of connections, keyed by a small index (the connection's slot in the loop's table).
///
/// Times are nanoseconds of the loop's monotonic clock. A deadline never fires early, and fires by the first
/// tick boundary at or after it: less than [`TICK_NS`] late for a loop that sleeps as told.
pub(crate) struct Wheel {
    /// The tick reached: everything due before it has fired, and no key waits in a slot behind it. Lags
    /// `now_ns` while an `expire` that met its `max` has left due keys behind.
    tick: u64,
    /// The latest time `expire` was told.
    now_ns: u64,
    len: usize,
    /// A bit for each slot of a level that holds a key.
    occupied: [u64; LEVELS],
    /// The first key of each slot's list, level by level.
    heads: [u32; LEVELS * SLOTS],
    /// By key, for as long as its owner is there: arming again allocates nothing.
    nodes: Table<Node>,
}

/// A key's place. The keys of a slot form a ring, so the last one is the first one's `prev` and a list
/// serves in the order of arrival without a second head.
#[derive(Clone, Copy)]
struct Node {
    deadline_ns: u64,
    prev: u32,
    next: u32,
    slot: u16,
}

// Every connection pays for one, idle or not.
const _: () = assert!(size_of::<Option<Node>>() <= 32);

impl Wheel {
    /// An empty wheel at time 0. The clock may start anywhere: the first `expire` skips to it.
    pub(crate) fn new() -> Wheel {
        Wheel {
            tick: 0,
            now_ns: 0,
            len: 0,
            occupied: [0; LEVELS],
            heads: [NO_KEY; LEVELS * SLOTS],
            nodes: Table::new(),
        }
    }

    /// Puts `key` at `deadline_ns`, moving it if it was there already. A deadline that has passed fires at
    /// the next [`expire`](Wheel::expire), after earlier deadlines. Takes constant time.
    ///
    /// # Panics
    ///
    /// Panics if `key` is `u32::MAX`.
    pub(crate) fn arm(&mut self, key: u32, deadline_ns: u64) {
        assert_ne!(key, NO_KEY, "the timer wheel keeps this key for itself");
        let index = key as usize;
        if !self.nodes.contains(index) {
            let idle = Node {
                deadline_ns: 0,
                prev: NO_KEY,
                next: NO_KEY,
                slot: NO_SLOT,
            };
            self.nodes.put(index, idle);
        }
        // The slot is never before the present tick, even if the wheel lags behind it: keys that are
        // armed for the past again and again must not hold the wheel up there and starve later timers.
        let slot = self.slot_for(deadline_ns, self.now_ns >> TICK_SHIFT);
        self.nodes[index].deadline_ns = deadline_ns;
        if self.nodes[index].slot != slot {
            self.disarm(key);
            self.link(key, slot);
            self.len += 1;
        }
    }

    /// Takes `key` out; nothing happens if it is not armed. Takes constant time.
    pub(crate) fn disarm(&mut self, key: u32) {
        if self.armed(key).is_some() {
            self.unlink(key);
            self.len -= 1;
        }
    }

    /// Takes `key` out and forgets it: its owner has gone.
    pub(crate) fn forget(&mut self, key: u32) {
        self.disarm(key);
        self.nodes.remove(key as usize);
    }

    /// The deadline that `key` is armed for, as it was given.
    pub(crate) fn armed(&self, key: u32) -> Option<u64> {
        let node = self.nodes.get(key as usize)?;
        (node.slot != NO_SLOT).then_some(node.deadline_ns)
    }

    /// Until when the loop may sleep: the earliest time at which [`expire`](Wheel::expire) may have something
    /// to do, `None` if nothing is armed.
    ///
    /// The time is never later than the earliest deadline rounded up to the tick (if that has passed: than the
    /// time of the last `expire`). The time may be earlier, when a slot has to cascade; a lone deadline within
    /// reach costs at most one early wake-up a level.
    pub(crate) fn next(&self) -> Option<u64> {
        // Saturates for deadlines in the last tick that a u64 can tell, which are as good as never.
        self.next_tick().map(|tick| tick.saturating_mul(TICK_NS))
    }

    /// Advances to `now_ns`, takes out at most `max` keys whose deadline has passed and appends them to `out`,
    /// earlier ticks first. Returns true if more remain due: they are the first at the next call.
    ///
    /// The work follows the slots that hold keys, not the time passed. Cascading is not counted towards
    /// `max`: a key is moved at most once a level on its way. A time before the last one counts as that.
    pub(crate) fn expire(&mut self, now_ns: u64, max: usize, out: &mut Vec<u32>) -> bool {
        self.now_ns = self.now_ns.max(now_ns);
        let mut left = max;
        loop {
            let due = self.index_at(0);
            while self.heads[due] != NO_KEY {
                if left == 0 {
                    return true;
                }
                left -= 1;
                let key = self.heads[due];
                self.disarm(key);
                out.push(key);
            }
            if !self.step() {
                return false;
            }
        }
    }

    #[cfg(test)]
    /// How many keys are armed.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves to the next tick at which a slot begins that holds keys and cascades what begins there; if there
    /// is none up to the present, moves to the present and returns false.
    fn step(&mut self) -> bool {
        let present = self.now_ns >> TICK_SHIFT;
        match self.next_tick() {
            Some(tick) if tick <= present => self.tick = tick,
            _ => {
                self.tick = present;
                return false;
            }
        }
        // All levels at once: a slot above level 0 that is not emptied when its time begins would from then on
        // stand for one turn later.
        for level in 1..LEVELS {
            let begins_now = self.tick.trailing_zeros() >= SLOT_BITS * level as u32;
            if begins_now {
                self.cascade(self.index_at(level));
            }
        }
        true
    }

    /// The earliest tick at which a slot that holds keys begins.
    fn next_tick(&self) -> Option<u64> {
        let mut earliest = None;
        for (level, &occupied) in self.occupied.iter().enumerate() {
            if occupied == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            // At level 0 the slot of the present tick is due now. Above level 0, the present slot was
            // emptied when it began, so its contents belong to its next turn, 64 slots ahead.
            let first = (self.tick >> shift) + u64::from(level > 0);
            let ahead = occupied
                .rotate_right(first as u32 % SLOTS as u32)
                .trailing_zeros();
            let begins = (first + u64::from(ahead)) << shift;
            earliest = Some(earliest.map_or(begins, |tick: u64| tick.min(begins)));
        }
        earliest
    }

    /// Where a deadline belongs as seen from the tick reached, but not before `floor`, which must not be
    /// before that tick.
    fn slot_for(&self, deadline_ns: u64, floor: u64) -> u16 {
        let mut due = deadline_ns.div_ceil(TICK_NS);
        if deadline_ns <= self.now_ns {
            // The deadline has passed, so there is no tick boundary to wait for.
            due = due.min(self.now_ns >> TICK_SHIFT);
        }
        let distance = (due.max(floor) - self.tick).min(REACH_TICKS);
        let level = (distance | 1).ilog2() / SLOT_BITS;
        let index = ((self.tick + distance) >> (SLOT_BITS * level)) as usize % SLOTS;
        (level as usize * SLOTS + index) as u16
    }

    /// The slot of `level` in which the tick reached lies, as an index into `heads`.
    fn index_at(&self, level: usize) -> usize {
        level * SLOTS + (self.tick >> (SLOT_BITS * level as u32)) as usize % SLOTS
    }

    /// Empties a slot whose time begins, putting each of its keys where it belongs now.
    fn cascade(&mut self, slot: usize) {
        // The ring is taken off first: a key beyond the wheel's reach may come back to the same slot.
        let first = mem::replace(&mut self.heads[slot], NO_KEY);
        self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        let mut key = first;
        while key != NO_KEY {
            let Node {
                deadline_ns, next, ..
            } = self.nodes[key as usize];
            let to = self.slot_for(deadline_ns, self.tick);
            self.link(key, to);
            key = if next == first { NO_KEY } else { next };
        }
    }

    /// Appends `key`, which is in no list, to the slot's.
    fn link(&mut self, key: u32, slot: u16) {
        let at = slot as usize;
        let first = self.heads[at];
        let (prev, next) = if first == NO_KEY {
            self.heads[at] = key;
            self.occupied[at / SLOTS] |= 1 << (at % SLOTS);
            (key, key)
        } else {
            let last = mem::replace(&mut self.nodes[first as usize].prev, key);
            self.nodes[last as usize].next = key;
            (last, first)
        };
        let node = &mut self.nodes[key as usize];
        (node.prev, node.next, node.slot) = (prev, next, slot);
    }

    /// Takes `key`, which is armed, out of its slot's list.
    fn unlink(&mut self, key: u32) {
        let node = &mut self.nodes[key as usize];
        let (prev, next) = (node.prev, node.next);
        let at = mem::replace(&mut node.slot, NO_SLOT) as usize;
        if next == key {
            self.heads[at] = NO_KEY;
            self.occupied[at / SLOTS] &= !(1 << (at % SLOTS));
            return;
        }
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        if self.heads[at] == key {
            self.heads[at] = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;
    const REACH_NS: u64 = REACH_TICKS * TICK_NS;

    fn rounded_up(deadline_ns: u64) -> u64 {
        deadline_ns.div_ceil(TICK_NS).saturating_mul(TICK_NS)
    }

    fn expire_all(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        let mut out = Vec::new();
        assert!(
            !wheel.expire(now_ns, usize::MAX, &mut out),
            "no maximum, yet more remain"
        );
        wheel.assert_sound();
        out
    }

    impl Wheel {
        /// Lists, bitmaps and nodes tell the same story, and no key waits in a slot that begins too late.
        fn assert_sound(&self) {
            let mut linked = 0;
            for (slot, &first) in self.heads.iter().enumerate() {
                let (level, index) = (slot / SLOTS, slot % SLOTS);
                assert_eq!(
                    self.occupied[level] >> index & 1 == 1,
                    first != NO_KEY,
                    "bit of slot {slot}"
                );
                if first == NO_KEY {
                    continue;
                }
                let shift = SLOT_BITS * level as u32;
                let from = (self.tick >> shift) + u64::from(level > 0);
                let ahead = (index as u64).wrapping_sub(from) % SLOTS as u64;
                let begins = (from + ahead) << shift;
                let mut key = first;
                loop {
                    let node = &self.nodes[key as usize];
                    assert_eq!(node.slot as usize, slot, "slot of key {key}");
                    assert_eq!(
                        self.nodes[node.next as usize].prev, key,
                        "links of key {key}"
                    );
                    let due = node
                        .deadline_ns
                        .div_ceil(TICK_NS)
                        .max(self.now_ns >> TICK_SHIFT);
                    assert!(
                        begins <= due,
                        "key {key} is due at tick {due}, its slot begins at {begins}"
                    );
                    linked += 1;
                    assert!(linked <= self.len, "more keys linked than counted");
                    key = node.next;
                    if key == first {
                        break;
                    }
                }
            }
            assert_eq!(linked, self.len);
            assert_eq!(
                self.nodes
                    .iter()
                    .filter(|(_, node)| node.slot != NO_SLOT)
                    .count(),
                self.len
            );
        }
    }

    #[test]
    fn an_empty_wheel_never_wakes() {
        let mut wheel = Wheel::new();
        assert_eq!((wheel.next(), wheel.len(), wheel.armed(3)), (None, 0, None));
        wheel.disarm(3);
        assert!(expire_all(&mut wheel, 5 * HOUR_NS).is_empty());
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn time_zero_and_the_past_fire_at_the_next_expire() {
        let mut wheel = Wheel::new();
        wheel.arm(0, 0);
        assert_eq!(wheel.next(), Some(0));
        assert_eq!(expire_all(&mut wheel, 0), [0]);

        // Within the tick that the wheel has reached, the last nanosecond of it, and long ago.
        let now_ns = HOUR_NS | (TICK_NS - 1);
        expire_all(&mut wheel, now_ns);
        wheel.arm(1, now_ns - 1);
        wheel.arm(2, now_ns);
        wheel.arm(3, 1);
        assert!(wheel.next().is_some_and(|next| next <= now_ns));
        assert_eq!(expire_all(&mut wheel, now_ns), [1, 2, 3]);
    }

    #[test]
    fn fires_by_the_tick_boundary_and_never_early() {
        for deadline_ns in [
            1,
            TICK_NS - 1,
            TICK_NS,
            TICK_NS + 1,
            HOUR_NS,
            100 * 24 * HOUR_NS,
        ] {
            let mut wheel = Wheel::new();
            wheel.arm(7, deadline_ns);
            assert!(
                expire_all(&mut wheel, deadline_ns - 1).is_empty(),
                "{deadline_ns} fired early"
            );
            assert_eq!(
                expire_all(&mut wheel, rounded_up(deadline_ns)),
                [7],
                "{deadline_ns}"
            );
            assert_eq!((wheel.armed(7), wheel.len()), (None, 0));
        }
    }

    #[test]
    fn a_lone_deadline_wakes_the_loop_at_most_once_a_level() {
        for start_ns in [0, 12_345_678_901_234, HOUR_NS | (TICK_NS - 1)] {
            for bit in 0..52 {
                for deadline_ns in [start_ns + (1 << bit), start_ns + (1 << bit) * 2 - 1] {
                    let mut wheel = Wheel::new();
                    expire_all(&mut wheel, start_ns);
                    wheel.arm(0, deadline_ns);
                    for wake_up in 1.. {
                        assert!(
                            wake_up <= LEVELS,
                            "{deadline_ns} from {start_ns}: too many wake-ups"
                        );
                        let next = wheel.next().expect("it is armed");
                        assert!(next <= rounded_up(deadline_ns));
                        if expire_all(&mut wheel, next) == [0] {
                            assert_eq!(next, rounded_up(deadline_ns));
                            break;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn beyond_reach_is_kept_until_it_comes_in_reach() {
        let mut wheel = Wheel::new();
        let deadline_ns = 5 * REACH_NS + 3;
        wheel.arm(0, deadline_ns);
        wheel.arm(1, u64::MAX);
        assert_eq!(wheel.armed(0), Some(deadline_ns));
        for turn in 1..=4 {
            assert!(expire_all(&mut wheel, turn * REACH_NS).is_empty());
        }
        assert_eq!(expire_all(&mut wheel, rounded_up(deadline_ns)), [0]);
        assert!(expire_all(&mut wheel, u64::MAX - TICK_NS).is_empty());
        assert_eq!(
            (wheel.next(), wheel.armed(1)),
            (Some(u64::MAX), Some(u64::MAX))
        );
    }

    #[test]
    fn a_jump_costs_the_keys_it_passes_and_not_the_ticks() {
        let mut wheel = Wheel::new();
        let keys = 100;
        for key in 0..keys {
            wheel.arm(key, u64::from(key) * 7 * HOUR_NS / 3);
        }
        wheel.now_ns = 1000 * HOUR_NS;
        let mut steps = 0;
        while wheel.step() {
            steps += 1;
            assert!(steps <= keys as usize * LEVELS, "steps through empty time");
            for _ in 0..keys {
                let due = wheel.heads[wheel.index_at(0)];
                wheel.disarm(due);
            }
        }
        assert_eq!(wheel.tick, 1000 * HOUR_NS / TICK_NS);
    }

    #[test]
    fn the_maximum_is_kept_and_the_rest_comes_in_order() {
        let mut wheel = Wheel::new();
        for key in 0..10 {
            wheel.arm(key, u64::from(key / 4) * 1000 * TICK_NS);
        }
        let now_ns = HOUR_NS;
        let mut out = Vec::new();
        assert!(wheel.expire(now_ns, 0, &mut out));
        assert!(wheel.expire(now_ns, 3, &mut out));
        assert!(
            wheel.next().is_some_and(|next| next <= now_ns),
            "the loop must not sleep now"
        );
        assert!(wheel.expire(now_ns, 6, &mut out));
        assert!(!wheel.expire(now_ns, 1, &mut out), "that was the last");
        assert_eq!(out, Vec::from_iter(0..10));
    }

    #[test]
    fn a_jump_fires_earlier_ticks_first() {
        let mut wheel = Wheel::new();
        for key in 0..200 {
            wheel.arm(key, (20_000 - u64::from(key) * 30) * TICK_NS);
        }
        let mut out = Vec::new();
        while wheel.expire(HOUR_NS, 7, &mut out) {
            assert!(out.len() < 200);
        }
        assert_eq!(out, Vec::from_iter((0..200).rev()));
    }

    #[test]
    fn keys_always_armed_for_the_past_do_not_starve_the_others() {
        let mut wheel = Wheel::new();
        let (late, other) = (0..4, 4);
        for key in late {
            wheel.arm(key, 0);
        }
        wheel.arm(other, 500 * TICK_NS);
        let mut now_ns = HOUR_NS;
        for _turn in 0..4 {
            let mut out = Vec::new();
            wheel.expire(now_ns, 2, &mut out);
            wheel.assert_sound();
            if out.contains(&other) {
                return;
            }
            for key in out {
                wheel.arm(key, 0);
            }
            now_ns += 300 * TICK_NS;
        }
        panic!("the other key waits for ever");
    }

    #[test]
    fn a_clock_that_steps_back_is_taken_as_standing_still() {
        let mut wheel = Wheel::new();
        expire_all(&mut wheel, HOUR_NS);
        let deadline_ns = HOUR_NS + 500 * TICK_NS;
        wheel.arm(0, deadline_ns);
        let next = wheel.next();
        assert!(expire_all(&mut wheel, 3).is_empty());
        assert_eq!(wheel.next(), next);
        wheel.arm(1, HOUR_NS - 1);
        assert_eq!(expire_all(&mut wheel, 3), [1], "passed already");
        assert_eq!(expire_all(&mut wheel, rounded_up(deadline_ns)), [0]);
    }

    #[test]
    fn arming_again_allocates_nothing() {
        let mut wheel = Wheel::new();
        (0..100).for_each(|key| wheel.arm(key, 1));
        let places = |wheel: &Wheel| [0, 99].map(|key| std::ptr::from_ref(&wheel.nodes[key]));
        let before = places(&wheel);
        for round in 1..50 {
            for key in 0..100 {
                wheel.arm(key, u64::from(key * round) * TICK_NS * 77);
            }
            wheel.assert_sound();
        }
        assert_eq!(wheel.len(), 100);
        assert_eq!(places(&wheel), before);
        (0..100).for_each(|key| wheel.forget(key));
        assert!(wheel.len() == 0 && wheel.nodes.is_empty());
    }

    #[test]
    #[should_panic(expected = "keeps this key for itself")]
    fn the_reserved_key_is_refused() {
        Wheel::new().arm(u32::MAX, 0);
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// The deadline is the present plus the first, minus the second.
        Arm(u32, u64, u64),
        Disarm(u32),
        /// The clock goes on by so much, at most so many may fire.
        Expire(u64, usize),
        /// The loop sleeps for as long as the wheel allows.
        Sleep(usize),
    }

    /// Durations of every magnitude, on tick boundaries more often than chance would have it.
    fn duration() -> impl Strategy<Value = u64> {
        (0u32..56, any::<u64>(), any::<bool>()).prop_map(|(bits, random, round)| {
            let ns = random & ((1 << bits) - 1);
            if round { ns & !(TICK_NS - 1) } else { ns }
        })
    }

    fn op() -> impl Strategy<Value = Op> {
        let key = 0u32..24;
        let max = prop_oneof![0usize..4, Just(usize::MAX)];
        prop_oneof![
            8 => (key.clone(), duration(), Just(0)).prop_map(|(k, ahead, ago)| Op::Arm(k, ahead, ago)),
            2 => (key.clone(), Just(0), duration()).prop_map(|(k, ahead, ago)| Op::Arm(k, ahead, ago)),
            2 => key.prop_map(Op::Disarm),
            3 => (duration(), max.clone()).prop_map(|(ns, max)| Op::Expire(ns, max)),
            4 => max.prop_map(Op::Sleep),
        ]
    }

    /// The right content of the wheel: for each key its deadline and the time at which the key must have
    /// fired.
    #[derive(Default)]
    struct Model {
        now_ns: u64,
        armed: BTreeMap<u32, (u64, u64)>,
    }

    impl Model {
        fn arm(&mut self, key: u32, deadline_ns: u64) {
            let fires_by = rounded_up(deadline_ns);
            let fires_by = if deadline_ns <= self.now_ns {
                self.now_ns
            } else {
                fires_by
            };
            self.armed.insert(key, (deadline_ns, fires_by));
        }

        fn expired(&mut self, fired: &[u32], max: usize, more: bool) {
            assert!(fired.len() <= max);
            for key in fired {
                let (deadline_ns, _) = self
                    .armed
                    .remove(key)
                    .expect("fired a key that was not armed");
                assert!(deadline_ns <= self.now_ns, "key {key} fired early");
            }
            if more {
                assert_eq!(fired.len(), max, "stopped before the maximum");
                assert!(
                    self.armed.values().any(|due| due.0 <= self.now_ns),
                    "claims that more are due"
                );
            } else {
                let late = self.armed.iter().find(|(_, due)| due.1 <= self.now_ns);
                assert_eq!(late, None, "should have fired by {}", self.now_ns);
            }
        }

        fn assert_matches(&self, wheel: &Wheel) {
            assert_eq!(wheel.len(), self.armed.len());
            for key in 0..25 {
                assert_eq!(wheel.armed(key), self.armed.get(&key).map(|due| due.0));
            }
            let earliest = self.armed.values().map(|due| due.1.max(self.now_ns)).min();
            assert_eq!(wheel.next().is_some(), earliest.is_some());
            assert!(
                wheel.next() <= earliest,
                "{:?} oversleeps {earliest:?}",
                wheel.next()
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn does_what_a_sorted_map_does(start in duration(), ops in prop::collection::vec(op(), 1..120)) {
            let mut wheel = Wheel::new();
            let mut model = Model { now_ns: start, ..Model::default() };
            expire_all(&mut wheel, start);
            for op in ops {
                match op {
                    Op::Arm(key, ahead, ago) => {
                        let deadline_ns = (model.now_ns + ahead).saturating_sub(ago);
                        wheel.arm(key, deadline_ns);
                        model.arm(key, deadline_ns);
                    }
                    Op::Disarm(key) => {
                        wheel.disarm(key);
                        model.armed.remove(&key);
                    }
                    Op::Expire(..) | Op::Sleep(_) => {
                        let (until, max) = match op {
                            Op::Expire(ns, max) => (model.now_ns + ns, max),
                            Op::Sleep(max) => (wheel.next().unwrap_or(0), max),
                            _ => unreachable!(),
                        };
                        model.now_ns = model.now_ns.max(until);
                        let mut fired = Vec::new();
                        let more = wheel.expire(model.now_ns, max, &mut fired);
                        model.expired(&fired, max, more);
                    }
                }
                wheel.assert_sound();
                model.assert_matches(&wheel);
            }
            // Sleeping as told, everything fires in the end, within a bounded number of wake-ups.
            for _wake_up in 0..(24 * 3 * LEVELS) {
                let Some(next) = wheel.next() else { break };
                model.now_ns = model.now_ns.max(next);
                let mut fired = Vec::new();
                let more = wheel.expire(model.now_ns, usize::MAX, &mut fired);
                model.expired(&fired, usize::MAX, more);
            }
            prop_assert_eq!(wheel.len(), 0);
        }
    }
}
