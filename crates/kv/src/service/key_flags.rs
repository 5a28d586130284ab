//! How the keys of a call are used, as COMMAND GETKEYSANDFLAGS tells it.

use super::records::Record;
use super::table::Entry;

/// Flags of a key.
pub(super) type Flags = &'static [&'static str];

/// The flags of the first key of a call, and of the others: the flags of the command's record, but
/// where they depend on the arguments.
pub(super) fn of_call(entry: &Entry, args: &[&[u8]]) -> (Flags, Flags) {
    // The value comes before the options, and is none of them.
    let mut options = args.iter().skip(3);
    let all: Flags = match entry.name {
        "set" if options.any(|arg| arg.eq_ignore_ascii_case(b"get")) => &["RW", "access", "update"],
        "set" => &["OW", "update"],
        "bitfield" if only_gets(args.get(2..).unwrap_or_default()) => &["RO", "access"],
        "bitfield" => &["RW", "access", "update"],
        "sort" | "georadius" | "georadiusbymember" => {
            return (&["RO", "access"], &["OW", "update"]);
        }
        _ => return record_of_call(entry, args).key_flags(),
    };
    (all, all)
}

/// Whether BITFIELD reads alone: what is no operation counts as one that writes, as in Redis.
fn only_gets(mut operations: &[&[u8]]) -> bool {
    loop {
        operations = match operations {
            [] => return true,
            [get, _, _, rest @ ..] if get.eq_ignore_ascii_case(b"get") => rest,
            [overflow, _, rest @ ..] if overflow.eq_ignore_ascii_case(b"overflow") => rest,
            _ => return false,
        };
    }
}

/// The record of the subcommand, if the command has such; else of the command.
fn record_of_call(entry: &Entry, args: &[&[u8]]) -> &'static Record {
    let sub = args
        .get(1)
        .filter(|_| entry.has_subcommands() && entry.may_have_keys());
    let sub = sub.and_then(|sub| std::str::from_utf8(sub).ok());
    let sub =
        sub.and_then(|sub| Record::of(&format!("{}|{}", entry.name, sub.to_ascii_lowercase())));
    sub.unwrap_or(entry.record)
}
