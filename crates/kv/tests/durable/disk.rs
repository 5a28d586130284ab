//! A log on a simulated disk, and what is in a store.

use std::sync::Arc;
use std::time::Duration;

use tidewire_kv::commands::find;
use tidewire_kv::durable::snapshot::{Found, Keeper};
use tidewire_kv::durable::{KvLog, open_with};
use tidewire_kv::hash::HashKey;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{self, Mistakes, Store};
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{EmbeddedLog, Now, Policy, Step, Writer};

use crate::wire::Value;

/// A store that commits to a log on a disk.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) log: Arc<KvLog>,
    pub(crate) writer: Writer<SimDisk>,
    pub(crate) embedded: Arc<EmbeddedLog<SimDisk>>,
    pub(crate) found: Option<Found>,
}

impl Opened {
    /// What makes its snapshots; takes the store from here on.
    pub(crate) fn keep(self) -> (Arc<Store>, Arc<KvLog>, Writer<SimDisk>, Keeper<SimDisk>) {
        let store = Arc::new(self.store);
        let keeper = Keeper::new(self.embedded, self.log.clone(), store.clone(), self.found);
        (store, self.log, self.writer, keeper)
    }
}

/// Settings under which everything happens soon.
pub(crate) fn small(policy: Policy) -> tidewire_log::Settings {
    tidewire_log::Settings {
        segment_bytes: 64 << 10,
        group_bytes: 32 << 10,
        group_first: 8 << 10,
        payload_max: 16 << 10,
        identity: Some(7),
        ..KvLog::settings(policy)
    }
}

/// Opens what is on the disk.
pub(crate) fn open(
    disk: &SimDisk,
    settings: store::Settings,
    mistakes: Mistakes,
    now_ms: u64,
) -> Result<Opened, String> {
    open_at(Policy::Sync, disk, settings, mistakes, now_ms)
}

/// [`open`] at another level.
pub(crate) fn open_at(
    policy: Policy,
    disk: &SimDisk,
    settings: store::Settings,
    mistakes: Mistakes,
    now_ms: u64,
) -> Result<Opened, String> {
    open_with_log(small(policy), disk, settings, mistakes, now_ms)
}

/// [`open_at`] with a log of other sizes.
pub(crate) fn open_with_log(
    log: tidewire_log::Settings,
    disk: &SimDisk,
    settings: store::Settings,
    mistakes: Mistakes,
    now_ms: u64,
) -> Result<Opened, String> {
    let opened = EmbeddedLog::open(disk.clone(), log);
    let (log, mut writer, _) = opened.map_err(|error| error.to_string())?;
    let embedded = Arc::new(log);
    let settings = store::Settings {
        mistakes,
        ..settings
    };
    let mut store = Store::new(settings);
    let opened = open_with(embedded.clone(), &mut store, now_ms, |_, _, _| {}, mistakes);
    let (log, replayed) = opened.map_err(|error| error.to_string())?;
    settle(&mut writer, 0);
    log.update();
    Ok(Opened {
        store,
        log,
        writer,
        embedded,
        found: replayed.snapshot,
    })
}

/// The same order of keys for the same seed.
pub(crate) fn settings(seed: u64) -> store::Settings {
    store::Settings {
        hash_key: HashKey::from_seed(seed),
        shards: 1 << (seed % 4),
        databases: 3,
        ..store::Settings::default()
    }
}

pub(crate) fn now(ms: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(ms),
        unix_us: 1000 * ms,
    }
}

/// One step of the writer.
pub(crate) fn step(writer: &mut Writer<SimDisk>, ms: u64) -> bool {
    writer.step(now(ms)) == Step::Worked
}

/// Steps until there is nothing more to do.
pub(crate) fn settle(writer: &mut Writer<SimDisk>, ms: u64) {
    for _ in 0..10_000 {
        if !step(writer, ms) {
            return;
        }
    }
    panic!("the writer finds no end");
}

/// Runs a command.
pub(crate) fn ask(store: &Store, now_ms: u64, db: u16, args: &[&[u8]]) -> Value {
    let mut reply = Reply::new(Proto::Resp2);
    let spec = find(args[0]).expect("a command");
    assert!(spec.takes(args.len()), "{args:?}");
    let ran = store.runner(now_ms, now_ms).run(spec, db, args, &mut reply);
    assert!(matches!(ran, store::Ran::Done), "{args:?}");
    Value::parse(reply.bytes()).expect("a reply").0
}

/// [`ask`] with a line of words.
pub(crate) fn line(store: &Store, now_ms: u64, line: &str) -> Value {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    ask(store, now_ms, 0, &args)
}

/// All that is in a store at a time, in an order of its own.
pub(crate) fn dump(store: &Store, now_ms: u64) -> Vec<String> {
    let mut all = Vec::new();
    for db in 0..store.databases() {
        let ask = |args: &[&str]| {
            let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
            ask(store, now_ms, db, &args)
        };
        for key in ask(&["KEYS", "*"]).array() {
            let key = key.text();
            let kind = ask(&["TYPE", &key]).text();
            let mut value = match &kind[..] {
                "string" => vec![ask(&["GET", &key])],
                "list" => ask(&["LRANGE", &key, "0", "-1"]).array(),
                "set" => ask(&["SMEMBERS", &key]).array(),
                "zset" => ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).array(),
                _ => ask(&["HGETALL", &key]).array(),
            };
            if kind == "hash" {
                let pairs = value.chunks(2).map(|pair| Value::Array(pair.to_vec()));
                value = pairs.collect();
            }
            if kind == "hash" || kind == "set" {
                value.sort_by_key(|value| format!("{value:?}"));
            }
            let deadline = ask(&["PEXPIRETIME", &key]).number();
            all.push(format!("{db} {key} {kind} {deadline} {value:?}"));
        }
    }
    all.sort();
    all
}
