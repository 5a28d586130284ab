//! Replies as values, so that replies whose order means nothing can be put in one order.

/// A reply of either protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// What has no parts: its type byte and its text, `None` for nothing.
    Plain(u8, Option<Vec<u8>>),
    /// Something with parts; a map's are its keys and values in turn.
    Parts(u8, Vec<Value>),
}

impl Value {
    /// Reads one reply from the front; it and its length, or `None` if it is not whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let (kind, line, mut at) = (bytes[0], &bytes[1..end], end + 2);
        let count = || -> i64 {
            let text = std::str::from_utf8(line).expect("a length is text");
            text.parse().expect("a length is a number")
        };
        let value = match kind {
            b'$' | b'=' => match usize::try_from(count()) {
                Err(_) => Value::Plain(kind, None),
                Ok(len) => {
                    let text = bytes.get(at..at + len + 2)?;
                    at += len + 2;
                    Value::Plain(kind, Some(text[..len].to_vec()))
                }
            },
            b'*' | b'~' | b'>' | b'%' => match usize::try_from(count()) {
                Err(_) => Value::Plain(kind, None),
                Ok(n) => {
                    let n = if kind == b'%' { 2 * n } else { n };
                    let mut parts = Vec::with_capacity(n);
                    for _ in 0..n {
                        let (part, len) = Value::parse(&bytes[at..])?;
                        parts.push(part);
                        at += len;
                    }
                    Value::Parts(kind, parts)
                }
            },
            _ => Value::Plain(kind, Some(line.to_vec())),
        };
        Some((value, at))
    }

    pub(crate) fn parts(&self) -> Option<&[Value]> {
        match self {
            Value::Parts(_, parts) => Some(parts),
            Value::Plain(..) => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Plain(_, text) => text.as_deref(),
            Value::Parts(..) => None,
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Value::Plain(b'-', _))
    }

    /// Changes each text in it.
    pub(crate) fn each(&mut self, change: &mut impl FnMut(&mut Vec<u8>)) {
        match self {
            Value::Plain(_, Some(text)) => change(text),
            Value::Plain(_, None) => {}
            Value::Parts(_, parts) => parts.iter_mut().for_each(|part| part.each(change)),
        }
    }

    /// Writes the chosen numbers as Rust does.
    pub(crate) fn reformat(&mut self, which: impl Fn(&[u8]) -> bool) {
        self.each(&mut |text| {
            let number = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok());
            if let Some(x) = number.filter(|x: &f64| x.is_finite() && which(text)) {
                *text = x.to_string().into_bytes();
            }
        });
    }

    /// Takes the minus away from each `-0`.
    pub(crate) fn unsign_zeros(&mut self) {
        self.each(&mut |text| {
            if text == b"-0" {
                text.remove(0);
            }
        });
    }

    /// Puts the parts in order, `size` of them at a time.
    pub(crate) fn sort(&mut self, size: usize) {
        if let Value::Parts(_, parts) = self {
            let mut groups: Vec<Vec<Value>> = parts.chunks(size).map(<[Value]>::to_vec).collect();
            groups.sort();
            *parts = groups.concat();
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Plain(kind, None) => write!(f, "{}nothing", char::from(*kind)),
            Value::Plain(kind, Some(text)) => {
                write!(f, "{}{}", char::from(*kind), text.escape_ascii())
            }
            Value::Parts(kind, parts) => {
                write!(f, "{}", char::from(*kind))?;
                f.debug_list().entries(parts).finish()
            }
        }
    }
}

/// A command as a client sends it.
pub(crate) fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command as it is shown.
pub(crate) fn show(args: &[Vec<u8>]) -> String {
    let quoted = |arg: &Vec<u8>| {
        let text = arg.escape_ascii().to_string();
        if text.is_empty() || text.contains(' ') {
            format!("\"{text}\"")
        } else {
            text
        }
    };
    args.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
