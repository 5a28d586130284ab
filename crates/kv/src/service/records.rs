//! The documented facts of each command and subcommand. COMMAND and COMMAND DOCS show group, flags, tips, summary and key
//! positions; ACL takes its categories and the use of keys from here.
//!
//! One line for each command, as Redis 7.2 and Valkey show it: a test compares all lines with a real
//! server.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The documented facts of a command.
#[derive(Debug)]
pub(super) struct Record {
    /// The group of the command, by Redis's names; empty for the help of PUBSUB.
    pub(super) group: &'static str,
    /// The version of Redis that had the command first, and what it does; subcommands do not show
    /// it.
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
    /// Categories of ACL that do not follow from its group and flags.
    pub(super) categories: Vec<&'static str>,
    pub(super) flags: Vec<&'static str>,
    pub(super) tips: Vec<&'static str>,
    pub(super) keys: Vec<KeySpec>,
}

/// The positions of some keys of a command, and how it uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySpec {
    /// `RO`, `RW`, `OW` (overwrites) or `RM` (removes): how the command uses the key itself. Then come the flags for the
    /// use of its value.
    pub(super) flags: Vec<&'static str>,
    pub(super) begin: Begin,
    pub(super) find: Find,
}

/// The place where a command's keys begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Keys begin at this argument.
    Index(i64),
    /// Behind a word that stands at this argument or later, or counted from the end if negative.
    Word(&'static str, i64),
    /// Other arguments decide where the keys are.
    Unknown,
}

/// How the keys of a command are found from the place where they begin.
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
    group: "",
    since: "",
    summary: "",
    categories: Vec::new(),
    flags: Vec::new(),
    tips: Vec::new(),
    keys: Vec::new(),
};

static RECORDS: LazyLock<HashMap<&str, Record>> = LazyLock::new(|| {
    let each = TEXT.iter().map(
        |&[name, group, since, summary, flags, tips, keys, categories]| {
            let record = Record {
                group,
                since,
                summary,
                categories: categories.split_ascii_whitespace().collect(),
                flags: flags.split_ascii_whitespace().collect(),
                tips: tips.split_ascii_whitespace().collect(),
                keys: keys
                    .split(';')
                    .filter(|spec| !spec.is_empty())
                    .map(|spec| key_spec(spec).unwrap_or_else(|| unreachable!("{name}: {spec}")))
                    .collect(),
            };
            (name, record)
        },
    );
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

/// One line each: a command or subcommand; its group; the version of Redis that had it first; what it does, in our words; its
/// flags; its tips; its keys; ACL categories that do not follow from group and flags. Keys are written as flags, then positions:
/// `@1` at the first argument; `@1..-1` from the first to the last, `/2` at that step, `/1/2` of the first half; `@2#` as many as
/// the second argument says; `@WORD>3` behind a word at the third argument or later; `?` as other arguments say.
#[rustfmt::skip]
const TEXT: &[[&str; 8]] = &[
    ["acl", "server", "6.0.0", "Tells of users and their rights, and changes them", "", "", "", ""],
    ["acl|cat", "server", "", "", "noscript loading stale", "", "", ""],
    ["acl|deluser", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["acl|dryrun", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["acl|genpass", "server", "", "", "noscript loading stale", "", "", ""],
    ["acl|getuser", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["acl|help", "server", "", "", "loading stale", "", "", ""],
    ["acl|list", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["acl|load", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["acl|log", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["acl|save", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["acl|setuser", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["acl|users", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["acl|whoami", "server", "", "", "noscript loading stale", "", "", ""],
    ["append", "string", "2.0.0", "Adds to the end of a string", "write denyoom fast", "", "RW insert @1", ""],
    ["asking", "cluster", "3.0.0", "Lets a cluster serve a slot that moves", "fast", "", "", "connection"],
    ["auth", "connection", "1.0.0", "Authenticates the client", "noscript loading stale fast no_auth allow_busy", "", "", ""],
    ["bgrewriteaof", "server", "1.0.0", "Rewrites the log of changes", "admin noscript no_async_loading", "", "", ""],
    ["bgsave", "server", "1.0.0", "Writes a snapshot while others are served", "admin noscript no_async_loading", "", "", ""],
    ["bitcount", "bitmap", "2.6.0", "Counts the bits of a string that are set", "readonly", "", "RO access @1", ""],
    ["bitfield", "bitmap", "3.2.0", "Reads and changes integers of any width in a string", "write denyoom", "", "RW access update variable_flags @1", ""],
    ["bitfield_ro", "bitmap", "6.0.0", "Reads integers of any width in a string", "readonly fast", "", "RO access @1", ""],
    ["bitop", "bitmap", "2.6.0", "Combines strings bit by bit", "write denyoom", "", "OW update @2; RO access @3..-1", ""],
    ["bitpos", "bitmap", "2.8.7", "Finds the first bit that is set, or is not", "readonly", "", "RO access @1", ""],
    ["blmove", "list", "6.2.0", "Moves an element from list to list, and waits for one", "write denyoom blocking", "", "RW access delete @1; RW insert @2", ""],
    ["blmpop", "list", "7.0.0", "Takes elements from the first list that is not empty, or waits until one is", "write blocking movablekeys", "", "RW access delete @2#", ""],
    ["blpop", "list", "2.0.0", "Takes the first element of a list, and waits for one", "write blocking", "", "RW access delete @1..-2", ""],
    ["brpop", "list", "2.0.0", "Takes the last element of a list, and waits for one", "write blocking", "", "RW access delete @1..-2", ""],
    ["brpoplpush", "list", "2.2.0", "Moves the last element of a list to the front of another, and waits for one", "write denyoom blocking", "", "RW access delete @1; RW insert @2", ""],
    ["bzmpop", "sorted-set", "7.0.0", "Takes members from the first sorted set that is not empty, or waits until one is", "write blocking movablekeys", "", "RW access delete @2#", ""],
    ["bzpopmax", "sorted-set", "5.0.0", "Takes the member with the highest score, and waits for one", "write blocking fast", "", "RW access delete @1..-2", ""],
    ["bzpopmin", "sorted-set", "5.0.0", "Takes the member with the lowest score, and waits for one", "write blocking fast", "", "RW access delete @1..-2", ""],
    ["client", "connection", "2.4.0", "Tells of connections, and changes how they are served", "", "", "", ""],
    ["client|caching", "connection", "", "", "noscript loading stale allow_busy", "", "", ""],
    ["client|getname", "connection", "", "", "noscript loading stale allow_busy", "", "", ""],
    ["client|getredir", "connection", "", "", "noscript loading stale allow_busy", "", "", ""],
    ["client|help", "connection", "", "", "loading stale", "", "", ""],
    ["client|id", "connection", "", "", "noscript loading stale allow_busy", "", "", ""],
    ["client|info", "connection", "", "", "noscript loading stale", "nondeterministic_output", "", ""],
    ["client|kill", "connection", "", "", "admin noscript loading stale", "", "", ""],
    ["client|list", "connection", "", "", "admin noscript loading stale", "nondeterministic_output", "", ""],
    ["client|no-evict", "connection", "", "", "admin noscript loading stale allow_busy", "", "", ""],
    ["client|no-touch", "connection", "", "", "noscript loading stale allow_busy", "", "", ""],
    ["client|pause", "connection", "", "", "admin noscript loading stale", "", "", ""],
    ["client|reply", "connection", "", "", "noscript loading stale no_multi allow_busy", "", "", ""],
    ["client|setinfo", "connection", "", "", "noscript loading stale allow_busy", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["client|setname", "connection", "", "", "noscript loading stale allow_busy", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["client|tracking", "connection", "", "", "noscript loading stale", "", "", ""],
    ["client|trackinginfo", "connection", "", "", "noscript loading stale", "", "", ""],
    ["client|unblock", "connection", "", "", "admin noscript loading stale", "", "", ""],
    ["client|unpause", "connection", "", "", "admin noscript loading stale", "", "", ""],
    ["cluster", "cluster", "3.0.0", "Tells of the cluster", "", "", "", ""],
    ["cluster|addslots", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|addslotsrange", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|bumpepoch", "cluster", "", "", "admin stale no_async_loading", "nondeterministic_output", "", ""],
    ["cluster|count-failure-reports", "cluster", "", "", "admin stale", "nondeterministic_output", "", ""],
    ["cluster|countkeysinslot", "cluster", "", "", "stale", "", "", ""],
    ["cluster|delslots", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|delslotsrange", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|failover", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|flushslots", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|forget", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|getkeysinslot", "cluster", "", "", "stale", "nondeterministic_output", "", ""],
    ["cluster|help", "cluster", "", "", "loading stale", "", "", ""],
    ["cluster|info", "cluster", "", "", "loading stale", "nondeterministic_output", "", ""],
    ["cluster|keyslot", "cluster", "", "", "stale", "", "", ""],
    ["cluster|links", "cluster", "", "", "stale", "nondeterministic_output", "", ""],
    ["cluster|meet", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|myid", "cluster", "", "", "loading stale", "", "", ""],
    ["cluster|myshardid", "cluster", "", "", "loading stale", "nondeterministic_output", "", ""],
    ["cluster|nodes", "cluster", "", "", "loading stale", "nondeterministic_output", "", ""],
    ["cluster|replicas", "cluster", "", "", "admin stale", "nondeterministic_output", "", ""],
    ["cluster|replicate", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|reset", "cluster", "", "", "admin noscript stale", "", "", ""],
    ["cluster|saveconfig", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|set-config-epoch", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|setslot", "cluster", "", "", "admin stale no_async_loading", "", "", ""],
    ["cluster|shards", "cluster", "", "", "loading stale", "nondeterministic_output", "", ""],
    ["cluster|slaves", "cluster", "", "", "admin stale", "nondeterministic_output", "", ""],
    ["cluster|slots", "cluster", "", "", "loading stale", "nondeterministic_output", "", ""],
    ["command", "server", "2.8.13", "Tells what commands there are", "loading stale", "nondeterministic_output_order", "", "connection"],
    ["command|count", "server", "", "", "loading stale", "", "", "connection"],
    ["command|docs", "server", "", "", "loading stale", "nondeterministic_output_order", "", "connection"],
    ["command|getkeys", "server", "", "", "loading stale", "", "", "connection"],
    ["command|getkeysandflags", "server", "", "", "loading stale", "", "", "connection"],
    ["command|help", "server", "", "", "loading stale", "", "", "connection"],
    ["command|info", "server", "", "", "loading stale", "nondeterministic_output_order", "", "connection"],
    ["command|list", "server", "", "", "loading stale", "nondeterministic_output_order", "", "connection"],
    ["config", "server", "2.0.0", "Reads and changes settings", "", "", "", ""],
    ["config|get", "server", "", "", "admin noscript loading stale", "", "", ""],
    ["config|help", "server", "", "", "loading stale", "", "", ""],
    ["config|resetstat", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["config|rewrite", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["config|set", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["copy", "generic", "6.2.0", "Copies a key to another", "write denyoom", "", "RO access @1; OW update @2", "keyspace"],
    ["dbsize", "generic", "1.0.0", "Counts the keys of the database", "readonly fast", "request_policy:all_shards response_policy:agg_sum", "", "keyspace"],
    ["debug", "server", "1.0.0", "Helps with debugging the server", "admin noscript loading stale", "", "", ""],
    ["decr", "string", "1.0.0", "Subtracts one from an integer", "write denyoom fast", "", "RW access update @1", ""],
    ["decrby", "string", "1.0.0", "Subtracts from an integer", "write denyoom fast", "", "RW access update @1", ""],
    ["del", "generic", "1.0.0", "Removes keys", "write", "request_policy:multi_shard response_policy:agg_sum", "RM delete @1..-1", "keyspace"],
    ["discard", "transactions", "2.0.0", "Forgets what a transaction has queued", "noscript loading stale fast allow_busy", "", "", ""],
    ["dump", "generic", "2.6.0", "Gives the value of a key in a form that RESTORE takes", "readonly", "nondeterministic_output", "RO access @1", "keyspace"],
    ["echo", "connection", "1.0.0", "Gives back what it is given", "loading stale fast", "", "", ""],
    ["eval", "scripting", "2.6.0", "Runs a script", "noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RW access update @2#", ""],
    ["eval_ro", "scripting", "7.0.0", "Runs a script that changes nothing", "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RO access @2#", ""],
    ["evalsha", "scripting", "2.6.0", "Runs a script that the server has, by its SHA-1", "noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RW access update @2#", ""],
    ["evalsha_ro", "scripting", "7.0.0", "Runs a script that the server has and that changes nothing, by its SHA-1", "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RO access @2#", ""],
    ["exec", "transactions", "1.2.0", "Runs what a transaction has queued", "noscript loading stale skip_slowlog", "", "", ""],
    ["exists", "generic", "1.0.0", "Counts the keys that are there", "readonly fast", "request_policy:multi_shard response_policy:agg_sum", "RO @1..-1", "keyspace"],
    ["expire", "generic", "1.0.0", "Has a key go after some seconds", "write fast", "", "RW update @1", "keyspace"],
    ["expireat", "generic", "1.2.0", "Has a key go at a time in seconds", "write fast", "", "RW update @1", "keyspace"],
    ["expiretime", "generic", "7.0.0", "Tells when a key goes, in seconds since 1970", "readonly fast", "", "RO access @1", "keyspace"],
    ["failover", "server", "6.2.0", "Has a replica take over", "admin noscript stale", "", "", ""],
    ["fcall", "scripting", "7.0.0", "Calls a function", "noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RW access update @2#", ""],
    ["fcall_ro", "scripting", "7.0.0", "Calls a function that changes nothing", "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "", "RO access @2#", ""],
    ["flushall", "generic", "1.0.0", "Removes all keys of all databases", "write", "request_policy:all_shards response_policy:all_succeeded", "", "dangerous keyspace"],
    ["flushdb", "generic", "1.0.0", "Removes all keys of the database", "write", "request_policy:all_shards response_policy:all_succeeded", "", "dangerous keyspace"],
    ["function", "scripting", "7.0.0", "Loads, tells of and removes libraries of functions", "", "", "", ""],
    ["function|delete", "scripting", "", "", "write noscript", "request_policy:all_shards response_policy:all_succeeded", "", ""],
    ["function|dump", "scripting", "", "", "noscript", "", "", ""],
    ["function|flush", "scripting", "", "", "write noscript", "request_policy:all_shards response_policy:all_succeeded", "", ""],
    ["function|help", "scripting", "", "", "loading stale", "", "", ""],
    ["function|kill", "scripting", "", "", "noscript allow_busy", "request_policy:all_shards response_policy:one_succeeded", "", ""],
    ["function|list", "scripting", "", "", "noscript", "nondeterministic_output_order", "", ""],
    ["function|load", "scripting", "", "", "write denyoom noscript", "request_policy:all_shards response_policy:all_succeeded", "", ""],
    ["function|restore", "scripting", "", "", "write denyoom noscript", "request_policy:all_shards response_policy:all_succeeded", "", ""],
    ["function|stats", "scripting", "", "", "noscript allow_busy", "nondeterministic_output request_policy:all_shards response_policy:special", "", ""],
    ["geoadd", "geo", "3.2.0", "Adds places, or moves them", "write denyoom", "", "RW update @1", ""],
    ["geodist", "geo", "3.2.0", "Tells how far two places are apart", "readonly", "", "RO access @1", ""],
    ["geohash", "geo", "3.2.0", "Gives the geohashes of places", "readonly", "", "RO access @1", ""],
    ["geopos", "geo", "3.2.0", "Gives longitudes and latitudes of places", "readonly", "", "RO access @1", ""],
    ["georadius", "geo", "3.2.0", "Finds places around a point, and may store them", "write denyoom movablekeys", "", "RO access @1; OW update variable_flags @STORE>6; OW update variable_flags @STOREDIST>6", ""],
    ["georadius_ro", "geo", "3.2.10", "Finds places around a point", "readonly", "", "RO access @1", ""],
    ["georadiusbymember", "geo", "3.2.0", "Finds places around another, and may store them", "write denyoom movablekeys", "", "RO access @1; OW update variable_flags @STORE>5; OW update variable_flags @STOREDIST>5", ""],
    ["georadiusbymember_ro", "geo", "3.2.10", "Finds places around another", "readonly", "", "RO access @1", ""],
    ["geosearch", "geo", "6.2.0", "Finds places in a circle or a box", "readonly", "", "RO access @1", ""],
    ["geosearchstore", "geo", "6.2.0", "Stores the places in a circle or a box", "write denyoom", "", "OW update @1; RO access @2", ""],
    ["get", "string", "1.0.0", "Gives a string", "readonly fast", "", "RO access @1", ""],
    ["getbit", "bitmap", "2.2.0", "Gives one bit of a string", "readonly fast", "", "RO access @1", ""],
    ["getdel", "string", "6.2.0", "Gives a string and removes it", "write fast", "", "RW access delete @1", ""],
    ["getex", "string", "6.2.0", "Gives a string and says when it goes", "write fast", "", "RW access update @1", ""],
    ["getrange", "string", "2.4.0", "Gives a part of a string", "readonly", "", "RO access @1", ""],
    ["getset", "string", "1.0.0", "Gives a string and puts another in its place", "write denyoom fast", "", "RW access update @1", ""],
    ["hdel", "hash", "2.0.0", "Removes fields of a hash", "write fast", "", "RW delete @1", ""],
    ["hello", "connection", "6.0.0", "Chooses the version of the protocol", "noscript loading stale fast no_auth allow_busy", "", "", ""],
    ["hexists", "hash", "2.0.0", "Tells whether a hash has a field", "readonly fast", "", "RO @1", ""],
    ["hget", "hash", "2.0.0", "Gives the value of a field", "readonly fast", "", "RO access @1", ""],
    ["hgetall", "hash", "2.0.0", "Gives all fields of a hash and their values", "readonly", "nondeterministic_output_order", "RO access @1", ""],
    ["hincrby", "hash", "2.0.0", "Adds to an integer in a field", "write denyoom fast", "", "RW access update @1", ""],
    ["hincrbyfloat", "hash", "2.6.0", "Adds to a number in a field", "write denyoom fast", "", "RW access update @1", ""],
    ["hkeys", "hash", "2.0.0", "Gives all fields of a hash", "readonly", "nondeterministic_output_order", "RO access @1", ""],
    ["hlen", "hash", "2.0.0", "Counts the fields of a hash", "readonly fast", "", "RO @1", ""],
    ["hmget", "hash", "2.0.0", "Gives the values of several fields", "readonly fast", "", "RO access @1", ""],
    ["hmset", "hash", "2.0.0", "Sets several fields", "write denyoom fast", "", "RW update @1", ""],
    ["hrandfield", "hash", "6.2.0", "Gives fields chosen by chance", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["hscan", "hash", "2.8.0", "Walks through the fields of a hash", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["hset", "hash", "2.0.0", "Sets fields of a hash", "write denyoom fast", "", "RW update @1", ""],
    ["hsetnx", "hash", "2.0.0", "Sets a field that is not there", "write denyoom fast", "", "RW insert @1", ""],
    ["hstrlen", "hash", "3.2.0", "Gives the length of the value of a field", "readonly fast", "", "RO @1", ""],
    ["hvals", "hash", "2.0.0", "Gives all values of a hash", "readonly", "nondeterministic_output_order", "RO access @1", ""],
    ["incr", "string", "1.0.0", "Adds one to an integer", "write denyoom fast", "", "RW access update @1", ""],
    ["incrby", "string", "1.0.0", "Adds to an integer", "write denyoom fast", "", "RW access update @1", ""],
    ["incrbyfloat", "string", "2.6.0", "Adds to a number", "write denyoom fast", "", "RW access update @1", ""],
    ["info", "server", "1.0.0", "Tells of the server", "loading stale", "nondeterministic_output request_policy:all_shards response_policy:special", "", "dangerous"],
    ["keys", "generic", "1.0.0", "Gives the keys that match a pattern", "readonly", "request_policy:all_shards nondeterministic_output_order", "", "dangerous keyspace"],
    ["lastsave", "server", "1.0.0", "Tells when the last snapshot was written", "loading stale fast", "nondeterministic_output", "", "admin dangerous"],
    ["latency", "server", "2.8.13", "Tells of what took long", "", "", "", ""],
    ["latency|doctor", "server", "", "", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", "", ""],
    ["latency|graph", "server", "", "", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", "", ""],
    ["latency|help", "server", "", "", "loading stale", "", "", ""],
    ["latency|histogram", "server", "", "", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", "", ""],
    ["latency|history", "server", "", "", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", "", ""],
    ["latency|latest", "server", "", "", "admin noscript loading stale", "nondeterministic_output request_policy:all_nodes response_policy:special", "", ""],
    ["latency|reset", "server", "", "", "admin noscript loading stale", "request_policy:all_nodes response_policy:agg_sum", "", ""],
    ["lcs", "string", "7.0.0", "Finds the longest text that two strings have in common", "readonly", "", "RO access @1..1", ""],
    ["lindex", "list", "1.0.0", "Gives an element of a list by its place", "readonly", "", "RO access @1", ""],
    ["linsert", "list", "2.2.0", "Adds an element before or behind another", "write denyoom", "", "RW insert @1", ""],
    ["llen", "list", "1.0.0", "Counts the elements of a list", "readonly fast", "", "RO @1", ""],
    ["lmove", "list", "6.2.0", "Moves an element from list to list", "write denyoom", "", "RW access delete @1; RW insert @2", ""],
    ["lmpop", "list", "7.0.0", "Takes elements from the first list that has any", "write movablekeys", "", "RW access delete @1#", ""],
    ["lolwut", "server", "5.0.0", "Shows the version, with a picture elsewhere", "readonly fast", "", "", ""],
    ["lpop", "list", "1.0.0", "Takes elements from the front of a list", "write fast", "", "RW access delete @1", ""],
    ["lpos", "list", "6.0.6", "Finds elements of a list", "readonly", "", "RO access @1", ""],
    ["lpush", "list", "1.0.0", "Adds elements to the front of a list", "write denyoom fast", "", "RW insert @1", ""],
    ["lpushx", "list", "2.2.0", "Adds elements to the front of a list that is there", "write denyoom fast", "", "RW insert @1", ""],
    ["lrange", "list", "1.0.0", "Gives elements of a list from one place to another", "readonly", "", "RO access @1", ""],
    ["lrem", "list", "1.0.0", "Removes elements of a list that are equal", "write", "", "RW delete @1", ""],
    ["lset", "list", "1.0.0", "Changes an element of a list", "write denyoom", "", "RW update @1", ""],
    ["ltrim", "list", "1.0.0", "Keeps the elements from one place to another", "write", "", "RW delete @1", ""],
    ["memory", "generic", "4.0.0", "Tells of memory", "", "", "", ""],
    ["memory|doctor", "generic", "", "", "", "nondeterministic_output request_policy:all_shards response_policy:special", "", ""],
    ["memory|help", "generic", "", "", "loading stale", "", "", ""],
    ["memory|malloc-stats", "generic", "", "", "loading", "nondeterministic_output request_policy:all_shards response_policy:special", "", ""],
    ["memory|purge", "generic", "", "", "loading", "request_policy:all_shards response_policy:all_succeeded", "", ""],
    ["memory|stats", "generic", "", "", "", "nondeterministic_output request_policy:all_shards response_policy:special", "", ""],
    ["memory|usage", "generic", "", "", "readonly", "", "RO @2", ""],
    ["mget", "string", "1.0.0", "Gives several strings", "readonly fast", "request_policy:multi_shard", "RO access @1..-1", ""],
    ["migrate", "generic", "2.6.0", "Moves keys to another server", "write movablekeys", "nondeterministic_output", "RW access delete @3; RW access delete incomplete @KEYS>-2..-1", "dangerous keyspace"],
    ["module", "server", "4.0.0", "Tells of modules", "", "", "", ""],
    ["module|help", "server", "", "", "loading stale", "", "", ""],
    ["module|list", "server", "", "", "admin noscript", "nondeterministic_output_order", "", ""],
    ["module|load", "server", "", "", "admin noscript no_async_loading", "", "", ""],
    ["module|loadex", "server", "", "", "admin noscript no_async_loading", "", "", ""],
    ["module|unload", "server", "", "", "admin noscript no_async_loading", "", "", ""],
    ["monitor", "server", "1.0.0", "Shows every command as it comes", "admin noscript loading stale", "", "", ""],
    ["move", "generic", "1.0.0", "Moves a key to another database", "write fast", "", "RW access update @1", "keyspace"],
    ["mset", "string", "1.0.1", "Sets several strings", "write denyoom", "request_policy:multi_shard response_policy:all_succeeded", "OW update @1..-1/2", ""],
    ["msetnx", "string", "1.0.1", "Sets several strings if none of the keys is there", "write denyoom", "", "OW insert @1..-1/2", ""],
    ["multi", "transactions", "1.2.0", "Begins a transaction", "noscript loading stale fast no_multi allow_busy", "", "", ""],
    ["object", "generic", "2.2.3", "Tells how the value of a key is kept and used", "", "", "", ""],
    ["object|encoding", "generic", "", "", "readonly", "nondeterministic_output", "RO @2", "keyspace"],
    ["object|freq", "generic", "", "", "readonly", "nondeterministic_output", "RO @2", "keyspace"],
    ["object|help", "generic", "", "", "loading stale", "", "", "keyspace"],
    ["object|idletime", "generic", "", "", "readonly", "nondeterministic_output", "RO @2", "keyspace"],
    ["object|refcount", "generic", "", "", "readonly", "nondeterministic_output", "RO @2", "keyspace"],
    ["persist", "generic", "2.2.0", "Has a key stay", "write fast", "", "RW update @1", "keyspace"],
    ["pexpire", "generic", "2.6.0", "Has a key go after some milliseconds", "write fast", "", "RW update @1", "keyspace"],
    ["pexpireat", "generic", "2.6.0", "Has a key go at a time in milliseconds", "write fast", "", "RW update @1", "keyspace"],
    ["pexpiretime", "generic", "7.0.0", "Tells when a key goes, in milliseconds since 1970", "readonly fast", "", "RO access @1", "keyspace"],
    ["pfadd", "hyperloglog", "2.8.9", "Adds elements to a HyperLogLog", "write denyoom fast", "", "RW insert @1", ""],
    ["pfcount", "hyperloglog", "2.8.9", "Estimates how many different elements were added", "readonly", "", "RW access @1..-1", ""],
    ["pfdebug", "hyperloglog", "2.8.9", "Helps with debugging a HyperLogLog", "write denyoom admin", "", "RW access @2", ""],
    ["pfmerge", "hyperloglog", "2.8.9", "Joins HyperLogLogs", "write denyoom", "", "RW access insert @1; RO access @2..-1", ""],
    ["ping", "connection", "1.0.0", "Tells whether the server answers", "fast", "request_policy:all_shards response_policy:all_succeeded", "", ""],
    ["psetex", "string", "2.6.0", "Sets a string that goes after some milliseconds", "write denyoom", "", "OW update @1", ""],
    ["psubscribe", "pubsub", "2.0.0", "Listens to all channels that match patterns", "pubsub noscript loading stale", "", "", ""],
    ["pttl", "generic", "2.6.0", "Tells in how many milliseconds a key goes", "readonly fast", "nondeterministic_output", "RO access @1", "keyspace"],
    ["publish", "pubsub", "2.0.0", "Sends a message to a channel", "pubsub loading stale fast", "", "", ""],
    ["pubsub", "pubsub", "2.8.0", "Lists channels and counts their subscribers", "", "", "", ""],
    ["pubsub|channels", "pubsub", "", "", "pubsub loading stale", "", "", ""],
    ["pubsub|help", "", "", "", "loading stale", "", "", ""],
    ["pubsub|numpat", "pubsub", "", "", "pubsub loading stale", "", "", ""],
    ["pubsub|numsub", "pubsub", "", "", "pubsub loading stale", "", "", ""],
    ["pubsub|shardchannels", "pubsub", "", "", "pubsub loading stale", "", "", ""],
    ["pubsub|shardnumsub", "pubsub", "", "", "pubsub loading stale", "", "", ""],
    ["punsubscribe", "pubsub", "2.0.0", "Listens no more to what matches patterns", "pubsub noscript loading stale", "", "", ""],
    ["quit", "connection", "1.0.0", "Ends the connection", "noscript loading stale fast no_auth allow_busy", "", "", ""],
    ["randomkey", "generic", "1.0.0", "Gives a key chosen by chance", "readonly", "request_policy:all_shards response_policy:special nondeterministic_output", "", "keyspace"],
    ["readonly", "cluster", "3.0.0", "Lets a replica in a cluster be read", "loading stale fast", "", "", "connection"],
    ["readwrite", "cluster", "3.0.0", "Has a replica in a cluster be read no more", "loading stale fast", "", "", "connection"],
    ["rename", "generic", "1.0.0", "Gives a key another name", "write", "", "RW access delete @1; OW update @2", "keyspace"],
    ["renamenx", "generic", "1.0.0", "Gives a key a name that no other has", "write fast", "", "RW access delete @1; OW insert @2", "keyspace"],
    ["replconf", "server", "3.0.0", "Is said by replicas", "admin noscript loading stale allow_busy", "", "", ""],
    ["replicaof", "server", "5.0.0", "Has the server follow another", "admin noscript stale no_async_loading", "", "", ""],
    ["reset", "connection", "6.2.0", "Makes the connection as new", "noscript loading stale fast no_auth allow_busy", "", "", ""],
    ["restore", "generic", "2.6.0", "Makes a key of what DUMP has given", "write denyoom", "", "OW update @1", "dangerous keyspace"],
    ["restore-asking", "generic", "3.0.0", "Makes a key while a slot moves", "write denyoom asking", "", "OW update @1", "dangerous keyspace"],
    ["role", "server", "2.8.12", "Tells what the server is to replicas", "noscript loading stale fast", "", "", "admin dangerous"],
    ["rpop", "list", "1.0.0", "Takes elements from the end of a list", "write fast", "", "RW access delete @1", ""],
    ["rpoplpush", "list", "1.2.0", "Moves the last element of a list to the front of another", "write denyoom", "", "RW access delete @1; RW insert @2", ""],
    ["rpush", "list", "1.0.0", "Adds elements to the end of a list", "write denyoom fast", "", "RW insert @1", ""],
    ["rpushx", "list", "2.2.0", "Adds elements to the end of a list that is there", "write denyoom fast", "", "RW insert @1", ""],
    ["sadd", "set", "1.0.0", "Adds members to a set", "write denyoom fast", "", "RW insert @1", ""],
    ["save", "server", "1.0.0", "Writes a snapshot", "admin noscript no_async_loading no_multi", "", "", ""],
    ["scan", "generic", "2.8.0", "Walks through the keys of the database", "readonly", "nondeterministic_output request_policy:special response_policy:special", "", "keyspace"],
    ["scard", "set", "1.0.0", "Counts the members of a set", "readonly fast", "", "RO @1", ""],
    ["script", "scripting", "2.6.0", "Keeps, finds, forgets and ends scripts", "", "", "", ""],
    ["script|exists", "scripting", "", "", "noscript stale", "request_policy:all_shards response_policy:agg_logical_and", "", ""],
    ["script|flush", "scripting", "", "", "noscript stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["script|help", "scripting", "", "", "loading stale", "", "", ""],
    ["script|kill", "scripting", "", "", "noscript allow_busy", "request_policy:all_shards response_policy:one_succeeded", "", ""],
    ["script|load", "scripting", "", "", "noscript stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["sdiff", "set", "1.0.0", "Gives what the first set has and the others do not", "readonly", "nondeterministic_output_order", "RO access @1..-1", ""],
    ["sdiffstore", "set", "1.0.0", "Stores what the first set has and the others do not", "write denyoom", "", "OW update @1; RO access @2..-1", ""],
    ["select", "connection", "1.0.0", "Chooses the database", "loading stale fast allow_busy", "", "", ""],
    ["sentinel", "sentinel", "2.8.4", "Tells of the servers of the store", "admin noscript loading stale", "", "", ""],
    ["sentinel|ckquorum", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|config", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|debug", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|failover", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|flushconfig", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|get-master-addr-by-name", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|help", "sentinel", "", "", "loading stale", "", "", ""],
    ["sentinel|info-cache", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|is-master-down-by-addr", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|master", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|masters", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|monitor", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|myid", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|pending-scripts", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|remove", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|replicas", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|reset", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|sentinels", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|set", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|simulate-failure", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["sentinel|slaves", "sentinel", "", "", "admin noscript loading stale", "", "", ""],
    ["set", "string", "1.0.0", "Sets a string", "write denyoom", "", "RW access update variable_flags @1", ""],
    ["setbit", "bitmap", "2.2.0", "Sets one bit of a string", "write denyoom", "", "RW access update @1", ""],
    ["setex", "string", "2.0.0", "Sets a string that goes after some seconds", "write denyoom", "", "OW update @1", ""],
    ["setnx", "string", "1.0.0", "Sets a string if the key is not there", "write denyoom fast", "", "OW insert @1", ""],
    ["setrange", "string", "2.2.0", "Overwrites a part of a string", "write denyoom", "", "RW update @1", ""],
    ["shutdown", "server", "1.0.0", "Ends the server", "admin noscript loading stale no_multi allow_busy", "", "", ""],
    ["sinter", "set", "1.0.0", "Gives what all sets have", "readonly", "nondeterministic_output_order", "RO access @1..-1", ""],
    ["sintercard", "set", "7.0.0", "Counts what all sets have", "readonly movablekeys", "", "RO access @1#", ""],
    ["sinterstore", "set", "1.0.0", "Stores what all sets have", "write denyoom", "", "OW update @1; RO access @2..-1", ""],
    ["sismember", "set", "1.0.0", "Tells whether a set has a member", "readonly fast", "", "RO @1", ""],
    ["slaveof", "server", "1.0.0", "Has the server follow another", "admin noscript stale no_async_loading", "", "", ""],
    ["slowlog", "server", "2.2.12", "Tells of commands that took long", "", "", "", ""],
    ["slowlog|get", "server", "", "", "admin loading stale", "request_policy:all_nodes nondeterministic_output", "", ""],
    ["slowlog|help", "server", "", "", "loading stale", "", "", ""],
    ["slowlog|len", "server", "", "", "admin loading stale", "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", "", ""],
    ["slowlog|reset", "server", "", "", "admin loading stale", "request_policy:all_nodes response_policy:all_succeeded", "", ""],
    ["smembers", "set", "1.0.0", "Gives all members of a set", "readonly", "nondeterministic_output_order", "RO access @1", ""],
    ["smismember", "set", "6.2.0", "Tells which of several members a set has", "readonly fast", "", "RO access @1", ""],
    ["smove", "set", "1.0.0", "Moves a member from set to set", "write fast", "", "RW access delete @1; RW insert @2", ""],
    ["sort", "generic", "1.0.0", "Sorts a list or a set, and may store the result", "write denyoom movablekeys", "", "RO access @1; RO access ?; OW update ?", "dangerous list set sortedset"],
    ["sort_ro", "generic", "7.0.0", "Sorts a list or a set", "readonly movablekeys", "", "RO access @1; RO access ?", "dangerous list set sortedset"],
    ["spop", "set", "1.0.0", "Takes members chosen by chance", "write fast", "nondeterministic_output", "RW access delete @1", ""],
    ["spublish", "pubsub", "7.0.0", "Sends a message to a sharded channel", "pubsub loading stale fast", "", "not_key @1", ""],
    ["srandmember", "set", "1.0.0", "Gives members chosen by chance", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["srem", "set", "1.0.0", "Removes members of a set", "write fast", "", "RW delete @1", ""],
    ["sscan", "set", "2.8.0", "Walks through the members of a set", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["ssubscribe", "pubsub", "7.0.0", "Listens to sharded channels", "pubsub noscript loading stale", "", "not_key @1..-1", ""],
    ["strlen", "string", "2.2.0", "Gives the length of a string", "readonly fast", "", "RO @1", ""],
    ["subscribe", "pubsub", "2.0.0", "Listens to channels", "pubsub noscript loading stale", "", "", ""],
    ["substr", "string", "1.0.0", "Gives a part of a string", "readonly", "", "RO access @1", ""],
    ["sunion", "set", "1.0.0", "Gives what any of the sets has", "readonly", "nondeterministic_output_order", "RO access @1..-1", ""],
    ["sunionstore", "set", "1.0.0", "Stores what any of the sets has", "write denyoom", "", "OW update @1; RO access @2..-1", ""],
    ["sunsubscribe", "pubsub", "7.0.0", "Listens no more to sharded channels", "pubsub noscript loading stale", "", "not_key @1..-1", ""],
    ["swapdb", "server", "4.0.0", "Exchanges two databases", "write fast", "", "", "dangerous keyspace"],
    ["time", "server", "2.6.0", "Tells the time", "loading stale fast", "nondeterministic_output", "", ""],
    ["touch", "generic", "3.2.1", "Counts the keys that are there, as used just now", "readonly fast", "request_policy:multi_shard response_policy:agg_sum", "RO @1..-1", "keyspace"],
    ["ttl", "generic", "1.0.0", "Tells in how many seconds a key goes", "readonly fast", "nondeterministic_output", "RO access @1", "keyspace"],
    ["type", "generic", "1.0.0", "Tells the type of a value", "readonly fast", "", "RO @1", "keyspace"],
    ["unlink", "generic", "4.0.0", "Removes keys, and frees them later", "write fast", "request_policy:multi_shard response_policy:agg_sum", "RM delete @1..-1", "keyspace"],
    ["unsubscribe", "pubsub", "2.0.0", "Listens no more to channels", "pubsub noscript loading stale", "", "", ""],
    ["unwatch", "transactions", "2.2.0", "Forgets what is watched", "noscript loading stale fast allow_busy", "", "", ""],
    ["wait", "server", "3.0.0", "Waits for replicas to have what was written", "blocking", "request_policy:all_shards response_policy:agg_min", "", "connection"],
    ["waitaof", "server", "7.2.0", "Waits for what was written to be on disks", "blocking", "request_policy:all_shards response_policy:agg_min", "", "connection"],
    ["watch", "transactions", "2.2.0", "Has EXEC do nothing if one of these keys changes", "noscript loading stale fast no_multi allow_busy", "", "RO @1..-1", ""],
    ["xack", "stream", "5.0.0", "Says that a group has dealt with entries", "write fast", "", "RW update @1", ""],
    ["xadd", "stream", "5.0.0", "Adds an entry to a stream", "write denyoom fast", "nondeterministic_output", "RW update @1", ""],
    ["xautoclaim", "stream", "6.2.0", "Takes over entries that others have left pending", "write fast", "nondeterministic_output", "RW delete @1", ""],
    ["xclaim", "stream", "5.0.0", "Takes over pending entries", "write fast", "nondeterministic_output", "RW update @1", ""],
    ["xdel", "stream", "5.0.0", "Removes entries of a stream", "write fast", "", "RW delete @1", ""],
    ["xgroup", "stream", "5.0.0", "Makes, changes and removes groups of a stream", "", "", "", ""],
    ["xgroup|create", "stream", "", "", "write denyoom", "", "RW insert @2", ""],
    ["xgroup|createconsumer", "stream", "", "", "write denyoom", "", "RW insert @2", ""],
    ["xgroup|delconsumer", "stream", "", "", "write", "", "RW delete @2", ""],
    ["xgroup|destroy", "stream", "", "", "write", "", "RW delete @2", ""],
    ["xgroup|help", "stream", "", "", "loading stale", "", "", ""],
    ["xgroup|setid", "stream", "", "", "write", "", "RW update @2", ""],
    ["xinfo", "stream", "5.0.0", "Tells of a stream, its groups and their consumers", "", "", "", ""],
    ["xinfo|consumers", "stream", "", "", "readonly", "nondeterministic_output", "RO access @2", ""],
    ["xinfo|groups", "stream", "", "", "readonly", "", "RO access @2", ""],
    ["xinfo|help", "stream", "", "", "loading stale", "", "", ""],
    ["xinfo|stream", "stream", "", "", "readonly", "", "RO access @2", ""],
    ["xlen", "stream", "5.0.0", "Counts the entries of a stream", "readonly fast", "", "RO @1", ""],
    ["xpending", "stream", "5.0.0", "Tells what a group has been given and not dealt with", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["xrange", "stream", "5.0.0", "Gives entries of a stream from one id to another", "readonly", "", "RO access @1", ""],
    ["xread", "stream", "5.0.0", "Gives what is new in streams, and may wait for it", "readonly blocking movablekeys", "", "RO access @STREAMS>1..-1/1/2", ""],
    ["xreadgroup", "stream", "5.0.0", "Gives a group what is new in streams, and may wait for it", "write blocking movablekeys", "", "RO access @STREAMS>4..-1/1/2", ""],
    ["xrevrange", "stream", "5.0.0", "Gives entries of a stream from one id back to another", "readonly", "", "RO access @1", ""],
    ["xsetid", "stream", "5.0.0", "Sets the last id of a stream", "write denyoom fast", "", "RW update @1", ""],
    ["xtrim", "stream", "5.0.0", "Removes the oldest entries of a stream", "write", "nondeterministic_output", "RW delete @1", ""],
    ["zadd", "sorted-set", "1.2.0", "Adds members to a sorted set, or changes their scores", "write denyoom fast", "", "RW update @1", ""],
    ["zcard", "sorted-set", "1.2.0", "Counts the members of a sorted set", "readonly fast", "", "RO @1", ""],
    ["zcount", "sorted-set", "2.0.0", "Counts the members with scores in a range", "readonly fast", "", "RO access @1", ""],
    ["zdiff", "sorted-set", "6.2.0", "Gives what the first sorted set has and the others do not", "readonly movablekeys", "", "RO access @1#", ""],
    ["zdiffstore", "sorted-set", "6.2.0", "Stores what the first sorted set has and the others do not", "write denyoom movablekeys", "", "OW update @1; RO access @2#", ""],
    ["zincrby", "sorted-set", "1.2.0", "Adds to the score of a member", "write denyoom fast", "", "RW access update @1", ""],
    ["zinter", "sorted-set", "6.2.0", "Gives what all sorted sets have", "readonly movablekeys", "", "RO access @1#", ""],
    ["zintercard", "sorted-set", "7.0.0", "Counts what all sorted sets have", "readonly movablekeys", "", "RO access @1#", ""],
    ["zinterstore", "sorted-set", "2.0.0", "Stores what all sorted sets have", "write denyoom movablekeys", "", "OW update @1; RO access @2#", ""],
    ["zlexcount", "sorted-set", "2.8.9", "Counts the members between two in the order of bytes", "readonly fast", "", "RO access @1", ""],
    ["zmpop", "sorted-set", "7.0.0", "Takes members from the first sorted set that has any", "write movablekeys", "", "RW access delete @1#", ""],
    ["zmscore", "sorted-set", "6.2.0", "Gives the scores of several members", "readonly fast", "", "RO access @1", ""],
    ["zpopmax", "sorted-set", "5.0.0", "Takes the members with the highest scores", "write fast", "", "RW access delete @1", ""],
    ["zpopmin", "sorted-set", "5.0.0", "Takes the members with the lowest scores", "write fast", "", "RW access delete @1", ""],
    ["zrandmember", "sorted-set", "6.2.0", "Gives members chosen by chance", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["zrange", "sorted-set", "1.2.0", "Gives members of a sorted set by rank, score or order of bytes", "readonly", "", "RO access @1", ""],
    ["zrangebylex", "sorted-set", "2.8.9", "Gives the members between two in the order of bytes", "readonly", "", "RO access @1", ""],
    ["zrangebyscore", "sorted-set", "1.0.5", "Gives the members with scores in a range", "readonly", "", "RO access @1", ""],
    ["zrangestore", "sorted-set", "6.2.0", "Stores a range of a sorted set", "write denyoom", "", "OW update @1; RO access @2", ""],
    ["zrank", "sorted-set", "2.0.0", "Tells the place of a member", "readonly fast", "", "RO access @1", ""],
    ["zrem", "sorted-set", "1.2.0", "Removes members of a sorted set", "write fast", "", "RW delete @1", ""],
    ["zremrangebylex", "sorted-set", "2.8.9", "Removes the members between two in the order of bytes", "write", "", "RW delete @1", ""],
    ["zremrangebyrank", "sorted-set", "2.0.0", "Removes the members between two places", "write", "", "RW delete @1", ""],
    ["zremrangebyscore", "sorted-set", "1.2.0", "Removes the members with scores in a range", "write", "", "RW delete @1", ""],
    ["zrevrange", "sorted-set", "1.2.0", "Gives members by rank, the highest score first", "readonly", "", "RO access @1", ""],
    ["zrevrangebylex", "sorted-set", "2.8.9", "Gives the members between two in the reverse order of bytes", "readonly", "", "RO access @1", ""],
    ["zrevrangebyscore", "sorted-set", "2.2.0", "Gives the members with scores in a range, the highest first", "readonly", "", "RO access @1", ""],
    ["zrevrank", "sorted-set", "2.0.0", "Tells the place of a member, counted from the highest score", "readonly fast", "", "RO access @1", ""],
    ["zscan", "sorted-set", "2.8.0", "Walks through the members of a sorted set", "readonly", "nondeterministic_output", "RO access @1", ""],
    ["zscore", "sorted-set", "1.2.0", "Gives the score of a member", "readonly fast", "", "RO access @1", ""],
    ["zunion", "sorted-set", "6.2.0", "Gives what any of the sorted sets has", "readonly movablekeys", "", "RO access @1#", ""],
    ["zunionstore", "sorted-set", "2.0.0", "Stores what any of the sorted sets has", "write denyoom movablekeys", "", "OW update @1; RO access @2#", ""],
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
        let told: Vec<&str> = TEXT.iter().map(|[name, ..]| *name).collect();
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
    fn something_is_said_of_every_command() {
        for entry in table().all() {
            let record = Record::of(entry.name).expect(entry.name);
            let said = [record.group, record.since, record.summary];
            assert!(said.iter().all(|text| !text.is_empty()), "{}", entry.name);
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
