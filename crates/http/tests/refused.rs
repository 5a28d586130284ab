//! What is refused: requests that two servers could understand differently, and requests beyond the
//! limits. One line each, with the status that is owed.

use tidewire::Closed;
use tidewire::sim::chunking;
use tidewire_http::testing::replies;
use tidewire_http::{Http, Router, Settings};

/// Answers everything with what it took for the body.
fn app() -> Http<Router> {
    let settings = Settings {
        body: 1000,
        ..Settings::default()
    };
    let echo = |request: &tidewire_http::Request<'_>, response: tidewire_http::Response<'_>| {
        response.body(request.body())
    };
    Http::with(settings, Router::new().get("/", echo).post("/", echo))
}

/// The statuses of all replies, however the input is cut, and whether the connection was ended for it.
fn statuses(input: &[u8]) -> (Vec<u16>, bool) {
    let run = |splits: &[usize]| {
        let got = chunking::Feed::new(input)
            .splits(splits)
            .half_close(false)
            .run(app());
        let all = replies(&got.output, &[]).unwrap();
        let all: Vec<u16> = all.iter().map(|got| got.status).collect();
        (all, matches!(got.closed, Some(Closed::ByProtocol(_))))
    };
    let whole = run(&[]);
    assert_eq!(
        whole,
        run(&vec![1; input.len()]),
        "{}",
        input.escape_ascii()
    );
    whole
}

/// A request that must be refused with this status, and end the connection: what follows it is not
/// taken for a request.
#[track_caller]
fn refused(status: u16, request: impl AsRef<[u8]>) {
    let request = request.as_ref();
    let smuggled = b"GET / HTTP/1.1\r\nHost: smuggled\r\n\r\n";
    let got = statuses(&[request, smuggled].concat());
    assert_eq!(got, (vec![status], true), "{}", request.escape_ascii());
}

/// A request that must be served, and the one behind it too.
#[track_caller]
fn served(request: impl AsRef<[u8]>) {
    let request = request.as_ref();
    let next = b"GET / HTTP/1.1\r\nHost: next\r\n\r\n";
    let got = statuses(&[request, next].concat());
    assert_eq!(got, (vec![200, 200], false), "{}", request.escape_ascii());
}

/// A POST with these lines in its head, and what follows.
fn post(lines: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

#[test]
fn two_lengths() {
    refused(
        400,
        post(
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        ),
    );
    refused(
        400,
        post(
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n",
        ),
    );
    refused(
        400,
        post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"),
    );
    refused(
        400,
        post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
    );
    refused(
        400,
        post("Content-Length: 5\r\ncOnTeNt-LeNgTh: 0\r\n", "hello"),
    );
    refused(400, post("Content-Length: 5, 5\r\n", "hello"));
    refused(400, post("Content-Length: 5, 6\r\n", "hello"));
}

#[test]
fn lengths_that_are_no_numbers() {
    for length in [
        "+5",
        "-5",
        "-0",
        "0x5",
        "5 ,",
        "",
        " ",
        "5 5",
        "5;",
        "5.0",
        "5e0",
        "\"5\"",
        "five",
        "٥",
        "1_0",
        "18446744073709551616",
        "99999999999999999999999999",
    ] {
        refused(400, post(&format!("Content-Length: {length}\r\n"), "hello"));
    }
    refused(
        413,
        post("Content-Length: 18446744073709551615\r\n", "hello"),
    );
    refused(413, post("Content-Length: 1001\r\n", ""));
    served(post("Content-Length: 005\r\n", "hello"));
    served(post("Content-Length:5\r\n", "hello"));
    served(post("Content-Length: \t 5 \t \r\n", "hello"));
}

#[test]
fn transfer_codings() {
    for coding in [
        "chunked, chunked",
        "chunked, identity",
        "identity",
        "gzip",
        "xchunked",
        "chunkedx",
        "chunked;q=1",
        "\"chunked\"",
        "chunked,",
        ",chunked",
        "chunked chunked",
        "chu nked",
        "'chunked'",
        "",
        "chunked\\",
        "gzip; x, chunked",
    ] {
        refused(
            400,
            post(&format!("Transfer-Encoding: {coding}\r\n"), "0\r\n\r\n"),
        );
    }
    refused(
        501,
        post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    );
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    refused(400, post(twice, "0\r\n\r\n"));
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n";
    refused(400, post(twice, "0\r\n\r\n"));
    // Names that are nearly the name.
    refused(400, post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"));
    refused(400, post("Transfer-Encoding\t: chunked\r\n", "0\r\n\r\n"));
    refused(400, post(" Transfer-Encoding: chunked\r\n", "0\r\n\r\n"));
    refused(400, post("Transfer-Encoding\0: chunked\r\n", "0\r\n\r\n"));
    refused(400, post("Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n"));
    refused(400, post("Transfer-Encoding: chunked\0\r\n", "0\r\n\r\n"));
    refused(400, post("Transfer-Encoding:\n chunked\r\n", "0\r\n\r\n"));
    refused(
        400,
        post("X: y\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    );
    refused(
        400,
        post("X: y\rTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    );
    refused(
        400,
        post("X: y\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    );
    refused(
        400,
        "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
    served(post(
        "tRANSFER-eNCODING: CHUNKED\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
    ));
    served(post(
        "Transfer-Encoding: \tchunked \t\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
    ));
    // Other fields that only look like it.
    served(post("Transfer_Encoding: chunked\r\n", ""));
}

#[test]
fn chunk_lengths() {
    for line in [
        "",
        " 5",
        "5 ",
        "\t5",
        "+5",
        "-5",
        "0x5",
        "g",
        "5g",
        "5,",
        "5\0",
        "5 ;a",
        "5\r",
        "５",
        ";a",
        "00000000000000005",
        "10000000000000000",
        "5\u{b}",
        "5;a\0",
        "5;a\u{7f}",
        "5;a\rb",
        "5;",
        "5; ",
        "5;;a",
        "5;bad[",
        "5;a=",
        "5;a= ",
        "5;a=b c",
        "5;=b",
        "5;a=\"b",
        "5;a=\"b\\\"",
        "5;a=\"b\"c",
        "5;name=value;\"quoted",
    ] {
        refused(400, chunked(&format!("{line}\r\nhello\r\n0\r\n\r\n")));
    }
    // Lengths that wrap around.
    refused(413, chunked("ffffffffffffffff\r\nhello\r\n0\r\n\r\n"));
    refused(413, chunked("8000000000000005\r\nhello\r\n0\r\n\r\n"));
    refused(413, chunked("3e9\r\n"));
    refused(
        413,
        chunked("3e8\r\n")
            .into_bytes()
            .into_iter()
            .chain([b'x'; 1000])
            .chain(*b"\r\n1\r\n")
            .collect::<Vec<u8>>(),
    );
    served(chunked("0000000000000005\r\nhello\r\n0\r\n\r\n"));
    for line in [
        "5;a",
        "5; a ; b",
        "5;a=b",
        "5;a = b;c",
        "5;name=value;q=\"a \\\" ; b\"",
    ] {
        served(chunked(&format!("{line}\r\nhello\r\n000\r\n\r\n")));
    }
    served(chunked("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"));
    let extension = "e".repeat(3000);
    refused(
        400,
        chunked(&format!(
            "1;{extension}\r\nx\r\n1;{extension}\r\nx\r\n0\r\n\r\n"
        )),
    );
}

#[test]
fn chunk_ends() {
    refused(400, chunked("5\nhello\r\n0\r\n\r\n"));
    refused(400, chunked("5\r\nhello\n0\r\n\r\n"));
    refused(400, chunked("5\r\nhello\r0\r\n\r\n"));
    refused(400, chunked("5\r\nhelloo\r\n0\r\n\r\n"));
    refused(400, chunked("5\r\nhell\r\n0\r\n\r\n"));
    refused(400, chunked("5;a\nhello\r\n0\r\n\r\n"));
    refused(400, chunked("5\r\nhello\r\n0\r\n\n"));
    refused(400, chunked("5\r\nhello\r\n0\n\r\n"));
    refused(400, chunked("5\r\nhelloXX0\r\n\r\n"));
}

#[test]
fn trailers() {
    let with = |trailers: &str| chunked(&format!("0\r\n{trailers}\r\n"));
    served(with("X: y\r\nZ: a\r\n"));
    refused(400, with("Content-Length: 5\r\n"));
    refused(400, with("transfer-encoding: chunked\r\n"));
    refused(400, with("Host: other\r\n"));
    refused(400, with("X: y\n"));
    refused(400, with("X : y\r\n"));
    refused(400, with(" X: y\r\n"));
    refused(400, with("no colon\r\n"));
    refused(431, with(&format!("X: {}\r\n", "y".repeat(5000))));
}

#[test]
fn hosts() {
    let get = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}\r\n");
    refused(400, get(""));
    refused(400, get("Host: a\r\nHost: b\r\n"));
    refused(400, get("Host: a\r\nHost: a\r\n"));
    for host in [
        "a b", "a, b", "a,b", "a/b", "user@a", "a:b", "a:80:80", "[::1", "a\\b", "a?b", "a#b",
    ] {
        refused(400, get(&format!("Host: {host}\r\n")));
    }
    refused(400, "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
    refused(400, "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n");
    refused(400, "GET http://a/ HTTP/1.1\r\n\r\n");
    refused(400, "GET http://a:80/ HTTP/1.1\r\nHost: a:8080\r\n\r\n");
    refused(400, "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    refused(400, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    served("GET http://a/ HTTP/1.1\r\nHost: A:80\r\n\r\n");
    served(get("Host:\r\n"));
    served(get("Host: [::1]:8080\r\n"));
}

#[test]
fn request_lines() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /\tHTTP/1.1",
        "GET / HTTP/1.1\r",
        "GET /a b HTTP/1.1",
        "GE\0T / HTTP/1.1",
        "G(T / HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /é HTTP/1.1",
        "GET /#f HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/1.1x",
        "GET / HTTP/11",
        "GET / HTTP 1.1",
        "GET / HTTP/01.1",
        "GET / HTTP/+1.1",
        "GET /",
        "GET",
        "GET * HTTP/1.1",
        "GET h HTTP/1.1",
        "GET / ICY/1.1",
        "GET /\x0bHTTP/1.1",
        ": / HTTP/1.1",
        "\u{16}\u{3}\u{1}\u{2}",
    ] {
        refused(400, format!("{line}\r\nHost: h\r\n\r\n"));
    }
    refused(400, "GET / HTTP/1.1\nHost: h\r\n\r\n");
    refused(400, "GET / HTTP/1.1\rHost: h\r\n\r\n");
    refused(400, "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    refused(400, "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    refused(400, "\rGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    for version in [
        "HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/1.9", "HTTP/9.9", "HTTP/2", "HTTP/3",
    ] {
        refused(505, format!("GET / {version}\r\nHost: h\r\n\r\n"));
    }
    refused(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    refused(501, "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n");
    served("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

#[test]
fn header_fields() {
    let get = |lines: &str| format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    for line in [
        "X : y",
        "X\t: y",
        "X y: z",
        "X\0: y",
        "X: y\0",
        "X: y\u{7f}",
        "X: \u{1}",
        ": y",
        "no colon",
        "X(: y",
        "Xé: y",
        "X: y\r",
        "X: y\rZ: a",
        "\"X\": y",
        "X\r: y",
    ] {
        refused(400, get(&format!("{line}\r\n")));
    }
    // Lines that go on with the next one.
    refused(400, get("X: y\r\n z\r\n"));
    refused(400, get("X: y\r\n\tz\r\n"));
    refused(400, get(" X: y\r\n"));
    refused(400, get("X: y\n"));
    refused(400, "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\n");
    refused(400, "GET / HTTP/1.1\r\nHost: h\r\nX: y\n\r\n");
    refused(417, get("Expect: something\r\n"));
    served(get("X:\r\nY: \r\nZ: a b\tc é\r\n"));
}

#[test]
fn sizes() {
    let get = |path: &str, lines: &str| format!("GET /{path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    refused(414, get(&"a".repeat(9000), ""));
    refused(431, get("", &format!("X: {}\r\n", "y".repeat(17_000))));
    refused(431, get("", &"X: y\r\n".repeat(64)));
    served(get("", &"X: y\r\n".repeat(63)));
    refused(411, "POST / HTTP/1.0\r\n\r\nhello");
}
