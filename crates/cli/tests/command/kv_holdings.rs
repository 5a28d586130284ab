//! What clients make the key-value server hold, against what the kernel says: for each kind of holding memory, by one client
//! and by a hundred, resident memory grows by at most 1.3 times of what INFO and CLIENT LIST say.
//!
//! A few kinds run with `cargo test`; all of them with
//! `cargo test -p tidewire-cli --test command -- --ignored --nocapture kv_holdings`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::{PATIENCE, Running, addr, resident};

const MIB: usize = 1 << 20;
/// What clients are to hold together in one run; bytes.
const TOTAL: usize = 64 * MIB;
/// Resident memory that may come beside it: tables of the loop, buffers that were freed and are kept for the next.
const SLACK: usize = 24 * MIB;
/// What all clients may hold.
const BOUND: usize = 1024 * MIB;

type Words = Vec<Vec<u8>>;

/// A way of holding memory: its name, what each client says first, and then once for `share` bytes.
struct Kind {
    name: &'static str,
    first: &'static [&'static str],
    hold: Hold,
}

/// What a client sends. `{}` in a word is another word each time, of some length.
enum Hold {
    /// One command with many short words: the words before them, the words behind.
    Many(&'static str, &'static str),
    /// One command with a few long words.
    Long(&'static str, &'static str),
    /// One command again and again, with a long word in it; so many words of so many bytes.
    Again(&'static str, usize),
    /// The beginning of a command with many arguments, or with a long one.
    HalfMany,
    HalfLong,
    /// A reply that stays unread.
    Unread(&'static str),
}

use Hold::{Again, HalfLong, HalfMany, Long, Many, Unread};

const fn kind(name: &'static str, first: &'static [&'static str], hold: Hold) -> Kind {
    Kind { name, first, hold }
}

const SLOW: &[&str] = &[
    "CONFIG SET slowlog-log-slower-than 0",
    "CONFIG SET slowlog-max-len 20000",
];
const LIMITED: &[&str] = &[
    "ACL SETUSER limited on nopass ~x +@all",
    "CONFIG SET acllog-max-len 20000",
    "AUTH limited x",
];
const PATTERNS: &[&str] = &["CONFIG SET pubsub-patterns-limit 1gb"];
const TRACKS: &[&str] = &["CLIENT TRACKING ON"];
const OPTIN: &[&str] = &["CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES"];
const BCAST: &[&str] = &[];
const MULTI: &[&str] = &["MULTI"];

const KINDS: &[Kind] = &[
    kind("SUBSCRIBE, many", &[], Many("SUBSCRIBE", "")),
    kind("SUBSCRIBE, long", &[], Long("SUBSCRIBE", "")),
    kind("SUBSCRIBE, one by one", &[], Again("SUBSCRIBE {}", 1_000)),
    kind("SSUBSCRIBE, many", &[], Many("SSUBSCRIBE", "")),
    kind("SSUBSCRIBE, long", &[], Long("SSUBSCRIBE", "")),
    kind("PSUBSCRIBE, many", PATTERNS, Many("PSUBSCRIBE", "")),
    kind(
        "PSUBSCRIBE, one by one",
        PATTERNS,
        Again("PSUBSCRIBE {}*", 10_000),
    ),
    kind("BLPOP, many", &[], Many("BLPOP", "0")),
    kind("BLPOP, long", &[], Long("BLPOP", "0")),
    kind("BRPOP, many", &[], Many("BRPOP", "0")),
    kind("BRPOP, long", &[], Long("BRPOP", "0")),
    kind("BLMOVE, long", &[], Long("BLMOVE", "LEFT LEFT 0")),
    kind("BRPOPLPUSH, long", &[], Long("BRPOPLPUSH", "0")),
    kind("BLMPOP, many", &[], Many("BLMPOP 0 #", "LEFT")),
    kind("BLMPOP, long", &[], Long("BLMPOP 0 #", "LEFT")),
    kind("BZPOPMIN, many", &[], Many("BZPOPMIN", "0")),
    kind("BZPOPMIN, long", &[], Long("BZPOPMIN", "0")),
    kind("BZPOPMAX, many", &[], Many("BZPOPMAX", "0")),
    kind("BZPOPMAX, long", &[], Long("BZPOPMAX", "0")),
    kind("BZMPOP, many", &[], Many("BZMPOP 0 #", "MIN")),
    kind("BZMPOP, long", &[], Long("BZMPOP 0 #", "MIN")),
    kind("XREAD, many", &[], Many("XREAD BLOCK 0 STREAMS", "$#")),
    kind("XREAD, long", &[], Long("XREAD BLOCK 0 STREAMS", "$#")),
    kind(
        "BLMOVE, from the right",
        &[],
        Long("BLMOVE", "RIGHT LEFT 0"),
    ),
    kind("WATCH, many", &[], Many("WATCH", "")),
    kind("WATCH, long", &[], Long("WATCH", "")),
    kind("WATCH, one by one", &[], Again("WATCH {}", 1_000)),
    kind("MULTI, SET, long", MULTI, Again("SET k {}", 100_000)),
    kind("MULTI, SET, short", MULTI, Again("SET k {}", 10)),
    kind("MULTI, PING", MULTI, Again("PING", 1)),
    kind("MULTI, DEL, many", MULTI, Many("DEL", "")),
    kind("MULTI, EVAL", MULTI, Again("EVAL {} 0", 100_000)),
    kind("MULTI, PUBLISH", MULTI, Again("PUBLISH c {}", 100_000)),
    kind("MULTI, SUBSCRIBE", MULTI, Long("SUBSCRIBE", "")),
    kind("CLIENT TRACKING, MGET of many", TRACKS, Many("MGET", "")),
    kind("CLIENT TRACKING, MGET of long", TRACKS, Long("MGET", "")),
    kind("CLIENT TRACKING, GET", TRACKS, Again("GET {}", 1_000)),
    kind("CLIENT TRACKING, EXISTS", TRACKS, Many("EXISTS", "")),
    kind(
        "CLIENT TRACKING, HGETALL",
        TRACKS,
        Again("HGETALL {}", 10_000),
    ),
    kind("CLIENT TRACKING, SINTER", TRACKS, Many("SINTER", "")),
    kind("CLIENT TRACKING, OPTIN", OPTIN, Many("MGET", "")),
    kind(
        "CLIENT TRACKING, PREFIX, long",
        BCAST,
        Again("CLIENT TRACKING ON BCAST PREFIX {}", 1_000_000),
    ),
    kind(
        "CLIENT TRACKING, PREFIX, short",
        BCAST,
        Again("CLIENT TRACKING ON BCAST PREFIX {}", 70_000),
    ),
    kind("half a command, many", &[], HalfMany),
    kind("half a command, long", &[], HalfLong),
    kind(
        "unread GET",
        &["SETRANGE big 60000000 x"],
        Unread("GET big"),
    ),
    kind("unread ECHO", &[], Unread("ECHO {}")),
    kind(
        "unread LRANGE",
        &["EVAL for~n=1,60~do~redis.call('rpush','l',string.rep('x',1000000))~end 0"],
        Unread("LRANGE l 0 -1"),
    ),
    kind(
        "unread EVAL",
        &[],
        Unread("EVAL return~string.rep('x',30000000) 0"),
    ),
    kind(
        "unread KEYS",
        &["EVAL for~n=1,60~do~redis.call('set',string.rep('x',1000000)..n,'')~end 0"],
        Unread("KEYS *"),
    ),
    kind("CLIENT SETNAME", &[], Again("CLIENT SETNAME {}", 1_000)),
    kind(
        "CLIENT SETINFO",
        &[],
        Again("CLIENT SETINFO LIB-NAME {}", 1_000),
    ),
    kind("HELLO SETNAME", &[], Again("HELLO 3 SETNAME {}", 1_000)),
    kind(
        "SLOWLOG, a long name",
        SLOW,
        Again("CLIENT SETNAME {}", 1_000_000),
    ),
    kind("SLOWLOG, long arguments", SLOW, Again("GET {}", 100_000)),
    kind(
        "SLOWLOG, many arguments",
        SLOW,
        Again(
            "MGET a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee ff gg hh {}",
            1_000,
        ),
    ),
    kind("ACL LOG, keys", LIMITED, Again("GET {}", 10_000)),
    kind("ACL LOG, names", LIMITED, Again("AUTH {} x", 10_000)),
    kind(
        "errors of one word",
        &[],
        Again("EVAL return{err=string.rep('A',{})} 0", 7),
    ),
    kind("SCRIPT LOAD", &[], Again("SCRIPT LOAD return'{}'", 100_000)),
    kind("EVAL", &[], Again("EVAL return'{}' 0", 100_000)),
    kind(
        "CONFIG SET requirepass",
        &[],
        Again("CONFIG GET {}", 100_000),
    ),
    kind("an unknown command", &[], Again("NONE {}", 100_000)),
    kind("PUBLISH to nobody", &[], Again("PUBLISH {} x", 100_000)),
];

/// Kinds that `cargo test` tries: each is of another part of the account.
const SOME: &[&str] = &[
    "SUBSCRIBE, many",
    "BLPOP, many",
    "WATCH, long",
    "CLIENT TRACKING, MGET of many",
    "CLIENT TRACKING, PREFIX, long",
    "half a command, many",
    "SLOWLOG, a long name",
];

#[test]
fn resident_memory_grows_by_what_is_said() {
    let some = KINDS.iter().filter(|kind| SOME.contains(&kind.name));
    let wrong: Vec<String> = some.filter_map(|kind| compare(kind, 1)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "takes minutes"]
fn resident_memory_grows_by_what_is_said_for_64_kinds() {
    assert_eq!(KINDS.len(), 64);
    let each = KINDS
        .iter()
        .flat_map(|kind| [compare(kind, 1), compare(kind, 100)]);
    let wrong: Vec<String> = each.flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with what is said of a kind, held by so many clients.
fn compare(kind: &Kind, clients: usize) -> Option<String> {
    let mut server = Running::start(&[
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=127.0.0.1:0",
        "--workers",
        "1",
        "--kv-maxmemory-clients",
        "1GiB",
    ]);
    let at = addr(&server.line());
    let mut watch = Client::connect(at);
    let mut all: Vec<Client> = (0..clients).map(|_| Client::connect(at)).collect();
    for client in &mut all {
        for line in kind.first {
            client.ask(&words(line));
        }
    }
    let (before, was) = (resident(server.pid()), watch.said());
    for (n, client) in all.iter_mut().enumerate() {
        client.hold(&kind.hold, n, TOTAL / clients);
    }
    // What the last has sent is there when the server has nothing more to read.
    let (mut grown, mut said) = (0, 0);
    for _ in 0..100 {
        let (now, more) = (
            resident(server.pid()).saturating_sub(before),
            watch.said().saturating_sub(was),
        );
        if (now, more) == (grown, said) {
            break;
        }
        (grown, said) = (now, more);
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let shown = format!(
        "{}, {clients} clients: grown by {} MiB, said {} MiB",
        kind.name,
        grown / MIB,
        said / MIB
    );
    println!("{shown}");
    let fits = grown as f64 <= 1.3 * said as f64 + SLACK as f64 && said <= BOUND + SLACK;
    (!fits).then_some(shown)
}

/// Words with spaces between; `~` is a space within one.
fn words(line: &str) -> Words {
    let words = line.split(' ').filter(|word| !word.is_empty());
    words
        .map(|word| word.replace('~', " ").into_bytes())
        .collect()
}

fn pack(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(at: SocketAddr) -> Client {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(BufReader::new(socket));
        client.ask(&words("HELLO 3"));
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        // The client may be cut meanwhile: that is a bound.
        let _ = self.0.get_mut().write_all(bytes);
    }

    fn ask(&mut self, words: &[Vec<u8>]) -> Option<Vec<u8>> {
        self.send(&pack(words));
        self.reply()
    }

    /// The next reply, a text as that and of others their parts; `None` if it was cut.
    fn reply(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        let mut bytes = Vec::new();
        if self.0.read_until(b'\n', &mut bytes).ok()? == 0 {
            return None;
        }
        line.push_str(&String::from_utf8_lossy(&bytes));
        let number = line[1..].trim_end().parse::<i64>().unwrap_or(-1);
        match line.as_bytes()[0] {
            b'$' | b'=' if number >= 0 => {
                let mut text = vec![0; number as usize + 2];
                self.0.read_exact(&mut text).ok()?;
                Some(text)
            }
            b'*' | b'>' | b'~' => {
                for _ in 0..number {
                    self.reply()?;
                }
                Some(Vec::new())
            }
            b'%' => {
                for _ in 0..2 * number {
                    self.reply()?;
                }
                Some(Vec::new())
            }
            _ => Some(bytes),
        }
    }

    /// What INFO says is used; bytes.
    fn said(&mut self) -> usize {
        let info = self.ask(&words("INFO memory")).expect("INFO");
        let info = String::from_utf8(info).unwrap();
        let field = |name: &str| -> usize {
            let value = info.lines().find_map(|line| line.strip_prefix(name));
            value.unwrap().parse().unwrap()
        };
        field("used_memory:") + field("used_memory_overhead:")
    }

    fn hold(&mut self, hold: &Hold, client: usize, share: usize) {
        let word = |n: usize, len: usize| -> Vec<u8> {
            let mut word = format!("{client}:{n}:").into_bytes();
            word.resize(len.max(word.len()), b'x');
            word
        };
        match *hold {
            Many(before, behind) | Long(before, behind) => {
                // A short word takes some hundreds of bytes where it stays.
                let (count, len) = match hold {
                    Many(..) => ((share / 400).max(2), 20),
                    _ => (2, share / 4),
                };
                let mut all: Words = Vec::new();
                for part in words(before) {
                    all.push(if part == b"#" {
                        count.to_string().into()
                    } else {
                        part
                    });
                }
                all.extend((0..count).map(|n| word(n, len)));
                for part in words(behind) {
                    match &part[..] {
                        b"$#" => all.extend((0..count).map(|_| b"$".to_vec())),
                        _ => all.push(part),
                    }
                }
                self.send(&pack(&all));
                let waits = before.starts_with('B') || before.starts_with('X');
                if waits {
                    return;
                }
                let replies = if before.contains("SUBSCRIBE") {
                    count
                } else {
                    1
                };
                // In a transaction there is one.
                for _ in 0..replies {
                    let Some(reply) = self.reply() else { return };
                    if reply.starts_with(b"+QUEUED") {
                        break;
                    }
                }
            }
            Again(line, len) => {
                let times = (share / (len + 200)).clamp(1, 20_000);
                for n in 0..times {
                    let text = String::from_utf8(word(n, len)).unwrap();
                    let filled: Words = words(line)
                        .into_iter()
                        .map(|part| {
                            String::from_utf8(part)
                                .unwrap()
                                .replace("{}", &text)
                                .into_bytes()
                        })
                        .collect();
                    if self.ask(&filled).is_none() {
                        return;
                    }
                }
            }
            HalfMany => {
                let count = share / 15;
                let mut bytes = format!("*{}\r\n", count + 1).into_bytes();
                (0..count).for_each(|_| bytes.extend_from_slice(b"$1\r\nx\r\n"));
                self.send(&bytes);
            }
            HalfLong => {
                let mut bytes = format!("*2\r\n$3\r\nGET\r\n${share}\r\n").into_bytes();
                bytes.resize(bytes.len() + share - 1, b'x');
                self.send(&bytes);
            }
            Unread(line) => {
                let text = String::from_utf8(word(0, share)).unwrap();
                let filled: Words = words(line)
                    .into_iter()
                    .map(|part| {
                        String::from_utf8(part)
                            .unwrap()
                            .replace("{}", &text)
                            .into_bytes()
                    })
                    .collect();
                // A hundred times all of it would be more than all may hold.
                if client < 4 {
                    self.send(&pack(&filled));
                }
            }
        }
    }
}
