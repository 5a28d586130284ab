//! Key specifications: how COMMAND tells clients and proxies where the keys of a command are.

use super::records::{Begin, Find, KeySpec, Record};
use crate::reply::Reply;

/// Names with numbers.
type Fields<'a> = &'a [(&'static str, i64)];

/// Writes the key specifications of a command, the ninth of its details.
pub(super) fn write(reply: &mut Reply, record: &Record) {
    let specs = &record.keys;
    reply.set(specs.len());
    specs.iter().for_each(|spec| one(reply, spec));
}

fn one(reply: &mut Reply, spec: &KeySpec) {
    if spec.begin == Begin::Unknown {
        reply.map(4);
        reply.bulk(b"notes");
        reply.bulk(match spec.flags[0] {
            "OW" => b"STORE can stand anywhere behind the first key",
            _ => b"BY and GET name keys made from elements of the first one",
        });
    } else {
        reply.map(3);
    }
    reply.bulk(b"flags");
    reply.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| reply.simple(flag));
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(at) => part(reply, "index", None, &[("index", at)]),
        Begin::Word(word, from) => part(reply, "keyword", Some(word), &[("startfrom", from)]),
        Begin::Unknown => part(reply, "unknown", None, &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range(last, step, limit) => {
            let fields = [("lastkey", last), ("keystep", step), ("limit", limit)];
            part(reply, "range", None, &fields);
        }
        Find::Number(step) => {
            let fields = [("keynumidx", 0), ("firstkey", 1), ("keystep", step)];
            part(reply, "keynum", None, &fields);
        }
        Find::Unknown => part(reply, "unknown", None, &[]),
    }
}

fn part(reply: &mut Reply, kind: &str, word: Option<&str>, fields: Fields<'_>) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len() + usize::from(word.is_some()));
    if let Some(word) = word {
        reply.bulk(b"keyword");
        reply.bulk(word.as_bytes());
    }
    for (field, value) in fields {
        reply.bulk(field.as_bytes());
        reply.integer(*value);
    }
}
