//! A server with two loops and its clients on a simulated network, its log on a simulated disk, and
//! crashes at any step.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use std::sync::Arc;
use tidewire::sim::{Conditions, LoopId, PlainId, Sim, for_each_seed};
use tidewire_kv::durable::KvLog;
use tidewire_kv::durable::snapshot::Keeper;
use tidewire_kv::service::{RespService, Settings};
use tidewire_kv::store::Mistakes;
use tidewire_log::Writer;
use tidewire_log::disk::sim::{Faults, SimDisk};

use crate::disk::{now, open, settings, step};
use crate::facts::{COUNTERS, Facts, LISTS, entry};
use crate::served::SHAPES;
use crate::wire::{Value, command};

/// What a client has asked, and hears of in this order.
enum Ask {
    /// A reply of no interest.
    Any,
    Push(usize, String),
    Read(usize),
    Count(usize),
    Queue(String),
    Take,
    Pair(String),
    Pairs,
    /// As a pair, of a script that fails behind it.
    Failing(String),
    /// An entry of the stream.
    Entry(String),
    Entries,
    /// Entries that the group gives.
    Given,
    Ack(String),
}

struct Client {
    peer: PlainId,
    seen: usize,
    asked: VecDeque<Ask>,
    subscribed: bool,
}

/// A server until its end.
struct Life {
    sim: Sim,
    loops: [LoopId; 2],
    writer: Writer<SimDisk>,
    keeper: Keeper<SimDisk>,
    clients: Vec<Client>,
    log: Arc<KvLog>,
}

/// Far later than any deadline.
const LATE: u64 = 4_000_000_000_000;
/// What elements begin with that are published outside of the transaction that stores them, or before a script
/// stores them.
const LOOSE: char = 'p';
/// What scripts begin with: they publish before they do what the message tells of.
const ALSO_TOLD: &str = "redis.call('publish','ch',ARGV[1]);redis.call('rpush','told',ARGV[1]);";
/// Requests under way for one client at most.
const UNDER_WAY: usize = 4;

impl Life {
    fn begin(
        seed: u64,
        disk: &SimDisk,
        facts: &Facts,
        mistakes: Mistakes,
        rng: &mut Rng,
    ) -> Result<Life, String> {
        let opened = open(disk, settings(seed), mistakes, LATE)?;
        facts.check(&opened.store, LATE)?;
        let mut sim = Sim::under(rng.u64(..), Conditions::from_seed(rng.u64(..)));
        let own = Settings {
            protected: false,
            stall: None,
            ..Settings::default()
        };
        let limits = own.limits();
        let (store, log, writer, keeper) = opened.keep();
        let service = RespService::durable(store, own, log.clone());
        sim.shape(SHAPES[rng.usize(..SHAPES.len())]);
        let loops = [(); 2].map(|()| sim.add_loop());
        let addrs = loops.map(|at| {
            let service = sim.service(at, service.clone(), limits.clone());
            sim.listen(service)
        });
        let clients = (0..5).map(|at| Client {
            peer: sim.plain(&addrs[at % 2]),
            seen: 0,
            asked: VecDeque::new(),
            subscribed: at == 4,
        });
        let clients = clients.collect();
        let mut life = Life {
            sim,
            loops,
            writer,
            keeper,
            clients,
            log,
        };
        life.send(4, &["SUBSCRIBE ch".to_owned()]);
        life.send(0, &["XGROUP CREATE e g 0 MKSTREAM".to_owned()]);
        life.clients[0].asked.push_back(Ask::Any);
        Ok(life)
    }

    fn send(&mut self, who: usize, lines: &[String]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        self.sim.send(self.clients[who].peer, &bytes);
    }

    /// Has a client ask for something. `id` is of nothing else.
    fn ask(&mut self, who: usize, id: &str, facts: &mut Facts, rng: &mut Rng) {
        use Ask::*;
        let list = rng.usize(..2);
        let key = LISTS[list];
        let counter = rng.usize(..COUNTERS);
        let id = id.to_owned();
        let one = |line: String, ask| (vec![line], vec![ask]);
        let (lines, asks) = match rng.u8(..20) {
            14 | 15 => one(format!("XADD e * f {id}"), Entry(id)),
            16 => one("XRANGE e - +".to_owned(), Entries),
            17 | 18 => {
                let wait = ["", "BLOCK 30 "][rng.usize(..2)];
                let count = rng.u8(1..4);
                let read = format!("XREADGROUP GROUP g c{who} COUNT {count} {wait}STREAMS e >");
                one(read, Given)
            }
            19 if !facts.given.is_empty() => {
                let at = rng.usize(..facts.given.len());
                let given = facts.given.iter().nth(at).cloned().unwrap_or_default();
                facts.acking.insert(given.clone());
                one(format!("XACK e g {given}"), Ack(given))
            }
            0 | 1 => one(format!("RPUSH {key} {id}"), Push(list, id)),
            2 => one(format!("LRANGE {key} 0 -1"), Read(list)),
            3 => one(format!("INCR c{counter}"), Count(counter)),
            4 => one(format!("INCRBY c{counter} 0"), Count(counter)),
            5 => one(format!("RPUSH q {id}"), Queue(id)),
            6 => one("LPOP q".to_owned(), Take),
            7 => one(format!("BLPOP q 0.0{}", rng.u8(1..9)), Take),
            8 => {
                let lines = [
                    "MULTI",
                    &format!("RPUSH x {id}"),
                    &format!("RPUSH y {id}"),
                    "EXEC",
                ];
                let lines = lines.map(str::to_owned).to_vec();
                (lines, vec![Any, Any, Any, Pair(id)])
            }
            9 => one("LRANGE y 0 -1".to_owned(), Pairs),
            10 => {
                let (from, to, n) = (rng.u8(..3), rng.u8(..3), rng.u8(1..9));
                let lines = [
                    "MULTI".to_owned(),
                    format!("HINCRBY acc {from} -{n}"),
                    format!("HINCRBY acc {to} {n}"),
                    "EXEC".to_owned(),
                ];
                (lines.to_vec(), vec![Any, Any, Any, Any])
            }
            11 => {
                let id = format!("{LOOSE}{id}");
                let lines = [format!("RPUSH told {id}"), format!("PUBLISH ch {id}")];
                (lines.to_vec(), vec![Push(2, id), Any])
            }
            12 => {
                // More than a moment's room in the log, so that much of it is asked for in the middle.
                let pad = rng.usize(1..14_000);
                let script = format!(
                    "{ALSO_TOLD}redis.call('rpush','x',ARGV[1]);redis.call('set','pad',('p'):rep({pad}));\
                     redis.call('rpush','y',ARGV[1]);return{{1}}"
                );
                let id = format!("{LOOSE}{id}");
                one(format!("EVAL {script} 0 {id}"), Pair(id))
            }
            13 => {
                let script = format!(
                    "{ALSO_TOLD}redis.call('rpush','x',ARGV[1]);redis.call('rpush','y',ARGV[1]);redis.call('incr','x')"
                );
                let id = format!("{LOOSE}{id}");
                one(format!("EVAL {script} 0 {id}"), Failing(id))
            }
            _ => {
                let lines = [
                    "MULTI".to_owned(),
                    format!("PUBLISH ch {id}"),
                    format!("RPUSH told {id}"),
                    "EXEC".to_owned(),
                ];
                (lines.to_vec(), vec![Any, Any, Any, Any])
            }
        };
        self.clients[who].asked.extend(asks);
        self.send(who, &lines);
    }

    /// Takes note of what clients have heard.
    fn hear(&mut self, facts: &mut Facts) -> Result<(), String> {
        let healthy = self.log.failure().is_none();
        for client in &mut self.clients {
            let all = self.sim.received(client.peer);
            while let Some((reply, len)) = Value::parse(&all[client.seen..]) {
                client.seen += len;
                if client.subscribed {
                    if let Value::Array(message) = reply
                        && message[0] == Value::Bulk("message".into())
                    {
                        let id = message[2].clone().text();
                        // What a client publishes behind a change need not be true if that was refused.
                        if healthy || !id.starts_with(LOOSE) {
                            facts.seen[2].insert(id);
                        }
                    }
                    continue;
                }
                let asked = client.asked.pop_front().ok_or("a reply to nothing")?;
                match (asked, reply) {
                    (Ask::Push(list, id), Value::Int(_)) => drop(facts.seen[list].insert(id)),
                    (Ask::Read(list), Value::Array(elements)) => {
                        facts.seen[list].extend(elements.into_iter().map(Value::text));
                    }
                    (Ask::Count(at), Value::Int(n)) => facts.counted[at] = facts.counted[at].max(n),
                    (Ask::Queue(id), Value::Int(_)) => drop(facts.queued.insert(id)),
                    (Ask::Take, Value::Bulk(element)) => take(facts, element)?,
                    (Ask::Take, Value::Array(mut found)) => {
                        take(facts, found.pop().ok_or("nothing was taken")?.text())?;
                    }
                    (Ask::Pair(id), Value::Array(_)) => drop(facts.paired.insert(id)),
                    (Ask::Failing(id), Value::Error(text)) if text.starts_with("WRONGTYPE") => {
                        facts.paired.insert(id);
                    }
                    (Ask::Pairs, Value::Array(elements)) => {
                        facts.paired.extend(elements.into_iter().map(Value::text));
                    }
                    (Ask::Entry(text), Value::Bulk(id)) => drop(facts.entries.insert(id, text)),
                    (Ask::Entries, Value::Array(all)) => {
                        facts.entries.extend(all.into_iter().map(entry));
                    }
                    (Ask::Given, Value::Array(mut streams)) => {
                        let entries = streams.swap_remove(0).array().swap_remove(1);
                        for (id, text) in entries.array().into_iter().map(entry) {
                            if !facts.given.insert(id.clone()) {
                                return Err(format!("e: {id} was given twice"));
                            }
                            facts.entries.insert(id, text);
                        }
                    }
                    (Ask::Ack(id), Value::Int(_)) => drop(facts.acked.insert(id)),
                    // The read may have come before the group was made.
                    (Ask::Given, Value::Error(text)) if text.starts_with("NOGROUP") => {}
                    (Ask::Any, _) | (Ask::Take | Ask::Given, Value::Null) => {}
                    // The log has failed or was busy for long.
                    (_, Value::Error(text)) if text.contains("MISCONF the log") => {}
                    (_, reply) => return Err(format!("an odd reply: {reply:?}")),
                }
            }
        }
        Ok(())
    }
}

fn take(facts: &mut Facts, element: String) -> Result<(), String> {
    if facts.taken.contains(&element) {
        return Err(format!("q: {element} was taken twice"));
    }
    facts.taken.insert(element);
    Ok(())
}

/// Some lives of a server, each with an end by chance; what was wrong, if anything.
pub(crate) fn lives(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    let rng = &mut Rng::with_seed(seed);
    let mut disk = SimDisk::new(rng.u64(..));
    let mut facts = Facts::default();
    for life_number in 0..3 {
        let mut life = Life::begin(seed + life_number, &disk, &facts, mistakes, rng)?;
        if rng.bool() {
            disk.set_faults(Faults {
                power: Some(rng.u64(1..60)),
                ..Faults::default()
            });
        } else if rng.u8(..4) == 0 {
            disk.set_faults(Faults {
                sync: Some(rng.u64(1..20)),
                ..Faults::default()
            });
        }
        for n in 0..rng.usize(20..90) {
            let who = rng.usize(..4);
            if life.clients[who].asked.len() < UNDER_WAY {
                life.ask(who, &format!("{life_number}:{n}"), &mut facts, rng);
            }
            if rng.bool() {
                let trip = *life.sim.conditions().latency.end();
                life.sim.run_for(trip.mul_f64(rng.f64() * 2.0));
            }
            let ms = life.sim.now().as_nanos() / 1_000_000;
            for _ in 0..rng.usize(..4) {
                step(&mut life.writer, ms);
            }
            // Snapshots are made all the time, and the log is cut behind them.
            if rng.u8(..8) == 0 {
                life.log.snapshots().ask();
            }
            for _ in 0..rng.usize(..3) {
                life.keeper.step(now(ms));
            }
            life.hear(&mut facts)?;
            if !disk.has_power() {
                break;
            }
        }
        disk = if rng.bool() {
            disk.crash()
        } else {
            disk.kill()
        };
        for at in life.loops {
            life.sim.kill(at);
        }
        // What has left the server arrives, whatever has become of it.
        life.sim.run_for(Duration::from_secs(10));
        life.hear(&mut facts)?;
        let asked = life.clients.iter().flat_map(|client| &client.asked);
        facts.unanswered += asked.filter(|ask| matches!(ask, Ask::Take)).count();
    }
    let opened = open(&disk, settings(seed), mistakes, LATE)?;
    facts.check(&opened.store, LATE)
}

#[test]
fn what_was_acknowledged_or_seen_is_there_after_any_crash() {
    for_each_seed(1_500, |seed| lives(seed, Mistakes::default()));
}
