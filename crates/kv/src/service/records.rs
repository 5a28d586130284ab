//! What COMMAND tells of each command and subcommand: its flags, tips and where its keys are; and, from that, what a call
//! does with its keys, which ACL's rules about keys ask.
//!
//! One line for each, as Redis 7.2 and Valkey tell it: a test compares all of them with a real server.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What is told of a command.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) flags: Vec<&'static str>,
    pub(super) tips: Vec<&'static str>,
    pub(super) keys: Vec<KeySpec>,
}

/// Where some keys of a command are, and how it uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySpec {
    /// `RO`, `RW`, `OW` (overwrites) or `RM` (removes): how the key is used as such. Then what is done with what it holds.
    pub(super) flags: Vec<&'static str>,
    pub(super) begin: Begin,
    pub(super) find: Find,
}

/// Where keys begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// At this argument.
    Index(i64),
    /// Behind a word that stands at this argument or later, or counted from the end if negative.
    Word(&'static str, i64),
    /// As the other arguments say.
    Unknown,
}

/// How keys are found from where they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Find {
    /// The last relative to the first, or from the end if negative; the step; and which part of the rest, 0 for all.
    Range(i64, i64, i64),
    /// The first argument says how many follow, at this step.
    Number(i64),
    Unknown,
}

impl Record {
    /// The record of a command, or of a subcommand as in `config|get`.
    pub(super) fn of(name: &str) -> Option<&'static Record> {
        RECORDS.get(name)
    }

    /// The first key, the last, and the step from one to the next, as far as that can be said without the arguments.
    pub(super) fn positions(&self) -> (i64, i64, i64) {
        let range = |spec: &KeySpec| match (spec.begin, spec.find) {
            (Begin::Index(at), Find::Range(last, step, _)) => {
                Some((at, if last < 0 { last } else { at + last }, step))
            }
            _ => None,
        };
        if let [only] = &self.keys[..] {
            return range(only).unwrap_or((0, 0, 0));
        }
        // Ranges that follow on each other are one.
        let mut all: Option<(i64, i64)> = None;
        for (first, last, step) in self.keys.iter().filter_map(range) {
            all = match all {
                None if step == 1 => Some((first, last)),
                Some((begin, end)) if step == 1 && end == first - 1 => Some((begin, last)),
                other => other,
            };
        }
        all.map_or((0, 0, 0), |(first, last)| (first, last, 1))
    }

    /// The flags of the first key of a call, and of the others.
    pub(super) fn key_flags(&self) -> (&[&'static str], &[&'static str]) {
        let mut flags = self.keys.iter().map(|spec| &spec.flags[..]);
        let first = flags.next().unwrap_or_default();
        (first, flags.next_back().unwrap_or(first))
    }
}

/// The record of a command that nothing is told of; a test finds that there is none.
pub(super) static NONE: Record = Record {
    flags: Vec::new(),
    tips: Vec::new(),
    keys: Vec::new(),
};

static RECORDS: LazyLock<HashMap<&str, Record>> = LazyLock::new(|| {
    let each = TEXT.iter().map(|&(name, flags, tips, keys)| {
        let record = Record {
            flags: flags.split_ascii_whitespace().collect(),
            tips: tips.split_ascii_whitespace().collect(),
            keys: keys
                .split(';')
                .filter(|spec| !spec.is_empty())
                .map(|spec| key_spec(spec).unwrap_or_else(|| unreachable!("{name}: {spec}")))
                .collect(),
        };
        (name, record)
    });
    each.collect()
});

/// Reads one of the key specifications of [`TEXT`].
fn key_spec(text: &'static str) -> Option<KeySpec> {
    let (flags, place) = text.trim().rsplit_once(' ')?;
    let flags = flags.split(' ').collect();
    let Some(place) = place.strip_prefix('@') else {
        return (place == "?").then_some(KeySpec {
            flags,
            begin: Begin::Unknown,
            find: Find::Unknown,
        });
    };
    let (begin, find) = if let Some((begin, step)) = place.split_once('#') {
        let step = if step.is_empty() {
            1
        } else {
            step.parse().ok()?
        };
        (begin, Find::Number(step))
    } else if let Some((begin, range)) = place.split_once("..") {
        let mut numbers = range.split('/');
        let last = numbers.next()?.parse().ok()?;
        let step = numbers.next().map_or(Some(1), |n| n.parse().ok())?;
        let limit = numbers.next().map_or(Some(0), |n| n.parse().ok())?;
        (begin, Find::Range(last, step, limit))
    } else {
        (place, Find::Range(0, 1, 0))
    };
    let begin = match begin.split_once('>') {
        Some((word, from)) => Begin::Word(word, from.parse().ok()?),
        None => Begin::Index(begin.parse().ok()?),
    };
    Some(KeySpec { flags, begin, find })
}

/// A command; its flags; its tips; its keys. Keys are told as their flags, then where they are: `@1` at the first argument;
/// `@1..-1` from it to the last, `/2` at that step, `/1/2` of the first half; `@2#` as many as the second argument says;
/// `@WORD>3` behind a word at the third or later; `?` as other arguments say.
#[rustfmt::skip]
const TEXT: &[(&str, &str, &str, &str)] = &[
    ("acl", "", "", ""),
    ("acl|cat", "noscript loading stale", "", ""),
    ("acl|deluser", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("acl|dryrun", "admin noscript loading stale", "", ""),
    ("acl|genpass", "noscript loading stale", "", ""),
    ("acl|getuser", "admin noscript loading stale", "", ""),
    ("acl|help", "loading stale", "", ""),
    ("acl|list", "admin noscript loading stale", "", ""),
    ("acl|load", "admin noscript loading stale", "", ""),
    ("acl|log", "admin noscript loading stale", "", ""),
    ("acl|save", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("acl|setuser", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("acl|users", "admin noscript loading stale", "", ""),
    ("acl|whoami", "noscript loading stale", "", ""),
    ("append", "write denyoom fast", "", "RW insert @1"),
    ("asking", "fast", "", ""),
    ("auth", "noscript loading stale fast no_auth allow_busy", "", ""),
    ("bgrewriteaof", "admin noscript no_async_loading", "", ""),
    ("bgsave", "admin noscript no_async_loading", "", ""),
    ("bitcount", "readonly", "", "RO access @1"),
    ("bitfield", "write denyoom", "", "RW access update variable_flags @1"),
    ("bitfield_ro", "readonly fast", "", "RO access @1"),
    ("bitop", "write denyoom", "", "OW update @2; RO access @3..-1"),
    ("bitpos", "readonly", "", "RO access @1"),
    ("blmove", "write denyoom blocking", "", "RW access delete @1; RW insert @2"),
    ("blmpop", "write blocking movablekeys", "", "RW access delete @2#"),
    ("blpop", "write blocking", "", "RW access delete @1..-2"),
    ("brpop", "write blocking", "", "RW access delete @1..-2"),
    ("brpoplpush", "write denyoom blocking", "", "RW access delete @1; RW insert @2"),
    ("bzmpop", "write blocking movablekeys", "", "RW access delete @2#"),
    ("bzpopmax", "write blocking fast", "", "RW access delete @1..-2"),
    ("bzpopmin", "write blocking fast", "", "RW access delete @1..-2"),
    ("client", "", "", ""),
    ("client|caching", "noscript loading stale allow_busy", "", ""),
    ("client|getname", "noscript loading stale allow_busy", "", ""),
    ("client|getredir", "noscript loading stale allow_busy", "", ""),
    ("client|help", "loading stale", "", ""),
    ("client|id", "noscript loading stale allow_busy", "", ""),
    ("client|info", "noscript loading stale", "nondeterministic_output", ""),
    ("client|kill", "admin noscript loading stale", "", ""),
    ("client|list", "admin noscript loading stale", "nondeterministic_output", ""),
    ("client|no-evict", "admin noscript loading stale allow_busy", "", ""),
    ("client|no-touch", "noscript loading stale allow_busy", "", ""),
    ("client|pause", "admin noscript loading stale", "", ""),
    ("client|reply", "noscript loading stale no_multi allow_busy", "", ""),
    ("client|setinfo", "noscript loading stale allow_busy", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("client|setname", "noscript loading stale allow_busy", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("client|tracking", "noscript loading stale", "", ""),
    ("client|trackinginfo", "noscript loading stale", "", ""),
    ("client|unblock", "admin noscript loading stale", "", ""),
    ("client|unpause", "admin noscript loading stale", "", ""),
    ("cluster", "", "", ""),
    ("cluster|addslots", "admin stale no_async_loading", "", ""),
    ("cluster|addslotsrange", "admin stale no_async_loading", "", ""),
    ("cluster|bumpepoch", "admin stale no_async_loading", "nondeterministic_output", ""),
    ("cluster|count-failure-reports", "admin stale", "nondeterministic_output", ""),
    ("cluster|countkeysinslot", "stale", "", ""),
    ("cluster|delslots", "admin stale no_async_loading", "", ""),
    ("cluster|delslotsrange", "admin stale no_async_loading", "", ""),
    ("cluster|failover", "admin stale no_async_loading", "", ""),
    ("cluster|flushslots", "admin stale no_async_loading", "", ""),
    ("cluster|forget", "admin stale no_async_loading", "", ""),
    ("cluster|getkeysinslot", "stale", "nondeterministic_output", ""),
    ("cluster|help", "loading stale", "", ""),
    ("cluster|info", "loading stale", "nondeterministic_output", ""),
    ("cluster|keyslot", "stale", "", ""),
    ("cluster|links", "stale", "nondeterministic_output", ""),
    ("cluster|meet", "admin stale no_async_loading", "", ""),
    ("cluster|myid", "loading stale", "", ""),
    ("cluster|myshardid", "loading stale", "nondeterministic_output", ""),
    ("cluster|nodes", "loading stale", "nondeterministic_output", ""),
    ("cluster|replicas", "admin stale", "nondeterministic_output", ""),
    ("cluster|replicate", "admin stale no_async_loading", "", ""),
    ("cluster|reset", "admin noscript stale", "", ""),
    ("cluster|saveconfig", "admin stale no_async_loading", "", ""),
    ("cluster|set-config-epoch", "admin stale no_async_loading", "", ""),
    ("cluster|setslot", "admin stale no_async_loading", "", ""),
    ("cluster|shards", "loading stale", "nondeterministic_output", ""),
    ("cluster|slaves", "admin stale", "nondeterministic_output", ""),
    ("cluster|slots", "loading stale", "nondeterministic_output", ""),
    ("command", "loading stale", "nondeterministic_output_order", ""),
    ("command|count", "loading stale", "", ""),
    ("command|docs", "loading stale", "nondeterministic_output_order", ""),
    ("command|getkeys", "loading stale", "", ""),
    ("command|getkeysandflags", "loading stale", "", ""),
    ("command|help", "loading stale", "", ""),
    ("command|info", "loading stale", "nondeterministic_output_order", ""),
    ("command|list", "loading stale", "nondeterministic_output_order", ""),
    ("config", "", "", ""),
    ("config|get", "admin noscript loading stale", "", ""),
    ("config|help", "loading stale", "", ""),
    ("config|resetstat", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("config|rewrite", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("config|set", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("copy", "write denyoom", "", "RO access @1; OW update @2"),
    ("dbsize", "readonly fast", "request_policy:all_shards response_policy:agg_sum", ""),
    ("debug", "admin noscript loading stale", "", ""),
    ("decr", "write denyoom fast", "", "RW access update @1"),
    ("decrby", "write denyoom fast", "", "RW access update @1"),
    ("del", "write", "request_policy:multi_shard response_policy:agg_sum", "RM delete @1..-1"),
    ("discard", "noscript loading stale fast allow_busy", "", ""),
    ("dump", "readonly", "nondeterministic_output", "RO access @1"),
    ("echo", "loading stale fast", "", ""),
    ("eval", "noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RW access update @2#"),
    ("eval_ro", "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RO access @2#"),
    ("evalsha", "noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RW access update @2#"),
    ("evalsha_ro", "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RO access @2#"),
    ("exec", "noscript loading stale skip_slowlog", "", ""),
    ("exists", "readonly fast", "request_policy:multi_shard response_policy:agg_sum", "RO @1..-1"),
    ("expire", "write fast", "", "RW update @1"),
    ("expireat", "write fast", "", "RW update @1"),
    ("expiretime", "readonly fast", "", "RO access @1"),
    ("failover", "admin noscript stale", "", ""),
    ("fcall", "noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RW access update @2#"),
    ("fcall_ro", "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RO access @2#"),
    ("flushall", "write", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("flushdb", "write", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("function", "", "", ""),
    ("function|delete", "write noscript", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("function|dump", "noscript", "", ""),
    ("function|flush", "write noscript", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("function|help", "loading stale", "", ""),
    ("function|kill", "noscript allow_busy", "request_policy:all_shards response_policy:one_succeeded", ""),
    ("function|list", "noscript", "nondeterministic_output_order", ""),
    ("function|load", "write denyoom noscript", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("function|restore", "write denyoom noscript", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("function|stats", "noscript allow_busy", "nondeterministic_output request_policy:all_shards response_policy:special", ""),
    ("geoadd", "write denyoom", "", "RW update @1"),
    ("geodist", "readonly", "", "RO access @1"),
    ("geohash", "readonly", "", "RO access @1"),
    ("geopos", "readonly", "", "RO access @1"),
    ("georadius", "write denyoom movablekeys", "", "RO access @1; OW update variable_flags @STORE>6; OW update variable_flags @STOREDIST>6"),
    ("georadius_ro", "readonly", "", "RO access @1"),
    ("georadiusbymember", "write denyoom movablekeys", "", "RO access @1; OW update variable_flags @STORE>5; OW update variable_flags @STOREDIST>5"),
    ("georadiusbymember_ro", "readonly", "", "RO access @1"),
    ("geosearch", "readonly", "", "RO access @1"),
    ("geosearchstore", "write denyoom", "", "OW update @1; RO access @2"),
    ("get", "readonly fast", "", "RO access @1"),
    ("getbit", "readonly fast", "", "RO access @1"),
    ("getdel", "write fast", "", "RW access delete @1"),
    ("getex", "write fast", "", "RW access update @1"),
    ("getrange", "readonly", "", "RO access @1"),
    ("getset", "write denyoom fast", "", "RW access update @1"),
    ("hdel", "write fast", "", "RW delete @1"),
    ("hello", "noscript loading stale fast no_auth allow_busy", "", ""),
    ("hexists", "readonly fast", "", "RO @1"),
    ("hget", "readonly fast", "", "RO access @1"),
    ("hgetall", "readonly", "nondeterministic_output_order", "RO access @1"),
    ("hincrby", "write denyoom fast", "", "RW access update @1"),
    ("hincrbyfloat", "write denyoom fast", "", "RW access update @1"),
    ("hkeys", "readonly", "nondeterministic_output_order", "RO access @1"),
    ("hlen", "readonly fast", "", "RO @1"),
    ("hmget", "readonly fast", "", "RO access @1"),
    ("hmset", "write denyoom fast", "", "RW update @1"),
    ("hrandfield", "readonly", "nondeterministic_output", "RO access @1"),
    ("hscan", "readonly", "nondeterministic_output", "RO access @1"),
    ("hset", "write denyoom fast", "", "RW update @1"),
    ("hsetnx", "write denyoom fast", "", "RW insert @1"),
    ("hstrlen", "readonly fast", "", "RO @1"),
    ("hvals", "readonly", "nondeterministic_output_order", "RO access @1"),
    ("incr", "write denyoom fast", "", "RW access update @1"),
    ("incrby", "write denyoom fast", "", "RW access update @1"),
    ("incrbyfloat", "write denyoom fast", "", "RW access update @1"),
    ("info", "loading stale", "nondeterministic_output request_policy:all_shards response_policy:special", ""),
    ("keys", "readonly", "request_policy:all_shards nondeterministic_output_order", ""),
    ("lastsave", "loading stale fast", "nondeterministic_output", ""),
    ("latency", "", "", ""),
    ("latency|doctor", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", ""),
    ("latency|graph", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", ""),
    ("latency|help", "loading stale", "", ""),
    ("latency|histogram", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", ""),
    ("latency|history", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", ""),
    ("latency|latest", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", ""),
    ("latency|reset", "admin noscript loading stale", "request_policy:all_nodes response_policy:agg_sum", ""),
    ("lcs", "readonly", "", "RO access @1..1"),
    ("lindex", "readonly", "", "RO access @1"),
    ("linsert", "write denyoom", "", "RW insert @1"),
    ("llen", "readonly fast", "", "RO @1"),
    ("lmove", "write denyoom", "", "RW access delete @1; RW insert @2"),
    ("lmpop", "write movablekeys", "", "RW access delete @1#"),
    ("lolwut", "readonly fast", "", ""),
    ("lpop", "write fast", "", "RW access delete @1"),
    ("lpos", "readonly", "", "RO access @1"),
    ("lpush", "write denyoom fast", "", "RW insert @1"),
    ("lpushx", "write denyoom fast", "", "RW insert @1"),
    ("lrange", "readonly", "", "RO access @1"),
    ("lrem", "write", "", "RW delete @1"),
    ("lset", "write denyoom", "", "RW update @1"),
    ("ltrim", "write", "", "RW delete @1"),
    ("memory", "", "", ""),
    ("memory|doctor", "", "nondeterministic_output request_policy:all_shards response_policy:special", ""),
    ("memory|help", "loading stale", "", ""),
    ("memory|malloc-stats", "loading", "nondeterministic_output request_policy:all_shards response_policy:special", ""),
    ("memory|purge", "loading", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("memory|stats", "", "nondeterministic_output request_policy:all_shards response_policy:special", ""),
    ("memory|usage", "readonly", "", "RO @2"),
    ("mget", "readonly fast", "request_policy:multi_shard", "RO access @1..-1"),
    ("migrate", "write movablekeys", "nondeterministic_output", "RW access delete @3; RW access delete incomplete @KEYS>-2..-1"),
    ("module", "", "", ""),
    ("module|help", "loading stale", "", ""),
    ("module|list", "admin noscript", "nondeterministic_output_order", ""),
    ("module|load", "admin noscript no_async_loading", "", ""),
    ("module|loadex", "admin noscript no_async_loading", "", ""),
    ("module|unload", "admin noscript no_async_loading", "", ""),
    ("monitor", "admin noscript loading stale", "", ""),
    ("move", "write fast", "", "RW access update @1"),
    ("mset", "write denyoom", "request_policy:multi_shard response_policy:all_succeeded", "OW update @1..-1/2"),
    ("msetnx", "write denyoom", "", "OW insert @1..-1/2"),
    ("multi", "noscript loading stale fast no_multi allow_busy", "", ""),
    ("object", "", "", ""),
    ("object|encoding", "readonly", "nondeterministic_output", "RO @2"),
    ("object|freq", "readonly", "nondeterministic_output", "RO @2"),
    ("object|help", "loading stale", "", ""),
    ("object|idletime", "readonly", "nondeterministic_output", "RO @2"),
    ("object|refcount", "readonly", "nondeterministic_output", "RO @2"),
    ("persist", "write fast", "", "RW update @1"),
    ("pexpire", "write fast", "", "RW update @1"),
    ("pexpireat", "write fast", "", "RW update @1"),
    ("pexpiretime", "readonly fast", "", "RO access @1"),
    ("pfadd", "write denyoom fast", "", "RW insert @1"),
    ("pfcount", "readonly", "", "RW access @1..-1"),
    ("pfdebug", "write denyoom admin", "", "RW access @2"),
    ("pfmerge", "write denyoom", "", "RW access insert @1; RO access @2..-1"),
    ("ping", "fast", "request_policy:all_shards response_policy:all_succeeded", ""),
    ("psetex", "write denyoom", "", "OW update @1"),
    ("psubscribe", "pubsub noscript loading stale", "", ""),
    ("pttl", "readonly fast", "nondeterministic_output", "RO access @1"),
    ("publish", "pubsub loading stale fast", "", ""),
    ("pubsub", "", "", ""),
    ("pubsub|channels", "pubsub loading stale", "", ""),
    ("pubsub|help", "loading stale", "", ""),
    ("pubsub|numpat", "pubsub loading stale", "", ""),
    ("pubsub|numsub", "pubsub loading stale", "", ""),
    ("pubsub|shardchannels", "pubsub loading stale", "", ""),
    ("pubsub|shardnumsub", "pubsub loading stale", "", ""),
    ("punsubscribe", "pubsub noscript loading stale", "", ""),
    ("quit", "noscript loading stale fast no_auth allow_busy", "", ""),
    ("randomkey", "readonly", "request_policy:all_shards response_policy:special nondeterministic_output", ""),
    ("readonly", "loading stale fast", "", ""),
    ("readwrite", "loading stale fast", "", ""),
    ("rename", "write", "", "RW access delete @1; OW update @2"),
    ("renamenx", "write fast", "", "RW access delete @1; OW insert @2"),
    ("replconf", "admin noscript loading stale allow_busy", "", ""),
    ("replicaof", "admin noscript stale no_async_loading", "", ""),
    ("reset", "noscript loading stale fast no_auth allow_busy", "", ""),
    ("restore", "write denyoom", "", "OW update @1"),
    ("restore-asking", "write denyoom asking", "", "OW update @1"),
    ("role", "noscript loading stale fast", "", ""),
    ("rpop", "write fast", "", "RW access delete @1"),
    ("rpoplpush", "write denyoom", "", "RW access delete @1; RW insert @2"),
    ("rpush", "write denyoom fast", "", "RW insert @1"),
    ("rpushx", "write denyoom fast", "", "RW insert @1"),
    ("sadd", "write denyoom fast", "", "RW insert @1"),
    ("save", "admin noscript no_async_loading no_multi", "", ""),
    ("scan", "readonly", "nondeterministic_output request_policy:special response_policy:special", ""),
    ("scard", "readonly fast", "", "RO @1"),
    ("script", "", "", ""),
    ("script|exists", "noscript stale", "request_policy:all_shards response_policy:agg_logical_and", ""),
    ("script|flush", "noscript stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("script|help", "loading stale", "", ""),
    ("script|kill", "noscript allow_busy", "request_policy:all_shards response_policy:one_succeeded", ""),
    ("script|load", "noscript stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("sdiff", "readonly", "nondeterministic_output_order", "RO access @1..-1"),
    ("sdiffstore", "write denyoom", "", "OW update @1; RO access @2..-1"),
    ("select", "loading stale fast allow_busy", "", ""),
    ("set", "write denyoom", "", "RW access update variable_flags @1"),
    ("setbit", "write denyoom", "", "RW access update @1"),
    ("setex", "write denyoom", "", "OW update @1"),
    ("setnx", "write denyoom fast", "", "OW insert @1"),
    ("setrange", "write denyoom", "", "RW update @1"),
    ("shutdown", "admin noscript loading stale no_multi allow_busy", "", ""),
    ("sinter", "readonly", "nondeterministic_output_order", "RO access @1..-1"),
    ("sintercard", "readonly movablekeys", "", "RO access @1#"),
    ("sinterstore", "write denyoom", "", "OW update @1; RO access @2..-1"),
    ("sismember", "readonly fast", "", "RO @1"),
    ("slaveof", "admin noscript stale no_async_loading", "", ""),
    ("slowlog", "", "", ""),
    ("slowlog|get", "admin loading stale", "request_policy:all_nodes nondeterministic_output", ""),
    ("slowlog|help", "loading stale", "", ""),
    ("slowlog|len", "admin loading stale", "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", ""),
    ("slowlog|reset", "admin loading stale", "request_policy:all_nodes response_policy:all_succeeded", ""),
    ("smembers", "readonly", "nondeterministic_output_order", "RO access @1"),
    ("smismember", "readonly fast", "", "RO access @1"),
    ("smove", "write fast", "", "RW access delete @1; RW insert @2"),
    ("sort", "write denyoom movablekeys", "", "RO access @1; RO access ?; OW update ?"),
    ("sort_ro", "readonly movablekeys", "", "RO access @1; RO access ?"),
    ("spop", "write fast", "nondeterministic_output", "RW access delete @1"),
    ("spublish", "pubsub loading stale fast", "", "not_key @1"),
    ("srandmember", "readonly", "nondeterministic_output", "RO access @1"),
    ("srem", "write fast", "", "RW delete @1"),
    ("sscan", "readonly", "nondeterministic_output", "RO access @1"),
    ("ssubscribe", "pubsub noscript loading stale", "", "not_key @1..-1"),
    ("strlen", "readonly fast", "", "RO @1"),
    ("subscribe", "pubsub noscript loading stale", "", ""),
    ("substr", "readonly", "", "RO access @1"),
    ("sunion", "readonly", "nondeterministic_output_order", "RO access @1..-1"),
    ("sunionstore", "write denyoom", "", "OW update @1; RO access @2..-1"),
    ("sunsubscribe", "pubsub noscript loading stale", "", "not_key @1..-1"),
    ("swapdb", "write fast", "", ""),
    ("time", "loading stale fast", "nondeterministic_output", ""),
    ("touch", "readonly fast", "request_policy:multi_shard response_policy:agg_sum", "RO @1..-1"),
    ("ttl", "readonly fast", "nondeterministic_output", "RO access @1"),
    ("type", "readonly fast", "", "RO @1"),
    ("unlink", "write fast", "request_policy:multi_shard response_policy:agg_sum", "RM delete @1..-1"),
    ("unsubscribe", "pubsub noscript loading stale", "", ""),
    ("unwatch", "noscript loading stale fast allow_busy", "", ""),
    ("wait", "blocking", "request_policy:all_shards response_policy:agg_min", ""),
    ("waitaof", "blocking", "request_policy:all_shards response_policy:agg_min", ""),
    ("watch", "noscript loading stale fast no_multi allow_busy", "", "RO @1..-1"),
    ("xack", "write fast", "", "RW update @1"),
    ("xadd", "write denyoom fast", "nondeterministic_output", "RW update @1"),
    ("xautoclaim", "write fast", "nondeterministic_output", "RW delete @1"),
    ("xclaim", "write fast", "nondeterministic_output", "RW update @1"),
    ("xdel", "write fast", "", "RW delete @1"),
    ("xgroup", "", "", ""),
    ("xgroup|create", "write denyoom", "", "RW insert @2"),
    ("xgroup|createconsumer", "write denyoom", "", "RW insert @2"),
    ("xgroup|delconsumer", "write", "", "RW delete @2"),
    ("xgroup|destroy", "write", "", "RW delete @2"),
    ("xgroup|help", "loading stale", "", ""),
    ("xgroup|setid", "write", "", "RW update @2"),
    ("xinfo", "", "", ""),
    ("xinfo|consumers", "readonly", "nondeterministic_output", "RO access @2"),
    ("xinfo|groups", "readonly", "", "RO access @2"),
    ("xinfo|help", "loading stale", "", ""),
    ("xinfo|stream", "readonly", "", "RO access @2"),
    ("xlen", "readonly fast", "", "RO @1"),
    ("xpending", "readonly", "nondeterministic_output", "RO access @1"),
    ("xrange", "readonly", "", "RO access @1"),
    ("xread", "readonly blocking movablekeys", "", "RO access @STREAMS>1..-1/1/2"),
    ("xreadgroup", "write blocking movablekeys", "", "RO access @STREAMS>4..-1/1/2"),
    ("xrevrange", "readonly", "", "RO access @1"),
    ("xsetid", "write denyoom fast", "", "RW update @1"),
    ("xtrim", "write", "nondeterministic_output", "RW delete @1"),
    ("zadd", "write denyoom fast", "", "RW update @1"),
    ("zcard", "readonly fast", "", "RO @1"),
    ("zcount", "readonly fast", "", "RO access @1"),
    ("zdiff", "readonly movablekeys", "", "RO access @1#"),
    ("zdiffstore", "write denyoom movablekeys", "", "OW update @1; RO access @2#"),
    ("zincrby", "write denyoom fast", "", "RW access update @1"),
    ("zinter", "readonly movablekeys", "", "RO access @1#"),
    ("zintercard", "readonly movablekeys", "", "RO access @1#"),
    ("zinterstore", "write denyoom movablekeys", "", "OW update @1; RO access @2#"),
    ("zlexcount", "readonly fast", "", "RO access @1"),
    ("zmpop", "write movablekeys", "", "RW access delete @1#"),
    ("zmscore", "readonly fast", "", "RO access @1"),
    ("zpopmax", "write fast", "", "RW access delete @1"),
    ("zpopmin", "write fast", "", "RW access delete @1"),
    ("zrandmember", "readonly", "nondeterministic_output", "RO access @1"),
    ("zrange", "readonly", "", "RO access @1"),
    ("zrangebylex", "readonly", "", "RO access @1"),
    ("zrangebyscore", "readonly", "", "RO access @1"),
    ("zrangestore", "write denyoom", "", "OW update @1; RO access @2"),
    ("zrank", "readonly fast", "", "RO access @1"),
    ("zrem", "write fast", "", "RW delete @1"),
    ("zremrangebylex", "write", "", "RW delete @1"),
    ("zremrangebyrank", "write", "", "RW delete @1"),
    ("zremrangebyscore", "write", "", "RW delete @1"),
    ("zrevrange", "readonly", "", "RO access @1"),
    ("zrevrangebylex", "readonly", "", "RO access @1"),
    ("zrevrangebyscore", "readonly", "", "RO access @1"),
    ("zrevrank", "readonly fast", "", "RO access @1"),
    ("zscan", "readonly", "nondeterministic_output", "RO access @1"),
    ("zscore", "readonly fast", "", "RO access @1"),
    ("zunion", "readonly movablekeys", "", "RO access @1#"),
    ("zunionstore", "write denyoom movablekeys", "", "OW update @1; RO access @2#"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::table::table;

    #[test]
    fn every_command_and_subcommand_has_a_record_and_every_record_is_read() {
        let mut names = std::collections::BTreeSet::new();
        for entry in table().all() {
            names.insert(entry.name.to_owned());
            let subcommands = entry.subcommands().iter();
            names.extend(subcommands.map(|(sub, _)| format!("{}|{sub}", entry.name)));
        }
        let told: Vec<&str> = TEXT.iter().map(|(name, ..)| *name).collect();
        assert!(told.is_sorted());
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), told);
        for name in told {
            let record = Record::of(name).expect(name);
            for spec in &record.keys {
                assert!(!spec.flags.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn key_specifications_are_read() {
        let spec = |text| key_spec(text).map(|spec| (spec.begin, spec.find));
        let range = |last, step, limit| Find::Range(last, step, limit);
        for (text, expected) in [
            ("RO @1", (Begin::Index(1), range(0, 1, 0))),
            ("RO access @1..-1/2", (Begin::Index(1), range(-1, 2, 0))),
            (
                "RO @STREAMS>4..-1/1/2",
                (Begin::Word("STREAMS", 4), range(-1, 1, 2)),
            ),
            (
                "RO @KEYS>-2..-1",
                (Begin::Word("KEYS", -2), range(-1, 1, 0)),
            ),
            ("RO @2#", (Begin::Index(2), Find::Number(1))),
            ("RO @2#2", (Begin::Index(2), Find::Number(2))),
            ("RO ?", (Begin::Unknown, Find::Unknown)),
        ] {
            assert_eq!(spec(text), Some(expected), "{text}");
        }
        for bad in ["RO", "RO 1", "RO @x", "RO @1..x", "RO @1#x"] {
            assert_eq!(spec(bad), None, "{bad}");
        }
    }

    #[test]
    fn positions_are_as_in_the_old_form() {
        for (name, expected) in [
            ("get", (1, 1, 1)),
            ("mset", (1, -1, 2)),
            ("blmove", (1, 2, 1)),
            ("pfmerge", (1, -1, 1)),
            ("zunionstore", (1, 1, 1)),
            ("ssubscribe", (1, -1, 1)),
            ("spublish", (1, 1, 1)),
            ("subscribe", (0, 0, 0)),
            ("lmpop", (0, 0, 0)),
            ("object", (0, 0, 0)),
            ("object|freq", (2, 2, 1)),
        ] {
            assert_eq!(Record::of(name).unwrap().positions(), expected, "{name}");
        }
    }
}
