//! What goes through a hash table has an order that clients see: it is that of the keys, or hangs on the store's key alone. Each of these is
//! also run in two processes, whose hash tables of the standard library have other keys: see `main.rs`.

use crate::common::{Client, World};

const MANY: usize = 40;

/// Clients that wait, each for a key of its own, in the database 1.
fn waiting(world: &mut World, line: impl Fn(usize) -> String) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..MANY).map(|n| world.client_of(n % 2)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        world.check(client, "SELECT 1", "+OK|");
        world.check(client, &line(n), "");
    }
    clients
}

#[test]
fn channels_are_listed_in_order() {
    let mut world = World::new();
    let mut listener = world.client();
    for n in 0..MANY {
        world.ask(&mut listener, &format!("SUBSCRIBE c{:02}", n * 7 % MANY));
    }
    let mut client = world.client();
    let all: String = (0..MANY).map(|n| format!("$3|c{n:02}|")).collect();
    world.check(&mut client, "PUBSUB CHANNELS", &format!("*{MANY}|{all}"));
}

#[test]
fn what_is_flushed_is_told_in_order() {
    let mut world = World::new();
    let mut client = world.client();
    world.check(&mut client, "SELECT 1", "+OK|");
    for n in 0..MANY {
        let made = format!("XGROUP CREATE s{n} g 0 MKSTREAM");
        world.check(&mut client, &made, "+OK|");
    }
    let mut clients = waiting(&mut world, |n| {
        format!("XREADGROUP GROUP g c BLOCK 0 STREAMS s{n} >")
    });
    world.check(&mut client, "FLUSHALL", "+OK|");
    for client in &mut clients {
        let told = world.answer(client);
        assert!(
            told.starts_with("-UNBLOCKED") || told.starts_with("-NOGROUP"),
            "{told}"
        );
    }
}

#[test]
fn what_databases_bring_when_they_are_swapped_is_served_in_order() {
    let mut world = World::new();
    let mut client = world.client();
    for n in 0..MANY {
        world.check(&mut client, &format!("RPUSH k{n:02} v{n:02}"), ":1|");
    }
    let mut clients = waiting(&mut world, |n| format!("BLMOVE k{n:02} all LEFT RIGHT 0"));
    world.check(&mut client, "SWAPDB 0 1", "+OK|");
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(world.answer(client), format!("$3|v{n:02}|"));
    }
    // Each was put there when its client was served.
    world.check(&mut client, "SELECT 1", "+OK|");
    let served = world.ask(&mut client, "LRANGE all 0 -1");
    assert!(served.starts_with(&format!("*{MANY}|")), "{served}");
}

#[test]
fn notes_that_are_too_many_go_as_the_stores_key_says() {
    let mut world = World::new();
    let mut reader = world.client();
    world.ask(&mut reader, "HELLO 3");
    world.check(&mut reader, "CLIENT TRACKING ON", "+OK|");
    for n in 0..MANY {
        world.check(&mut reader, &format!("GET k{n}"), "_|");
    }
    let mut client = world.client();
    world.check(&mut client, "CONFIG SET tracking-table-max-keys 10", "+OK|");
    world.sim.run_for(std::time::Duration::from_secs(5));
    let told = world.answer(&mut reader);
    assert!(told.contains("invalidate"), "{told}");
}
