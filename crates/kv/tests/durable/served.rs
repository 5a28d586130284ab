//! Every key has one history, for clients of both protocols, whatever becomes of the server: it
//! dies at any step, by itself or with the power, and another takes its place on the same disk
//! while clients connect again. A write that was answered is in that history; one that was not may
//! be, or not; nothing is in it that a client may have read and that is gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use tidewire::sim::{Conditions, LoopId, PlainId, PlainState, Shape, Sim, for_each_seed};
use tidewire_kv::binary::{encode_read, encode_write};
use tidewire_kv::durable::KvLog;
use tidewire_kv::service::{BinaryService, RespService, Settings};
use tidewire_kv::store::Mistakes;
use tidewire_log::Writer;
use tidewire_log::disk::sim::{Faults, SimDisk};

use crate::asks::{self, KEYS};
use crate::disk::{open, settings, step};
use crate::history::{Answer, Ask, Op, UNKNOWN, is_linearizable};
use crate::porcupine;
use crate::wire::{Value, command};

/// Where each protocol is spoken; by one loop each, or by one.
const PLACES: [&str; 3] = ["10.9.9.9:6379", "10.9.9.9:6380", "10.9.9.9:6381"];
/// The one of [`PLACES`] where the binary protocol is.
const BINARY: usize = 2;
pub(crate) const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];

/// Far later than any deadline.
const LATE: u64 = 4_000_000_000_000;
/// Requests under way for one client at most.
const UNDER_WAY: usize = 2;
/// Deaths of a server in a run at most.
const DEATHS: u64 = 3;
/// Rounds with accidents.
const ROUNDS: u64 = 160;

struct Process {
    loops: Vec<LoopId>,
    writer: Writer<SimDisk>,
    log: Arc<KvLog>,
    /// The server listens already, and its store counts as loaded after so many rounds.
    loads: Option<(u32, RespService, BinaryService)>,
}

impl Process {
    fn start(
        sim: &mut Sim,
        seed: u64,
        disk: &SimDisk,
        mistakes: Mistakes,
        rng: &mut Rng,
    ) -> Result<Process, String> {
        let opened = open(disk, settings(seed), mistakes, LATE)?;
        let own = Settings {
            protected: false,
            stall: None,
            ..Settings::default()
        };
        let (limits, store) = (own.limits(), Arc::new(opened.store));
        let rounds = rng.bool().then(|| rng.u32(..20));
        if rounds.is_some() {
            store.begin_loading();
        }
        let resp = RespService::recovering(store.clone(), own, opened.log.policy());
        let binary = BinaryService::open(store);
        let loads = rounds.map(|rounds| (rounds, resp.clone(), binary.clone()));
        if loads.is_none() {
            resp.recovered(opened.log.clone());
            binary.recovered(opened.log.clone());
        }
        sim.shape(SHAPES[(seed % 3) as usize]);
        let loops: Vec<LoopId> = (0..rng.usize(1..=3)).map(|_| sim.add_loop()).collect();
        for (number, place) in PLACES.into_iter().enumerate() {
            let at = loops[number % loops.len()];
            if number == BINARY {
                let service = sim.service(at, binary.clone(), BinaryService::limits());
                sim.listen_at(service, place);
            } else {
                let service = sim.service(at, resp.clone(), limits.clone());
                sim.listen_at(service, place);
            }
        }
        Ok(Process {
            loops,
            writer: opened.writer,
            log: opened.log,
            loads,
        })
    }

    /// A round has gone by.
    fn load(&mut self) {
        let Some((rounds, resp, binary)) = &mut self.loads else {
            return;
        };
        if *rounds > 0 {
            *rounds -= 1;
            return;
        }
        resp.recovered(self.log.clone());
        binary.recovered(self.log.clone());
        resp.store().end_loading();
        self.loads = None;
    }
}

/// What was asked and not yet answered: of which key, and when.
struct Asked {
    key: usize,
    ask: Ask,
    begin: u64,
}

struct Client {
    place: usize,
    peer: Option<PlainId>,
    seen: usize,
    asked: VecDeque<Asked>,
    /// What was answered, of each key.
    done: [Vec<Op>; KEYS],
}

impl Client {
    /// The next whole reply.
    fn reply(&mut self, sim: &Sim) -> Option<Result<Answer, String>> {
        let new = &sim.received(self.peer?)[self.seen..];
        let ask = self.asked.front().map(|asked| asked.ask);
        if self.place != BINARY {
            let (reply, len) = Value::parse(new)?;
            self.seen += len;
            return Some(match (ask, reply) {
                (None, reply) => Err(format!("a reply to nothing: {reply:?}")),
                (_, Value::Error(text)) => Err(text),
                (Some(ask), reply) => Ok(asks::answer(ask, reply)),
            });
        }
        let (&kind, rest) = new.split_first()?;
        let (&len, rest) = rest.split_first()?;
        let value = rest.get(..usize::from(len))?;
        self.seen += 2 + value.len();
        let value = String::from_utf8_lossy(value);
        let number = (!value.is_empty()).then(|| value.parse::<i64>());
        let number = number.transpose().map_err(|e| format!("{value:?}: {e}"));
        Some(match (kind, ask, number) {
            (3, Some(Ask::Get), number) => number,
            (3, Some(Ask::Set(v)), Ok(Some(n))) if n == v => Ok(None),
            (kind, ask, number) => Err(format!("{kind}, {number:?} is no answer to {ask:?}")),
        })
    }

    /// Sends `ask`, on a new connection if the last has gone.
    fn ask(&mut self, sim: &mut Sim, asked: Asked) {
        let peer = *self.peer.get_or_insert_with(|| {
            self.seen = 0;
            sim.plain(PLACES[self.place])
        });
        let bytes = if self.place == BINARY {
            let (mut bytes, key) = (Vec::new(), format!("key:{}", asked.key));
            match asked.ask {
                Ask::Set(v) => encode_write(key.as_bytes(), v.to_string().as_bytes(), &mut bytes),
                _ => encode_read(key.as_bytes(), &mut bytes),
            }
            bytes
        } else {
            command(&asks::line(asked.ask, asked.key))
        };
        self.asked.push_back(asked);
        sim.send(peer, &bytes);
    }
}

struct World {
    seed: u64,
    rng: Rng,
    sim: Sim,
    disk: SimDisk,
    mistakes: Mistakes,
    process: Option<Process>,
    clients: Vec<Client>,
    /// What was never answered, of each key.
    unknown: [Vec<Op>; KEYS],
    /// What orders everything.
    clock: u64,
    deaths: u64,
    value: i64,
}

impl World {
    fn new(seed: u64, mistakes: Mistakes) -> World {
        let mut rng = Rng::with_seed(seed);
        let mut conditions = Conditions::from_seed(rng.u64(..));
        conditions.reset_one_in = [0, 200][rng.usize(..2)];
        conditions.late_one_in = [0, 4, 64][(seed % 3) as usize];
        conditions.kernel.accept_fails_one_in = [0, 3, 8][(seed / 3 % 3) as usize];
        if conditions.reset_one_in > 0 {
            conditions.kernel.accept_aborts_one_in = 20;
            conditions.kernel.watch_fails_one_in = 20;
        }
        let client = |place| Client {
            place,
            peer: None,
            seen: 0,
            asked: VecDeque::new(),
            done: Default::default(),
        };
        World {
            seed,
            sim: Sim::under(rng.u64(..), conditions),
            disk: SimDisk::new(rng.u64(..)),
            mistakes,
            process: None,
            clients: [0, 1, 0, BINARY, BINARY].map(client).into(),
            unknown: Default::default(),
            clock: 0,
            deaths: 0,
            value: 0,
            rng,
        }
    }

    fn start(&mut self, faults: bool) -> Result<(), String> {
        let at = self.rng.u64(1..40);
        let strikes = match self.rng.u8(..4) {
            0 => Faults {
                power: Some(at),
                ..Faults::default()
            },
            1 => Faults {
                sync: Some(1 + at / 3),
                ..Faults::default()
            },
            _ => Faults::default(),
        };
        self.disk
            .set_faults(if faults { strikes } else { Faults::default() });
        let (sim, rng) = (&mut self.sim, &mut self.rng);
        match Process::start(sim, self.seed, &self.disk, self.mistakes, rng) {
            Ok(process) => self.process = Some(process),
            Err(_) if faults => self.died(),
            Err(why) => return Err(format!("it does not start: {why}")),
        }
        Ok(())
    }

    fn died(&mut self) {
        self.deaths += 1;
        self.disk = if self.disk.has_power() && self.rng.bool() {
            self.disk.kill()
        } else {
            self.disk.crash()
        };
        for at in self.process.take().map_or(Vec::new(), |p| p.loops) {
            self.sim.kill(at);
        }
    }

    fn ask(&mut self, who: usize) {
        // Far apart, so that increments do not make one value of two.
        self.value += 10_000;
        let ask = match (self.clients[who].place, self.rng.bool()) {
            (BINARY, true) => Ask::Set(self.value),
            (BINARY, false) => Ask::Get,
            _ => asks::any(self.value, &mut self.rng),
        };
        let (key, begin) = (self.rng.usize(..KEYS), self.clock);
        self.clients[who].ask(&mut self.sim, Asked { key, ask, begin });
    }

    /// Takes note of what clients have heard, and of what they never will.
    fn hear(&mut self) -> Result<(), String> {
        self.clock += 1;
        let (end, failed) = (self.clock, self.has_failed());
        for client in &mut self.clients {
            while let Some(reply) = client.reply(&self.sim) {
                let asked = client.asked.pop_front().ok_or("a reply to nothing")?;
                let Asked { key, ask, begin } = asked;
                let op = |answer, end| Op {
                    ask,
                    answer,
                    begin,
                    end,
                };
                match reply {
                    Ok(answer) => client.done[key].push(op(answer, end)),
                    // Nothing was done.
                    Err(text) if text.starts_with("LOADING ") => {}
                    Err(text) if text.starts_with("MISCONF the log") => {
                        self.unknown[key].push(op(None, UNKNOWN));
                    }
                    Err(text) => return Err(format!("{text} (failed: {failed})")),
                }
            }
            let Some(peer) = client.peer else { continue };
            if !matches!(
                self.sim.state(peer),
                PlainState::Open | PlainState::Connecting
            ) {
                client.peer = None;
                for Asked { key, ask, begin } in client.asked.drain(..) {
                    self.unknown[key].push(Op {
                        ask,
                        answer: None,
                        begin,
                        end: UNKNOWN,
                    });
                }
            }
        }
        self.clock += 1;
        Ok(())
    }

    fn has_failed(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|p| p.log.failure().is_some())
    }

    fn go_on(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.u32(..40) {
            if !self.sim.step() {
                self.sim.run_for(Duration::from_millis(1));
            }
        }
        let ms = self.sim.now().as_nanos() / 1_000_000;
        if let Some(process) = &mut self.process {
            process.load();
            for _ in 0..self.rng.u32(..3) {
                if !step(&mut process.writer, ms) {
                    break;
                }
            }
        }
        if !self.disk.has_power() {
            self.died();
        }
        self.hear()
    }

    fn accidents(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            if self.process.is_none() && self.rng.u8(..4) == 0 {
                self.start(self.deaths < DEATHS)?;
            }
            let who = self.rng.usize(..self.clients.len());
            if self.clients[who].asked.len() < UNDER_WAY && self.rng.bool() {
                self.ask(who);
            }
            self.go_on()?;
            let failed = self.has_failed();
            let dies = self.rng.u8(..if failed { 10 } else { 60 }) == 0;
            if self.process.is_some() && dies && (failed || self.deaths < DEATHS) {
                self.died();
            }
        }
        Ok(())
    }

    /// Without any more accidents, all clients are answered: also what there is in the end.
    fn quiet(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            self.died();
        }
        self.start(false)?;
        self.settle()?;
        for key in 0..KEYS {
            let (ask, begin) = (Ask::Get, self.clock);
            self.clients[0].ask(&mut self.sim, Asked { key, ask, begin });
            self.settle()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..20_000 {
            self.go_on()?;
            let process = self.process.as_ref();
            let has_loaded = process.is_some_and(|process| process.loads.is_none());
            if has_loaded && self.clients.iter().all(|client| client.asked.is_empty()) {
                return Ok(());
            }
        }
        Err("somebody is never answered".into())
    }
}

/// What clients have heard of each key in a run, from a seed: of each client what was answered, and everything
/// else by itself.
fn histories(seed: u64, mistakes: Mistakes) -> Result<[Vec<Vec<Op>>; KEYS], String> {
    let mut world = World::new(seed, mistakes);
    world.start(true)?;
    world.accidents()?;
    world.quiet()?;
    Ok(std::array::from_fn(|key| {
        let done = world.clients.iter().map(|client| client.done[key].clone());
        // Each may have happened at any time, or never: none comes before another. Reading leaves no trace.
        let unknown = world.unknown[key].iter();
        let unknown = unknown.filter(|op| op.ask != Ask::Get).map(|op| vec![*op]);
        done.chain(unknown).collect()
    }))
}

/// A run, from a seed: how many operations were answered.
///
/// # Errors
/// What is not as it must be.
pub(crate) fn served(seed: u64, mistakes: Mistakes) -> Result<usize, String> {
    let mut answered = 0;
    for (key, ops) in histories(seed, mistakes)?.iter().enumerate() {
        answered += ops.iter().flatten().filter(|op| op.end != UNKNOWN).count();
        if !is_linearizable(ops) {
            return Err(format!("key {key} has no history: {ops:#?}"));
        }
    }
    Ok(answered)
}

#[test]
fn every_key_has_one_history_whatever_becomes_of_the_server() {
    let answered = AtomicUsize::new(0);
    for_each_seed(2_000, |seed| {
        answered.fetch_add(served(seed, Mistakes::default())?, Relaxed);
        Ok::<(), String>(())
    });
    println!("{} operations were answered", answered.into_inner());
}

/// Porcupine judges servers that make no mistake, and servers that do.
#[test]
fn porcupine_says_the_same() {
    let mistakes = [
        Mistakes::default(),
        Mistakes {
            reply_early: true,
            ..Mistakes::default()
        },
        Mistakes {
            read_dirty: true,
            ..Mistakes::default()
        },
    ];
    for mistakes in mistakes {
        // A run that ends early has no histories.
        let runs = (0..150).filter_map(|seed| histories(seed, mistakes).ok());
        let all: Vec<Vec<Vec<Op>>> = runs.flatten().collect();
        // Porcupine does not know that what a connection has sent is done in that order.
        let apart =
            |ops: &Vec<Vec<Op>>| ops.iter().flatten().map(|op| vec![*op]).collect::<Vec<_>>();
        let ours: Vec<bool> = all.iter().map(|ops| is_linearizable(&apart(ops))).collect();
        let good = ours.iter().all(|is| *is);
        assert_eq!(good, mistakes == Mistakes::default(), "{mistakes:?}");
        let Some(theirs) = porcupine::judged(&all) else {
            return;
        };
        for (ops, (ours, theirs)) in all.iter().zip(ours.iter().zip(&theirs)) {
            assert_eq!(ours, theirs, "{mistakes:?}: {ops:#?}");
        }
        let rejected = theirs.iter().filter(|is| !**is).count();
        println!("{mistakes:?}: {rejected} of {} are rejected", all.len());
    }
}
