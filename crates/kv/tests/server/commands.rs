//! The commands about keys, strings, bits and expiry, through a runner: arguments in, reply out.

#![allow(clippy::disallowed_methods)] // threads contend for the keys

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tidewire_kv::commands::find;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Policy, Settings, Store};

const NOW: u64 = 1_700_000_000_000;

/// Runs a line of words on database 0 at a time; its reply, line ends as spaces.
fn at(store: &Store, now_ms: u64, proto: Proto, line: &str) -> String {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let spec = find(args[0]).unwrap_or_else(|| panic!("no command: {line}"));
    assert!(spec.takes(args.len()), "arity: {line}");
    let mut reply = Reply::new(proto);
    let mut runner = store.runner(now_ms, now_ms.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    runner.run(spec, 0, &args, &mut reply);
    let text = String::from_utf8_lossy(reply.bytes()).replace("\r\n", " ");
    text.trim_end().to_string()
}

fn check(store: &Store, now_ms: u64, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(at(store, now_ms, Proto::Resp2, line), *expected, "{line}");
    }
}

fn store() -> Store {
    Store::new(Settings::default())
}

#[test]
fn strings() {
    check(
        &store(),
        NOW,
        &[
            ("GET k", "$-1"),
            ("SET k v", "+OK"),
            ("SET k w NX", "$-1"),
            ("SET k w NX GET", "$1 v"),
            ("SET k w XX GET", "$1 v"),
            ("SET k w NX XX", "-ERR syntax error"),
            ("SET k w EX 0", "-ERR invalid expire time in 'set' command"),
            (
                "SET k w EX x",
                "-ERR value is not an integer or out of range",
            ),
            ("SET k w EX 1 PX 1", "-ERR syntax error"),
            ("SET none v XX", "$-1"),
            ("GETSET k x", "$1 w"),
            ("APPEND k yz", ":3"),
            ("APPEND new ab", ":2"),
            ("STRLEN k", ":3"),
            ("GETRANGE k 0 -2", "$2 xy"),
            ("GETRANGE k -2 -1", "$2 yz"),
            ("GETRANGE k 5 9", "$0"),
            ("SETRANGE k 5 !", ":6"),
            ("GET k", "$6 xyz\0\0!"),
            ("SETRANGE k -1 !", "-ERR offset is out of range"),
            (
                "SETRANGE k 536870912 !",
                "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            ("SETNX k v", ":0"),
            ("SETNX n 5", ":1"),
            ("INCR n", ":6"),
            ("DECRBY n 10", ":-4"),
            ("INCRBY n 9223372036854775807", ":9223372036854775803"),
            ("INCRBY n 10", "-ERR increment or decrement would overflow"),
            (
                "DECRBY n -9223372036854775808",
                "-ERR decrement would overflow",
            ),
            ("INCR k", "-ERR value is not an integer or out of range"),
            ("SET f 10.5", "+OK"),
            ("INCRBYFLOAT f 0.1", "$4 10.6"),
            ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
            ("MSET a 1 b 2", "+OK"),
            (
                "MSET a 1 b",
                "-ERR wrong number of arguments for 'mset' command",
            ),
            ("MGET a none b", "*3 $1 1 $-1 $1 2"),
            ("MSETNX c 1 a 2", ":0"),
            ("EXISTS c a a", ":2"),
            ("GETDEL a", "$1 1"),
            ("GETDEL a", "$-1"),
        ],
    );
    assert_eq!(at(&store(), NOW, Proto::Resp3, "GET k"), "_");
}

#[test]
fn bits() {
    check(
        &store(),
        NOW,
        &[
            ("SETBIT k 7 1", ":0"),
            ("SETBIT k 7 0", ":1"),
            (
                "SETBIT k 4294967296 1",
                "-ERR bit offset is not an integer or out of range",
            ),
            ("SETBIT k 1 2", "-ERR bit is not an integer or out of range"),
            ("SET k foobar", "+OK"),
            ("GETBIT k 1", ":1"),
            ("GETBIT k 1000", ":0"),
            ("BITCOUNT k", ":26"),
            ("BITCOUNT k 0 0", ":4"),
            ("BITCOUNT k 1 1 BYTE", ":6"),
            ("BITCOUNT k 5 30 BIT", ":17"),
            ("BITCOUNT k 0", ":26"),
            ("BITPOS k 1", ":1"),
            ("BITPOS k 0 1", ":8"),
            ("BITPOS none 0", ":0"),
            ("BITPOS none 1", ":-1"),
            ("BITPOS k 2", "-ERR The bit argument must be 1 or 0."),
            ("SET a abc", "+OK"),
            ("SET b ab", "+OK"),
            ("BITOP XOR d a b", ":3"),
            ("GET d", "$3 \0\0c"),
            ("BITOP AND d a b", ":3"),
            ("GET d", "$3 ab\0"),
            (
                "BITOP NOT d a b",
                "-ERR BITOP NOT must be called with a single source key.",
            ),
            ("BITOP OR d none", ":0"),
            ("EXISTS d", ":0"),
        ],
    );
}

#[test]
fn keys() {
    check(
        &store(),
        NOW,
        &[
            ("RENAME a b", "-ERR no such key"),
            ("SET a 1 EX 100", "+OK"),
            ("RENAME a b", "+OK"),
            ("TTL b", ":100"),
            ("TYPE b", "+string"),
            ("TYPE a", "+none"),
            ("COPY b c", ":1"),
            ("COPY b c", ":0"),
            ("COPY b c REPLACE", ":1"),
            (
                "COPY b b",
                "-ERR source and destination objects are the same",
            ),
            ("COPY b b DB 1", ":1"),
            ("MOVE b 1", ":0"),
            ("MOVE c 1", ":1"),
            ("MOVE b 99", "-ERR DB index is out of range"),
            ("DBSIZE", ":1"),
            ("KEYS *", "*1 $1 b"),
            ("RANDOMKEY", "$1 b"),
            ("SCAN 0", "*2 $1 0 *1 $1 b"),
            ("SCAN 0 TYPE list", "*2 $1 0 *0"),
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("SWAPDB 0 1", "+OK"),
            ("DBSIZE", ":2"),
            ("OBJECT ENCODING b", "$3 int"),
            ("OBJECT REFCOUNT b", ":1"),
            ("OBJECT IDLETIME b", ":0"),
            (
                "OBJECT NOPE b",
                "-ERR unknown subcommand 'NOPE'. Try OBJECT HELP.",
            ),
            ("MEMORY USAGE none", "$-1"),
            ("UNLINK b c none", ":2"),
            ("RANDOMKEY", "$-1"),
            ("FLUSHALL", "+OK"),
            ("SWAPDB 0 1", "+OK"),
            ("DBSIZE", ":0"),
        ],
    );
}

#[test]
fn expiry() {
    let store = store();
    check(
        &store,
        NOW,
        &[
            ("EXPIRE k 10", ":0"),
            ("TTL k", ":-2"),
            ("SET k v", "+OK"),
            ("TTL k", ":-1"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 10 XX", ":0"),
            ("EXPIRE k 10 LT", ":1"),
            ("EXPIRE k 10 NX", ":0"),
            ("EXPIRE k 5 GT", ":0"),
            ("EXPIRE k 20 GT", ":1"),
            (
                "EXPIRE k 20 NX GT",
                "-ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            ("EXPIRE k 20 NOPE", "-ERR Unsupported option NOPE"),
            (
                "EXPIRE k 9223372036854775807",
                "-ERR invalid expire time in 'expire' command",
            ),
            ("PTTL k", ":20000"),
            ("EXPIRETIME k", ":1700000020"),
            ("PEXPIRETIME k", ":1700000020000"),
            ("SET k w KEEPTTL", "+OK"),
            ("TTL k", ":20"),
            ("GETEX k PERSIST", "$1 w"),
            ("TTL k", ":-1"),
            ("GETEX k PX 1500", "$1 w"),
            ("SET gone v PXAT 1", "+OK"),
            ("EXISTS gone", ":0"),
            ("SET past v", "+OK"),
            ("PEXPIREAT past 5", ":1"),
            ("EXISTS past", ":0"),
        ],
    );
    check(&store, NOW + 1499, &[("GET k", "$1 w")]);
    check(
        &store,
        NOW + 1500,
        &[("TTL k", ":-2"), ("GET k", "$-1"), ("DBSIZE", ":0")],
    );
    assert_eq!(store.stats().expired, 1);
}

#[test]
fn active_expiry_removes_all_that_is_due_and_nothing_else() {
    let store = store();
    for i in 0..20_000 {
        let option = if i % 2 == 0 { " PX 10" } else { " PX 1000000" };
        at(&store, NOW, Proto::Resp2, &format!("SET key{i} v{option}"));
    }
    assert_eq!(store.expire(NOW + 9).removed, 0);
    store.set_active_expire(false);
    assert_eq!(store.expire(NOW + 10).removed, 0);
    store.set_active_expire(true);
    let rounds = (0..1000).take_while(|_| {
        store.expire(NOW + 10);
        store.keyspace(0).keys > 10_000
    });
    assert!(rounds.count() < 1000);
    assert_eq!(store.keyspace(0).keys, 10_000);
    assert_eq!(store.stats().expired, 10_000);
}

#[test]
fn memory_stays_below_its_limit() {
    let value = "v".repeat(100);
    for policy in Policy::ALL {
        let store = Store::new(Settings {
            maxmemory: 2_000_000,
            policy,
            shards: 4,
            ..Settings::default()
        });
        let mut refused = 0;
        for i in 0..30_000 {
            let option = if i % 2 == 0 { " EX 1000" } else { "" };
            if i % 2 == 1 && policy.is_volatile() && i > 5000 {
                continue;
            }
            let reply = at(
                &store,
                NOW + i,
                Proto::Resp2,
                &format!("SET key{i} {value}{option}"),
            );
            if reply != "+OK" {
                assert_eq!(
                    reply,
                    "-OOM command not allowed when used memory > 'maxmemory'."
                );
                refused += 1;
            }
        }
        assert_eq!(refused > 0, policy == Policy::NoEviction, "{policy:?}");
        assert_eq!(
            store.stats().evicted > 0,
            policy != Policy::NoEviction,
            "{policy:?}"
        );
        let used = store.used_memory();
        assert!((1_000_000..2_700_000).contains(&used), "{policy:?}: {used}");
        if policy == Policy::AllKeysLru {
            let kept = |from: u64| {
                (from..from + 1000)
                    .filter(|i| at(&store, NOW, Proto::Resp2, &format!("EXISTS key{i}")) == ":1")
                    .count()
            };
            assert!(kept(29_000) > 900);
            assert!(kept(0) < 100);
        }
    }
}

#[test]
fn multi_key_commands_are_atomic() {
    let store = store();
    std::thread::scope(|scope| {
        for n in 0..2 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..2000 {
                    at(store, NOW, Proto::Resp2, &format!("MSET a {n} b {n} c {n}"));
                }
            });
        }
        for _ in 0..2000 {
            let all = at(&store, NOW, Proto::Resp2, "MGET c a b");
            assert!(
                ["*3 $1 0 $1 0 $1 0", "*3 $1 1 $1 1 $1 1", "*3 $-1 $-1 $-1"].contains(&&*all),
                "{all}"
            );
        }
    });
}

#[test]
fn what_has_expired_is_not_written_to() {
    for (first, second, look, fresh) in [
        ("RPUSH k a", "RPUSH k b", "LLEN k", ":1"),
        ("LPUSH k a", "LPUSHX k b", "LLEN k", ":0"),
        ("RPUSH k a", "RPOPLPUSH l k", "LLEN k", ":0"),
        ("HSET k f 1", "HSET k g 1", "HLEN k", ":1"),
        ("HSET k f 1", "HINCRBY k f 1", "HGET k f", "$1 1"),
        ("SADD k a", "SADD k b", "SCARD k", ":1"),
        ("ZADD k 1 a", "ZADD k 1 b", "ZCARD k", ":1"),
        ("ZADD k 1 a", "ZINCRBY k 1 a", "ZSCORE k a", "$1 1"),
        ("SET k ab", "APPEND k c", "GET k", "$1 c"),
        ("SET k 5", "INCR k", "GET k", "$1 1"),
        ("SET k 5", "INCRBYFLOAT k 0.5", "GET k", "$3 0.5"),
        ("SET k abc", "SETRANGE k 1 x", "GET k", "$2 \0x"),
        ("SET k abc", "SETBIT k 7 1", "GET k", "$1 \u{1}"),
        // The type of before matters no more either.
        ("SET k abc", "SADD k a", "SCARD k", ":1"),
        ("RPUSH k a", "INCR k", "GET k", "$1 1"),
    ] {
        let store = store();
        at(&store, NOW, Proto::Resp2, first);
        let later = format!("PEXPIREAT k {}", NOW + 10);
        assert_eq!(at(&store, NOW, Proto::Resp2, &later), ":1", "{first}");
        let reply = at(&store, NOW + 11, Proto::Resp2, second);
        assert!(!reply.starts_with('-'), "{second}: {reply}");
        let ttl = if fresh == ":0" { ":-2" } else { ":-1" };
        check(&store, NOW + 11, &[(look, fresh), ("TTL k", ttl)]);
    }
}

#[test]
fn a_list_that_turns_keeps_its_deadline() {
    let later = format!("PEXPIREAT l {}", NOW + 10);
    for turn in [
        "LMOVE l l LEFT LEFT",
        "RPOPLPUSH l l",
        "BLMOVE l l LEFT RIGHT 0",
    ] {
        let cases = [
            ("RPUSH l a", ":1"),
            (&*later, ":1"),
            (turn, "$1 a"),
            ("PTTL l", ":10"),
        ];
        check(&store(), NOW, &cases);
    }
    let cases = [
        ("RPUSH l a b c", ":3"),
        ("LMOVE l l LEFT RIGHT", "$1 a"),
        ("LRANGE l 0 -1", "*3 $1 b $1 c $1 a"),
    ];
    check(&store(), NOW, &cases);
}

#[test]
fn odd_ranges_are_what_they_are_in_redis() {
    let cases = [
        // An end before the beginning is the beginning.
        ("SET k 4", "+OK"),
        ("BITCOUNT k -5 -5", ":3"),
        ("BITPOS k 1 -4 -6", ":2"),
        ("GETRANGE k -5 -5", "$1 4"),
        ("ZADD z 1 a 2 b 3 c", ":3"),
        ("ZRANGE z 0 -1 LIMIT 2 -1", "*3 $1 a $1 b $1 c"),
        ("ZRANGE z 0 -1 REV REV", "-ERR syntax error"),
        ("ZADD m 0 a", ":1"),
        ("ZUNIONSTORE m 1 m WEIGHTS -2", ":1"),
        ("ZSCORE m a", "$1 0"),
        (
            "ZADD m 1234567890123456789 a 1e400 b",
            "-ERR value is not a valid float",
        ),
        ("ZADD m 1234567890123456789 a", ":0"),
        ("ZSCORE m a", "$19 1234567890123456768"),
    ];
    check(&store(), NOW, &cases);
}

#[test]
fn more_random_members_than_memory_takes_are_refused() {
    let cases = [
        ("SADD s a", ":1"),
        ("HSET h a 1", ":1"),
        ("ZADD z 1 a", ":1"),
        ("SRANDMEMBER s -2", "*2 $1 a $1 a"),
        ("SRANDMEMBER s -4294967296", "-ERR value is out of range"),
        ("HRANDFIELD h -4294967296", "-ERR value is out of range"),
        ("ZRANDMEMBER z -4294967296", "-ERR value is out of range"),
        ("SRANDMEMBER s 4294967296", "*1 $1 a"),
        // A missing key gives nothing, as in Redis.
        ("SRANDMEMBER none -9223372036854775807", "*0"),
        ("HRANDFIELD none -9223372036854775807", "*0"),
        ("ZRANDMEMBER none -9223372036854775807", "*0"),
        ("HRANDFIELD none -4611686018427387903 WITHVALUES", "*0"),
        ("ZRANDMEMBER none 4611686018427387903 WITHSCORES", "*0"),
        (
            "HRANDFIELD none -4611686018427387904 WITHVALUES",
            "-ERR value is out of range",
        ),
        (
            "ZRANDMEMBER none -4611686018427387904 WITHSCORES",
            "-ERR value is out of range",
        ),
        (
            "ZRANDMEMBER none 4611686018427387904 WITHSCORES",
            "-ERR value is out of range",
        ),
        (
            "SRANDMEMBER none -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ),
    ];
    check(&store(), NOW, &cases);
}

#[test]
fn sorting() {
    let cases = [
        ("RPUSH l 10 9 1.5 -3", ":4"),
        ("SORT l", "*4 $2 -3 $3 1.5 $1 9 $2 10"),
        ("SORT l DESC LIMIT 1 2", "*2 $1 9 $3 1.5"),
        ("SORT l ALPHA", "*4 $2 -3 $3 1.5 $2 10 $1 9"),
        ("SORT l BY nosort DESC", "*4 $2 -3 $3 1.5 $1 9 $2 10"),
        ("MSET w_10 1 w_9 2 w_1.5 3", "+OK"),
        ("HSET o_9 name nine", ":1"),
        (
            "SORT l BY w_* GET # GET o_*->name",
            "*8 $2 -3 $-1 $2 10 $-1 $1 9 $4 nine $3 1.5 $-1",
        ),
        ("SORT l STORE to", ":4"),
        ("LRANGE to 0 -1", "*4 $2 -3 $3 1.5 $1 9 $2 10"),
        ("SORT none STORE to", ":0"),
        ("EXISTS to", ":0"),
        ("SORT_RO l STORE to", "-ERR syntax error"),
        ("RPUSH l x", ":5"),
        (
            "SORT l",
            "-ERR One or more scores can't be converted into double",
        ),
        (
            "SORT w_10",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ];
    check(&store(), NOW, &cases);
}

#[test]
fn the_few_keys_that_may_be_evicted_are_found_among_many() {
    for policy in [Policy::VolatileTtl, Policy::VolatileLru] {
        let store = Store::new(Settings {
            shards: 1,
            policy,
            ..Settings::default()
        });
        for n in 0..100_000 {
            assert_eq!(at(&store, NOW, Proto::Resp2, &format!("SET k{n} v")), "+OK");
        }
        for n in 0..3 {
            let line = format!("SET volatile{n} {} EX 100", "v".repeat(4000));
            assert_eq!(at(&store, NOW, Proto::Resp2, &line), "+OK");
        }
        store.set_maxmemory(store.used_memory() - 7000);
        assert_eq!(
            at(&store, NOW, Proto::Resp2, "SET k0 w"),
            "+OK",
            "{policy:?}"
        );
        assert!(store.stats().evicted >= 1);
        assert!(store.keyspace(0).keys >= 100_000);
    }
}

/// Runs a line on a thread of its own; tells when it is done.
fn beside(store: &Arc<Store>, line: &str) -> mpsc::Receiver<String> {
    let (done, wait) = mpsc::channel();
    let (store, line) = (store.clone(), line.to_string());
    std::thread::spawn(move || {
        let _ = done.send(at(&store, NOW, Proto::Resp2, &line));
    });
    wait
}

#[test]
fn sort_and_scan_wait_only_for_the_locks_they_need() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let store = Arc::new(Store::new(Settings {
        shards: 2,
        ..Settings::default()
    }));
    for n in 0..500 {
        at(&store, NOW, Proto::Resp2, &format!("RPUSH l{n} 3 1 2"));
    }
    // A transaction holds one of the two shards.
    let get: (&_, &[&[u8]]) = (find(b"get").unwrap(), &[b"get", b"held"]);
    let mut holder = store.runner(NOW, 1);
    assert!(holder.begin([get].into_iter(), Vec::new()));
    // With as many lists as it takes, one is in the other shard; and one half of a scan.
    let sorts: Vec<_> = (0..20)
        .map(|n| beside(&store, &format!("SORT l{n} LIMIT 0 1 BY nosort")))
        .collect();
    let scans: Vec<_> = (0..2)
        .map(|shard| beside(&store, &format!("SCAN {shard} COUNT 1")))
        .collect();
    let begin = std::time::Instant::now();
    let mut finished = [0, 0];
    while finished.contains(&0) {
        assert!(begin.elapsed() < PATIENCE, "all wait: {finished:?}");
        for (n, waits) in finished.iter_mut().zip([&sorts, &scans]) {
            *n += waits.iter().filter(|wait| wait.try_recv().is_ok()).count();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The others have the whole store to themselves when it is over.
    holder.end();
    let rest = sorts.iter().chain(&scans);
    rest.for_each(|wait| drop(wait.recv_timeout(PATIENCE)));
    assert!(finished[0] < 20 && finished[1] < 2, "{finished:?}");
}

#[test]
fn walks_of_several_threads_and_writers_never_wait_in_a_circle() {
    let store = Arc::new(store());
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || {
                for n in 0..300 {
                    let get = |line: &str| at(&store, NOW, Proto::Resp2, line);
                    get(&format!("MSET a{n} 1 b{n} 2 c{thread} 3"));
                    get("KEYS *9*");
                    get("DBSIZE");
                    get("RANDOMKEY");
                    get("SCAN 0 COUNT 50");
                    get(&format!("SUNIONSTORE d{thread} e f g"));
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(at(&store, NOW, Proto::Resp2, "DBSIZE"), ":604");
}

#[test]
fn fields_of_bits() {
    check(
        &store(),
        NOW,
        &[
            ("BITFIELD k", "*0"),
            ("EXISTS k", ":0"),
            ("BITFIELD k INCRBY i5 100 1 GET u4 0", "*2 :1 :0"),
            (
                "BITFIELD c OVERFLOW SAT INCRBY u2 102 3 INCRBY u2 102 1",
                "*2 :3 :3",
            ),
            ("BITFIELD c OVERFLOW FAIL INCRBY u2 102 1", "*1 $-1"),
            ("BITFIELD c SET u8 #0 300 GET u8 0", "*2 :0 :44"),
            (
                "BITFIELD c SET i64 0 -1 INCRBY i64 0 1",
                "*2 :3170534137668829184 :0",
            ),
            ("BITFIELD_RO c GET i8 0", "*1 :0"),
            (
                "BITFIELD_RO c SET i8 0 1",
                "-ERR BITFIELD_RO only supports the GET subcommand",
            ),
            (
                "BITFIELD c GET u64 0",
                "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            ),
        ],
    );
}

#[test]
fn what_two_strings_have_in_common() {
    check(
        &store(),
        NOW,
        &[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", "$6 mytext"),
            ("LCS a b LEN", ":6"),
            (
                "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
                "*4 $7 matches *1 *3 *2 :4 :7 *2 :5 :8 :4 $3 len :6",
            ),
            ("LCS a none", "$0"),
            ("RPUSH l x", ":1"),
            (
                "LCS a l",
                "-ERR The specified keys must contain string values",
            ),
        ],
    );
}

#[test]
fn hyperloglogs_and_what_only_looks_like_one() {
    check(
        &store(),
        NOW,
        &[
            ("PFADD p a b c d e f g", ":1"),
            ("PFCOUNT p", ":7"),
            ("PFADD p a", ":0"),
            ("PFADD q g h", ":1"),
            ("PFCOUNT p q none", ":8"),
            ("PFMERGE r p q", "+OK"),
            ("PFCOUNT r", ":8"),
            ("PFDEBUG TODENSE r", ":1"),
            ("STRLEN r", ":12304"),
            ("PFADD r a i", ":1"),
            ("PFCOUNT r", ":9"),
            ("SETRANGE p 100 x", ":101"),
            ("PFCOUNT p", "-INVALIDOBJ Corrupted HLL object detected"),
            ("PFMERGE r p", "-INVALIDOBJ Corrupted HLL object detected"),
            ("SETRANGE r 4 x", ":12304"),
            (
                "PFADD r a",
                "-WRONGTYPE Key is not a valid HyperLogLog string value.",
            ),
            ("SET s HYLL", "+OK"),
            (
                "PFCOUNT s",
                "-WRONGTYPE Key is not a valid HyperLogLog string value.",
            ),
        ],
    );
}

#[test]
fn places() {
    check(
        &store(),
        NOW,
        &[
            (
                "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
                ":2",
            ),
            ("GEODIST g Palermo Catania km", "$8 166.2742"),
            ("GEODIST g Palermo none", "$-1"),
            ("GEOHASH g Palermo none", "*2 $11 sqc8b49rny0 $-1"),
            (
                "GEOPOS g Palermo none",
                "*2 *2 $20 13.36138933897018433 $20 38.11555639549629859 *-1",
            ),
            (
                "GEORADIUS g 15 37 200 km WITHDIST ASC",
                "*2 *2 $7 Catania $7 56.4413 *2 $7 Palermo $8 190.4424",
            ),
            (
                "GEOSEARCH g FROMMEMBER Palermo BYBOX 10 10 km",
                "*1 $7 Palermo",
            ),
            ("GEORADIUS g 15 37 200 km STORE to", ":2"),
            ("ZCARD to", ":2"),
            ("GEORADIUS none 15 37 200 km STORE to", ":0"),
            ("EXISTS to", ":0"),
            (
                "GEOADD g 181 0 x",
                "-ERR invalid longitude,latitude pair 181.000000,0.000000",
            ),
        ],
    );
}
