//! Replies as RESP2 or RESP3, appended to one buffer: a pipeline's replies leave in one piece.
//!
//! A [`Reply`] knows the connection's protocol, so that a command says *what* it answers (a map, a
//! double, nothing) and the bytes follow from that.

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    /// The default of a connection.
    #[default]
    Resp2,
    /// The client has asked for RESP3 with HELLO 3.
    Resp3,
}

/// Bytes that a number with its line end and type has, at most, or a length with a string's line
/// end and type.
const SMALL: usize = 32;

/// Bytes of a string for which the buffer is made long enough at once.
const LARGE: usize = 64 << 10;

impl Default for Reply {
    fn default() -> Reply {
        Reply::new(Proto::default())
    }
}

/// Replies in the making. Aggregates are written head first: after [`array`](Reply::array) of `n`
/// follow `n` replies, after [`map`](Reply::map) of `n` follow `2 * n`.
///
/// A reply has a [limit](Reply::set_limit): bytes beyond the limit are left out, and then the reply
/// [is over](Reply::is_over) and useless. So no command builds more than the limit, whatever a
/// client asks for; a command that could go on for long checks whether to stop.
#[derive(Debug)]
pub struct Reply {
    buf: Vec<u8>,
    limit: usize,
    over: bool,
    /// How what follows is written.
    pub proto: Proto,
}

impl Reply {
    /// An empty buffer.
    #[must_use]
    pub fn new(proto: Proto) -> Reply {
        Reply {
            buf: Vec::new(),
            limit: usize::MAX,
            over: false,
            proto,
        }
    }

    /// A reply that was made elsewhere.
    pub(crate) fn made(proto: Proto, bytes: Vec<u8>) -> Reply {
        Reply {
            buf: bytes,
            ..Reply::new(proto)
        }
    }

    /// Says how many bytes may be written; none by default is too many.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Whether a part of the reply was left out because of the limit, since
    /// [`clear`](Reply::clear).
    #[must_use]
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether so many bytes more are within the limit.
    #[inline]
    fn has_room(&mut self, more: usize) -> bool {
        let fits = self.buf.len().saturating_add(more) <= self.limit;
        self.over |= !fits;
        fits
    }

    /// The bytes that were written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Bytes written.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether the reply is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.over = false;
    }

    /// Forgets the bytes written behind the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }

    /// Takes back the bytes behind the first `len`, because no client is to receive them; a limit
    /// that they exceeded does not count any more.
    pub(crate) fn take_back(&mut self, len: usize) {
        self.buf.truncate(len);
        self.over = false;
    }

    /// Takes the bytes and the memory out.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buf)
    }

    /// A reply of bytes that are encoded already.
    #[must_use]
    pub fn of(bytes: Vec<u8>, proto: Proto) -> Reply {
        Reply {
            buf: bytes,
            ..Reply::new(proto)
        }
    }

    /// Appends bytes that are a reply already.
    pub fn raw(&mut self, bytes: &[u8]) {
        if !self.has_room(bytes.len()) {
            return;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// `+OK`
    #[inline]
    pub fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a simple string; the text must not contain a line break.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.buf.push(b'+');
        self.buf.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// Writes an error: its code and text, for example `ERR syntax error`. Line breaks become
    /// spaces.
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.buf.push(b'-');
        let clean = |b| if matches!(b, b'\r' | b'\n') { b' ' } else { b };
        self.buf.extend(text.as_ref().iter().copied().map(clean));
        self.line_end();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, n: i64) {
        if !self.has_room(SMALL) {
            return;
        }
        match n {
            0 => self.buf.extend_from_slice(b":0\r\n"),
            1 => self.buf.extend_from_slice(b":1\r\n"),
            _ => {
                self.buf.push(b':');
                self.number(n);
            }
        }
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.has_room(bytes.len() + SMALL) {
            return;
        }
        if bytes.len() >= LARGE {
            self.make_room(bytes.len() + SMALL);
        }
        self.head(b'$', bytes.len());
        self.buf.extend_from_slice(bytes);
        self.line_end();
    }

    /// Room for all of a large reply at once: for its line end alone the buffer would become twice as large, and be copied.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        self.buf.reserve(bytes);
    }

    /// An integer as a string of bytes.
    pub fn bulk_integer(&mut self, n: i64) {
        if !self.has_room(2 * SMALL) {
            return;
        }
        let mut text = [0; 20];
        let text = decimal(n, &mut text);
        self.head(b'$', text.len());
        self.buf.extend_from_slice(text);
        self.line_end();
    }

    /// A string if there is one, else [`null`](Reply::null).
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Writes a null, where a string could have been.
    #[inline]
    pub fn null(&mut self) {
        if !self.has_room(SMALL) {
            return;
        }
        self.buf.extend_from_slice(match self.proto {
            Proto::Resp2 => b"$-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Writes a null, where an array could have been.
    pub fn null_array(&mut self) {
        self.buf.extend_from_slice(match self.proto {
            Proto::Resp2 => b"*-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array of `n` replies.
    #[inline]
    pub fn array(&mut self, n: usize) {
        self.aggregate(b'*', n);
    }

    /// The head of a map of `n` pairs; in RESP2 an array of `2 * n`.
    pub fn map(&mut self, n: usize) {
        match self.proto {
            Proto::Resp2 => self.aggregate(b'*', 2 * n),
            Proto::Resp3 => self.aggregate(b'%', n),
        }
    }

    /// The head of a set of `n`; in RESP2 an array.
    pub fn set(&mut self, n: usize) {
        match self.proto {
            Proto::Resp2 => self.aggregate(b'*', n),
            Proto::Resp3 => self.aggregate(b'~', n),
        }
    }

    /// The head of a message of `n` parts that was not asked for; in RESP2 an array.
    pub fn push(&mut self, n: usize) {
        match self.proto {
            Proto::Resp2 => self.aggregate(b'*', n),
            Proto::Resp3 => self.aggregate(b'>', n),
        }
    }

    /// A floating-point number, shortest text that reads back the same; in RESP2 a string.
    pub fn double(&mut self, x: f64) {
        let text = crate::types::score::format(x);
        if !self.has_room(text.len() + SMALL) {
            return;
        }
        match self.proto {
            Proto::Resp2 => self.bulk(text.as_bytes()),
            Proto::Resp3 => {
                self.buf.push(b',');
                self.buf.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    /// Text for people; in RESP2 a string.
    pub fn verbatim(&mut self, text: &str) {
        if !self.has_room(text.len() + SMALL) {
            return;
        }
        match self.proto {
            Proto::Resp2 => self.bulk(text.as_bytes()),
            Proto::Resp3 => {
                self.head(b'=', text.len() + 4);
                self.buf.extend_from_slice(b"txt:");
                self.buf.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    /// Makes one array of the `n` replies that were written behind the first `from` bytes.
    pub fn enclose(&mut self, from: usize, n: usize) {
        self.close(from, |reply| reply.array(n));
    }

    /// As [`enclose`](Reply::enclose), a map of `n` pairs.
    pub fn enclose_map(&mut self, from: usize, n: usize) {
        self.close(from, |reply| reply.map(n));
    }

    fn close(&mut self, from: usize, head: impl FnOnce(&mut Reply)) {
        let end = self.buf.len();
        head(self);
        let more = self.buf.len() - end;
        self.buf[from..].rotate_right(more);
    }

    #[inline]
    fn line_end(&mut self) {
        self.buf.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn aggregate(&mut self, kind: u8, n: usize) {
        if self.has_room(SMALL) {
            self.head(kind, n);
        }
    }

    #[inline]
    fn head(&mut self, kind: u8, n: usize) {
        match n {
            0..=9 => self
                .buf
                .extend_from_slice(&[kind, b'0' + n as u8, b'\r', b'\n']),
            10..=99 => {
                let (tens, ones) = (b'0' + (n / 10) as u8, b'0' + (n % 10) as u8);
                self.buf
                    .extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
            }
            _ => {
                self.buf.push(kind);
                self.number(n as i64);
            }
        }
    }

    fn number(&mut self, n: i64) {
        let mut text = [0; 20];
        self.buf.extend_from_slice(decimal(n, &mut text));
        self.line_end();
    }
}

/// Writes `n` in decimal at the end of `buf`; returns the text.
#[inline]
pub fn decimal(n: i64, buf: &mut [u8; 20]) -> &[u8] {
    let mut rest = n.unsigned_abs();
    let mut at = buf.len();
    loop {
        at -= 1;
        buf[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        at -= 1;
        buf[at] = b'-';
    }
    &buf[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(proto);
        write(&mut reply);
        String::from_utf8(reply.take()).unwrap()
    }

    #[test]
    fn a_large_string_takes_no_more_room_than_it_needs() {
        for before in ["", "+OK\r\n"] {
            let mut reply = Reply::new(Proto::Resp3);
            reply.raw(before.as_bytes());
            let text = vec![b'x'; 10 << 20];
            reply.bulk(&text);
            assert!(reply.take().capacity() < text.len() + 1_000);
        }
    }

    #[test]
    fn both_versions() {
        let all = |r: &mut Reply| {
            r.map(1);
            r.set(2);
            r.push(3);
            r.array(123);
            r.null();
            r.null_array();
            r.double(1.5);
            r.verbatim("hi");
            r.bulk(b"0123456789");
            r.bulk_integer(-12);
        };
        assert_eq!(
            written(Proto::Resp2, all),
            "*2\r\n*2\r\n*3\r\n*123\r\n$-1\r\n*-1\r\n$3\r\n1.5\r\n$2\r\nhi\r\n\
             $10\r\n0123456789\r\n$3\r\n-12\r\n"
        );
        assert_eq!(
            written(Proto::Resp3, all),
            "%1\r\n~2\r\n>3\r\n*123\r\n_\r\n_\r\n,1.5\r\n=6\r\ntxt:hi\r\n\
             $10\r\n0123456789\r\n$3\r\n-12\r\n"
        );
    }

    #[test]
    fn nothing_is_built_beyond_the_limit() {
        for proto in [Proto::Resp2, Proto::Resp3] {
            let mut reply = Reply::new(proto);
            reply.set_limit(1000);
            reply.array(60);
            reply.bulk(&[b'x'; 900]);
            assert!(!reply.is_over());
            for _ in 0..60 {
                reply.bulk(&[b'x'; 900]);
                reply.double(0.1);
                reply.integer(i64::MIN);
                reply.bulk_integer(5);
                reply.null();
                reply.map(3);
                reply.verbatim("text");
                reply.raw(b"+raw\r\n");
            }
            assert!(reply.is_over() && reply.len() <= 1000, "{}", reply.len());
            reply.clear();
            reply.ok();
            assert!(!reply.is_over());
        }
    }

    #[test]
    fn numbers_and_errors() {
        for n in [0, 1, 7, 10, 99, 100, -1, i64::MAX, i64::MIN] {
            assert_eq!(written(Proto::Resp2, |r| r.integer(n)), format!(":{n}\r\n"));
        }
        let error = written(Proto::Resp2, |r| r.error("ERR a\r\nb"));
        assert_eq!(error, "-ERR a  b\r\n");
    }
}
