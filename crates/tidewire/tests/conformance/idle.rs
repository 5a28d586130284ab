//! What an idle connection costs, measured in a server process of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::case::{Case, case};
use crate::child;
use crate::client::Client;
use crate::plain;
use crate::process::{crowd, eventually, resident};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![case!(
        idle_connection_costs_at_most_512_bytes,
        alone,
        on = |v| !v.is_threads()
    )]
}

/// A server in another process.
struct Other {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    addr: SocketAddr,
}

impl Other {
    fn start(v: Variant) -> Other {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .env(child::SERVER, v.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let ask = child.stdin.take().expect("was piped");
        let mut answers = BufReader::new(child.stdout.take().expect("was piped"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("an address");
        Other {
            addr: line.trim().parse().expect("an address"),
            child,
            ask,
            answers,
        }
    }

    /// The server's resident memory, once `open` connections are open.
    fn resident(&mut self, open: usize) -> usize {
        writeln!(self.ask, "{open}").expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().parse().expect("a number")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process: says where it listens, then answers each number of connections with its
/// resident memory once so many are open.
pub(crate) fn serve(v: Variant) {
    let server = plain::server(v);
    println!("{}", server.addrs()[0]);
    for line in std::io::stdin().lines() {
        let open: u64 = line.expect("text").trim().parse().expect("a number");
        eventually("that many connections", || server.counters().open == open);
        // Let the loops go back to sleep.
        std::thread::sleep(Duration::from_millis(200));
        println!("{}", resident("self"));
    }
}

fn idle_connection_costs_at_most_512_bytes(v: Variant) {
    let most = crowd(v, false);
    let few = most / 9;
    let mut other = Other::start(v);
    let mut clients = Vec::with_capacity(most);
    let mut fill = |n: usize, addr| {
        while clients.len() < n {
            let mut client = Client::connect(addr);
            client.send(b"x");
            client.expect(b"x");
            clients.push(client);
        }
    };
    fill(few, other.addr);
    let before = other.resident(few);
    fill(most, other.addr);
    let after = other.resident(most);
    let each = after.saturating_sub(before) / (most - few);
    eprintln!("{v}: {each} bytes for each idle connection, from {few} to {most}");
    assert!(each <= 512, "{each} bytes for each idle connection");
}
