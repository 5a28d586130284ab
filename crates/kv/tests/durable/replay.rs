//! Commands of all kinds, then a crash when all was committed: replay gives the same store.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use fastrand::Rng;
use tidewire::sim::for_each_seed;
use tidewire_kv::commands::{Spec, all, find};
use tidewire_kv::durable::{self, Accept, STREAM};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{self, Mistakes, NoRoom, Policy};
use tidewire_log::disk::sim::{SimDisk, Survival};
use tidewire_log::{Log, ProducerId, Run};

use crate::disk::{ask, dump, line, open, settings, settle, step};
use crate::wire::Value;

/// Where time begins; milliseconds since 1970.
pub(crate) const START: u64 = 1_700_000_000_000;

/// Lines of all commands that write, and some others. The last [`RARE`] leave little.
const LINES: &[&str] = &[
    "SET k v",
    "SET k v PX t",
    "SET k v NX PX t",
    "SET k v XX KEEPTTL",
    "SETNX k v",
    "SETEX k 1 v",
    "PSETEX k t v",
    "GETSET k v",
    "GETEX k PX t",
    "GETEX k PERSIST",
    "GETDEL k",
    "APPEND k v",
    "SETRANGE k 3 v",
    "SETBIT k 9 1",
    "INCRBY n 3",
    "INCR n",
    "DECR n",
    "INCRBYFLOAT n 0.1",
    "MSET k v k v",
    "MSETNX k v k v",
    "DEL k k",
    "UNLINK k",
    "EXPIRE k 0",
    "PEXPIRE k t",
    "PEXPIRE k t NX",
    "PEXPIREAT k 1",
    "PERSIST k",
    "RENAME k k",
    "RENAMENX k k",
    "COPY k k",
    "COPY k k DB 1 REPLACE",
    "COPY k k DB 1",
    "MOVE k 1",
    "RPUSH l v v",
    "LPUSH l v",
    "LPUSHX l v",
    "RPUSHX l v",
    "LPOP l",
    "RPOP l 2",
    "LTRIM l 0 3",
    "LSET l 0 v",
    "LINSERT l BEFORE v v",
    "LREM l 0 v",
    "LMOVE l l LEFT RIGHT",
    "LMPOP 2 l l RIGHT COUNT 2",
    "RPOPLPUSH l l",
    "HSET h v v v v",
    "HSETNX h v v",
    "HDEL h v",
    "HINCRBY h n 2",
    "HINCRBYFLOAT h n 0.3",
    "SADD s v v v",
    "SREM s v",
    "SPOP s",
    "SPOP s 2",
    "SMOVE s s v",
    "SUNIONSTORE s s s",
    "SDIFFSTORE s s s",
    "SINTERSTORE s s s",
    "ZADD z 1 v 2 v",
    "ZADD z GT CH 3 v",
    "ZINCRBY z 0.5 v",
    "ZREM z v",
    "ZPOPMIN z",
    "ZPOPMAX z 2",
    "ZMPOP 2 z z MIN",
    "ZUNIONSTORE z 2 z z",
    "ZRANGESTORE z z 0 2",
    "ZREMRANGEBYRANK z 0 0",
    "SORT l ALPHA STORE l",
    "SORT s ALPHA BY w* STORE l",
    "BITOP OR k k k",
    "BITFIELD k SET u8 3 7 INCRBY i5 #2 9",
    "BITFIELD k OVERFLOW FAIL INCRBY u2 90 3",
    "PFADD p v v v",
    "PFADD p v",
    "PFMERGE p p p",
    "PFDEBUG TODENSE p",
    "GEOADD z 13.3 38.1 v 15.1 37.5 v",
    "GEOSEARCHSTORE z z FROMLONLAT 15 37 BYRADIUS 200 km",
    "GEOSEARCHSTORE z z FROMLONLAT 15 37 BYBOX 400 400 km STOREDIST",
    "GEORADIUS z 15 37 300 km STORE z",
    "GEORADIUSBYMEMBER z v 300 km STOREDIST z",
    "RESTORE l 0 payload",
    "RESTORE l t payload REPLACE",
    "RESTORE l 1 payload REPLACE ABSTTL",
    "RESTORE-ASKING l 0 payload REPLACE IDLETIME 7",
    "TOUCH k",
    "GET k",
    "LRANGE l 0 -1",
    "PEXPIRE l t",
    "PEXPIRE s t",
    "PEXPIRE h t",
    "PEXPIRE z t",
    "BLPOP l l 0",
    "BRPOP l 0",
    "BLMOVE l l LEFT RIGHT 0",
    "BRPOPLPUSH l l 0",
    "BLMPOP 0 2 l l RIGHT",
    "BZMPOP 0 2 z z MAX",
    "BZPOPMAX z 0",
    "BZPOPMIN z z 0",
    "DECRBY n 2",
    "EXPIREAT k 1",
    "HMSET h v v",
    "ZDIFFSTORE z 2 z z",
    "ZINTERSTORE z 2 z z",
    "ZREMRANGEBYLEX z [v1 [v3",
    "ZREMRANGEBYSCORE z 1 2",
    "XADD e * f v",
    "XADD e * f v f v",
    "XADD e NOMKSTREAM * f v a v",
    "XADD e MAXLEN 7 * f v",
    "XADD e MAXLEN ~ 7 * f v",
    "XADD e MINID i * f v",
    "XTRIM e MAXLEN 3",
    "XTRIM e MAXLEN ~ 0",
    "XTRIM e MINID i",
    "XDEL e i i",
    "XSETID e i",
    "XSETID e i ENTRIESADDED 900 MAXDELETEDID 0-1",
    "XGROUP CREATE e g 0 MKSTREAM",
    "XGROUP CREATE e g $ MKSTREAM ENTRIESREAD 2",
    "XGROUP SETID e g i",
    "XGROUP CREATECONSUMER e g c",
    "XGROUP DELCONSUMER e g c",
    "XGROUP DESTROY e g",
    "XREADGROUP GROUP g c COUNT 2 STREAMS e >",
    "XREADGROUP GROUP g c STREAMS e >",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS e e > >",
    "XREADGROUP GROUP g c NOACK STREAMS e >",
    "XREADGROUP GROUP g c STREAMS e 0",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS e e i >",
    "XACK e g i i i",
    "XCLAIM e g c 0 i i JUSTID",
    "XCLAIM e g c 5 i i FORCE",
    "XCLAIM e g c 0 i IDLE 7 LASTID i",
    "XAUTOCLAIM e g c 3 0 COUNT 2",
    "XREAD COUNT 2 STREAMS e 0",
    "PEXPIRE e t",
    "DBSIZE",
    "SCAN 0",
    "RANDOMKEY",
    "FLUSHDB",
    "SWAPDB 0 1",
    "FLUSHALL",
];
const RARE: usize = 3;

/// A command by chance: of all types, on few keys, many of which expire soon.
pub(crate) fn any(rng: &mut Rng) -> String {
    let chosen = match rng.u8(..20) {
        // Few commands that leave nothing.
        0 => rng.usize(..LINES.len()),
        _ => rng.usize(..LINES.len() - RARE),
    };
    let word = |word: &str| match word {
        "k" | "l" | "h" | "s" | "z" if rng.u8(..30) == 0 => "k1".to_owned(),
        "k" | "l" | "h" | "s" | "z" => format!("{word}{}", rng.u8(..3)),
        "e" => format!("e{}", rng.u8(..2)),
        "g" => format!("g{}", rng.u8(..2)),
        "c" => format!("c{}", rng.u8(..2)),
        // About when entries of some seed are added.
        "i" => format!("{}-{}", START + rng.u64(..100), rng.u8(..2)),
        "n" => format!("n{}", rng.u8(..2)),
        "p" => format!("p{}", rng.u8(..2)),
        "v" => format!("v{}", rng.u8(..6)),
        "t" => rng.u8(1..40).to_string(),
        word => word.to_owned(),
    };
    LINES[chosen]
        .split(' ')
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A list of two, as DUMP has it.
static PAYLOAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    tidewire_rdb::dump(&tidewire_rdb::Value::List(vec![
        b"a".to_vec(),
        b"b".to_vec(),
    ]))
});

pub(crate) fn parsed(line: &str) -> (&'static Spec, Vec<&[u8]>) {
    let args = line.split(' ').map(|word| match word {
        "payload" => &PAYLOAD[..],
        word => word.as_bytes(),
    });
    let args: Vec<&[u8]> = args.collect();
    (find(args[0]).unwrap_or_else(|| panic!("{line}")), args)
}

/// What is wrong, if anything.
pub(crate) fn same(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    let rng = &mut Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let mut opened = open(&disk, settings(seed), mistakes, START)?;
    if rng.u8(..4) == 0 {
        opened.store.set_maxmemory(rng.u64(2_000..8_000));
        let policies = [
            Policy::AllKeysRandom,
            Policy::AllKeysLru,
            Policy::VolatileTtl,
        ];
        opened.store.set_policy(policies[rng.usize(..3)]);
    }
    let mut now_ms = START;
    let mut trace = Vec::new();
    for _ in 0..rng.usize(1..80) {
        now_ms += rng.u64(..8);
        let store = &opened.store;
        match rng.u8(..12) {
            0 => {
                let swept = store.expire(now_ms).removed;
                trace.push(format!("{now_ms} expired {swept}"));
            }
            1 | 2 => {
                let lines: Vec<String> = (0..rng.usize(1..5)).map(|_| any(rng)).collect();
                trace.push(format!("{now_ms} {lines:?}"));
                let commands: Vec<_> = lines.iter().map(|line| parsed(line)).collect();
                let each = || commands.iter().map(|(spec, args)| (*spec, &args[..]));
                let mut reply = Reply::new(Proto::Resp2);
                let mut runner = store.runner(now_ms, rng.u64(..));
                if !runner.make_room(each()) {
                    continue;
                }
                match runner.reserve(each()) {
                    Ok(()) => {}
                    Err(NoRoom::Busy) => continue,
                    Err(why) => return Err(why.to_string()),
                }
                assert!(runner.begin(each(), Vec::new()));
                for (spec, args) in each() {
                    let _ = runner.run(spec, 0, args, &mut reply);
                }
                runner.end();
            }
            3 => drop(step(&mut opened.writer, now_ms - START)),
            _ => {
                let mut runner = store.runner(now_ms, rng.u64(..));
                for _ in 0..rng.usize(1..4) {
                    let line = any(rng);
                    trace.push(format!("{now_ms} {line}"));
                    let (spec, args) = parsed(&line);
                    let db = u16::from(rng.u8(..8) == 0);
                    let _ = runner.run(spec, db, &args, &mut Reply::new(Proto::Resp2));
                }
            }
        }
    }
    settle(&mut opened.writer, now_ms - START);
    let before = dump(&opened.store, now_ms);
    let again = open(
        &disk.crash_with(Survival::Nothing),
        settings(seed + 1),
        mistakes,
        now_ms,
    )?;
    let after = dump(&again.store, now_ms);
    if before == after {
        return Ok(());
    }
    let lost: Vec<_> = before.iter().filter(|x| !after.contains(x)).collect();
    let made: Vec<_> = after.iter().filter(|x| !before.contains(x)).collect();
    Err(format!(
        "seed {seed}: {lost:#?} became {made:#?} by {trace:#?}"
    ))
}

/// A crash within a transaction, when the log has written all that it was given: nothing of it is there.
pub(crate) fn torn(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    let rng = &mut Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let mut opened = open(&disk, settings(seed), mistakes, START)?;
    line(&opened.store, START, "MSET k0 a k1 a");
    settle(&mut opened.writer, 0);
    let before = dump(&opened.store, START);
    let lines: Vec<String> = (0..4)
        .map(|at| format!("SET k{} {at}", rng.u8(..3)))
        .collect();
    let commands: Vec<_> = lines.iter().map(|line| parsed(line)).collect();
    let each = || commands.iter().map(|(spec, args)| (*spec, &args[..]));
    let mut runner = opened.store.runner(START, 1);
    runner.reserve(each()).map_err(|why| why.to_string())?;
    assert!(runner.begin(each(), Vec::new()));
    for (spec, args) in each().take(rng.usize(1..4)) {
        let _ = runner.run(spec, 0, args, &mut Reply::new(Proto::Resp2));
    }
    settle(&mut opened.writer, 0);
    let crashed = disk.fork();
    runner.end();
    let again = open(&crashed, settings(seed), mistakes, START)?;
    let after = dump(&again.store, START);
    if after == before {
        return Ok(());
    }
    Err(format!("half of {lines:?} is there: {after:?}"))
}

/// A log whose last record says that its unit goes on.
pub(crate) fn unclosed(seed: u64, mistakes: Mistakes) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let mut opened = open(&disk, settings(seed), mistakes, START)?;
    line(&opened.store, START, "MSET k0 a k1 a");
    let before = dump(&opened.store, START);
    let payload = b"\x01\x01\0\x03\x03SET\x02k0\x04half";
    let frame = [
        &START.to_le_bytes()[..],
        &(payload.len() as u32).to_le_bytes(),
        payload,
    ]
    .concat();
    let stream = opened
        .embedded
        .stream(STREAM)
        .map_err(|why| why.to_string())?;
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frame,
        count: 1,
        last_id: START,
        timestamp_us: 1000 * START,
    };
    opened.embedded.append(run).map_err(|why| why.to_string())?;
    settle(&mut opened.writer, 0);
    let crashed = disk.crash_with(Survival::Nothing);
    let again = open(&crashed, settings(seed), mistakes, START)?;
    let after = dump(&again.store, START);
    if after == before {
        return Ok(());
    }
    Err(format!("it was played: {after:?}"))
}

/// A new command has to be added to [`LINES`], so that its effect is known to replay.
#[test]
fn all_commands_that_write_are_replayed() {
    let named = |spec: &Spec| LINES.iter().any(|line| parsed(line).0.name == spec.name);
    let missing = all().filter(|spec| spec.is_write() && !named(spec));
    let missing: Vec<&str> = missing.map(|spec| spec.name).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_no_record_closes_counts_for_nothing() {
    for_each_seed(4, |seed| unclosed(seed, Mistakes::default()));
}

#[test]
fn nothing_of_a_transaction_is_there_before_its_end() {
    for_each_seed(100, |seed| torn(seed, Mistakes::default()));
}

#[test]
fn replay_gives_the_same_store() {
    for_each_seed(3_000, |seed| same(seed, Mistakes::default()));
}

/// Long enough for several stretches of many units each, with such in between as need several shards, or all.
#[test]
fn a_long_log_is_replayed_by_several_threads_to_the_same_store() {
    for seed in [2, 3] {
        let rng = &mut Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let mut opened = open(&disk, settings(seed), Mistakes::default(), START).unwrap();
        for _ in 0..30_000 {
            let (one, other, value) = (rng.u16(..2000), rng.u16(..2000), rng.u64(..));
            let text = match rng.u8(..60) {
                0 => any(rng),
                1 => format!("MSET key:{one} {value} key:{other} {value}"),
                2 => format!("RPUSH many {value}"),
                3 => format!("RENAMENX key:{one} key:{other}"),
                4 => format!("DEL key:{one}"),
                _ => format!("SET key:{one} {value:0>60}"),
            };
            let (spec, args) = parsed(&text);
            let mut reply = Reply::new(Proto::Resp2);
            let _ = opened
                .store
                .runner(START, 1)
                .run(spec, 0, &args, &mut reply);
            let _ = step(&mut opened.writer, 0);
        }
        settle(&mut opened.writer, 0);
        let before = dump(&opened.store, START);
        assert!(before.len() > 500, "{}", before.len());
        let crashed = disk.crash_with(Survival::Nothing);
        let again = open(&crashed, settings(seed + 1), Mistakes::default(), START).unwrap();
        assert!(dump(&again.store, START) == before, "seed {seed}");
    }
}

/// A value of several records, within a log whose records are short.
#[test]
fn a_unit_larger_than_a_record_is_whole_or_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = || {
        let settings = tidewire_kv::durable::KvLog::settings(tidewire_log::Policy::Sync);
        let (log, _) = tidewire_log::EmbeddedLog::start(directory.path(), settings).expect("a log");
        let store = store::Store::new(store::Settings::default());
        let log = std::sync::Arc::new(log);
        let go_on = |_: &_, _, _| ControlFlow::Continue(());
        let opened = durable::open(log.clone(), &store, 0, Accept::Nothing, go_on);
        (store, opened.expect("a store").1, log)
    };
    let large = vec![b'x'; 3 << 20];
    let (store, _, log) = start();
    assert_eq!(
        ask(&store, START, 0, &[b"SET", b"large", &large]),
        Value::ok()
    );
    let too_large = vec![b'x'; 65 << 20];
    for refused in [
        &[&b"SET"[..], b"k", &too_large][..],
        &[b"APPEND", b"large", &too_large],
    ] {
        let reply = ask(&store, START, 0, refused);
        assert!(
            matches!(&reply, Value::Error(text) if text.contains("one unit")),
            "{reply:?}"
        );
    }
    let read = ask(&store, START, 0, &[b"STRLEN", b"large"]);
    assert_eq!(read, Value::Int(large.len() as i64), "nothing was changed");
    tidewire_log::Log::progress(&*log);
    log.close();
    drop((store, log));
    let (store, replayed, _log) = start();
    assert_eq!((replayed.units, replayed.records), (1, 4));
    let read = ask(&store, START, 0, &[b"GET", b"large"]);
    assert_eq!(read, Value::Bulk(String::from_utf8(large).expect("text")));
}

#[test]
fn a_full_disk_refuses_changes_and_serves_reads() {
    let disk = SimDisk::new(1);
    let mut opened = open(&disk, settings(1), Mistakes::default(), START).expect("a store");
    disk.set_capacity(disk.used());
    let mut done = 0;
    let refused = loop {
        let reply = line(&opened.store, START, &format!("RPUSH l {done}"));
        match reply {
            Value::Int(n) => done = n,
            refused => break refused,
        }
        settle(&mut opened.writer, 0);
        assert!(done < 100_000);
    };
    assert!(
        matches!(&refused, Value::Error(text) if text.starts_with("MISCONF the disk")),
        "{refused:?}"
    );
    assert!(opened.log.is_full(), "INFO says so");
    assert_eq!(line(&opened.store, START, "LLEN l"), Value::Int(done));
    line(&opened.store, START, "LRANGE l 0 -1");
    // Nothing that expires is there any more for readers, though the log cannot say so.
    let before = opened.store.keyspace(0).keys;
    assert_eq!(opened.store.expire(START + 1).removed, 0);
    assert_eq!(opened.store.keyspace(0).keys, before);
    disk.set_capacity(u64::MAX);
    settle(&mut opened.writer, 10_000);
    assert!(!opened.log.is_full());
    assert_eq!(
        line(&opened.store, START, "RPUSH l again"),
        Value::Int(done + 1)
    );
    settle(&mut opened.writer, 20_000);
    let again = open(
        &disk.crash_with(Survival::Nothing),
        settings(2),
        Mistakes::default(),
        START,
    );
    assert_eq!(
        dump(&again.expect("a store").store, START),
        dump(&opened.store, START)
    );
}
