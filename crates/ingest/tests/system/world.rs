//! A run: all clients at work, accidents, and what must be so afterwards.

use std::collections::BTreeMap;
use std::ops::Add;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tidewire::Limits;
use tidewire::sim::{Conditions, Shape, Sim};
use tidewire_ingest::classic::{Classic, Mode};
use tidewire_ingest::native::codec::parser;
use tidewire_log::disk::sim::{Faults, SimDisk};
use tidewire_log::{Credit, EmbeddedLog, Log};

use crate::classic;
use crate::cursors::Cursors;
use crate::producers::{Producers, payload};
use crate::reader::{self, Follower, Record, Seen};
use crate::server::{CLASSIC_STREAM, Mistakes, Server, log_settings};
use crate::takers::{self, Takers};

const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];

/// What happened in a run, to see whether it tested anything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    deaths: u64,
    welcomes: u64,
    acknowledged: u64,
    classic: u64,
    read: u64,
    taken_over: u64,
    behind_cursors: u64,
    /// Hash of all that was on the network, bytes and times included.
    trace: u64,
}

impl Add for Summary {
    type Output = Summary;

    fn add(self, other: Summary) -> Summary {
        Summary {
            deaths: self.deaths + other.deaths,
            welcomes: self.welcomes + other.welcomes,
            acknowledged: self.acknowledged + other.acknowledged,
            classic: self.classic + other.classic,
            read: self.read + other.read,
            taken_over: self.taken_over + other.taken_over,
            behind_cursors: self.behind_cursors + other.behind_cursors,
            // In whatever order seeds come to their ends.
            trace: self.trace ^ other.trace,
        }
    }
}

struct World {
    sim: Sim,
    rng: Rng,
    shape: Shape,
    disk: SimDisk,
    server: Option<Server>,
    mistakes: Mistakes,
    /// Between two syncs, if not every group is synced.
    interval: Option<Duration>,
    producers: Producers,
    takers: Takers,
    cursors: Cursors,
    seen: Arc<Mutex<Seen>>,
    dialect: Classic,
    classic: classic::Client,
    classic_acked: u64,
    deaths: u64,
}

/// Messages of each producer.
const EACH: u64 = 24;
/// Messages of the producer whose session is taken over: there are some left when the others have finished.
const TAKEN: u64 = 60;
/// Deaths of the server in a run at most.
const DEATHS: u64 = 4;

impl World {
    fn new(seed: u64, mistakes: Mistakes) -> World {
        let mut rng = Rng::with_seed(seed);
        let mut conditions = Conditions::from_seed(rng.u64(..));
        // Other tests try single bytes: here they would only take long.
        conditions.segment_max = conditions.segment_max.max(100);
        conditions.receive_max = conditions.receive_max.max(100);
        conditions.accept_max = conditions.accept_max.max(100);
        conditions.send_buffer = conditions.send_buffer.max(500);
        conditions.receive_buffer = conditions.receive_buffer.max(500);
        conditions.late_one_in = [0, 4, 64][(seed % 3) as usize];
        conditions.kernel.accept_fails_one_in = [0, 3, 8][(seed / 3 % 3) as usize];
        if rng.bool() {
            conditions.reset_one_in = 150;
        }
        let mut sim = Sim::under(rng.u64(..), conditions);
        // The shape of the clients' loops, which count nothing by loop.
        sim.shape(SHAPES[rng.usize(..SHAPES.len())]);
        let producers = Producers::new(&mut sim, EACH);
        let follower = Follower::new(1 << rng.u32(8..20));
        let seen = follower.0.clone();
        let at = sim.add_loop();
        let on = sim.service(at, follower, Limits::default());
        sim.dial(on, reader::dial());
        let modes = [Mode::HeadRest, Mode::Sync, Mode::Async];
        let dialect = Classic::preset(modes[rng.usize(..modes.len())]);
        World {
            shape: SHAPES[(seed % 3) as usize],
            disk: SimDisk::new(rng.u64(..)),
            server: None,
            mistakes,
            interval: rng.bool().then(|| Duration::from_millis(rng.u64(1..20))),
            producers,
            takers: Takers::new(TAKEN),
            cursors: Cursors::new(),
            seen,
            dialect,
            classic: classic::Client::new(dialect),
            classic_acked: 0,
            deaths: 0,
            rng,
            sim,
        }
    }

    /// Starts the server; `faults` says whether the disk may strike meanwhile and later.
    fn start(&mut self, faults: bool) -> Result<(), String> {
        self.disk.set_faults(Faults::default());
        self.check_disk()?;
        if faults {
            let at = self.rng.u64(1..60);
            self.disk.set_faults(match self.rng.u8(..4) {
                0 => Faults {
                    power: Some(at),
                    ..Faults::default()
                },
                1 => Faults {
                    sync: Some(1 + at / 3),
                    ..Faults::default()
                },
                2 => Faults {
                    write: Some(1 + at / 3),
                    ..Faults::default()
                },
                _ => Faults::default(),
            });
        }
        let started = Server::start(
            &mut self.sim,
            self.shape,
            &self.disk,
            self.dialect,
            self.mistakes,
            self.interval,
            &mut self.rng,
        );
        match started {
            Ok(server) => self.server = Some(server),
            Err(_) if faults => self.died(false),
            Err(why) => return Err(format!("it does not start: {why}")),
        }
        Ok(())
    }

    /// The end of a server; its disk is found as a death of the process leaves it, or a loss of power.
    fn died(&mut self, softly: bool) {
        self.deaths += 1;
        self.disk = if softly && self.disk.has_power() {
            self.disk.kill()
        } else {
            self.disk.crash()
        };
        if let Some(server) = self.server.take() {
            server.die(&mut self.sim);
        }
        self.cursors.server_died();
    }

    /// What is on the disk, looked at without changing it.
    fn check_disk(&mut self) -> Result<(), String> {
        let opened =
            EmbeddedLog::open(self.disk.fork(), log_settings(self.mistakes, self.interval));
        let (log, ..) = opened.map_err(|e| format!("it cannot be opened: {e}"))?;
        self.check(&log)
    }

    /// Whether what a log holds can be so, after what all clients were told.
    fn check(&mut self, log: &dyn Log) -> Result<(), String> {
        let records = contents(log, "default")?;
        let mut ids: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (producer, id, said) in &records {
            if *said != payload(*id) {
                return Err(format!("{producer}: {id} says something else"));
            }
            ids.entry(producer).or_default().push(*id);
        }
        for (who, known) in self.producers.known() {
            let ids = ids.get(who.name).map_or(&[][..], |ids| ids);
            self.producers.check(who, &known, ids)?;
        }
        self.takers
            .check(ids.get(takers::NAME).map_or(&[][..], |ids| ids))?;
        self.cursors.check(&records)?;
        let seen = self.seen.lock().unwrap();
        if let Some(wrong) = &seen.wrong {
            return Err(format!("reader: {wrong}"));
        }
        let same = seen
            .records
            .iter()
            .zip(&records)
            .take_while(|(a, b)| a == b);
        let same = same.count();
        if same < seen.records.len() {
            let (saw, is) = (&seen.records[same], records.get(same));
            return Err(format!(
                "position {same} was read as {saw:?}, and is {is:?}"
            ));
        }
        let stored = contents(log, CLASSIC_STREAM)?;
        let stored = stored.iter().map(|(_, n, said)| {
            let whose = classic::told(said).filter(|(_, told)| told == n);
            whose.ok_or_else(|| format!("classic: message {n} says something else"))
        });
        let stored = stored.collect::<Result<Vec<_>, String>>()?;
        self.classic_acked = self.classic.check(&self.sim, &stored)?;
        Ok(())
    }

    /// Some steps of the network and the loops, then some of the log.
    fn go_on(&mut self, quiet: bool) -> Result<(), String> {
        for _ in 0..self.rng.u32(..60) {
            if !self.sim.step() {
                self.sim.run_for(Duration::from_millis(1));
            }
        }
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        // At last the takers have a loop for themselves, where no other connection wakes it.
        if !quiet || self.producers.are_done() {
            self.takers.go_on(&mut self.sim, &mut self.rng, quiet)?;
        }
        self.cursors.go_on(&mut self.sim, &mut self.rng)?;
        for _ in 0..self.rng.u32(..4) {
            if !server.step(&self.sim) {
                break;
            }
        }
        if !self.disk.has_power() {
            self.died(false);
        }
        Ok(())
    }

    fn accidents(&mut self) -> Result<(), String> {
        for _ in 0..250 {
            if self.server.is_none() && self.rng.u8(..8) == 0 {
                self.start(self.deaths < DEATHS)?;
                self.producers.encourage(&mut self.sim);
            }
            if self.rng.u8(..20) == 0 {
                let count = self.rng.u64(1..6);
                self.classic.send(&mut self.sim, count);
            }
            self.go_on(false)?;
            let failed = |server: &Server| server.log.progress().failure.is_some();
            let failed = self.server.as_ref().is_some_and(failed);
            let dies = self.rng.u8(..if failed { 20 } else { 150 }) == 0;
            if self.server.is_some() && dies && (failed || self.deaths < DEATHS) {
                let softly = self.rng.bool();
                self.died(softly);
            }
        }
        Ok(())
    }

    /// Without any more accidents all clients come to an end.
    fn quiet(&mut self) -> Result<(), String> {
        if self.server.is_some() {
            self.died(true);
        }
        self.start(false)?;
        for _ in 0..20_000 {
            self.producers.encourage(&mut self.sim);
            self.go_on(true)?;
            let server = self.server.as_ref().ok_or("it dies by itself")?;
            let next = server.log.range("default").map_or(0, |range| range.next);
            let seen = self.seen.lock().unwrap();
            let are_done = self.producers.are_done() && self.takers.are_done();
            if are_done && seen.records.len() as u64 == next {
                return Ok(());
            }
        }
        let known: Vec<_> = self.producers.known().map(|(_, known)| known).collect();
        let taken = self.takers.acked;
        Err(format!(
            "they come to no end: {known:?}, {taken} of {TAKEN} taken over"
        ))
    }
}

/// A run, from a seed.
///
/// # Errors
/// What is not as it must be.
pub(crate) fn run(seed: u64, mistakes: Mistakes) -> Result<Summary, String> {
    let mut world = World::new(seed, mistakes);
    world.start(true)?;
    world.accidents()?;
    world.quiet()?;
    world.died(false);
    world.check_disk()?;
    let known: Vec<_> = world
        .producers
        .known()
        .map(|(_, known)| (known.acked, known.welcomes))
        .collect();
    Ok(Summary {
        deaths: world.deaths,
        welcomes: known.iter().map(|(_, w)| u64::from(*w)).sum(),
        acknowledged: known.iter().map(|(acked, _)| acked).sum(),
        classic: world.classic_acked,
        taken_over: world.takers.welcomes,
        behind_cursors: world.cursors.read.len() as u64,
        read: world.seen.lock().unwrap().records.len() as u64,
        trace: world.sim.trace_hash(),
    })
}

/// The records of a stream, by position.
fn contents(log: &dyn Log, stream: &str) -> Result<Vec<Record>, String> {
    let mut all = Vec::new();
    if log.range(stream).is_none() {
        return Ok(all);
    }
    loop {
        let read = log.read(stream, all.len() as u64, Credit(100_000));
        let read = read.map_err(|why| format!("{stream}: {why}"))?;
        if read.runs.is_empty() {
            return Ok(all);
        }
        for run in read.runs {
            let batch = parser(1000).parse(&run.bytes);
            if run.first != all.len() as u64 || batch.bytes().len() != run.bytes.len() {
                return Err(format!(
                    "{stream}: a run at {} behind {}",
                    run.first,
                    all.len()
                ));
            }
            all.extend(batch.frames().map(|frame| {
                let id = u64::from_le_bytes(frame.id);
                (run.producer.to_string(), id, frame.payload.to_vec())
            }));
        }
    }
}
