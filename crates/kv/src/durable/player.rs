//! Playing the units of a stretch of the log, by several threads.
//!
//! The one idea: units that share no shard may run in any order. The shards of a stretch fall into groups
//! that none of its units joins; each group has a thread, which plays its units in the order of the log.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

use tidewire_log::{Committed, Frames};

use super::replay::{ReplayError, Replayed};
use crate::commands::{self, Spec};
use crate::reply::{Proto, Reply};
use crate::store::{AHEAD, Effect, EffectsOf, Ran, Reader, ShardSet, Store, split_frame};

/// Threads at most.
const THREADS: usize = 8;
/// Units that are not worth one.
const FEW: usize = 512;

/// Runs units on a store.
pub(super) struct Player<'s> {
    store: &'s Store,
    /// The time at which units run: the beginning of all.
    at_ms: u64,
    now_ms: u64,
    specs: HashMap<&'static [u8], &'static Spec>,
    threads: usize,
}

/// A stretch of the log.
pub(super) struct Stretch {
    runs: Vec<Frames>,
    units: Vec<Unit>,
    /// The position behind the unit.
    pub(super) next: u64,
}

struct Unit {
    /// Position of the unit's last record.
    position: u64,
    /// When the unit first ran: milliseconds since 1970.
    first_ms: u64,
    /// Shards that the unit's commands need.
    shards: ShardSet,
    bytes: Bytes,
}

enum Bytes {
    /// Some units of a run.
    Of(usize, Range<usize>),
    /// The unit was in several records.
    Joined(Vec<u8>),
}

impl Stretch {
    fn bytes<'a>(&'a self, unit: &'a Unit) -> &'a [u8] {
        match &unit.bytes {
            Bytes::Of(run, range) => &self.runs[*run].bytes[range.clone()],
            Bytes::Joined(bytes) => bytes,
        }
    }
}

/// The command before: most are followed by another of the same name.
type Known = Option<&'static Spec>;

/// A command of a unit.
struct Command<'a> {
    position: u64,
    first_ms: u64,
    db: u16,
    spec: &'static Spec,
    args: Vec<&'a [u8]>,
}

impl<'s> Player<'s> {
    pub(super) fn new(store: &'s Store, at_ms: u64, now_ms: u64) -> Player<'s> {
        Player {
            store,
            at_ms,
            now_ms,
            specs: commands::logged()
                .map(|spec| (spec.name.as_bytes(), spec))
                .collect(),
            threads: thread::available_parallelism().map_or(1, |n| n.get().min(THREADS)),
        }
    }

    /// Finds the units in the bytes that were read, and the keys that they need.
    pub(super) fn prepare(
        &self,
        read: Committed,
        reader: &mut Reader,
        replayed: &mut Replayed,
    ) -> Result<Stretch, ReplayError> {
        let (mut units, mut known) = (Vec::new(), None);
        for (number, run) in read.runs.iter().enumerate() {
            let (mut rest, mut position) = (&run.bytes[..], run.first);
            while let Some((first_ms, payload, behind)) = split_frame(rest) {
                replayed.bytes += payload.len() as u64;
                replayed.records += 1;
                replayed.unclosed += 1;
                let malformed = |what| ReplayError::Malformed { position, what };
                let whole = reader.record(payload).map_err(malformed)?;
                if whole.is_none() && !reader.is_midway() {
                    replayed.unclosed = 0;
                }
                if let Some(bytes) = whole {
                    replayed.units += 1;
                    replayed.unclosed = 0;
                    let shards = self.shards(&bytes, (position, first_ms), &mut known)?;
                    let end = run.bytes.len() - behind.len();
                    let bytes = match bytes {
                        Cow::Borrowed(bytes) => Bytes::Of(number, end - bytes.len()..end),
                        Cow::Owned(bytes) => Bytes::Joined(bytes),
                    };
                    units.push(Unit {
                        position,
                        first_ms,
                        shards,
                        bytes,
                    });
                }
                (rest, position) = (behind, position + 1);
            }
        }
        Ok(Stretch {
            runs: read.runs,
            units,
            next: read.next,
        })
    }

    fn shards(
        &self,
        unit: &[u8],
        at: (u64, u64),
        known: &mut Known,
    ) -> Result<ShardSet, ReplayError> {
        if let all @ ShardSet::One(_) = self.store.all_shards() {
            return Ok(all);
        }
        let mut commands = Vec::with_capacity(1);
        self.commands(unit, at, known, &mut commands)?;
        let mut shards = ShardSet::NONE;
        for command in &commands {
            let own = self.store.shards_for(command.spec, &command.args);
            if own.is_empty() {
                return Ok(self.store.all_shards());
            }
            shards.add(&own);
        }
        Ok(shards)
    }

    /// The commands of a unit; `at` is the unit's position and the time when it ran first.
    fn commands<'a>(
        &self,
        unit: &'a [u8],
        at: (u64, u64),
        known: &mut Known,
        to: &mut Vec<Command<'a>>,
    ) -> Result<(), ReplayError> {
        let (position, first_ms) = at;
        for effect in EffectsOf(unit) {
            let (db, effect) = effect.map_err(|what| ReplayError::Malformed { position, what })?;
            let args = match effect {
                Effect::Command(args) => args,
                Effect::Removed(key, _) => vec![&b"del"[..], key],
            };
            let name = args.first().copied().unwrap_or_default();
            let spec = self.spec(name, known).filter(|spec| spec.takes(args.len()));
            let Some(spec) = spec else {
                return Err(wrong(position, name, "there is no such command".into()));
            };
            if db >= self.store.databases() {
                return Err(wrong(position, name, format!("there is no database {db}")));
            }
            to.push(Command {
                position,
                first_ms,
                db,
                spec,
                args,
            });
        }
        Ok(())
    }

    fn spec(&self, name: &[u8], known: &mut Known) -> Option<&'static Spec> {
        if let Some(spec) = known.filter(|known| known.name.as_bytes().eq_ignore_ascii_case(name)) {
            return Some(spec);
        }
        // The longest name is 16 bytes long.
        let mut lower = [0; 24];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        *known = self.specs.get(&*lower).copied();
        *known
    }

    /// Runs all units; meanwhile, `next` is done.
    #[expect(
        clippy::disallowed_methods,
        reason = "a start reads before there are loops, and blocks on the disk"
    )]
    pub(super) fn play<T>(
        &self,
        stretch: &Stretch,
        next: impl FnOnce() -> Result<T, ReplayError>,
    ) -> Result<T, ReplayError> {
        if stretch.units.len() < FEW {
            self.play_some(stretch, &self.store.all_shards())?;
            return next();
        }
        thread::scope(|scope| {
            let shares = shares(stretch, self.store.shard_count(), self.threads);
            let playing: Vec<_> = shares
                .into_iter()
                .map(|shards| scope.spawn(move || self.play_some(stretch, &shards)))
                .collect();
            let next = next();
            for played in playing {
                played.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            next
        })
    }

    /// Runs all units one by one, each as a transaction, while others read the store. A script that
    /// keeps a unit's keys is waited for: `pause` does that, and says whether to go on. Whether all
    /// were run.
    pub(super) fn play_beside(
        &self,
        stretch: &Stretch,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ReplayError> {
        let mut runner = self.store.follower(self.now_ms);
        let mut reply = Reply::new(Proto::Resp2);
        let (mut commands, mut known) = (Vec::new(), None);
        for unit in &stretch.units {
            commands.clear();
            let at = (unit.position, unit.first_ms);
            self.commands(stretch.bytes(unit), at, &mut known, &mut commands)?;
            let each = || commands.iter().map(|one| (one.spec, &one.args[..]));
            while !runner.begin(each(), Vec::new()) {
                // A script that reads keeps the locks.
                if !pause() {
                    return Ok(false);
                }
            }
            runner.first_ms = Some(unit.first_ms);
            let ran = commands.iter().try_for_each(|command| {
                reply.clear();
                let Command { spec, db, args, .. } = command;
                let ran = runner.run(spec, *db, args, &mut reply);
                check(command, &ran, &reply)
            });
            runner.end();
            ran?;
        }
        Ok(true)
    }

    /// Runs the units that need any of these shards, in their order.
    fn play_some(&self, stretch: &Stretch, shards: &ShardSet) -> Result<(), ReplayError> {
        let mut runner = self.store.replayer(self.at_ms, self.now_ms);
        let mut reply = Reply::new(Proto::Resp2);
        let units = stretch
            .units
            .iter()
            // All shards of a unit are among one thread's.
            .filter(|unit| {
                unit.shards
                    .iter()
                    .next()
                    .is_some_and(|at| shards.contains(at))
            });
        let mut units = units.peekable();
        let (mut commands, mut known) = (Vec::with_capacity(AHEAD), None);
        while let Some(first) = units.peek() {
            commands.clear();
            self.commands(
                stretch.bytes(first),
                (first.position, first.first_ms),
                &mut known,
                &mut commands,
            )?;
            units.next();
            while commands.len() < AHEAD
                && let Some(unit) = units.next()
            {
                self.commands(
                    stretch.bytes(unit),
                    (unit.position, unit.first_ms),
                    &mut known,
                    &mut commands,
                )?;
            }
            // Some commands release the locks, so they are taken again.
            runner.hold(shards);
            let each = commands
                .iter()
                .map(|command| (command.spec, &command.args[..]));
            runner.prefetch(commands.first().map_or(0, |command| command.db), each);
            for command in &commands {
                reply.clear();
                runner.first_ms = Some(command.first_ms);
                let ran = runner.run(command.spec, command.db, &command.args, &mut reply);
                check(command, &ran, &reply)?;
            }
        }
        Ok(())
    }
}

/// Checks that a command did the same as in its first run.
fn check(command: &Command<'_>, ran: &Ran, reply: &Reply) -> Result<(), ReplayError> {
    let answer = reply.bytes();
    if matches!(ran, Ran::Done) && answer.first() != Some(&b'-') {
        return Ok(());
    }
    let why = answer.escape_ascii().to_string();
    Err(wrong(command.position, command.args[0], why))
}

fn wrong(position: u64, command: &[u8], why: String) -> ReplayError {
    ReplayError::Command {
        position,
        command: command.escape_ascii().to_string(),
        why,
    }
}

/// The shards of each of so many threads at most: no unit needs shards of two, and each has about
/// as much to do.
fn shares(stretch: &Stretch, count: usize, threads: usize) -> Vec<ShardSet> {
    let mut groups = Groups((0..count).collect());
    let mut left = count;
    for unit in &stretch.units {
        // Where all are of one group, there is nothing to join.
        let mut shards = unit.shards.iter().take(if left > 1 { count } else { 0 });
        if let Some(first) = shards.next() {
            shards.for_each(|at| left -= usize::from(groups.join(first, at)));
        }
    }
    // The number of units in each group, by the first shard of the group.
    let mut units = vec![0_usize; count];
    for first in stretch
        .units
        .iter()
        .filter_map(|unit| unit.shards.iter().next())
    {
        units[groups.first(first)] += 1;
    }
    let mut firsts: Vec<usize> = (0..count).filter(|at| units[*at] > 0).collect();
    firsts.sort_unstable_by_key(|at| Reverse((units[*at], *at)));
    let mut shares = vec![(0, ShardSet::NONE); threads.min(firsts.len())];
    let mut taker = vec![None; count];
    for first in firsts {
        let least = (0..shares.len()).min_by_key(|share| shares[*share].0);
        if let Some(least) = least {
            shares[least].0 += units[first];
            taker[first] = Some(least);
        }
    }
    for at in 0..count {
        if let Some(share) = taker[groups.first(at)] {
            shares[share].1.insert(at);
        }
    }
    shares.into_iter().map(|(_, shards)| shards).collect()
}

/// Groups of shards: each entry names an earlier shard of its group, or itself.
struct Groups(Vec<usize>);

impl Groups {
    /// The one that stands for a shard's group.
    fn first(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            // The way is shorter the next time.
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    /// Joins two groups into one; returns whether they were two.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
        a != b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(of: &[usize]) -> ShardSet {
        let mut set = ShardSet::NONE;
        of.iter().for_each(|at| set.insert(*at));
        set
    }

    fn shares_of(units: &[ShardSet], count: usize, threads: usize) -> Vec<Vec<usize>> {
        let stretch = Stretch {
            runs: Vec::new(),
            units: units
                .iter()
                .map(|shards| Unit {
                    position: 0,
                    first_ms: 0,
                    shards: shards.clone(),
                    bytes: Bytes::Joined(Vec::new()),
                })
                .collect(),
            next: 0,
        };
        let shares = shares(&stretch, count, threads);
        shares.iter().map(|share| share.iter().collect()).collect()
    }

    #[test]
    fn no_unit_needs_the_shards_of_two_threads_and_all_are_played() {
        let ones = [0, 1, 0, 1].map(|at| set(&[at]));
        assert_eq!(shares_of(&ones, 64, 2).len(), 2);
        let joined = [set(&[0]), set(&[1]), set(&[0, 1])];
        assert_eq!(shares_of(&joined, 64, 2), [[0, 1]]);
        let all: Vec<usize> = (0..512).collect();
        let units = [set(&[7]), set(&[299]), set(&all), set(&[8])];
        assert_eq!(shares_of(&units, 512, 8), [all]);
        assert!(shares_of(&[ShardSet::NONE], 64, 8).is_empty());
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..1000 {
            let shards = [8, 64, 256, 1024][round % 4];
            let units: Vec<Vec<usize>> = (0..rng.usize(1..40))
                .map(|_| (0..rng.u8(1..4)).map(|_| rng.usize(..shards)).collect())
                .collect();
            let sets: Vec<ShardSet> = units.iter().map(|unit| set(unit)).collect();
            let shares = shares_of(&sets, shards, 4);
            for unit in &units {
                let takes = |share: &&Vec<usize>| unit.iter().any(|at| share.contains(at));
                let takers: Vec<_> = shares.iter().filter(takes).collect();
                assert_eq!(takers.len(), 1, "{shares:?} {unit:?}");
                assert!(
                    unit.iter().all(|at| takers[0].contains(at)),
                    "{shares:?} {unit:?}"
                );
            }
        }
    }
}
