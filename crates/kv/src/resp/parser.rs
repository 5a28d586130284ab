//! Bytes to commands, without copying arguments and without looking twice at what was seen.
//!
//! The caller leaves an unfinished command in front of its input and comes back when more has come.
//! The parser remembers, relative to the command's first byte, how far it got: a large argument is
//! stepped over, never scanned, and no memory is set aside for what was only announced.

use std::fmt;

use super::inline;
use crate::number::parse_integer;

/// Bytes of memory that an argument takes while its command is read, however short it is.
const ARGUMENT: usize = size_of::<(u32, u32)>() + size_of::<&[u8]>();
/// Arguments whose memory is no matter.
const FEW: usize = 1024;
/// Longest line of a header, or of a command typed as a line; bytes.
const LINE_MAX: usize = 64 << 10;

/// Limits for the commands of a client. A command beyond a limit is a [`ProtocolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most arguments of one command, the command's name included. Default 2,147,483,647, as in Redis; `command_max` allows
    /// fewer, as each takes 24 bytes of memory while its command is read.
    pub args_max: usize,
    /// Bytes of one argument. Default 512 MiB.
    pub bulk_max: usize,
    /// Bytes of a whole command as it is sent, less than 4 GiB. Default 1 GiB.
    pub command_max: usize,
    /// Whether the client has still to log in: the errors name that.
    pub unauthenticated: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            args_max: i32::MAX as usize,
            bulk_max: 512 << 20,
            command_max: 1 << 30,
            unauthenticated: false,
        }
    }
}

impl Bounds {
    /// Limits that suffice to authenticate: 10 arguments of 16 KiB.
    #[must_use]
    pub fn unauthenticated(self) -> Bounds {
        Bounds {
            args_max: self.args_max.min(10),
            bulk_max: self.bulk_max.min(16 << 10),
            command_max: self.command_max,
            unauthenticated: true,
        }
    }
}

/// Input that is not the protocol, or beyond the bounds. Displayed as the text of the reply behind
/// `-ERR `; the connection is closed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The header of a command has no end within 64 KiB.
    HeaderTooBig,
    /// The header of an argument has no end within 64 KiB.
    BulkHeaderTooBig,
    /// A line has no end within 64 KiB.
    InlineTooBig,
    /// The number of arguments is none, or too large.
    ArgumentCount,
    /// Too many arguments from a client that has not authenticated.
    ArgumentCountUnauthenticated,
    /// The length of an argument is none, or too large.
    BulkLength,
    /// Too long an argument from a client that has not authenticated.
    BulkLengthUnauthenticated,
    /// An argument must begin with `$`.
    Expected(u8),
    /// A quote does not close.
    Quotes,
    /// The whole command is larger than may be held.
    CommandTooBig,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            ProtocolError::HeaderTooBig => f.write_str("too big mbulk count string"),
            ProtocolError::BulkHeaderTooBig => f.write_str("too big bulk count string"),
            ProtocolError::InlineTooBig => f.write_str("too big inline request"),
            ProtocolError::ArgumentCount => f.write_str("invalid multibulk length"),
            ProtocolError::ArgumentCountUnauthenticated => {
                f.write_str("unauthenticated multibulk length")
            }
            ProtocolError::BulkLength => f.write_str("invalid bulk length"),
            ProtocolError::BulkLengthUnauthenticated => f.write_str("unauthenticated bulk length"),
            // A reply is a line of text: whatever else came is shown as a question mark.
            ProtocolError::Expected(got) => {
                let shown = if matches!(got, b' '..=b'~') {
                    *got
                } else {
                    b'?'
                };
                write!(f, "expected '$', got '{}'", char::from(shown))
            }
            ProtocolError::Quotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::CommandTooBig => {
                f.write_str("command larger than the query buffer limit")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}

/// The kind of data at the front of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command of `len` bytes, whose arguments were pushed.
    Command {
        /// Bytes of the command in the input.
        len: usize,
    },
    /// A command typed as a line.
    Inline {
        /// Words of the command, at least one.
        words: Vec<Vec<u8>>,
        /// Bytes of the command in the input.
        len: usize,
    },
    /// Nothing to do: an empty line, or an array of no arguments.
    Nothing {
        /// Bytes of the command in the input.
        len: usize,
    },
    /// An unfinished command. Worth calling again with this many bytes; before that the result
    /// would be the same. At most twice what is there, so that asking costs no more memory than
    /// was sent.
    Needs(usize),
    /// The bytes are not a command. The parser cannot go on behind these bytes.
    Error(ProtocolError),
}

/// The position within one connection's unfinished command; empty between commands.
#[derive(Debug, Default)]
pub struct Parser {
    partial: Option<Box<Partial>>,
}

/// An unfinished command. Positions count from its first byte.
#[derive(Debug, Default)]
struct Partial {
    /// The place where the next header starts.
    at: usize,
    /// No line ends before this.
    scanned: usize,
    /// Arguments announced and not yet there; `None` before the header was read.
    missing: Option<usize>,
    args: Vec<(u32, u32)>,
}

impl Partial {
    /// Puts the arguments that were read earlier in front of the arguments from `at` on, now that
    /// the command is whole.
    #[cold]
    fn put_before<'a>(&self, bytes: &'a [u8], args: &mut Vec<&'a [u8]>, at: usize) {
        let late = args.split_off(at);
        let early = self.args.iter();
        args.extend(early.map(|&(start, end)| &bytes[start as usize..end as usize]));
        args.extend(late);
    }
}

/// How far the reading of a command got.
struct Progress {
    at: usize,
    scanned: usize,
    missing: Option<usize>,
}

/// A line of a header.
enum Line {
    /// The number in the line, and where the next line starts.
    Number(Option<i64>, usize),
    Unfinished,
}

impl Parser {
    /// Parses the front of `bytes`. `bytes` must start where an earlier call said [`Step::Needs`],
    /// or at the end of the previous step. The arguments of a whole command are pushed onto `args`.
    pub fn next<'a>(&mut self, bytes: &'a [u8], args: &mut Vec<&'a [u8]>, bounds: &Bounds) -> Step {
        if let Some(partial) = self.partial.take() {
            return self.go_on(partial, bytes, args, bounds);
        }
        let before = args.len();
        let mut progress = Progress {
            at: 0,
            scanned: 0,
            missing: None,
        };
        let step = read(bytes, args, bounds, &mut progress);
        if !matches!(step, Step::Command { .. }) {
            if let Step::Needs(_) = step
                && !bytes.is_empty()
            {
                self.remember(Box::default(), bytes, &args[before..], &progress);
            }
            args.truncate(before);
        }
        step
    }

    /// Goes on with an unfinished command, now that more of it has come.
    #[cold]
    #[inline(never)]
    fn go_on<'a>(
        &mut self,
        partial: Box<Partial>,
        bytes: &'a [u8],
        args: &mut Vec<&'a [u8]>,
        bounds: &Bounds,
    ) -> Step {
        let before = args.len();
        let mut progress = Progress {
            at: partial.at,
            scanned: partial.scanned,
            missing: partial.missing,
        };
        let step = read(bytes, args, bounds, &mut progress);
        match step {
            Step::Command { .. } => partial.put_before(bytes, args, before),
            Step::Needs(_) => {
                self.remember(partial, bytes, &args[before..], &progress);
                args.truncate(before);
            }
            _ => args.truncate(before),
        }
        step
    }

    /// Adds the arguments that were read now. Arguments that were read before are not read again: an unfinished
    /// command comes back with every chunk.
    #[cold]
    fn remember(
        &mut self,
        mut partial: Box<Partial>,
        bytes: &[u8],
        args: &[&[u8]],
        progress: &Progress,
    ) {
        let base = bytes.as_ptr().addr();
        let range = |arg: &&[u8]| {
            let start = arg.as_ptr().addr() - base;
            // Commands are shorter than 4 GiB.
            (start as u32, (start + arg.len()) as u32)
        };
        partial.at = progress.at;
        partial.scanned = progress.scanned;
        partial.missing = progress.missing;
        partial.args.extend(args.iter().map(range));
        self.partial = Some(partial);
    }

    /// Bytes of memory that the parser keeps of an unfinished command, beside the input.
    #[must_use]
    pub fn memory(&self) -> usize {
        let partial = self.partial.as_ref();
        partial.map_or(0, |partial| {
            size_of::<Partial>() + partial.args.capacity() * size_of::<(u32, u32)>()
        })
    }

    /// Whether a command has begun and not ended.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial.is_some()
    }
}

// The function is inlined in both places where it is called: a call costs a small command more than
// a percent.
#[inline(always)]
fn read<'a>(
    bytes: &'a [u8],
    args: &mut Vec<&'a [u8]>,
    bounds: &Bounds,
    progress: &mut Progress,
) -> Step {
    let mut missing = match progress.missing {
        Some(missing) => missing,
        None => match bytes.first() {
            None => return Step::Needs(1),
            Some(b'*') => match line(bytes, 1, progress.scanned) {
                Line::Unfinished => {
                    return unfinished(bytes, progress, ProtocolError::HeaderTooBig);
                }
                Line::Number(count, at) => match count.map(usize::try_from) {
                    None => return Step::Error(ProtocolError::ArgumentCount),
                    Some(Err(_) | Ok(0)) => return Step::Nothing { len: at },
                    Some(Ok(n)) if n > bounds.args_max => {
                        return Step::Error(if bounds.unauthenticated {
                            ProtocolError::ArgumentCountUnauthenticated
                        } else {
                            ProtocolError::ArgumentCount
                        });
                    }
                    Some(Ok(n)) if n > FEW && n > bounds.command_max / ARGUMENT => {
                        return Step::Error(ProtocolError::CommandTooBig);
                    }
                    Some(Ok(n)) => {
                        progress.at = at;
                        n
                    }
                },
            },
            Some(_) => return read_line(bytes, progress),
        },
    };
    let mut at = progress.at;
    while missing > 0 {
        progress.at = at;
        progress.missing = Some(missing);
        match bytes.get(at) {
            None => return Step::Needs(bytes.len() + 1),
            Some(b'$') => {}
            Some(&other) => return Step::Error(ProtocolError::Expected(other)),
        }
        let Line::Number(len, start) = line(bytes, at + 1, progress.scanned) else {
            return unfinished(bytes, progress, ProtocolError::BulkHeaderTooBig);
        };
        let Some(len) = len.and_then(|n| usize::try_from(n).ok()) else {
            return Step::Error(ProtocolError::BulkLength);
        };
        if len > bounds.bulk_max {
            return Step::Error(if bounds.unauthenticated {
                ProtocolError::BulkLengthUnauthenticated
            } else {
                ProtocolError::BulkLength
            });
        }
        let end = start + len + 2;
        if end > bounds.command_max {
            return Step::Error(ProtocolError::CommandTooBig);
        }
        if end > bytes.len() {
            return Step::Needs(end.min(bytes.len() * 2).max(bytes.len() + 1));
        }
        args.push(&bytes[start..end - 2]);
        missing -= 1;
        at = end;
    }
    Step::Command { len: at }
}

/// A header that has no end yet.
#[cold]
fn unfinished(bytes: &[u8], progress: &mut Progress, too_big: ProtocolError) -> Step {
    if bytes.len() - progress.at > LINE_MAX {
        return Step::Error(too_big);
    }
    // The carriage return may be there while its line feed is not.
    progress.scanned = bytes.len() - 1;
    Step::Needs(bytes.len() + 1)
}

/// The number on the line that begins at `at`; the line does not end before `scanned`. As in Redis,
/// a line ends with a carriage return and one more byte of any value.
#[inline(always)]
fn line(bytes: &[u8], at: usize, scanned: usize) -> Line {
    // Nearly all numbers have one or two digits.
    if let Some(&[first, second, third, _]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let (tens, ones) = (first.wrapping_sub(b'0'), second.wrapping_sub(b'0'));
        if tens <= 9 && second == b'\r' {
            return Line::Number(Some(tens.into()), at + 3);
        }
        if (1..=9).contains(&tens) && ones <= 9 && third == b'\r' {
            return Line::Number(Some((10 * tens + ones).into()), at + 4);
        }
    }
    long_line(bytes, at, scanned)
}

fn long_line(bytes: &[u8], at: usize, scanned: usize) -> Line {
    let mut n: i64 = 0;
    let mut end = at;
    while let Some(digit) = bytes.get(end).map(|b| b.wrapping_sub(b'0'))
        && digit <= 9
        && end < at + 10
    {
        n = n * 10 + i64::from(digit);
        end += 1;
    }
    let plain = end > at && (bytes[at] != b'0' || end == at + 1);
    if plain && end + 1 < bytes.len() && bytes[end] == b'\r' {
        return Line::Number(Some(n), end + 2);
    }
    odd_line(bytes, at, scanned)
}

#[cold]
fn odd_line(bytes: &[u8], at: usize, scanned: usize) -> Line {
    let from = at.max(scanned);
    let Some(end) = bytes[from.min(bytes.len())..]
        .iter()
        .position(|&b| b == b'\r')
    else {
        return Line::Unfinished;
    };
    let end = from + end;
    if end + 1 >= bytes.len() {
        return Line::Unfinished;
    }
    Line::Number(parse_integer(&bytes[at..end]), end + 2)
}

#[cold]
fn read_line(bytes: &[u8], progress: &mut Progress) -> Step {
    let Some(end) = bytes[progress.scanned..].iter().position(|&b| b == b'\n') else {
        if bytes.len() > LINE_MAX {
            return Step::Error(ProtocolError::InlineTooBig);
        }
        progress.scanned = bytes.len();
        return Step::Needs(bytes.len() + 1);
    };
    let end = progress.scanned + end;
    let len = end + 1;
    if len > LINE_MAX {
        return Step::Error(ProtocolError::InlineTooBig);
    }
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    match inline::split(line) {
        None => Step::Error(ProtocolError::Quotes),
        Some(words) if words.is_empty() => Step::Nothing { len },
        Some(words) => Step::Inline { words, len },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands of `bytes`, fed in pieces of at most `piece` bytes; how it ended.
    fn parse(bytes: &[u8], piece: usize, bounds: Bounds) -> (Vec<Vec<Vec<u8>>>, Step) {
        let (mut parser, mut commands) = (Parser::default(), Vec::new());
        let (mut start, mut end) = (0, 0);
        loop {
            let mut args = Vec::new();
            let input = &bytes[start..end];
            match parser.next(input, &mut args, &bounds) {
                Step::Command { len } => {
                    commands.push(args.iter().map(|a| a.to_vec()).collect());
                    start += len;
                }
                Step::Inline { words, len } => {
                    commands.push(words);
                    start += len;
                }
                Step::Nothing { len } => start += len,
                Step::Needs(n) => {
                    assert!(n > input.len() && n <= (2 * input.len()).max(1));
                    if end == bytes.len() {
                        return (commands, Step::Needs(n));
                    }
                    end = (end + piece).min(bytes.len());
                }
                error @ Step::Error(_) => return (commands, error),
            }
        }
    }

    fn bad(text: &[u8]) -> String {
        let whole = parse(text, usize::MAX, Bounds::default()).1;
        assert_eq!(parse(text, 1, Bounds::default()).1, whole);
        match whole {
            Step::Error(e) => e
                .to_string()
                .strip_prefix("Protocol error: ")
                .unwrap()
                .to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn any_split_gives_the_same_commands() {
        let text: &[u8] =
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\r\nPING\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n\
            SET \"a b\" c\n*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$5\r\n*1\r\n$\r\n*1\r\n$4\r\nPI";
        let (whole, end) = parse(text, usize::MAX, Bounds::default());
        assert_eq!(whole.len(), 5);
        assert_eq!(whole[4], [&b"SET"[..], b"\r\n", b"*1\r\n$"]);
        assert!(matches!(end, Step::Needs(_)));
        for piece in 1..text.len() {
            assert_eq!(parse(text, piece, Bounds::default()).0, whole);
        }
    }

    #[test]
    fn what_is_wrong_is_said_as_redis_says_it() {
        assert_eq!(bad(b"*x\r\n"), "invalid multibulk length");
        assert_eq!(bad(b"*2147483648\r\n"), "invalid multibulk length");
        // Not more than the query buffer could hold the places of.
        let much = "command larger than the query buffer limit";
        assert_eq!(bad(b"*2147483647\r\n"), much);
        assert_eq!(
            bad(b"*99999999999999999999\r\n"),
            "invalid multibulk length"
        );
        assert_eq!(bad(b"*1\r\n$-1\r\n"), "invalid bulk length");
        assert_eq!(bad(b"*1\r\n$536870913\r\n"), "invalid bulk length");
        assert_eq!(bad(b"*1\r\n$\r\n"), "invalid bulk length");
        assert_eq!(bad(b"*1\r\nx"), "expected '$', got 'x'");
        assert_eq!(bad(b"*1\r\n*1\r\n"), "expected '$', got '*'");
        assert_eq!(bad(b"*1\r\n\r\n"), "expected '$', got '?'");
        assert_eq!(bad(b"SET \"a\n"), "unbalanced quotes in request");
        let long = vec![b'1'; LINE_MAX + 2];
        assert_eq!(bad(&long), "too big inline request");
        assert_eq!(
            bad(&[b"*", &long[..]].concat()),
            "too big mbulk count string"
        );
        assert_eq!(
            bad(&[b"*1\r\n$", &long[..]].concat()),
            "too big bulk count string"
        );
    }

    #[test]
    fn strangers_may_send_little() {
        let few = Bounds::default().unauthenticated();
        let end = |text: &[u8]| parse(text, usize::MAX, few).1;
        assert_eq!(
            end(b"*11\r\n"),
            Step::Error(ProtocolError::ArgumentCountUnauthenticated)
        );
        assert_eq!(
            end(b"*1\r\n$16385\r\n"),
            Step::Error(ProtocolError::BulkLengthUnauthenticated)
        );
        assert!(matches!(end(b"*10\r\n$16384\r\n"), Step::Needs(_)));
    }

    #[test]
    fn there_may_be_as_many_arguments_as_the_query_buffer_holds() {
        const MANY: usize = 1_200_000;
        let mut text = format!("*{MANY}\r\n").into_bytes();
        (0..MANY).for_each(|n| text.extend_from_slice(format!("$1\r\n{}\r\n", n % 10).as_bytes()));
        for piece in [usize::MAX, 64 << 10] {
            let (commands, end) = parse(&text, piece, Bounds::default());
            assert!(matches!(end, Step::Needs(_)), "{end:?}");
            let args = &commands[0];
            assert_eq!((commands.len(), args.len()), (1, MANY));
            assert!((0..MANY).all(|n| args[n] == [b'0' + (n % 10) as u8]));
        }
        let bounds = Bounds {
            command_max: MANY * ARGUMENT - 1,
            ..Bounds::default()
        };
        assert_eq!(
            parse(&text, usize::MAX, bounds).1,
            Step::Error(ProtocolError::CommandTooBig)
        );
    }

    #[test]
    fn what_is_kept_of_an_unfinished_command_counts() {
        let mut text = b"*1000\r\n".to_vec();
        (0..999).for_each(|_| text.extend_from_slice(b"$1\r\nx\r\n"));
        let mut parser = Parser::default();
        assert_eq!(parser.memory(), 0);
        let step = parser.next(&text, &mut Vec::new(), &Bounds::default());
        assert!(matches!(step, Step::Needs(_)));
        assert!(parser.memory() >= 999 * 8, "{}", parser.memory());
    }

    #[test]
    fn a_command_beyond_what_may_be_held_is_refused_when_announced() {
        let bounds = Bounds {
            command_max: 100,
            ..Bounds::default()
        };
        let end = |text: &[u8]| parse(text, usize::MAX, bounds).1;
        assert!(matches!(end(b"*1\r\n$89\r\n"), Step::Needs(_)));
        assert_eq!(
            end(b"*1\r\n$90\r\n"),
            Step::Error(ProtocolError::CommandTooBig)
        );
    }

    #[test]
    fn a_large_argument_is_asked_for_in_steps_that_double() {
        let mut text = b"*2\r\n$3\r\nGET\r\n$100000000\r\n".to_vec();
        let (mut parser, mut calls) = (Parser::default(), 0);
        loop {
            let step = parser.next(&text, &mut Vec::new(), &Bounds::default());
            calls += 1;
            match step {
                Step::Needs(n) => text.resize(n, b'x'),
                Step::Command { len } => break assert_eq!(len, text.len()),
                other => panic!("{other:?}"),
            }
        }
        assert!(calls < 30, "{calls}");
    }
}
