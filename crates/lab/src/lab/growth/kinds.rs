//! The kinds of objects of which a server can have many, and how it gets them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidewire_ingest::client::{Level, Persistence, Producer, Producing, Reader, Subscribing};

use super::fill::{Redis, echoes, web};

/// A thing of which there can be many.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// What is done with each thing.
    pub(super) how: &'static str,
    /// The smallest number; the largest is eight times as many.
    pub(super) n: u64,
    pub(super) what: What,
}

/// The process that has them.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// A server with these arguments, which is filled so.
    Server {
        serve: &'static [&'static str],
        fill: Fill,
    },
    /// `tidewire ship`, with so many files.
    Ship,
}

type Fill = fn(SocketAddr, u64) -> io::Result<()>;

const ECHO: &[&str] = &["echo", "--listen", "echo=127.0.0.1:0"];
const WEB: &[&str] = &[
    "http",
    "--listen",
    "http=127.0.0.1:0",
    "--http-headers",
    "128",
];
const KEYS: &[&str] = &["kv/resp", "--listen", "kv/resp=127.0.0.1:0"];
const DURABLE: &[&str] = &[
    "kv/resp",
    "--listen",
    "kv/resp=127.0.0.1:0",
    "--durability",
    "os",
];
const LOG: &[&str] = &["ingest", "--listen", "ingest=127.0.0.1:0", "--sync", "os"];
const SEGMENTS: &[&str] = &[
    "ingest",
    "--listen",
    "ingest=127.0.0.1:0",
    "--sync",
    "os",
    "--segment",
    "1MiB",
    "--log-payload",
    "64KiB",
];

const fn kind(
    name: &'static str,
    how: &'static str,
    n: u64,
    serve: &'static [&'static str],
    fill: Fill,
) -> Kind {
    Kind {
        name,
        how,
        n,
        what: What::Server { serve, fill },
    }
}

/// All of them.
pub(super) static KINDS: &[Kind] = &[
    kind("connections", "a byte echoed on each", 100, ECHO, echoes),
    kind(
        "header fields",
        "in each of 100 requests",
        10,
        WEB,
        |addr, n| {
            let fields: String = (0..n).map(|i| format!("x-field-{i}: value\r\n")).collect();
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
            web(addr, &request.repeat(100), 100)
        },
    ),
    kind("pipelined requests", "GET of /", 250, WEB, |addr, n| {
        web(
            addr,
            &"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(n as usize),
            n,
        )
    }),
    kind(
        "pipelined commands",
        "SET, in one go",
        2_000,
        KEYS,
        |addr, n| Redis::connect(addr)?.at_once(n, |i| format!("SET key:{i} value")),
    ),
    kind(
        "queued commands",
        "SET within MULTI",
        1_000,
        KEYS,
        |addr, n| {
            let mut redis = Redis::connect(addr)?;
            // Replies to what is queued are short.
            redis.at_once(n + 2, |i| match i {
                0 => "MULTI".into(),
                i if i > n => "EXEC".into(),
                i => format!("SET key:{i} value"),
            })
        },
    ),
    kind("keys", "SET", 2_000, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| format!("SET key:{i} value"))
    }),
    kind(
        "keys that live a while",
        "SET with EX",
        2_000,
        KEYS,
        |addr, n| Redis::connect(addr)?.all(n, |i| format!("SET key:{i} value EX 1000")),
    ),
    kind(
        "keys that expire",
        "SET with PX 1, and all are gone",
        2_000,
        KEYS,
        |addr, n| {
            let mut redis = Redis::connect(addr)?;
            redis.all(n, |i| format!("SET key:{i} value PX 1"))?;
            redis.ask_until("DBSIZE", ":0")
        },
    ),
    kind(
        "durable keys",
        "SET with a log",
        2_000,
        DURABLE,
        |addr, n| Redis::connect(addr)?.all(n, |i| format!("SET key:{i} value")),
    ),
    kind(
        "elements of a list",
        "LPUSH, then LRANGE of ten in the middle",
        2_000,
        KEYS,
        |addr, n| {
            let mut redis = Redis::connect(addr)?;
            redis.all(n, |i| format!("LPUSH list element:{i}"))?;
            redis.all(10, |i| format!("LRANGE list {} {}", n / 2 + i, n / 2 + i))
        },
    ),
    kind("fields of a hash", "HSET", 2_000, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| format!("HSET hash field:{i} value"))
    }),
    kind("members of a set", "SADD", 2_000, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| format!("SADD set member:{i}"))
    }),
    kind("members of a sorted set", "ZADD", 2_000, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| {
            format!("ZADD zset {} member:{i}", i * 7_919 % 100_003)
        })
    }),
    kind("entries of a stream", "XADD", 2_000, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| format!("XADD stream {}-1 field value", i + 1))
    }),
    kind(
        "groups of a stream",
        "XGROUP CREATE",
        250,
        KEYS,
        |addr, n| {
            Redis::connect(addr)?.all(n, |i| format!("XGROUP CREATE stream group:{i} 0 MKSTREAM"))
        },
    ),
    kind(
        "pending entries",
        "XADD, XREADGROUP, XACK of half",
        500,
        KEYS,
        |addr, n| {
            let mut redis = Redis::connect(addr)?;
            redis.all(1, |_| "XGROUP CREATE stream group 0 MKSTREAM".into())?;
            redis.all(n, |i| format!("XADD stream {}-1 field value", i + 1))?;
            redis.all(n, |_| {
                "XREADGROUP GROUP group me COUNT 1 STREAMS stream >".into()
            })?;
            redis.all(n / 2, |i| format!("XACK stream group {}-1", i + 1))
        },
    ),
    kind(
        "channels",
        "SUBSCRIBE, by one client",
        1_000,
        KEYS,
        |addr, n| Redis::connect(addr)?.all(n, |i| format!("SUBSCRIBE channel:{i}")),
    ),
    kind(
        "patterns",
        "PSUBSCRIBE, by one client",
        500,
        KEYS,
        |addr, n| Redis::connect(addr)?.all(n, |i| format!("PSUBSCRIBE pattern:{i}:*")),
    ),
    kind(
        "subscribers",
        "of one channel, and one PUBLISH",
        50,
        KEYS,
        |addr, n| {
            let mut all = Vec::new();
            for _ in 0..n {
                let mut redis = Redis::connect(addr)?;
                redis.all(1, |_| "SUBSCRIBE channel".into())?;
                all.push(redis);
            }
            Redis::connect(addr)?.all(1, |_| "PUBLISH channel hello".into())?;
            all.iter_mut().try_for_each(|redis| redis.until(b"hello"))
        },
    ),
    kind(
        "blocked clients",
        "BLPOP of one list, and as many RPUSHes",
        50,
        KEYS,
        |addr, n| {
            let mut all = Vec::new();
            for _ in 0..n {
                let mut redis = Redis::connect(addr)?;
                redis.settle()?;
                redis.send("BLPOP list 0")?;
                all.push(redis);
            }
            Redis::connect(addr)?.all(n, |i| format!("RPUSH list element:{i}"))?;
            all.iter_mut()
                .try_for_each(|redis| redis.until(b"element:"))
        },
    ),
    kind(
        "watched keys",
        "WATCH, by one client",
        1_000,
        KEYS,
        |addr, n| Redis::connect(addr)?.all(n, |i| format!("WATCH key:{i}")),
    ),
    kind(
        "tracked keys",
        "GET of a client that tracks",
        1_000,
        KEYS,
        |addr, n| {
            let mut redis = Redis::connect(addr)?;
            redis.all(1, |_| "HELLO 3".into())?;
            redis.all(1, |_| "CLIENT TRACKING ON".into())?;
            redis.all(n, |i| format!("GET key:{i}"))
        },
    ),
    kind(
        "tracked prefixes",
        "CLIENT TRACKING with BCAST",
        100,
        KEYS,
        |addr, n| {
            let prefixes: String = (0..n).map(|i| format!(" PREFIX prefix:{i:06}:")).collect();
            let mut redis = Redis::connect(addr)?;
            redis.all(1, |_| "HELLO 3".into())?;
            redis.all(1, |_| format!("CLIENT TRACKING ON BCAST{prefixes}"))
        },
    ),
    kind("users", "ACL SETUSER", 100, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| {
            format!("ACL SETUSER user:{i} on nopass ~key:{i}:* +get")
        })
    }),
    kind(
        "scripts",
        "EVAL of another text each time",
        100,
        KEYS,
        |addr, n| Redis::connect(addr)?.all(n, |i| format!("EVAL return\u{a0}{i} 0")),
    ),
    kind("libraries", "FUNCTION LOAD", 50, KEYS, |addr, n| {
        Redis::connect(addr)?.all(n, |i| {
            format!(
                "FUNCTION LOAD #!lua\u{a0}name=lib{i}\nredis.register_function('f{i}',function()\u{a0}return\u{a0}{i}\u{a0}end)"
            )
        })
    }),
    kind(
        "streams of the log",
        "a message in each",
        50,
        LOG,
        |addr, n| (0..n).try_for_each(|i| produce(addr, &format!("stream-{i}"), "", 1, 8)),
    ),
    kind("producers", "a message of each", 50, LOG, |addr, n| {
        (0..n).try_for_each(|i| produce(addr, "stream", &format!("producer-{i}"), 1, 8))
    }),
    kind(
        "messages",
        "of 8 bytes, of one producer",
        2_000,
        LOG,
        |addr, n| produce(addr, "stream", "", n, 8),
    ),
    kind(
        "readers",
        "that wait, and one message",
        20,
        LOG,
        |addr, n| {
            produce(addr, "stream", "", 1, 8)?;
            let subscribing = Subscribing {
                stream: "stream".into(),
                follow: true,
                ..Subscribing::default()
            };
            let to = addr.to_string();
            let connect =
                |_| Reader::connect(to.as_str(), subscribing.clone(), Persistence::once());
            let mut all = (0..n)
                .map(connect)
                .collect::<Result<Vec<_>, _>>()
                .map_err(io::Error::other)?;
            for reader in &mut all {
                reader.read().map_err(io::Error::other)?;
            }
            produce(addr, "stream", "", 1, 8)?;
            for reader in &mut all {
                reader.read().map_err(io::Error::other)?;
            }
            Ok(())
        },
    ),
    kind("segments", "of 1 MiB, filled", 4, SEGMENTS, |addr, n| {
        produce(addr, "stream", "", n * 32, 32 << 10)
    }),
    Kind {
        name: "files that are shipped",
        how: "a line in each, with --once",
        n: 100,
        what: What::Ship,
    },
];

/// How long the log may take to acknowledge.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(120);

/// Sends so many messages of so many bytes, and waits until the log has them.
fn produce(addr: SocketAddr, stream: &str, producer: &str, n: u64, size: usize) -> io::Result<()> {
    let producing = Producing {
        stream: stream.into(),
        producer: producer.into(),
        level: Level::Received,
        silence: ACKNOWLEDGED_WITHIN,
        ..Producing::default()
    };
    let producer = Producer::connect(addr.to_string(), producing, Persistence::once());
    let producer = producer.map_err(io::Error::other)?;
    let payload = vec![b'x'; size];
    for _ in 0..n {
        producer.send(&payload).map_err(io::Error::other)?;
    }
    producer
        .flush_within(ACKNOWLEDGED_WITHIN)
        .map_err(io::Error::other)?;
    producer.close().map_err(io::Error::other)
}
