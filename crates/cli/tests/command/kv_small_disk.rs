//! A durable store on a small disk. As long as live data take at most a fifth of it, overwriting goes on for ever; filled with new
//! keys it takes removals, and everything again as soon as they have made room. Nothing acknowledged is lost, whenever
//! the server is killed.
//!
//! `cargo test` has a short sample; all sizes from 64 to 1,000 MiB:
//! `cargo test -p tidewire-cli --test command -- --ignored --nocapture on_disks_of_many_sizes`. Needs root.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;

use crate::common::kv::{Client, Reply};
use crate::common::small_disk::SmallDisk;
use crate::common::{PATIENCE, Running, addr};

const MIB: u64 = 1 << 20;
/// Commands that are sent before the first reply is read.
const PIPELINE: usize = 8;
/// Elements of a list, a stream and a hash.
const ELEMENTS: u64 = 40;

/// A key of a fixed set, and how far its changes have come.
struct Key {
    name: String,
    kind: Kind,
    bytes: usize,
    /// The last change that was sent, and the last that was acknowledged.
    sent: u64,
    acknowledged: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    String,
    List,
    Stream,
    Hash,
}

impl Key {
    /// The next change, which makes no more of it than there was.
    fn change(&mut self) -> String {
        self.sent += 1;
        let (n, name) = (self.sent, &self.name);
        let value = format!("{n}:{}", "x".repeat(self.bytes));
        match self.kind {
            Kind::String => format!("SET {name} {value}"),
            // In a list the oldest element is replaced.
            Kind::List if n > ELEMENTS => format!("LSET {name} {} {value}", n % ELEMENTS),
            Kind::List => format!("RPUSH {name} {value}"),
            Kind::Stream => format!("XADD {name} MAXLEN {ELEMENTS} {n}-0 f {value}"),
            Kind::Hash => format!("HSET {name} f{} {value}", n % ELEMENTS),
        }
    }

    /// The greatest change that is there.
    fn found(&self, client: &mut Client) -> u64 {
        let name = &self.name;
        let ask = match self.kind {
            Kind::String => format!("GETRANGE {name} 0 20"),
            Kind::List => format!("LRANGE {name} 0 -1"),
            Kind::Stream => format!("XREVRANGE {name} + - COUNT 1"),
            Kind::Hash => format!("HVALS {name}"),
        };
        numbers(&client.ask(&ask).unwrap())
    }
}

/// The greatest number in front of a colon.
fn numbers(reply: &Reply) -> u64 {
    match reply {
        Reply::Bulk(Some(text)) => {
            let number = text
                .split_once(':')
                .and_then(|(number, _)| number.parse().ok());
            number.unwrap_or(0)
        }
        Reply::Array(all) => all.iter().map(numbers).max().unwrap_or(0),
        Reply::Bulk(None) | Reply::Line(_) | Reply::Int(_) => 0,
    }
}

struct Scene {
    disk: SmallDisk,
    mib: u64,
    running: Option<Running>,
    rng: Rng,
    keys: Vec<Key>,
    written: u64,
}

impl Scene {
    fn new(mib: u64) -> Option<Scene> {
        let disk = SmallDisk::mount(mib)?;
        let kinds = [Kind::String, Kind::List, Kind::Stream, Kind::Hash];
        let live = mib * MIB / 5;
        let count = 16;
        let of_one = live / count;
        let keys = (0..count).map(|at| {
            let kind = kinds[at as usize % kinds.len()];
            let parts = match kind {
                Kind::String => 1,
                Kind::List | Kind::Stream | Kind::Hash => ELEMENTS,
            };
            Key {
                name: format!("key:{at}"),
                kind,
                // A string is one unit, which has at most a sixth of a segment.
                bytes: (of_one / parts).min(900_000) as usize,
                sent: 0,
                acknowledged: 0,
            }
        });
        let keys = keys.collect();
        Some(Scene {
            disk,
            mib,
            running: None,
            rng: Rng::with_seed(mib),
            keys,
            written: 0,
        })
    }

    fn start(&mut self) -> Client {
        let data = self.disk.path().join("data");
        let data = data.to_str().unwrap();
        let args = [
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--admin",
            "off",
            "--control",
            "off",
            "--durability",
            "sync",
            "--workers",
            "2",
            "--data",
            data,
        ];
        let mut running = Running::from(self.disk.tidewire(&args).spawn().unwrap());
        let line = running.line();
        assert!(
            !line.is_empty(),
            "{}",
            crate::common::stderr(&running.end())
        );
        let mut client = Client::connect(addr(&line)).unwrap();
        let began = Instant::now();
        while matches!(client.ask("PING").unwrap(), Reply::Line(text) if text.starts_with("LOADING"))
        {
            assert!(began.elapsed() < PATIENCE, "it finds no end of loading");
        }
        self.running = Some(running);
        client
    }

    fn kill(&mut self) {
        let running = self.running.take().unwrap();
        running.signal(Signal::KILL);
        running.end();
    }

    /// Everything that was acknowledged is there, and nothing that was never sent.
    fn check(&mut self, client: &mut Client) {
        for key in &mut self.keys {
            let found = key.found(client);
            assert!(
                (key.acknowledged..=key.sent).contains(&found),
                "{}: {found} is there, {} was acknowledged, {} sent",
                key.name,
                key.acknowledged,
                key.sent
            );
            // Changes that were not acknowledged may have gone.
            (key.sent, key.acknowledged) = (found, found);
        }
    }

    /// Overwrites until so many bytes were written in all; the server is killed now and then with commands under way.
    fn overwrite(&mut self, until: u64) {
        let mut client = self.start();
        let mut kills = 0;
        let mut sent: VecDeque<usize> = VecDeque::new();
        while self.written < until {
            let lines: Vec<String> = (0..PIPELINE)
                .map(|_| {
                    let at = self.rng.usize(..self.keys.len());
                    sent.push_back(at);
                    self.written += self.keys[at].bytes as u64;
                    self.keys[at].change()
                })
                .collect();
            client.send(&lines).unwrap();
            let is_killed = self.written > (kills + 1) * until / 5;
            let replies = if is_killed {
                self.rng.usize(..PIPELINE)
            } else {
                PIPELINE
            };
            for _ in 0..replies {
                let at = sent.pop_front().unwrap();
                let reply = client.reply().unwrap();
                let is_refused = matches!(&reply, Reply::Line(text) if text != "OK");
                assert!(!is_refused, "{reply:?} after {} MiB", self.written / MIB);
                self.keys[at].acknowledged += 1;
            }
            if is_killed {
                kills += 1;
                sent.clear();
                self.kill();
                client = self.start();
                self.check(&mut client);
            }
        }
        assert!(kills >= 4, "{kills} kills");
        self.check(&mut client);
        drop(client);
        self.kill();
    }

    /// Fills the disk with new keys until one is refused; how many were taken.
    fn fill(&mut self, client: &mut Client, bytes: usize) -> u64 {
        let value = "x".repeat(bytes);
        for n in 0.. {
            match client.ask(&format!("SET fill:{n} {value}")).unwrap() {
                Reply::Line(text) if text == "OK" => {}
                Reply::Line(text) if text.starts_with("MISCONF the disk") => return n,
                other => panic!("{other:?}"),
            }
            assert!(
                n * (bytes as u64) < self.mib * MIB,
                "the disk takes everything"
            );
        }
        unreachable!("a number has no end")
    }

    /// Asks until a change is taken that makes more; how long that was.
    fn comes_back(&mut self, client: &mut Client) -> Duration {
        let began = Instant::now();
        let line = format!("SET back {}", "x".repeat(100_000));
        while client.ask(&line).unwrap() != Reply::Line("OK".into()) {
            assert!(began.elapsed() < PATIENCE, "writes do not come back");
            std::thread::sleep(Duration::from_millis(5));
        }
        began.elapsed()
    }

    fn run(&mut self) {
        let began = Instant::now();
        self.overwrite(10 * self.mib * MIB);
        let overwritten = began.elapsed();
        let mut client = self.start();
        self.check(&mut client);
        let taken = self.fill(&mut client, 40_000);
        let ok = Reply::Line("OK".into());
        assert_eq!(client.ask("DEL fill:0").unwrap(), Reply::Int(1));
        assert_eq!(client.ask("UNLINK fill:1").unwrap(), Reply::Int(1));
        assert_eq!(client.ask("EXPIRE fill:2 1000").unwrap(), Reply::Int(1));
        assert_eq!(client.ask("FUNCTION FLUSH").unwrap(), ok);
        // A snapshot that the store makes by itself is not the one that is asked for.
        let began = Instant::now();
        let saved = loop {
            match client.ask("SAVE").unwrap() {
                Reply::Line(text) if text.contains("already in progress") => {
                    assert!(began.elapsed() < PATIENCE, "it finds no end");
                }
                reply => break reply,
            }
        };
        assert_eq!(saved, ok);
        // A start on a full disk is no different.
        self.kill();
        let mut client = self.start();
        self.check(&mut client);
        assert_eq!(
            client.ask(&format!("STRLEN fill:{}", taken - 1)).unwrap(),
            Reply::Int(40_000)
        );
        self.fill(&mut client, 40_001);
        let removed = Instant::now();
        for n in 0..taken {
            let reply = client.ask(&format!("DEL fill:{n}")).unwrap();
            assert!(
                matches!(reply, Reply::Int(_)),
                "{reply:?} at {n} of {taken}"
            );
        }
        let removed = removed.elapsed();
        let after_del = self.comes_back(&mut client);
        self.check(&mut client);
        self.fill(&mut client, 40_000);
        assert_eq!(client.ask("FLUSHALL").unwrap(), ok);
        let after_flush = self.comes_back(&mut client);
        self.kill();
        let mut client = self.start();
        assert_eq!(client.ask("DBSIZE").unwrap(), Reply::Int(1));
        eprintln!(
            "{} MiB: {} MiB overwritten in {overwritten:.1?}; {taken} keys of 40 kB filled it; DEL of all took {removed:.1?}; \
             writes were back {after_del:.2?} after DEL, {after_flush:.2?} after FLUSHALL",
            self.mib,
            10 * self.mib
        );
    }
}

#[test]
fn a_small_disk_is_overwritten_for_ever_and_filled_it_heals() {
    if let Some(mut scene) = Scene::new(64) {
        scene.run();
    }
}

#[test]
#[ignore = "minutes, and gigabytes of memory: asked for by name"]
fn on_disks_of_many_sizes() {
    for mib in [64, 80, 120, 200, 300, 400, 600, 1000] {
        let Some(mut scene) = Scene::new(mib) else {
            return;
        };
        scene.run();
    }
}
