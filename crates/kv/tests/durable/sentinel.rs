//! What clients ask of any server of a store that fails over by itself: SENTINEL, ROLE, INFO, and the owner's address.

use std::sync::Arc;

use tidewire::sim::{PlainId, Sim};
use tidewire_kv::service::{Address, Replication, RespService, Role, Sentinel, Servers, Settings};
use tidewire_kv::store::Store;
use tidewire_log::Policy;

use crate::disk::settings;
use crate::following::{Pair, talk};
use crate::wire::Value;

const OWNER: &str = "10.0.0.1:6380";

fn at(text: &str) -> Address {
    text.parse().expect("an address")
}

fn two() -> Servers {
    Servers {
        owner: Some(at(OWNER)),
        others: vec![at(OWNER), at("10.0.0.2:6380")],
        epoch: 1,
        down_after_ms: 6000,
        ..Servers::default()
    }
}

/// A follower at 10.0.0.3, and some clients of it.
fn follower(is_member: bool) -> (Pair, RespService, Sim, [PlainId; 2]) {
    let pair = Pair::new();
    let mut sim = Sim::new(1);
    let own = Settings {
        protected: false,
        ..Settings::default()
    };
    let limits = own.limits();
    let service = RespService::durable(pair.store.clone(), own, pair.kv_log.clone());
    service.replicated(Replication::new("kafka://h/t".into(), Role::Follower));
    if is_member {
        service.tells_of(Sentinel::new("mymaster".into(), at("10.0.0.3:6380")));
    }
    let place = sim.add_loop();
    let added = sim.service(place, service.clone(), limits);
    let addr = sim.listen(added);
    let clients = [(); 2].map(|()| sim.plain(&addr));
    (pair, service, sim, clients)
}

fn texts(of: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Bulk(text) => text.clone(),
        other => format!("{other:?}"),
    };
    match of {
        Value::Array(all) => all.iter().map(text).collect(),
        other => vec![text(other)],
    }
}

fn error(of: &Value) -> String {
    match of {
        Value::Error(text) => text.clone(),
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn every_server_says_where_the_owner_is() {
    let (_pair, service, mut sim, [client, _]) = follower(true);
    let ask = |sim: &mut Sim, line: &str| talk(sim, client, line);
    let by_name = "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster";
    assert_eq!(ask(&mut sim, by_name), Value::Null);
    service.servers(two());
    assert_eq!(texts(&ask(&mut sim, by_name)), ["10.0.0.1", "6380"]);
    assert_eq!(
        ask(&mut sim, "sentinel get-master-addr-by-name other"),
        Value::Null
    );
    let Value::Array(masters) = ask(&mut sim, "SENTINEL MASTERS") else {
        panic!("no masters")
    };
    let [master] = &masters[..] else {
        panic!("{masters:?}")
    };
    let master = texts(master);
    let field = |name: &str| {
        let at = master.iter().position(|word| word == name);
        master[at.unwrap_or_else(|| panic!("{name}: {master:?}")) + 1].clone()
    };
    assert_eq!(field("name"), "mymaster");
    assert_eq!(
        (field("ip"), field("port")),
        ("10.0.0.1".into(), "6380".into())
    );
    assert_eq!(field("flags"), "master");
    assert_eq!(
        (field("num-slaves"), field("num-other-sentinels")),
        ("2".into(), "2".into())
    );
    for (line, count) in [
        ("SENTINEL REPLICAS mymaster", 2),
        ("SENTINEL SLAVES mymaster", 2),
        ("SENTINEL SENTINELS mymaster", 2),
    ] {
        let Value::Array(all) = ask(&mut sim, line) else {
            panic!("{line}")
        };
        assert_eq!(all.len(), count, "{line}");
    }
    let id = texts(&ask(&mut sim, "SENTINEL MYID"));
    assert_eq!(id[0].len(), 40);
    assert!(matches!(
        ask(&mut sim, "SENTINEL CKQUORUM mymaster"),
        Value::Simple(_)
    ));
    let down = "SENTINEL IS-MASTER-DOWN-BY-ADDR 10.0.0.1 6380 0 *";
    let is_down = |of: &Value| matches!(of, Value::Array(all) if all[0] == Value::Int(1));
    assert!(!is_down(&ask(&mut sim, down)));
    service.servers(Servers {
        is_owner_down: true,
        ..two()
    });
    assert!(is_down(&ask(&mut sim, down)));
    assert!(error(&ask(&mut sim, "SENTINEL CKQUORUM mymaster")).starts_with("NOQUORUM"));
    assert_eq!(ask(&mut sim, "SENTINEL RESET my*"), Value::Int(1));
    for (line, says) in [
        ("SENTINEL MASTER other", "No such master with that name"),
        ("SENTINEL FAILOVER mymaster", "kv promote"),
        ("SENTINEL MONITOR m 1.1.1.1 1 1", "--kv-failover"),
        ("SENTINEL SET mymaster quorum 2", "--kv-failover"),
        ("SENTINEL REMOVE mymaster", "--kv-failover"),
        ("SENTINEL NEVER", "unknown subcommand"),
    ] {
        let said = error(&ask(&mut sim, line));
        assert!(said.contains(says), "{line}: {said}");
    }
}

#[test]
fn a_follower_names_its_owner_in_role_and_info_and_where_it_refuses_a_change() {
    let (mut pair, service, mut sim, [client, _]) = follower(true);
    pair.write("SET k 1");
    pair.follow();
    // Before the owner is known the home is named.
    let role = texts(&talk(&mut sim, client, "ROLE"));
    assert_eq!(role[1], "kafka://h/t");
    service.servers(two());
    let role = texts(&talk(&mut sim, client, "ROLE"));
    assert_eq!((&*role[0], &*role[1]), ("slave", "10.0.0.1"));
    let info = texts(&talk(&mut sim, client, "INFO replication"));
    assert!(
        info[0].contains("master_host:10.0.0.1\r\nmaster_port:6380\r\n"),
        "{info:?}"
    );
    let info = texts(&talk(&mut sim, client, "INFO sentinel"));
    let says = "name=mymaster,status=ok,address=10.0.0.1:6380,slaves=2,sentinels=3";
    assert!(info[0].contains(says), "{info:?}");
    let refused = error(&talk(&mut sim, client, "SET k 2"));
    assert!(
        refused.starts_with("READONLY") && refused.contains(OWNER),
        "{refused}"
    );
    assert_eq!(talk(&mut sim, client, "GET k"), Value::Bulk("1".into()));
}

#[test]
fn subscribers_hear_that_the_owner_is_another_one() {
    let (_pair, service, mut sim, [client, _]) = follower(true);
    service.servers(two());
    talk(&mut sim, client, "SUBSCRIBE +switch-master");
    let before = sim.received(client).len();
    service.servers(Servers {
        owner: Some(at("10.0.0.3:6380")),
        epoch: 2,
        ..two()
    });
    sim.run_for(std::time::Duration::from_millis(500));
    let all = sim.received(client);
    let (message, _) = Value::parse(&all[before..]).expect("a message");
    let message = texts(&message);
    assert_eq!(
        message[2], "mymaster 10.0.0.1 6380 10.0.0.3 6380",
        "{message:?}"
    );
}

#[test]
fn a_server_that_loads_its_own_log_does_not_say_that_it_is_the_owner() {
    let store = Arc::new(Store::new(settings(1)));
    store.begin_loading();
    let mut sim = Sim::new(1);
    let own = Settings {
        protected: false,
        ..Settings::default()
    };
    let limits = own.limits();
    let service = RespService::recovering(store, own, Policy::Sync);
    service.replicated(Replication::new("kafka://h/t".into(), Role::Owner));
    service.tells_of(Sentinel::new("mymaster".into(), at("10.0.0.3:6380")));
    service.servers(two());
    let place = sim.add_loop();
    let added = sim.service(place, service, limits);
    let addr = sim.listen(added);
    let client = sim.plain(&addr);
    let role = texts(&talk(&mut sim, client, "ROLE"));
    assert_eq!((&*role[0], &*role[1]), ("slave", "10.0.0.1"));
    let info = texts(&talk(&mut sim, client, "INFO replication"));
    assert!(info[0].contains("role:slave\r\n"), "{info:?}");
    assert!(info[0].contains("home_role:unproven\r\n"), "{info:?}");
    // The owner is known all the same.
    let found = talk(
        &mut sim,
        client,
        "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster",
    );
    assert_eq!(texts(&found), ["10.0.0.1", "6380"]);
}

#[test]
fn a_server_without_others_says_so() {
    let (_pair, _service, mut sim, [client, _]) = follower(false);
    let said = error(&talk(&mut sim, client, "SENTINEL MASTERS"));
    assert!(said.contains("--kv-failover"), "{said}");
    let info = texts(&talk(&mut sim, client, "INFO everything"));
    assert!(!info[0].contains("# Sentinel"), "{info:?}");
    let refused = error(&talk(&mut sim, client, "SET k 2"));
    assert!(refused.starts_with("READONLY"), "{refused}");
}
