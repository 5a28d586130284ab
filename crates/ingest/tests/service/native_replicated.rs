//! Producers that want to hear that what they send is at home, where the server's log is replicated to.

use std::time::Duration;

use crate::native::{Frame, World, messages, produce};
use tidewire_ingest::native::codec::{Hello, Level, Produce, Reason};
use tidewire_ingest::testing::SteppedLog;
use tidewire_log::{Carried, Failure, Log, Policy, Selection, Ticket};

fn replicated(producer: &str) -> Produce<'_> {
    Produce {
        level: Some(Level::Replicated),
        ..produce(producer)
    }
}

fn welcome(level: Level, last_id: Option<u64>) -> Frame {
    Frame::Welcome { level, last_id }
}

/// All batches up to this one are at home.
fn home(log: &SteppedLog, ticket: u64) {
    log.carried(Carried {
        replicated: Some(Ticket(ticket)),
        replicates: true,
        ..Carried::default()
    });
}

#[test]
fn without_a_home_or_a_sync_no_more_is_granted_than_there_is() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.client(Hello::Produce(replicated("a")));
    assert_eq!(world.frames(&mut a), [welcome(Level::Durable, None)]);
    // The level holds what it promises, too.
    world.send(a, &messages(1..=3));
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(3)]);

    let mut world = World::new(SteppedLog::new().policy_of(Policy::Os));
    home(&world.log, 0);
    let mut a = world.client(Hello::Produce(replicated("a")));
    assert_eq!(world.frames(&mut a), [welcome(Level::Received, None)]);
}

/// A server that was just started: what it can promise is not known before it has reached the home.
#[test]
fn a_hello_waits_until_it_is_known_whether_there_is_a_home() {
    let mut world = World::new(SteppedLog::new());
    let seeks = Carried {
        seeks_home: true,
        ..Carried::default()
    };
    world.log.carried(seeks.clone());
    let mut a = world.client(Hello::Produce(replicated("a")));
    let mut durable = world.client(Hello::Produce(produce("d")));
    assert_eq!(world.frames(&mut durable).len(), 1);
    assert_eq!(world.frames(&mut a), []);
    world.log.carried(seeks.clone());
    assert_eq!(world.frames(&mut a), []);
    home(&world.log, 0);
    assert_eq!(world.frames(&mut a), [welcome(Level::Replicated, None)]);

    // A server without a home.
    let mut world = World::new(SteppedLog::new());
    world.log.carried(seeks);
    let mut a = world.client(Hello::Produce(replicated("a")));
    assert_eq!(world.frames(&mut a), []);
    world.log.carried(Carried::default());
    assert_eq!(world.frames(&mut a), [welcome(Level::Durable, None)]);
}

/// The refused client comes again: to a client that was granted the level before, the server has
/// only been started again.
#[test]
fn a_hello_that_has_waited_for_the_home_long_enough_is_to_come_again() {
    let mut world = World::new(SteppedLog::new());
    world.log.carried(Carried {
        seeks_home: true,
        away: Some(Failure("the brokers sleep".into())),
        ..Carried::default()
    });
    let mut a = world.client(Hello::Produce(replicated("a")));
    let within = world.service.settings().hello_within;
    world.sim.run_for(within + Duration::from_millis(100));
    let told = world.sim.received(a.peer).to_vec();
    let says = |text: &str| told.windows(text.len()).any(|it| it == text.as_bytes());
    assert!(says("has not reached the home of its log yet") && says("the brokers sleep"));
    let frames = world.frames(&mut a);
    let is_stopping = |frame: &Frame| {
        matches!(
            frame,
            Frame::Refusal {
                reason: Reason::Stopping,
                ..
            }
        )
    };
    assert!(frames.iter().any(is_stopping), "{frames:?}");
}

#[test]
fn a_stream_that_is_not_carried_is_granted_what_is_kept_here() {
    let other = Selection::of(["other*"]).expect("a selection");
    let mut world = World::new(SteppedLog::new().carries(other));
    home(&world.log, 0);
    let mut a = world.client(Hello::Produce(replicated("a")));
    assert_eq!(world.frames(&mut a), [welcome(Level::Durable, None)]);
    world.send(a, &messages(1..=3));
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(3)]);
    let mut b = world.client(Hello::Produce(Produce {
        stream: "other-1",
        ..replicated("b")
    }));
    assert_eq!(world.frames(&mut b), [welcome(Level::Replicated, None)]);
}

#[test]
fn an_acknowledgement_waits_for_the_home_and_that_of_others_does_not() {
    let mut world = World::new(SteppedLog::new());
    home(&world.log, 0);
    let mut a = world.client(Hello::Produce(replicated("a")));
    assert_eq!(world.frames(&mut a), [welcome(Level::Replicated, None)]);
    let mut durable = world.producer(produce("d"));
    world.send(a, &messages(1..=10));
    world.send(durable, &messages(1..=5));
    world.send(a, &messages(11..=20));
    world.log.commit_all();
    assert_eq!(world.frames(&mut durable), [Frame::Ack(5)]);
    assert_eq!(world.frames(&mut a), []);
    home(&world.log, 1);
    assert_eq!(world.frames(&mut a), [Frame::Ack(10)]);
    // Messages at home are not sent there twice, and the rest is still on its way.
    world.send(a, &messages(5..=20));
    assert_eq!(world.frames(&mut a), []);
    home(&world.log, 3);
    assert_eq!(world.frames(&mut a), [Frame::Ack(20)]);
    assert_eq!(world.stored("a"), (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_welcome_names_nothing_that_is_not_at_home() {
    let mut world = World::new(SteppedLog::new());
    let a = world.producer(produce("a"));
    world.send(a, &messages(1..=10));
    world.log.commit_all();
    // The home is there, and has nothing of what was there before it.
    world.log.carried(Carried {
        replicates: true,
        ..Carried::default()
    });
    let mut again = world.client(Hello::Produce(replicated("a")));
    let mut other = world.client(Hello::Produce(replicated("new")));
    assert_eq!(world.frames(&mut again), []);
    assert_eq!(world.frames(&mut other), [welcome(Level::Replicated, None)]);
    home(&world.log, 0);
    assert_eq!(world.frames(&mut again), []);
    home(&world.log, 1);
    assert_eq!(
        world.frames(&mut again),
        [welcome(Level::Replicated, Some(10))]
    );
}

#[test]
fn while_the_home_is_away_the_server_says_so_and_acknowledges_nothing() {
    let mut world = World::new(SteppedLog::new());
    home(&world.log, 0);
    let mut a = world.producer(replicated("a"));
    world.send(a, &messages(1..=2));
    world.log.commit_all();
    world.log.carried(Carried {
        replicates: true,
        away: Some(Failure("the brokers sleep".into())),
        ..Carried::default()
    });
    world.sim.run_for(Duration::from_millis(1500));
    let told = world.sim.received(a.peer).to_vec();
    let says = |text: &str| told.windows(text.len()).any(|it| it == text.as_bytes());
    assert!(says("the brokers sleep"));
    assert!(
        world
            .frames(&mut a)
            .iter()
            .all(|frame| *frame == Frame::KeepAlive(0))
    );
    home(&world.log, 1);
    assert_eq!(world.frames(&mut a).last(), Some(&Frame::Ack(2)));
}

#[test]
fn a_home_that_is_lost_for_good_is_promised_to_no_producer() {
    let mut world = World::new(SteppedLog::new());
    home(&world.log, 0);
    let mut a = world.producer(replicated("a"));
    world.send(a, &messages(1..=2));
    world.log.commit_all();
    world.log.carried(Carried::default());
    assert_eq!(world.frames(&mut a), []);
    let mut b = world.client(Hello::Produce(replicated("b")));
    assert_eq!(world.frames(&mut b), [welcome(Level::Durable, None)]);
}

#[test]
fn half_closing_waits_for_the_home_and_a_failing_log_for_no_producer() {
    let mut world = World::new(SteppedLog::new());
    home(&world.log, 0);
    let mut a = world.producer(replicated("a"));
    let mut b = world.producer(replicated("b"));
    world.send(a, &messages(1..=2));
    world.sim.finish(a.peer);
    world.log.commit_all();
    assert!(!world.ended(a));
    home(&world.log, 1);
    assert_eq!(world.frames(&mut a), [Frame::Ack(2)]);
    assert!(world.ended(a));
    world.send(b, &messages(1..=2));
    world.log.commit_all();
    world.log.fail("on purpose");
    let refused = world.frames(&mut b);
    assert!(
        matches!(
            refused[..],
            [Frame::Refusal {
                id: 1,
                reason: Reason::LogFailed,
                ..
            }]
        ),
        "{refused:?}"
    );
}
