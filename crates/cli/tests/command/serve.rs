//! `tidewire serve` as its users meet it: what it prints, how it ends, what it refuses.

use crate::common;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Running, addr, engines, run, stderr, stdout};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::process::{Pid, Signal};

fn connect(line: &str) -> TcpStream {
    let socket = TcpStream::connect(addr(line)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn echoes(line: &str) -> TcpStream {
    let mut socket = connect(line);
    socket.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    socket.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    socket
}

#[test]
fn every_engine_announces_serves_and_stops() {
    for engine in engines() {
        let mut server = Running::start(&[
            "serve",
            "echo",
            "--engine",
            engine,
            "--listen",
            "echo=127.0.0.1:0",
            "--listen",
            "discard=0",
            "--listen",
            "ack/request-reply=0",
            "--listen",
            "ack/sync=0",
        ]);
        let lines: Vec<String> = (0..4).map(|_| server.line()).collect();
        let shown = |what: &str, line: &str| {
            let port = addr(line).port();
            assert_ne!(port, 0);
            assert_eq!(
                line,
                format!("listening {what} addr=127.0.0.1:{port} engine={engine}")
            );
        };
        shown("service=echo", &lines[0]);
        shown("service=discard", &lines[1]);
        shown("service=ack mode=request-reply", &lines[2]);
        shown("service=ack mode=sync", &lines[3]);

        drop(echoes(&lines[0]));
        let mut client = connect(&lines[2]);
        client.write_all(b"message1\0\0\0\x05Hello").unwrap();
        let mut ack = [0; 8];
        client.read_exact(&mut ack).unwrap();
        assert_eq!(&ack, b"message1");
        drop(client);

        server.signal(Signal::TERM);
        let output = server.end();
        let log = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{log}");
        assert!(
            log.contains(&format!("engine={engine}")) && log.contains("reason="),
            "{log}"
        );
        assert!(
            log.contains("stopped") && log.contains("accepted=2"),
            "{log}"
        );
        assert!(
            log.contains("mode=request-reply") && log.contains("messages=1"),
            "{log}"
        );
    }
}

/// A full disk under the file that stderr goes to once ended the server in a panic.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let mut command = common::tidewire(&["serve", "echo", "--listen", "echo=127.0.0.1:0"]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    command
        .stdout(std::process::Stdio::piped())
        .stderr(full.unwrap());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    drop(echoes(line.trim_end()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The command once ended in a panic, with 101, which says nothing of why it failed.
#[test]
fn a_failure_that_cannot_be_told_has_its_status_all_the_same() {
    for (args, status) in [
        (&["serve", "echo", "--workers", "0"][..], 2),
        (&["serve", "gopher"], 2),
        (&["send", "--to", "127.0.0.1:1", "--retry", "0"], 1),
        (&["log", "info", "--data", "/nowhere/at/all"], 1),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = common::tidewire(args);
        let closed = command.stderr(full.unwrap()).status().unwrap();
        assert_eq!(closed.code(), Some(status), "{args:?}");
    }
}

/// Stderr is a pipe that is not read: lines are dropped, connections are not.
#[test]
fn a_log_that_is_not_read_holds_no_client_up() {
    for engine in common::engines() {
        let args = ["serve", "echo", "--listen", "echo=0", "--log", "trace"];
        let mut command = common::tidewire(&[&args[..], &["--engine", engine]].concat());
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let unread = child.stderr.take();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        // A pipe holds 64 KiB; each of these is a line of a hundred bytes and more.
        for _ in 0..1500 {
            drop(echoes(line.trim_end()));
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{engine}");
        drop(unread);
    }
}

#[test]
fn a_second_signal_ends_a_stop_that_would_take_for_ever() {
    let mut server = Running::start(&[
        "serve",
        "echo",
        "--listen",
        "echo=0",
        "--engine",
        "epoll",
        "--linger",
        "1h",
        "--stop-deadline",
        "1h",
    ]);
    let line = server.line();
    // The client is connected, and has said nothing: the stop waits for it.
    let _silent = TcpStream::connect(addr(&line)).unwrap();
    drop(echoes(&line));
    server.signal(Signal::INT);
    // When the listener is gone, the first signal has been seen.
    let begin = Instant::now();
    while TcpStream::connect(addr(&line)).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it goes on listening");
        thread::sleep(Duration::from_millis(5));
    }
    server.signal(Signal::TERM);
    let log = stderr(&server.end());
    assert!(log.contains("second signal"), "{log}");
    assert!(log.contains("closed_stop_deadline="), "{log}");
}

/// A loop that does not come back, whatever keeps it: here its thread is stopped. Neither a stop nor a second signal can end it.
#[test]
fn a_third_signal_does_not_wait_for_loops_that_are_stuck() {
    let mut server = Running::start(&[
        "serve",
        "echo",
        "--listen",
        "echo=0",
        "--engine",
        "epoll",
        "--workers",
        "1",
        "--admin",
        "off",
    ]);
    let line = server.line();
    drop(echoes(&line));
    let stuck = nix::unistd::Pid::from_raw(thread_of(server.pid(), "tidewire-loop"));
    ptrace::seize(stuck, ptrace::Options::empty()).expect("a thread of our child's");
    ptrace::interrupt(stuck).expect("it can be stopped");
    let stopped = waitpid(stuck, Some(WaitPidFlag::__WALL)).expect("it stops");
    assert!(
        matches!(stopped, WaitStatus::PtraceEvent(..)),
        "{stopped:?}"
    );

    server.signal(Signal::TERM);
    server.hear("stopping; a second signal ends at once");
    server.signal(Signal::TERM);
    server.hear("a third does not wait for the loops");
    server.signal(Signal::TERM);
    // The thread is traced, so its end is told to this test before the end of its process.
    let ended = waitpid(stuck, Some(WaitPidFlag::__WALL)).expect("it ends with its process");
    assert!(!matches!(ended, WaitStatus::PtraceEvent(..)), "{ended:?}");
    let output = server.end();
    let said = stderr(&output);
    assert!(
        said.contains("third signal: the loops are not waited for"),
        "{said}"
    );
    assert!(said.contains("the loops have not ended"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// The first thread of this process whose name begins so.
fn thread_of(pid: Pid, name: &str) -> i32 {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let tasks = fs::read_dir(tasks).unwrap().map(|task| task.unwrap());
    let mut its = tasks.filter(|task| {
        let comm = fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.starts_with(name))
    });
    let thread = its.next().expect("a thread of this name");
    thread.file_name().to_str().unwrap().parse().unwrap()
}

/// A script that has written is not interrupted by commands. A stop ends it all the same.
#[test]
fn a_script_without_end_does_not_hold_up_a_stop() {
    let mut server = Running::start(&["serve", "kv", "--listen", "kv/resp=0", "--workers", "1"]);
    let line = server.line();
    let mut client = TcpStream::connect(addr(&line)).unwrap();
    let idle = cpu_ticks(server.pid());
    let script = "redis.call('set', 'k', 'v') while true do end";
    let command = format!(
        "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
        script.len()
    );
    client.write_all(command.as_bytes()).unwrap();
    let begin = Instant::now();
    while cpu_ticks(server.pid()) < idle + 30 {
        assert!(begin.elapsed() < PATIENCE, "the script does not run");
        thread::sleep(Duration::from_millis(5));
    }
    server.signal(Signal::TERM);
    let output = server.end();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("message=stopped"), "{said}");
}

/// Processor time of a process so far, in hundredths of a second.
fn cpu_ticks(pid: Pid) -> u64 {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = fs::read_to_string(path).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_port_in_use_is_said_with_status_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    // More loops share a port among themselves, which must not make them share it with others.
    for workers in ["1", "3"] {
        let place = format!("echo={addr}");
        let output = run(&["serve", "echo", "--listen", &place, "--workers", workers]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            message.contains(&addr) && message.contains("in use"),
            "{message}"
        );
        assert!(message.contains("--listen"), "{message}");
        assert!(output.stdout.is_empty());
    }
    let mut first = Running::start(&["serve", "echo", "--listen", "echo=0", "--workers", "2"]);
    let place = format!("echo={}", common::addr(&first.line()));
    let second = run(&["serve", "echo", "--listen", &place, "--workers", "2"]);
    assert_eq!(second.status.code(), Some(1), "{}", stderr(&second));
}

/// A file of the test's own, removed at its end.
struct Config(PathBuf);

impl Config {
    fn new(name: &str, text: &str) -> Config {
        let path =
            std::env::temp_dir().join(format!("tidewire-{name}-{}.toml", std::process::id()));
        fs::write(&path, text).unwrap();
        Config(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_sets_and_flags_win() {
    let config = Config::new(
        "good",
        "listen = ['echo=127.0.0.1:0']\nservices = ['echo']\nengine = 'threads'\nlog-format = 'json'\n",
    );
    let mut server = Running::start(&["serve", "--config", config.path(), "--engine", "epoll"]);
    let line = server.line();
    assert!(line.ends_with("engine=epoll"), "{line}");
    drop(echoes(&line));
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty(), "one listener only");
    let mut numbers = 0;
    for line in stderr(&output).lines() {
        let json: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(json["message"].is_string(), "{line}");
        numbers += usize::from(json["counters"]["accepted"] == 1 && json["workers"].is_null());
    }
    assert_eq!(
        numbers,
        1,
        "what was counted is numbers: {}",
        stderr(&output)
    );
}

#[test]
fn settings_that_make_no_sense_are_named_with_status_2() {
    let unknown = Config::new("unknown", "wokers = 2\n");
    let broken = Config::new("broken", "workers = \n");
    for (args, named) in [
        (vec!["--config", unknown.path()], "wokers"),
        (vec!["--config", broken.path()], broken.path()),
        (
            vec!["--config", "/nowhere/at/all.toml"],
            "/nowhere/at/all.toml",
        ),
        (vec!["gopher"], "gopher"),
        (vec!["--workers", "0"], "--workers 0"),
        (vec!["--listen", "ack=127.0.0.1:0"], "needs a mode"),
        (vec!["--log", "[", "--listen", "echo=0"], "--log"),
        (vec!["--tcp-keepalive", "10h"], "--tcp-keepalive 10h"),
        (vec!["--tcp-keepalive", "500ms"], "whole seconds"),
        (vec!["--turn-output", "63KiB"], "from 64KiB to 1GiB"),
        (vec!["--turn-receive", "2GiB"], "from 64KiB to 1GiB"),
        (vec!["--turn-send", "2GiB"], "--turn-send 2GiB"),
    ] {
        let output = run(&[&["serve"], &args[..]].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(named), "{args:?}: {message}");
    }
}

/// Which there are the kernel knows, and only when it is asked for one.
#[test]
fn a_congestion_control_that_the_kernel_does_not_have_is_named() {
    let flags = ["echo", "--listen", "echo=0", "--congestion", "none-such"];
    let output = run(&[&["serve"], &flags[..]].concat());
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--congestion"), "{message}");
}

/// Help once said 64 MiB where the code had 128.
#[test]
fn help_tells_the_defaults_in_force() {
    let help = stdout(&run(&["serve", "--help"]));
    let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let log = tidewire_log::Settings::default();
    let ingest = tidewire_ingest::native::Settings::default();
    for (what, default) in [
        (
            "What one command or transaction of kv changes may be a sixth of it",
            format!(
                "{}MiB; for kv 192MiB, less on a disk of less than 3GiB",
                log.segment_bytes >> 20
            ),
        ),
        (
            "payload that the log takes",
            format!("{}MiB", log.payload_max >> 20),
        ),
        (
            "Most bytes that an ingest producer may have unacknowledged",
            format!("{}MiB", ingest.window_bytes >> 20),
        ),
        (
            "Most messages that an ingest producer may have unacknowledged",
            ingest.window_messages.to_string(),
        ),
        (
            "Readers at once; more are refused",
            ingest.readers.to_string(),
        ),
    ] {
        let said = format!("{what} [default: {default}]");
        assert!(help.contains(&said), "no {said:?} in {help}");
    }
}

/// A user who gives a flag means something by it.
#[test]
fn flags_that_would_have_no_effect_are_refused() {
    for (args, said) in [
        (&["--prefix-v4", "16"][..], "--max-per-prefix"),
        (&["--prefix-v6", "32"], "--max-per-prefix"),
        (&["--address-v6", "56"], "--max-per-address"),
        (
            &["--address-v6", "56", "--max-per-prefix", "7"],
            "--max-per-address",
        ),
        (&["--max-connections", "kv=5"], "kv is not served here"),
        (
            &["--deny", "ack/sync=10.0.0.0/8"],
            "ack/sync is not served here",
        ),
        (&["--accept-rate", "http=5"], "http is not served here"),
        (&["--open=kv"], "kv is not served here"),
        (&["--kv-maxmemory", "1GiB"], "kv is not served here"),
        (&["--http-body", "1KiB"], "http is not served here"),
        (&["--readers", "7"], "ingest is not served here"),
        (&["--ack-level", "durable"], "ack is not served here"),
        (&["--max-payload", "7"], "neither ack nor ingest"),
        (
            &["--sync", "os"],
            "no service that is served writes to a log",
        ),
        (&["--group-wait", "1ms"], "no log is synced before replies"),
        (
            &["ingest", "--sync", "os", "--group-wait", "1ms"],
            "no log is synced before replies",
        ),
        (
            &["ingest", "--group-wait", "2s"],
            "--group-wait: at most 1s",
        ),
        (&["--admin-host", "it.example"], "no admin listener"),
        (&["kv", "--kv-snapshot-growth", "1GiB"], "--durability"),
        (&["--takeover-forget"], "--takeover"),
    ] {
        let output = run(&[&["serve", "echo", "--listen", "echo=0"], args].concat());
        let message = stderr(&output);
        assert!(!output.status.success(), "{args:?}");
        assert!(message.contains(said), "{args:?}: {message}");
    }
    // With something to act on they are taken, and a file may be that of several servers.
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tidewire.toml");
    std::fs::write(
        &file,
        "[kv]\nmaxmemory = '1GiB'\n[admission]\nprefix-v4 = 16\n",
    )
    .unwrap();
    let config = ["--config", file.to_str().unwrap()];
    for args in [
        &["--prefix-v4", "16", "--max-per-prefix", "7"][..],
        &["--address-v6", "56", "--accept-rate-per-address", "7"],
        &["--max-connections", "echo=5", "--open=echo"],
        &config,
    ] {
        let mut server = Running::start(&[&["serve", "echo", "--listen", "echo=0"], args].concat());
        let line = server.line();
        assert!(
            line.starts_with("listening "),
            "{args:?}: {}",
            stderr(&server.end())
        );
    }
}
