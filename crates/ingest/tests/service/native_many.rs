//! Many producers at once, on networks drawn from seeds: no producer starves, nothing is lost,
//! nothing is stored twice, and memory stays bounded.

use std::collections::HashMap;
use std::time::Duration;

use crate::native::{Client, Frame, World, frames, hello, messages, produce, settings};
use tidewire::sim::{Conditions, Sim, seeds};
use tidewire_ingest::native::codec::{Hello, Level, Produce};
use tidewire_ingest::testing::SteppedLog;

/// Runs until every client has `last` acknowledged, with a commit of at most `group` batches each
/// millisecond. How many were done when the first of them was.
fn run(world: &mut World, clients: &[(Client, u64)], group: usize) {
    for _ in 0..200_000 {
        world.sim.run_for(Duration::from_millis(1));
        world.log.commit(group);
        if clients
            .iter()
            .all(|&(c, last)| acked(world, c) == Some(last))
        {
            return;
        }
    }
    let late = clients
        .iter()
        .filter(|&&(c, last)| acked(world, c) != Some(last));
    panic!(
        "{} never had all acknowledged: {}",
        late.count(),
        world.counters()
    );
}

/// What the last whole frame acknowledges: behind a welcome, every frame has the same length here.
fn acked(world: &World, client: Client) -> Option<u64> {
    const WELCOME: usize = 40;
    const ACK: usize = 16;
    let behind = world.sim.received(client.peer).get(WELCOME..)?;
    let whole = behind.len() / ACK * ACK;
    match frames(&behind[whole.checked_sub(ACK)?..whole])[..] {
        [Frame::Ack(id)] => Some(id),
        _ => None,
    }
}

#[test]
fn thousands_of_producers_with_few_messages() {
    const N: usize = 3000;
    let mut world = World::new(SteppedLog::new());
    let names: Vec<String> = (0..N).map(|n| format!("p{n}")).collect();
    let mut clients = Vec::new();
    for name in &names {
        let client = world.connect();
        let mut bytes = hello(Hello::Produce(produce(name)));
        bytes.extend(messages(1..=3));
        world.sim.send(client.peer, &bytes);
        clients.push((client, 3));
    }
    run(&mut world, &clients, usize::MAX);
    assert_eq!(world.service.sessions(), N);
    let counters = world.counters();
    assert_eq!(counters.messages, 3 * N as u64);
    assert!(counters.acks <= 3 * N as u64);
    assert_eq!(world.log.records("default").len(), 3 * N);
    for (client, _) in clients {
        world.sim.close(client.peer, true);
    }
    world.quiet();
    assert_eq!(world.service.sessions(), 0);
}

#[test]
fn a_flood_does_not_starve_its_neighbours() {
    for seed in 0..6 {
        let conditions = Conditions {
            latency: Duration::from_micros(20)..=Duration::from_micros(300),
            ..Conditions::calm()
        };
        let sim = Sim::under(seed, conditions);
        let log = SteppedLog::new().queue(100 << 10);
        let mut world = World::on(sim, log, settings());
        let flood = world.producer(produce("flood"));
        world.sim.send(flood.peer, &messages(1..=200_000));
        let names: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
        let few: Vec<(Client, u64)> = names
            .iter()
            .map(|name| {
                let client = world.connect();
                let mut bytes = hello(Hello::Produce(Produce {
                    level: if name.len() == 2 {
                        Some(Level::Received)
                    } else {
                        Some(Level::Durable)
                    },
                    ..produce(name)
                }));
                bytes.extend(messages(1..=20));
                world.sim.send(client.peer, &bytes);
                (client, 20)
            })
            .collect();
        run(&mut world, &few, usize::MAX);
        let done = acked(&world, flood).unwrap_or(0);
        assert!(
            done < 100_000,
            "seed {seed}: they waited for {done} of the flood"
        );
        run(&mut world, &[(flood, 200_000)], usize::MAX);
        let counters = world.counters();
        assert!(counters.paused_by_log > 0, "seed {seed}: {counters}");
        let mut stored: HashMap<String, Vec<u64>> = HashMap::new();
        for record in world.log.records("default") {
            stored.entry(record.producer).or_default().push(record.id);
        }
        assert!(stored["flood"].iter().copied().eq(1..=200_000));
        for name in &names {
            assert!(stored[name].iter().copied().eq(1..=20));
        }
    }
}

/// A producer connects again and again while the older connections still send: whatever the network
/// does to them, each id is stored once and in order, and a welcome never takes back what was
/// acknowledged.
#[test]
fn connected_many_times_at_once_each_id_is_stored_once() {
    for seed in seeds(40) {
        let mut world = World::on(Sim::new(seed), SteppedLog::new(), settings());
        let mut clients = Vec::new();
        for _ in 0..6 {
            let client = world.connect();
            let mut bytes = hello(Hello::Produce(produce("a")));
            bytes.extend(messages(1..=300));
            world.sim.send(client.peer, &bytes);
            clients.push(client);
            for _ in 0..seed % 7 {
                world
                    .sim
                    .run_for(Duration::from_micros(300 + 700 * (seed % 3)));
                world.log.commit(1);
            }
        }
        for _ in 0..20_000 {
            world.sim.run_for(Duration::from_millis(1));
            world.log.commit(2);
            if world.log.records("default").len() == 300 {
                world.quiet();
                break;
            }
        }
        assert_eq!(
            world.stored("a"),
            (1..=300).collect::<Vec<_>>(),
            "seed {seed}"
        );
        let mut best = 0;
        for client in clients {
            for frame in frames(world.sim.received(client.peer)) {
                if let Frame::Ack(id) = frame {
                    best = best.max(id);
                }
            }
        }
        assert_eq!(best, 300, "seed {seed}");
    }
}

/// Many producers with crashes of the server: what was acknowledged as durable is there.
#[test]
fn what_was_acknowledged_survives_a_crash() {
    for seed in seeds(60) {
        let mut log = SteppedLog::new();
        let mut acked_ever = 0;
        for life in 0..5 {
            let sim = Sim::new(seed * 10 + life);
            let mut world = World::on(sim, log.clone(), settings());
            let client = world.connect();
            let mut bytes = hello(Hello::Produce(produce("a")));
            bytes.extend(messages(acked_ever + 1..=acked_ever + 500));
            world.sim.send(client.peer, &bytes);
            for _ in 0..5 + seed % 11 {
                world.sim.run_for(Duration::from_millis(3));
                world.log.commit(1);
            }
            world.sim.run_for(Duration::from_millis(1 + seed % 30));
            for frame in frames(world.sim.received(client.peer)) {
                match frame {
                    Frame::Ack(id) => acked_ever = acked_ever.max(id),
                    Frame::Welcome { last_id, .. } => {
                        assert!(last_id.unwrap_or(0) >= acked_ever, "seed {seed}");
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            log = world.log.crash();
            let stored: Vec<u64> = log.records("default").iter().map(|r| r.id).collect();
            let count = stored.len() as u64;
            assert_eq!(stored, (1..=count).collect::<Vec<_>>(), "seed {seed}");
            assert!(count >= acked_ever, "seed {seed}: {count} of {acked_ever}");
        }
    }
}
