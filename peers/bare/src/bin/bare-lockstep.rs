//! A blocking lock-step echo client: one connection, one message in flight, each round trip timed.
//!
//! The program does as little as possible beside the two system calls, so that what it measures is
//! the server and the kernel. Every reply is compared with what was sent, outside the timed
//! stretch.
//!
//! Prints one line of JSON. Exit status: 0, 1 if it could not connect, 2 at a wrong reply or a lost
//! connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::exit;
use std::time::{Duration, Instant};

use bare::Args;

/// Room for samples of a run that is limited by time only; it stops early when they are used up.
const SAMPLES_MAX: usize = 50_000_000;

fn main() {
    let args = Args::parse(
        "bare-lockstep --addr HOST:PORT [--size BYTES] [--count N | --seconds S] [--warmup N] [--cpu N]",
    );
    args.pin();
    let addr: String = args.value("--addr").unwrap_or_default();
    let size: usize = args.value("--size").unwrap_or(512).max(1);
    let warmup: usize = args.value("--warmup").unwrap_or(1_000);
    let seconds: Option<f64> = args.value("--seconds");
    let count = match (args.value("--count"), seconds) {
        (Some(count), _) => count,
        (None, Some(_)) => SAMPLES_MAX,
        (None, None) => 100_000,
    };
    let limit = seconds.map_or(Duration::MAX, Duration::from_secs_f64);

    let mut client = Client::connect(&addr, size).unwrap_or_else(|e| {
        eprintln!("cannot connect to {addr}: {e}");
        exit(1)
    });
    for _ in 0..warmup {
        client.round_trip();
    }
    let mut samples_ns = Vec::with_capacity(count.min(1_000_000));
    let start = Instant::now();
    while samples_ns.len() < count && start.elapsed() < limit {
        samples_ns.push(client.round_trip().as_nanos() as u64);
    }
    report(size, start.elapsed(), samples_ns);
}

struct Client {
    stream: TcpStream,
    message: Vec<u8>,
    reply: Vec<u8>,
    sent: u64,
}

impl Client {
    fn connect(addr: &str, size: usize) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        let message = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
        Ok(Self {
            stream,
            message,
            reply: vec![0; size],
            sent: 0,
        })
    }

    /// Sends one message, waits for all of it to come back, and says how long that took.
    fn round_trip(&mut self) -> Duration {
        // No two messages in a row are the same, so a stale reply is a wrong one.
        self.sent += 1;
        for (byte, count) in self.message.iter_mut().zip(self.sent.to_le_bytes()) {
            *byte = count;
        }
        let start = Instant::now();
        let exchanged = self
            .stream
            .write_all(&self.message)
            .and_then(|()| self.stream.read_exact(&mut self.reply));
        let took = start.elapsed();
        if let Err(e) = exchanged {
            eprintln!("lost the connection at message {}: {e}", self.sent);
            exit(2);
        }
        if self.reply != self.message {
            eprintln!("message {} came back different", self.sent);
            exit(2);
        }
        took
    }
}

fn report(size: usize, took: Duration, mut samples_ns: Vec<u64>) {
    if samples_ns.is_empty() {
        eprintln!("no round trip was timed");
        exit(2);
    }
    samples_ns.sort_unstable();
    let at = |share: f64| samples_ns[((samples_ns.len() - 1) as f64 * share).round() as usize];
    println!(
        "{{\"bench\":\"lockstep\",\"size\":{size},\"count\":{},\"seconds\":{:.6},\"rtt_min_ns\":{},\
         \"rtt_median_ns\":{},\"rtt_p99_ns\":{},\"ops_per_s\":{:.0}}}",
        samples_ns.len(),
        took.as_secs_f64(),
        at(0.0),
        at(0.5),
        at(0.99),
        samples_ns.len() as f64 / took.as_secs_f64(),
    );
}
