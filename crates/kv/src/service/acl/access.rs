//! What a command does with the keys and channels that it names.

use crate::service::table::Entry;

/// Reads the value of a key, or tells of it.
pub(super) const READS: u8 = 1;
/// Changes a key, adds it or removes it.
pub(super) const WRITES: u8 = 2;

/// These write without telling what was there.
const WRITE_ONLY: &[&str] = &[
    "append",
    "del",
    "expire",
    "expireat",
    "geoadd",
    "hdel",
    "hmset",
    "hset",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "psetex",
    "restore",
    "restore-asking",
    "rpush",
    "rpushx",
    "sadd",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xgroup",
    "xsetid",
    "xtrim",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// These tell no more than that a key is there, or how large it is: any right to it will do.
const NEITHER: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory",
    "object",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
];

/// The first key, and the others.
const TWO_KINDS: &[(&str, u8, u8)] = &[
    ("bitop", WRITES, READS),
    ("blmove", READS | WRITES, WRITES),
    ("brpoplpush", READS | WRITES, WRITES),
    ("copy", READS, WRITES),
    ("georadius", READS, WRITES),
    ("georadiusbymember", READS, WRITES),
    ("geosearchstore", WRITES, READS),
    ("lmove", READS | WRITES, WRITES),
    ("pfmerge", READS | WRITES, READS),
    ("rename", READS | WRITES, WRITES),
    ("renamenx", READS | WRITES, WRITES),
    ("rpoplpush", READS | WRITES, WRITES),
    ("sdiffstore", WRITES, READS),
    ("sinterstore", WRITES, READS),
    ("smove", READS | WRITES, WRITES),
    ("sort", READS, WRITES),
    ("sunionstore", WRITES, READS),
    ("zdiffstore", WRITES, READS),
    ("zinterstore", WRITES, READS),
    ("zrangestore", WRITES, READS),
    ("zunionstore", WRITES, READS),
];

/// What a call does with its first key, and with the others. A command that is in no list and writes
/// needs both rights.
pub(super) fn of(entry: &Entry, args: &[&[u8]]) -> (u8, u8) {
    let name = entry.name;
    let has = |word: &str| {
        let options = args.get(2..).unwrap_or_default();
        options
            .iter()
            .any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    if let Some((_, first, others)) = TWO_KINDS.iter().find(|(known, ..)| *known == name) {
        return (*first, *others);
    }
    let all = match name {
        _ if WRITE_ONLY.contains(&name) => WRITES,
        _ if NEITHER.contains(&name) => 0,
        // The value comes before the options, and is none of them.
        "set"
            if !args
                .get(3..)
                .unwrap_or_default()
                .iter()
                .any(|arg| arg.eq_ignore_ascii_case(b"get")) =>
        {
            WRITES
        }
        "bitfield" if !has("set") && !has("incrby") => READS,
        // What a group reads changes the group alone.
        "xreadgroup" | "eval_ro" | "evalsha_ro" | "fcall_ro" => READS,
        "eval" | "evalsha" | "fcall" => READS | WRITES,
        _ if entry.is_write() => READS | WRITES,
        _ => READS,
    };
    (all, all)
}

/// Shows the channels that a call publishes to or subscribes to, and whether each is a pattern.
pub(super) fn each_channel<'a>(
    entry: &Entry,
    args: &[&'a [u8]],
    mut show: impl FnMut(&'a [u8], bool),
) {
    match entry.name {
        "publish" | "spublish" => {
            if let Some(channel) = args.get(1) {
                show(channel, false);
            }
        }
        "subscribe" | "ssubscribe" => args[1..].iter().for_each(|channel| show(channel, false)),
        "psubscribe" => args[1..].iter().for_each(|pattern| show(pattern, true)),
        _ => {}
    }
}
