//! The promises on the simulated network, whose every accident comes from a seed. To see one again:
//! `TIDEWIRE_SEED` is the seed that a failure names.

use std::time::Duration;

use tidewire::sim::{Conditions, Outcome, seeds};
use tidewire_kv::service::Settings;

use crate::asks::{self, KEYS};
use crate::common::{Client, World};
use crate::history::{Op, is_linearizable};
use crate::waking::{POPS, element, pushes};
use crate::wire::Value;

/// How many are tried.
const SEEDS: u64 = 300;

/// Far longer than anything takes, in virtual time.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// Two loops, and chance.
struct Scene {
    world: World,
    rng: fastrand::Rng,
    seed: u64,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let settings = Settings {
            stall: None,
            ..Settings::default()
        };
        Scene {
            world: World::under(seed, Conditions::from_seed(seed), settings),
            rng: fastrand::Rng::with_seed(seed),
            seed,
        }
    }

    fn clients(&mut self, n: usize) -> Vec<Client> {
        (0..n).map(|i| self.world.client_of(i % 2)).collect()
    }

    /// Lets some time pass: from nothing to a few trips over the network.
    fn pass(&mut self) {
        let trip = *self.world.sim.conditions().latency.end();
        let time = trip.mul_f64(self.rng.f64() * 3.0);
        if self.rng.bool() {
            self.world.sim.run_for(time);
        }
    }

    /// Lets all happen that is under way, and all time-outs too.
    fn settle(&mut self) {
        for _ in 0..2 {
            let outcome = self.world.sim.run_until_quiet(LONG);
            assert_eq!(outcome, Outcome::Idle, "seed {}", self.seed);
            self.world.sim.run_for(Duration::from_secs(60));
        }
    }

    /// The whole replies to a client so far, and how many bytes come after them.
    fn received(&self, client: &Client) -> (Vec<Value>, usize) {
        let mut bytes = self.world.sim.received(client.peer);
        let mut replies = Vec::new();
        while let Some((reply, len)) = Value::parse(bytes) {
            replies.push(reply);
            bytes = &bytes[len..];
        }
        (replies, bytes.len())
    }

    /// All replies to a client, when all are there.
    fn replies(&self, client: &Client) -> Vec<Value> {
        let (replies, more) = self.received(client);
        assert_eq!(more, 0, "seed {}: half a reply", self.seed);
        replies
    }

    /// Asks for one thing on a new connection.
    fn ask(&mut self, line: &str) -> Value {
        let client = self.world.client();
        self.world.send(&client, line);
        self.settle();
        self.replies(&client).remove(0)
    }

    /// The keys, and all that is in them; without what was taken by BLMOVE.
    fn left(&mut self) -> (Vec<String>, Vec<String>) {
        let mut left = Vec::new();
        let keys = self.ask("KEYS *").array().into_iter().map(Value::text);
        let keys: Vec<String> = keys.filter(|key| key != "moved").collect();
        for key in &keys {
            let kind = self.ask(&format!("TYPE {key}")).text();
            let read = if kind == "list" { "LRANGE" } else { "ZRANGE" };
            let all = self.ask(&format!("{read} {key} 0 -1")).array();
            left.extend(all.into_iter().map(Value::text));
        }
        (keys, left)
    }
}

/// Elements pushed by each producer.
const EACH: usize = 12;

fn wake_ups(seed: u64) {
    let scene = &mut Scene::new(seed);
    let consumers = scene.clients(5);
    let producers = scene.clients(2);
    let mut asked: Vec<Vec<String>> = vec![Vec::new(); consumers.len()];
    let mut gone = [false; 5];
    let mut to_push: Vec<Vec<Vec<String>>> = (0..producers.len())
        .map(|p| {
            let mut pushes = pushes(&format!("p{p}"), EACH, &mut scene.rng);
            pushes.reverse();
            pushes
        })
        .collect();
    while to_push.iter().any(|left| !left.is_empty()) {
        let who = scene.rng.usize(..consumers.len());
        match scene.rng.u8(..12) {
            0..6 if !gone[who] => {
                let mut pop = (*scene.rng.choice(&POPS).unwrap()).to_owned();
                if scene.rng.u8(..4) == 0 && pop.ends_with(" 0") {
                    // A time-out that races with the pushes.
                    pop = format!("{pop}.00{}", scene.rng.u8(1..9));
                }
                scene.world.send(&consumers[who], &pop);
                asked[who].push(pop);
            }
            6 if scene.rng.u8(..3) == 0 => {
                gone[who] = true;
                scene.world.sim.finish(consumers[who].peer);
            }
            7 if scene.rng.bool() => {
                let id = scene.rng.usize(1..=consumers.len());
                let line = format!("CLIENT UNBLOCK {id}");
                scene.world.send(&producers[0], &line);
            }
            _ => {
                let p = scene.rng.usize(..producers.len());
                for line in to_push[p].pop().unwrap_or_default() {
                    scene.world.send(&producers[p], &line);
                }
            }
        }
        scene.pass();
    }
    scene.settle();
    let (keys, left) = scene.left();
    let mut found = left.clone();
    for (who, asked) in asked.iter().enumerate() {
        let replies = scene.replies(&consumers[who]);
        assert!(replies.len() <= asked.len(), "seed {seed}: {replies:?}");
        if let Some(waiting) = asked.get(replies.len())
            && !gone[who]
        {
            assert!(
                waiting.split(' ').any(|word| word == "0"),
                "seed {seed}: {waiting} has not timed out"
            );
            let wakes = |key: &&String| waiting.split(' ').any(|word| word == **key);
            assert_eq!(
                keys.iter().find(wakes),
                None,
                "seed {seed}: {waiting} sleeps on, with {left:?}"
            );
        }
        found.extend(replies.into_iter().filter_map(element));
    }
    found.sort();
    let mut pushed: Vec<String> = (0..producers.len())
        .flat_map(|p| (0..EACH).map(move |i| format!("p{p}:{i}")))
        .collect();
    pushed.sort();
    assert_eq!(found, pushed, "seed {seed}");
}

#[test]
fn every_element_is_received_once_or_left() {
    seeds(SEEDS).for_each(wake_ups);
}

/// What a writer sends the `n`th time.
fn write(kind: usize, n: usize, rng: &mut fastrand::Rng) -> Vec<String> {
    let account = |rng: &mut fastrand::Rng| rng.u8(1..5);
    match kind {
        0 | 1 => {
            let pairs: Vec<String> = ["a", "b", "c", "d", "e"]
                .iter()
                .map(|key| format!("{key} {kind}:{n}"))
                .collect();
            vec![format!("MSET {}", pairs.join(" "))]
        }
        2 => vec![format!("RENAME name:{} name:{}", n % 2, (n + 1) % 2)],
        _ => vec![
            "MULTI".to_owned(),
            format!("DECRBY acc:{} {n}", account(rng)),
            format!("INCRBY acc:{} {n}", account(rng)),
            "EXEC".to_owned(),
        ],
    }
}

const READS: [&str; 3] = ["a b c d e", "name:0 name:1", "acc:1 acc:2 acc:3 acc:4"];

/// Whether what was read by one of [`READS`] can have been so at one moment.
fn is_whole(kind: usize, values: &[Value]) -> bool {
    match kind {
        0 => values.iter().all(|value| *value == values[0]),
        1 => values.iter().filter(|value| **value == Value::Null).count() == 1,
        _ => values.iter().cloned().map(Value::number).sum::<i64>() == 40,
    }
}

fn atomicity(seed: u64) {
    let scene = &mut Scene::new(seed);
    let set_up = "MSET name:0 value acc:1 10 acc:2 10 acc:3 10 acc:4 10";
    assert_eq!(scene.ask(set_up), Value::ok());
    let writers = scene.clients(5);
    let readers = scene.clients(3);
    // Kinds of reads, and whether in a transaction.
    let mut reads: Vec<Vec<(usize, bool)>> = vec![Vec::new(); readers.len()];
    let mut writes = [0; 5];
    for _ in 0..100 {
        if scene.rng.bool() {
            let kind = scene.rng.usize(..writers.len());
            for line in write(kind, writes[kind], &mut scene.rng) {
                scene.world.send(&writers[kind], &line);
            }
            writes[kind] += 1;
        } else {
            let (who, kind) = (
                scene.rng.usize(..readers.len()),
                scene.rng.usize(..READS.len()),
            );
            let one_by_one = scene.rng.bool();
            if one_by_one {
                scene.world.send(&readers[who], "MULTI");
                for key in READS[kind].split(' ') {
                    scene.world.send(&readers[who], &format!("GET {key}"));
                }
                scene.world.send(&readers[who], "EXEC");
            } else {
                scene
                    .world
                    .send(&readers[who], &format!("MGET {}", READS[kind]));
            }
            reads[who].push((kind, one_by_one));
        }
        scene.pass();
    }
    scene.settle();
    for (reader, reads) in readers.iter().zip(reads) {
        let mut replies = scene.replies(reader).into_iter();
        for (kind, one_by_one) in reads {
            if one_by_one {
                // OK and QUEUED.
                let before = 1 + READS[kind].split(' ').count();
                assert_eq!(replies.by_ref().take(before).count(), before);
            }
            let values = replies.next().unwrap().array();
            assert!(is_whole(kind, &values), "seed {seed}: {values:?}");
        }
        assert_eq!(replies.next(), None, "seed {seed}");
    }
}

#[test]
fn nothing_is_seen_half_done() {
    seeds(SEEDS).for_each(atomicity);
}

/// Commands under way for one client at most.
const UNDER_WAY: usize = 3;

fn linearizability(seed: u64) {
    let scene = &mut Scene::new(seed);
    let clients = scene.clients(5);
    // What each client has asked, and of which key; it ends at the step its reply was there.
    let mut asked: Vec<Vec<(usize, Op)>> = vec![Vec::new(); clients.len()];
    let mut answered = vec![0; clients.len()];
    for step in 0..200 {
        let who = scene.rng.usize(..clients.len());
        if step < 150 && asked[who].len() - answered[who] < UNDER_WAY {
            // Far apart, so that increments do not make one value of two.
            let ask = asks::any((step as i64 + 1) * 10_000, &mut scene.rng);
            let key = scene.rng.usize(..KEYS);
            scene.world.send(&clients[who], &asks::line(ask, key));
            let op = Op {
                ask,
                answer: None,
                begin: 2 * step,
                end: u64::MAX,
            };
            asked[who].push((key, op));
        }
        if step == 199 {
            scene.settle();
        } else {
            scene.pass();
        }
        for (who, client) in clients.iter().enumerate() {
            let replies = scene.received(client).0;
            for (at, reply) in replies.into_iter().enumerate().skip(answered[who]) {
                let op = &mut asked[who][at].1;
                op.answer = asks::answer(op.ask, reply);
                op.end = 2 * step + 1;
                answered[who] = at + 1;
            }
        }
    }
    for key in 0..KEYS {
        let ops: Vec<Vec<Op>> = asked
            .iter()
            .map(|ops| {
                let of_key = ops.iter().filter(|(of, _)| *of == key);
                of_key.map(|&(_, op)| op).collect()
            })
            .collect();
        let all = ops.iter().flatten();
        assert!(
            all.clone().all(|op| op.end < u64::MAX),
            "seed {seed}: no reply"
        );
        assert!(is_linearizable(&ops), "seed {seed}: {ops:#?}");
    }
}

#[test]
fn single_key_commands_are_linearizable() {
    seeds(SEEDS).for_each(linearizability);
}
