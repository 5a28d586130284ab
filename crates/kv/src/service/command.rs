//! COMMAND: what commands there are, for clients that ask before they send.

use super::acl;
use super::acl::category::{self, Categories};
use super::call::{Asked, Call, Flow};
use super::key_flags;
use super::key_specs;
use super::records::{NONE, Record};
use super::table::{Entry, table};
use crate::commands::subcommands::Subcommands;
use crate::reply::Reply;
use crate::types::glob;

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands.",
    "DOCS [<command-name> ...]",
    "    Return documentation of commands.",
    "GETKEYS <full-command>",
    "    Return the keys of a full command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys of a full command and how they are used.",
    "INFO [<command-name> ...]",
    "    Return details about commands.",
    "LIST [FILTERBY (MODULE|ACLCAT|PATTERN) <value>]",
    "    Return the names of commands.",
];

/// The subcommands of COMMAND.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("count", 2),
    ("docs", -2),
    ("getkeys", -3),
    ("getkeysandflags", -3),
    ("help", 2),
    ("info", -2),
    ("list", -2),
];

/// Runs COMMAND.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    answer(&mut call.asked());
    Flow::Done
}

/// Answers COMMAND.
pub(super) fn answer(call: &mut Asked<'_>) {
    let all = table().all();
    let Some(sub) = call.args.get(1) else {
        call.reply.array(all.len());
        for entry in all {
            details(call.reply, entry);
        }
        return;
    };
    let sub = sub.to_ascii_lowercase();
    let rest = &call.args[2..];
    match (&sub[..], rest) {
        (b"count", []) => call.reply.integer(all.len() as i64),
        (b"info", names) => {
            let everything: Vec<&[u8]> = all.iter().map(|e| e.name.as_bytes()).collect();
            let names = if names.is_empty() {
                &everything[..]
            } else {
                names
            };
            call.reply.array(names.len());
            for name in names {
                match table().find(name) {
                    Some(entry) => details(call.reply, entry),
                    None => call.reply.null(),
                }
            }
        }
        (b"docs", names) => {
            let shown: Vec<&Entry> = match names {
                [] => all.iter().collect(),
                names => names.iter().filter_map(|name| table().find(name)).collect(),
            };
            call.reply.map(shown.len());
            for entry in shown {
                call.reply.bulk(entry.name.as_bytes());
                write_docs(call.reply, entry);
            }
        }
        (b"list", []) => names(call.reply, |_, _| true),
        (b"list", [by, how, value]) if by.eq_ignore_ascii_case(b"filterby") => {
            let value = value.to_ascii_lowercase();
            match how.to_ascii_lowercase().as_slice() {
                b"module" => names(call.reply, |_, _| false),
                b"aclcat" => {
                    let category = category::named(&value).unwrap_or(0);
                    names(call.reply, |_, categories| categories & category != 0);
                }
                b"pattern" => names(call.reply, |name, _| glob::matches(&value, name.as_bytes())),
                _ => call.reply.error("ERR syntax error"),
            }
        }
        (b"list", _) => call.reply.error("ERR syntax error"),
        (b"getkeys", args @ [_, ..]) => keys(call, args, false),
        (b"getkeysandflags", args @ [_, ..]) => keys(call, args, true),
        (b"help", []) => call.help(HELP),
        _ => call.subcommand_error("command"),
    }
}

/// Writes the names of the commands and subcommands that are to be kept.
fn names(reply: &mut Reply, keep: impl Fn(&str, Categories) -> bool) {
    let kept = acl::names().filter(|(name, categories)| keep(name, *categories));
    let kept: Vec<String> = kept.map(|(name, _)| name).collect();
    reply.array(kept.len());
    for name in kept {
        reply.bulk(name.as_bytes());
    }
}

fn details(reply: &mut Reply, entry: &Entry) {
    let categories = category::of(entry, None);
    one(reply, entry.name, entry.arity, entry.record, categories);
    let subcommands = entry.subcommands();
    reply.array(subcommands.len());
    for (sub, arity) in subcommands {
        let name = format!("{}|{sub}", entry.name);
        let record = Record::of(&name).unwrap_or(&NONE);
        one(reply, &name, *arity, record, category::of(entry, Some(sub)));
        // A subcommand itself has no subcommands.
        reply.array(0);
    }
}

/// Writes the details of a command or a subcommand, but for its subcommands, which are the last.
fn one(reply: &mut Reply, name: &str, arity: i16, record: &Record, categories: Categories) {
    let (first, last, step) = record.positions();
    let categories: Vec<_> = category::names(categories).collect();
    reply.array(10);
    reply.bulk(name.as_bytes());
    reply.integer(arity.into());
    reply.set(record.flags.len());
    record.flags.iter().for_each(|flag| reply.simple(flag));
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    reply.set(categories.len());
    for category in categories {
        reply.simple(&format!("@{category}"));
    }
    reply.array(record.tips.len());
    for tip in &record.tips {
        reply.bulk(tip.as_bytes());
    }
    key_specs::write(reply, record);
}

fn write_docs(reply: &mut Reply, entry: &Entry) {
    let record = entry.record;
    reply.map(4);
    for (name, value) in [
        ("summary", record.summary),
        ("since", record.since),
        ("group", record.group),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"arity");
    reply.integer(entry.arity.into());
}

fn keys(call: &mut Asked<'_>, args: &[&[u8]], flags: bool) {
    let Some(entry) = table().find(args[0]) else {
        return call.reply.error("ERR Invalid command specified");
    };
    let sub = args.get(1).map(|sub| sub.to_ascii_lowercase());
    let subcommands = entry.subcommands();
    let known = |sub: &Vec<u8>| subcommands.iter().find(|(name, _)| name.as_bytes() == sub);
    let arity = match (&sub, subcommands) {
        (_, []) => None,
        (None, _) => return call.reply.error("ERR The command has no key arguments"),
        (Some(sub), _) => match known(sub) {
            Some((_, arity)) => Some(*arity),
            None => return call.reply.error("ERR Invalid command specified"),
        },
    };
    let takes = |arity: i16| {
        let least = usize::from(arity.unsigned_abs());
        args.len() == least || arity < 0 && args.len() > least
    };
    if !entry.takes(args.len()) || !arity.is_none_or(takes) {
        return call
            .reply
            .error("ERR Invalid number of arguments specified for command");
    }
    let (keys, runs_script) = (entry.keys(args), entry.runs_script());
    let (keys, is_wrong) = match entry.counts_wrong_keys(args) {
        // As in Redis, a script whose number of keys is wrong has none.
        true => (Vec::new(), !runs_script),
        false => (keys, false),
    };
    if is_wrong || keys.is_empty() && !runs_script {
        let is_help = !subcommands.is_empty() && sub.as_deref() == Some(b"help");
        return call.reply.error(if entry.may_have_keys() && !is_help {
            "ERR Invalid arguments specified for command"
        } else {
            "ERR The command has no key arguments"
        });
    }
    call.reply.array(keys.len());
    let (first, others) = key_flags::of_call(entry, args);
    for (at, key) in keys.into_iter().enumerate() {
        if flags {
            let flags = if at == 0 { first } else { others };
            call.reply.array(2);
            call.reply.bulk(key);
            call.reply.set(flags.len());
            flags.iter().for_each(|flag| call.reply.simple(flag));
        } else {
            call.reply.bulk(key);
        }
    }
}
