//! What is asked of single keys: in words, by chance, and what an answer says.

use super::history::{Answer, Ask};
use super::wire::Value;

pub(crate) const KEYS: usize = 3;

pub(crate) fn line(ask: Ask, key: usize) -> String {
    match ask {
        Ask::Get => format!("GET key:{key}"),
        Ask::Set(v) => format!("SET key:{key} {v}"),
        Ask::Swap(v) => format!("SET key:{key} {v} GET"),
        Ask::SetIfAbsent(v) => format!("SETNX key:{key} {v}"),
        Ask::Increment => format!("INCR key:{key}"),
        Ask::Delete => format!("DEL key:{key}"),
        Ask::Take => format!("GETDEL key:{key}"),
    }
}

pub(crate) fn answer(ask: Ask, reply: Value) -> Answer {
    match (ask, reply) {
        (Ask::Set(_), reply) => {
            assert_eq!(reply, Value::ok());
            None
        }
        (_, Value::Null) => None,
        (_, reply) => Some(reply.number()),
    }
}

/// Something to ask; `value` is one that no other client writes.
pub(crate) fn any(value: i64, rng: &mut fastrand::Rng) -> Ask {
    match rng.u8(..10) {
        0..3 => Ask::Get,
        3 => Ask::Set(value),
        4 => Ask::Swap(value),
        5 => Ask::SetIfAbsent(value),
        6 | 7 => Ask::Increment,
        8 => Ask::Delete,
        _ => Ask::Take,
    }
}
