//! The web server on simulated networks of every shape, with accidents: requests that were pipelined are answered
//! in order, each once, as they are without any accident.

#[path = "../../tidewire/tests/shared/converse.rs"]
mod converse;
#[path = "../../log/tests/simulated/twice.rs"]
mod twice;

use std::time::Duration;

use converse::{converse, exactly};
use tidewire::Limits;
use tidewire::sim::{Sim, chunking, for_each_seed};
use tidewire_http::demo::Burns;
use tidewire_http::{Http, Router, Settings, demo};
use tidewire_pool::Pool;

fn app() -> Http<Router> {
    let router = demo::router(Pool::inline(), Burns::ForEverybody);
    let router = router.post("/", |request, response| response.body(request.body()));
    // Some come in single bytes, over a slow network.
    let patient = Duration::from_secs(600);
    let settings = Settings {
        head_timeout: patient,
        body_timeout: patient,
        ..Settings::default()
    };
    Http::with(settings, router)
}

/// A few requests.
fn talk(seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..1 + seed % 7 {
        let size = (seed * 7919 + n * 104_729) % 3000;
        let request = match (seed + n) % 4 {
            0 => format!("GET /bytes/{size} HTTP/1.1\r\nHost: h\r\n\r\n"),
            1 => format!("HEAD /bytes/{size} HTTP/1.1\r\nHost: h\r\n\r\n"),
            2 => format!("GET /none/{n} HTTP/1.1\r\nHost: h\r\nX: {n}\r\n\r\n"),
            _ => {
                let body = "b".repeat(size as usize);
                format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n{body}")
            }
        };
        bytes.extend_from_slice(request.as_bytes());
    }
    bytes
}

/// With the same date everywhere: virtual time goes on.
fn timeless(mut bytes: Vec<u8>) -> Vec<u8> {
    const DATE: &[u8] = b"\r\ndate: ";
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(DATE.len()).position(|w| w == DATE) {
        at += found + DATE.len();
        let len = bytes[at..].iter().position(|b| *b == b'\r');
        let end = len.map_or(bytes.len(), |len| at + len);
        bytes[at..end].fill(b'-');
    }
    bytes
}

#[test]
fn requests_are_answered_in_order_whatever_happens() {
    for_each_seed(1000, |seed| {
        let talks: Vec<Vec<u8>> = (0..3).map(|n| talk(3 * seed + n)).collect();
        let expected: Vec<Vec<u8>> = talks
            .iter()
            .map(|talk| timeless(chunking::collect(app(), talk, &[], true).output))
            .collect();
        let make = |_: &mut Sim| {
            let app = app();
            let limits: Limits = app.limits();
            (app, limits)
        };
        converse(seed, make, &talks, &|n, got, whole| {
            exactly(&timeless(got.to_vec()), &expected[n], whole)
        })
    });
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let test = "requests_are_answered_in_order_whatever_happens";
    (0..6).for_each(|seed| twice::says_the_same(test, seed, "network: "));
}
