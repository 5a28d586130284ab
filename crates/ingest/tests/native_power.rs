//! The whole of it in one simulation: producers on a simulated network, the production server, the
//! production log on a disk that fails to write or to sync, and loses power. What was acknowledged as durable is there afterwards,
//! once, in order and with the right bytes.
//!
//! `TIDEWIRE_SEEDS=n` runs n seeds, `TIDEWIRE_SEED=s` only the seed s.

#[path = "common/native.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod native;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use native::{Frame, frames, hello, messages, payload, produce, settings};
use tidewire::sim::Sim;
use tidewire_ingest::native::IngestService;
use tidewire_ingest::native::codec::{Hello, Reason, parser};
use tidewire_log::disk::sim::{Faults, SimDisk};
use tidewire_log::{Credit, EmbeddedLog, Log, Mistakes, Now, Settings, Step, Writer};

const PRODUCERS: [&str; 4] = ["a", "b", "c", "d"];

/// How many seeds a plain run tries.
const SEEDS: u64 = 100;

fn seeds() -> Range<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    match number("TIDEWIRE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEWIRE_SEEDS").unwrap_or(SEEDS),
    }
}

/// A few numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        // Weyl's sequence, mixed: plenty for choosing where to crash.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ (mixed >> 32)) % n
    }
}

fn log_settings(mistakes: Mistakes) -> Settings {
    Settings {
        mistakes,
        segment_bytes: 32 << 10,
        group_bytes: 8 << 10,
        payload_max: 1000,
        identity: Some(7),
        ..Settings::default()
    }
}

/// The ids that each producer has in a log, in the order in which they are read.
fn contents(log: &dyn Log) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut at = 0;
    loop {
        let read = log.read("default", at, Credit(10_000)).unwrap();
        if read.runs.is_empty() {
            return all;
        }
        for run in read.runs {
            let ids = all.entry(run.producer.to_string()).or_default();
            for frame in parser(1000).parse(&run.bytes).frames() {
                let id = u64::from_le_bytes(frame.id);
                assert_eq!(frame.payload, payload(id));
                ids.push(id);
            }
        }
        at = read.next;
    }
}

/// One life of the server on this disk, until power is lost, by itself or after another fault. What was acknowledged
/// is added to `acked`.
fn live(
    disk: &SimDisk,
    settings_of_log: Settings,
    seed: u64,
    draw: &mut Draw,
    acked: &mut BTreeMap<&str, u64>,
) {
    let (power, sync, write) = (draw.below(120), draw.below(30), draw.below(60));
    let mut faults = Faults::default();
    match draw.below(4) {
        0 => faults.sync = Some(1 + sync),
        1 => faults.write = Some(1 + write),
        _ => faults.power = Some(1 + power),
    }
    disk.set_faults(faults);
    // It may have struck while the log was opened.
    let Ok((log, mut writer, _)) = EmbeddedLog::open(disk.clone(), settings_of_log) else {
        return;
    };
    let log = Arc::new(log);
    let mut sim = Sim::new(seed);
    let settings = settings();
    let limits = settings.limits();
    let service = Arc::new(IngestService::new(log.clone(), settings));
    let addr = sim.serve(service, limits);
    let clients = PRODUCERS.map(|name| {
        let client = sim.plain(&addr);
        let from = acked.get(name).copied().unwrap_or(0) + 1;
        let mut bytes = hello(Hello::Produce(produce(name)));
        bytes.extend(messages(from..from + 20 + draw.below(600)));
        sim.send(client, &bytes);
        (name, client)
    });
    for _ in 0..300 {
        sim.run_for(Duration::from_micros(100 + draw.below(3000)));
        step(&mut writer, &sim, draw.below(4));
    }
    sim.run_for(Duration::from_millis(50));
    for (name, client) in clients {
        for frame in frames(sim.received(client)) {
            let best = acked.entry(name).or_default();
            match frame {
                Frame::Ack(id) => *best = id.max(*best),
                Frame::Welcome { last_id, .. } => {
                    assert!(last_id.unwrap_or(0) >= *best, "{name} was promised {best}");
                }
                Frame::KeepAlive(_) => {}
                // A disk without power has no room for the next segment either.
                Frame::Refusal {
                    reason: Reason::LogFailed | Reason::DiskFull,
                    ..
                } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn step(writer: &mut Writer<SimDisk>, sim: &Sim, most: u64) {
    for _ in 0..most {
        let now = Now {
            monotonic: Duration::from_nanos(sim.now().as_nanos()),
            unix_us: sim.now().as_nanos() / 1000,
        };
        if writer.step(now) != Step::Worked {
            return;
        }
    }
}

/// A few lives of a server on one disk. How many messages were acknowledged.
fn lives(seed: u64, mistakes: Mistakes) -> u64 {
    let mut draw = Draw(seed);
    let mut disk = SimDisk::new(seed);
    let mut acked: BTreeMap<&str, u64> = BTreeMap::new();
    for life in 0..4 {
        let settings = log_settings(mistakes);
        live(
            &disk,
            settings.clone(),
            seed * 4 + life,
            &mut draw,
            &mut acked,
        );
        disk = disk.crash();
        let found = EmbeddedLog::open(disk.fork(), settings);
        let (log, ..) = found.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let contents = contents(&log);
        for (name, &acked) in &acked {
            let ids = contents.get(*name).map_or(&[][..], |ids| ids);
            assert!(
                ids.iter().copied().eq(1..=ids.len() as u64),
                "seed {seed}, life {life}, {name}: {ids:?}"
            );
            assert!(
                ids.len() as u64 >= acked,
                "seed {seed}, life {life}, {name}: {acked} acknowledged, {} there",
                ids.len()
            );
        }
    }
    acked.values().sum()
}

#[test]
fn what_was_acknowledged_survives_failures_and_losses_of_power() {
    let total: u64 = seeds().map(|seed| lives(seed, Mistakes::default())).sum();
    println!("{total} messages were acknowledged");
    assert!(total > 0, "nothing was ever acknowledged");
}

/// A check that cannot fail proves nothing.
#[test]
fn planted_mistakes_are_found() {
    let none = Mistakes::default();
    for mistakes in [
        Mistakes {
            ack_before_sync: true,
            ..none
        },
        Mistakes {
            retry_sync: true,
            ..none
        },
    ] {
        let found = (0..500).find(|&seed| catch_unwind(|| lives(seed, mistakes)).is_err());
        println!("{mistakes:?}: seed {found:?}");
        assert!(found.is_some(), "{mistakes:?} was not found");
    }
}
