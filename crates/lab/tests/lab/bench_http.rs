//! `bench http` and `serve http`: loads of every shape are answered, and a wrong reply is found.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{engines, run, server, stderr, stdout};

/// Words of a command line.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn loads_of_every_shape_are_answered() {
    for engine in engines() {
        for load in [
            "--connections 5 --count 1000",
            "--connections 5 --count 1000 --pipeline 16 --path /bytes/777 --length 777",
            "--connections 5 --count 200 --close",
            "--connections 5 --count 300 --rate 5000",
            "--connections 2 --count 20 --method POST --path /echo --body 300000 --echoes",
            "--connections 2 --count 20 --method PUT --path /echo --body 30000 --chunked 999 --echoes",
            "--connections 2 --count 100 --method HEAD --path /bytes/1000",
            "--connections 2 --count 100 --path /none --status 404 --header Accept:x",
            "--connections 3 --duration 300ms --warmup 100ms --close --path /bytes/10",
        ] {
            let output = run(&words(&format!("bench http --engine {engine} {load}")));
            let (out, err) = (stdout(&output), stderr(&output));
            // Whether this machine was quiet enough to believe it is not what is tested.
            let done = matches!(output.status.code(), Some(0 | 4));
            assert!(done, "{load}\n{out}\n{err}");
            assert!(out.contains("requests/s"), "{load}\n{out}");
        }
    }
}

#[test]
fn a_wrong_reply_has_status_2_and_is_named() {
    let wrong = |reply: &'static str, words_of_it: &str| {
        let addr = server(move |mut client: TcpStream| {
            let mut asked = [0; 4096];
            while client.read(&mut asked).is_ok_and(|n| n > 0) {
                if client.write_all(reply.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let output = run(&words(&format!(
            "bench http --addr {addr} --count 10 --length 2"
        )));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{reply}: {said}");
        assert!(said.contains(words_of_it), "{said}");
    };
    wrong(
        "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno",
        "status 500",
    );
    wrong(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes",
        "3 bytes instead of 2",
    );
    // A body without a length ends with the connection, and this one goes on.
    wrong("HTTP/1.1 200 OK\r\n\r\n", "nothing moved");
    wrong(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
        "were not asked for",
    );
}

#[test]
fn words_that_belong_to_nothing_are_usage() {
    let output = run(&words("bench http --path /a b"));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
