//! The split of the input into chunks carries no meaning, whatever the pace of the peer.

use proptest::prelude::*;
use tidewire::sim::chunking::{self, Collected};
use tidewire_http::demo::Burns;
use tidewire_http::testing::{Got, replies};
use tidewire_http::{Http, Settings, demo};
use tidewire_pool::Pool;

/// Small limits, so that the tests reach them.
fn app() -> Http<tidewire_http::Router> {
    let settings = Settings {
        request_line: 200,
        head_bytes: 600,
        headers: 8,
        body: 300,
        streamed: 3000,
        trailers: 100,
        ..Settings::default()
    };
    let router =
        demo::router(Pool::inline(), Burns::ForEverybody).post("/", |request, response| {
            let trailer = request.trailers().get("x").unwrap_or("-").to_owned();
            response.header("x-trailer", trailer).body(request.body())
        });
    Http::with(settings, router)
}

/// What the output means: the replies and their bodies, however they were cut into chunks, and how
/// the connection ended.
fn meaning(methods: &[String]) -> impl Fn(&Collected) -> (Vec<Got>, String) {
    let methods: Vec<String> = methods.to_vec();
    move |got| {
        let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
        let replies = replies(&got.output, &methods).expect("replies in order");
        // The date is the same in all of them: virtual time stands still.
        (replies, format!("{:?}", got.closed))
    }
}

/// A request that is in order, or nearly.
fn request() -> impl Strategy<Value = (String, Vec<u8>)> {
    let method = prop_oneof![
        4 => Just("GET"), 2 => Just("POST"), 1 => Just("HEAD"), 1 => Just("PUT"), 1 => Just("BREW"),
        1 => Just("OPTIONS"),
    ];
    let path = prop_oneof![
        4 => Just("/".to_owned()),
        2 => Just("/echo".to_owned()),
        2 => (0..2000u32).prop_map(|n| format!("/bytes/{n}")),
        1 => Just("/none".to_owned()),
        1 => (150..250usize).prop_map(|n| format!("/{}", "a".repeat(n))),
    ];
    let fields = prop::collection::vec(
        prop_oneof![
            Just("Accept: */*".to_owned()),
            Just("Connection: keep-alive".to_owned()),
            Just("Expect: 100-continue".to_owned()),
            (0..200usize).prop_map(|n| format!("X-Long: {}", "b".repeat(n))),
        ],
        0..5,
    );
    let body = prop_oneof![
        3 => Just(None),
        2 => (0..400usize).prop_map(|n| Some((n, false))),
        2 => (0..400usize).prop_map(|n| Some((n, true))),
        1 => (2000..4000usize).prop_map(|n| Some((n, true))),
    ];
    (method, path, fields, body, 1..100usize).prop_map(|(method, path, fields, body, piece)| {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n");
        for field in fields {
            text += &format!("{field}\r\n");
        }
        let mut bytes = text.into_bytes();
        match body {
            None => bytes.extend(b"\r\n"),
            Some((n, false)) => {
                bytes.extend(format!("Content-Length: {n}\r\n\r\n").bytes());
                bytes.extend((0..n).map(|i| b'0' + (i % 10) as u8));
            }
            Some((n, true)) => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                let content: Vec<u8> = (0..n).map(|i| b'0' + (i % 10) as u8).collect();
                for chunk in content.chunks(piece) {
                    bytes.extend(format!("{:x};e=1\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nX: behind\r\n\r\n");
            }
        }
        (method.to_owned(), bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn requests_are_the_same_however_they_are_cut(
        requests in prop::collection::vec(request(), 1..5),
        half_close in any::<bool>(),
    ) {
        let methods: Vec<String> = requests.iter().map(|(method, _)| method.clone()).collect();
        let input: Vec<u8> = requests.into_iter().flat_map(|(_, bytes)| bytes).collect();
        chunking::assert_invisible(app, &input, half_close, meaning(&methods), 12);
    }

    #[test]
    fn pairs_that_repeat_each_other_are_invisible(
        requests in prop::collection::vec((request(), 1..5usize), 1..4),
        half_close in any::<bool>(),
    ) {
        let (mut methods, mut input) = (Vec::new(), Vec::new());
        for ((method, bytes), times) in requests {
            for _ in 0..times {
                methods.push(method.clone());
                input.extend_from_slice(&bytes);
            }
        }
        chunking::assert_invisible(app, &input, half_close, meaning(&methods), 12);
    }

    #[test]
    fn so_is_what_is_damaged(
        requests in prop::collection::vec(request(), 1..3),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
        half_close in any::<bool>(),
    ) {
        // A damaged HEAD may be another method, whose replies have bodies.
        prop_assume!(requests.iter().all(|(method, _)| method != "HEAD"));
        let methods: Vec<String> = requests.iter().map(|(method, _)| method.clone()).collect();
        let mut input: Vec<u8> = requests.into_iter().flat_map(|(_, bytes)| bytes).collect();
        for (at, byte, insert) in damage {
            let at = at.index(input.len());
            match insert {
                true => input.insert(at, byte),
                false => input[at] = byte,
            }
        }
        chunking::assert_invisible(app, &input, half_close, meaning(&methods), 12);
    }
}
