//! What a SOCKS5 proxy is held to, whichever example it is: with curl, and with a client of our own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use socket2::SockRef;

use crate::example::{PATIENCE, Serving, program};

const ENGINES: [&str; 3] = ["threads", "epoll", "uring"];

type Check = fn(&str) -> Result<(), Failed>;

/// All checks of the example with this name, on each engine.
pub(crate) fn trials(name: &'static str) -> Vec<Trial> {
    let checks: [(&str, Check); 6] = [
        ("curl_asks_by_name", curl_asks_by_name),
        ("half_closes_are_passed_on", half_closes_are_passed_on),
        ("resets_are_passed_on", resets_are_passed_on),
        (
            "what_cannot_be_reached_is_told",
            what_cannot_be_reached_is_told,
        ),
        ("requests_come_in_pieces", requests_come_in_pieces),
        ("slow_readers_are_bounded", slow_readers_are_bounded),
    ];
    let mut trials = Vec::new();
    for engine in ENGINES {
        let is_missing = !program(name).exists() || engine == "uring" && !uring_works();
        for (check, run) in checks {
            let trial = Trial::test(format!("{name}/{engine}/{check}"), move || {
                let serving = Serving::start(name, &[engine]).ok_or("not built")?;
                run(serving.at.split(' ').next().unwrap_or_default())?;
                Ok(serving.stop()?)
            });
            trials.push(trial.with_ignored_flag(is_missing));
        }
        // An explicit command: see CONTRIBUTING.md.
        if engine != "threads" {
            let trial = Trial::test(format!("{name}/{engine}/ten_thousand_at_once"), move || {
                let serving = Serving::start(name, &[engine]).ok_or("not built")?;
                crowd(serving.at.split(' ').next().unwrap_or_default())?;
                Ok(serving.stop()?)
            });
            trials.push(trial.with_ignored_flag(true));
        }
    }
    trials
}

fn uring_works() -> bool {
    let mut builder = tidewire::Builder::new();
    builder.engine(tidewire::EngineChoice::Uring);
    builder.start().is_ok()
}

fn connect(at: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn request(name: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 3, name.len() as u8];
    bytes.extend(name.as_bytes());
    bytes.extend(port.to_be_bytes());
    bytes
}

/// Asks for a host; the code of the reply.
fn ask(client: &mut TcpStream, name: &str, port: u16) -> io::Result<u8> {
    client.write_all(&[5, 1, 0])?;
    client.write_all(&request(name, port))?;
    let mut answer = [0; 12];
    client.read_exact(&mut answer)?;
    assert_eq!((&answer[..3], answer[5]), (&[5, 0, 5][..], 1));
    Ok(answer[3])
}

fn listener() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// Two ends of a connection through the proxy.
fn pair(at: &str) -> Result<(TcpStream, TcpStream), Failed> {
    let (listener, to) = listener()?;
    let mut client = connect(at)?;
    assert_eq!(ask(&mut client, "localhost", to.port())?, 0);
    let (server, _) = listener.accept()?;
    server.set_read_timeout(Some(PATIENCE))?;
    Ok((client, server))
}

fn curl_asks_by_name(at: &str) -> Result<(), Failed> {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: there is no curl");
        return Ok(());
    }
    let (listener, to) = listener()?;
    let server = std::thread::spawn(move || -> io::Result<String> {
        let (mut stream, _) = listener.accept()?;
        let mut asked = Vec::new();
        let mut buffer = [0; 1000];
        while !asked.ends_with(b"\r\n\r\n") {
            let n = stream.read(&mut buffer)?;
            asked.extend(&buffer[..n]);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")?;
        Ok(String::from_utf8_lossy(&asked).into_owned())
    });
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60", "--noproxy", ""]);
    curl.args(["--socks5-hostname", at]);
    let output = curl
        .arg(format!("http://localhost:{}/it", to.port()))
        .output()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.stdout, b"hello");
    let asked = server.join().expect("the server")?;
    assert!(asked.starts_with("GET /it HTTP/1.1"), "{asked}");
    Ok(())
}

fn half_closes_are_passed_on(at: &str) -> Result<(), Failed> {
    for client_first in [true, false] {
        let (mut client, mut server) = pair(at)?;
        let (first, second) = match client_first {
            true => (&mut client, &mut server),
            false => (&mut server, &mut client),
        };
        first.write_all(b"all I have to say")?;
        first.shutdown(Shutdown::Write)?;
        let mut heard = String::new();
        second.read_to_string(&mut heard)?;
        assert_eq!(heard, "all I have to say");
        let answer = vec![7; 1 << 20];
        second.write_all(&answer)?;
        second.shutdown(Shutdown::Write)?;
        let mut heard = Vec::new();
        first.read_to_end(&mut heard)?;
        assert!(heard == answer, "{} bytes", heard.len());
    }
    Ok(())
}

fn resets_are_passed_on(at: &str) -> Result<(), Failed> {
    for client_first in [true, false] {
        let (client, server) = pair(at)?;
        let (first, mut second) = match client_first {
            true => (client, server),
            false => (server, client),
        };
        SockRef::from(&first).set_linger(Some(Duration::ZERO))?;
        drop(first);
        let error = second.read(&mut [0; 10]).expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    Ok(())
}

fn what_cannot_be_reached_is_told(at: &str) -> Result<(), Failed> {
    let (listener, to) = listener()?;
    drop(listener);
    for (name, code) in [("localhost", 5), ("nothing.invalid", 4), ("no name", 4)] {
        let mut client = connect(at)?;
        assert_eq!(ask(&mut client, name, to.port())?, code, "{name}");
        assert_eq!(client.read(&mut [0; 10])?, 0);
    }
    // BIND is not offered.
    let mut client = connect(at)?;
    client.write_all(b"\x05\x01\x00\x05\x02\x00\x01\x7f\0\0\x01\0\x01")?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer)?;
    assert_eq!(answer[..4], [5, 0, 5, 7]);
    // SOCKS4 neither.
    let mut client = connect(at)?;
    client.write_all(b"\x04\x01\0\x01\x7f\0\0\x01\0")?;
    assert!(!matches!(client.read(&mut [0; 10]), Ok(1..)));
    Ok(())
}

fn requests_come_in_pieces(at: &str) -> Result<(), Failed> {
    let (listener, to) = listener()?;
    let mut client = connect(at)?;
    client.set_nodelay(true)?;
    let port = to.port().to_be_bytes();
    let address = [&b"\x05\x02\x02\0\x05\x01\0\x01\x7f\0\0\x01"[..], &port].concat();
    // With the first bytes for the other side right behind.
    for byte in [&address[..], b"first"].concat() {
        client.write_all(&[byte])?;
    }
    let (mut server, _) = listener.accept()?;
    server.set_read_timeout(Some(PATIENCE))?;
    let mut heard = [0; 5];
    server.read_exact(&mut heard)?;
    assert_eq!(&heard, b"first");
    let mut answer = [0; 12];
    client.read_exact(&mut answer)?;
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    Ok(())
}

/// A server whose client does not read sends what kernels and marks hold, and no more; then all arrives.
fn slow_readers_are_bounded(at: &str) -> Result<(), Failed> {
    const MUCH: usize = 256 << 20;
    let (mut client, mut server) = pair(at)?;
    server.set_write_timeout(Some(Duration::from_secs(1)))?;
    let piece = vec![7; 64 << 10];
    let mut sent = 0;
    loop {
        match server.write(&piece) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(e.into()),
        }
        assert!(sent < MUCH, "nothing holds the server back");
    }
    server.shutdown(Shutdown::Write)?;
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 20];
    while let n @ 1.. = client.read(&mut buffer)? {
        heard += n;
    }
    assert_eq!(heard, sent);
    Ok(())
}

/// So many that all are open at once, each with a word both ways.
fn crowd(at: &str) -> Result<(), Failed> {
    const ALL: usize = 10_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let room = limit.current.unwrap_or(u64::MAX) as usize;
    // Two descriptors here and two in the proxy for each.
    let all = ALL.min(room.saturating_sub(200) / 2);
    println!("{all} connections; the limit on descriptors is {room}");
    let (listener, to) = listener()?;
    let mut pairs = Vec::new();
    for n in 0..all {
        let mut client = connect(at)?;
        assert_eq!(ask(&mut client, "localhost", to.port())?, 0, "number {n}");
        let (server, _) = listener.accept()?;
        server.set_read_timeout(Some(PATIENCE))?;
        pairs.push((client, server));
    }
    for (n, (client, server)) in pairs.iter_mut().enumerate() {
        client.write_all(&n.to_be_bytes())?;
        server.write_all(&(!n).to_be_bytes())?;
    }
    for (n, (client, server)) in pairs.iter_mut().enumerate() {
        let (mut asked, mut answer) = ([0; 8], [0; 8]);
        server.read_exact(&mut asked)?;
        client.read_exact(&mut answer)?;
        assert_eq!((asked, answer), (n.to_be_bytes(), (!n).to_be_bytes()));
    }
    assert_eq!(all, ALL, "more descriptors are needed: `ulimit -n 20300`");
    Ok(())
}
