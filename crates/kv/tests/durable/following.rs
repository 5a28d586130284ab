//! What clients of a follower see: keys as they are at home, no changes of their own, and the change of its role.

use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::{PlainId, Sim};
use tidewire_kv::durable::{Applier, FollowError, KvLog};
use tidewire_kv::service::{BinaryService, Replication, RespService, Role, Settings};
use tidewire_kv::store::Store;
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{Credit, Log, Policy};
use tidewire_replicate::Record;

use crate::disk::{Opened, ask, open, settings, settle};
use crate::wire::{Value, command};

/// Milliseconds since 1970 at which the owner writes.
const THEN: u64 = 1_000;

/// An owner, and its follower.
pub(crate) struct Pair {
    owner: Opened,
    pub(crate) store: Arc<Store>,
    pub(crate) kv_log: Arc<KvLog>,
    applier: Applier,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let owner = open(&SimDisk::new(1), settings(1), Default::default(), THEN).expect("a store");
        let store = Arc::new(Store::new(settings(1)));
        let kv_log = Arc::new(KvLog::following(Policy::Sync));
        store.set_effects(kv_log.clone());
        Pair {
            applier: Applier::new(store.clone(), 0),
            owner,
            store,
            kv_log,
        }
    }

    pub(crate) fn write(&mut self, line: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = ask(&self.owner.store, THEN, 0, &args);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        settle(&mut self.owner.writer, THEN);
    }

    /// What the owner's log has from a position on.
    pub(crate) fn records(&self, from: u64) -> Vec<Record> {
        let read = self.owner.embedded.read("kv", from, Credit(1 << 20));
        let runs = read.map_or(Vec::new(), |read| read.runs).into_iter();
        let record = runs.map(|run| Record {
            stream: "kv".into(),
            producer: run.producer,
            first: run.first,
            count: run.count,
            timestamp_us: run.timestamp_us,
            frames: run.bytes,
        });
        record.collect()
    }

    /// Applies what is new.
    pub(crate) fn follow(&mut self) {
        let records = self.records(self.applier.next());
        let whole = self
            .applier
            .apply(records, THEN, &mut || panic!("nobody is in the way"));
        assert!(whole.expect("units of the owner"));
    }

    fn get(&self, now_ms: u64, key: &str) -> Value {
        ask(&self.store, now_ms, 0, &[b"GET", key.as_bytes()])
    }
}

/// What a client is answered.
pub(crate) fn talk(sim: &mut Sim, client: PlainId, line: &str) -> Value {
    let before = sim.received(client).len();
    sim.send(client, &command(line));
    sim.run_for(Duration::from_millis(200));
    let all = sim.received(client);
    let reply = Value::parse(&all[before..]);
    reply.unwrap_or_else(|| panic!("{line}: no answer")).0
}

fn is_read_only(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with("READONLY"))
}

#[test]
fn a_key_that_is_past_its_time_is_not_seen_and_stays_until_its_owner_removes_it() {
    let mut pair = Pair::new();
    pair.write("SET k v PX 100");
    pair.follow();
    assert_eq!(pair.get(THEN, "k"), Value::Bulk("v".into()));
    assert_eq!(pair.get(THEN + 1000, "k"), Value::Null);
    // Neither reading nor the sweep removes it: the owner's clock may be another one.
    pair.store.expire(THEN + 1000);
    assert_eq!(pair.store.keys(), 1);
    pair.write("INCRBY n 5");
    pair.write("PEXPIRE n 50");
    pair.write("INCRBY n 1");
    pair.follow();
    assert_eq!(pair.get(THEN, "n"), Value::Bulk("6".into()));
    assert_eq!(pair.get(THEN + 1000, "n"), Value::Null);
    pair.owner.store.expire(THEN + 1000);
    settle(&mut pair.owner.writer, THEN);
    pair.follow();
    assert_eq!(pair.store.keys(), 0);
}

#[test]
fn what_is_missing_at_home_is_found_and_what_comes_again_is_not_applied_twice() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        pair.write("INCR n");
    }
    pair.follow();
    let again = pair.records(0);
    pair.applier
        .apply(again, THEN, &mut || true)
        .expect("known");
    assert_eq!(pair.get(THEN, "n"), Value::Bulk("3".into()));
    pair.write("INCR n");
    pair.write("INCR n");
    let late = pair.records(pair.applier.next() + 1);
    let found = pair.applier.apply(late, THEN, &mut || true);
    assert!(
        matches!(found, Err(FollowError::Gap { due: 3, found: 4 })),
        "{found:?}"
    );
    let mut other = Pair::new();
    other.write("INCR n");
    let mut records = other.records(0);
    records[0].stream = "messages".into();
    let found = other.applier.apply(records, THEN, &mut || true);
    assert!(matches!(found, Err(FollowError::Stream(_))), "{found:?}");
}

#[test]
fn clients_of_a_follower_read_and_hear_and_change_nothing() {
    let mut pair = Pair::new();
    let mut sim = Sim::new(1);
    let own = Settings {
        protected: false,
        ..Settings::default()
    };
    let limits = own.limits();
    let service = RespService::durable(pair.store.clone(), own, pair.kv_log.clone());
    let replication = Replication::new("kafka://h/t".into(), Role::Follower);
    replication.change(|now| (now.is_linked, now.position, now.lag) = (true, 7, 2));
    service.replicated(replication.clone());
    let binary = BinaryService::guarded(&service).durable(pair.kv_log.clone());
    let at = sim.add_loop();
    let added = sim.service(at, service.clone(), limits);
    let addr = sim.listen(added);
    let added = sim.service(at, binary, BinaryService::limits());
    let binary = sim.listen(added);
    let [reader, writer, listener] = [(); 3].map(|()| sim.plain(&addr));
    pair.write("SET k 1");
    pair.write("XADD s 1-1 f v");
    pair.follow();
    assert_eq!(talk(&mut sim, reader, "GET k"), Value::Bulk("1".into()));

    for line in [
        "SET k 2",
        "DEL k",
        "BLPOP q 1",
        "EXPIRE k 100",
        "FLUSHALL",
        "XREADGROUP GROUP g c STREAMS s >",
        "EVAL redis.call('set','k',2) 0",
        "FUNCTION FLUSH",
    ] {
        let reply = talk(&mut sim, writer, line);
        let refused = is_read_only(&reply)
            || matches!(&reply, Value::Error(text) if text.contains("READONLY"));
        assert!(refused, "{line}: {reply:?}");
    }
    assert_eq!(talk(&mut sim, writer, "MULTI"), Value::Simple("OK".into()));
    talk(&mut sim, writer, "SET k 2");
    let reply = talk(&mut sim, writer, "EXEC");
    assert!(
        matches!(&reply, Value::Error(text) if text.contains("READONLY")),
        "{reply:?}"
    );
    let read = talk(&mut sim, writer, "EVAL return(redis.call('get','k')) 0");
    assert_eq!(read, Value::Bulk("1".into()));
    let write = sim.plain(&binary);
    // WRITE k 1: no answer, and the connection ends.
    sim.send(write, &[1, 1, b'k', 1, b'2']);
    sim.run_for(Duration::from_millis(200));
    assert_eq!(talk(&mut sim, reader, "GET k"), Value::Bulk("1".into()));

    // What waits for a log or for replicas of its own says so, in the words of Redis; what cannot be read comes first.
    for (line, error) in [
        (
            "WAITAOF 1 0 0",
            "ERR WAITAOF cannot be used with replica instances.",
        ),
        (
            "WAITAOF 0 0 1",
            "ERR WAITAOF cannot be used with replica instances.",
        ),
        ("WAITAOF 2 0 0", "ERR value is out of range"),
        (
            "WAIT 0 1",
            "ERR WAIT cannot be used with replica instances.",
        ),
        (
            "WAIT x 1",
            "ERR WAIT cannot be used with replica instances.",
        ),
    ] {
        let reply = talk(&mut sim, writer, line);
        assert!(
            matches!(&reply, Value::Error(text) if text.starts_with(error)),
            "{line}: {reply:?}"
        );
    }

    // Watches, waits, and events.
    talk(&mut sim, writer, "WATCH k");
    talk(&mut sim, listener, "CONFIG SET notify-keyspace-events KEA");
    talk(&mut sim, listener, "SUBSCRIBE __keyspace@0__:k");
    sim.send(reader, &command("XREAD BLOCK 5000 STREAMS s 1-1"));
    sim.run_for(Duration::from_millis(100));
    pair.write("SET k 3");
    pair.write("XADD s 2-1 f w");
    let heard = [reader, listener].map(|client| sim.received(client).len());
    pair.follow();
    sim.run_for(Duration::from_millis(200));
    let told = |sim: &Sim, client, from: usize| {
        String::from_utf8_lossy(&sim.received(client)[from..]).into_owned()
    };
    assert!(told(&sim, reader, heard[0]).contains("2-1"));
    assert!(told(&sim, listener, heard[1]).contains("set"));
    talk(&mut sim, writer, "MULTI");
    talk(&mut sim, writer, "GET k");
    assert_eq!(talk(&mut sim, writer, "EXEC"), Value::Null);

    // What it says of itself.
    let role = talk(&mut sim, writer, "ROLE").array();
    assert_eq!(role[0], Value::Bulk("slave".into()));
    assert_eq!(role[3], Value::Bulk("connected".into()));
    assert_eq!(role[4], Value::Int(7));
    let info = talk(&mut sim, writer, "INFO replication").text();
    for line in [
        "role:slave",
        "master_link_status:up",
        "home_role:follower",
        "home_lag:2",
    ] {
        assert!(info.contains(line), "{info}");
    }
    let save = talk(&mut sim, writer, "SAVE");
    assert!(
        matches!(&save, Value::Error(text) if text.contains("follows")),
        "{save:?}"
    );

    // The follower is told to take the store over, and cannot; and then can.
    let reply = talk(&mut sim, writer, "REPLICAOF host 1");
    assert!(
        matches!(&reply, Value::Error(text) if text.contains("--follow")),
        "{reply:?}"
    );
    sim.send(writer, &command("REPLICAOF NO ONE"));
    sim.run_for(Duration::from_millis(100));
    assert!(replication.is_asked());
    let before = sim.received(writer).len();
    replication.answer(Err("the home is away".into()));
    sim.run_for(Duration::from_millis(100));
    assert!(told(&sim, writer, before).starts_with("-ERR the store was not taken over: the home"));
    assert!(!replication.is_asked());
    sim.send(writer, &command("REPLICAOF NO ONE"));
    sim.run_for(Duration::from_millis(100));
    let before = sim.received(writer).len();
    pair.kv_log.own();
    replication.answer(Ok(()));
    sim.run_for(Duration::from_millis(100));
    assert_eq!(told(&sim, writer, before), "+OK\r\n");
    let role = talk(&mut sim, writer, "ROLE").array();
    assert_eq!(role[0], Value::Bulk("master".into()));

    // Another server has it later.
    pair.kv_log.lose("it is another one's".into());
    let reply = talk(&mut sim, writer, "SET k 4");
    assert!(is_read_only(&reply), "{reply:?}");
    let info = talk(&mut sim, writer, "INFO replication").text();
    assert!(
        info.contains("role:slave") && info.contains("home_role:former"),
        "{info}"
    );
    let reply = talk(&mut sim, writer, "REPLICAOF NO ONE");
    assert!(
        matches!(&reply, Value::Error(text) if text.contains("taken")),
        "{reply:?}"
    );
}

/// A follower behind sockets, with clients.
struct Served {
    sim: Sim,
    replication: Replication,
    clients: Vec<PlainId>,
    /// The pair lives as long as its services.
    _pair: Pair,
}

impl Served {
    fn new(clients: usize) -> Served {
        let pair = Pair::new();
        let mut sim = Sim::new(1);
        let own = Settings {
            protected: false,
            ..Settings::default()
        };
        let limits = own.limits();
        let service = RespService::durable(pair.store.clone(), own, pair.kv_log.clone());
        let replication = Replication::new("kafka://h/t".into(), Role::Follower);
        service.replicated(replication.clone());
        let at = sim.add_loop();
        let added = sim.service(at, service, limits);
        let addr = sim.listen(added);
        let clients = (0..clients).map(|_| sim.plain(&addr)).collect();
        Served {
            sim,
            replication,
            clients,
            _pair: pair,
        }
    }

    fn send(&mut self, client: usize, line: &str) {
        self.sim.send(self.clients[client], &command(line));
        self.sim.run_for(Duration::from_millis(100));
    }

    fn goes(&mut self, client: usize) {
        self.sim.close(self.clients[client], false);
        self.sim.run_for(Duration::from_millis(100));
    }

    fn heard(&self, client: usize) -> String {
        String::from_utf8_lossy(self.sim.received(self.clients[client])).into_owned()
    }
}

#[test]
fn a_promotion_is_asked_for_as_long_as_a_requester_waits() {
    let mut served = Served::new(3);
    served.send(0, "REPLICAOF NO ONE");
    served.send(1, "SLAVEOF NO ONE");
    assert!(served.replication.is_asked());
    assert!(!served.replication.call_off(), "two wait for it");
    served.goes(0);
    assert!(!served.replication.call_off(), "another one waits for it");
    served.goes(1);
    assert!(served.replication.is_asked());
    assert!(served.replication.call_off());
    assert!(!served.replication.is_asked());
    assert!(!served.replication.call_off(), "nobody had asked");

    // A later request asks anew, and the result of the one under way is told to all requesters
    // meanwhile.
    served.send(2, "REPLICAOF NO ONE");
    assert!(served.replication.is_asked());
    assert_eq!(served.heard(2), "");
    served.replication.answer(Err("the home is away".into()));
    served.sim.run_for(Duration::from_millis(100));
    assert!(
        served
            .heard(2)
            .starts_with("-ERR the store was not taken over: the home")
    );
    assert!(!served.replication.call_off());
}

/// The command is answered at once, and asks for nothing.
#[test]
fn a_takeover_is_not_begun_within_a_transaction_or_a_script() {
    let mut served = Served::new(1);
    for line in ["MULTI", "REPLICAOF NO ONE", "EXEC"] {
        served.send(0, line);
    }
    let heard = served.heard(0);
    assert!(
        heard.contains("not taken over within a transaction"),
        "{heard}"
    );
    assert!(!served.replication.is_asked());
    served.send(0, "EVAL return(redis.pcall('replicaof','no','one')) 0");
    let heard = served.heard(0);
    assert!(heard.contains("not allowed from script"), "{heard}");
    assert!(!served.replication.is_asked());
}
