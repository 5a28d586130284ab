//! Keys go from a real Redis to ours and back, in every encoding, as dumps.

use crate::common::kv;
#[path = "../../../kv/tests/common/valkey.rs"]
mod valkey;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kv::{Client, Reply};
use crate::common::{PATIENCE, Running, addr, run, stderr};
use tidewire_rdb::{Encoder, Value};

/// A Redis or Valkey that is killed at its end.
struct Redis {
    process: Child,
    client: Client,
    port: u16,
}

impl Redis {
    /// In a directory, with a dump there if it is to load one. `None` if there is none on this machine.
    fn start(program: &str, directory: &Path) -> Option<Redis> {
        let at = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let started = Command::new(program)
            .args(["--port", &at.port().to_string(), "--bind", "127.0.0.1"])
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--dbfilename",
                "dump.rdb",
                "--repl-diskless-sync-delay",
                "0",
            ])
            .arg("--dir")
            .arg(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("skipped: there is no {program}");
            return None;
        };
        let began = Instant::now();
        let client = loop {
            match Client::connect(at) {
                Ok(client) => break client,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        let port = at.port();
        Some(Redis {
            process,
            client,
            port,
        })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Small and large ones of every type, with numbers and text, in two databases.
fn fill(client: &mut Client) {
    let long = "x".repeat(3000);
    let mut lines = vec![
        "SET number 12345".to_owned(),
        "SET negative -7".to_owned(),
        "SET big 12345678901234".to_owned(),
        format!("SET compressed {long}"),
        "SET later there PXAT 4000000000000".to_owned(),
        "RPUSH small 1 two -300 70000 5000000000 -9000000000000 x".to_owned(),
        format!("RPUSH long {long} a {long} b"),
        "SADD integers 1 -2 30000 4000000 5000000000".to_owned(),
        "SADD words a b c 7".to_owned(),
        "HSET hash f 1 g two h -3".to_owned(),
        "ZADD zset 1 a 2.5 b -inf c +inf d 1024.125 e".to_owned(),
        "PEXPIREAT zset 4000000000001".to_owned(),
    ];
    for n in 0..600 {
        lines.push(format!("RPUSH biglist {n} text{n}"));
        lines.push(format!("SADD bigset m{n}"));
        lines.push(format!("SADD bigintegers {}", n * 7));
        lines.push(format!("HSET bighash f{n} v{n}"));
        lines.push(format!("ZADD bigzset {n}.25 m{n}"));
    }
    for n in 1..=250 {
        lines.push(format!(
            "XADD stream {n}-{n} f{} v{n} number {}",
            n % 2,
            n * 1000
        ));
    }
    let of_streams = [
        "XADD stream 251-9 long",
        "XDEL stream 3-3 250-250",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g c COUNT 20 STREAMS stream >",
        "XREADGROUP GROUP g d COUNT 5 STREAMS stream >",
        "XACK stream g 1-1 23-23",
        "XGROUP CREATE stream h 10-10",
        "XGROUP CREATECONSUMER stream h idle",
        "XGROUP CREATE empty e 5-5 MKSTREAM",
        "XADD gone 9-9 a b",
        "XDEL gone 9-9",
        "XADD plain 1-1 a b",
        "XADD plain 1-2 a b",
        "XGROUP CREATE plain g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS plain >",
        "PEXPIREAT plain 4000000000002",
    ];
    lines.extend(of_streams.map(|line| line.replace("long", &format!("a {long}"))));
    lines.push("SELECT 3".to_owned());
    lines.push("SET other database".to_owned());
    lines.push("SELECT 0".to_owned());
    client.send(&lines).unwrap();
    for line in &lines {
        let reply = client.reply().unwrap();
        let failed = matches!(&reply, Reply::Line(text) if text.starts_with("ERR"));
        assert!(!failed, "{line}: {reply:?}");
    }
}

/// All there is, in an order of its own.
fn all(client: &mut Client) -> Vec<String> {
    let mut found = Vec::new();
    for db in [0, 3] {
        client.ask(&format!("SELECT {db}")).unwrap();
        let Reply::Array(keys) = client.ask("KEYS *").unwrap() else {
            panic!("no keys")
        };
        for key in keys.into_iter().map(kv::text) {
            let Reply::Line(kind) = client.ask(&format!("TYPE {key}")).unwrap() else {
                panic!("no type")
            };
            let mut value = match &kind[..] {
                "string" => vec![client.ask(&format!("GET {key}")).unwrap()],
                "list" => elements(client, &format!("LRANGE {key} 0 -1")),
                "zset" => elements(client, &format!("ZRANGE {key} 0 -1 WITHSCORES")),
                "set" => elements(client, &format!("SMEMBERS {key}")),
                "stream" => stream(client, &key),
                _ => elements(client, &format!("HGETALL {key}")),
            };
            if kind == "hash" || kind == "set" {
                // Lines that belong together have one number.
                value.sort_by_key(|value| format!("{value:?}"));
            }
            let deadline = client.ask(&format!("PEXPIRETIME {key}")).unwrap();
            found.push(format!("{db} {key} {kind} {deadline:?} {value:?}"));
        }
    }
    client.ask("SELECT 0").unwrap();
    found.sort();
    found
}

/// The entries, the counters of removed entries, and the groups.
fn stream(client: &mut Client, key: &str) -> Vec<Reply> {
    let mut all = elements(client, &format!("XRANGE {key} - +"));
    all.extend(elements(client, &format!("XINFO STREAM {key}")).drain(6..14));
    all.extend(elements(client, &format!("XINFO GROUPS {key}")));
    all.extend(client.ask(&format!("XPENDING {key} g")));
    all
}

/// Says of the first that differs, and not of all.
fn same(found: &[String], expected: &[String]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(found == expected, "{found:.300} and not {expected:.300}");
    }
    assert_eq!(found.len(), expected.len());
}

fn elements(client: &mut Client, line: &str) -> Vec<Reply> {
    match client.ask(line).unwrap() {
        Reply::Array(elements) => elements,
        other => panic!("{other:?}"),
    }
}

fn ours(data: &Path, more: &[&str]) -> (Running, String) {
    let data = data.to_string_lossy();
    let args = ["serve", "kv/resp", "--listen", "kv/resp=0", "--data", &data];
    let mut running = Running::start(&[&args[..], more].concat());
    let line = running.line();
    let at = addr(&line).to_string();
    (running, at)
}

const SYNC: &[&str] = &["--durability", "sync"];

#[test]
fn a_dump_of_redis_is_imported_and_redis_loads_what_is_exported() {
    there_and_back("redis-server");
}

#[test]
fn a_dump_of_valkey_is_imported_and_valkey_loads_what_is_exported() {
    match valkey::valkey() {
        Some(program) => there_and_back(&program),
        None => eprintln!("skipped: there is no Valkey"),
    }
}

/// A dump that is not on the server's disk, but fetched by `redis-cli --rdb`, as a replica would.
#[test]
fn what_redis_cli_has_fetched_is_imported() {
    let place = tempfile::tempdir().unwrap();
    for program in [Some("redis-server".to_owned()), valkey::valkey()] {
        let started = program.and_then(|program| Redis::start(&program, place.path()));
        let Some(mut redis) = started else {
            continue;
        };
        fill(&mut redis.client);
        let expected = all(&mut redis.client);
        let dump = place.path().join("fetched.rdb");
        let dump = dump.to_str().unwrap();
        let port = redis.port.to_string();
        let fetched = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port, "--rdb", dump])
            .output();
        let Ok(fetched) = fetched else {
            return eprintln!("skipped: there is no redis-cli");
        };
        assert!(fetched.status.success(), "{fetched:?}");
        let nothing = tempfile::tempdir().unwrap();
        let (_running, at) = ours(nothing.path(), &[]);
        let imported = run(&["kv", "import", dump, "--to", &at]);
        assert!(imported.status.success(), "{}", stderr(&imported));
        let mut client = Client::connect(at.parse().unwrap()).unwrap();
        same(&all(&mut client), &expected);
    }
}

fn there_and_back(program: &str) {
    let place = tempfile::tempdir().unwrap();
    let theirs = place.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let Some(mut redis) = Redis::start(program, &theirs) else {
        return;
    };
    fill(&mut redis.client);
    let expected = all(&mut redis.client);
    assert!(expected.len() > 15);
    assert_eq!(redis.client.ask("SAVE").unwrap(), Reply::Line("OK".into()));
    drop(redis);
    let dump = theirs.join("dump.rdb").to_string_lossy().into_owned();

    // Into a server that runs.
    let nothing = tempfile::tempdir().unwrap();
    let (_running, at) = ours(nothing.path(), &[]);
    let imported = run(&["kv", "import", &dump, "--to", &at]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let mut client = Client::connect(at.parse().unwrap()).unwrap();
    same(&all(&mut client), &expected);
    let again = run(&["kv", "import", &dump, "--to", &at]);
    assert!(stderr(&again).contains("--replace"), "{}", stderr(&again));
    let again = run(&["kv", "import", &dump, "--to", &at, "--replace"]);
    assert!(again.status.success(), "{}", stderr(&again));
    same(&all(&mut client), &expected);

    // Into a directory, from which a server starts.
    let data = place.path().join("data").to_string_lossy().into_owned();
    let imported = run(&["kv", "import", &dump, "--data", &data]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let again = run(&["kv", "import", &dump, "--data", &data]);
    assert!(stderr(&again).contains("--to"), "{}", stderr(&again));
    let (running, at) = ours(Path::new(&data), SYNC);
    let mut client = Client::connect(at.parse().unwrap()).unwrap();
    same(&all(&mut client), &expected);
    let busy = run(&["kv", "export", "--data", &data, "never.rdb"]);
    assert!(stderr(&busy).contains("backup"), "{}", stderr(&busy));
    let _ = client.ask("SHUTDOWN");
    assert!(running.end().status.success());

    // The way back: from this store to a real server.
    let back = place.path().join("back");
    fs::create_dir(&back).unwrap();
    let out = back.join("dump.rdb").to_string_lossy().into_owned();
    let exported = run(&["kv", "export", "--data", &data, &out]);
    assert!(exported.status.success(), "{}", stderr(&exported));
    let mut redis = Redis::start(program, &back).unwrap();
    let began = Instant::now();
    while redis.client.ask("PING").unwrap() != Reply::Line("PONG".into()) {
        assert!(began.elapsed() < PATIENCE);
    }
    same(&all(&mut redis.client), &expected);
}

/// Redis does not load one either. Of two lists, one would be made.
#[test]
fn a_key_that_comes_twice_is_refused_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    let list = Value::List(vec![b"a".to_vec()]);
    for (database, key) in [(0, "twice"), (1, "twice"), (1, "once"), (1, "twice")] {
        encoder.key(database, key.as_bytes(), None, &list, &mut bytes);
    }
    encoder.end(&mut bytes);
    let dump = place.path().join("dump.rdb");
    fs::write(&dump, bytes).unwrap();
    let dump = dump.to_str().unwrap();
    let data = place.path().join("data").to_string_lossy().into_owned();
    let (_running, at) = ours(place.path(), &[]);
    for to in [["--data", &data], ["--to", &at]] {
        let refused = run(&[&["kv", "import", dump][..], &to].concat());
        let said = stderr(&refused);
        assert!(!refused.status.success());
        assert!(
            said.contains("the key twice of database 1 comes twice"),
            "{said}"
        );
        assert!(
            said.contains("up to 3 earlier keys were imported and stay"),
            "{said}"
        );
    }
}

#[test]
fn what_cannot_be_imported_is_refused_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("dump.rdb");
    let path = file.to_string_lossy().into_owned();
    let data = place.path().join("data").to_string_lossy().into_owned();
    for (bytes, says) in [
        (&b"REDIS0011\x07\x04feedxxxx"[..], "feed"),
        (b"no dump at all", "not the beginning"),
        (b"REDIS0011\x00\x01k", "ends too early"),
    ] {
        fs::write(&file, bytes).unwrap();
        let refused = run(&["kv", "import", &path, "--data", &data]);
        let said = stderr(&refused);
        assert!(!refused.status.success() && said.contains(says), "{said}");
    }
}

/// A dump of nothing that looks as if it were one of a server is found out when it is needed.
#[test]
fn a_directory_without_keys_of_a_server_is_not_exported_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    fs::create_dir(path("empty")).unwrap();
    for data in ["misspelt", "empty"] {
        let refused = run(&["kv", "export", "--data", &text(data), &text("dump.rdb")]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = stderr(&refused);
        assert!(said.contains("no key-value store in"), "{said}");
    }
    assert!(!path("misspelt").exists() && !path("dump.rdb").exists());
    assert_eq!(fs::read_dir(path("empty")).unwrap().count(), 0);
}

/// A disk that is full is such a place too: it may be tried again without a look by a person.
#[test]
fn an_export_that_cannot_be_written_has_the_status_of_what_could_not_be_done() {
    let directory = tempfile::tempdir().unwrap();
    let text = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (dump, data) = (text("dump.rdb"), text("data"));
    fs::write(&dump, b"REDIS0009\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0").unwrap();
    let imported = run(&["kv", "import", &dump, "--data", &data]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    // An import that cannot be read has that status, too: opening a directory succeeds.
    let refused = run(&["kv", "import", &text(""), "--data", &text("never")]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("cannot read"), "{refused:?}");
    let nowhere = text("missing/dump.rdb");
    let refused = run(&["kv", "export", "--data", &data, &nowhere]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = stderr(&refused);
    assert!(said.contains("was not made"), "{said}");
    let exported = run(&["kv", "export", "--data", &data, &text("other.rdb")]);
    assert!(exported.status.success(), "{}", stderr(&exported));
}

/// Two lists of 2 MiB, of zeros that were compressed.
#[test]
fn a_dump_that_takes_more_memory_than_it_may_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dump.rdb");
    let mut bytes = b"REDIS0009\x01\x01k\x02".to_vec();
    for _ in 0..2 {
        let packed = [&[0, 0][..], &[0xe0, 0xff, 0].repeat(8000)].concat();
        bytes.extend([0xc3, 0x80]);
        bytes.extend((packed.len() as u32).to_be_bytes());
        bytes.push(0x80);
        bytes.extend((1 + 8000 * 264_u32).to_be_bytes());
        bytes.extend(packed);
    }
    fs::write(&file, bytes).unwrap();
    let data = directory.path().join("data");
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let refused = run(&["kv", "import", file, "--data", data, "--key-max", "3MiB"]);
    assert!(stderr(&refused).contains("more memory"), "{refused:?}");
    let refused = run(&["kv", "import", file, "--data", data]);
    assert!(stderr(&refused).contains("ends too early"), "{refused:?}");
}
