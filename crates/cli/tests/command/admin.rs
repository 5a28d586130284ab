//! The admin listener of `serve`: what it shows, to which clients, and what a real Prometheus makes
//! of it.

use crate::common;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;

use crate::common::kv::{Client, text};
use crate::common::{PATIENCE, Running, addr, engines, run, stderr};

/// A server with this admin listener, and the addresses of its listeners, the admin's last.
fn serve(args: &[&str]) -> (Running, Vec<SocketAddr>) {
    let (server, lines) = serve_lines(args);
    let addrs = lines.iter().map(|line| addr(line)).collect();
    (server, addrs)
}

/// Starts a server; returns also the lines that say what listens where.
fn serve_lines(args: &[&str]) -> (Running, Vec<String>) {
    let mut server = Running::start(&[&["serve"], args].concat());
    let mut lines = Vec::new();
    loop {
        let line = server.line();
        assert!(line.starts_with("listening "), "{line}: {lines:?}");
        let is_last = line.contains("service=admin");
        lines.push(line);
        if is_last {
            return (server, lines);
        }
    }
}

const ADMIN: [&str; 2] = ["--admin", "127.0.0.1:0"];

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

fn ask(at: SocketAddr, request: &str, fields: &str, body: &str) -> Answer {
    let host = match fields.contains("Host:") {
        true => String::new(),
        false => format!("Host: {at}\r\n"),
    };
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\n{host}{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

pub(crate) fn get(at: SocketAddr, path: &str) -> Answer {
    ask(at, &format!("GET {path}"), "", "")
}

fn echo(at: SocketAddr, times: usize) {
    let mut client = TcpStream::connect(at).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..times {
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
}

/// The sum of the values of a metric whose labels contain this text.
pub(crate) fn value(page: &str, name: &str, labels: &str) -> f64 {
    let lines = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']) && rest.contains(labels))
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn metrics_follow_what_happens_on_every_engine() {
    let data = tempfile::tempdir().unwrap();
    for engine in engines() {
        let dir = data.path().join(engine);
        let listen = ["echo=0", "ingest=0", "kv/resp=0", "http=0"];
        let mut args = vec!["--engine", engine, "--data", dir.to_str().unwrap()];
        listen.iter().for_each(|at| args.extend(["--listen", at]));
        args.extend(ADMIN);
        let (server, lines) = serve_lines(&args);
        let at = |service: &str| {
            let named = format!("service={service} ");
            addr(
                lines
                    .iter()
                    .find(|line| line.contains(&named))
                    .expect(service),
            )
        };
        let admin = at("admin");
        echo(at("echo"), 3);
        let mut redis = TcpStream::connect(at("kv")).unwrap();
        redis.write_all(b"SET a 1\r\nGET a\r\nGET b\r\n").unwrap();
        redis.read_exact(&mut [0; 5 + 7 + 5]).unwrap();
        assert_eq!(get(at("http"), "/").status, 200);
        let to = at("ingest").to_string();
        let mut send = common::tidewire(&["send", "--to", &to]);
        send.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = send.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"a\nb\nc\n").unwrap();
        assert!(child.wait().unwrap().success());
        eventually("closed connections are counted", || {
            let page = get(admin, "/metrics").body;
            value(
                &page,
                "tidewire_connections_closed_total",
                "service=\"echo\"",
            ) == 1.0
        });
        let answer = get(admin, "/metrics");
        assert!(
            answer
                .head
                .contains("content-type: text/plain; version=0.0.4"),
            "{}",
            answer.head
        );
        let page = answer.body;
        for (name, labels, expected) in [
            ("tidewire_ready", "", 1.0),
            (
                "tidewire_connections_accepted_total",
                "service=\"echo\"",
                1.0,
            ),
            ("tidewire_connections_open", "service=\"kv/resp\"", 1.0),
            ("tidewire_received_bytes_total", "service=\"echo\"", 15.0),
            ("tidewire_sent_bytes_total", "service=\"echo\"", 15.0),
            ("tidewire_connections_closed_total", "reason=\"reset\"", 0.0),
            ("tidewire_kv_hits_total", "", 1.0),
            ("tidewire_kv_misses_total", "", 1.0),
            ("tidewire_kv_keys", "db=\"0\"", 1.0),
            ("tidewire_kv_command_calls_total", "command=\"get\"", 2.0),
            ("tidewire_ingest_messages_total", "", 3.0),
            (
                "tidewire_log_stream_next_position",
                "stream=\"default\"",
                3.0,
            ),
            ("tidewire_log_failed", "", 0.0),
            ("tidewire_http_requests_total", "", 1.0),
            ("tidewire_build_info", engine, 1.0),
        ] {
            assert_eq!(
                value(&page, name, labels),
                expected,
                "{engine}: {name} {labels}\n{page}"
            );
        }
        for name in [
            "process_resident_memory_bytes",
            "tidewire_log_disk_free_bytes",
            "tidewire_kv_used_memory_bytes",
            "tidewire_held_max_bytes",
        ] {
            assert!(value(&page, name, "") > 0.0, "{engine}: {name}");
        }
        eventually("loops say how late they are", || {
            let page = get(admin, "/metrics").body;
            value(&page, "tidewire_loop_lag_seconds_count", "") > 0.0
        });
        eventually("commits are counted with how long they took", || {
            let page = get(admin, "/metrics").body;
            let log = "log=\"messages\"";
            value(&page, "tidewire_log_commit_seconds_count", log) > 0.0
        });
        let shown = common::stdout(&run(&["info", "--admin", &admin.to_string()]));
        assert!(shown.contains("commits"), "{shown}");
        let stats: serde_json::Value =
            serde_json::from_str(&get(admin, "/stats.json").body).unwrap();
        assert_eq!(stats["state"], "serving");
        let listeners = stats["listeners"].as_array().unwrap();
        assert!(
            listeners.iter().any(|l| l["service"] == "kv/resp"),
            "{listeners:?}"
        );
        assert_eq!(
            stats["metrics"]["tidewire_ingest_messages_total"][0]["value"],
            3.0
        );
        server.signal(Signal::TERM);
        assert_eq!(server.end().status.code(), Some(0));
    }
}

/// Every service that `serve` has, each at any port.
const EVERYTHING: [&str; 11] = [
    "echo",
    "ack/request-reply",
    "ack/throttled",
    "ack/head-rest",
    "ack/sync",
    "ack/async",
    "ingest",
    "kv/resp",
    "kv/binary",
    "http",
    "discard",
];

/// Serves everything, with logs in `data`; the lines that say what listens where, the admin's last.
fn serve_everything(data: &str) -> (Running, Vec<String>) {
    let listen = EVERYTHING.map(|service| format!("{service}=0"));
    let mut args = vec!["--data", data, "--durability", "sync"];
    args.extend(EVERYTHING);
    for one in &listen {
        args.extend(["--listen", one]);
    }
    args.extend(ADMIN);
    serve_lines(&args)
}

#[test]
fn prometheus_finds_nothing_to_blame() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, lines) = serve_everything(dir.path().to_str().unwrap());
    let page = get(addr(lines.last().unwrap()), "/metrics").body;
    for service in EVERYTHING {
        let labels = format!("service=\"{service}\"");
        assert!(page.contains(&labels), "{service}: {page}");
    }
    let Ok(mut check) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        eprintln!("left out: there is no promtool here (Debian: prometheus)");
        return;
    };
    check
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let said = check.wait_with_output().unwrap();
    let words = [said.stdout, said.stderr].concat();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&words));
    assert!(words.is_empty(), "{}", String::from_utf8_lossy(&words));
}

#[test]
fn a_real_prometheus_scrapes_it() {
    let (_server, addrs) = serve(&[&["echo", "--listen", "echo=0"], &ADMIN[..]].concat());
    echo(addrs[0], 1);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: tidewire, static_configs: [{{targets: ['{}']}}]}}]\n",
        addrs[1]
    );
    fs::write(&config, text).unwrap();
    // No line tells a port that the server chooses.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let Ok(mut prometheus) = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={free}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    else {
        eprintln!("left out: there is no prometheus here (Debian: prometheus)");
        return;
    };
    let query =
        "GET /api/v1/query?query=tidewire_connections_accepted_total%7Bservice%3D%22echo%22%7D";
    let begin = Instant::now();
    let found = loop {
        let answer = TcpStream::connect(free)
            .is_ok()
            .then(|| ask(free, query, "", "").body);
        let found = answer.filter(|body| body.contains("\"value\":["));
        if found.is_some() || begin.elapsed() > PATIENCE {
            break found;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let _ = prometheus.kill();
    let _ = prometheus.wait();
    let found = found.expect("it has the metric after a while");
    assert!(
        found.contains("\"job\":\"tidewire\"") && found.contains(",\"1\"]"),
        "{found}"
    );
}

#[test]
fn browsers_of_others_get_nothing() {
    let own = [
        "echo",
        "--listen",
        "echo=0",
        "--admin-host",
        "panel.example",
    ];
    let (_server, addrs) = serve(&[&own[..], &ADMIN].concat());
    let admin = addrs[1];
    let mine = format!("Origin: http://{admin}\r\n");
    for (fields, status) in [
        ("", 200),
        ("Host: localhost:7480\r\n", 200),
        ("Host: panel.example\r\n", 200),
        (&mine, 200),
        ("Host: evil.example\r\n", 403),
        ("Host: 127.0.0.1.evil.example:7480\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        for path in ["/", "/metrics", "/stats.json", "/config", "/health"] {
            let answer = ask(admin, &format!("GET {path}"), fields, "");
            assert_eq!(answer.status, status, "{path} {fields}");
            assert!(
                answer
                    .head
                    .contains("content-security-policy: default-src 'none'")
            );
            assert!(
                !answer.head.contains("access-control-allow"),
                "{}",
                answer.head
            );
        }
    }
    assert_eq!(
        ask(admin, "POST /log", "", "debug").status,
        403,
        "without a token nothing changes"
    );
    assert_eq!(get(admin, "/nothing").status, 404);
    assert_eq!(ask(admin, "DELETE /metrics", "", "").status, 403);
}

#[test]
fn with_a_token_others_are_turned_away_and_logging_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "s3cret\n").unwrap();
    let token = ["--admin-token-file", file.to_str().unwrap()];
    let own = ["echo", "--listen", "echo=0"];
    let (server, addrs) = serve(&[&own[..], &ADMIN, &token].concat());
    let admin = addrs[1];
    let bearer = "Authorization: Bearer s3cret\r\n";
    // me:s3cret
    let basic = "Authorization: Basic bWU6czNjcmV0\r\n";
    for (request, fields, status) in [
        ("GET /health", "", 200),
        ("GET /ready", "", 200),
        ("GET /metrics", "", 401),
        ("GET /", "", 401),
        ("GET /config", "Authorization: Bearer s3cre\r\n", 401),
        ("GET /config", "Authorization: Bearer s3crett\r\n", 401),
        ("GET /config", bearer, 200),
        ("GET /", basic, 200),
        ("POST /log", basic, 403),
        ("POST /log", "", 401),
        ("POST /health", "", 401),
    ] {
        let answer = ask(admin, request, fields, "");
        assert_eq!(answer.status, status, "{request} {fields}");
        let asks = answer.head.contains("www-authenticate: basic");
        assert_eq!(asks, status == 401, "{request}");
    }
    let config = ask(admin, "GET /config", bearer, "").body;
    assert!(
        config.contains("\"admin-token\": true") && !config.contains("s3cret"),
        "{config}"
    );
    assert_eq!(ask(admin, "POST /log", bearer, "[").status, 400);
    let answer = ask(admin, "POST /log", bearer, "tidewire=trace");
    assert_eq!((answer.status, answer.body.trim()), (200, "tidewire=trace"));
    echo(addrs[0], 1);
    server.signal(Signal::TERM);
    let said = stderr(&server.end());
    assert!(said.contains("level=trace"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn a_default_that_is_taken_is_left_out_and_an_address_asked_for_must_be_there() {
    // If another holds it already, so much the better.
    let _taken = TcpListener::bind("127.0.0.1:7480");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command
        .args(["serve", "echo", "--listen", "echo=0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Running::from(command.spawn().unwrap());
    echo(addr(&server.line()), 1);
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(
        said.contains("7480") && said.contains("--admin ADDR"),
        "{said}"
    );
    for (place, status, word) in [
        ("127.0.0.1:7480", 1, "127.0.0.1:7480"),
        ("0.0.0.0:0", 2, "--admin-token-file"),
        ("nowhere", 2, "--admin"),
    ] {
        let output = run(&["serve", "echo", "--listen", "echo=0", "--admin", place]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{place}: {said}");
        assert!(said.contains(word), "{place}: {said}");
    }
}

/// A store whose recovery takes long enough to be seen: if it was not, it is made larger and the server killed once more.
#[test]
fn a_recovering_server_says_so_until_it_serves() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().to_str().unwrap();
    // The address has to be known before the server says it.
    let admin = {
        let free = TcpListener::bind("127.0.0.91:0").unwrap();
        free.local_addr().unwrap()
    };
    let at = admin.to_string();
    let args = ["kv", "--listen", "kv/resp=0", "--durability", "sync"];
    let more = ["--data", dir, "--admin", &at];
    let args = [&args[..], &more].concat();
    let (mut server, mut addrs) = serve(&args);
    let mut keys = 0..50_000;
    for _ in 0..6 {
        let mut client = Client::connect(addrs[0]).unwrap();
        for n in keys.clone().step_by(1000) {
            let sets: Vec<_> = (n..n + 1000).map(|n| format!("SET key:{n} {n}")).collect();
            client.send(&sets).unwrap();
            sets.iter().for_each(|_| drop(client.reply().unwrap()));
        }
        server.signal(Signal::KILL);
        server.end();
        let seen = thread::spawn(move || {
            eventually("the admin listener is there", || {
                TcpStream::connect(admin).is_ok()
            });
            let first = get(admin, "/ready");
            let ready = value(&get(admin, "/metrics").body, "tidewire_ready", "");
            (first.status == 503 && ready == 0.0).then_some(first.body)
        });
        (server, addrs) = serve(&args);
        assert_eq!(get(admin, "/ready").status, 200);
        let mut client = Client::connect(addrs[0]).unwrap();
        let last = client.ask(&format!("GET key:{}", keys.end - 1)).unwrap();
        assert_eq!(text(last), (keys.end - 1).to_string());
        if let Some(body) = seen.join().unwrap() {
            assert!(body.starts_with("recovering"), "{body}");
            server.signal(Signal::TERM);
            assert_eq!(server.end().status.code(), Some(0));
            return;
        }
        keys = keys.end..3 * keys.end;
    }
    panic!("recovering from {} keys was not seen", keys.start);
}

#[test]
fn a_draining_server_says_so_and_goes_on_answering() {
    let own = [
        "echo",
        "--listen",
        "echo=0",
        "--linger",
        "1h",
        "--stop-deadline",
        "1h",
    ];
    let (server, addrs) = serve(&[&own[..], &ADMIN].concat());
    assert_eq!(get(addrs[1], "/ready").body, "serving\n");
    // The client does not close its side, so the server waits for it.
    let mut client = TcpStream::connect(addrs[0]).unwrap();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    server.signal(Signal::TERM);
    eventually("it says that it drains", || {
        let answer = get(addrs[1], "/ready");
        answer.status == 503 && answer.body == "draining\n"
    });
    assert_eq!(get(addrs[1], "/health").status, 200);
    assert_eq!(
        value(&get(addrs[1], "/metrics").body, "tidewire_ready", ""),
        0.0
    );
    drop(client);
    assert_eq!(server.end().status.code(), Some(0));
}

/// Slow clients hold all the connections that they can; others are served all the same.
#[test]
fn slow_clients_do_not_keep_others_from_asking() {
    let (_server, addrs) = serve(&[&["echo", "--listen", "echo=0"], &ADMIN[..]].concat());
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = TcpStream::connect(addrs[1]).unwrap();
            let request = format!("GET /uplot.js HTTP/1.1\r\nHost: {}\r\n\r\n", addrs[1]);
            // Many answers that are not read, and the beginning of one more question.
            for _ in 0..20 {
                let _ = socket.write_all(request.as_bytes());
            }
            let _ = socket.write_all(b"GET /met");
            socket
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(get(addrs[1], "/metrics").status, 200);
    }
    echo(addrs[0], 10);
    drop(slow);
}

#[test]
fn info_prints_what_runs_and_says_why_it_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "s3cret\n").unwrap();
    let token = ["--admin-token-file", file.to_str().unwrap()];
    let own = [
        "echo",
        "kv/resp",
        "--listen",
        "echo=0",
        "--listen",
        "kv/resp=0",
    ];
    let (_server, addrs) = serve(&[&own[..], &ADMIN, &token].concat());
    echo(addrs[0], 1);
    let at = addrs[2].to_string();
    let asked = run(&[&["info", "--admin", &at], &token[..]].concat());
    let (shown, said) = (common::stdout(&asked), stderr(&asked));
    assert!(asked.status.success(), "{said}");
    for text in [
        "serving",
        "echo",
        "loop-0",
        "hit rate",
        &addrs[0].to_string(),
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("kv/binary"), "nobody serves it: {shown}");
    let json = run(&[&["info", "--json", "--admin", &at], &token[..]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["state"], "serving");
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (place, word) in [(at, "--admin-token-file"), (nobody.to_string(), "--admin")] {
        let asked = run(&["info", "--admin", &place]);
        assert_eq!(asked.status.code(), Some(1), "{place}");
        assert!(stderr(&asked).contains(word), "{}", stderr(&asked));
    }
    let top = run(&["top", "--admin", &addrs[2].to_string()]);
    assert!(stderr(&top).contains("tidewire info"), "{}", stderr(&top));
}

/// The service of Redis's protocol is on the loops of every store, where keys expire.
#[test]
fn info_leaves_out_what_listens_nowhere() {
    let own = ["kv/binary", "--listen", "kv/binary=0"];
    let (_server, addrs) = serve(&[&own[..], &ADMIN].concat());
    let asked = run(&["info", "--admin", &addrs[1].to_string()]);
    let shown = common::stdout(&asked);
    assert!(shown.contains("kv/binary"), "{shown}");
    assert!(!shown.contains("kv/resp"), "nobody serves it: {shown}");
}

/// What is set is shown, and of secrets only that there are some.
#[test]
fn the_settings_in_force_are_shown_without_their_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    fs::write(&password, "hunter2\n").unwrap();
    let own = [
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--first-byte",
        "7s",
        "--whole-request",
        "0",
        "--write-stall",
        "1500ms",
        "--lifetime",
        "1h",
        "--lifetime",
        "kv=2h",
        "--durability",
        "interval:2s",
        "--data",
        dir.path().to_str().unwrap(),
        "--kv-password-file",
        password.to_str().unwrap(),
    ];
    let (_server, addrs) = serve(&[&own[..], &ADMIN].concat());
    let text = get(addrs[1], "/config").body;
    assert!(!text.contains("hunter2"), "{text}");
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, expected) in [
        ("/limits/kv~1resp/first-byte", serde_json::json!(7.0)),
        ("/limits/kv~1resp/whole-request", serde_json::json!(0.0)),
        ("/limits/kv~1resp/write-stall", serde_json::json!(1.5)),
        ("/limits/kv~1resp/lifetime", serde_json::json!(7200.0)),
        ("/kv/password", serde_json::json!(true)),
        ("/kv/durability", serde_json::json!("interval:2s")),
    ] {
        assert_eq!(config.pointer(name), Some(&expected), "{name}: {text}");
    }
}

/// What is not set is shown as it is in force, and what was any is shown as it came out.
#[test]
fn the_settings_in_force_are_shown_by_service() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, lines) = serve_everything(dir.path().to_str().unwrap());
    let text = get(addr(lines.last().unwrap()), "/config").body;
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let engine = lines[0].split_once("engine=").unwrap().1;
    assert_ne!(engine, "auto");
    assert_eq!(config["engine"], engine, "{text}");
    assert_eq!(config["engine-asked"], "auto");
    let admin = addr(lines.last().unwrap()).to_string();
    assert_eq!(config["admin"], admin.as_str());
    for (line, listen) in lines.iter().zip(config["listen"].as_array().unwrap()) {
        assert_eq!(listen["at"], addr(line).to_string().as_str(), "{text}");
    }
    // As many as there are descriptors for, less what is held back: docs/howto/limits.md, Admission.
    let by_descriptors = config["admission"]["max-connections"].as_u64().unwrap();
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    assert!(
        by_descriptors < descriptors.unwrap_or(1_000_001).min(1_000_001),
        "{text}"
    );
    // Service, idle, write-stall: docs/howto/limits.md, Deadlines.
    for (service, idle, write_stall) in [
        ("echo", 60.0, 60.0),
        ("ack/sync", 5.0, 60.0),
        ("ingest", 0.0, 0.0),
        ("kv/resp", 60.0, 60.0),
        ("kv/binary", 0.0, 60.0),
        ("http", 60.0, 60.0),
        ("discard", 60.0, 60.0),
    ] {
        let limits = &config["limits"][service];
        assert_eq!(limits["idle"], idle, "{service}: {text}");
        assert_eq!(limits["write-stall"], write_stall, "{service}: {text}");
        let most = limits["max-connections"].as_u64().unwrap();
        assert_eq!(most, by_descriptors, "{service}: {text}");
        for (name, expected) in [("first-byte", 0.0), ("lifetime", 0.0), ("linger", 5.0)] {
            assert_eq!(limits[name], expected, "{service}: {name}: {text}");
        }
    }
    for (name, expected) in [
        ("/limits/echo/whole-request", 60.0),
        ("/limits/http/whole-request/head", 10.0),
        ("/limits/http/whole-request/body", 20.0),
        ("/limits/ingest/hello", 5.0),
        ("/handshake/tls", 10.0),
        ("/handshake/proxy", 5.0),
        ("/tcp-keepalive", 300.0),
        ("/kv/timeout", 0.0),
    ] {
        let shown = config.pointer(name).and_then(serde_json::Value::as_f64);
        assert_eq!(shown, Some(expected), "{name}: {text}");
    }
}

#[test]
fn deadlines_and_a_durable_store_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let own = [
        "echo",
        "kv/resp",
        "--listen",
        "echo=0",
        "--listen",
        "kv/resp=0",
        "--first-byte",
        "50ms",
        "--durability",
        "sync",
        "--data",
        dir.path().to_str().unwrap(),
    ];
    let (_server, addrs) = serve(&[&own[..], &ADMIN].concat());
    let admin = addrs[2];
    let mut silent = TcpStream::connect(addrs[0]).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    // Cut, however the peer is told.
    let _ = silent.read(&mut [0]);
    let mut redis = TcpStream::connect(addrs[1]).unwrap();
    redis.set_read_timeout(Some(PATIENCE)).unwrap();
    redis.write_all(b"SET a 1\r\n").unwrap();
    redis.read_exact(&mut [0; 5]).unwrap();
    eventually("the one that said nothing is counted", || {
        let page = get(admin, "/metrics").body;
        let late = "service=\"echo\",reason=\"first_byte_late\"";
        value(&page, "tidewire_connections_closed_total", late) == 1.0
    });
    let page = get(admin, "/metrics").body;
    let level = value(&page, "tidewire_kv_durability_info", "level=\"sync\"");
    assert_eq!(level, 1.0, "{page}");
    assert!(
        page.contains("\ntidewire_kv_uncommitted_changes 0\n"),
        "its reply has come: {page}"
    );
    let asked = run(&["info", "--admin", &admin.to_string()]);
    let shown = common::stdout(&asked);
    for text in ["closed: first_byte_late", "sync, 0 changes uncommitted"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("ingested"), "nothing ingests here: {shown}");
}

/// Changes of keys are no backlog of messages, nor the other way round.
#[test]
fn the_log_of_messages_and_that_of_keys_are_shown_apart() {
    let dir = tempfile::tempdir().unwrap();
    let own = [
        "kv/resp",
        "ingest",
        "--listen",
        "kv/resp=0",
        "--listen",
        "ingest=0",
        "--durability",
        "sync",
        "--segment",
        "8MiB",
        "--data",
        dir.path().to_str().unwrap(),
    ];
    let (_server, addrs) = serve(&[&own[..], &ADMIN].concat());
    let mut redis = TcpStream::connect(addrs[0]).unwrap();
    redis.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..5 {
        redis.write_all(b"SET a 1\r\n").unwrap();
        redis.read_exact(&mut [0; 5]).unwrap();
    }
    let asked = run(&["info", "--admin", &addrs[2].to_string()]);
    let shown = common::stdout(&asked);
    let (_, logs) = shown.split_once("\nlog of messages\n").expect(&shown);
    let (messages, keys) = logs.split_once("\nlog of keys\n").expect(&shown);
    let (keys, _) = keys.split_once("\n\n").expect(&shown);
    let committed = |of: &str| {
        let mut rows = of.lines().map(str::split_whitespace);
        let row = rows.find(|row| row.clone().next() == Some("batches"));
        let number = row.expect(&shown).nth(1).expect(&shown);
        number.parse::<u64>().expect(&shown)
    };
    assert_eq!(committed(messages), 0, "{shown}");
    assert!(committed(keys) > 0, "{shown}");
    assert!(
        messages.contains("taking messages") && keys.contains("taking changes"),
        "{shown}"
    );
}

/// Beside the default control socket, too.
#[test]
fn the_control_socket_is_among_the_settings_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let asked = asked.to_str().unwrap();
    let default = dir.path().join("tidewire.sock");
    let places: [(&[&str], Option<&str>); 3] = [
        (&[], default.to_str()),
        (&["--control", asked], Some(asked)),
        (&["--control", "off"], None),
    ];
    for (flags, place) in places {
        let child = Command::new(env!("CARGO_BIN_EXE_tidewire"))
            .args(["serve", "echo", "--listen", "echo=0", "--admin", "0"])
            .args(flags)
            .env_remove("RUNTIME_DIRECTORY")
            .env("XDG_RUNTIME_DIR", dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Running::from(child);
        let lines = [server.line(), server.line()];
        let text = get(addr(&lines[1]), "/config").body;
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["control"].as_str(), place, "{flags:?}: {text}");
    }
}

#[test]
fn what_is_no_question_does_no_harm() {
    let (_server, addrs) = serve(&[&["echo", "--listen", "echo=0"], &ADMIN[..]].concat());
    let admin = addrs[1];
    let head = ask(admin, "HEAD /metrics", "", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(ask(admin, "OPTIONS /metrics", "", "").status, 403);
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /log HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        &[b'A'; 200_000],
    ] {
        let mut socket = TcpStream::connect(admin).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.write_all(garbage);
        let mut answer = Vec::new();
        // Perhaps a reset, where it had more to read.
        let _ = socket.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.1 5"),
            "{text}"
        );
    }
    assert_eq!(get(admin, "/ready").status, 200);
}

/// 256 connections that are kept, each with a question now and then that needs no token.
#[test]
fn a_peer_with_all_places_keeps_no_other_from_asking() {
    let (_server, addrs) = serve(&[&["echo", "--listen", "echo=0"], &ADMIN[..]].concat());
    let admin = addrs[1];
    let health = format!("GET /health HTTP/1.1\r\nHost: {admin}\r\n\r\n");
    let mut held: Vec<TcpStream> = (0..256)
        .map(|_| {
            let mut socket = TcpStream::connect(admin).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.write_all(health.as_bytes()).unwrap();
            assert_ne!(socket.read(&mut [0; 1024]).unwrap(), 0);
            socket
        })
        .collect();
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(get(admin, path).status, 200, "{path}");
    }
    let page = get(admin, "/metrics").body;
    let closed = "tidewire_admin_connections_closed_by_protocol_total";
    let made_room = value(&page, closed, "others needed the place");
    assert!(made_room >= 1.0, "{page}");
    let refused = value(&page, "tidewire_admin_connections_refused_total", "");
    assert_eq!(refused, 0.0, "{page}");
    // The first has been quiet for longest, the last for the shortest time.
    assert!(matches!(held[0].read(&mut [0]), Err(_) | Ok(0)));
    let last = held.last_mut().unwrap();
    last.write_all(health.as_bytes()).unwrap();
    assert_ne!(last.read(&mut [0; 1024]).unwrap(), 0);
}
