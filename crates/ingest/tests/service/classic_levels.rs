//! Classic ports over a log: acknowledgements of every policy come after the commit, in the form
//! and the chain that they always had.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{acknowledged, dialects, messages};
use tidewire::sim::chunking::{self, Collected, Feed};
use tidewire::sim::{Conditions, LoopId, PlainId, PlainState, Sim};
use tidewire::{Closed, Limits};
use tidewire_ingest::classic::{AckPolicy, Classic, ClassicService, Mode};
use tidewire_ingest::testing::SteppedLog;
use tidewire_ingest::{Level, LogSink};

type Service = Arc<ClassicService<LogSink>>;

fn service(classic: Classic, log: &SteppedLog, level: Level) -> Service {
    let sink = LogSink::new(Arc::new(log.clone()), "default", level).unwrap();
    Arc::new(ClassicService::new(classic, sink))
}

/// A service on a calm network.
struct World {
    sim: Sim,
    at: LoopId,
    addr: tidewire::Endpoint,
    service: Service,
    classic: Classic,
}

impl World {
    fn new(classic: Classic, log: &SteppedLog, level: Level) -> World {
        let mut sim = Sim::under(3, Conditions::calm());
        let service = service(classic, log, level);
        let at = sim.add_loop();
        let limits = Limits {
            idle: None,
            ..classic.limits()
        };
        let served = sim.service(at, service.clone(), limits);
        let addr = sim.listen(served);
        World {
            sim,
            at,
            addr,
            service,
            classic,
        }
    }

    fn client(&mut self, bytes: &[u8]) -> PlainId {
        let client = self.sim.plain(&self.addr);
        self.sim.send(client, bytes);
        self.pass();
        client
    }

    /// Long enough for every policy's clock.
    fn pass(&mut self) {
        self.sim.run_for(Duration::from_millis(50));
    }

    fn acked(&self, client: PlainId) -> u64 {
        acknowledged(&self.classic, self.sim.received(client))
    }

    fn ended(&self, client: PlainId) -> bool {
        self.sim.state(client) != PlainState::Open
    }
}

/// The sizes that a log holds, in order; ids must count up from 0 in each connection's order.
fn sizes(log: &SteppedLog) -> Vec<usize> {
    let records = log.records("default");
    for (n, record) in records.iter().enumerate() {
        assert_eq!(record.id.to_le_bytes(), (n as u64).to_ne_bytes());
        assert_eq!(record.producer, "");
    }
    records.iter().map(|r| r.payload.len()).collect()
}

#[test]
fn durable_comes_after_the_commit() {
    for classic in dialects() {
        let log = SteppedLog::new();
        let mut world = World::new(classic, &log, Level::Durable);
        let stream = messages(&classic, [5, 0, 300, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
        let client = world.client(&stream);
        assert!(world.sim.received(client).is_empty(), "{classic:?}");
        assert!(log.waiting() > 0);
        log.commit_all();
        world.pass();
        assert_eq!(world.acked(client), 12, "{classic:?}");
        assert_eq!(sizes(&log), [5, 0, 300, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
    }
}

#[test]
fn received_comes_when_it_is_handed_over() {
    for classic in dialects() {
        let log = SteppedLog::new();
        let mut world = World::new(classic, &log, Level::Received);
        let client = world.client(&messages(&classic, [5; 12]));
        assert_eq!(world.acked(client), 12, "{classic:?}");
        assert!(log.records("default").is_empty());
        log.commit_all();
        assert_eq!(sizes(&log), [5; 12]);
    }
}

#[test]
fn half_closing_and_stopping_wait_for_the_commit() {
    for classic in dialects() {
        for stop in [false, true] {
            let log = SteppedLog::new();
            let mut world = World::new(classic, &log, Level::Durable);
            let client = world.client(&messages(&classic, [5; 12]));
            if stop {
                world.sim.stop(world.at, Duration::from_secs(5));
            } else {
                world.sim.finish(client);
            }
            world.pass();
            assert!(!world.ended(client), "{classic:?}");
            log.commit_all();
            world.pass();
            assert_eq!(world.acked(client), 12, "{classic:?}");
            assert!(world.ended(client), "{classic:?}");
        }
    }
}

#[test]
fn a_failed_log_closes_without_acknowledging() {
    for classic in dialects() {
        let log = SteppedLog::new();
        let mut world = World::new(classic, &log, Level::Durable);
        let first = world.client(&messages(&classic, [5; 12]));
        log.commit_all();
        world.pass();
        let second = world.client(&messages(&classic, [5; 12]));
        log.fail("the disk is gone");
        world.pass();
        assert!(!world.ended(first) && world.ended(second), "{classic:?}");
        assert!(world.sim.received(second).is_empty());
        let third = world.client(&messages(&classic, [5; 12]));
        assert!(world.ended(third));
        assert!(world.sim.received(third).is_empty());
        assert_eq!(world.acked(first), 12);
        assert_eq!(world.service.counters().refused_by_log, 2);
    }
}

#[test]
fn a_full_queue_and_a_full_disk_pause_reading() {
    for classic in dialects() {
        let log = SteppedLog::new().queue(500);
        let mut world = World::new(classic, &log, Level::Durable);
        // More than one chunk.
        let stream = messages(&classic, vec![5; 8000]);
        let client = world.client(&stream);
        world.sim.finish(client);
        for step in 0..2000 {
            log.disk_full(step % 5 == 0);
            world.sim.run_for(Duration::from_millis(1));
            log.commit_all();
        }
        world.pass();
        let counters = world.service.counters();
        assert!(counters.paused_by_log > 0, "{classic:?} {counters}");
        assert_eq!(world.acked(client), 8000, "{classic:?} {counters}");
        assert_eq!(sizes(&log), vec![5; 8000]);
        assert!(world.ended(client));
    }
}

#[test]
fn a_payload_above_the_limit_ends_it_after_the_commit() {
    for mut classic in dialects() {
        classic.payload_max = 1000;
        let log = SteppedLog::new();
        let mut world = World::new(classic, &log, Level::Durable);
        let client = world.client(&messages(&classic, [5, 1000, 0, 1001, 5]));
        assert!(!world.ended(client));
        log.commit_all();
        world.pass();
        assert_eq!(world.acked(client), 3, "{classic:?}");
        assert!(world.ended(client));
        assert_eq!(sizes(&log), [5, 1000, 0]);
    }
}

#[test]
fn what_does_not_fit_a_group_is_halved() {
    for classic in dialects() {
        let log = SteppedLog::new().runs(100).auto();
        let mut world = World::new(classic, &log, Level::Durable);
        let client = world.client(&messages(&classic, [5; 40]));
        assert_eq!(world.acked(client), 40, "{classic:?}");
        let large = world.client(&messages(&classic, [100]));
        assert!(world.ended(large) && world.sim.received(large).is_empty());
    }
}

#[test]
fn too_much_uncommitted_pauses_reading() {
    for classic in [Mode::RequestReply, Mode::Sync].map(Classic::preset) {
        let log = SteppedLog::new();
        let mut world = World::new(classic, &log, Level::Durable);
        let n = 200_000;
        let client = world.client(&messages(&classic, vec![100; n]));
        world.sim.finish(client);
        world.pass();
        let taken = log.taken().1;
        assert!(taken < 180_000, "{taken}");
        let counters = world.service.counters();
        assert_eq!(counters.paused_by_commits, 1);
        for _ in 0..1000 {
            log.commit_all();
            world.sim.run_for(Duration::from_millis(1));
        }
        world.pass();
        assert_eq!(world.acked(client), n as u64);
        assert_eq!(log.records("default").len(), n);
    }
}

#[test]
fn replies_to_one_that_does_not_read_them_pause_it() {
    let classic = Classic::preset(Mode::RequestReply);
    let log = SteppedLog::new().auto();
    let mut world = World::new(classic, &log, Level::Durable);
    let client = world.sim.plain(&world.addr);
    world.sim.reading(client, false);
    let n = 400_000;
    world.sim.send(client, &messages(&classic, vec![0; n]));
    world.pass();
    let taken = log.taken().1;
    assert!(taken < 300_000, "{taken}");
    world.sim.reading(client, true);
    world.sim.run_for(Duration::from_secs(2));
    assert_eq!(world.acked(client), n as u64);
}

#[test]
fn the_split_does_not_show() {
    let meaning = |classic: Classic| {
        move |got: &Collected| -> (u64, Option<Closed>) {
            (acknowledged(&classic, &got.output), got.closed)
        }
    };
    for classic in dialects() {
        let stream = messages(&classic, [5, 0, 0, 3, 5, 5, 5, 5, 5, 5, 5, 5, 700, 5, 1, 0]);
        for level in [Level::Received, Level::Durable] {
            let make = || service(classic, &SteppedLog::new().auto(), level);
            let whole = chunking::collect(make(), &stream, &[], true);
            let all = (16, Some(Closed::Finished));
            assert_eq!(meaning(classic)(&whole), all, "{classic:?}");
            chunking::assert_invisible(make, &stream, true, meaning(classic), 40);
            let bytewise = vec![1; stream.len()];
            let feed = Feed::new(&stream)
                .splits(&bytewise)
                .limits(classic.limits());
            assert_eq!(meaning(classic)(&feed.run(make())), all, "{classic:?}");
        }
    }
}

#[test]
fn idle_clients_are_closed_unless_they_wait() {
    let classic = Classic {
        policy: AckPolicy::EachChunk,
        ..Classic::preset(Mode::Sync)
    };
    let log = SteppedLog::new();
    let mut sim = Sim::under(3, Conditions::calm());
    let addr = sim.serve(service(classic, &log, Level::Durable), classic.limits());
    let client = sim.plain(addr);
    sim.send(client, &messages(&classic, [5]));
    sim.run_for(Duration::from_secs(60));
    assert_eq!(sim.state(client), PlainState::Open);
    log.commit_all();
    sim.run_for(Duration::from_secs(1));
    assert_eq!(acknowledged(&classic, sim.received(client)), 1);
    sim.run_for(Duration::from_secs(20));
    assert_ne!(sim.state(client), PlainState::Open);
}
