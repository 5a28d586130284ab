//! `tidewire kv import`.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidewire_kv::commands::{Spec, find, find_logged};
use tidewire_kv::durable::snapshot::{Keeper, Running};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::service::library_name;
use tidewire_kv::store::Store;
use tidewire_rdb::{Decoder, Item, Key, Value};

use super::login::Login;
use crate::exit::Failure;
use crate::size::Size;

/// The text below the options.
const EXAMPLES: &str = "\
Examples:
  tidewire kv import dump.rdb --to 127.0.0.1:6379
  tidewire kv import dump.rdb --data /var/lib/tidewire

Dumps of Redis and Valkey up to version 12, and of Valkey 9, are read, in every encoding of strings, lists, sets, \
hashes, sorted sets and streams, and libraries of functions; in a stream's groups, pending \
entries that were deleted are left out. Data of modules, hashes whose fields expire, and a key that comes twice are \
refused, and the key is named; keys before it are imported. Expired keys are left out.";

/// What to put where.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The dump
    file: PathBuf,
    /// A running server
    #[arg(
        long,
        value_name = "ADDR",
        required_unless_present = "data",
        conflicts_with = "data"
    )]
    to: Option<String>,
    /// Directory of the data of a server that is not running and has no keys
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    login: Login,
    /// Most memory that one key of the dump may take while it is read: a small dump can hold a large one
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    key_max: Size,
    /// Replaces keys that the running server has
    #[arg(long, requires = "to")]
    replace: bool,
}

/// Bytes that are read at once at first; as many as a key needs later.
const PIECE: usize = 1 << 20;
/// Elements of one command.
const ELEMENTS: usize = 256;
/// Bytes of elements after which a command ends.
const BYTES: usize = 1 << 20;

/// A target that takes commands.
trait Target {
    /// Runs a command in a database; returns the fault, if any.
    fn command(&mut self, database: u32, args: &[&[u8]]) -> Result<(), Failure>;

    /// Puts a library of functions in.
    fn library(&mut self, text: &[u8]) -> Result<(), Failure>;
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = File::open(&args.file)
        .map_err(|e| Failure::failed(format!("cannot read {}: {e}", args.file.display())))?;
    let counts = match (&args.to, &args.data) {
        (Some(to), _) => {
            let mut server = Server::connect(to, args.login.command()?, args.replace)?;
            let counts = import(args, file, &mut server)?;
            server.settle()?;
            counts
        }
        (None, Some(data)) => into_directory(args, file, data)?,
        (None, None) => {
            return Err(Failure::usage(
                "give --to (a running server) or --data (a directory)",
            ));
        }
    };
    say!(
        "imported    {} keys, {} expired ones were left out",
        counts.keys,
        counts.expired
    );
    Ok(())
}

#[derive(Default)]
struct Counts {
    keys: u64,
    expired: u64,
}

/// Names that were there, by two keyed hashes of each: a file may have more of them than memory has room for.
#[derive(Default)]
struct Names {
    seen: HashSet<(u64, u64)>,
    hashes: (RandomState, RandomState),
}

impl Names {
    /// Whether a key is the first of its name; a server would make one list of two, say.
    fn is_first(&mut self, key: &Key) -> bool {
        let name = (key.database, &key.key);
        let (one, other) = &self.hashes;
        self.seen.insert((one.hash_one(name), other.hash_one(name)))
    }
}

/// Imports the file; if that fails, says what of it stays.
fn import(args: &Args, file: File, target: &mut impl Target) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    match import_counting(args, file, target, &mut counts) {
        Ok(()) => Ok(counts),
        Err(failure) if counts.keys == 0 => Err(failure),
        Err(failure) => Err(Failure {
            message: format!(
                "{}; up to {} earlier keys were imported and stay",
                failure.message, counts.keys
            ),
            ..failure
        }),
    }
}

/// Reads the file a key at a time.
fn import_counting(
    args: &Args,
    file: File,
    target: &mut impl Target,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let wrong = |why: String| Failure::wrong(format!("{}: {why}", args.file.display()));
    let unread =
        |e: io::Error| Failure::failed(format!("cannot read {}: {e}", args.file.display()));
    let mut names = Names::default();
    let mut decoder = Decoder::default().with_key_max(args.key_max.0 as usize);
    let (mut bytes, mut from, mut more) = (Vec::new(), 0, true);
    loop {
        match decoder
            .next(&bytes[from..])
            .map_err(|e| wrong(e.to_string()))?
        {
            Some((used, item)) => {
                from += used;
                match item {
                    Item::Key(key) if key.deadline_ms.is_some_and(|at| at <= super::now_ms()) => {
                        counts.expired += 1;
                    }
                    Item::Key(key) if !names.is_first(&key) => {
                        let (name, database) = (key.key.escape_ascii(), key.database);
                        return Err(wrong(format!(
                            "the key {name} of database {database} comes twice"
                        )));
                    }
                    Item::Key(key) => {
                        put(&key, target)?;
                        counts.keys += 1;
                    }
                    Item::End => return Ok(()),
                    Item::Library(text) => target.library(&text)?,
                    Item::Skipped(_) => {}
                }
            }
            None if !more => {
                return Err(wrong(
                    "the file ends too early: make or copy the dump again".into(),
                ));
            }
            None => {
                bytes.drain(..from);
                from = 0;
                // Twice as many each time, so that a long key is not looked at for each piece.
                let wanted = PIECE.max(bytes.len()) as u64;
                let read = (&file).take(wanted).read_to_end(&mut bytes);
                more = read.map_err(unread)? > 0;
            }
        }
    }
}

fn put(key: &Key, target: &mut impl Target) -> Result<(), Failure> {
    let name = &key.key[..];
    let database = key.database;
    let deadline = key.deadline_ms.map(|at| at.to_string());
    if let Value::Stream(stream) = &key.value {
        put_stream(key, stream, target)?;
        return match &deadline {
            Some(at) => target.command(database, &[b"PEXPIREAT", name, at.as_bytes()]),
            None => Ok(()),
        };
    }
    if let Value::String(s) = &key.value {
        return match &deadline {
            None => target.command(database, &[b"SET", name, s]),
            Some(at) => target.command(database, &[b"SET", name, s, b"PXAT", at.as_bytes()]),
        };
    }
    let scores: Vec<String>;
    let (command, each, elements): (&[u8], usize, Vec<&[u8]>) = match &key.value {
        Value::String(_) | Value::Stream(_) => return Ok(()),
        Value::List(all) => (b"RPUSH", 1, all.iter().map(|x| &x[..]).collect()),
        Value::Set(all) => (b"SADD", 1, all.iter().map(|x| &x[..]).collect()),
        Value::Hash(all) => {
            let pairs = all.iter().flat_map(|(field, value)| [&field[..], value]);
            (b"HSET", 2, pairs.collect())
        }
        Value::ZSet(all) => {
            // The shortest text that parses to the same number.
            scores = all.iter().map(|(_, score)| score.to_string()).collect();
            let pairs = all.iter().zip(&scores);
            let pairs = pairs.flat_map(|((member, _), score)| [score.as_bytes(), member]);
            (b"ZADD", 2, pairs.collect())
        }
    };
    let mut rest = &elements[..];
    while !rest.is_empty() {
        let (mut n, mut bytes) = (0, 0);
        while n < rest.len() && n < ELEMENTS && bytes < BYTES {
            bytes += rest[n..n + each].iter().map(|x| x.len()).sum::<usize>();
            n += each;
        }
        let (these, others) = rest.split_at(n);
        target.command(database, &[&[command, name], these].concat())?;
        rest = others;
    }
    match &deadline {
        Some(at) => target.command(database, &[b"PEXPIREAT", name, at.as_bytes()]),
        None => Ok(()),
    }
}

/// Stores a stream as its entries and groups, with the commands that would have made the stream. Deleted
/// entries that a consumer still holds cannot be stored, and consumers count as seen now.
fn put_stream(
    key: &Key,
    stream: &tidewire_rdb::Stream,
    target: &mut impl Target,
) -> Result<(), Failure> {
    let name = &key.key[..];
    let text = |(ms, seq): tidewire_rdb::Id| format!("{ms}-{seq}");
    let mut run = |args: &[&[u8]]| target.command(key.database, args);
    for (id, pairs) in &stream.entries {
        let id = text(*id);
        let mut args = vec![&b"XADD"[..], name, id.as_bytes()];
        args.extend(pairs.iter().map(|text| &text[..]));
        run(&args)?;
    }
    if stream.entries.is_empty() {
        // No other commands make a stream without entries and without groups.
        run(&[b"XADD", name, b"0-1", b"a", b"b"])?;
        run(&[b"XTRIM", name, b"MAXLEN", b"0"])?;
    }
    let (last, deleted, added) = (
        text(stream.last),
        text(stream.max_deleted),
        stream.added.to_string(),
    );
    run(&[
        b"XSETID",
        name,
        last.as_bytes(),
        b"ENTRIESADDED",
        added.as_bytes(),
        b"MAXDELETEDID",
        deleted.as_bytes(),
    ])?;
    for group in &stream.groups {
        let (of, last) = (&group.name[..], text(group.last));
        let read = group.read.map_or("-1".to_owned(), |read| read.to_string());
        run(&[
            b"XGROUP",
            b"CREATE",
            name,
            of,
            last.as_bytes(),
            b"ENTRIESREAD",
            read.as_bytes(),
        ])?;
        for consumer in &group.consumers {
            run(&[b"XGROUP", b"CREATECONSUMER", name, of, &consumer.name])?;
            for (id, ms, count) in &consumer.pending {
                let (id, ms, count) = (text(*id), ms.to_string(), count.to_string());
                run(&[
                    b"XCLAIM",
                    name,
                    of,
                    &consumer.name,
                    b"0",
                    id.as_bytes(),
                    b"TIME",
                    ms.as_bytes(),
                    b"RETRYCOUNT",
                    count.as_bytes(),
                    b"FORCE",
                    b"JUSTID",
                ])?;
            }
        }
    }
    Ok(())
}

/// A store that no server has.
struct Directory(Arc<Store>);

/// Between two tries when the log is busy, and how long it may be.
const AGAIN: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

impl Target for Directory {
    fn command(&mut self, database: u32, args: &[&[u8]]) -> Result<(), Failure> {
        let spec = find(args[0]).ok_or_else(|| Failure::wrong("a command that does not exist"))?;
        let db = u16::try_from(database).ok();
        let db = db.filter(|db| *db < self.0.databases());
        let db = db.ok_or_else(|| Failure::wrong(format!("there is no database {database}")))?;
        self.run(spec, db, args)
    }

    fn library(&mut self, text: &[u8]) -> Result<(), Failure> {
        let name = library_name(text)
            .map_err(|error| Failure::wrong(String::from_utf8_lossy(&error.0).into_owned()))?;
        let spec = find_logged(b"function").expect("the log has it");
        self.run(spec, 0, &[b"function", b"put", &name, text])
    }
}

impl Directory {
    fn run(&mut self, spec: &'static Spec, db: u16, args: &[&[u8]]) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let mut reply = Reply::new(Proto::Resp2);
            let _ = self
                .0
                .runner(super::now_ms(), 1)
                .run(spec, db, args, &mut reply);
            let said = String::from_utf8_lossy(reply.bytes()).trim().to_owned();
            match said.strip_prefix('-') {
                None => return Ok(()),
                Some(why) if why.starts_with("TRYAGAIN") && began.elapsed() < PATIENCE => {
                    thread::sleep(AGAIN);
                }
                Some(why) => return Err(Failure::wrong(why.to_owned())),
            }
        }
    }
}

fn into_directory(args: &Args, file: File, data: &std::path::Path) -> Result<Counts, Failure> {
    let opened = super::open(data, false)?;
    if opened.store.keys() > 0 {
        return Err(Failure::failed(format!(
            "the key-value store in {} has {} keys: start a server on it and import with --to",
            data.display(),
            opened.store.keys()
        )));
    }
    let store = Arc::new(opened.store);
    let counts = import(args, file, &mut Directory(store.clone()))?;
    let (log, kv_log) = (opened.log, opened.kv_log);
    let keeper = Keeper::new(log.clone(), kv_log.clone(), store, opened.found.snapshot);
    let failed = |why: String| Failure::wrong(format!("the keys cannot be made durable: {why}"));
    let running = Running::start(keeper).map_err(|e| failed(e.to_string()))?;
    let asked = kv_log.snapshots().ask();
    loop {
        let status = kv_log.snapshots().status();
        match status.outcome(asked) {
            Some(true) => break,
            Some(false) => {
                let why = status.failure.map(|why| why.to_string());
                return Err(failed(why.unwrap_or_default()));
            }
            None => thread::sleep(AGAIN),
        }
    }
    drop(running);
    log.close();
    Ok(counts)
}

/// A running server.
struct Server {
    /// The server's address, as given.
    to: String,
    /// Whether at least one reply has come.
    has_answered: bool,
    socket: BufReader<TcpStream>,
    requests: Vec<u8>,
    /// Replies that are still to come.
    owed: usize,
    database: Option<u32>,
    replace: bool,
    /// Name of the key that was put last: it is removed once.
    last: Vec<u8>,
}

/// Replies that may be outstanding, and bytes of requests that may wait.
const OWED: usize = 512;
const WAITING: usize = 256 << 10;
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(60);

impl Server {
    fn connect(to: &str, login: Option<Vec<String>>, replace: bool) -> Result<Server, Failure> {
        let connect = || {
            let socket = TcpStream::connect(to)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(SILENCE))?;
            socket.set_write_timeout(Some(SILENCE))?;
            io::Result::Ok(socket)
        };
        let socket =
            connect().map_err(|e| Failure::failed(format!("cannot connect to {to}: {e}; is `tidewire serve kv` running there? --to must name its kv listener")))?;
        let mut server = Server {
            to: to.to_owned(),
            has_answered: false,
            socket: BufReader::new(socket),
            requests: Vec::new(),
            owed: 0,
            database: None,
            replace,
            last: Vec::new(),
        };
        if let Some(login) = login {
            let login: Vec<&[u8]> = login.iter().map(String::as_bytes).collect();
            server.ask(&login)?;
        }
        Ok(server)
    }

    fn queue(&mut self, args: &[&[u8]]) {
        self.requests
            .extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            self.requests
                .extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            self.requests.extend_from_slice(arg);
            self.requests.extend_from_slice(b"\r\n");
        }
        self.owed += 1;
    }

    /// The first line of a reply. The requests here are answered with one line, with an id, or with a
    /// few lines.
    fn answer(&mut self) -> Result<String, Failure> {
        let first = self.line()?;
        let mut more = lines_behind(&first);
        while more > 0 {
            let line = self.line()?;
            more = more - 1 + lines_behind(&line);
        }
        Ok(first)
    }

    /// A line of a reply.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        let read = self.socket.read_line(&mut line);
        match read {
            Ok(0) => Err(self.broken("read from", &io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {
                self.has_answered = true;
                Ok(line.trim_end().to_owned())
            }
            Err(e) => Err(self.broken("read from", &e)),
        }
    }

    /// Why the connection cannot be used any more. A server of another protocol closes it without any answer.
    fn broken(&self, what: &str, error: &io::Error) -> Failure {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let to = &self.to;
        let is_closed = matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
        Failure::wrong(match (is_closed, self.has_answered) {
            (true, false) => format!(
                "{to} closed the connection without an answer: --to must name a listener of the Redis protocol without TLS \
                 (the line `listening service=kv mode=resp` of the server's output; port 6380 by default)"
            ),
            (true, true) => format!(
                "{to} closed the connection before everything was imported; the keys before that are imported"
            ),
            (false, _) => format!("cannot {what} {to}: {error}"),
        })
    }

    /// Sends what waits, and sees that all of it was done.
    fn settle(&mut self) -> Result<(), Failure> {
        let sent = self.socket.get_mut().write_all(&self.requests);
        sent.map_err(|e| self.broken("write to", &e))?;
        self.requests.clear();
        for _ in 0..std::mem::take(&mut self.owed) {
            let line = self.answer()?;
            if let Some(why) = line.strip_prefix('-') {
                return Err(Failure::wrong(format!("the server has refused: {why}")));
            }
        }
        Ok(())
    }

    fn ask(&mut self, args: &[&[u8]]) -> Result<String, Failure> {
        self.settle()?;
        self.queue(args);
        let sent = self.socket.get_mut().write_all(&self.requests);
        sent.map_err(|e| self.broken("write to", &e))?;
        self.requests.clear();
        self.owed = 0;
        let line = self.line()?;
        match line.strip_prefix('-') {
            Some(why) => Err(Failure::wrong(format!("the server has refused: {why}"))),
            None => Ok(line),
        }
    }

    fn select(&mut self, database: u32) -> Result<(), Failure> {
        self.ask(&[b"SELECT", database.to_string().as_bytes()])?;
        self.database = Some(database);
        self.last.clear();
        let keys = self.ask(&[b"DBSIZE"])?;
        if keys == ":0" || self.replace {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "database {database} of the server has {} keys: add --replace to replace them by the keys of the dump",
            keys.trim_start_matches(':')
        )))
    }
}

/// How many lines follow one of a reply: texts have one, as ids have no line ends.
fn lines_behind(line: &str) -> usize {
    match (line.as_bytes().first(), line.get(1..)) {
        (Some(b'*'), Some(n)) => n.parse().unwrap_or(0),
        (Some(b'$'), Some(n)) => usize::from(!n.starts_with('-')),
        _ => 0,
    }
}

impl Target for Server {
    fn command(&mut self, database: u32, args: &[&[u8]]) -> Result<(), Failure> {
        if self.database != Some(database) {
            self.select(database)?;
        }
        let key = if args[0] == b"XGROUP" {
            args[2]
        } else {
            args[1]
        };
        if self.replace && self.last != key {
            self.last = key.to_vec();
            self.queue(&[b"DEL", key]);
        }
        self.queue(args);
        if self.owed >= OWED || self.requests.len() >= WAITING {
            self.settle()?;
        }
        Ok(())
    }

    fn library(&mut self, text: &[u8]) -> Result<(), Failure> {
        if self.replace {
            self.queue(&[b"FUNCTION", b"LOAD", b"REPLACE", text]);
        } else {
            self.queue(&[b"FUNCTION", b"LOAD", text]);
        }
        self.settle()
    }
}
