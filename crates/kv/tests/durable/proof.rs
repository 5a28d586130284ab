//! What clients of an owner see that cannot prove that the store is its own: at level `replicated` nothing of the keys, on any port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tidewire::Endpoint;
use tidewire::sim::{PlainId, Sim};
use tidewire_kv::service::{BinaryService, LeaseShown, Replication, RespService, Role, Settings};

use crate::following::{Pair, talk};
use crate::wire::{Value, command};

/// An owner at level `replicated`, or at another one.
struct Owner {
    sim: Sim,
    pair: Pair,
    is_proven: Arc<AtomicBool>,
    replication: Replication,
    addr: Endpoint,
    client: PlainId,
    binary: PlainId,
}

impl Owner {
    fn new(awaits_home: bool) -> Owner {
        let mut pair = Pair::new();
        pair.write("SET k 1");
        pair.follow();
        let is_proven = Arc::new(AtomicBool::new(true));
        let proof = is_proven.clone();
        pair.kv_log.prove_by(Box::new(move || proof.load(SeqCst)));
        if awaits_home {
            pair.kv_log.await_home();
        }
        pair.kv_log.own();
        let mut sim = Sim::new(1);
        let own = Settings {
            protected: false,
            ..Settings::default()
        };
        let limits = own.limits();
        let service = RespService::durable(pair.store.clone(), own, pair.kv_log.clone());
        let replication = Replication::new("kafka://h/t".into(), Role::Owner);
        replication.change(|now| (now.is_linked, now.lease) = (true, LeaseShown::Held));
        service.replicated(replication.clone());
        let binary = BinaryService::guarded(&service).durable(pair.kv_log.clone());
        let at = sim.add_loop();
        let added = sim.service(at, service, limits);
        let addr = sim.listen(added);
        let added = sim.service(at, binary, BinaryService::limits());
        let binary = sim.listen(added);
        let (client, binary) = (sim.plain(&addr), sim.plain(&binary));
        Owner {
            sim,
            pair,
            is_proven,
            replication,
            addr,
            client,
            binary,
        }
    }

    fn prove(&mut self, is_proven: bool) {
        self.is_proven.store(is_proven, SeqCst);
        let lease = match is_proven {
            true => LeaseShown::Held,
            false => LeaseShown::Lapsed,
        };
        self.replication.change(|now| now.lease = lease);
    }

    fn talk(&mut self, line: &str) -> Value {
        talk(&mut self.sim, self.client, line)
    }

    /// Refused with an error that begins so.
    fn refuses(&mut self, line: &str, begins: &str) {
        let reply = self.talk(line);
        let is_it = matches!(&reply, Value::Error(text) if text.starts_with(begins));
        assert!(is_it, "{line}: {reply:?}");
    }

    /// READ k by the small protocol: what it is answered.
    fn read(&mut self) -> Vec<u8> {
        let before = self.sim.received(self.binary).len();
        self.sim.send(self.binary, &[1, 0, 2, 1, b'k']);
        self.sim.run_for(Duration::from_millis(200));
        self.sim.received(self.binary)[before..].to_vec()
    }
}

#[test]
fn an_owner_without_its_lease_serves_no_keys_and_says_so() {
    let mut owner = Owner::new(true);
    assert_eq!(owner.talk("GET k"), Value::Bulk("1".into()));
    let binary = owner.read();
    assert!(binary.contains(&b'1'), "{binary:?}");
    assert_eq!(owner.talk("ROLE").array()[0], Value::Bulk("master".into()));

    // A transaction that was begun before is not run after.
    owner.talk("MULTI");
    owner.talk("GET k");
    owner.prove(false);
    owner.refuses(
        "EXEC",
        "EXECABORT Transaction discarded because of: MASTERDOWN",
    );
    for line in [
        "GET k",
        "SET k 2",
        "DEL k",
        "EXISTS k",
        "DBSIZE",
        "SCAN 0",
        "BLPOP q 1",
        "EVAL return(redis.call('get','k')) 0",
        "EVAL return(1) 0",
        "PING",
        "WATCH k",
    ] {
        owner.refuses(line, "MASTERDOWN");
    }
    owner.talk("MULTI");
    owner.refuses("GET k", "MASTERDOWN");
    owner.refuses("EXEC", "EXECABORT");
    // Requests of the small protocol, which has no errors, wait.
    assert_eq!(owner.read(), b"");

    let role = owner.talk("ROLE").array();
    assert_eq!(role[0], Value::Bulk("slave".into()));
    assert_eq!(role[3], Value::Bulk("connect".into()));
    let info = owner.talk("INFO replication").text();
    for line in [
        "role:slave",
        "master_link_status:down",
        "home_role:unproven",
        "home_lease:lapsed",
    ] {
        assert!(info.contains(line), "{line}: {info}");
    }

    owner.prove(true);
    assert_eq!(owner.talk("GET k"), Value::Bulk("1".into()));
    owner.sim.run_for(Duration::from_millis(500));
    let answered = owner.sim.received(owner.binary);
    assert_eq!(answered, binary.repeat(2), "it is answered now");
    let info = owner.talk("INFO replication").text();
    assert!(
        info.contains("role:master") && info.contains("home_lease:held"),
        "{info}"
    );

    // Another server has the store: what is here is old.
    owner.prove(false);
    owner.pair.kv_log.lose("it is another one's".into());
    owner.refuses("GET k", "MASTERDOWN");
    owner.refuses("SET k 2", "READONLY");
    let info = owner.talk("INFO replication").text();
    assert!(
        info.contains("home_role:former") && info.contains("home_lease:none"),
        "{info}"
    );
}

/// Nothing is promised about the home at level `sync`.
#[test]
fn at_another_level_an_owner_without_its_lease_serves_on() {
    let mut owner = Owner::new(false);
    owner.prove(false);
    assert_eq!(owner.talk("GET k"), Value::Bulk("1".into()));
    assert!(owner.read().contains(&b'1'));
    let info = owner.talk("INFO replication").text();
    for line in ["role:master", "home_role:owner", "home_lease:lapsed"] {
        assert!(info.contains(line), "{line}: {info}");
    }
}

/// The command was answered nil, as if there had been nothing, though another server may have had
/// something for it.
#[test]
fn a_command_that_waits_is_refused_when_its_time_is_over_behind_the_lease() {
    let mut owner = Owner::new(true);
    let answer_after = |owner: &mut Owner, happens: &dyn Fn(&mut Owner)| {
        owner.prove(true);
        let waiting = owner.sim.plain(&owner.addr);
        let line = "XREAD BLOCK 1000 STREAMS s 0";
        owner.sim.send(waiting, &command(line));
        owner.sim.run_for(Duration::from_millis(200));
        assert_eq!(owner.sim.received(waiting), b"", "it waits");
        happens(owner);
        owner.sim.run_for(Duration::from_secs(2));
        String::from_utf8_lossy(owner.sim.received(waiting)).into_owned()
    };
    assert_eq!(answer_after(&mut owner, &|_| {}), "*-1\r\n");
    let told = answer_after(&mut owner, &|owner| owner.prove(false));
    assert!(told.starts_with("-MASTERDOWN this server has"), "{told:?}");
    let told = answer_after(&mut owner, &|owner| {
        owner.prove(false);
        owner.pair.kv_log.lose("it is another one's".into());
    });
    assert!(told.starts_with("-MASTERDOWN another server"), "{told:?}");
}

/// What clients had kept stayed with them, though another server may have changed it.
#[test]
fn clients_that_keep_what_they_read_are_told_when_the_lease_has_lapsed() {
    let mut owner = Owner::new(true);
    let reader = owner.sim.plain(&owner.addr);
    let broadcast = owner.sim.plain(&owner.addr);
    for (client, line) in [
        (reader, "HELLO 3"),
        (reader, "CLIENT TRACKING ON"),
        (reader, "GET k"),
        (broadcast, "HELLO 3"),
        (broadcast, "CLIENT TRACKING ON BCAST"),
    ] {
        owner.sim.send(client, &command(line));
        owner.sim.run_for(Duration::from_millis(200));
    }
    let everything: &[u8] = b">2\r\n$10\r\ninvalidate\r\n_\r\n";
    for _ in 0..2 {
        let mut told = [0, 0];
        for (client, told) in [reader, broadcast].into_iter().zip(&mut told) {
            *told = owner.sim.received(client).len();
        }
        owner.prove(false);
        owner.sim.run_for(Duration::from_secs(1));
        for (client, before) in [reader, broadcast].into_iter().zip(told) {
            let all = owner.sim.received(client);
            assert_eq!(&all[before..], everything, "once");
        }
        owner.prove(true);
        owner.sim.run_for(Duration::from_secs(1));
        owner.sim.send(reader, &command("GET k"));
        owner.sim.run_for(Duration::from_millis(200));
    }
}
