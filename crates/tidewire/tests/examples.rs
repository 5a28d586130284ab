//! The examples are part of the documentation: each one does what it says to a client, on each engine, and ends on a
//! signal. They share nothing, so that each can be pasted into a crate of one's own.

#[path = "shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use example::{PATIENCE, Serving, program, succeeded};
use libtest_mimic::{Arguments, Failed, Trial};

const ENGINES: [&str; 3] = ["threads", "epoll", "uring"];

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(sources)
        .expect("the examples' folder")
        .filter_map(|entry| {
            Some(
                entry
                    .ok()?
                    .file_name()
                    .to_str()?
                    .strip_suffix(".rs")?
                    .to_owned(),
            )
        })
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let mut trials = Vec::new();
    for name in names {
        for engine in ENGINES {
            let reason = if !program(&name).exists() {
                Some("not built: run the whole `cargo test`, or `cargo build --examples`")
            } else if engine == "uring" && !uring_works() {
                Some("io_uring does not work here")
            } else {
                None
            };
            let label = format!("{name}/{engine}");
            match reason {
                Some(why) => {
                    println!("skipped {label}: {why}");
                    trials.push(Trial::test(label, || Ok(())).with_ignored_flag(true));
                }
                None => {
                    let name = name.clone();
                    trials.push(Trial::test(label, move || is_as_it_says(&name, engine)));
                }
            }
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn uring_works() -> bool {
    let mut builder = tidewire::Builder::new();
    builder.engine(tidewire::EngineChoice::Uring);
    builder.start().is_ok()
}

fn is_as_it_says(name: &str, engine: &str) -> Result<(), Failed> {
    let client = match name {
        "echo" | "sub_reactors" => echo,
        "calculator" => calculator,
        "chat" => chat,
        "proxy" => proxy,
        "socks5" => socks5,
        "timer" => timer,
        // A client ends by itself.
        "request_reply_client" => {
            let child = Command::new(program(name))
                .arg(engine)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            return Ok(succeeded(child)?);
        }
        _ => return Err(format!("no client for {name}: write one").into()),
    };
    let args = match name {
        "timer" => &[engine, "20"][..],
        _ => &[engine],
    };
    let Some(serving) = Serving::start(name, args) else {
        return Ok(());
    };
    let at = serving.at.split(' ').next().unwrap_or_default();
    client(at)?;
    Ok(serving.stop()?)
}

fn connect(at: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn echo(at: &str) -> Result<(), Failed> {
    let mut client = connect(at)?;
    client.write_all(b"hello")?;
    client.shutdown(Shutdown::Write)?;
    let mut back = String::new();
    client.read_to_string(&mut back)?;
    assert_eq!(back, "hello");
    Ok(())
}

fn calculator(at: &str) -> Result<(), Failed> {
    let mut client = connect(at)?;
    let deep = "(".repeat(400);
    let asked = format!("1 + 2 * (3 - 1)\n-2*-3\r\n1/0\n2 +\n{deep}\n\u{e4}\n1 2\n");
    client.write_all(asked.as_bytes())?;
    client.write_all(&[b'1'; 2000])?;
    let mut answers = String::new();
    client.read_to_string(&mut answers)?;
    let expected = [
        "5",
        "6",
        "error: a division by zero",
        "error: a number is missing",
        "error: too many parentheses",
        "error: a number is missing",
        "error: something follows that does not belong there",
        "error: the line is too long",
    ];
    assert_eq!(answers.lines().collect::<Vec<_>>(), expected);
    Ok(())
}

fn chat(at: &str) -> Result<(), Failed> {
    let guests: io::Result<Vec<_>> = (0..5).map(|_| Ok(BufReader::new(connect(at)?))).collect();
    let mut guests = guests?;
    // A guest whose connection has not been taken in yet misses what is said, so each is
    // greeted until it hears.
    for i in 0..guests.len() {
        let other = (i + 1) % guests.len();
        let mut heard = String::new();
        while !heard.ends_with(&format!("here is {i}\n")) {
            let greeting = format!("here is {i}\n");
            guests[i].get_mut().write_all(greeting.as_bytes())?;
            let briefly = Some(Duration::from_millis(50));
            guests[other].get_ref().set_read_timeout(briefly)?;
            let _ = guests[other].read_line(&mut heard);
        }
        guests[other].get_ref().set_read_timeout(Some(PATIENCE))?;
    }
    guests[0].get_mut().write_all(b"hello, all\n")?;
    for guest in &mut guests[1..] {
        let mut heard = String::new();
        while heard != "hello, all\n" {
            heard.clear();
            assert_ne!(guest.read_line(&mut heard)?, 0);
        }
    }
    Ok(())
}

fn proxy(at: &str) -> Result<(), Failed> {
    let mut client = connect(at)?;
    let sent: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
    client.write_all(&sent)?;
    // The upstream server answers when it has seen this end, through the proxy.
    client.shutdown(Shutdown::Write)?;
    let mut back = Vec::new();
    client.read_to_end(&mut back)?;
    assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
    Ok(())
}

/// To itself: a proxy is a server as well. More in `socks5.rs`.
fn socks5(at: &str) -> Result<(), Failed> {
    let mut client = connect(at)?;
    let port = at
        .rsplit(':')
        .next()
        .and_then(|port| port.parse::<u16>().ok());
    let [high, low] = port.ok_or("a port")?.to_be_bytes();
    client.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x09localhost")?;
    client.write_all(&[high, low])?;
    client.write_all(b"\x05\x01\x02")?;
    let mut answer = [0; 14];
    client.read_exact(&mut answer)?;
    assert_eq!(answer, *b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0\x05\xff");
    Ok(())
}

fn timer(at: &str) -> Result<(), Failed> {
    let mut told = String::new();
    connect(at)?.read_to_string(&mut told)?;
    // Silent, so it hears four ticks and is hung up on with the fifth; fewer where the machine
    // is busy, and the silence has lasted when a tick comes late.
    assert!("10\n9\n8\n7\n".starts_with(&told), "{told}");
    Ok(())
}
