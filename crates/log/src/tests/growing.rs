//! What may grow is not refused in the middle, and has its room, whatever becomes of the disk.

use fastrand::Rng;

use super::{append, frames, ids, settle_at, small};
use crate::disk::sim::{BLOCK, SimDisk, Survival};
use crate::{
    EmbeddedLog, Log, Now, ProducerId, RUN_BYTES, Refused, Run, Settings, StreamId, Writer,
};
use std::time::Duration;

fn settings() -> Settings {
    Settings {
        group_first: 1 << 10,
        group_bytes: 4 << 10,
        ..small()
    }
}

struct World {
    rng: Rng,
    disk: SimDisk,
    log: EmbeddedLog<SimDisk>,
    writer: Writer<SimDisk>,
    stream: StreamId,
    /// Ids that were taken so far.
    taken: u64,
    seconds: u64,
}

impl World {
    /// What others do: append, write, take up the disk, make room.
    fn meanwhile(&mut self) {
        match self.rng.u8(..8) {
            0 => {
                let room = self.rng.u64(..12) * BLOCK;
                self.disk.set_capacity(self.disk.used() + room);
            }
            1 => self.disk.set_capacity(u64::MAX),
            2..5 => {
                let last = self.taken + self.rng.u64(1..20);
                let ids = self.taken + 1..=last;
                if append(&self.log, self.stream, ProducerId::ANONYMOUS, ids).is_ok() {
                    self.taken = last;
                }
            }
            _ => {
                self.seconds += self.rng.u64(..2);
                let now = Now {
                    monotonic: Duration::from_secs(self.seconds),
                    unix_us: 1_000_000 * self.seconds,
                };
                self.writer.step(now);
            }
        }
        assert_eq!(self.log.progress().failure, None);
    }

    /// Promises more and more, with everything else in between, and appends as much; whether that was more than
    /// a group takes at first.
    fn grow(&mut self) -> bool {
        let mut promised = self.rng.usize(100..400);
        if self.log.reserve(promised).is_err() {
            return false;
        }
        if self.log.begin_growing(promised).is_err() {
            self.log.give_back(promised);
            return false;
        }
        while self.rng.u8(..10) > 0 {
            self.meanwhile();
            assert!(self.log.begin_growing(0).is_err(), "two at a time");
            let more = self.rng.usize(1..900);
            match self.log.grow(more) {
                Ok(()) => promised += more,
                Err(Refused::TooLarge) => {
                    assert!(
                        promised + more > settings().group_bytes,
                        "{promised} and {more}"
                    );
                    break;
                }
                Err(refused) => panic!("{refused:?} in the middle, at {promised} bytes"),
            }
        }
        let first = self.taken + 1;
        let mut last = first;
        while RUN_BYTES + frames(first..=last + 1).len() <= promised {
            last += 1;
        }
        let run = Run {
            stream: self.stream,
            producer: ProducerId::ANONYMOUS,
            frames: &frames(first..=last),
            count: (last - first + 1) as u32,
            last_id: last,
            timestamp_us: 0,
        };
        let early = self.rng.bool();
        if early {
            self.log.end_growing();
        }
        self.log
            .append_reserved(run, promised)
            .expect("what was promised is taken");
        if !early {
            self.log.end_growing();
        }
        self.taken = last;
        promised > settings().group_first
    }
}

#[test]
fn what_may_grow_is_taken_whatever_becomes_of_the_disk() {
    let mut grown = 0;
    for seed in 0..150 {
        let disk = SimDisk::new(seed);
        let (log, writer, _) = EmbeddedLog::open(disk.clone(), settings()).expect("the log");
        let stream = log.stream("s").expect("a stream");
        let mut world = World {
            rng: Rng::with_seed(seed),
            disk,
            log,
            writer,
            stream,
            taken: 0,
            seconds: 1,
        };
        for _ in 0..80 {
            world.meanwhile();
            grown += u32::from(world.grow());
        }
        settle_at(&mut world.writer, world.seconds);
        let taken: Vec<u64> = (1..=world.taken).collect();
        assert_eq!(ids(&world.log, "s", 0, 1000), taken, "seed {seed}");
        let disk = world.disk.crash_with(Survival::Nothing);
        let (log, ..) = EmbeddedLog::open(disk, settings()).expect("the log");
        assert_eq!(ids(&log, "s", 0, 1000), taken, "seed {seed}, after a crash");
    }
    assert!(grown > 400, "{grown}");
}

/// What was refused comes to be taken: the limit grows by all that the caller needs, also where much of it was
/// promised before.
#[test]
fn what_is_refused_in_steps_has_the_limit_grow_by_all_of_it() {
    let disk = SimDisk::new(1);
    let (log, mut writer, _) = EmbeddedLog::open(disk, settings()).expect("the log");
    log.reserve(1000).expect("room");
    assert_eq!(log.reserve(100), Err(Refused::Busy));
    settle_at(&mut writer, 1);
    assert_eq!(log.reserve(100), Ok(()));
}
