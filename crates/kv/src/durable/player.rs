//! Playing the units of a stretch of the log, by several threads.
//!
//! The one idea: units that share no shard may run in any order. The shards of a stretch fall into groups
//! that none of its units joins; each group has a thread, which plays its units in the order of the log.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

use tidewire_log::{Committed, Frames};

use super::replay::{ReplayError, Replayed};
use crate::commands::{self, Spec};
use crate::reply::{Proto, Reply};
use crate::store::{AHEAD, Effect, EffectsOf, Ran, Reader, Store, split_frame};

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
    /// The position behind it.
    pub(super) next: u64,
}

struct Unit {
    /// Of its last record.
    position: u64,
    /// When it was run first: milliseconds since 1970.
    first_ms: u64,
    /// Those that its commands need.
    shards: u64,
    bytes: Bytes,
}

enum Bytes {
    /// Some of a run.
    Of(usize, Range<usize>),
    /// It was in several records.
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

    /// Finds the units in what was read, and what they need.
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
                if let Some(bytes) = reader.record(payload).map_err(malformed)? {
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

    fn shards(&self, unit: &[u8], at: (u64, u64), known: &mut Known) -> Result<u64, ReplayError> {
        let all = self.store.mask_of_all();
        if all == 1 {
            return Ok(all);
        }
        let mut commands = Vec::with_capacity(1);
        self.commands(unit, at, known, &mut commands)?;
        let mask = |command: &Command<'_>| match self.store.mask(command.spec, &command.args) {
            0 => all,
            mask => mask,
        };
        Ok(commands
            .iter()
            .fold(0, |shards, command| shards | mask(command)))
    }

    /// What a unit is as commands; `at` is its position, and when it was run first.
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
        // The longest is 16 bytes long.
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
            self.play_some(stretch, u64::MAX)?;
            return next();
        }
        thread::scope(|scope| {
            let shares = shares(stretch, self.threads);
            let playing: Vec<_> = shares
                .into_iter()
                .map(|shards| scope.spawn(move || self.play_some(stretch, shards)))
                .collect();
            let next = next();
            for played in playing {
                played.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            next
        })
    }

    /// Runs the units that need any of these shards, in their order.
    fn play_some(&self, stretch: &Stretch, shards: u64) -> Result<(), ReplayError> {
        let mut runner = self.store.replayer(self.at_ms, self.now_ms);
        let mut reply = Reply::new(Proto::Resp2);
        let units = stretch
            .units
            .iter()
            .filter(|unit| unit.shards & shards != 0);
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
            // Some commands let go of them.
            runner.hold(shards);
            let each = commands
                .iter()
                .map(|command| (command.spec, &command.args[..]));
            runner.prefetch(commands.first().map_or(0, |command| command.db), each);
            for Command {
                position,
                first_ms,
                db,
                spec,
                args,
            } in &commands
            {
                reply.clear();
                runner.first_ms = Some(*first_ms);
                let ran = runner.run(spec, *db, args, &mut reply);
                let answer = reply.bytes();
                if !matches!(ran, Ran::Done) || answer.first() == Some(&b'-') {
                    let why = answer.escape_ascii().to_string();
                    return Err(wrong(*position, args[0], why));
                }
            }
        }
        Ok(())
    }
}

fn wrong(position: u64, command: &[u8], why: String) -> ReplayError {
    ReplayError::Command {
        position,
        command: command.escape_ascii().to_string(),
        why,
    }
}

/// The shards of each of so many threads at most: no unit needs those of two, and each has about as much to do.
fn shares(stretch: &Stretch, threads: usize) -> Vec<u64> {
    // The group of each shard.
    let mut groups: [u64; 64] = std::array::from_fn(|at| 1 << at);
    let mut units = [0_usize; 64];
    for unit in stretch.units.iter().filter(|unit| unit.shards != 0) {
        let first = unit.shards.trailing_zeros() as usize;
        units[first] += 1;
        if unit.shards & !groups[first] != 0 {
            let joined = each(unit.shards).fold(0, |joined, at| joined | groups[at]);
            each(joined).for_each(|at| groups[at] = joined);
        }
    }
    let of = |group: u64| each(group).map(|at| units[at]).sum::<usize>();
    let firsts = (0..64).filter(|at| groups[*at].trailing_zeros() as usize == *at);
    let mut groups: Vec<(usize, u64)> = firsts.map(|at| (of(groups[at]), groups[at])).collect();
    groups.retain(|(units, _)| *units > 0);
    groups.sort_unstable_by(|a, b| b.cmp(a));
    let mut shares = vec![(0, 0); threads.min(groups.len())];
    for (units, group) in groups {
        if let Some(least) = shares.iter_mut().min() {
            *least = (least.0 + units, least.1 | group);
        }
    }
    shares.into_iter().map(|(_, shards)| shards).collect()
}

/// The numbers of the shards of a mask.
fn each(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (mask != 0).then_some(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_unit_needs_the_shards_of_two_threads_and_all_are_played() {
        let stretch = |shards: &[u64]| Stretch {
            runs: Vec::new(),
            units: shards
                .iter()
                .map(|shards| Unit {
                    position: 0,
                    first_ms: 0,
                    shards: *shards,
                    bytes: Bytes::Joined(Vec::new()),
                })
                .collect(),
            next: 0,
        };
        assert_eq!(shares(&stretch(&[1, 2, 1, 2]), 2).len(), 2);
        assert_eq!(shares(&stretch(&[1, 2, 3]), 2), [3]);
        assert_eq!(shares(&stretch(&[1, 2, 4, u64::MAX]), 8), [u64::MAX]);
        assert_eq!(shares(&stretch(&[0]), 8), []);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let joins = rng.usize(1..40);
            let shards =
                (0..joins).map(|_| (0..rng.u8(1..4)).fold(0, |m, _| m | 1 << rng.u8(..64)));
            let shards: Vec<u64> = shards.collect();
            let shares = shares(&stretch(&shards), 4);
            for unit in &shards {
                let takers = shares.iter().filter(|share| *share & unit != 0);
                assert_eq!(takers.count(), 1, "{shares:x?} {shards:x?}");
            }
        }
    }
}
