//! Categories of commands, which rules such as `+@read` name.
//!
//! Nearly all follows from a command's group and flags; its record lists what does not.

use crate::service::records::{NONE, Record};
use crate::service::table::Entry;

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
    let record = match sub {
        Some(sub) => Record::of(&format!("{}|{sub}", entry.name)).unwrap_or(&NONE),
        None => entry.record,
    };
    let all = record.categories.iter().map(|name| bit(name));
    let mut all = all.fold(0, |all, one| all | one);
    all |= match record.group {
        "sorted-set" => bit("sortedset"),
        "transactions" => bit("transaction"),
        // Each other group is a category of the same name.
        group => bit(group),
    };
    for flag in &record.flags {
        all |= match *flag {
            "write" | "blocking" | "fast" => bit(flag),
            "readonly" if record.group != "scripting" => bit("read"),
            "admin" => bit("admin") | bit("dangerous"),
            _ => 0,
        };
    }
    let speed = if record.flags.contains(&"fast") {
        0
    } else {
        bit("slow")
    };
    all | speed
}
