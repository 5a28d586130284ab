//! HTTP: any input, however it is cut and however slowly the replies are taken, means the same; and
//! chunked bodies are what a second, simple reader makes of them.

use tidewire::sim::chunking::{self, Feed};
use tidewire::{Closed, Limits};
use tidewire_http::testing::replies;
use tidewire_http::{
    Body, Data, Done, Exchange, Handler, Headers, Http, Length, Reply, Request, Response, Settings,
};

/// Answers so that the bytes of a reply depend on the request alone: streamed bodies are summed up.
struct Sums;

struct Sum(u64);

impl Handler for Sums {
    fn body(&self, request: &Request<'_>) -> Body {
        match request.path().as_bytes().get(1) {
            Some(b's') => Body::Stream,
            Some(b'i') => Body::Ignore,
            _ => Body::Gather,
        }
    }

    fn handle(&self, request: &Request<'_>, response: Response<'_>) -> Done {
        match request.path().as_bytes().get(1) {
            Some(b's') => response.exchange(Sum(0)),
            Some(b'p') => response.header("x-path", request.path()).close().empty(),
            _ => {
                let (fields, trailers) = (request.headers().len(), request.trailers().len());
                let seen = format!("{} {fields} {trailers} ", request.method());
                response.body(&[seen.as_bytes(), request.body()].concat())
            }
        }
    }
}

impl Exchange for Sum {
    fn data(&mut self, data: &mut Data<'_, '_>, _: &mut Reply<'_>) {
        let sum = |sum: u64, b: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*b));
        self.0 = data.bytes().iter().fold(self.0, sum);
        data.consume(data.len());
    }

    fn end(&mut self, trailers: Headers<'_>, reply: &mut Reply<'_>) {
        let text = format!("{} {}", self.0, trailers.len());
        reply.head(200, &[], Length::Known(text.len() as u64));
        reply.write(text.as_bytes());
        reply.end();
    }
}

/// Small limits, so that they are reached.
fn app() -> Http<Sums> {
    let settings = Settings {
        request_line: 100,
        head_bytes: 400,
        headers: 6,
        body: 200,
        streamed: 300,
        trailers: 60,
        ..Settings::default()
    };
    Http::with(settings, Sums)
}

/// The first bytes choose the split and the pace; the rest is what a client sends.
pub fn http_service(input: &[u8]) {
    let Some((&[split, window, half_close], stream)) = input.split_first_chunk() else {
        return;
    };
    let half_close = half_close % 2 == 0;
    let whole = Feed::new(stream).half_close(half_close).run(app());
    let limits = Limits {
        output_low: usize::from(window) / 2,
        output_high: 1 + usize::from(window),
        ..Limits::default()
    };
    let got = Feed::new(stream)
        .half_close(half_close)
        .splits(&chunking::splits(split.into(), stream.len()))
        .window(1 + usize::from(window))
        .limits(limits)
        .run(app());
    assert_eq!(got, whole, "the split shows");
    assert_ne!(whole.closed, Some(Closed::Panicked));
}

/// The input is a chunked body. What a simple reader makes of it is what comes back.
pub fn http_chunked(input: &[u8]) {
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let stream = [head, input].concat();
    let got = Feed::new(&stream).half_close(false).run(app());
    let first = replies(&got.output, &[]).expect("replies in order");
    let expected = read(input);
    match (expected, first.first()) {
        (Chunks::Content(content, _), Some(reply)) if reply.status == 200 => {
            assert!(reply.body.starts_with(b"POST 2 ") && reply.body.ends_with(&content));
            assert_eq!(reply.body.len(), b"POST 2 0 ".len() + content.len());
        }
        (Chunks::Content(_, false), Some(reply)) => assert!(reply.status >= 400, "{reply:?}"),
        (Chunks::Content(_, false), None) => {}
        (Chunks::Wrong, Some(reply)) => assert!(reply.status >= 400, "{reply:?}"),
        (Chunks::Part, None) => {}
        (expected, reply) => panic!("{expected:?} became {reply:?}"),
    }
}

/// What a chunked body is.
#[derive(Debug)]
enum Chunks {
    /// This content; whether nothing follows it. What trailers are, is not said here.
    Content(Vec<u8>, bool),
    Part,
    Wrong,
}

/// A second reader, as simple as can be: it has all of the input, and goes through it line by line.
fn read(mut rest: &[u8]) -> Chunks {
    let mut content = Vec::new();
    let mut extensions = 0;
    loop {
        let (line, after) = match line(rest, |b| {
            b.is_ascii_hexdigit() || b == b';' || b == b'\t' || (b >= b' ' && b != 0x7f)
        }) {
            Line::Whole(line, after) => (line, after),
            // What has come may be wrong already.
            Line::Part(part, may_go_on) => {
                return match size(part, may_go_on, &mut extensions) {
                    None => Chunks::Wrong,
                    Some(_) => Chunks::Part,
                };
            }
            Line::Wrong => return Chunks::Wrong,
        };
        let Some(size) = size(line, false, &mut extensions) else {
            return Chunks::Wrong;
        };
        rest = after;
        if size == 0 {
            return Chunks::Content(content, rest.starts_with(b"\r\n"));
        }
        // 16 digits are any number at all.
        let Some(size) = usize::try_from(size)
            .ok()
            .filter(|n| *n <= 200 - content.len())
        else {
            return Chunks::Wrong;
        };
        if rest.len() < size {
            return Chunks::Part;
        }
        content.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
        match rest {
            [b'\r', b'\n', after @ ..] => rest = after,
            [] | [b'\r'] => return Chunks::Part,
            _ => return Chunks::Wrong,
        }
    }
}

enum Line<'a> {
    Whole(&'a [u8], &'a [u8]),
    /// The beginning of a line, and whether more of it may come in front of CRLF.
    Part(&'a [u8], bool),
    Wrong,
}

/// Up to CRLF, of these bytes only.
fn line(bytes: &[u8], legal: impl Fn(u8) -> bool) -> Line<'_> {
    let end = bytes.iter().position(|&b| !legal(b));
    match end.map(|end| (end, &bytes[end..])) {
        None => Line::Part(bytes, true),
        Some((end, [b'\r', b'\n', after @ ..])) => Line::Whole(&bytes[..end], after),
        Some((end, [b'\r'])) if end > 0 => Line::Part(&bytes[..end], false),
        _ => Line::Wrong,
    }
}

/// Whether this may stand behind the first semicolon of a chunk's line, or begin what may.
fn are_extensions(mut rest: &[u8], part: bool) -> bool {
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    let behind =
        |bytes: &'_ [u8], is: &dyn Fn(&u8) -> bool| bytes.iter().take_while(|b| is(b)).count();
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    loop {
        rest = &rest[behind(rest, &blank)..];
        let name = behind(rest, &token);
        if name == 0 {
            return part && rest.is_empty();
        }
        rest = &rest[name..];
        rest = &rest[behind(rest, &blank)..];
        if let [b'=', value @ ..] = rest {
            rest = &value[behind(value, &blank)..];
            if rest.first() == Some(&b'"') {
                let mut at = 1;
                while rest.get(at).is_some_and(|b| *b != b'"') {
                    at += 1 + usize::from(rest[at] == b'\\');
                }
                if at >= rest.len() {
                    return part;
                }
                rest = &rest[at + 1..];
            } else {
                let value = behind(rest, &token);
                if value == 0 {
                    return part && rest.is_empty();
                }
                rest = &rest[value..];
            }
            rest = &rest[behind(rest, &blank)..];
        }
        match rest {
            [] => return true,
            [b';', next @ ..] => rest = next,
            _ => return false,
        }
    }
}

/// The size that a chunk's first line says, if it is in order; of a part, if it still may be.
fn size(line: &[u8], part: bool, extensions: &mut usize) -> Option<u64> {
    let mut halves = line.splitn(2, |&b| b == b';');
    let digits = halves.next().unwrap_or_default();
    if let Some(all) = halves.next() {
        *extensions += all.len();
        if !are_extensions(all, part) {
            return None;
        }
    }
    if *extensions > 4096 || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    if digits.is_empty() {
        return (part && line.is_empty()).then_some(0);
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
