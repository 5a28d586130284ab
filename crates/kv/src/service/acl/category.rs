//! Categories of commands: what a rule such as `+@read` stands for.
//!
//! Nearly all follows from what the table knows of a command: its group, and whether it reads, writes
//! and is fast. What does not is listed here.

use crate::commands::{FAST, READ};
use crate::service::table::{Entry, What};

/// Categories, as bits in the order of [`NAMES`].
pub(crate) type Categories = u32;

/// Names of the categories, in the order in which ACL CAT tells them.
pub(crate) const NAMES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands that only the operator should use. All of it is dangerous too.
const ADMIN: &[&str] = &[
    "acl|deluser",
    "acl|dryrun",
    "acl|getuser",
    "acl|list",
    "acl|load",
    "acl|log",
    "acl|save",
    "acl|setuser",
    "acl|users",
    "bgrewriteaof",
    "bgsave",
    "client|kill",
    "client|list",
    "client|no-evict",
    "client|pause",
    "client|unblock",
    "client|unpause",
    "cluster|addslots",
    "cluster|addslotsrange",
    "cluster|bumpepoch",
    "cluster|count-failure-reports",
    "cluster|delslots",
    "cluster|delslotsrange",
    "cluster|failover",
    "cluster|flushslots",
    "cluster|forget",
    "cluster|meet",
    "cluster|replicas",
    "cluster|replicate",
    "cluster|reset",
    "cluster|saveconfig",
    "cluster|set-config-epoch",
    "cluster|setslot",
    "cluster|slaves",
    "config|get",
    "config|resetstat",
    "config|rewrite",
    "config|set",
    "debug",
    "failover",
    "lastsave",
    "latency|doctor",
    "latency|graph",
    "latency|histogram",
    "latency|history",
    "latency|latest",
    "latency|reset",
    "module|list",
    "module|load",
    "module|loadex",
    "module|unload",
    "monitor",
    "pfdebug",
    "pfselftest",
    "psync",
    "replconf",
    "replicaof",
    "role",
    "save",
    "shutdown",
    "slaveof",
    "slowlog|get",
    "slowlog|len",
    "slowlog|reset",
    "sync",
];

const DANGEROUS: &[&str] = &[
    "flushall",
    "flushdb",
    "info",
    "keys",
    "migrate",
    "restore",
    "restore-asking",
    "sort",
    "sort_ro",
    "swapdb",
];

const BLOCKING: &[&str] = &[
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "wait",
    "waitaof",
    "xread",
    "xreadgroup",
];

/// Fast commands among the ones that are not about keys.
const FAST_ONES: &[&str] = &[
    "asking",
    "auth",
    "discard",
    "echo",
    "hello",
    "lastsave",
    "lolwut",
    "multi",
    "ping",
    "publish",
    "quit",
    "readonly",
    "readwrite",
    "reset",
    "role",
    "select",
    "spublish",
    "time",
    "unwatch",
    "watch",
];

/// What changes something that is not a key, or elsewhere would.
const WRITES: &[&str] = &[
    "function|delete",
    "function|flush",
    "function|load",
    "function|restore",
    "migrate",
];

/// What belongs to connections, whatever group its documentation has.
const CONNECTION: &[&str] = &[
    "command",
    "wait",
    "waitaof",
    "asking",
    "readonly",
    "readwrite",
];

/// The category of this name, in any case.
pub(crate) fn named(name: &[u8]) -> Option<Categories> {
    let is_it = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    NAMES.iter().position(is_it).map(|at| 1 << at)
}

/// The names of categories.
pub(crate) fn names(categories: Categories) -> impl Iterator<Item = &'static str> {
    let all = NAMES.iter().enumerate();
    all.filter(move |(at, _)| categories & 1 << at != 0)
        .map(|(_, name)| *name)
}

/// The categories of a command, or of one of its subcommands. A command that is several is only slow.
pub(crate) fn of(entry: &Entry, sub: Option<&str>) -> Categories {
    let bit = |name: &str| named(name.as_bytes()).unwrap_or_default();
    // Only COMMAND is also a command by itself.
    if entry.has_subcommands() && sub.is_none() && entry.arity != -1 {
        return bit("slow");
    }
    let is_in = |list: &[&str]| {
        list.iter().any(|known| match known.split_once('|') {
            Some((command, of)) => command == entry.name && sub == Some(of),
            None => *known == entry.name,
        })
    };
    let mut all = bit(group(entry, sub));
    if matches!(entry.name, "sort" | "sort_ro") {
        all |= bit("list") | bit("set") | bit("sortedset");
    }
    if is_in(CONNECTION) {
        all |= bit("connection");
    }
    let helps = sub == Some("help");
    let touches = !helps && (entry.name != "memory" || sub == Some("usage"));
    let mut fast = is_in(FAST_ONES);
    if let What::Data(spec) = entry.what {
        fast = spec.flags & FAST != 0;
        if touches && spec.is_write() {
            all |= bit("write");
        } else if touches && spec.flags & READ != 0 {
            all |= bit("read");
        }
    }
    if is_in(WRITES) {
        all |= bit("write");
    }
    if entry.name == "lolwut" {
        all |= bit("read");
    }
    if is_in(BLOCKING) {
        all |= bit("blocking");
    }
    if is_in(ADMIN) {
        all |= bit("admin");
    }
    if is_in(ADMIN) || is_in(DANGEROUS) {
        all |= bit("dangerous");
    }
    all | if fast && sub.is_none() {
        bit("fast")
    } else {
        bit("slow")
    }
}

/// The category of a command's group; empty if that is none.
fn group(entry: &Entry, sub: Option<&str>) -> &'static str {
    match (entry.group(), entry.name, sub) {
        (_, "sort" | "sort_ro" | "memory", _) | (_, "pubsub", Some("help")) => "",
        ("generic", ..) | (_, "dbsize" | "flushall" | "flushdb" | "swapdb", _) => "keyspace",
        ("sorted-set", ..) => "sortedset",
        ("transactions", ..) => "transaction",
        ("server", ..) => "",
        (group, ..) => group,
    }
}
