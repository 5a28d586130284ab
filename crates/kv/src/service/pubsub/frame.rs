//! The messages that subscribers get.

use bytes::Bytes;

use super::inbox::Published;
use crate::reply::{Proto, Reply};

/// One published message, in each version of the protocol that a subscriber uses.
pub(crate) struct Frame<'a> {
    message: &'a Published,
    pattern: Option<&'a [u8]>,
    resp2: Option<Bytes>,
    resp3: Option<Bytes>,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(message: &'a Published, pattern: Option<&'a [u8]>) -> Frame<'a> {
        Frame {
            message,
            pattern,
            resp2: None,
            resp3: None,
        }
    }

    /// The ticket that must have settled before a subscriber hears it.
    pub(crate) fn ticket(&self) -> u64 {
        self.message.ticket
    }

    /// The bytes for a subscriber that speaks `proto`.
    pub(crate) fn bytes(&mut self, proto: Proto) -> &Bytes {
        let (message, pattern) = (self.message, self.pattern);
        let slot = match proto {
            Proto::Resp2 => &mut self.resp2,
            Proto::Resp3 => &mut self.resp3,
        };
        slot.get_or_insert_with(|| encode(message, pattern, proto))
    }
}

fn encode(message: &Published, pattern: Option<&[u8]>, proto: Proto) -> Bytes {
    let mut reply = Reply::new(proto);
    reply.push(if pattern.is_some() { 4 } else { 3 });
    match pattern {
        Some(pattern) => {
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
        None if message.sharded => reply.bulk(b"smessage"),
        None => reply.bulk(b"message"),
    }
    reply.bulk(&message.channel);
    reply.bulk(&message.payload);
    Bytes::from(reply.take())
}

/// The confirmation of a subscription or its end; `count` subscriptions are left.
pub(crate) fn notice(reply: &mut Reply, what: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(what.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}
