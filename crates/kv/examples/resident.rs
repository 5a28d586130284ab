//! What a million keys cost: resident bytes for each, and the time of SET and GET in batches.
//!
//! `cargo run --release -p tidewire-kv --example resident [shards]`

#![allow(clippy::disallowed_methods)] // a measurement needs a clock

use std::time::Instant;

use tidewire_kv::commands::find;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Settings, Store};

const KEYS: u64 = 1_000_000;
const BATCH: usize = 16;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn main() {
    let shards = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let store = Store::new(Settings {
        shards: shards.unwrap_or(64),
        ..Settings::default()
    });
    let (set, get) = (find(b"set").unwrap(), find(b"get").unwrap());
    let mut reply = Reply::new(Proto::Resp2);
    let mut rng = fastrand::Rng::with_seed(1);
    let before = resident();
    for round in ["SET in order", "SET at random", "GET at random"] {
        let began = Instant::now();
        for n in 0..KEYS / BATCH as u64 {
            let number = |i| match round {
                "SET in order" => n * BATCH as u64 + i,
                _ => rng.u64(..KEYS),
            };
            let keys: Vec<String> = (0..BATCH as u64)
                .map(number)
                .map(|i| format!("memtier-{i:09}"))
                .collect();
            let value = [b'v'; 64];
            let args: Vec<[&[u8]; 3]> = keys
                .iter()
                .map(|key| [&b"x"[..], key.as_bytes(), &value])
                .collect();
            let (spec, len) = if round.starts_with("SET") {
                (set, 3)
            } else {
                (get, 2)
            };
            let mut runner = store.runner(1, n);
            runner.prefetch(0, args.iter().map(|args| (spec, &args[..len])));
            for args in &args {
                runner.run(spec, 0, &args[..len], &mut reply);
            }
            reply.clear();
        }
        let ns = began.elapsed().as_nanos() as f64 / KEYS as f64;
        println!("{round}: {ns:.0} ns a command, with the making of its key");
    }
    println!(
        "resident {:.1} bytes a key, counted {:.1}",
        (resident() - before) as f64 / KEYS as f64,
        store.used_memory() as f64 / KEYS as f64
    );
}
