//! A short, deterministic part of the fuzzing of HTTP.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/src/http.rs"]
mod http;

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// What requests are made of, in an order that seldom makes one.
const PARTS: [&[u8]; 32] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"/",
    b"/s",
    b"/i",
    b"/p",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b"Host: h\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"0",
    b"5",
    b"a",
    b"hello",
    b":",
    b" ",
    b";",
    b"\0",
    b"\xff",
    b"ffff",
    b"x: y\r\n",
    b"POST /s HTTP/1.1\r\nHost: h\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
];

fn run(target: fn(&[u8])) {
    let config = Config {
        cases: 2000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let inputs = proptest::collection::vec(select(&PARTS[..]), 0..24);
    let inputs =
        (any::<[u8; 3]>(), inputs).prop_map(|(first, parts)| [&first, &*parts.concat()].concat());
    let outcome = TestRunner::new_with_rng(config, rng).run(&inputs, |input| {
        target(&input);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn service() {
    run(http::http_service);
}

#[test]
fn chunked() {
    // Without the bytes that choose the split.
    run(|input| http::http_chunked(&input[3..]));
}

#[test]
fn corpus() {
    replay::replay("http_service", http::http_service);
    replay::replay("http_chunked", http::http_chunked);
}
