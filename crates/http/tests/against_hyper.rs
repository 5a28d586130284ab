//! What hyper, a second parser, makes of the same bytes: both see the same requests, or one of them
//! refuses what the other does not, for one of the reasons that are named here.

use std::collections::BTreeMap;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidewire::sim::chunking::Feed;
use tidewire_async::{Stream, serve};
use tidewire_http::testing::{Got, replies};
use tidewire_http::{Http, Request, Response};

/// Why we refuse what hyper takes. (The numbers are sections of RFC 9112.)
const STRICTER: [&str; 21] = [
    // 3.2: these must be refused; hyper leaves that to the program.
    "no Host",
    "more than one Host",
    "a malformed Host",
    "the target and Host name different hosts",
    // 6.1: a server may refuse these; hyper goes by Transfer-Encoding, and then looks at no length.
    "both Transfer-Encoding and Content-Length",
    "a Content-Length that is no number",
    // 6.3: equal ones may pass.
    "more than one Content-Length",
    "more than one Transfer-Encoding",
    // 6.1: hyper takes any coding that ends with chunked, and hands the body on encoded.
    "an unknown transfer coding",
    "a Transfer-Encoding that does not end with chunked",
    // 2.2: a server may take a line feed alone for a line's end, and pass over empty lines.
    "a line feed without a carriage return",
    "this is not the beginning of an HTTP request",
    // 7.1: hyper lets blanks stand around the length of a chunk.
    "the length of a chunk is no number",
    "a chunk that does not end where it should",
    // 6.5.1 of RFC 9110: hyper leaves trailers to the program.
    "a trailer that is only allowed in the head",
    // Checks that hyper leaves to the program.
    "this server is no proxy",
    "an unknown expectation",
    "the target * is for OPTIONS alone",
    "a target that is neither a path nor an http address",
    "a character that is not allowed in a target",
    "a body without a length",
];

/// What a request is, as a reply says it.
fn shown(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    [method.as_bytes(), b" ", path.as_bytes(), b"\n", body].concat()
}

fn ours(input: &[u8]) -> Vec<Got> {
    let app = Http::new(|request: &Request<'_>, response: Response<'_>| {
        response.body(&shown("", request.path(), request.body()))
    });
    let got = Feed::new(input).run(app);
    replies(&got.output, &[]).unwrap()
}

async fn hyper_answer(
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, hyper::Error> {
    let path = match request.uri().path() {
        // For the absolute form without a path.
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    let body = request.into_body().collect().await?.to_bytes();
    Ok(hyper::Response::new(Full::from(shown("", &path, &body))))
}

fn hypers(input: &[u8]) -> Vec<Got> {
    let service = serve(|stream: Stream| async {
        let service = service_fn(hyper_answer);
        let _ = http1::Builder::new()
            .half_close(true)
            .serve_connection(stream, service)
            .await;
    });
    let got = Feed::new(input).run(service);
    replies(&got.output, &[]).unwrap()
}

fn served(all: &[Got]) -> Vec<&[u8]> {
    all.iter()
        .filter(|got| got.status == 200)
        .map(|got| &*got.body)
        .collect()
}

/// Both see the same requests, up to where one of them refuses; our reason, if they differ.
fn compare(input: &[u8]) -> Option<String> {
    let (ours, hypers) = (ours(input), hypers(input));
    let (seen, theirs) = (served(&ours), served(&hypers));
    let both = seen.len().min(theirs.len());
    assert_eq!(seen[..both], theirs[..both], "{}", input.escape_ascii());
    if seen.len() == theirs.len() {
        return None;
    }
    assert!(
        seen.len() < theirs.len(),
        "hyper refuses what we take: {}",
        input.escape_ascii()
    );
    let last = ours
        .last()
        .map(|got| (got.status, String::from_utf8_lossy(&got.body).into_owned()));
    let why = last
        .as_ref()
        .and_then(|(_, text)| text.split_once(": "))
        .map(|(_, why)| why.trim().to_owned());
    let why = why.unwrap_or_default();
    Some(why)
}

/// Parts of requests.
const LINES: [&str; 26] = [
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 05\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length:5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: CHUNKED\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding:\tchunked\t\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Expect: 100-continue\r\n",
    "Host: other\r\n",
    "X: y\n",
    "X:\r\n",
    " folded\r\n",
    "X\x0b: y\r\n",
    "X: y\0\r\n",
    "X: \u{e9}\r\n",
    "Host : h\r\n",
    "Y: y\r \r\n",
    "Upgrade: h2c\r\n",
    "Keep-Alive: x\r\n",
];
const BODIES: [&str; 13] = [
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;x=y\r\nhello\r\n0\r\n\r\n",
    "05\r\nhello\r\n00\r\n\r\n",
    "0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
    "0\r\nHost: z\r\n\r\n",
    "fffffffffffffffff\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
];
const FIRST: [&str; 14] = [
    "GET / HTTP/1.1\r\n",
    "POST /p HTTP/1.1\r\n",
    "GET /a?b HTTP/1.0\r\n",
    "POST /q HTTP/1.0\r\n",
    "DELETE /d HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "GET http://h/x HTTP/1.1\r\n",
    "GET http://g/x HTTP/1.1\r\n",
    "BREW / HTTP/1.1\r\n",
    "GET /  HTTP/1.1\r\n",
    "GET / HTTP/2.0\r\n",
    "GET /\r\n",
    "\r\nGET /e HTTP/1.1\r\n",
    "GET /%zz/../ HTTP/1.1\r\n",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let request = (
        select(&FIRST[..]),
        prop_oneof![8 => Just("Host: h\r\n"), 1 => Just("")],
        prop::collection::vec(select(&LINES[..]), 0..3),
        select(&BODIES[..]),
    );
    let request = request.prop_map(|(first, host, lines, body)| {
        [first, host, &lines.concat(), "\r\n", body]
            .concat()
            .into_bytes()
    });
    let damage = prop::collection::vec((any::<Index>(), any::<u8>(), 0..3u8), 0..3);
    (prop::collection::vec(request, 1..4), damage, 0..3u8).prop_map(
        |(requests, damage, undamaged)| {
            let mut stream = requests.concat();
            for (at, byte, how) in damage.into_iter().filter(|_| undamaged > 0) {
                let at = at.index(stream.len());
                match how {
                    0 => stream.insert(at, byte),
                    1 => stream[at] = byte,
                    _ if stream.len() > 1 => drop(stream.remove(at)),
                    _ => {}
                }
            }
            stream
        },
    )
}

#[test]
fn both_see_the_same_requests_or_the_difference_has_a_name() {
    let config = Config {
        cases: 6000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let reasons = std::cell::RefCell::new(BTreeMap::<String, String>::new());
    let outcome = TestRunner::new_with_rng(config, rng).run(&stream(), |stream| {
        if let Some(why) = compare(&stream) {
            reasons
                .borrow_mut()
                .entry(why)
                .or_insert_with(|| stream.escape_ascii().to_string());
        }
        Ok(())
    });
    outcome.unwrap();
    let reasons = reasons.into_inner();
    println!("stricter than hyper: {reasons:#?}");
    let is_named = |why: &String| {
        STRICTER
            .iter()
            .any(|known| known.split('|').any(|known| known == why))
    };
    let unnamed: Vec<_> = reasons.iter().filter(|(why, _)| !is_named(why)).collect();
    assert!(
        unnamed.is_empty(),
        "we refuse what hyper takes: {unnamed:#?}"
    );
}
