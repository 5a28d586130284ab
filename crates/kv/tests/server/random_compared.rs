//! Random commands, each run by a script on a real server and here: raw replies, turned into Lua
//! and back, must be the same. The commands are the ones that are compared without scripts.
//!
//! The other server is a Valkey; without one this says so and passes. `TIDEWIRE_COMPARE_SEED` and
//! `TIDEWIRE_COMPARE_CASES` choose other sequences.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use fastrand::Rng;
use tidewire_kv::service::Settings;

use crate::generate::{self, Args};
use crate::valkey::valkey;
use crate::wire::{ENGINES, PATIENCE, Server, until};

/// Commands of a sequence.
const LENGTH: usize = 60;

/// How a command is run, and what is made of what it answers.
const SCRIPTS: &[&str] = &[
    "return redis.pcall(unpack(ARGV))",
    "return redis.call(unpack(ARGV))",
    "redis.setresp(3) return redis.pcall(unpack(ARGV))",
    "local r = redis.pcall(unpack(ARGV)) return {type(r), type(r) == 'table' and r.err or r}",
    "local ok, r = pcall(redis.call, unpack(ARGV)) return {tostring(ok), r}",
    "redis.call('incr', '{n}') local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return redis.error_reply('MINE ' .. r.err) end return r",
    "local co = coroutine.wrap(function() return redis.pcall(unpack(ARGV)) end) return co()",
];

/// What is chosen by chance, comes in any order, or tells of the server.
const LEFT_OUT: &[&str] = &[
    "SPOP",
    "SRANDMEMBER",
    "HRANDFIELD",
    "ZRANDMEMBER",
    "RANDOMKEY",
    "SCAN",
    "SSCAN",
    "HSCAN",
    "ZSCAN",
    "KEYS",
    "SMEMBERS",
    "SINTER",
    "SUNION",
    "SDIFF",
    "HGETALL",
    "HKEYS",
    "HVALS",
    "SORT",
    "SORT_RO",
    "OBJECT",
    "DEBUG",
    "XINFO",
    "XADD",
    "XREADGROUP",
    "XCLAIM",
    "XAUTOCLAIM",
    "XPENDING",
    "XGROUP",
    "MEMORY",
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB",
    "MOVE",
    "COPY",
    "INFO",
    // In the version of RDB that each writes; `compare` has them exchange what they dumped.
    "DUMP",
    // Under RESP3 its reply is a map, and a table of Lua has no order.
    "LCS",
];

/// What no script may say, or what tells of the server, as far as two can say the same.
const DIRECT: &[&str] = &[
    "LATENCY (LATEST|HISTORY|HISTORY (command|x)|RESET|RESET {(command|x)}|GRAPH x|x)",
    "LATENCY HISTOGRAM (x|nosuch)",
    "LATENCY",
    "MEMORY USAGE $t [SAMPLES (0|5|-1|x)]",
    "MEMORY (USAGE|x)",
    "OBJECT (FREQ|IDLETIME) $t",
    "OBJECT FREQ $t",
    "SET $t $v [(NX|XX)] [GET] [(EXAT $E|PXAT $e|KEEPTTL)]",
    "(GET|STRLEN|TYPE|TTL|PEXPIRETIME|EXISTS|TOUCH|PERSIST) $t",
    "(APPEND|GETSET) $t $v",
    "(INCR|DECR) $t",
    "MGET {$t}",
    "DEL $t",
    "GETEX $t [(PXAT (1|4000000000000)|PERSIST)]",
];

pub(crate) struct Peer(Child, pub(crate) SocketAddr);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn peer() -> Option<Peer> {
    let at = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?;
    let child = Command::new(valkey()?)
        .args(["--port", &at.port().to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir", "/"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let peer = Peer(child, at);
    until("the peer to listen", || TcpStream::connect(at).is_ok());
    Some(peer)
}

/// A connection, and what has come and was not looked at.
struct Conn(TcpStream, Vec<u8>);

impl Conn {
    fn new(at: SocketAddr) -> Conn {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Conn(socket, Vec::new())
    }

    /// Sends a command and another whose answer is known; all that comes before that.
    fn ask(&mut self, args: &[Vec<u8>]) -> Vec<u8> {
        const END: &[u8] = b"$14\r\nthe-end-of-it!\r\n";
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"*2\r\n$4\r\nECHO\r\n$14\r\nthe-end-of-it!\r\n");
        self.0.write_all(&bytes).unwrap();
        self.1.clear();
        let mut chunk = [0; 16 << 10];
        while !self.1.ends_with(END) {
            match self.0.read(&mut chunk).unwrap() {
                0 => break,
                n => self.1.extend_from_slice(&chunk[..n]),
            }
        }
        self.1.truncate(self.1.len() - END.len().min(self.1.len()));
        self.1.clone()
    }
}

/// Errors in the words of Valkey, which has no hash of the script in them and does not name Redis; without the lengths of
/// texts, which differ then.
fn as_valkey(reply: &[u8]) -> Vec<u8> {
    let text = reply.escape_ascii().to_string();
    let text = text.replace("calling Redis command", "calling command");
    // What is beyond 64 bits becomes the largest number here, and what the processor makes of it there.
    let text = text.replace(":-9223372036854775808", ":9223372036854775807");
    let mut words = Vec::new();
    for word in text.split(' ') {
        let is_hash = word.len() == 41 && word.ends_with(',');
        if !is_hash || words.last() != Some(&"script:") {
            words.push(word);
        }
    }
    let text = words.join(" ");
    // Each server has its own words for a member that is not there.
    let is_missing = |line: &str| {
        let line = line.trim_start_matches('-').trim_start_matches("MINE ");
        line.starts_with("ERR member ") && line.ends_with(" does not exist")
            || line == "ERR could not decode requested zset member"
    };
    if text.split("\\r\\n").any(is_missing) {
        let lines = text.split("\\r\\n");
        let lines = lines.filter(|line| !line.starts_with('$') && !is_missing(line));
        return lines.collect::<Vec<_>>().join(" ").into_bytes();
    }
    if !text.contains("calling command") {
        return text.into_bytes();
    }
    let lines = text.split("\\r\\n");
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('$')).collect();
    lines.join(" ").into_bytes()
}

fn words(line: &str) -> Args {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn random_commands_in_scripts_answer_as_on_a_real_server() {
    let Some(peer) = peer() else {
        eprintln!("left out: there is no Valkey");
        return;
    };
    let Some(server) = ENGINES
        .into_iter()
        .find_map(|engine| Server::start(engine, 64, Settings::default()))
    else {
        return;
    };
    let (mut theirs, mut ours) = (Conn::new(peer.1), Conn::new(server.addr()));
    let first = number("TIDEWIRE_COMPARE_SEED", 1);
    let mut wrong = Vec::new();
    for seed in first..first + number("TIDEWIRE_COMPARE_CASES", 40) {
        let mut rng = Rng::with_seed(seed);
        for conn in [&mut theirs, &mut ours] {
            conn.ask(&words("FLUSHALL"));
        }
        for _ in 0..LENGTH {
            let command = generate::command(&mut rng, true);
            let name = String::from_utf8_lossy(&command[0]).to_uppercase();
            if LEFT_OUT.contains(&&*name) {
                continue;
            }
            let script = SCRIPTS[rng.usize(..SCRIPTS.len())];
            let mut eval = words("EVAL");
            eval.push(script.as_bytes().to_vec());
            eval.push(b"0".to_vec());
            eval.extend(command.iter().cloned());
            let (left, right) = (as_valkey(&ours.ask(&eval)), as_valkey(&theirs.ask(&eval)));
            if left != right {
                let shown: Vec<String> = command
                    .iter()
                    .map(|arg| arg.escape_ascii().to_string())
                    .collect();
                wrong.push(format!(
                    "seed {seed}: {script}\n  {}\n  here:  {}\n  there: {}",
                    shown.join(" "),
                    String::from_utf8_lossy(&left),
                    String::from_utf8_lossy(&right)
                ));
            }
        }
        if wrong.len() > 20 {
            break;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// What two servers may say differently.
fn as_either(command: &Args, reply: &[u8]) -> Vec<u8> {
    let is_own = [&b"memory"[..], b"object"].contains(&&command[0].to_ascii_lowercase()[..]);
    match reply.first() {
        // How much memory it takes is its own affair, and so is which command counts as a use.
        Some(b':') if is_own => b"a number".to_vec(),
        _ => as_valkey(reply),
    }
}

#[test]
fn what_tells_of_the_server_is_as_on_a_real_server() {
    let Some(peer) = peer() else {
        eprintln!("left out: there is no Valkey");
        return;
    };
    let Some(server) = ENGINES
        .into_iter()
        .find_map(|engine| Server::start(engine, 64, Settings::default()))
    else {
        return;
    };
    let (mut theirs, mut ours) = (Conn::new(peer.1), Conn::new(server.addr()));
    let first = number("TIDEWIRE_COMPARE_SEED", 1);
    let mut wrong = Vec::new();
    for seed in first..first + number("TIDEWIRE_COMPARE_CASES", 40) {
        let mut rng = Rng::with_seed(seed);
        for conn in [&mut theirs, &mut ours] {
            conn.ask(&words("FLUSHALL"));
            let policy = ["noeviction", "allkeys-lfu"][usize::from(seed % 4 != 0)];
            conn.ask(&words(&format!("CONFIG SET maxmemory-policy {policy}")));
        }
        for _ in 0..LENGTH {
            let mut command = Args::new();
            generate::expand(rng.choice(DIRECT).unwrap(), &mut rng, &mut command);
            let left = as_either(&command, &ours.ask(&command));
            let right = as_either(&command, &theirs.ask(&command));
            if left != right {
                let words: Vec<String> = command
                    .iter()
                    .map(|arg| arg.escape_ascii().to_string())
                    .collect();
                wrong.push(format!(
                    "seed {seed}: {}\n  here:  {}\n  there: {}",
                    words.join(" "),
                    String::from_utf8_lossy(&left),
                    String::from_utf8_lossy(&right)
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}
