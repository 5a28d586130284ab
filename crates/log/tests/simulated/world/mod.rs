//! One seed's world: a disk, a log on it, its producers, and the model.

mod acts;
mod changes;
mod lives;

use std::time::Duration;

use fastrand::Rng;
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{EmbeddedLog, Log, Now, Policy, ProducerId, Settings, Step, StreamId, Writer};

use crate::cursors::Cursors;
use crate::model::Model;
use crate::profile::Profile;
use crate::reading;
use crate::seeds::{Verdict, Violation, ensure, trace};

/// How a log comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process ends in good order.
    Close,
    /// The process ends and leaves what was not yet synced to the system.
    Kill,
    /// Power is lost; the seed decides how.
    Crash,
}

/// A bit that was turned over, or a file that is gone.
pub(crate) struct Harm {
    pub(crate) file: String,
    pub(crate) kind: Kind,
    before: SimDisk,
}

impl std::fmt::Debug for Harm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {}", self.kind, self.file)
    }
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flip { offset: u64, bit: u8 },
    Removal,
}

pub(crate) struct World {
    pub(crate) random: Rng,
    pub(crate) disk: SimDisk,
    pub(crate) settings: Settings,
    pub(crate) model: Model,
    pub(crate) profile: Profile,
    cursors: Cursors,
    /// Whether `DiskFull` is to be expected.
    pub(crate) may_be_full: bool,
    /// Whether streams are administered.
    pub(crate) administered: bool,
    /// Whether a stream may have a limit.
    may_be_limited: bool,
    /// Whether an append was refused because of it.
    pub(crate) full: bool,
    producers: Vec<Producer>,
    open: Option<Open>,
    now_us: u64,
    /// When the log's progress was last seen to move.
    moved_us: u64,
    /// Makes every payload different from every other.
    nonce: u64,
}

struct Producer {
    stream: usize,
    /// Empty: anonymous.
    name: String,
    next_id: u64,
    /// The stream was deleted and made again.
    stale: bool,
}

/// A log while it is open; the numbers are of this opening, in the order of the model's streams and
/// the world's producers.
struct Open {
    log: EmbeddedLog<SimDisk>,
    writer: Writer<SimDisk>,
    streams: Vec<StreamId>,
    producers: Vec<ProducerId>,
}

impl World {
    pub(crate) fn new(seed: u64, settings: impl FnOnce(&mut Rng) -> Settings) -> Verdict<World> {
        let mut random = Rng::with_seed(seed);
        let settings = settings(&mut random);
        let mut world = World {
            disk: SimDisk::new(random.u64(..)),
            profile: Profile::draw(&mut random),
            random,
            settings,
            model: Model::default(),
            cursors: Cursors::default(),
            may_be_full: false,
            administered: false,
            may_be_limited: false,
            full: false,
            producers: Vec::new(),
            open: None,
            now_us: 1_000_000_000,
            moved_us: 1_000_000_000,
            nonce: 0,
        };
        world.reopen()?;
        Ok(world)
    }

    pub(crate) fn log(&self) -> &EmbeddedLog<SimDisk> {
        &self.open.as_ref().expect("the log is open").log
    }

    /// Does one thing a process with a log may do.
    pub(crate) fn act(&mut self) -> Verdict {
        if self.random.u8(0..100) < self.profile.steps_percent {
            return self.step().map(drop);
        }
        if self.administered && self.random.u8(0..12) == 0 {
            return self.administer();
        }
        match self.random.u8(0..100) {
            0..=3 => self.new_stream(),
            4..=9 => self.new_producer(),
            10..=19 => self.read_somewhere(),
            20..=22 => self.locate_somewhere(),
            23..=24 => self.set_cursor(),
            25..=29 => {
                self.pass_time();
                Ok(())
            }
            _ => self.append().map(drop),
        }
    }

    /// Any number of actions.
    pub(crate) fn live(&mut self) -> Verdict {
        for _ in 0..self.random.usize(1..=self.profile.actions_max) {
            self.act()?;
        }
        Ok(())
    }

    /// A past of several segments.
    pub(crate) fn grow(&mut self) -> Verdict {
        let bytes = self
            .settings
            .segment_bytes
            .max(4 * self.settings.group_bytes as u64);
        let bytes = usize::try_from(bytes).expect("small") * self.random.usize(1..4);
        let mut appended = 0;
        for _ in 0..1000 {
            appended += self.append()?.map_or(0, |(_, bytes)| bytes);
            if appended >= bytes {
                break;
            }
            self.step()?;
        }
        Ok(())
    }

    /// Steps the writer once and takes over how far it has come.
    pub(crate) fn step(&mut self) -> Verdict<Step> {
        self.now_us += self.random.u64(0..2000);
        let now = self.now();
        let open = self.open.as_mut().expect("the log is open");
        let before = open.log.progress();
        let did = open.writer.step(now);
        let after = open.log.progress();
        trace(|| format!("step: {did:?}, {after:?}"));
        if (before.written, before.committed) != (after.written, after.committed) {
            self.moved_us = self.now_us;
        }
        self.observe()?;
        let is_silent = did != Step::Worked && self.now_us >= self.moved_us + 1_000_000;
        if is_silent && after.failure.is_none() && self.settings.policy != Policy::Os {
            self.model.silent();
        }
        Ok(did)
    }

    /// Lets up to 20 seconds pass.
    pub(crate) fn pass_time(&mut self) {
        self.now_us += self.random.u64(0..20_000_000);
    }

    /// Steps until everything accepted is committed or the log has failed.
    pub(crate) fn settle(&mut self) -> Verdict {
        for _ in 0..1000 {
            self.step()?;
            if self.model.settled() || self.model.failed() {
                return Ok(());
            }
            self.now_us += 1_000_000;
        }
        Err(Violation(format!(
            "not settled after 1000 steps: {:?}",
            self.log().progress()
        )))
    }

    /// Readers see all that is committed and nothing more.
    pub(crate) fn observe(&mut self) -> Verdict {
        let open = self.open.as_ref().expect("the log is open");
        self.model.progressed(&open.log.progress())?;
        for stream in &mut self.model.streams {
            let found = open.log.range(&stream.name);
            match stream.life.seen() {
                None => continue,
                Some(false) => {
                    ensure(found.is_none(), || format!("{}: {found:?}", stream.name))?;
                    continue;
                }
                Some(true) => {}
            }
            let range = reading::range(&open.log, &stream.name);
            ensure(range.next == stream.committed as u64, || {
                format!(
                    "{}: {} committed, readers see {range:?}",
                    stream.name, stream.committed
                )
            })?;
            ensure(
                range.first >= stream.first && range.first <= range.next,
                || {
                    format!(
                        "{}: the range went back from {} to {range:?}",
                        stream.name, stream.first
                    )
                },
            )?;
            if let Some(age) = self.settings.retention_age
                && !self.administered
            {
                let gone = &stream.records[stream.first as usize..range.first as usize];
                let young = gone
                    .iter()
                    .find(|record| record.timestamp_us + age.as_micros() as u64 >= self.now_us);
                ensure(young.is_none(), || {
                    format!("{}: removed {young:?}", stream.name)
                })?;
            }
            stream.first = range.first;
        }
        self.cursors.committed(self.model.committed);
        Ok(())
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Duration::from_micros(self.now_us),
            unix_us: self.now_us,
        }
    }
}
