//! Servers of which each reply is of a good kind, and that do not do the work.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::bench_lies::{command, serve_store, told};
use crate::common::{server, stderr, stdout, tidewire};
use crate::count::valgrind;
use serde_json::Value;

/// Lists of which only the lengths are kept, or not even these.
fn lists(keeps: bool) -> SocketAddr {
    let lengths = Arc::new(Mutex::new(HashMap::new()));
    server(move |socket| {
        let _ = serve_lists(socket, keeps.then_some(&*lengths));
    })
}

type Lengths = Mutex<HashMap<Vec<u8>, u64>>;

fn serve_lists(mut socket: TcpStream, lengths: Option<&Lengths>) -> std::io::Result<()> {
    let (mut bytes, mut more) = (Vec::new(), [0; 65_536]);
    loop {
        while let Some((words, n)) = command(&bytes) {
            bytes.drain(..n);
            let length = |more: u64| {
                let Some(lengths) = lengths else { return more };
                let mut all = lengths.lock().unwrap();
                let length = all.entry(words[1].clone()).or_default();
                *length += more;
                *length
            };
            let reply = match words[0].as_slice() {
                b"LPUSH" => format!(":{}\r\n", length(1)),
                _ if length(0) == 0 => "*0\r\n".to_owned(),
                _ => "*1\r\n$1\r\nx\r\n".to_owned(),
            };
            socket.write_all(reply.as_bytes())?;
        }
        match socket.read(&mut more)? {
            0 => return Ok(()),
            n => bytes.extend_from_slice(&more[..n]),
        }
    }
}

const PUSH: [&str; 7] = [
    "kv",
    "--keys",
    "20",
    "--command",
    "LPUSH l:{n} {value}",
    "--reply",
    "integer",
];
const RANGE: [&str; 9] = [
    "kv",
    "--keys",
    "20",
    "--fill-command",
    "LPUSH l:{n} {value}",
    "--command",
    "LRANGE l:{n} 0 0",
    "--reply",
    "array",
];

#[test]
fn lists_that_do_not_grow_and_arrays_without_elements_are_no_kept_lists() {
    let dir = tempfile::tempdir().unwrap();
    let reads = |load: &[&str], addr: SocketAddr, connections: &str| {
        let addr = addr.to_string();
        let more = [
            "--addr",
            &addr,
            "-c",
            connections,
            "--count",
            "2k",
            "--no-pin",
        ];
        let (code, said, json) = told(dir.path(), &[&["bench"], load, &more].concat());
        assert!(matches!(code, 0 | 4), "{said}");
        let reads = json.unwrap()["result"]["reads"].clone();
        let count = |of: &str| reads[of].as_u64().unwrap();
        (count("hits"), count("misses"), said)
    };
    for load in [&PUSH[..], &RANGE] {
        for connections in ["1", "4"] {
            let (hits, misses, said) = reads(load, lists(true), connections);
            assert!(hits > 1_500 && misses == 0, "{said}");
            let (hits, misses, said) = reads(load, lists(false), connections);
            assert!(hits == 0 && misses > 1_500, "{said}");
            assert!(!said.contains("verdict       trustworthy\n"), "{said}");
        }
    }
}

/// A page of so many bytes.
fn page(bytes: usize) -> SocketAddr {
    let body = "x".repeat(bytes);
    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n{body}");
    server(move |mut socket| {
        let mut bytes = Vec::new();
        let mut more = [0; 4096];
        while let Ok(n @ 1..) = socket.read(&mut more) {
            bytes.extend_from_slice(&more[..n]);
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                bytes.drain(..end + 4);
                if socket.write_all(reply.as_bytes()).is_err() {
                    return;
                }
            }
        }
    })
}

const OTHER_WORK: &str = "the two do not do the same work";

#[test]
fn pages_of_other_lengths_are_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let side = |addr: SocketAddr| format!("addr={addr},pid={pid}");
    let (a, b, equal) = (side(page(2_000)), side(page(20)), side(page(2_000)));
    let ab = |b: &str, more: &[&str]| {
        let args = [
            "bench", "ab", "http", "--no-pin", "--a", &a, "--b", b, "--rounds", "6", "--warmup",
            "1ms",
        ];
        told(dir.path(), &[&args, more].concat())
    };
    let turns = ["--round-time", "300ms"];
    let (code, said, json) = ab(&b, &turns);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("the replies of A have 2000 bytes of body, and those of B 20"),
        "{said}"
    );
    let doubts = json.unwrap()["result"]["doubts"].as_array().unwrap().len();
    assert_eq!(doubts, 1, "{said}");
    let (_, said, _) = ab(&equal, &turns);
    assert!(!said.contains(OTHER_WORK), "{said}");
    let duet = ["--duet", "--round-time", "500ms"];
    let (code, said, _) = ab(&b, &duet);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains(OTHER_WORK) && !said.contains("needs"),
        "{said}"
    );
}

#[test]
fn a_matrix_says_which_server_sends_another_page() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = [page(500), page(5)].map(|addr| addr.to_string());
    let text = format!(
        "title='t'\nrounds=6\nrun_time='200ms'\nwarm_up='1ms'\n\
         [[server]]\nname='one'\ncommand=['sleep','60']\naddr='{one}'\n\
         [[server]]\nname='other'\ncommand=['sleep','60']\naddr='{other}'\n\
         [[workload]]\nname='w'\nload='http --no-pin'\n"
    );
    let (suite, runs) = (dir.path().join("s.toml"), dir.path().join("runs"));
    std::fs::write(&suite, text).unwrap();
    let [suite, runs] = [&suite, &runs].map(|path| path.to_str().unwrap());
    let (code, said, json) = told(dir.path(), &["lab", suite, "--runs", runs]);
    assert_eq!(code, 4, "{said}");
    let lengths = "the replies of one have 500 bytes of body, and those of other 5";
    // Another process than the one that was started serves here, which is a doubt of its own.
    assert!(
        said.contains(lengths) || said.contains("another process serves"),
        "{said}"
    );
    let json: Value = json.unwrap();
    let server = &json["result"]["workloads"][0]["servers"][1];
    assert_eq!(server["medians"]["http_body_bytes"], 5.0, "{server}");
}

/// This program as a store, for the test below. Without the variable it is no server, and no test either.
#[test]
fn as_a_store() {
    let Ok(what) = std::env::var("TIDEWIRE_STORE") else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!(
        "\nlistening service=kv addr={}",
        listener.local_addr().unwrap()
    );
    for socket in listener.incoming() {
        let _ = serve_store(socket.unwrap(), what == "keeps");
    }
}

#[test]
fn a_store_that_forgets_is_not_said_to_need_fewer_instructions() {
    if !valgrind() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let side = |what: &str| {
        format!(
            "name={what},cmd=env TIDEWIRE_STORE={what} AT=127.0.0.1:0 {own} --exact bench_work::as_a_store --nocapture"
        )
    };
    let ab = |b: &str| {
        let args = [
            "bench",
            "ab",
            "kv",
            "--keys",
            "10",
            "--count-only",
            "--count-messages",
            "50",
            "--a",
            &side("keeps"),
            "--b",
            b,
        ];
        // However long that takes on a busy machine.
        let output = tidewire(&args).output().unwrap();
        (output.status.code(), stdout(&output) + &stderr(&output))
    };
    let (code, said) = ab(&side("forgets"));
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("0.0 % of the reads of A found nothing, and 100.0 % of those of B"),
        "{said}"
    );
    assert!(!said.contains("\ncounted "), "{said}");
    let (code, said) = ab(&side("keeps"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\ncounted "), "{said}");
}
