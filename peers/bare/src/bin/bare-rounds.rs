//! Several echo servers, loaded in turns by one client: CPU of the server for each message.
//!
//! All servers stay up and connected. In each round every one of them has a slice of time in which it is
//! loaded alone, forwards in even rounds and backwards in odd ones. A slice ends when all messages are
//! back and the server sleeps, so that its time is counted exactly. The figures are medians over the
//! rounds; ratios are taken within a round, against the first server, with an interval by bootstrap. Name
//! the first server twice to see what no difference looks like.
//!
//! With `--rate` messages are offered at that rate (never more than `--depth` in flight on a connection),
//! without it each connection sends again as soon as it has its answer. `--spin 1` never sleeps, so that
//! servers do not pay for waking the client.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio, exit};
use std::time::{Duration, Instant};

use bare::Args;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

const USAGE: &str = "bare-rounds --servers 'NAME=COMMAND; NAME=COMMAND; ...' [--connections N] \
[--size BYTES] [--depth N] [--rate PER_SECOND] [--spin 0|1] [--rounds N] [--slice MILLISECONDS] \
[--cpu N] [--server-cpu N]";
const WARM_UP: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let args = Args::parse(USAGE);
    args.pin();
    let load = Load {
        connections: args.value("--connections").unwrap_or(50),
        size: args.value("--size").unwrap_or(512).max(1),
        depth: args.value("--depth").unwrap_or(1).max(1),
        rate: args.value("--rate"),
        spin: args.value::<u8>("--spin") == Some(1),
    };
    let rounds: usize = args.value("--rounds").unwrap_or(16).max(2);
    let slice = Duration::from_millis(args.value("--slice").unwrap_or(200));
    let commands: String = args.value("--servers").unwrap_or_default();
    let mut servers: Vec<Server> = commands
        .split(';')
        .map(|one| Server::start(one.trim(), args.value("--server-cpu"), &load))
        .collect();
    let mut order: Vec<usize> = (0..servers.len()).collect();
    for _ in 0..rounds {
        for &i in &order {
            servers[i].slice(&load, slice);
        }
        order.reverse();
    }
    report(&servers, &load, rounds, slice);
}

struct Load {
    connections: usize,
    size: usize,
    depth: usize,
    rate: Option<f64>,
    spin: bool,
}

/// What a slice came to.
#[derive(Clone, Copy)]
struct Slice {
    cpu_ns: f64,
    messages: f64,
    seconds: f64,
}

struct Conn {
    socket: OwnedFd,
    /// Bytes that are still to come back.
    due: usize,
}

struct Server {
    name: String,
    process: Child,
    epoll: OwnedFd,
    conns: Vec<Conn>,
    slices: Vec<Slice>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn fail(what: impl std::fmt::Display) -> ! {
    eprintln!("{what}");
    exit(1)
}

impl Server {
    fn start(text: &str, cpu: Option<usize>, load: &Load) -> Server {
        let Some((name, command)) = text.split_once('=') else {
            fail(format!("{text:?} is no NAME=COMMAND\nusage: {USAGE}"))
        };
        let pin = cpu
            .map(|cpu| format!("taskset -c {cpu} "))
            .unwrap_or_default();
        let command = format!("{pin}{command}");
        let mut words = command.split_whitespace();
        let mut process = Command::new(words.next().unwrap_or_default())
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| fail(format!("{command}: {e}")));
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        let addr = loop {
            line.clear();
            if out.read_line(&mut line).unwrap_or(0) == 0 {
                fail(format!("{command}: it has not said where it listens"));
            }
            if let Some((_, addr)) = line.split_once("addr=") {
                break addr
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
            }
        };
        // What the server prints later is dropped, but must not stop it.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let made = Server::connect(&addr, load);
        let (epoll, conns) = made.unwrap_or_else(|e| fail(format!("{name} on {addr}: {e}")));
        Server {
            name: name.trim().to_owned(),
            process,
            epoll,
            conns,
            slices: Vec::new(),
        }
    }

    fn connect(addr: &str, load: &Load) -> std::io::Result<(OwnedFd, Vec<Conn>)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut conns = Vec::new();
        for i in 0..load.connections {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let interest = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, &stream, EventData::new_u64(i as u64), interest)?;
            let socket = stream.into();
            conns.push(Conn { socket, due: 0 });
        }
        Ok((epoll, conns))
    }

    fn slice(&mut self, load: &Load, time: Duration) {
        self.run(load, WARM_UP);
        let before = self.cpu_ns();
        let start = Instant::now();
        let messages = self.run(load, time);
        let seconds = start.elapsed().as_secs_f64();
        self.slices.push(Slice {
            cpu_ns: self.cpu_ns() - before,
            messages: messages as f64,
            seconds,
        });
    }

    /// CPU time of all its threads. They sleep, so it is exact.
    fn cpu_ns(&self) -> f64 {
        std::thread::sleep(Duration::from_millis(1));
        let tasks = format!("/proc/{}/task", self.process.id());
        let tasks = fs::read_dir(tasks).unwrap_or_else(|e| fail(format!("{}: {e}", self.name)));
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        };
        tasks.flatten().filter_map(of).sum()
    }

    /// Loads it for `time` and waits until everything is back; how many messages that were.
    fn run(&mut self, load: &Load, time: Duration) -> usize {
        let message = vec![b'x'; load.size * load.depth];
        let mut buffer = vec![0; 256 << 10];
        let mut events = Vec::with_capacity(1024);
        let start = Instant::now();
        let (mut offered, mut back, mut next) = (0, 0, 0);
        if load.rate.is_none() {
            for conn in &mut self.conns {
                offered += conn.offer(&message, load.depth, load.size);
            }
        }
        let mut over = false;
        while !over || back < offered {
            let elapsed = start.elapsed();
            over = elapsed >= time;
            if elapsed > time + PATIENCE {
                fail(format!(
                    "{}: {} of {offered} are missing",
                    self.name,
                    offered - back
                ));
            }
            if let Some(rate) = load.rate.filter(|_| !over) {
                // A message behind schedule waits for a free connection.
                let due = (rate * elapsed.as_secs_f64()) as usize;
                for _ in 0..self.conns.len() {
                    if offered >= due {
                        break;
                    }
                    let conn = &mut self.conns[next % load.connections];
                    next += 1;
                    if conn.due < load.size * load.depth {
                        offered += conn.offer(&message, 1, load.size);
                    }
                }
            }
            let most = match (load.spin, load.rate) {
                (true, _) => Duration::ZERO,
                (false, Some(_)) => Duration::from_micros(50),
                (false, None) => PATIENCE,
            };
            let most = Timespec::try_from(most).expect("short");
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&most)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => fail(e),
            }
            for event in &events {
                let conn = &mut self.conns[event.data.u64() as usize];
                let came = conn.take(&mut buffer, load.size);
                back += came;
                if load.rate.is_none() && !over && came > 0 {
                    offered += conn.offer(&message, came, load.size);
                }
            }
        }
        back
    }
}

impl Conn {
    fn offer(&mut self, message: &[u8], n: usize, size: usize) -> usize {
        let bytes = &message[..n * size];
        // What is in flight fits the socket's buffers.
        match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == bytes.len() => self.due += sent,
            Ok(sent) => fail(format!(
                "only {sent} of {} bytes fit the socket",
                bytes.len()
            )),
            Err(e) => fail(e),
        }
        n
    }

    /// Messages that are complete now.
    fn take(&mut self, buffer: &mut [u8], size: usize) -> usize {
        match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => fail("a server has closed a connection"),
            Ok((n, _)) => {
                let before = self.due.div_ceil(size);
                self.due -= n;
                before - self.due.div_ceil(size)
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(e) => fail(e),
        }
    }
}

// ---- Figures ----

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        return values[half];
    }
    f64::midpoint(values[half - 1], values[half])
}

/// 95 % of the medians of samples drawn from these.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        values[(seed % values.len() as u64) as usize]
    };
    let mut medians: Vec<f64> = (0..4000)
        .map(|_| {
            let mut sample: Vec<f64> = values.iter().map(|_| draw()).collect();
            median(&mut sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[100], medians[3899])
}

fn report(servers: &[Server], load: &Load, rounds: usize, slice: Duration) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    println!(
        "{} connections x {} bytes, {} in flight each{}{}; {rounds} rounds of {slice:?}; Linux {}, {}",
        load.connections,
        load.size,
        load.depth,
        load.rate
            .map(|r| format!(", {r} a second offered"))
            .unwrap_or_default(),
        if load.spin {
            ", client never sleeps"
        } else {
            ""
        },
        release.trim(),
        congestion.unwrap_or_default().trim(),
    );
    println!(
        "{:<24} {:>9} {:>9} {:>6}  {:<22} {}",
        "server", "us/msg", "msg/s", "busy", "CPU ratio", "rate ratio"
    );
    let base = &servers[0];
    for server in servers {
        let mut each: [Vec<f64>; 5] = Default::default();
        for (of, first) in server.slices.iter().zip(&base.slices) {
            let cpu = |s: &Slice| s.cpu_ns / s.messages;
            let rate = |s: &Slice| s.messages / s.seconds;
            let values = [
                cpu(of) / 1e3,
                rate(of),
                of.cpu_ns / 1e9 / of.seconds,
                cpu(of) / cpu(first),
                rate(of) / rate(first),
            ];
            for (all, value) in each.iter_mut().zip(values) {
                all.push(value);
            }
        }
        let (low, high) = interval(&each[3]);
        let [us, rate, busy, ratio, faster] = each.each_mut().map(|v| median(v));
        let ratio = format!("{ratio:.3} ({low:.3}..{high:.3})");
        println!(
            "{:<24} {us:>9.3} {rate:>9.0} {busy:>6.2}  {ratio:<22} {faster:.3}",
            server.name
        );
    }
}
