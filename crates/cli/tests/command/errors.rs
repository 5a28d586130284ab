//! Errors that misled: each says what failed, on what, why, and what to do.

use crate::common::durable::{Place, Server, assert_code, lines, send};
use crate::common::pki::Files;
use crate::common::{Running, addr, run, server, stderr};
use rustix::process::Signal;

/// Runs a command that must fail, and checks what it says.
fn says(args: &[&str], code: i32, words: &[&str]) {
    let output = run(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: no {word:?} in {said}");
    }
    assert!(!said.contains("(at "), "{args:?}: {said}");
}

/// A server of another protocol that waits for more after a hello, as Redis does.
#[test]
fn a_hello_without_an_answer_names_the_port() {
    let silent = server(|mut stream| {
        // Until the client has gone.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let to = silent.to_string();
    for args in [
        &["stream", "list", "--timeout", "100ms", "--to", &to][..],
        &["stream", "show", "s", "--timeout", "100ms", "--to", &to],
    ] {
        says(args, 1, &["no answer to the ingest hello", "7400", "--to"]);
    }
}

#[test]
fn plain_to_tls_names_the_flag() {
    let files = Files::new();
    let data = files.place.path().join("data");
    let mut args = vec!["serve", "ingest", "--listen", "ingest=0"];
    args.extend(["--data", data.to_str().unwrap()]);
    args.extend(files.serve());
    let mut serving = Running::start(&args);
    let to = addr(&serving.line()).to_string();
    let state = files.place.path().join("state");
    let input = files.place.path().join("input");
    std::fs::write(&input, "one\n").unwrap();
    let (state, input) = (state.to_str().unwrap(), input.to_str().unwrap());
    for args in [
        &["send", input, "--retry", "0", "--to", &to][..],
        &["read", "--retry", "0", "--to", &to],
        &["stream", "list", "--to", &to],
    ] {
        says(args, 1, &["TLS", "--tls-ca"]);
    }
    let ship = [
        "ship", "--once", "--retry", "0", "--state", state, input, "--to", &to,
    ];
    says(&ship, 2, &["before it answered the ingest hello", "TLS"]);
    serving.signal(Signal::TERM);
    assert_code(&serving.end(), 0);
}

#[test]
fn no_token_and_a_wrong_one_are_told_apart() {
    let place = Place::new();
    let (right, wrong) = (
        place.file("right", "open sesame\n"),
        place.file("wrong", "sesame\n"),
    );
    let server = Server::with(&place, "ingest=0", &["--ingest-token-file", &right]);
    for command in [&["read", "--retry", "0"][..], &["stream", "list"]] {
        let to = [command, &["--to", &server.to]].concat();
        says(&to, 1, &["unauthorised", "none was sent", "--token-file"]);
        let shown = [&to[..], &["--token-file", &wrong]].concat();
        says(
            &shown,
            1,
            &["unauthorised", "does not know the token", "--token-file"],
        );
    }
    assert!(stderr(&send(&server.to, &[], &lines(1))).contains("none was sent"));
    server.stop();
}

#[test]
fn a_stream_that_is_not_there_is_named_once() {
    let place = Place::new();
    let server = Server::start(&place);
    let args = ["stream", "delete-cursor", "typo", "c", "--to", &server.to];
    says(
        &args,
        1,
        &["there is no such stream: \"typo\"", "stream list"],
    );
    let said = stderr(&run(&args));
    assert_eq!(said.matches("no such stream").count(), 1, "{said}");
    server.stop();
}

#[test]
fn an_admin_listener_says_which_token_it_wants() {
    let place = Place::new();
    let (right, wrong) = (
        place.file("right", "open sesame\n"),
        place.file("wrong", "sesame\n"),
    );
    let mut serving = Running::start(&[
        "serve",
        "echo",
        "--listen",
        "echo=127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        &right,
    ]);
    serving.line();
    let admin = addr(&serving.line()).to_string();
    says(
        &["info", "--admin", &admin],
        1,
        &["none was sent", "--admin-token-file"],
    );
    let shown = ["info", "--admin", &admin, "--admin-token-file", &wrong];
    says(
        &shown,
        1,
        &["refused the token that was sent", "--admin-token-file"],
    );
    says(
        &["info", "--admin", "29593"],
        2,
        &["--admin 127.0.0.1:29593"],
    );
    serving.signal(Signal::TERM);
    serving.end();
}

#[test]
fn an_import_to_another_service_names_the_port() {
    let place = Place::new();
    let closing = server(drop);
    // An empty dump asks nothing of the server, so the client logs in first.
    let dump = place.file("dump.rdb", b"REDIS0011\xff\0\0\0\0\0\0\0\0");
    let password = place.file("password", "secret\n");
    let to = closing.to_string();
    let args = [
        "kv",
        "import",
        &dump,
        "--to",
        &to,
        "--password-file",
        &password,
    ];
    says(&args, 2, &[&to, "Redis protocol", "6380"]);
}

#[test]
fn shipping_says_which_file_is_not_there() {
    let place = Place::new();
    let server = Server::start(&place);
    let (missing, state) = (place.path("missing.log"), place.path("state"));
    let args = ["ship", &missing, "--to", &server.to, "--state", &state];
    let shipping = Running::start(&args);
    shipping.hear("no such file yet");
    shipping.signal(Signal::TERM);
    let output = shipping.end();
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(
        said.contains(&format!("there is no file {missing}")),
        "{said}"
    );
    assert!(!said.contains("0 messages acknowledged"), "{said}");
    server.stop();
}

#[test]
fn a_backup_takes_the_log_in_kv_and_an_empty_directory_is_named() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    let (empty, copy) = (place.path("empty"), place.path("copy"));
    let args = ["log", "backup", "--data", &empty, &copy];
    says(
        &args,
        1,
        &[&empty, "no segment", "--data must name the data directory"],
    );
}

/// The first attempt waited for half a minute, whatever --retry said, and `ship` never ended.
#[test]
fn a_server_that_takes_connections_and_says_nothing_is_given_up_in_time() {
    let silent = server(|mut stream| {
        // Until the client has gone.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let to = silent.to_string();
    let place = Place::new();
    let input = place.file("input", "one\n");
    let state = place.path("state");
    // Not of the 10 or 30 seconds that an attempt may take.
    let within = ["no answer to the ingest hello within ", "ms: is another"];
    for args in [
        &["send", &*input, "--retry", "300ms", "--to", &to][..],
        &["read", "--retry", "300ms", "--to", &to],
    ] {
        says(args, 1, &within);
    }
    let ship = ["ship", &*input, "--once", "--state", &state, "--to", &to];
    says(&[&ship[..], &["--retry", "300ms"]].concat(), 2, &within);
}
