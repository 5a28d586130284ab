//! Replies of any command: where one ends, and of what kind it is.
//!
//! The idea: a reply is a number of elements still to come, which an element either lessens or, if it is an aggregate,
//! makes larger. So nothing is built and nesting costs no stack.

/// Longest reply; a stream with a longer one is taken for nonsense, and its end is not waited for.
const REPLY_MAX: usize = 64 << 20;
/// Longest line: a header, a status, an error, a number.
const LINE_MAX: usize = 64 << 10;

/// The kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Status,
    Error,
    Integer,
    Bulk,
    Nil,
    Array,
    Map,
    Double,
    Boolean,
}

const NAMES: [(&str, Kind); 9] = [
    ("status", Kind::Status),
    ("error", Kind::Error),
    ("integer", Kind::Integer),
    ("bulk", Kind::Bulk),
    ("nil", Kind::Nil),
    ("array", Kind::Array),
    ("map", Kind::Map),
    ("double", Kind::Double),
    ("boolean", Kind::Boolean),
];

impl Kind {
    pub(super) fn named(name: &str) -> Option<Kind> {
        NAMES
            .into_iter()
            .find_map(|(known, kind)| (known == name).then_some(kind))
    }

    pub(super) fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// Whether the reply has bytes that can be compared.
    pub(super) fn has_content(self) -> bool {
        matches!(
            self,
            Kind::Status | Kind::Error | Kind::Integer | Kind::Bulk
        )
    }
}

/// A whole reply at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    pub(super) kind: Kind,
    /// The length of the whole reply in bytes.
    pub(super) len: usize,
    /// The contents of the reply, if [`Kind::has_content`].
    pub(super) content: &'a [u8],
}

/// The reply at the front; `None` if it is not complete.
///
/// # Errors
/// The bytes are no reply of this protocol, or the reply is too long.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Reply<'_>>, &'static str> {
    let Some(first) = element(bytes)? else {
        return Ok(None);
    };
    let (mut at, mut owed) = (first.len, first.more);
    while owed > 0 {
        let Some(next) = element(&bytes[at..])? else {
            return match bytes.len() > REPLY_MAX {
                true => Err(TOO_LONG),
                false => Ok(None),
            };
        };
        at += next.len;
        owed = (owed - 1).saturating_add(next.more);
        if owed > REPLY_MAX as u64 {
            return Err(TOO_LONG);
        }
    }
    Ok(Some(Reply {
        kind: first.kind,
        len: at,
        content: first.content,
    }))
}

const TOO_LONG: &str = "longer than 64 MiB";
const NO_REPLY: &str = "not of the protocol";

struct Element<'a> {
    kind: Kind,
    len: usize,
    content: &'a [u8],
    /// Elements that belong to the reply.
    more: u64,
}

fn element(bytes: &[u8]) -> Result<Option<Element<'_>>, &'static str> {
    let Some(&mark) = bytes.first() else {
        return Ok(None);
    };
    if !b"+-:$*_#,(%~>=!".contains(&mark) {
        return Err(NO_REPLY);
    }
    let within = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = within.iter().position(|&b| b == b'\r') else {
        return match bytes.len() >= LINE_MAX {
            true => Err(NO_REPLY),
            false => Ok(None),
        };
    };
    match bytes.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(NO_REPLY),
    }
    let (line, len) = (&bytes[1..end], end + 2);
    let plain = |kind| {
        Ok(Some(Element {
            kind,
            len,
            content: line,
            more: 0,
        }))
    };
    let aggregate = |kind, each| match number(line)? {
        None => plain(Kind::Nil),
        Some(n) => Ok(Some(Element {
            kind,
            len,
            content: b"",
            more: n.saturating_mul(each),
        })),
    };
    match mark {
        b'+' => plain(Kind::Status),
        b'-' => plain(Kind::Error),
        b':' | b'(' if is_integer(line) => plain(Kind::Integer),
        b'_' if line.is_empty() => plain(Kind::Nil),
        b'#' if line == b"t" || line == b"f" => plain(Kind::Boolean),
        b',' => plain(Kind::Double),
        b'*' | b'~' | b'>' => aggregate(Kind::Array, 1),
        b'%' => aggregate(Kind::Map, 2),
        b'$' | b'=' | b'!' => {
            let Some(n) = number(line)? else {
                return plain(Kind::Nil);
            };
            let n = usize::try_from(n).ok().filter(|n| *n <= REPLY_MAX);
            let n = n.ok_or(TOO_LONG)?;
            let Some(body) = bytes.get(len..len + n + 2) else {
                return Ok(None);
            };
            if &body[n..] != b"\r\n" {
                return Err(NO_REPLY);
            }
            Ok(Some(Element {
                kind: if mark == b'!' {
                    Kind::Error
                } else {
                    Kind::Bulk
                },
                len: len + n + 2,
                content: &body[..n],
                more: 0,
            }))
        }
        _ => Err(NO_REPLY),
    }
}

fn is_integer(line: &[u8]) -> bool {
    let digits = line
        .strip_prefix(b"-")
        .or(line.strip_prefix(b"+"))
        .unwrap_or(line);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A length; `None` is -1, which is nothing.
fn number(line: &[u8]) -> Result<Option<u64>, &'static str> {
    if line == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(|_| NO_REPLY)?;
    match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse().map(Some).map_err(|_| NO_REPLY),
        false => Err(NO_REPLY),
    }
}

/// How a reply begins, to be shown.
pub(super) fn shown(bytes: &[u8]) -> String {
    let line = bytes.split(|&b| b == b'\r').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (Kind, usize) {
        for end in 0..text.len() {
            assert_eq!(read(&text.as_bytes()[..end]), Ok(None), "{text:?} to {end}");
        }
        let more = format!("{text}+OK\r\n");
        let reply = read(more.as_bytes()).unwrap().unwrap();
        (reply.kind, reply.len)
    }

    #[test]
    fn a_reply_ends_where_its_last_element_does() {
        for (text, kind) in [
            ("+OK\r\n", Kind::Status),
            ("-ERR x\r\n", Kind::Error),
            (":-5\r\n", Kind::Integer),
            ("$0\r\n\r\n", Kind::Bulk),
            ("$4\r\na\r\nb\r\n", Kind::Bulk),
            ("*-1\r\n", Kind::Nil),
            ("*0\r\n", Kind::Array),
            ("*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", Kind::Array),
            ("%1\r\n+k\r\n*2\r\n_\r\n#t\r\n", Kind::Map),
            (",1.5\r\n", Kind::Double),
            ("!3\r\nERR\r\n", Kind::Error),
        ] {
            assert_eq!(whole(text), (kind, text.len()), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_reply_is_not_waited_for() {
        for text in [
            "x",
            "HTTP/1.1 200 OK\r\n",
            ":x\r\n",
            "$x\r\n",
            "$-2\r\n",
            "$99999999999\r\n",
            "$99999999999999999999\r\n",
            "*99999999999\r\n:1\r\n",
            "$1\r\nabc",
            "+a\rb",
            "#x\r\n",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read(&[b'+'; LINE_MAX]).is_err());
        // Deep nesting takes no stack.
        let deep = "*1\r\n".repeat(200_000) + ":1\r\n";
        assert_eq!(read(deep.as_bytes()).unwrap().unwrap().len, deep.len());
    }
}
