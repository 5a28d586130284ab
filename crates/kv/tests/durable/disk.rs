//! A log on a simulated disk, and what is in a store.

use std::ops::ControlFlow::Continue;
use std::sync::Arc;
use std::time::Duration;

use tidewire_kv::commands::find;
use tidewire_kv::durable::snapshot::{Found, Keeper};
use tidewire_kv::durable::{Accept, KvLog, open_with};
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
    let store = Store::new(settings);
    let opened = open_with(
        embedded.clone(),
        &store,
        now_ms,
        Accept::Nothing,
        |_, _, _| Continue(()),
        mistakes,
    );
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

/// Equal seeds give equal orders of keys.
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

/// All that is in a store at a time, in an order of its own. Of a value it tells the beginning, and a sum that
/// another value hardly has.
pub(crate) fn dump(store: &Store, now_ms: u64) -> Vec<String> {
    let mut all = Vec::new();
    for db in 0..store.databases() {
        let keys = reply(store, now_ms, db, &[b"KEYS", b"*"]);
        for key in elements(&keys) {
            all.push(dump_key(store, now_ms, db, key));
        }
    }
    all.sort();
    all
}

/// Takes out when consumers asked last: what was answered with nothing is not kept.
fn without_seen(value: &mut Value) {
    if let Value::Array(parts) = value {
        for at in 1..parts.len() {
            if parts[at - 1] == Value::Bulk("seen-time".into()) {
                parts[at] = Value::Null;
            }
        }
        parts.iter_mut().for_each(without_seen);
    }
}

fn dump_key(store: &Store, now_ms: u64, db: u16, key: &[u8]) -> String {
    let ask = |args: &[&[u8]]| reply(store, now_ms, db, args);
    let kind = ask(&[b"TYPE", key]);
    let value = match &kind[..] {
        b"+string\r\n" => ask(&[b"GET", key]),
        b"+list\r\n" => ask(&[b"LRANGE", key, b"0", b"-1"]),
        b"+set\r\n" => ask(&[b"SMEMBERS", key]),
        b"+zset\r\n" => ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]),
        b"+stream\r\n" => {
            let all: [&[u8]; 6] = [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"];
            let mut all = Value::parse(&ask(&all)).expect("a reply").0;
            without_seen(&mut all);
            let text = format!("{all:?}");
            format!("${}\r\n{text}\r\n", text.len()).into_bytes()
        }
        _ => ask(&[b"HGETALL", key]),
    };
    let mut parts: Vec<(&[u8], &[u8])> = match &kind[..] {
        b"+hash\r\n" => {
            let mut both = elements(&value);
            std::iter::from_fn(|| Some((both.next()?, both.next()?))).collect()
        }
        _ => elements(&value)
            .map(|element| (element, &b""[..]))
            .collect(),
    };
    if matches!(&kind[..], b"+hash\r\n" | b"+set\r\n") {
        parts.sort_unstable();
    }
    let (mut sum, mut bytes) = (0, 0);
    let mut beginning = String::new();
    for part in parts.iter().flat_map(|&(first, second)| [first, second]) {
        sum = summed(sum, part);
        bytes += part.len();
        if beginning.len() < 200 {
            beginning += &format!(" {}", part[..part.len().min(100)].escape_ascii());
        }
    }
    let deadline = ask(&[b"PEXPIRETIME", key]);
    let (key, count) = (key.escape_ascii(), parts.len());
    let kind = kind[1..].trim_ascii_end().escape_ascii();
    let deadline = deadline.trim_ascii_end().escape_ascii();
    format!("{db} {key} {kind} {deadline} {count} of {bytes} bytes, {sum:016x}:{beginning}")
}

/// The answer of a command as it is sent.
fn reply(store: &Store, now_ms: u64, db: u16, args: &[&[u8]]) -> Vec<u8> {
    let mut reply = Reply::new(Proto::Resp2);
    let spec = find(args[0]).expect("a command");
    let ran = store.runner(now_ms, now_ms).run(spec, db, args, &mut reply);
    assert!(matches!(ran, store::Ran::Done), "{args:?}");
    reply.bytes().to_vec()
}

/// The texts in an answer: of an array of them, or the one that it is.
fn elements(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end_of_line = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\r');
    let mut rest = match reply.first() {
        Some(b'*') => &reply[end_of_line(reply).expect("a line") + 2..],
        _ => reply,
    };
    std::iter::from_fn(move || {
        let line = end_of_line(rest)?;
        assert_eq!(rest[0], b'$', "a text");
        let size = std::str::from_utf8(&rest[1..line]).expect("digits");
        let size: usize = size.parse().expect("a size");
        let (text, behind) = rest[line + 2..].split_at(size);
        rest = &behind[2..];
        Some(text)
    })
}

/// A sum of a text behind earlier ones.
fn summed(before: u64, text: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    };
    let (words, end) = text.as_chunks();
    let sum = words
        .iter()
        .fold(mix(before, text.len() as u64), |sum, word| {
            mix(sum, u64::from_le_bytes(*word))
        });
    end.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}
