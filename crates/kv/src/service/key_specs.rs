//! Key specifications: how COMMAND tells clients and proxies where the keys of a command are.

use super::key_flags::{self, Flags};
use super::table::{Entry, SCRIPT_KEYS, What};
use crate::commands::Keys;
use crate::reply::Reply;

/// Names with numbers.
type Fields = [(&'static str, i64)];

/// Where keys begin, and how the others are found from there.
enum Find {
    /// At an argument; the last relative to it, or from the end if negative; the step.
    Range(u8, i64, u8),
    /// At an argument that says how many follow.
    Number(u8),
    /// Behind a word that stands at an argument or later, half of the rest.
    Word(&'static str, u8),
    /// The one behind a word that stands at an argument or later.
    Store(&'static str, u8),
    /// By what the arguments say, for a reason that is told.
    Unknown(&'static str),
}

/// Writes the key specifications of a command, the tenth of its details.
pub(super) fn write(reply: &mut Reply, entry: &Entry) {
    let keys = match entry.what {
        What::Data(spec) => spec.keys,
        What::Session(_) if entry.name == "watch" => Keys::REST,
        What::Session(_) if entry.runs_script() => SCRIPT_KEYS,
        What::Session(_) => Keys::None,
    };
    let by_pattern = Find::Unknown("BY and GET name keys made from elements of the first one");
    let found = match keys {
        Keys::None | Keys::All | Keys::Walk => Vec::new(),
        Keys::Range { first, last, step } => {
            let last = i64::from(last);
            let relative = if last < 0 {
                last
            } else {
                last - i64::from(first)
            };
            vec![Find::Range(first, relative, step)]
        }
        Keys::Counted { at, first: false } => vec![Find::Number(at)],
        Keys::Counted { at, first: true } => vec![Find::Range(1, 0, 1), Find::Number(at)],
        Keys::Sort if entry.is_write() => {
            let into = Find::Unknown("STORE can stand anywhere behind the first key");
            vec![Find::Range(1, 0, 1), by_pattern, into]
        }
        Keys::Sort => vec![Find::Range(1, 0, 1), by_pattern],
        Keys::GeoStore(from) => vec![
            Find::Range(1, 0, 1),
            Find::Store("STORE", from),
            Find::Store("STOREDIST", from),
        ],
        Keys::Streams if entry.is_write() => vec![Find::Word("STREAMS", 4)],
        Keys::Streams => vec![Find::Word("STREAMS", 1)],
    };
    // Of several only the destination is written to: the first, or what is named at last.
    let reads_some = matches!(
        keys,
        Keys::Counted { first: true, .. } | Keys::Sort | Keys::GeoStore(_)
    );
    let n = found.len();
    reply.set(n);
    for (at, find) in found.into_iter().enumerate() {
        let is_destination = match keys {
            Keys::Sort => at == 2,
            Keys::GeoStore(_) => at > 0,
            _ => at == 0,
        };
        // What a group reads changes the group alone.
        let writes =
            entry.is_write() && (!reads_some || is_destination) && !matches!(keys, Keys::Streams);
        let several: Flags = if writes {
            &["RW", "access", "update"]
        } else {
            &["RO", "access"]
        };
        let flags = key_flags::of_all(entry).filter(|_| n == 1);
        one(reply, &find, flags.unwrap_or(several));
    }
}

fn one(reply: &mut Reply, find: &Find, flags: Flags) {
    if let Find::Unknown(why) = find {
        reply.map(4);
        reply.bulk(b"notes");
        reply.bulk(why.as_bytes());
    } else {
        reply.map(3);
    }
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (begin, rest): (&Fields, (&str, &Fields)) = match *find {
        Find::Range(first, last, step) => (
            &[("index", first.into())],
            (
                "range",
                &[("lastkey", last), ("keystep", step.into()), ("limit", 0)],
            ),
        ),
        Find::Number(at) => (
            &[("index", at.into())],
            (
                "keynum",
                &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)],
            ),
        ),
        Find::Word(_, from) => (
            &[("startfrom", from.into())],
            ("range", &[("lastkey", -1), ("keystep", 1), ("limit", 2)]),
        ),
        Find::Store(_, from) => (
            &[("startfrom", from.into())],
            ("range", &[("lastkey", 0), ("keystep", 1), ("limit", 0)]),
        ),
        Find::Unknown(_) => (&[], ("unknown", &[])),
    };
    let kind = match find {
        Find::Word(..) | Find::Store(..) => "keyword",
        Find::Unknown(_) => "unknown",
        Find::Range(..) | Find::Number(_) => "index",
    };
    for (name, (kind, fields)) in [("begin_search", (kind, begin)), ("find_keys", rest)] {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        reply.bulk(b"spec");
        match find {
            Find::Word(word, _) | Find::Store(word, _) if kind == "keyword" => {
                reply.map(fields.len() + 1);
                reply.bulk(b"keyword");
                reply.bulk(word.as_bytes());
            }
            _ => reply.map(fields.len()),
        }
        for (field, value) in fields {
            reply.bulk(field.as_bytes());
            reply.integer(*value);
        }
    }
}
