//! The pages of `tidewire serve http`: small endpoints for measurements and trials.
//!
//! * `/`: `Hello, World!`
//! * `/bytes/N`: N bytes, streamed as fast as the client takes them
//! * `/echo`: the request's body, streamed back as it comes
//! * `/burn?us=N&on=loop|pool`: burns N microseconds of CPU, on the loop or on a worker pool, then answers

use std::time::{Duration, Instant};

use tidewire_pool::Pool;

use crate::data::Data;
use crate::exchange::Exchange;
use crate::handler::Body;
use crate::headers::Headers;
use crate::later::Answer;
use crate::method::Method;
use crate::reply::Reply;
use crate::request::Request;
use crate::response::{Done, Response};
use crate::router::Router;

/// The body of `/`.
pub const HELLO: &str = "Hello, World!";
/// Most microseconds that `/burn` burns: while it does, its loop does nothing else.
pub const BURN_MAX_US: u64 = 1_000_000;

/// The clients that `/burn` serves.
///
/// ```
/// use tidewire_http::demo::{Burns, router};
/// use tidewire_pool::Pool;
///
/// let for_all = router(Pool::inline(), Burns::ForEverybody);
/// # drop(for_all);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burns {
    /// For [trusted](tidewire::Peer::is_trusted) clients only, because any other client could stall
    /// the loops. A client that is not trusted gets a 403.
    ForTrusted,
    /// Any client.
    ForEverybody,
}

/// The endpoints of the demonstration; `/burn` uses processor time on `pool`, as much as the
/// request asks for.
///
/// ```
/// use tidewire_http::demo::{self, Burns};
/// use tidewire_http::{Http, testing};
/// use tidewire_pool::Pool;
///
/// let app = Http::new(demo::router(Pool::inline(), Burns::ForTrusted));
/// let got = testing::exchange(app, b"GET /bytes/10 HTTP/1.1\r\nHost: h\r\n\r\n");
/// assert_eq!(got.body.len(), 10);
/// ```
#[must_use]
pub fn router(pool: Pool, burns: Burns) -> Router {
    let mut router = Router::new()
        .get("/", |_, response| response.text(HELLO))
        .get("/bytes/{n}", bytes)
        .get("/burn", move |request, response| {
            if burns == Burns::ForTrusted && !response.peer().is_trusted() {
                return response.error(
                    403,
                    "only clients on this host may use this (--open=http allows others)",
                );
            }
            burn(&pool, request, response)
        });
    for method in [Method::Get, Method::Post, Method::Put] {
        router = router.route(method, "/echo", Body::Stream, echo);
    }
    router
}

fn bytes(request: &Request<'_>, response: Response<'_>) -> Done {
    let n = request.param("n").and_then(number);
    let response = response.header("content-type", "application/octet-stream");
    match n {
        Some(n) => response.stream(Some(n), Pattern { at: 0, end: n }),
        None => response.error(400, "/bytes/N, where N is how many"),
    }
}

/// Digits alone: no sign.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The body of `/bytes`, as a stream: the alphabet, over and over.
struct Pattern {
    at: u64,
    end: u64,
}

/// Bytes of one write: a multiple of the alphabet's length.
const PIECE: usize = 26 * 600;

static LETTERS: [u8; PIECE] = {
    let mut letters = [0; PIECE];
    let mut at = 0;
    while at < PIECE {
        letters[at] = b'a' + (at % 26) as u8;
        at += 1;
    }
    letters
};

impl Exchange for Pattern {
    fn room(&mut self, reply: &mut Reply<'_>) {
        while self.at < self.end && !reply.full() {
            let n = (self.end - self.at).min(PIECE as u64);
            reply.write(&LETTERS[..n as usize]);
            self.at += n;
        }
        if self.at == self.end {
            reply.end();
        }
    }
}

fn echo(request: &Request<'_>, response: Response<'_>) -> Done {
    let kind = request.header("content-type");
    let kind = kind.unwrap_or("application/octet-stream");
    let response = response.header("content-type", kind);
    response.stream(request.content_length(), Echo)
}

/// Sends the request's body back.
struct Echo;

impl Exchange for Echo {
    fn data(&mut self, data: &mut Data<'_, '_>, reply: &mut Reply<'_>) {
        let all = data.len();
        reply.forward(data, all);
    }

    fn end(&mut self, _: Headers<'_>, reply: &mut Reply<'_>) {
        reply.end();
    }
}

fn burn(pool: &Pool, request: &Request<'_>, response: Response<'_>) -> Done {
    let us = request.query_value("us").unwrap_or("100".into());
    let Some(us) = number(&us).filter(|us| *us <= BURN_MAX_US) else {
        return response.error(400, "us is a number of microseconds, up to 1000000");
    };
    let time = Duration::from_micros(us);
    match request.query_value("on").as_deref() {
        None | Some("loop") => {
            let end = response.clock() + time;
            while response.clock() < end {
                std::hint::spin_loop();
            }
            response.text(BURNT)
        }
        Some("pool") => response.pooled(pool, move || {
            burn_here(time);
            Answer::new(200).text(BURNT)
        }),
        Some(_) => response.error(400, "on is loop or pool"),
    }
}

const BURNT: &str = "burnt\n";

/// Burns on a thread of the pool, which has the machine's clock and no other.
#[expect(clippy::disallowed_methods, reason = "this runs on no loop")]
fn burn_here(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}
