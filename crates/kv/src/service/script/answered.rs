//! The value that a script returns, as a reply.

use tidewire_lua::Answer;

use crate::reply::{Proto, Reply};

/// Writes the answer of a script.
pub(super) fn write(answer: &Answer, reply: &mut Reply) {
    if reply.is_over() {
        return;
    }
    match answer {
        Answer::Nil => reply.null(),
        Answer::Integer(n) => reply.integer(*n),
        Answer::Bulk(bytes) => reply.bulk(bytes),
        Answer::Status(text) => line(b'+', text, reply),
        Answer::Error(text) => reply.error(text),
        Answer::Bool(yes) => match (reply.proto, yes) {
            (Proto::Resp3, true) => reply.raw(b"#t\r\n"),
            (Proto::Resp3, false) => reply.raw(b"#f\r\n"),
            (Proto::Resp2, yes) => reply.integer((*yes).into()),
        },
        Answer::Double(x) => reply.double(*x),
        Answer::Big(text) => match reply.proto {
            Proto::Resp3 => line(b'(', text, reply),
            Proto::Resp2 => reply.bulk(text),
        },
        Answer::Verbatim(format, text) => match reply.proto {
            Proto::Resp2 => reply.bulk(text),
            Proto::Resp3 => {
                let head = format!("={}\r\n", text.len() + 4);
                reply.raw(&[head.as_bytes(), format, b":", text, b"\r\n"].concat());
            }
        },
        Answer::Array(all) => {
            reply.array(all.len());
            all.iter().for_each(|one| write(one, reply));
        }
        Answer::Set(all) => {
            reply.set(all.len());
            all.iter().for_each(|one| write(one, reply));
        }
        Answer::Map(pairs) => {
            reply.map(pairs.len());
            for (key, value) in pairs {
                write(key, reply);
                write(value, reply);
            }
        }
    }
}

/// A line of a kind; line breaks in it become spaces.
fn line(kind: u8, text: &[u8], reply: &mut Reply) {
    let clean = |b: &u8| if matches!(b, b'\r' | b'\n') { b' ' } else { *b };
    let mut line = vec![kind];
    line.extend(text.iter().map(clean));
    line.extend_from_slice(b"\r\n");
    reply.raw(&line);
}
