//! `--log-connections`: a line for each connection, with what it has come to. Over real sockets, on each engine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::{PATIENCE, Running, addr, engines, stderr};
use rustix::process::Signal;

fn serve(args: &[&str]) -> (Running, SocketAddr) {
    let own = [
        "serve",
        "echo",
        "--log-format",
        "logfmt",
        "--listen",
        "echo=0",
    ];
    let mut server = Running::start(&[&own[..], args].concat());
    let line = server.line();
    assert!(line.starts_with("listening "), "{}", stderr(&server.end()));
    (server, addr(&line))
}

/// A client that sends this text and hears it; its address.
fn echo(to: SocketAddr, before: &[u8], text: &[u8]) -> SocketAddr {
    let mut client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(before).unwrap();
    client.write_all(text).unwrap();
    client.read_exact(&mut vec![0; text.len()]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.local_addr().unwrap()
}

/// The lines about connections that the server has logged.
fn lines(server: Running) -> Vec<String> {
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stderr(&output);
    let about = |line: &&str| line.contains("target=tidewire::connection ");
    said.lines().filter(about).map(str::to_owned).collect()
}

#[test]
fn each_has_a_line_with_what_it_came_to() {
    for engine in engines() {
        let (server, to) = serve(&["--engine", engine, "--log-connections"]);
        let one = echo(to, b"", b"hello");
        let other = echo(to, b"", &[b'x'; 300_000]);
        let said = lines(server);
        assert_eq!(said.len(), 2, "{engine}: {said:?}");
        for (peer, bytes) in [(one, 5), (other, 300_000)] {
            let named = format!("peer={peer} ");
            let line = said.iter().find(|line| line.contains(&named));
            let line = line.unwrap_or_else(|| panic!("{engine}: {named}: {said:?}"));
            let expected = format!(
                "level=info target=tidewire::connection message=\"connection closed\" service=echo \
                 peer={peer} reason=finished received={bytes} sent={bytes} seconds="
            );
            assert!(line.contains(&expected), "{engine}: {line}");
            let seconds: f64 = line.rsplit('=').next().unwrap().parse().unwrap();
            assert!((0.0..PATIENCE.as_secs_f64()).contains(&seconds), "{line}");
        }
    }
}

/// What is logged of them follows the filter, which can be changed while the server runs.
#[test]
fn there_are_none_unless_they_are_wanted() {
    for (args, opened, closed) in [
        (&[][..], 0, 0),
        (&["--log", "debug"], 0, 0),
        (&["--log", "info,tidewire::connection=info"], 0, 1),
        (&["--log", "info,tidewire::connection=debug"], 1, 1),
        (&["--log-connections", "--log", "warn"], 0, 1),
        (
            &[
                "--log-connections",
                "--log",
                "info,tidewire::connection=off",
            ],
            0,
            0,
        ),
    ] {
        let (server, to) = serve(args);
        echo(to, b"", b"hello");
        let said = lines(server);
        let of = |what: &str| said.iter().filter(|line| line.contains(what)).count();
        let seen = (of("connection opened"), of("connection closed"));
        assert_eq!(seen, (opened, closed), "{args:?}: {said:?}");
    }
}

/// The line also names the client that a proxy has named, and counts the bytes on the wire.
#[test]
fn whom_a_proxy_names_is_said() {
    let (server, to) = serve(&["--proxy-from", "127.0.0.0/8", "--log-connections"]);
    let header = b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n";
    let peer = echo(to, header, b"hello");
    let said = lines(server);
    let received = header.len() + 5;
    let expected =
        format!("peer={peer} client=192.0.2.7:5000 reason=finished received={received} ");
    assert!(said[0].contains(&expected), "{said:?}");
}
