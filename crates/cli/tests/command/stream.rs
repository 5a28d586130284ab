//! `tidewire stream` against a running server, and which tokens may use it.

use crate::common;
use crate::common::durable as with_log;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidewire_ingest::native::Token;

use crate::common::durable::{Place, Server, assert_code, lines};
use crate::common::{PATIENCE, run, stderr, stdout};

fn stream(server: &Server, args: &[&str]) -> std::process::Output {
    let (command, rest) = args.split_first().unwrap();
    run(&[&["stream", command, "--to", &server.to], rest].concat())
}

fn done(server: &Server, args: &[&str]) -> String {
    let output = stream(server, args);
    assert_code(&output, 0);
    stdout(&output)
}

#[test]
fn streams_are_administered_and_a_restart_keeps_it() {
    let place = Place::new();
    let server = Server::start(&place);
    done(
        &server,
        &[
            "create",
            "logs",
            "--retain-age",
            "7d",
            "--compression",
            "zstd",
        ],
    );
    let again = stream(&server, &["create", "logs"]);
    assert_code(&again, 1);
    assert!(stderr(&again).contains("stream set"), "{}", stderr(&again));
    done(
        &server,
        &[
            "set",
            "logs",
            "--limit-bytes",
            "1GiB",
            "--retain-bytes",
            "512MiB",
        ],
    );
    assert_code(
        &server.send(&["--stream", "logs", "--producer", "p"], &lines(1000)),
        0,
    );
    assert_code(&server.send(&["--stream", "other"], &lines(10)), 0);
    server.read(&[
        "--stream", "logs", "--cursor", "c", "--count", "600", "--raw",
    ]);

    let listed = done(&server, &["list"]);
    let row = |name: &str| {
        let row = listed.lines().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let logs = row("logs");
    assert_eq!(logs[1..3], ["0", "1000"], "{listed}");
    assert_eq!(
        logs[4..11],
        ["512MiB,7d", "1GiB", "zstd", "1", "1", "0", "400"],
        "{listed}"
    );
    // Zstandard makes little of a thousand lines.
    let stored: u64 = logs[3].parse().unwrap();
    assert!(stored < 12_000, "{listed}");
    assert_eq!(row("other")[4..7], ["-", "-", "none"], "{listed}");
    let shown = done(&server, &["show", "logs"]);
    assert!(shown.contains("cursor     c at 600, 400 behind"), "{shown}");
    let json = done(&server, &["show", "logs", "--json"]);
    assert!(json.contains("\"retain_age_us\":604800000000"), "{json}");

    server.stop();
    let server = Server::start(&place);
    assert_eq!(done(&server, &["list"]), listed);
    assert_eq!(server.read(&["--stream", "logs", "--raw"]), lines(1000));

    let kept = stream(&server, &["delete", "logs"]);
    assert_code(&kept, 2);
    assert!(stderr(&kept).contains("1000 records"), "{}", stderr(&kept));
    done(&server, &["delete", "logs", "--yes"]);
    assert_code(&stream(&server, &["show", "logs"]), 1);
    let gone = run(&["read", "--to", &server.to, "--stream", "logs"]);
    assert_code(&gone, 1);
    server.stop();
    let server = Server::start(&place);
    let listed = done(&server, &["list"]);
    assert!(
        !listed.contains("logs") && listed.contains("other"),
        "{listed}"
    );
}

/// One record of another stream kept all segments, and nothing said which stream that was.
#[test]
fn a_stream_is_trimmed_and_what_it_pins_is_shown() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&["--stream", "idle"], "one\n"), 0);
    let many: String = (0..4000)
        .map(|n| format!("{n} {}\n", "x".repeat(10_000)))
        .collect();
    assert_code(&server.send(&["--stream", "busy"], &many), 0);
    let told = stream(&server, &["trim", "busy", "--before", "3990"]);
    assert_code(&told, 2);
    assert!(
        stderr(&told).contains("3990 positions"),
        "{}",
        stderr(&told)
    );
    let beyond = stream(&server, &["trim", "busy", "--before", "4001", "--yes"]);
    assert_code(&beyond, 1);
    let said = stderr(&beyond);
    assert!(
        said.contains("ends before position 4001: its next record has 4000"),
        "{said}"
    );
    // The request is not one of a later version.
    assert!(!said.contains("version"), "{said}");
    let told = stream(&server, &["trim", "busy", "--before", "4001"]);
    assert_code(&told, 1);
    assert!(stderr(&told).contains("ends before"), "{}", stderr(&told));
    let told = stream(&server, &["trim", "busy", "--before", "3990", "--yes"]);
    assert_code(&told, 0);
    // Nothing is freed, and the command says for which stream.
    let said = stderr(&told);
    assert!(said.contains("bytes stay for idle:"), "{said}");
    let rest = server.read(&["--stream", "busy", "--from", "first", "--raw"]);
    assert_eq!(rest.lines().count(), 10);
    let shown = |name: &str| -> (u64, u64) {
        let json = done(&server, &["show", name, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let number = |key: &str| json[key].as_u64().unwrap();
        (number("bytes"), number("pins"))
    };
    let ((idle, pins), (_, none)) = (shown("idle"), shown("busy"));
    assert!(
        idle < 100 && pins > 16 << 20 && none == 0,
        "{idle} {pins} {none}"
    );
    let offline = run(&["log", "info", "--data", &place.path("data"), "--json"]);
    let offline: serde_json::Value = serde_json::from_str(&stdout(&offline)).unwrap();
    let text = offline.to_string();
    assert!(
        text.contains(&format!("\"bytes\":{idle},")) && text.contains(&format!("\"pins\":{pins}")),
        "{text}"
    );
    done(&server, &["trim", "idle", "--before", "1", "--yes"]);
    eventually("the segments are removed", || {
        let segments = fs::read_dir(place.path("data")).unwrap();
        let segments = segments.filter(|it| {
            it.as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|it| it == "seg")
        });
        segments.count() < 3
    });
    server.stop();
    let server = Server::start(&place);
    assert_eq!(
        server.read(&["--stream", "busy", "--from", "first", "--raw"]),
        rest
    );
    server.stop();
}

#[test]
fn a_cursor_is_deleted_and_stays_so() {
    let place = Place::new();
    let server = Server::start(&place);
    assert_code(&server.send(&[], &lines(10)), 0);
    for (cursor, count) in [("c", "4"), ("d", "7")] {
        server.read(&["--cursor", cursor, "--count", count, "--raw"]);
    }
    let lag = |server: &Server| {
        let listed = done(server, &["list"]);
        let row = listed.lines().find(|line| line.starts_with("default"));
        let row = row.unwrap().split_whitespace().collect::<Vec<_>>();
        (row[8].to_owned(), row[10].to_owned())
    };
    assert_eq!(lag(&server), ("2".into(), "6".into()));
    done(&server, &["delete-cursor", "default", "c"]);
    assert_eq!(lag(&server), ("1".into(), "3".into()));
    for (stream_name, cursor, says) in [
        ("default", "c", "no such cursor"),
        ("typo", "c", "no such stream"),
    ] {
        let refused = stream(&server, &["delete-cursor", stream_name, cursor]);
        assert_code(&refused, 1);
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
    }
    // The settings hold after kill -9, and after a checkpoint that was written since.
    server.kill();
    let server = Server::start(&place);
    assert_eq!(lag(&server), ("1".into(), "3".into()));
    server.stop();
    let server = Server::start(&place);
    assert_eq!(server.read(&["--cursor", "c", "--raw"]), lines(10));
    assert_eq!(lag(&server), ("2".into(), "3".into()));
}

#[test]
fn a_stream_at_its_limit_is_told_and_counted() {
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--admin", "127.0.0.1:0"]);
    done(&server, &["create", "logs", "--limit-bytes", "1000"]);
    let sent = server.send(
        &["--stream", "logs", "--producer", "p", "--retry", "1s"],
        &lines(1000),
    );
    assert_code(&sent, 2);
    let said = stderr(&sent);
    assert!(
        said.contains("waiting") && said.contains("stream full"),
        "{said}"
    );
    // No producer is refused any more.
    done(&server, &["set", "logs", "--limit-bytes", "none"]);
    let again = server.send(&["--stream", "logs", "--producer", "q"], &lines(5));
    assert_code(&again, 0);
    let said = stderr(&server.stop());
    assert!(
        said.contains("a stream has reached its limit of bytes") && said.contains("refusals="),
        "{said}"
    );
}

/// Which client was refused, why, and whose token it showed.
#[test]
fn who_is_refused_stands_in_the_log() {
    let place = Place::new();
    // The hash of "open sesame".
    let config = place.file(
        "tidewire.toml",
        "[[ingest-tokens]]\nname = 'cave'\nrights = ['write', 'admin']\n\
         sha256 = '41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb'\n",
    );
    let server = Server::with(&place, "ingest=0", &["--config", &config]);
    let token = ["--token-file", &*place.file("secret", "open sesame\n")];
    let wrong = ["--token-file", &*place.file("wrong", "open barley\n")];
    done(
        &server,
        &[
            "create",
            "logs",
            "--limit-bytes",
            "1000",
            token[0],
            token[1],
        ],
    );
    let stream = ["--stream", "logs", "--producer", "p", "--retry", "0"];
    assert_code(
        &server.send(&[&stream[..], &token].concat(), &lines(1000)),
        2,
    );
    assert_code(&server.send(&[&stream[..], &wrong].concat(), &lines(1)), 1);
    let said = stderr(&server.stop());
    let line = |words: &[&str]| {
        let mut lines = said.lines().filter(|line| line.contains("refused"));
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    let common = ["level=warn", "127.0.0.1:"];
    assert!(
        line(&[&common[..], &["stream full", "cave"]].concat()),
        "{said}"
    );
    assert!(line(&[&common[..], &["unauthorised"]].concat()), "{said}");
    assert!(
        !said.contains("sesame") && !said.contains("barley"),
        "{said}"
    );
}

/// Everything that speaks to a server finds it at a Unix socket too, with a path or a name.
#[test]
fn unix_sockets_are_servers_like_others() {
    let place = Place::new();
    let (path, name) = (
        place.path("socket"),
        format!("@tidewire-test-{}", std::process::id()),
    );
    for at in [format!("unix:{path}"), format!("unix:{name}")] {
        let mut running = common::Running::from(with_log::spawn(common::tidewire(&[
            "serve",
            "ingest",
            "--listen",
            &format!("ingest={at}"),
            "--data",
            &place.path("data"),
            "--admin",
            "off",
        ])));
        let line = running.line();
        assert!(line.contains(&at), "{line} {}", stderr(&running.end()));
        let server = Server { running, to: at };
        let stream = ["--stream", "s"];
        assert_code(&server.send(&stream, &lines(3)), 0);
        assert!(
            server
                .read(&[&stream[..], &["--raw"]].concat())
                .ends_with(&lines(3))
        );
        assert!(done(&server, &["list"]).contains("s "));
        let file = place.file("log", lines(4));
        let state = place.path("state");
        let shipped = run(&[
            "ship", &file, "--to", &server.to, "--state", &state, "--once", "--stream", "shipped",
        ]);
        assert_code(&shipped, 0);
        server.stop();
    }
    let wrong = run(&["read", "--to", "unix:relative", "--retry", "0"]);
    assert_code(&wrong, 1);
    assert!(stderr(&wrong).contains("unix:/PATH"), "{}", stderr(&wrong));
    let nobody = run(&["read", "--to", &format!("unix:{path}"), "--retry", "0"]);
    assert_code(&nobody, 1);
}

#[test]
fn only_declared_streams_take_messages_if_that_is_said() {
    let place = Place::new();
    let server = Server::with(&place, "ingest=0", &["--streams", "declared"]);
    let refused = server.send(&["--stream", "new", "--retry", "0"], &lines(1));
    assert_code(&refused, 1);
    assert!(
        stderr(&refused).contains("no such stream"),
        "{}",
        stderr(&refused)
    );
    done(&server, &["create", "new"]);
    assert_code(&server.send(&["--stream", "new"], &lines(1)), 0);
}

/// Waits until something holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn tokens_have_rights_and_are_read_again_without_a_restart() {
    let place = Place::new();
    let sha = |secret: &str| {
        let hash = Token::new("", secret, &[]).sha256;
        hash.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let token = |name: &str, rights: &str| {
        format!(
            "[[ingest.tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\nstreams = [\"a\"]\nrights = [{rights}]\n",
            sha(name)
        )
    };
    let files = ["reader", "writer", "boss", "new"].map(|name| place.file(name, name));
    let [reader, writer, boss, new] = &files;
    let all = [
        token("reader", "\"read\""),
        token("writer", "\"write\""),
        token("boss", "\"admin\""),
    ];
    let config = place.file("config.toml", all.concat());
    let server = Server::with(&place, "ingest=0", &["--config", &config]);
    let code = |output: std::process::Output| output.status.code();
    let send = |file: &str, name: &str| {
        code(server.send(
            &["--stream", name, "--token-file", file, "--retry", "0"],
            "x\n",
        ))
    };
    let read = |file: &str, name: &str| {
        code(run(&[
            "read",
            "--to",
            &server.to,
            "--stream",
            name,
            "--token-file",
            file,
            "--retry",
            "0",
        ]))
    };
    let create =
        |file: &str, name: &str| code(stream(&server, &["create", name, "--token-file", file]));
    // The stream is made by the first of them that may.
    for (file, expected) in [(boss, [0, 1, 1]), (reader, [1, 1, 1]), (writer, [1, 0, 1])] {
        let got = [create(file, "a"), send(file, "a"), send(file, "b")];
        assert_eq!(got, expected.map(Some), "{file}");
    }
    assert_eq!(
        [read(reader, "a"), read(writer, "a"), read(boss, "a")],
        [0, 1, 1].map(Some)
    );
    assert_eq!([create(boss, "b"), send(new, "a")], [1, 1].map(Some));

    fs::write(
        &config,
        [token("boss", "\"admin\""), token("new", "\"write\"")].concat(),
    )
    .unwrap();
    server.running.signal(Signal::HUP);
    eventually("the new token is accepted", || send(new, "a") == Some(0));
    assert_eq!([send(writer, "a"), read(reader, "a")], [1, 1].map(Some));
}
