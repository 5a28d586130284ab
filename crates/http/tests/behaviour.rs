//! What a connection does, on virtual time: persistence, bodies, deadlines, answers that come later.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::sim::chunking::{self, Collected, Feed};
use tidewire::sim::{PlainState, Sim};
use tidewire::{Closed, Limits};
use tidewire_http::demo::Burns;
use tidewire_http::testing::{Got, replies};
use tidewire_http::{
    Answer, Body, Data, Done, Exchange, Handler, Headers, Http, Length, Method, Reply, Request,
    Response, Router, Settings, demo,
};
use tidewire_pool::Pool;

fn app() -> Http<Router> {
    Http::new(
        demo::router(Pool::inline(), Burns::ForEverybody)
            .post("/", |request, response| response.body(request.body())),
    )
}

fn run<H: Handler>(app: Http<H>, input: &str) -> Collected {
    chunking::collect(app, input.as_bytes(), &[], false)
}

fn all(got: &Collected, methods: &[&str]) -> Vec<Got> {
    replies(&got.output, methods).unwrap()
}

fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

#[test]
fn a_reply_says_all_that_it_has_to() {
    let got = run(app(), &get("/", ""));
    let text = String::from_utf8(got.output).unwrap();
    // Virtual time begins with 2020.
    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\ndate: Wed, 01 Jan 2020 00:00:00 GMT\r\ncontent-length: 13\r\n\
         content-type: text/plain; charset=utf-8\r\n\r\nHello, World!"
    );
    assert_eq!(got.closed, None, "the connection goes on");
}

/// What is compared with the request in front of it, and not parsed, is a request all the same.
#[test]
fn requests_that_are_alike_are_each_handled_and_answered() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let app = Http::new(move |request: &Request<'_>, response: Response<'_>| {
        let mut seen = log.lock().unwrap();
        seen.push(request.header("x").unwrap_or("-").to_owned());
        let n = seen.len();
        match request.path() {
            "/none" => response.status(404).text("none"),
            "/close" if n == 10 => response.close().text("the end"),
            _ => response.text(&n.to_string()),
        }
    });
    let mut input = get("/", "X: a\r\n").repeat(3);
    // One byte of the last field differs, then a byte behind the same head does.
    input += &get("/", "X: b\r\n");
    input += &get("/", "X: a\r\n");
    input += &get("/none", "").repeat(3);
    input += &get("/close", "").repeat(4);
    let got = run(app.clone(), &input);
    let texts: Vec<String> = all(&got, &[])
        .iter()
        .map(|got| format!("{} {}", got.status, got.text()))
        .collect();
    let none = "404 none";
    assert_eq!(
        texts,
        [
            "200 1",
            "200 2",
            "200 3",
            "200 4",
            "200 5",
            none,
            none,
            none,
            "200 9",
            "200 the end"
        ]
    );
    assert_eq!(seen.lock().unwrap()[..6].concat(), "aaaba-");
    let counters = app.counters();
    assert_eq!(
        (
            counters.requests,
            counters.replies_2xx,
            counters.replies_4xx
        ),
        (10, 7, 3)
    );
    assert_eq!(got.closed, Some(Closed::Finished));
}

/// A client that repeats its last request is not answered twice.
#[test]
fn a_last_request_that_is_repeated_is_the_last() {
    let got = run(app(), &get("/", "Connection: close\r\n").repeat(3));
    assert_eq!(all(&got, &[]).len(), 1);
    assert_eq!(got.closed, Some(Closed::Finished));
}

/// Equal requests wait when the client does not read the answers, however many
/// they are.
#[test]
fn requests_that_are_alike_wait_for_room() {
    let page = "x".repeat(50_000);
    let app = Http::new(move |_: &Request<'_>, response: Response<'_>| response.text(&page));
    let mut sim = Sim::under(1, tidewire::sim::Conditions::calm());
    let addr = sim.serve(app.clone(), Limits::default());
    let peer = sim.plain(addr);
    sim.reading(peer, false);
    sim.send(peer, get("/", "").repeat(1000).as_bytes());
    sim.run_for(Duration::from_secs(1));
    let answered = app.counters().requests;
    assert!(
        answered < 500,
        "{answered} are answered for one who reads nothing"
    );
    sim.reading(peer, true);
    sim.run_for(Duration::from_secs(5));
    assert_eq!(app.counters().requests, 1000);
}

#[test]
fn the_date_goes_on_with_the_clock() {
    let input = get("/", "").repeat(3);
    let each = get("/", "").len();
    let got = Feed::new(input.as_bytes())
        .splits(&[each, each, each])
        .pause(Duration::from_millis(700))
        .half_close(false)
        .run(app());
    let seconds: Vec<String> = all(&got, &[])
        .iter()
        .map(|got| got.header("date").unwrap()[23..25].to_owned())
        .collect();
    assert_eq!(seconds, ["00", "01", "02"]);
}

#[test]
fn persistence_is_what_version_and_connection_say() {
    let last = |input: &str| {
        let got = run(app(), &(input.to_owned() + &get("/", "")));
        let all = all(&got, &[]);
        let header = all[0].header("connection").map(str::to_owned);
        (all.len() == 1, header)
    };
    let close = Some("close".to_owned());
    assert_eq!(last(&get("/", "")), (false, None));
    assert_eq!(
        last(&get("/", "Connection: close\r\n")),
        (true, close.clone())
    );
    assert_eq!(
        last(&get("/", "Connection: keep-alive, CLOSE\r\n")),
        (true, close.clone())
    );
    assert_eq!(
        last(&get("/", "Connection: x\r\nConnection: Close\r\n")),
        (true, close.clone())
    );
    // A later field does not take `close` back.
    for taken_back in [
        "Connection: close\r\nConnection: keep-alive\r\n",
        "Connection: close, keep-alive\r\n",
        "Connection: close\r\nConnection: x\r\nConnection: keep-alive, x\r\n",
    ] {
        assert_eq!(last(&get("/", taken_back)), (true, close.clone()));
        let old = format!("GET / HTTP/1.0\r\n{taken_back}\r\n");
        assert_eq!(last(&old), (true, close.clone()));
    }
    assert_eq!(last("GET / HTTP/1.0\r\n\r\n"), (true, close.clone()));
    let keep = "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
    assert_eq!(last(keep), (false, Some("keep-alive".to_owned())));
    let both = "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n";
    assert_eq!(last(both), (true, close));
}

#[test]
fn a_client_of_http_1_0_gets_no_chunks() {
    struct Parts;
    impl Exchange for Parts {
        fn room(&mut self, reply: &mut Reply<'_>) {
            reply.write(b"a part");
            reply.end_with(&[("x", "y")]);
        }
    }
    let app = || Http::new(Router::new().get("/", |_, response| response.stream(None, Parts)));
    let old = run(app(), "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let got = &all(&old, &[])[0];
    assert_eq!(
        (got.text(), got.header("transfer-encoding")),
        ("a part", None)
    );
    assert_eq!(
        (got.header("connection"), old.closed),
        (Some("close"), Some(Closed::Finished))
    );
    let new = run(app(), &get("/", ""));
    let got = &all(&new, &[])[0];
    assert_eq!((got.text(), got.trailer("x")), ("a part", Some("y")));
    assert!(got.whole && new.closed.is_none());
}

/// A reply of unknown length ends with its connection: an orderly end in the middle of it would be
/// taken for the whole.
#[test]
fn a_reply_of_unknown_length_that_is_not_whole_ends_by_a_reset() {
    /// Says a part, and then nothing more.
    struct Stuck;
    impl Exchange for Stuck {
        fn room(&mut self, reply: &mut Reply<'_>) {
            reply.write(b"a part");
        }
    }
    struct Streams;
    impl Handler for Streams {
        fn body(&self, _: &Request<'_>) -> Body {
            Body::Stream
        }
        fn handle(&self, _: &Request<'_>, response: Response<'_>) -> Done {
            response.stream(None, Stuck)
        }
    }
    let app = || Http::new(Streams);
    // The request's body is cut short when a part of the reply has been written.
    let request = |version: u32| {
        format!("POST / HTTP/1.{version}\r\nHost: a\r\nContent-Length: 9\r\n\r\na part")
    };
    let ended = |version| Feed::new(request(version).as_bytes()).run(app()).closed;
    let why = Some(Closed::ByProtocol("a body that was cut short"));
    assert_eq!((ended(0), ended(1)), (why, why));
    // The one sees that the last chunk is missing; the other would see nothing.
    let mut sim = Sim::new(5);
    let at = sim.serve(app(), Limits::default());
    let (old, new) = (sim.plain(&at), sim.plain(&at));
    for (client, version) in [(old, 0), (new, 1)] {
        sim.send(client, request(version).as_bytes());
    }
    sim.run_for(Duration::from_secs(1));
    for client in [old, new] {
        assert!(String::from_utf8_lossy(sim.received(client)).contains("a part"));
        sim.finish(client);
    }
    sim.run_for(Duration::from_secs(60));
    assert!(
        matches!(sim.state(old), PlainState::Failed(_)),
        "{:?}",
        sim.state(old)
    );
    assert!(
        !matches!(sim.state(new), PlainState::Failed(_)),
        "{:?}",
        sim.state(new)
    );
}

#[test]
fn work_of_a_client_that_has_gone_is_not_begun() {
    let pool = Pool::by_hand(8);
    let done = Arc::new(Mutex::new(Vec::new()));
    let (workers, seen) = (pool.clone(), done.clone());
    let app = Http::new(Router::new().get("/{who}", move |request, response| {
        let (who, seen) = (request.path().to_owned(), seen.clone());
        response.pooled(&workers, move || {
            seen.lock().unwrap().push(who);
            Answer::new(204)
        })
    }));
    let mut sim = Sim::new(5);
    let at = sim.serve(app, Limits::default());
    let (gone, there) = (sim.plain(&at), sim.plain(&at));
    sim.send(gone, get("/gone", "").as_bytes());
    sim.send(there, get("/there", "").as_bytes());
    sim.run_for(Duration::from_secs(1));
    sim.close(gone, true);
    sim.run_for(Duration::from_secs(1));
    while pool.step(0) {}
    sim.run_for(Duration::from_secs(1));
    assert_eq!(*done.lock().unwrap(), ["/there"]);
    assert!(sim.received(there).starts_with(b"HTTP/1.1 204"));
}

#[test]
fn head_is_get_without_the_body() {
    for (path, length) in [("/", "13"), ("/bytes/5000", "5000")] {
        let head = get(path, "").replace("GET", "HEAD");
        let got = run(app(), &(head + &get("/", "")));
        let all = all(&got, &["HEAD", "GET"]);
        assert_eq!(all[0].header("content-length"), Some(length));
        assert_eq!(all[1].text(), "Hello, World!", "{path}");
    }
    // A request that is refused, too.
    let got = run(app(), "HEAD / HTTP/1.1\r\n\r\n");
    assert!(got.output.ends_with(b"\r\n\r\n"));
    assert_eq!(all(&got, &["HEAD"])[0].status, 400);
}

#[test]
fn statuses_without_a_body_have_none() {
    let app = || {
        Http::new(|request: &Request<'_>, response: Response<'_>| {
            let status = request.path()[1..].parse().unwrap();
            response.status(status).body(b"ignored")
        })
    };
    for (status, length) in [(204, None), (304, None), (205, Some("0")), (299, Some("7"))] {
        let got = run(app(), &(get(&format!("/{status}"), "") + &get("/200", "")));
        let all = all(&got, &[]);
        assert_eq!(
            (all[0].status, all[0].header("content-length")),
            (status, length)
        );
        assert_eq!(all[1].text(), "ignored");
    }
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\nhi";
    let got = run(app(), post);
    let statuses: Vec<u16> = all(&got, &[]).iter().map(|got| got.status).collect();
    assert_eq!(statuses, [100, 200]);
    // A request that is refused is not asked to go on, and need not send its body.
    let refused = post.replace("POST / ", "POST /none ");
    let got = run(app(), &refused[..refused.len() - 2]);
    let all_of_it = all(&got, &[]);
    assert_eq!((all_of_it.len(), all_of_it[0].status), (1, 404));
    assert_eq!(all_of_it[0].header("connection"), Some("close"));
    // HTTP/1.0 knows nothing of it.
    let old = post.replace("HTTP/1.1", "HTTP/1.0");
    let got = run(app(), &old);
    assert_eq!(all(&got, &[])[0].status, 200);
}

#[test]
fn an_unwanted_body_is_dropped_or_ends_the_connection() {
    let post = |length: usize| {
        format!(
            "POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{}",
            "b".repeat(length)
        )
    };
    let got = run(app(), &(post(60_000) + &get("/", "")));
    let statuses: Vec<u16> = all(&got, &[]).iter().map(|got| got.status).collect();
    assert_eq!(statuses, [404, 200]);
    let got = run(app(), &(post(70_000) + &get("/", "")));
    let all = all(&got, &[]);
    assert_eq!((all.len(), all[0].header("connection")), (1, Some("close")));
}

#[test]
fn the_router_says_what_there_is() {
    let ask = |line: &str| {
        let got = run(app(), &format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let first = all(&got, &[]).remove(0);
        (first.status, first.header("allow").map(str::to_owned))
    };
    let allowed = |names: &str| Some(names.to_owned());
    assert_eq!(ask("DELETE /"), (405, allowed("GET, POST, HEAD, OPTIONS")));
    assert_eq!(
        ask("OPTIONS /echo"),
        (204, allowed("GET, POST, PUT, HEAD, OPTIONS"))
    );
    assert_eq!(ask("OPTIONS *"), (204, None));
    assert_eq!(ask("BREW /"), (501, None));
    assert_eq!(ask("get /"), (501, None));
    assert_eq!(ask("TRACE /"), (405, allowed("GET, POST, HEAD, OPTIONS")));
    assert_eq!(ask("GET /none"), (404, None));
    assert_eq!(ask("GET /bytes/"), (404, None));
    assert_eq!(ask("GET /bytes/+1"), (400, None));
    assert_eq!(ask("GET /burn?us=1&on=fire"), (400, None));
    assert_eq!(ask("GET /burn?us=1&on=pool"), (200, None));
}

#[test]
fn strangers_burn_nothing_unless_they_may() {
    // Peers of the simulator come from other hosts.
    for (burns, status) in [(Burns::ForTrusted, 403), (Burns::ForEverybody, 200)] {
        let app = Http::new(demo::router(Pool::inline(), burns));
        let got = run(app, &get("/burn?us=1&on=pool", ""));
        assert_eq!(all(&got, &[])[0].status, status);
    }
}

#[test]
fn what_a_client_sent_is_not_reflected_into_a_head() {
    let reflecting = |name: &'static str| {
        Http::new(move |request: &Request<'_>, response: Response<'_>| {
            let value = request.query_value("v").unwrap_or_default().into_owned();
            response.header(name, value).text("fine")
        })
    };
    let status = |name, query: &str| {
        all(
            &run(reflecting(name), &get(&format!("/?v={query}"), "")),
            &[],
        )[0]
        .status
    };
    assert_eq!(status("x-value", "good"), 200);
    for bad in ["a%0d%0aset-cookie:%20b", "a%0ab", "a%0db", "a%00b", "a%7fb"] {
        assert_eq!(status("x-value", bad), 500, "{bad}");
    }
    for name in [
        "content-length",
        "Transfer-Encoding",
        "connection",
        "date",
        "a b",
        "",
    ] {
        assert_eq!(status(name, "1"), 500, "{name}");
    }
}

#[test]
fn answers_that_come_later_keep_the_order() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let seen = started.clone();
    let router = Router::new().get("/{n}", move |request, response| {
        let n = request.param("n").unwrap_or_default().to_owned();
        seen.lock().unwrap().push(n.clone());
        response.later(move |later| match n.as_str() {
            "dropped" => drop(later),
            "bad" => later.send(Answer::new(200).header("x", "a\nb")),
            _ => later.send(Answer::new(200).text(n)),
        })
    });
    let input = ["/1", "/dropped", "/2", "/bad", "/3"]
        .map(|path| get(path, ""))
        .concat();
    let check = |got: &Collected| {
        let all = all(got, &[]);
        let seen: Vec<(u16, String)> = all
            .iter()
            .map(|got| (got.status, got.text().to_owned()))
            .collect();
        format!("{seen:?}")
    };
    let app = Http::new(router);
    let got = run(app.clone(), &input);
    let statuses: Vec<u16> = all(&got, &[]).iter().map(|got| got.status).collect();
    assert_eq!(statuses, [200, 500, 200, 500, 200]);
    assert_eq!(started.lock().unwrap().len(), 5);
    chunking::assert_invisible(|| app.clone(), input.as_bytes(), true, check, 30);
}

/// Feeds `input`, lets `pause` pass before each byte, and time behind it.
fn drip(app: Http<Router>, input: &str, pause: Duration) -> Collected {
    Feed::new(input.as_bytes())
        .splits(&vec![1; input.len()])
        .pause(pause)
        .half_close(false)
        .after(Duration::from_secs(100))
        .limits(Limits {
            idle: None,
            ..Limits::default()
        })
        .run(app)
}

#[test]
fn a_head_that_comes_too_slowly_is_a_408() {
    let got = drip(
        app(),
        &get("/", "X: 0123456789\r\n"),
        Duration::from_secs(1),
    );
    assert_eq!(all(&got, &[])[0].status, 408);
    assert!(got.closed.is_some());
    // Within its time it may come as slowly as it likes, and so may the next one.
    let got = drip(app(), &get("/", "").repeat(3), Duration::from_millis(200));
    assert_eq!(all(&got, &[]).len(), 3);
    // Nothing at all is no head: that is what the limit of idle connections is for.
    let got = drip(app(), "", Duration::ZERO);
    assert_eq!((got.output.len(), got.closed), (0, None));
}

#[test]
fn a_body_that_comes_too_slowly_is_a_408_and_a_large_one_has_more_time() {
    for path in ["/", "/none-but-gathered"] {
        let post = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\n");
        let router = demo::router(Pool::inline(), Burns::ForEverybody)
            .route(Method::Post, "/", Body::Gather, |_, response| {
                response.empty()
            })
            .route(
                Method::Post,
                "/none-but-gathered",
                Body::Stream,
                |_, response| response.exchange(Sink),
            );
        let app = Http::new(router);
        let input = post.clone() + &"b".repeat(40);
        let mut splits = vec![post.len()];
        splits.extend([1; 40]);
        let got = Feed::new(input.as_bytes())
            .splits(&splits)
            .pause(Duration::from_secs(1))
            .half_close(false)
            .limits(Limits {
                idle: None,
                ..Limits::default()
            })
            .run(app.clone());
        assert_eq!(all(&got, &[])[0].status, 408, "{path}");
        // 4 KiB a second for a hundred seconds.
        let length = 400 << 10;
        let head = post.replace("40\r\n", &format!("{length}\r\n"));
        let input = head + &"b".repeat(length);
        let got = Feed::new(input.as_bytes())
            .splits(&[4096; 100])
            .pause(Duration::from_secs(1))
            .half_close(false)
            .limits(Limits {
                idle: None,
                ..Limits::default()
            })
            .run(app);
        assert_eq!(all(&got, &[])[0].status, 200, "{path}");
    }
}

/// Takes a body and says so.
struct Sink;

impl Exchange for Sink {
    fn end(&mut self, _: Headers<'_>, reply: &mut Reply<'_>) {
        reply.head(200, &[], Length::Known(0));
        reply.end();
    }
}

#[test]
fn time_in_which_we_do_not_read_is_not_the_clients() {
    // The handler's own reply delays the client's body: the handler takes a little of it
    // every ten seconds.
    let length = 100_000;
    let input = format!(
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{}",
        "b".repeat(length)
    );
    let settings = Settings {
        body_rate: 1 << 40,
        ..Settings::default()
    };
    let app = Http::with(settings, demo::router(Pool::inline(), Burns::ForEverybody));
    let got = Feed::new(input.as_bytes())
        .splits(&vec![0; 100])
        .window(2000)
        .pause(Duration::from_secs(10))
        .patience(Duration::from_secs(1000))
        .half_close(false)
        .limits(Limits {
            output_low: 1000,
            output_high: 3000,
            idle: None,
            ..Limits::default()
        })
        .run(app);
    assert_eq!(all(&got, &[])[0].body.len(), length);
}

#[test]
fn a_client_that_goes_in_the_middle_is_no_whole_request() {
    let gone = |input: &str| chunking::collect(app(), input.as_bytes(), &[], true);
    let got = gone(&get("/", "")[..20]);
    assert_eq!(
        (got.output.len(), got.closed),
        (0, Some(Closed::ByProtocol("a head that was cut short")))
    );
    let body = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhell";
    let got = gone(body);
    assert_eq!(
        (got.output.len(), got.closed),
        (0, Some(Closed::ByProtocol("a body that was cut short")))
    );
    let got = gone(&body.replace("POST / ", "POST /echo "));
    assert!(!all(&got, &[])[0].whole);
    let got = gone(&get("/", ""));
    assert_eq!(got.closed, Some(Closed::Finished));
    // A client that says no more, and waits for its reply, gets it.
    let got = gone(&get("/bytes/300000", ""));
    assert_eq!(all(&got, &[])[0].body.len(), 300_000);
}

#[test]
fn a_reply_that_is_not_as_long_as_was_said_is_not_taken_for_whole() {
    struct Wrong(u64, &'static [u8]);
    impl Exchange for Wrong {
        fn room(&mut self, reply: &mut Reply<'_>) {
            reply.head(200, &[], Length::Known(self.0));
            reply.write(self.1);
            reply.end();
        }
    }
    let run = |length, body| {
        let app = Http::new(move |_: &Request<'_>, response: Response<'_>| -> Done {
            response.exchange(Wrong(length, body))
        });
        run(app, &get("/", "")).closed
    };
    assert_eq!(run(3, b"abc"), None);
    assert_eq!(
        run(4, b"abc"),
        Some(Closed::ByProtocol("a reply shorter than was said"))
    );
    assert_eq!(
        run(2, b"abc"),
        Some(Closed::ByProtocol("a reply longer than was said"))
    );
}

#[test]
fn a_handler_that_leaves_a_body_without_need_is_told() {
    struct Stuck;
    impl Exchange for Stuck {
        fn data(&mut self, _: &mut Data<'_, '_>, _: &mut Reply<'_>) {}
    }
    let router = Router::new().route(Method::Post, "/", Body::Stream, |_, response| {
        response.exchange(Stuck)
    });
    let got = run(
        Http::new(router),
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
    );
    assert_eq!(
        got.closed,
        Some(Closed::ByProtocol("a handler left a body without need"))
    );
}

#[test]
fn bodies_of_all_connections_are_bounded_together() {
    use tidewire::sim::{Conditions, Sim};
    let settings = Settings {
        gathered: 1000,
        ..Settings::default()
    };
    let app = Http::with(
        settings,
        Router::new().post("/", |_, response| response.empty()),
    );
    let mut sim = Sim::under(1, Conditions::calm());
    let addr = sim.serve(app.clone(), app.limits());
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 700\r\n\r\n";
    let (first, second) = (sim.plain(addr.clone()), sim.plain(addr));
    sim.run_for(Duration::from_millis(100));
    sim.send(first, &[&head[..], &[b'b'; 600]].concat());
    sim.run_for(Duration::from_millis(100));
    sim.send(second, &[&head[..], &[b'b'; 600]].concat());
    sim.run_for(Duration::from_millis(100));
    assert!(sim.received(second).starts_with(b"HTTP/1.1 503 "));
    sim.send(first, &[b'b'; 100]);
    sim.run_for(Duration::from_millis(100));
    assert!(sim.received(first).starts_with(b"HTTP/1.1 200 "));
    assert_eq!(app.counters().overloaded, 1);
}
