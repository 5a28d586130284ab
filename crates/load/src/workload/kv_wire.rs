//! The key-value load's two wire formats: RESP, and the small binary protocol.

use std::fmt;
use std::io::Write;

use serde::Serialize;

use super::fault::Fault;
use super::kv_reply;

/// How commands are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// GET and SET in the Redis protocol.
    Resp,
    /// READ and WRITE of the binary protocol: keys and values of at most 255 bytes.
    Binary,
}

/// The kind of data at the front of the replies.
pub(super) enum Front {
    /// The reply is not complete.
    Partial,
    /// A good reply of so many bytes.
    Good(usize),
    /// A reply with the value that was looked for.
    Found(usize),
    /// A reply that says there is nothing.
    Nothing(usize),
    /// A wrong reply: its beginning, and the kind of the fault.
    Wrong(String, Fault),
}

impl Front {
    fn into_found(self) -> Front {
        match self {
            Front::Good(n) => Front::Found(n),
            other => other,
        }
    }

    fn into_nothing(self) -> Front {
        match self {
            Front::Good(n) => Front::Nothing(n),
            other => other,
        }
    }
}

impl Wire {
    /// The server's mode that understands the wire format.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Wire::Resp => "resp",
            Wire::Binary => "binary",
        }
    }

    pub(super) fn put_read(self, key: &[u8], to: &mut Vec<u8>) {
        match self {
            Wire::Resp => {
                put(to, format_args!("*2\r\n$3\r\nGET\r\n${}\r\n", key.len()));
                to.extend_from_slice(key);
                to.extend_from_slice(b"\r\n");
            }
            Wire::Binary => {
                to.push(1);
                to.extend_from_slice(&(key.len() as u16 + 1).to_be_bytes());
                to.push(key.len() as u8);
                to.extend_from_slice(key);
            }
        }
    }

    pub(super) fn put_write(self, key: &[u8], value: &[u8], to: &mut Vec<u8>) {
        match self {
            Wire::Resp => {
                put(to, format_args!("*3\r\n$3\r\nSET\r\n${}\r\n", key.len()));
                to.extend_from_slice(key);
                put(to, format_args!("\r\n${}\r\n", value.len()));
                to.extend_from_slice(value);
                to.extend_from_slice(b"\r\n");
            }
            Wire::Binary => {
                to.push(2);
                to.extend_from_slice(&((key.len() + value.len()) as u16 + 2).to_be_bytes());
                to.push(key.len() as u8);
                to.extend_from_slice(key);
                to.push(value.len() as u8);
                to.extend_from_slice(value);
            }
        }
    }

    /// Whether `bytes` begin with the reply to a read of a key with this value, or of none.
    pub(super) fn check_read(self, bytes: &[u8], value: &[u8]) -> Front {
        match (self, bytes) {
            (Wire::Resp, [b'_', ..]) => begins_with(bytes, &[b"_\r\n"]).into_nothing(),
            (Wire::Resp, [b'$', b'-', ..]) => begins_with(bytes, &[b"$-1\r\n"]).into_nothing(),
            (Wire::Resp, _) => {
                let head = format!("${}\r\n", value.len());
                begins_with(bytes, &[head.as_bytes(), value, b"\r\n"]).into_found()
            }
            (Wire::Binary, [3, 0, ..]) => Front::Nothing(2),
            (Wire::Binary, _) => begins_with(bytes, &[&[3, value.len() as u8], value]).into_found(),
        }
    }

    /// Whether `bytes` begin with the reply to a write of this value.
    pub(super) fn check_write(self, bytes: &[u8], value: &[u8]) -> Front {
        match self {
            Wire::Resp => begins_with(bytes, &[b"+OK\r\n"]),
            Wire::Binary => begins_with(bytes, &[&[3, value.len() as u8], value]),
        }
    }
}

/// Appends a text in place: this is done for each command.
fn put(to: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    to.write_fmt(text).expect("memory takes all");
}

/// Whether `bytes` begin with `parts` one after the other.
fn begins_with(bytes: &[u8], parts: &[&[u8]]) -> Front {
    let mut at = 0;
    for part in parts {
        let have = &bytes[at..bytes.len().min(at + part.len())];
        if have != &part[..have.len()] {
            let fault = Fault::of_difference(have, &part[..have.len()]);
            return Front::Wrong(kv_reply::shown(bytes), fault);
        }
        at += part.len();
        if at > bytes.len() {
            return Front::Partial;
        }
    }
    Front::Good(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(front: Front) -> String {
        match front {
            Front::Partial => "partial".into(),
            Front::Good(n) | Front::Found(n) | Front::Nothing(n) => format!("good {n}"),
            Front::Wrong(shown, _) => format!("wrong {shown}"),
        }
    }

    #[test]
    fn replies_are_told_apart_at_every_split() {
        for (wire, is_read, reply) in [
            (Wire::Resp, false, &b"+OK\r\n"[..]),
            (Wire::Resp, true, b"$3\r\nabc\r\n"),
            (Wire::Resp, true, b"$-1\r\n"),
            (Wire::Resp, true, b"_\r\n"),
            (Wire::Binary, false, b"\x03\x03abc"),
            (Wire::Binary, true, b"\x03\x03abc"),
            (Wire::Binary, true, b"\x03\x00"),
        ] {
            let check = |bytes| {
                outcome(if is_read {
                    wire.check_read(bytes, b"abc")
                } else {
                    wire.check_write(bytes, b"abc")
                })
            };
            for end in 1..reply.len() {
                assert_eq!(check(&reply[..end]), "partial", "{reply:?}");
            }
            assert_eq!(check(reply), format!("good {}", reply.len()));
            assert!(check(b"-ERR no\r\n").starts_with("wrong -ERR no"));
        }
        for wrong in [&b"$3\r\nabd\r\n"[..], b"$4\r\nabcd\r\n"] {
            assert!(outcome(Wire::Resp.check_read(wrong, b"abc")).starts_with("wrong"));
        }
        for wrong in [&b"\x03\x03abd"[..], b"\x03\x04abcd", b"\x02\x03abc"] {
            assert!(outcome(Wire::Binary.check_read(wrong, b"abc")).starts_with("wrong"));
        }
        assert!(outcome(Wire::Binary.check_write(b"\x03\x00", b"abc")).starts_with("wrong"));
    }

    #[test]
    fn requests_are_as_the_protocol_says() {
        let mut out = Vec::new();
        Wire::Binary.put_read(b"key", &mut out);
        Wire::Binary.put_write(b"k", b"", &mut out);
        assert_eq!(out, b"\x01\x00\x04\x03key\x02\x00\x03\x01k\x00");
        out.clear();
        Wire::Resp.put_read(b"key", &mut out);
        Wire::Resp.put_write(b"k", b"vv", &mut out);
        assert_eq!(
            out,
            b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n"
        );
    }
}
