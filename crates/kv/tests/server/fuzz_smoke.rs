//! A short, deterministic part of the fuzzing of the key-value services: streams drawn from a seed,
//! well-formed and not.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/src/collections.rs"]
mod collections;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/src/kv.rs"]
mod kv;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const NAMES: &[&str] = &[
    "get",
    "set",
    "del",
    "incr",
    "append",
    "getrange",
    "setrange",
    "setbit",
    "bitcount",
    "bitop",
    "mset",
    "mget",
    "expire",
    "pexpire",
    "ttl",
    "rename",
    "copy",
    "type",
    "scan",
    "keys",
    "hset",
    "hget",
    "hgetall",
    "hincrby",
    "hscan",
    "hrandfield",
    "lpush",
    "rpush",
    "lpop",
    "lrange",
    "linsert",
    "lset",
    "ltrim",
    "lpos",
    "lmove",
    "blpop",
    "sadd",
    "srem",
    "spop",
    "smembers",
    "sinter",
    "sinterstore",
    "srandmember",
    "zadd",
    "zrange",
    "zrangebyscore",
    "zrangebylex",
    "zincrby",
    "zunionstore",
    "zpopmin",
    "zrandmember",
    "bzpopmin",
    "xadd",
    "xtrim",
    "xdel",
    "xrange",
    "xrevrange",
    "xread",
    "xreadgroup",
    "xgroup",
    "xack",
    "xpending",
    "xclaim",
    "xautoclaim",
    "xsetid",
    "xinfo",
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "publish",
    "pubsub",
    "client",
    "command",
    "config",
    "info",
    "hello",
    "select",
    "ping",
    "echo",
    "reset",
    "flushall",
    "object",
    "randomkey",
    "sort",
    "dump",
    "restore",
    "getex",
    "getdel",
    "quit",
    "acl",
    "slowlog",
    "debug",
    "memory",
    "nope",
];

const WORDS: &[&str] = &[
    "a",
    "b",
    "c",
    "1",
    "-1",
    "0",
    "10",
    "1.5",
    "(1",
    "+inf",
    "-",
    "+",
    "[a",
    "*",
    "",
    "nx",
    "xx",
    "get",
    "ex",
    "px",
    "keepttl",
    "streams",
    "group",
    "create",
    "mkstream",
    "maxlen",
    "~",
    ">",
    "$",
    "5-*",
    "5-1",
    "block",
    "full",
    "stream",
    "withscores",
    "limit",
    "match",
    "count",
    "left",
    "right",
    "before",
    "weights",
    "aggregate",
    "max",
    "byscore",
    "bylex",
    "rev",
    "list",
    "id",
    "setname",
    "2",
    "3",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "channels",
    "encoding",
    "ch",
    "gt",
    "incr",
    "withvalues",
    "and",
    "not",
    "bit",
    "reply",
    "off",
    "on",
    "docs",
    "getkeys",
];

fn command() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        8 => proptest::sample::select(WORDS).prop_map(|w| w.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ];
    let name = proptest::sample::select(NAMES);
    (name, proptest::collection::vec(word, 0..7), any::<bool>()).prop_map(|(name, args, line)| {
        let mut bytes = Vec::new();
        if line && args.iter().all(|a| a.iter().all(u8::is_ascii_alphanumeric)) {
            bytes.extend_from_slice(name.as_bytes());
            for arg in args {
                bytes.push(b' ');
                bytes.extend_from_slice(&arg);
            }
            bytes.extend_from_slice(b"\r\n");
            return bytes;
        }
        bytes.extend_from_slice(format!("*{}\r\n", args.len() + 1).as_bytes());
        for arg in [name.as_bytes().to_vec()].into_iter().chain(args) {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(&arg);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    })
}

fn spoilt(stream: impl Strategy<Value = Vec<u8>>, chance: f64) -> impl Strategy<Value = Vec<u8>> {
    let spoil = proptest::option::weighted(chance, (any::<prop::sample::Index>(), any::<u8>()));
    (stream, spoil, 0..30usize).prop_map(|(mut stream, spoil, cut)| {
        stream.truncate(stream.len() - cut.min(stream.len() / 4));
        if let (Some((at, byte)), false) = (spoil, stream.is_empty()) {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        stream
    })
}

fn with_settings<const N: usize>(
    stream: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = Vec<u8>> {
    (any::<[u8; N]>(), stream).prop_map(|(settings, stream)| [&settings[..], &stream].concat())
}

fn commands(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(command(), 0..most).prop_map(|all| all.concat())
}

const KEYS: &[&[u8]] = &[b"", b"a", b"bb", b"a longer key than that"];

fn requests() -> impl Strategy<Value = Vec<u8>> {
    let key = || proptest::sample::select(KEYS);
    let value = proptest::collection::vec(any::<u8>(), 0..=255);
    let one = (any::<bool>(), key(), value).prop_map(|(write, key, value)| {
        let mut bytes = Vec::new();
        if write {
            tidewire_kv::binary::encode_write(key, &value, &mut bytes);
        } else {
            tidewire_kv::binary::encode_read(key, &mut bytes);
        }
        bytes
    });
    proptest::collection::vec(one, 0..20).prop_map(|all| all.concat())
}

fn run(cases: u32, input: impl Strategy<Value = Vec<u8>>, target: fn(&[u8])) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&input, |input| {
        target(&input);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn codec() {
    run(
        2000,
        with_settings::<1>(spoilt(commands(12), 0.5)),
        kv::resp_codec,
    );
}

#[test]
fn binary() {
    run(
        1000,
        with_settings::<2>(spoilt(requests(), 0.3)),
        kv::kv_binary,
    );
}

#[test]
fn execute() {
    run(
        2000,
        with_settings::<2>(spoilt(commands(60), 0.1)),
        kv::kv_execute,
    );
}

#[test]
fn packed_collections() {
    // Few kinds of elements, so that they meet again.
    let act = (0u8..12, 0u8..16, 0u8..20, any::<u8>());
    let acts = proptest::collection::vec(act, 0..900);
    let acts = acts.prop_map(|acts| acts.into_iter().flat_map(<[u8; 4]>::from).collect());
    run(150, with_settings::<4>(acts), collections::kv_collections);
}

/// Pieces of Lua, some of which fit together.
const PIECES: &[&str] = &[
    "return ",
    "local t = {} ",
    "t[#t + 1] = ",
    "t ",
    "KEYS[1] ",
    "ARGV ",
    "#",
    "{",
    "} ",
    "(",
    ") ",
    "function() ",
    "end ",
    "for i = 1, 100 do ",
    "while true do ",
    "if ARGV[1] then ",
    "pcall(",
    "error(",
    "redis.call('get', 'k') ",
    "redis.call('rpush', 'l', 'x') ",
    "redis.pcall('lrange', 'l', 0, -1) ",
    "redis.setresp(3) ",
    "cjson.encode(",
    "cjson.decode('[1,{\"a\":null}]') ",
    "cmsgpack.pack(",
    "cmsgpack.unpack(",
    "struct.pack('>I2', ",
    "struct.unpack(",
    "bit.tohex(",
    "string.rep('x', ",
    "loadstring(",
    "unpack(",
    "coroutine.wrap(",
    "setmetatable(",
    "getmetatable(",
    "redis.register_function('f', ",
    "redis.register_function{function_name='f', callback=",
    "-1 ",
    "2^31 ",
    "1e308 ",
    "'a' ",
    ", ",
    ".. ",
    "+ ",
    "= ",
    "x ",
    "[[",
    "]]",
    "--",
    "\n",
    "\0",
    "nil ",
    "true ",
    "{map = {a = 1}} ",
    "{double = 1.5} ",
    "{ok = 'fine'} ",
    "{err = 'no'} ",
    "redis.sha1hex(",
    "tostring(",
    "string.gsub(",
];

#[test]
fn scripts() {
    let piece = prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec());
    let text = proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat());
    let head = (0u8..6, Just(4u8), any::<[u8; 4]>());
    let input = (head, text).prop_map(|((kind, len, args), text)| {
        let head = [kind, len];
        [&head[..], &args, &text].concat()
    });
    run(400, input, kv::kv_scripts);
}

#[test]
fn corpora() {
    replay::replay("kv_scripts", kv::kv_scripts);
    replay::replay("kv_collections", collections::kv_collections);
    replay::replay("resp_codec", kv::resp_codec);
    replay::replay("kv_binary", kv::kv_binary);
    replay::replay("kv_execute", kv::kv_execute);
}
