//! What commands do with their keys, as COMMAND tells it: how the key is used as such (`RO`, `RW`; `OW` overwrites
//! it and `RM` removes it, whatever it was), then what is done with what it holds.

use super::table::Entry;

/// Flags of a key.
pub(super) type Flags = &'static [&'static str];

const READ: Flags = &["RO", "access"];
const UPDATE: Flags = &["RW", "access", "update"];
const REPLACE: Flags = &["OW", "update"];
const ADD: Flags = &["RW", "insert"];
const TAKE: Flags = &["RW", "access", "delete"];

/// Those whose keys are all used alike, but for what [reads](READ) and what reads and [changes](UPDATE).
const ALIKE: &[(Flags, &str)] = &[
    (
        &["RO"],
        "exists hexists hlen hstrlen llen memory object scard sismember strlen touch type watch xlen zcard",
    ),
    (
        &["RW", "update"],
        "expire expireat geoadd hmset hset lset persist pexpire pexpireat setrange xack xadd xclaim xgroup xsetid zadd",
    ),
    (
        TAKE,
        "blmpop blpop brpop bzmpop bzpopmax bzpopmin getdel lmpop lpop rpop spop zmpop zpopmax zpopmin",
    ),
    (
        &["RW", "delete"],
        "hdel lrem ltrim srem xautoclaim xdel xtrim zrem zremrangebylex zremrangebyrank zremrangebyscore",
    ),
    (
        ADD,
        "append hsetnx linsert lpush lpushx pfadd rpush rpushx sadd",
    ),
    (REPLACE, "mset psetex restore restore-asking setex"),
    (&["OW", "insert"], "msetnx setnx"),
    (&["RM", "delete"], "del unlink"),
    (&["RW", "access"], "pfcount"),
    (READ, "eval_ro evalsha_ro fcall_ro xreadgroup"),
    (UPDATE, "eval evalsha fcall"),
];

/// The first key and the others of those that use them otherwise.
const APART: &[(Flags, Flags, &str)] = &[
    (
        REPLACE,
        READ,
        "bitop geosearchstore sdiffstore sinterstore sunionstore zdiffstore zinterstore zrangestore zunionstore",
    ),
    (TAKE, ADD, "blmove brpoplpush lmove rpoplpush smove"),
    (READ, REPLACE, "copy georadius georadiusbymember sort"),
    (&["RW", "access", "insert"], READ, "pfmerge"),
    (TAKE, REPLACE, "rename"),
    (TAKE, &["OW", "insert"], "renamenx"),
];

/// The flags of all keys of a command, if they are used alike whatever its options.
pub(super) fn of_all(entry: &Entry) -> Option<Flags> {
    let apart = APART.iter().any(|(_, _, names)| has(names, entry.name));
    (!apart).then(|| alike(entry))
}

/// The flags of the first key of a call, and of the others.
pub(super) fn of_call(entry: &Entry, args: &[&[u8]]) -> (Flags, Flags) {
    let found = APART.iter().find(|(_, _, names)| has(names, entry.name));
    if let Some(&(first, others, _)) = found {
        return (first, others);
    }
    let is = |words: &[&str]| {
        let options = args.get(2..).unwrap_or_default();
        let known = |arg: &&[u8]| {
            words
                .iter()
                .any(|word| arg.eq_ignore_ascii_case(word.as_bytes()))
        };
        options.iter().any(known)
    };
    let all = match entry.name {
        // The value comes before the options, and is none of them.
        "set"
            if !args
                .iter()
                .skip(3)
                .any(|arg| arg.eq_ignore_ascii_case(b"get")) =>
        {
            REPLACE
        }
        "bitfield" if !is(&["set", "incrby"]) => READ,
        _ => alike(entry),
    };
    (all, all)
}

fn alike(entry: &Entry) -> Flags {
    let found = ALIKE.iter().find(|(_, names)| has(names, entry.name));
    match found {
        Some(&(flags, _)) => flags,
        None if entry.is_write() => UPDATE,
        None => READ,
    }
}

fn has(names: &str, name: &str) -> bool {
    names.split(' ').any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::table::table;

    #[test]
    fn every_name_is_that_of_a_command_and_stands_once() {
        let alike = ALIKE.iter().map(|(_, names)| names);
        let all = alike.chain(APART.iter().map(|(_, _, names)| names));
        let mut seen = std::collections::BTreeSet::new();
        for name in all.flat_map(|names| names.split(' ')) {
            assert!(table().find(name.as_bytes()).is_some(), "{name}");
            assert!(seen.insert(name), "{name} twice");
        }
    }
}
