//! `bench` over TLS, and the servers that it refuses.

use std::io::Read;

use crate::common::pki::{Authority, Files};
use crate::common::{Running, addr, run, server, stderr, stdout};
use rustix::process::Signal;

#[test]
fn bench_speaks_it() {
    let files = Files::new();
    let own = files.serve().join(" ");
    for bench in [
        &["bench", "echo", "--connections", "20"][..],
        &["bench", "kv", "--connections", "5"],
        &["bench", "ack", "--protocol", "native", "--connections", "3"],
    ] {
        let more = [
            "--count",
            "3000",
            "--no-pin",
            "--tls-ca",
            files.authority(),
            "--server-args",
            &own,
        ];
        let output = run(&[bench, &more].concat());
        let said = stdout(&output) + &stderr(&output);
        // Whether this machine was quiet enough to believe it is not what is tested.
        let done = matches!(output.status.code(), Some(0 | 4));
        assert!(done, "{bench:?}: {said}");
        assert!(said.contains("over TLS"), "{said}");
    }
}

#[test]
fn a_server_with_another_name_is_refused_in_words() {
    let files = Files::new();
    let foreign = files.place.path().join("foreign.pem");
    std::fs::write(&foreign, Authority::new().pem()).unwrap();
    let serve = ["serve", "echo", "--listen", "echo=0"];
    let words: Vec<&str> = serve.into_iter().chain(files.serve()).collect();
    let mut server = Running::start(&words);
    let to = addr(&server.line()).to_string();
    let ca = files.authority();
    for (args, word) in [
        (
            &["--tls-ca", foreign.to_str().unwrap()][..],
            "the authority that signed the peer's certificate is not trusted",
        ),
        (
            &["--tls-ca", ca, "--tls-name", "other.example"],
            "for another name",
        ),
    ] {
        let bench = ["bench", "echo", "--addr", &to, "--duration", "1s"];
        let output = run(&[&bench[..], args].concat());
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.end().status.code(), Some(0));
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let at = server(|mut socket| {
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let output = run(&[
        "bench",
        "echo",
        "--tls",
        "--addr",
        &at.to_string(),
        "--duration",
        "1s",
    ]);
    let said = stderr(&output);
    assert!(
        !output.status.success() && said.contains("TLS handshake took too long"),
        "{said}"
    );
}
