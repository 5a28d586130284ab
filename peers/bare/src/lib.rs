//! What the bare programs share: options, pinning, and a listening socket.
//!
//! The loops themselves are deliberately not shared. Each program is one plain file, written the way one
//! would write it if nothing else had to be supported, because it is what the library is compared with.

use std::net::TcpListener;
use std::process::exit;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

/// Connections that may wait for `accept`; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The command line: `--name value` pairs only.
pub struct Args {
    usage: &'static str,
    pairs: Vec<(String, String)>,
}

impl Args {
    /// Reads the command line. Prints `usage` and exits with status 1 at a name that it does not contain,
    /// and with status 0 at `--help`.
    pub fn parse(usage: &'static str) -> Self {
        let mut pairs = Vec::new();
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            if name == "--help" {
                println!("{usage}");
                exit(0);
            }
            let known = name.starts_with("--") && usage.split([' ', '[', ']']).any(|w| w == name);
            match words.next() {
                Some(value) if known => pairs.push((name, value)),
                _ => refuse(usage, &format!("{name}: unknown, or without a value")),
            }
        }
        Self { usage, pairs }
    }

    /// The value of `name` (with its dashes), or `None` if it was not given. Exits with status 1 if it
    /// cannot be read as a `T`.
    pub fn value<T: FromStr>(&self, name: &str) -> Option<T> {
        let (_, text) = self.pairs.iter().rev().find(|(n, _)| n == name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(_) => refuse(self.usage, &format!("{name}: {text:?} is not usable")),
        }
    }

    /// Pins the calling thread, and every thread it starts from now on, to the processor of `--cpu`, if
    /// given.
    pub fn pin(&self) {
        let Some(cpu) = self.value::<usize>("--cpu") else {
            return;
        };
        let mut set = CpuSet::new();
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
        if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
            refuse(self.usage, &format!("--cpu {cpu}: {e}"));
        }
    }

    /// Opens a listener on `--addr` (default `127.0.0.1:0`) and says where: `listening addr=...` on standard
    /// output. Exits with status 1 if the address is not to be had.
    ///
    /// TCP_NODELAY is set here because Linux hands it down to every accepted socket, which saves a system
    /// call for each.
    pub fn listen(&self) -> TcpListener {
        let addr = self
            .value::<String>("--addr")
            .unwrap_or_else(|| "127.0.0.1:0".into());
        let open = || -> std::io::Result<TcpListener> {
            let listener = TcpListener::bind(&addr)?;
            rustix::net::listen(&listener, BACKLOG)?;
            rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
            println!("listening addr={}", listener.local_addr()?);
            Ok(listener)
        };
        open().unwrap_or_else(|e| refuse(self.usage, &format!("cannot listen on {addr}: {e}")))
    }
}

fn refuse(usage: &str, why: &str) -> ! {
    eprintln!("{why}\nusage: {usage}");
    exit(1)
}

/// CPU that is spent on purpose: a slowdown of known size.
///
/// Counted in turns of a loop, measured once at the start, because asking the clock takes longer than what is to be
/// burnt.
pub struct Burn {
    turns: u64,
}

impl Burn {
    /// Burns about `nanos` each time.
    pub fn of(nanos: u64) -> Self {
        const TURNS: u64 = 2_000_000;
        if nanos == 0 {
            return Self { turns: 0 };
        }
        // The fastest of several is the undisturbed one.
        let fastest = (0..9)
            .map(|_| {
                let begin = Instant::now();
                Self { turns: TURNS }.now();
                begin.elapsed()
            })
            .min()
            .unwrap_or(Duration::from_millis(1));
        let each = fastest.as_nanos().max(1) as f64 / TURNS as f64;
        Self {
            turns: (nanos as f64 / each) as u64,
        }
    }

    /// Burns it.
    pub fn now(&self) {
        for turn in 0..self.turns {
            std::hint::black_box(turn);
        }
    }
}
