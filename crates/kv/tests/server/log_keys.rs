//! Streams of the log of messages as keys: what every client reads of them, what waits, and what is refused.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{World, on_every_shape};
use crate::wire;
use tidewire::sim::PlainState;
use tidewire_kv::binary::{encode_read, encode_response, encode_write};
use tidewire_kv::service::{BinaryService, LogKeys};
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::tools::{loss, repair};
use tidewire_log::{
    Change, EmbeddedLog, Log, Now, ProducerId, Run, Settings, Step, StreamSettings, Writer,
};
use tidewire_pool::Pool;

/// A log on a simulated disk, whose writer moves when it is told to.
struct Home {
    disk: SimDisk,
    log: Arc<EmbeddedLog<SimDisk>>,
    writer: Writer<SimDisk>,
}

/// When records are received; microseconds.
const AT: u64 = 1_700_000_000_000_000;

impl Home {
    fn new() -> Home {
        Home::on(SimDisk::new(1))
    }

    fn on(disk: SimDisk) -> Home {
        let settings = Settings {
            segment_bytes: 16 << 10,
            group_bytes: 4 << 10,
            payload_max: 2 << 10,
            identity: Some(7),
            ..Settings::default()
        };
        let (log, writer, _) = EmbeddedLog::open(disk.clone(), settings).expect("the log");
        Home {
            disk,
            log: Arc::new(log),
            writer,
        }
    }

    /// Takes messages of a producer; with ids from 1 on for each call.
    fn append(&self, stream: &str, producer: &str, payloads: &[&str]) {
        let stream = self.log.stream(stream).expect("room");
        let producer = match producer {
            "" => ProducerId::ANONYMOUS,
            name => self.log.producer(stream, name).expect("room"),
        };
        let mut frames = Vec::new();
        for (at, payload) in payloads.iter().enumerate() {
            frames.extend_from_slice(&(at as u64 + 1).to_le_bytes());
            frames.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            frames.extend_from_slice(payload.as_bytes());
        }
        let run = Run {
            stream,
            producer,
            frames: &frames,
            count: payloads.len() as u32,
            last_id: payloads.len() as u64,
            timestamp_us: AT,
        };
        self.log.append(run).expect("room");
    }

    /// Has everything committed.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let now = Now {
                monotonic: Duration::ZERO,
                unix_us: AT,
            };
            if self.writer.step(now) != Step::Worked {
                return;
            }
        }
        panic!("the writer finds no end");
    }

    fn add(&mut self, stream: &str, payloads: &[&str]) {
        self.append(stream, "", payloads);
        self.settle();
    }

    fn keys(&self) -> LogKeys {
        LogKeys {
            prefix: b"log:".to_vec(),
            log: self.log.clone(),
            pool: Pool::inline(),
            reply_max: LogKeys::REPLY_MAX,
        }
    }

    /// A server that shows it.
    fn world(&self) -> World {
        let world = World::new();
        world.service.show_log(self.keys());
        world
    }
}

/// An entry of an anonymous message.
fn entry(position: u64, id: u64, payload: &str) -> String {
    let own = format!("{position}-1");
    let id = id.to_string();
    format!(
        "*2|${}|{own}|*6|$7|payload|${}|{payload}|$2|id|${}|{id}|$12|timestamp_us|$16|{AT}|",
        own.len(),
        payload.len(),
        id.len()
    )
}

#[test]
fn a_stream_is_read_as_any_other() {
    on_every_shape(|| {
        let mut home = Home::new();
        home.add("s", &["a", "bb"]);
        home.append("s", "ship", &["c"]);
        home.settle();
        let (a, b) = (entry(0, 1, "a"), entry(1, 2, "bb"));
        let c = entry(2, 1, "c").replacen("*6", "*8", 1) + "$8|producer|$4|ship|";
        let mut world = home.world();
        let w = &mut world;
        let mut x = w.client();
        w.check(&mut x, "XLEN log:s", ":3|");
        w.check(&mut x, "XRANGE log:s - +", &format!("*3|{a}{b}{c}"));
        w.check(&mut x, "XRANGE log:s 1 1", &format!("*1|{b}"));
        w.check(&mut x, "XRANGE log:s 1-1 2", &format!("*2|{b}{c}"));
        w.check(&mut x, "XRANGE log:s (0-1 (2-1", &format!("*1|{b}"));
        w.check(&mut x, "XRANGE log:s - + COUNT 1", &format!("*1|{a}"));
        w.check(&mut x, "XRANGE log:s 2-2 +", "*0|");
        w.check(&mut x, "XRANGE log:s - + COUNT 0", "*-1|");
        w.check(&mut x, "XREVRANGE log:s + -", &format!("*3|{c}{b}{a}"));
        w.check(&mut x, "XREVRANGE log:s + - COUNT 2", &format!("*2|{c}{b}"));
        let all = format!("*1|*2|$5|log:s|*3|{a}{b}{c}");
        w.check(&mut x, "XREAD STREAMS log:s 0", &all);
        w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s 0-0", &all);
        let some = format!("*1|*2|$5|log:s|*1|{b}");
        w.check(&mut x, "XREAD COUNT 1 STREAMS log:s 0-1", &some);
        w.check(&mut x, "XREAD COUNT 1 STREAMS log:s 1", &some);
        w.check(&mut x, "XREAD STREAMS log:s 2-1", "*-1|");
        w.check(&mut x, "XREAD STREAMS log:s $", "*-1|");
        w.check(&mut x, "XREAD STREAMS log:s 77", "*-1|");
        home.add("t", &["d"]);
        let both = format!("*2|*2|$5|log:s|*1|{c}*2|$5|log:t|*1|{}", entry(0, 1, "d"));
        w.check(&mut x, "XREAD STREAMS log:s log:no log:t 2 0 0", &both);
        // No such stream.
        w.check(&mut x, "XLEN log:no", ":0|");
        w.check(&mut x, "XRANGE log:no - +", "*0|");
        w.check(&mut x, "XREAD STREAMS log:no 0", "*-1|");
        w.check(&mut x, "XINFO STREAM log:no", "-ERR no such key|");
        w.check(&mut x, "EXISTS log:s log:s log:no", ":2|");
        w.check(&mut x, "TYPE log:s", "+stream|");
        w.check(&mut x, "TYPE log:no", "+none|");
        w.check(&mut x, "TTL log:s", ":-1|");
        w.check(&mut x, "PTTL log:no", ":-2|");
        w.check(&mut x, "XINFO GROUPS log:s", "*0|");
        // The log's key is not among the keys, and equal in all databases.
        w.check(&mut x, "DBSIZE", ":0|");
        w.check(&mut x, "KEYS *", "*0|");
        w.check(&mut x, "SELECT 3", "+OK|");
        w.check(&mut x, "XLEN log:s", ":3|");
        // What is wrong is told as ever.
        w.check(
            &mut x,
            "XRANGE log:s x +",
            "-ERR Invalid stream ID specified as stream command argument|",
        );
        w.check(
            &mut x,
            "XREAD COUNT STREAMS log:s",
            "-ERR value is not an integer or out of range|",
        );
        // In the third version of the protocol.
        w.ask(&mut x, "HELLO 3");
        let all = format!("%1|$5|log:s|*1|{a}");
        w.check(&mut x, "XREAD COUNT 1 STREAMS log:s 0", &all);
        w.check(&mut x, "XREAD STREAMS log:s $", "_|");
        let counters = w.service.log_counters();
        assert!(counters.entries > 20 && counters.bytes > 20 && counters.reads > 10);
    });
}

#[test]
fn xinfo_tells_what_there_is() {
    let mut home = Home::new();
    home.add("s", &["a", "b", "c"]);
    let mut world = home.world();
    let w = &mut world;
    let mut x = w.client();
    let numbers = "$6|length|:3|$15|radix-tree-keys|:0|$16|radix-tree-nodes|:1|$17|last-generated-id|$3|2-1|\
                   $20|max-deleted-entry-id|$3|0-0|$13|entries-added|:3|$23|recorded-first-entry-id|$3|0-1|";
    let (first, last) = (entry(0, 1, "a"), entry(2, 3, "c"));
    let all = format!("*20|{numbers}$6|groups|:0|$11|first-entry|{first}$10|last-entry|{last}");
    w.check(&mut x, "XINFO STREAM log:s", &all);
    let full = format!("*18|{numbers}$7|entries|*1|{first}$6|groups|*0|");
    w.check(&mut x, "XINFO STREAM log:s FULL COUNT 1", &full);
    w.ask(&mut x, "HELLO 3");
    w.check(&mut x, "XINFO STREAM log:s", &all.replacen("*20", "%10", 1));
    let change = Change::Create {
        stream: "empty",
        settings: StreamSettings::default(),
    };
    home.log.administer(change).expect("room");
    home.settle();
    let info = w.ask(&mut x, "XINFO STREAM log:empty");
    assert!(
        info.ends_with("$11|first-entry|_|$10|last-entry|_|"),
        "{info}"
    );
}

#[test]
fn a_waiting_client_is_answered_when_it_is_committed_and_not_before() {
    on_every_shape(|| {
        let mut home = Home::new();
        home.add("s", &["a"]);
        let mut world = home.world();
        let w = &mut world;
        let (mut x, mut y, mut z) = (w.client(), w.client_of(1), w.client());
        w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s $", "");
        w.check(&mut y, "XREAD BLOCK 0 STREAMS log:no log:s 0 0-1", "");
        w.send(&y, "PING");
        w.check(&mut z, "XREAD BLOCK 0 STREAMS log:s 7", "");
        home.append("s", "", &["b"]);
        assert_eq!(w.answer(&mut x), "");
        home.settle();
        let b = format!("*1|*2|$5|log:s|*1|{}", entry(1, 1, "b"));
        assert_eq!(w.answer(&mut x), b);
        assert_eq!(w.answer(&mut y), format!("{b}+PONG|"));
        assert_eq!(w.answer(&mut z), "");
        // A stream that there was not yet.
        w.check(&mut y, "XREAD BLOCK 0 STREAMS log:no $", "");
        home.add("other", &["x"]);
        assert_eq!(w.answer(&mut y), "");
        home.add("no", &["n"]);
        let n = format!("*1|*2|$6|log:no|*1|{}", entry(0, 1, "n"));
        assert_eq!(w.answer(&mut y), n);
    });
}

#[test]
fn a_wait_ends() {
    on_every_shape(|| {
        let mut home = Home::new();
        home.add("s", &["a"]);
        let mut world = home.world();
        let w = &mut world;
        let (mut x, mut admin) = (w.client(), w.client_of(1));
        w.check(&mut x, "XREAD BLOCK 5 STREAMS log:s $", "*-1|");
        let id = w.ask(&mut x, "CLIENT ID");
        let id = id.trim_matches([':', '|']).to_owned();
        for (how, answer) in [
            ("TIMEOUT", "*-1|"),
            ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"),
        ] {
            w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s $", "");
            let list = w.ask(&mut admin, "CLIENT LIST");
            assert!(list.contains(" flags=b "), "{list}");
            w.check(&mut admin, &format!("CLIENT UNBLOCK {id} {how}"), ":1|");
            assert_eq!(w.answer(&mut x), answer);
            w.check(&mut admin, &format!("CLIENT UNBLOCK {id} {how}"), ":0|");
        }
        w.check(&mut x, "CLIENT REPLY SKIP", "");
        w.send(&x, "XREAD COUNT 1 STREAMS log:s 0");
        w.check(&mut x, "PING", "+PONG|");
        w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s $", "");
        w.check(&mut admin, &format!("CLIENT KILL ID {id}"), ":1|");
        assert_eq!(w.answer(&mut x), "");
        assert_ne!(w.sim.state(x.peer), PlainState::Open);
        // No client is left for what comes.
        home.add("s", &["b"]);
        w.check(&mut admin, "XLEN log:s", ":2|");
    });
}

#[test]
fn nothing_is_changed_and_nothing_else_is_kept_there() {
    let mut home = Home::new();
    home.add("s", &["a"]);
    let mut world = home.world();
    let w = &mut world;
    let mut x = w.client();
    w.check(&mut x, "SET own 1", "+OK|");
    w.check(&mut x, "XADD mine 1-1 f v", "$3|1-1|");
    for line in [
        "SET log:s 1",
        "SET log:new 1",
        "GET log:s",
        "DEL log:s",
        "DEL own log:s",
        "UNLINK log:s",
        "EXPIRE log:s 1",
        "RENAME own log:new",
        "RENAME log:s own",
        "COPY own log:new",
        "COPY log:s new",
        "XADD log:s * f v",
        "XDEL log:s 0-1",
        "XTRIM log:s MAXLEN 0",
        "XSETID log:s 1-1",
        "XGROUP CREATE log:s g 0",
        "XREADGROUP GROUP g c STREAMS log:s >",
        "XACK log:s g 0-1",
        "OBJECT ENCODING log:s",
        "MEMORY USAGE log:s",
        "DUMP log:s",
        "SORT own STORE log:new",
        "SINTERSTORE log:new own",
        "LMPOP 1 log:s LEFT",
        "BLPOP own log:s 0",
        "WATCH own log:s",
        "RESTORE log:new 0 x",
        "COPY own log:new DB 3",
        "MSET a 1 log:new 2",
        "BITOP AND log:new own",
        "PFMERGE log:new own",
        "SMOVE own log:new x",
        "LMOVE own log:new LEFT LEFT",
        "BLMOVE own log:new LEFT LEFT 0",
        "RPOPLPUSH own log:new",
        "ZUNIONSTORE log:new 1 own",
        "ZRANGESTORE log:new own 0 -1",
        "GEOSEARCHSTORE log:new own FROMLONLAT 0 0 BYRADIUS 1 km",
        "GEORADIUS own 0 0 1 km STORE log:new",
        "XGROUP CREATE log:new g $ MKSTREAM",
        "XAUTOCLAIM log:s g c 0 0",
        "SETRANGE log:new 0 x",
        "HSET log:new f v",
        "TOUCH own log:s",
    ] {
        let answer = w.ask(&mut x, line);
        let expected = "-ERR keys that begin with 'log:' are streams of the log: ";
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    for line in ["XREAD STREAMS log:s mine 0 0", "EXISTS own log:s"] {
        let answer = w.ask(&mut x, line);
        assert!(
            answer.starts_with("-ERR streams of the log and other"),
            "{line}: {answer}"
        );
    }
    // In transactions and scripts nothing of them is there at all.
    let not_here = "ERR streams of the log cannot be asked for in transactions and scripts";
    w.check(&mut x, "MULTI", "+OK|");
    w.check(&mut x, "XLEN log:s", &format!("-{not_here}|"));
    let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
    w.check(&mut x, "EXEC", aborted);
    for script in [
        "return(redis.call('xlen','log:s'))",
        "return(redis.call('set','log:s','1'))",
        "return(redis.call('rename','own',KEYS[1]))",
    ] {
        let answer = w.ask(&mut x, &format!("EVAL {script} 1 log:s"));
        assert!(answer.contains(not_here), "{script}: {answer}");
    }
    w.check(&mut x, "DBSIZE", ":2|");
    w.check(&mut x, "FLUSHALL", "+OK|");
    w.check(&mut x, "XLEN log:s", ":1|");
    let list = w.ask(&mut x, "INFO commandstats");
    assert!(
        list.contains("cmdstat_xlen:calls=1,") || list.contains("cmdstat_xlen:calls=2,"),
        "{list}"
    );
}

#[test]
fn the_binary_port_keeps_off_them() {
    let home = Home::new();
    let mut world = home.world();
    let service = BinaryService::guarded(&world.service).reserving(b"log:");
    let w = &mut world;
    let addr = w.sim.serve(service.clone(), BinaryService::limits());
    let peer = w.sim.plain(&addr);
    let (mut request, mut expected) = (Vec::new(), Vec::new());
    encode_write(b"own", b"1", &mut request);
    encode_response(b"1", &mut expected);
    encode_read(b"log:s", &mut request);
    encode_response(b"", &mut expected);
    w.sim.send(peer, &request);
    w.sim.run_for(Duration::from_millis(20));
    assert_eq!(w.sim.received(peer), expected);
    let mut request = Vec::new();
    encode_write(b"log:s", b"1", &mut request);
    w.sim.send(peer, &request);
    w.sim.run_for(Duration::from_millis(20));
    assert_eq!(w.sim.received(peer), expected);
    assert_ne!(w.sim.state(peer), PlainState::Open);
    assert_eq!(
        (service.counters().writes, service.counters().refused),
        (1, 1)
    );
    let mut x = w.client();
    w.check(&mut x, "DBSIZE", ":1|");
}

#[test]
fn rights_hold_for_them_also_while_one_waits() {
    let mut home = Home::new();
    home.add("a", &["1"]);
    home.add("b", &["2"]);
    let mut world = home.world();
    let w = &mut world;
    let (mut admin, mut bob) = (w.client(), w.client_of(1));
    w.check(
        &mut admin,
        "ACL SETUSER bob on >pw %R~log:a +@stream",
        "+OK|",
    );
    w.check(&mut bob, "AUTH bob pw", "+OK|");
    let no_key = "-NOPERM No permissions to access a key|";
    w.check(&mut bob, "XLEN log:a", ":1|");
    w.check(&mut bob, "XLEN log:b", no_key);
    w.check(&mut bob, "XREAD STREAMS log:a log:b 0 0", no_key);
    w.check(&mut bob, "XADD log:a * f v", no_key);
    w.check(&mut bob, "XREAD BLOCK 0 STREAMS log:a $", "");
    w.check(&mut admin, "ACL SETUSER bob resetkeys", "+OK|");
    home.add("a", &["3"]);
    assert_eq!(w.answer(&mut bob), no_key);
    w.check(&mut bob, "XLEN log:a", no_key);
    // A log that is shut is read by no client; opened again, all clients with the right read it.
    w.check(&mut admin, "XREAD BLOCK 0 STREAMS log:a $", "");
    w.service.shut_log(true);
    let shut = w.answer(&mut admin);
    assert!(
        shut.starts_with("-ERR ingest asks for tokens now"),
        "{shut}"
    );
    assert_eq!(w.ask(&mut admin, "XLEN log:a"), shut);
    w.service.shut_log(false);
    w.check(&mut admin, "XLEN log:a", ":2|");
}

#[test]
fn a_reply_is_bounded_and_never_cut_short_in_silence() {
    let mut home = Home::new();
    let payload = "x".repeat(1000);
    for stream in ["s", "t"] {
        for _ in 0..20 {
            home.add(stream, &[&payload]);
        }
    }
    let world = World::new();
    world.service.show_log(LogKeys {
        reply_max: 4000,
        ..home.keys()
    });
    let mut world = world;
    let w = &mut world;
    let mut x = w.client();
    let entries = |answer: &str| answer.matches("|payload|").count();
    // XREAD goes on where it ended.
    let some = w.ask(&mut x, "XREAD STREAMS log:s 0");
    assert_eq!(entries(&some), 4);
    assert!(w.ask(&mut x, "XREAD STREAMS log:s 3-1").contains("|4-1|"));
    // Each of several streams has its share.
    let both = w.ask(&mut x, "XREAD STREAMS log:s log:t 0 0");
    assert_eq!(entries(&both), 4);
    assert!(both.starts_with("*2|*2|$5|log:s|*2|"), "{both}");
    for line in [
        "XRANGE log:s - +",
        "XRANGE log:s - + COUNT 10",
        "XREVRANGE log:s + -",
        "XREVRANGE log:s + - COUNT 10",
        "XINFO STREAM log:s FULL",
    ] {
        let answer = w.ask(&mut x, line);
        let expected = "-ERR the entries take more than the 4000 bytes";
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    assert_eq!(w.service.log_counters().refused, 5);
    assert_eq!(entries(&w.ask(&mut x, "XRANGE log:s 5 7")), 3);
    assert_eq!(entries(&w.ask(&mut x, "XREVRANGE log:s 7 5")), 3);
    assert_eq!(entries(&w.ask(&mut x, "XINFO STREAM log:s")), 2);
    // An entry that is longer than a reply may be is shown.
    let mut world = World::new();
    let w = &mut world;
    w.service.show_log(LogKeys {
        reply_max: 1,
        ..home.keys()
    });
    let mut x = w.client();
    for line in [
        "XRANGE log:s 5 5",
        "XREVRANGE log:s 5 5",
        "XRANGE log:s - + COUNT 1",
        "XREVRANGE log:s + - COUNT 1",
        "XREAD STREAMS log:s log:t 0 0",
    ] {
        assert_eq!(entries(&w.ask(&mut x, line)), 1, "{line}");
    }
    let many = "log:s ".repeat(1025);
    let line = format!("XREAD STREAMS {many}{}", vec!["0"; 1025].join(" "));
    let answer = w.ask(&mut x, &line);
    assert!(answer.starts_with("-ERR at most 1024 streams"), "{answer}");
}

#[test]
fn a_pause_of_all_holds_waiting_clients() {
    let mut home = Home::new();
    home.add("s", &["a"]);
    let mut world = home.world();
    let w = &mut world;
    let (mut x, mut other) = (w.client(), w.client());
    w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s $", "");
    w.check(&mut other, "CLIENT PAUSE 1000 ALL", "+OK|");
    home.add("s", &["b"]);
    w.sim.run_for(Duration::from_millis(500));
    assert_eq!(w.answer(&mut x), "");
    w.sim.run_for(Duration::from_secs(1));
    assert!(w.answer(&mut x).contains("|payload|$1|b|"));
    // A pause of writers does not hold it.
    w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s $", "");
    w.check(&mut other, "CLIENT PAUSE 1000 WRITE", "+OK|");
    home.add("s", &["c"]);
    assert!(w.answer(&mut x).contains("|payload|$1|c|"));
}

#[test]
fn the_last_before_a_wide_gap_are_as_few_as_were_asked_for() {
    let mut home = Home::new();
    for n in 0..60 {
        home.add("s", &[&format!("{n}:{}", "x".repeat(500))]);
    }
    // The last but a few are lost.
    let disk = home.disk.kill();
    drop((home.log, home.writer));
    let newest = segments(&disk).len() - 2;
    for at in 0..12 {
        disk.flip(&segments(&disk)[newest], 500 + at * 1000, 3);
    }
    let would_lose = loss(&disk).expect("reading").expect("damage");
    repair(&disk, &would_lose).expect("repairing");
    let home = Home::on(disk);
    let lost = would_lose.gaps.iter().flat_map(|gap| &gap.positions);
    let lost: u64 = lost.map(|p| p.2 - p.1).sum();
    assert!(lost > 10, "{lost}");
    let mut world = World::new();
    let w = &mut world;
    w.service.show_log(LogKeys {
        reply_max: 2_000,
        ..home.keys()
    });
    let mut x = w.client();
    for to in 1..60 {
        let answer = w.ask(&mut x, &format!("XREVRANGE log:s {to} - COUNT 1"));
        assert_eq!(answer.matches("|payload|").count(), 1, "{to}: {answer}");
    }
}

#[test]
fn what_is_gone_is_passed_over() {
    let mut home = Home::new();
    for n in 0..60 {
        home.add("s", &[&format!("{n}:{}", "x".repeat(500))]);
    }
    // Damage in the middle, marked by a repair.
    let disk = home.disk.kill();
    drop((home.log, home.writer));
    assert!(disk.flip(&segments(&disk)[0], 5000, 3));
    let would_lose = loss(&disk).expect("reading").expect("damage");
    repair(&disk, &would_lose).expect("repairing");
    let mut home = Home::on(disk);
    let lost: u64 = would_lose.gaps[0].positions.iter().map(|p| p.2 - p.1).sum();
    assert!(lost > 0 && lost < 10, "{lost}");
    let mut world = home.world();
    let w = &mut world;
    let mut x = w.client();
    let entries = |answer: &str| answer.matches("|payload|").count() as u64;
    w.check(&mut x, "XLEN log:s", &format!(":{}|", 60 - lost));
    assert_eq!(entries(&w.ask(&mut x, "XRANGE log:s - +")), 60 - lost);
    assert_eq!(entries(&w.ask(&mut x, "XREVRANGE log:s + -")), 60 - lost);
    assert_eq!(entries(&w.ask(&mut x, "XREAD STREAMS log:s 0")), 60 - lost);
    assert_eq!(entries(&w.ask(&mut x, "XREVRANGE log:s 30 - COUNT 25")), 25);
    // The stream's own retention.
    let settings = StreamSettings {
        retain_bytes: Some(5000),
        ..StreamSettings::default()
    };
    let stream = "s";
    let change = Change::Set { stream, settings };
    home.log.administer(change).expect("room");
    home.settle();
    home.add("s", &["last"]);
    let first = home.log.range("s").expect("a stream").first;
    assert!(first > 20, "{first}");
    w.check(&mut x, "XLEN log:s", &format!(":{}|", 61 - first));
    let rest = w.ask(&mut x, "XREAD STREAMS log:s 0");
    assert_eq!(entries(&rest), 61 - first);
    assert!(rest.contains(&format!("|{first}-1|")), "{rest}");
    let info = w.ask(&mut x, "XINFO STREAM log:s");
    let deleted = format!("max-deleted-entry-id|$4|{}-1|", first - 1);
    assert!(info.contains(&deleted), "{info}");
    assert!(info.contains("entries-added|:61|"), "{info}");
    // The stream is deleted while a client waits for it, and comes again, where it ended.
    w.check(&mut x, "XREAD BLOCK 0 STREAMS log:s $", "");
    home.log
        .administer(Change::Delete { stream })
        .expect("room");
    home.settle();
    assert_eq!(w.answer(&mut x), "");
    home.add("s", &["again"]);
    let again = format!("*1|*2|$5|log:s|*1|{}", entry(61, 1, "again"));
    assert_eq!(w.answer(&mut x), again);
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let names = disk.names().into_iter();
    names.filter(|name| name.ends_with(".seg")).collect()
}

/// A stream of the store with the same entries is the oracle.
#[test]
fn ranges_are_as_of_a_stream_with_equal_entries() {
    let mut home = Home::new();
    let mut world = home.world();
    let w = &mut world;
    let mut x = w.client();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut position = 0;
    while position < 400 {
        let payloads: Vec<String> = (0..rng.usize(1..9))
            .map(|n| format!("{position}.{n}.{}", "y".repeat(rng.usize(0..40))))
            .collect();
        let words: Vec<&str> = payloads.iter().map(String::as_str).collect();
        let producer = ["", "p", "q"][rng.usize(0..3)];
        home.append("s", producer, &words);
        for (n, payload) in payloads.iter().enumerate() {
            let id = n + 1;
            let mut line =
                format!("XADD mine {position}-1 payload {payload} id {id} timestamp_us {AT}");
            if !producer.is_empty() {
                line += &format!(" producer {producer}");
            }
            assert!(w.ask(&mut x, &line).starts_with('$'), "{line}");
            position += 1;
        }
        if rng.bool() {
            home.settle();
        }
    }
    home.settle();
    for round in 0..600 {
        let mut id = |exclusive: bool| {
            let text = match rng.u8(0..12) {
                0 => return "-".to_owned(),
                1 => return "+".to_owned(),
                2..=4 => format!("{}", rng.u64(0..position + 20)),
                _ => format!("{}-{}", rng.u64(0..position + 20), rng.u64(0..4)),
            };
            match exclusive && rng.u8(0..4) == 0 {
                true => format!("({text}"),
                false => text,
            }
        };
        let (from, to, behind) = (id(true), id(true), id(false));
        let count = match rng.u8(0..3) {
            0 => String::new(),
            _ => format!("COUNT {} ", rng.u64(0..50)),
        };
        let lines = [
            format!("XRANGE KEY {from} {to} {count}"),
            format!("XREVRANGE KEY {to} {from} {count}"),
            format!("XREAD {count}STREAMS KEY {behind}"),
            format!("XINFO STREAM KEY FULL {count}"),
        ];
        let line = lines[round % 4].trim_end();
        let ours = w.ask(&mut x, &line.replace("KEY", "log:s"));
        let theirs = w.ask(&mut x, &line.replace("KEY", "mine"));
        let theirs = theirs.replace("$4|mine|", "$5|log:s|");
        match round % 4 {
            // Blocks are the store's own.
            3 => assert_eq!(behind_blocks(&ours), behind_blocks(&theirs), "{line}"),
            _ => assert_eq!(ours, theirs, "{line}"),
        }
    }
}

fn behind_blocks(info: &str) -> &str {
    info.split_once("last-generated-id")
        .map_or(info, |(_, rest)| rest)
}

#[test]
fn what_is_read_for_a_closed_connection_is_dropped() {
    let mut home = Home::new();
    home.add("s", &["a", "b"]);
    let mut world = World::new();
    let w = &mut world;
    let pool = Pool::by_hand(2);
    w.service.show_log(LogKeys {
        pool: pool.clone(),
        ..home.keys()
    });
    let (mut x, mut y, mut z) = (w.client(), w.client_of(1), w.client());
    w.check(&mut x, "XREAD STREAMS log:s 0", "");
    w.check(&mut y, "XREAD STREAMS log:s 0", "");
    w.check(&mut y, "PING", "");
    // The threads have as much to do as they may.
    w.check(
        &mut z,
        "XREAD STREAMS log:s 0",
        "-TRYAGAIN too many commands read the log at once|",
    );
    w.check(&mut z, "XREAD BLOCK 0 STREAMS log:s $", "");
    home.add("s", &["c"]);
    assert_eq!(w.answer(&mut z), "");
    w.sim.close(x.peer, true);
    assert_eq!(w.answer(&mut z), "");
    assert!(pool.step(0) && pool.step(0));
    let answer = w.answer(&mut y);
    assert!(
        answer.contains("*3|") && answer.ends_with("+PONG|"),
        "{answer}"
    );
    // There is room again, also for a waiting client.
    w.sim.run_for(Duration::from_millis(200));
    assert!(pool.step(0));
    assert!(w.answer(&mut z).contains("|2-1|"));
    // A pool that has stopped does nothing more.
    w.check(&mut z, "XLEN log:s", ":3|");
    w.check(&mut z, "XREAD STREAMS log:s 0", "");
    pool.stop();
    let answer = w.answer(&mut z);
    assert_eq!(answer, "-ERR the log could not be read|");
}

#[test]
fn keys_that_would_be_hidden_are_found() {
    let home = Home::new();
    let mut world = World::new();
    let w = &mut world;
    let mut x = w.client();
    for n in 0..3000 {
        w.send(&x, &format!("SET k{n} 1"));
    }
    w.answer(&mut x);
    w.check(&mut x, "SELECT 2", "+OK|");
    w.check(&mut x, "SET lo 1", "+OK|");
    w.service.show_log(LogKeys {
        prefix: b"l*g:".to_vec(),
        ..home.keys()
    });
    w.check(&mut x, "SET log:x 1", "+OK|");
    assert_eq!(w.service.hidden_by_log(0), None);
    let mut world = World::new();
    let w = &mut world;
    let mut x = w.client();
    w.check(&mut x, "SELECT 2", "+OK|");
    w.check(&mut x, "SET log:x 1", "+OK|");
    w.service.show_log(home.keys());
    assert_eq!(w.service.hidden_by_log(0), Some((2, b"log:x".to_vec())));
}

/// On real sockets and threads: followers see every record once, in order, while it is written.
#[test]
fn followers_miss_nothing() {
    const RECORDS: usize = 300;
    for engine in wire::ENGINES {
        let settings = tidewire_kv::service::Settings::default();
        let Some(server) = wire::Server::start(engine, 1, settings) else {
            continue;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let (log, _) = EmbeddedLog::start(directory.path(), Settings::default()).expect("a log");
        let log = Arc::new(log);
        let threads = tidewire_pool::Settings {
            threads: 2,
            nice: 0,
            ..tidewire_pool::Settings::default()
        };
        server.service.show_log(LogKeys {
            prefix: b"log:".to_vec(),
            log: log.clone(),
            pool: Pool::new(&threads).expect("threads"),
            reply_max: 2000,
        });
        let follow = |client: &mut wire::Client| {
            let mut last = "0".to_owned();
            // Every answer has an entry, or is none.
            while next_of(&last) < RECORDS as u64 {
                let line = format!("XREAD COUNT 7 BLOCK 60000 STREAMS log:s {last}");
                let streams = client.ask(&line).array();
                let [_, entries] = &streams[0].clone().array()[..] else {
                    panic!("{streams:?}")
                };
                for entry in entries.clone().array() {
                    let entry = entry.array();
                    let id = entry[0].clone().text();
                    assert_eq!(id, format!("{}-1", next_of(&last)), "{}", server.name);
                    let payload = entry[1].clone().array()[1].clone().text();
                    assert_eq!(payload, format!("m{}", next_of(&last)));
                    last = id;
                }
            }
        };
        std::thread::scope(|scope| {
            let followers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| follow(&mut server.client())))
                .collect();
            let stream = log.stream("s").expect("room");
            for n in 0..RECORDS {
                let payload = format!("m{n}");
                let mut frames = (n as u64 + 1).to_le_bytes().to_vec();
                frames.extend_from_slice(&(payload.len() as u32).to_le_bytes());
                frames.extend_from_slice(payload.as_bytes());
                let run = Run {
                    stream,
                    producer: ProducerId::ANONYMOUS,
                    frames: &frames,
                    count: 1,
                    last_id: n as u64 + 1,
                    timestamp_us: AT,
                };
                log.append(run).expect("room");
                if n % 10 == 9 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            for follower in followers {
                follower.join().expect("it has read all");
            }
        });
        drop(server);
        log.close();
    }
}

/// The position behind an id.
fn next_of(id: &str) -> u64 {
    match id.split_once('-') {
        Some((position, _)) => position.parse::<u64>().expect("a position") + 1,
        None => id.parse().expect("a position"),
    }
}
