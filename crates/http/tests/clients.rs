//! Real clients, as far as they are installed: curl, wrk, and the HTTP clients of three
//! languages (`clients/http`). What is skipped is said.
#![allow(clippy::disallowed_methods, reason = "the clients are programs")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tidewire::{Builder, EngineChoice, Listen, Running, StartError};
use tidewire_http::demo::Burns;
use tidewire_http::{Counters, Http, demo};
use tidewire_pool::Pool;

/// Runs `f` with the demo's address on every engine that works here; what each has counted.
fn on_every_engine(f: impl Fn(&str)) -> Vec<Counters> {
    let engines = [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ];
    let mut counted = Vec::new();
    for engine in engines {
        let app = Http::new(demo::router(Pool::inline(), Burns::ForEverybody));
        let mut builder = Builder::new();
        builder.engine(engine).loops(2);
        let id = builder.service_with(app.clone(), app.limits());
        builder.listen(id, Listen::at("127.0.0.1:0"));
        let running: Running = match builder.start() {
            Ok(running) => running,
            Err(e @ StartError::Engine { .. }) => {
                println!("skipped: {e}");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        f(&running.addrs()[0].to_string());
        running.stop(Duration::from_secs(30));
        counted.push(app.counters());
    }
    counted
}

/// Whether the program is there and answers.
fn is_there(program: &str, ask: &str) -> bool {
    let asked = Command::new(program)
        .arg(ask)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let there = asked.is_ok_and(|status| status.success() || program == "wrk");
    if !there {
        println!("skipped: there is no {program} here");
    }
    there
}

fn good(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../clients/http")
        .join(name)
}

/// Runs a program of `clients/http`.
fn check(program: &str, before: &[&str], name: &str) {
    on_every_engine(|addr| {
        let (host, port) = addr.rsplit_once(':').unwrap();
        let output = Command::new(program)
            .args(before)
            .arg(source(name))
            .args([host, port])
            .env("GOFLAGS", "-mod=mod")
            .output()
            .unwrap();
        assert_eq!(good(&output).trim(), "good");
    });
}

#[test]
fn python_http_client() {
    if is_there("python3", "--version") {
        check("python3", &[], "check.py");
    }
}

#[test]
fn node_fetch() {
    if is_there("node", "--version") {
        check("node", &[], "check.mjs");
    }
}

#[test]
fn go_net_http() {
    if is_there("go", "version") {
        check("go", &["run"], "check.go");
    }
}

#[test]
fn curl() {
    if !is_there("curl", "--version") {
        return;
    }
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n >> 5) as u8).collect();
    let file = std::env::temp_dir().join(format!("tidewire-http-{}", std::process::id()));
    std::fs::write(&file, &body).unwrap();
    let counted = on_every_engine(|addr| {
        let curl = |args: &[&str], path: &str| {
            let output = Command::new("curl")
                .args(["-sS", "--noproxy", "*", "--max-time", "60"])
                .args(args)
                .arg(format!("http://{addr}{path}"))
                .output()
                .unwrap();
            good(&output);
            output.stdout
        };
        let upload = file.display().to_string();
        assert_eq!(curl(&[], "/"), demo::HELLO.as_bytes());
        assert!(curl(&["-T", &upload], "/echo") == body);
        // curl waits for leave above a megabyte, and where it is told to.
        assert!(curl(&["-T", &upload, "-H", "Expect: 100-continue"], "/echo") == body);
        assert!(
            curl(
                &["-T", &upload, "-H", "Transfer-Encoding: chunked"],
                "/echo"
            ) == body
        );
        assert!(curl(&["-0", "-T", &upload], "/echo") == body);
        assert_eq!(curl(&["-0"], "/bytes/100").len(), 100);
        assert_eq!(curl(&[], "/bytes/[1-20]").len(), 210);
        let head = curl(&["-I"], "/bytes/77");
        assert!(String::from_utf8_lossy(&head).contains("content-length: 77"));
        let status = |path: &str| {
            let status = curl(&["-o", "/dev/null", "-w", "%{http_code}"], path);
            String::from_utf8(status).unwrap()
        };
        assert_eq!(
            (status("/none"), status("/bytes/x")),
            ("404".into(), "400".into())
        );
        let connections = curl(
            &["-o", "/dev/null", "-w", "%{num_connects} "],
            "/bytes/[1-5]",
        );
        assert_eq!(connections, b"1 0 0 0 0 ", "one connection for all");
    });
    std::fs::remove_file(&file).unwrap();
    assert!(counted.iter().all(|counters| counters.malformed == 0));
}

#[test]
fn wrk() {
    if !is_there("wrk", "--version") {
        return;
    }
    let pipelined = "init = function(args)\n  local r = {}\n  for i = 1, 16 do r[i] = wrk.format() end\n  \
                     req = table.concat(r)\nend\nrequest = function() return req end\n";
    let script = std::env::temp_dir().join(format!("tidewire-http-{}.lua", std::process::id()));
    std::fs::write(&script, pipelined).unwrap();
    let counted = on_every_engine(|addr| {
        for (path, script) in [("/", None), ("/bytes/3000", None), ("/", Some(&script))] {
            let mut wrk = Command::new("wrk");
            wrk.args(["-t1", "-c16", "-d1s", "--timeout", "30s"]);
            if let Some(script) = script {
                wrk.arg("-s").arg(script);
            }
            let mut child = wrk
                .arg(format!("http://{addr}{path}"))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = String::new();
            child
                .stdout
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            assert!(child.wait().unwrap().success(), "{said}");
            assert!(said.contains("Requests/sec"), "{said}");
            assert!(
                !said.contains("Socket errors") && !said.contains("Non-2xx"),
                "{said}"
            );
        }
    });
    std::fs::remove_file(&script).unwrap();
    for counters in counted {
        assert_eq!(counters.requests, counters.replies_2xx, "{counters}");
    }
}
