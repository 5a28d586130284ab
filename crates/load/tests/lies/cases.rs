// Servers that are legal and unusual, which pass, and servers that lie, which are found out. Included for each transport, which has a `front`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use tidewire_load::workload::{
    Arrivals, EchoLoad, Extent, Failure, Fault, Generator, HttpLoad, HttpRequest, KeyChoice,
    KvLoad, Outcome, Plan, Target, ValueSizes, Wire, Workload, run,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that gives each connection to `each`, with its number, one after another in a thread of its own.
fn server(each: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let each = Arc::new(each);
    thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            let (socket, each) = (socket.unwrap(), each.clone());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || each(number, socket));
        }
    });
    addr
}

fn load(
    workload: Workload,
    count: u64,
    addr: SocketAddr,
    reconnect: bool,
) -> Result<Outcome, Failure> {
    let target = Target {
        addr: front::of(addr),
        process: None,
        cores: 1,
    };
    let plan = Plan {
        workload,
        connections: 2,
        arrivals: Arrivals::Closed,
        extent: Extent::Count(count),
    };
    let generator = Generator {
        stall: Duration::from_secs(5),
        reconnect,
        tls: front::client(),
        ..Generator::default()
    };
    run(&plan, &generator, &target, &mut |_| true)
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn http(pipeline: u32) -> Workload {
    of_request(REQUEST, pipeline)
}

fn of_request(bytes: &[u8], pipeline: u32) -> Workload {
    let request = HttpRequest {
        bytes: bytes.to_vec(),
        weight: 1.0,
    };
    Workload::of(HttpLoad {
        requests: Box::leak([request].into()),
        shown: "GET /",
        head: false,
        status: 200,
        length: None,
        body: None,
        pipeline,
        close: false,
    })
}

/// Reads one request; false at the end.
fn request(socket: &mut TcpStream) -> bool {
    let mut bytes = [0; REQUEST.len()];
    socket.read_exact(&mut bytes).is_ok() && bytes == *REQUEST
}

/// Reads to the end, so that a close does not become a reset that overtakes what was sent.
fn drain(mut socket: TcpStream) {
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut bytes = [0; 4096];
    while matches!(socket.read(&mut bytes), Ok(1..)) {}
}

/// Answers as many requests as come with these.
fn answering(reply: Vec<u8>) -> SocketAddr {
    server(
        move |_, mut socket| {
            while request(&mut socket) && socket.write_all(&reply).is_ok() {}
        },
    )
}

fn reply(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn every_byte_of_a_reply_counts_whatever_it_comes_in() {
    let whole = reply("", &[b'x'; 1_000_000]);
    let len = whole.len() as u64;
    let outcome = load(http(1), 20, answering(whole), false).unwrap();
    assert_eq!((outcome.requests, outcome.bytes), (20, 20 * len));
}

#[test]
fn a_body_is_checked_beyond_four_mebibytes() {
    let good = reply("", &[b'x'; 6 << 20]);
    assert_eq!(
        load(http(1), 6, answering(good.clone()), false)
            .unwrap()
            .requests,
        6
    );
    let asked = AtomicUsize::new(0);
    let addr = server(move |_, mut socket| {
        while request(&mut socket) {
            let mut reply = good.clone();
            let place = reply.len() - 1_000_000;
            reply[place] ^= u8::from(asked.fetch_add(1, SeqCst) == 4);
            if socket.write_all(&reply).is_err() {
                break;
            }
        }
    });
    let failure = load(http(1), 100, addr, false).unwrap_err();
    assert!(
        failure.is_wrong_answer() && failure.to_string().contains("not the same"),
        "{failure}"
    );
}

#[test]
fn a_close_that_was_announced_is_none_in_the_middle() {
    // As nginx does at its limit of requests on a connection.
    for pipeline in [1, 8] {
        let addr = server(|_, mut socket| {
            for n in 0..10 {
                if !request(&mut socket) {
                    return;
                }
                let fields = if n == 9 { "Connection: close\r\n" } else { "" };
                if socket.write_all(&reply(fields, b"hello")).is_err() {
                    return;
                }
            }
            drain(socket);
        });
        let outcome = load(http(pipeline), 200, addr, false).unwrap();
        let reconnects = outcome.reconnects.unwrap();
        assert_eq!(outcome.requests, 200);
        assert_eq!(outcome.latency.unwrap().count, 200);
        assert!(
            (18..=20).contains(&reconnects.connections),
            "{reconnects:?}"
        );
        assert_eq!((reconnects.unannounced, reconnects.lost), (0, 0));
        assert_eq!(reconnects.resent > 0, pipeline > 1, "{reconnects:?}");
    }
}

#[test]
fn a_server_may_close_between_replies_as_on_a_reload() {
    let addr = server(|number, mut socket| {
        let most = if number < 4 { 5 } else { usize::MAX };
        for _ in 0..most {
            if !request(&mut socket) || socket.write_all(&reply("", b"hello")).is_err() {
                return;
            }
        }
        // The next request may be on its way: whether a reset or an end comes is left to chance.
    });
    let outcome = load(http(1), 100, addr, false).unwrap();
    assert_eq!(outcome.requests, 100);
    assert_eq!(outcome.reconnects.unwrap().connections, 4);
}

#[test]
fn a_request_that_must_not_be_repeated_is_not_sent_again() {
    let post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    let addr = server(|_, mut socket| {
        let mut bytes = [0; 47];
        for n in 0.. {
            if socket.read_exact(&mut bytes).is_err() || n == 5 {
                return;
            }
            if socket.write_all(&reply("", b"hello")).is_err() {
                return;
            }
        }
    });
    assert_eq!(post.len(), 47);
    let failure = load(of_request(post, 1), 100, addr, false).unwrap_err();
    assert!(matches!(failure, Failure::Lost { .. }), "{failure}");
}

#[test]
fn a_close_without_or_within_a_reply_is_a_fault() {
    let half: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel";
    for (before, last) in [
        (0, &b""[..]),
        (3, half),
        (3, b"HTTP/1.1 200"),
        (3, b"HTTP/1.1 100 Continue\r\n\r\n"),
    ] {
        let addr = server(move |_, mut socket| {
            for _ in 0..before {
                if !request(&mut socket) || socket.write_all(&reply("", b"hello")).is_err() {
                    return;
                }
            }
            if request(&mut socket) && socket.write_all(last).is_ok() {
                drain(socket);
            }
        });
        let failure = load(http(1), 100, addr, false).unwrap_err();
        assert!(
            matches!(failure, Failure::Lost { .. }),
            "{last:?}: {failure}"
        );
    }
}

#[test]
fn whatever_is_legal_is_no_fault() {
    let chunks =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let fields = "X-Field: value\r\n".repeat(100);
    for all in [
        chunks.to_vec(),
        [&early[..], &reply("", b"hello")].concat(),
        [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], early, chunks].concat(),
        reply(&fields, b"hello"),
    ] {
        let outcome = load(http(4), 100, answering(all.clone()), false).unwrap();
        assert_eq!((outcome.requests, outcome.reconnects), (100, None));
        assert_eq!(outcome.bytes, 100 * all.len() as u64);
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_whole_there_and_checked() {
    let asked = Arc::new(AtomicUsize::new(0));
    for lies in [false, true] {
        let asked = asked.clone();
        asked.store(0, SeqCst);
        let addr = server(move |_, mut socket| {
            if request(&mut socket) {
                let cut = lies && asked.fetch_add(1, SeqCst) == 20;
                let body = if cut { "hel" } else { "hello" };
                let _ = socket.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes());
                drain(socket);
            }
        });
        match load(http(1), 50, addr, false) {
            Ok(outcome) => {
                assert!(!lies);
                assert_eq!(outcome.requests, 50);
                assert_eq!(outcome.latency.unwrap().count, 50);
                assert_eq!(outcome.reconnects.unwrap().connections, 48);
            }
            Err(Failure::WrongReply { fault, .. }) => {
                assert_eq!((lies, fault), (true, Fault::ShortReply));
            }
            Err(failure) => panic!("{failure}"),
        }
    }
}

fn echo_load() -> Workload {
    Workload::of(EchoLoad {
    size: 64,
    pipeline: 1,
    batch: 0,
})
}

#[test]
fn lost_connections_are_counted_where_that_is_asked_and_end_the_run_where_not() {
    // The first five connections end with a message unanswered.
    let echo = || {
        server(|number, mut socket| {
            let mut bytes = [0; 64];
            for n in 0.. {
                if socket.read_exact(&mut bytes).is_err() || (number < 5 && n == 3) {
                    return;
                }
                if socket.write_all(&bytes).is_err() {
                    return;
                }
            }
        })
    };
    let failure = load(echo_load(), 100, echo(), false).unwrap_err();
    assert!(matches!(failure, Failure::Lost { .. }), "{failure}");
    let outcome = load(echo_load(), 100, echo(), true).unwrap();
    let reconnects = outcome.reconnects.unwrap();
    assert_eq!((reconnects.connections, reconnects.lost), (5, 5));
    assert_eq!(outcome.requests, 95, "all but those that were lost");
}

fn kv(filled: bool) -> Workload {
    Workload::of(KvLoad {
        wire: Wire::Resp,
        keys: 10,
        key_size: 17,
        size: ValueSizes::Fixed(3),
        pipeline: 1,
        reads: 1.0,
        choice: KeyChoice::Uniform,
        command: None,
        filled,
    })
}

#[test]
fn reads_that_find_nothing_are_counted() {
    let addr = server(|_, mut socket| {
        let mut bytes = [0; 4096];
        while matches!(socket.read(&mut bytes), Ok(1..)) && socket.write_all(b"$-1\r\n").is_ok() {}
    });
    let reads = load(kv(true), 100, addr, false).unwrap().reads.unwrap();
    assert_eq!((reads.hits, reads.misses), (0, 100));
    assert_eq!(reads.miss_share(), Some(1.0));
}
