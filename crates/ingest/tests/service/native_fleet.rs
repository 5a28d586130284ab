//! Producers whose partitions move between servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewire_ingest::native::codec::{Hello, Level, Produce, Reason};
use tidewire_ingest::native::{Fleet, Settings};
use tidewire_ingest::testing::SteppedLog;
use tidewire_log::{Carried, Log, Tenure, Ticket};
use tidewire_replicate::{Ending, Hold, Owners};

use crate::native::{
    Client, Frame, World, messages, produce, reader, refusal, settings, subscribe,
};

/// Producers in the first of two partitions.
const OURS: [&str; 2] = ["a", "web-8"];
/// A producer in the other partition.
const THEIRS: &str = "web-7";

struct Node {
    world: World,
    owners: Owners,
}

fn tenure(number: u64) -> Tenure {
    Tenure {
        partition: 0,
        number,
    }
}

/// A hold of the first partition, with this at home of producer a.
fn hold(number: u64, mark: Option<u64>) -> Arc<Hold> {
    let marks = mark.map(|mark| (("default".into(), "a".into()), mark));
    Arc::new(Hold::new(tenure(number), &marks.into_iter().collect()))
}

impl Node {
    fn new() -> Node {
        let owners = Owners::default();
        let settings = Settings {
            fleet: Some(Fleet::shared(owners.clone(), 2)),
            ..settings()
        };
        let world = World::with(SteppedLog::new(), settings, 7);
        Node { world, owners }
    }

    /// The first partition is here, or there; the other one is elsewhere.
    fn has(&mut self, first: Result<&Arc<Hold>, Option<&str>>) {
        let mut places = BTreeMap::from([(1, Arc::from("b.example:7400"))]);
        let mut held = BTreeMap::new();
        match first {
            Ok(hold) => drop(held.insert(0, hold.clone())),
            Err(Some(place)) => drop(places.insert(0, Arc::from(place))),
            Err(None) => {}
        }
        self.owners.change(held, places);
        self.owners.wake();
        self.world.quiet();
    }

    fn client(&mut self, produce: Produce<'_>) -> Client {
        self.world.client(Hello::Produce(produce))
    }
}

fn replicated(producer: &str) -> Produce<'_> {
    Produce {
        level: Some(Level::Replicated),
        ..produce(producer)
    }
}

fn welcome(level: Level, last_id: Option<u64>) -> Frame {
    Frame::Welcome { level, last_id }
}

#[test]
fn a_producer_of_this_partition_goes_on_behind_the_home_and_others_are_sent_away() {
    let mut node = Node::new();
    let hold = hold(3, Some(10));
    node.has(Ok(&hold));
    let mut a = node.client(produce("a"));
    let mut new = node.client(produce("web-8"));
    let mut theirs = node.client(produce(THEIRS));
    let mut nobody = node.client(produce(""));
    let world = &mut node.world;
    assert_eq!(world.frames(&mut a), [welcome(Level::Durable, Some(10))]);
    assert_eq!(world.frames(&mut new), [welcome(Level::Durable, None)]);
    assert_eq!(world.frames(&mut theirs), [refusal(0, Reason::Moved)]);
    assert_eq!(world.frames(&mut nobody), [welcome(Level::Durable, None)]);
    // Messages at home are duplicates; the others are new.
    world.send(a, &messages(9..=12));
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(10), Frame::Ack(12)]);
    assert_eq!(world.stored(&tenure(3).name("a")), [11, 12]);
    // For a connection after it, the log knows more than the home does.
    let mut again = node.client(produce("a"));
    let world = &mut node.world;
    assert_eq!(
        world.frames(&mut again),
        [welcome(Level::Durable, Some(12))]
    );
    // Readers know the name that was given.
    let mut reader = reader(world, subscribe());
    let read = world.frames(&mut reader);
    let of_a = |frame: &Frame| matches!(frame, Frame::Batch { producer, .. } if producer == "a");
    assert!(read.iter().any(of_a), "{read:?}");
}

/// What was taken in an earlier tenure says nothing: another server had the partition since.
#[test]
fn a_tenure_knows_nothing_of_the_one_before() {
    let mut node = Node::new();
    let first = hold(3, None);
    node.has(Ok(&first));
    let a = node.client(produce("a"));
    node.world.send(a, &messages(1..=50));
    node.world.log.commit_all();
    node.world.quiet();
    first.ends(Ending::Over);
    node.has(Ok(&hold(5, Some(20))));
    let mut again = node.client(produce("a"));
    let world = &mut node.world;
    assert_eq!(
        world.frames(&mut again),
        [welcome(Level::Durable, Some(20))]
    );
    world.send(again, &messages(21..=22));
    world.log.commit_all();
    assert_eq!(world.frames(&mut again), [Frame::Ack(22)]);
    assert_eq!(world.stored(&tenure(5).name("a")), [21, 22]);
}

#[test]
fn while_a_partition_has_no_owner_a_hello_waits_and_not_for_ever() {
    let mut node = Node::new();
    node.has(Err(None));
    let mut waits = OURS.map(|name| node.client(produce(name)));
    assert_eq!(node.world.frames(&mut waits[0]), []);
    let within = node.world.service.settings().hello_within;
    node.world.sim.run_for(within - Duration::from_millis(500));
    node.has(Ok(&hold(1, None)));
    for client in &mut waits {
        let frames = node.world.frames(client);
        assert_eq!(frames, [welcome(Level::Durable, None)]);
    }
    node.has(Err(None));
    let mut vain = node.client(produce("web-8"));
    node.world.sim.run_for(within + Duration::from_millis(500));
    let frames = node.world.frames(&mut vain);
    assert_eq!(frames, [refusal(0, Reason::Stopping)]);
    // A new connection hears where to go.
    let mut sent = node.client(produce("web-8"));
    assert_eq!(node.world.frames(&mut sent), []);
    node.has(Err(Some("c.example:7400")));
    assert_eq!(node.world.frames(&mut sent), [refusal(0, Reason::Moved)]);
}

#[test]
fn acknowledgements_of_a_partition_wait_for_its_own_home() {
    let mut node = Node::new();
    let hold = hold(1, None);
    hold.reached(Some(Ticket(0)));
    node.has(Ok(&hold));
    let mut a = node.client(replicated("a"));
    let world = &mut node.world;
    assert_eq!(world.frames(&mut a), [welcome(Level::Replicated, None)]);
    world.send(a, &messages(1..=3));
    world.log.commit_all();
    // Anonymous messages are at home, which says nothing of others.
    world.log.carried(Carried {
        replicated: Some(Ticket(1)),
        replicates: true,
        ..Carried::default()
    });
    assert_eq!(world.frames(&mut a), []);
    let mut again = node.client(replicated("a"));
    assert_eq!(node.world.frames(&mut again), []);
    hold.reached(Some(Ticket(1)));
    node.world.log.carried(Carried::default());
    assert_eq!(
        node.world.frames(&mut again),
        [welcome(Level::Replicated, Some(3))]
    );
}

#[test]
fn a_partition_that_is_handed_over_ends_with_what_is_owed() {
    let mut node = Node::new();
    let hold = hold(1, None);
    hold.reached(Some(Ticket(0)));
    node.has(Ok(&hold));
    let mut a = node.client(replicated("a"));
    node.world.send(a, &messages(1..=3));
    node.world.log.commit_all();
    node.world.quiet();
    hold.ends(Ending::Leaving);
    node.has(Err(Some("b.example:7400")));
    // Nothing more is taken, and nothing is forgotten.
    node.world.send(a, &messages(4..=6));
    assert_eq!(
        node.world.frames(&mut a),
        [welcome(Level::Replicated, None)]
    );
    assert!(!node.world.ended(a));
    hold.reached(Some(Ticket(1)));
    node.world.log.carried(Carried::default());
    assert_eq!(
        node.world.frames(&mut a),
        [Frame::Ack(3), refusal(4, Reason::Moved)]
    );
    assert_eq!(node.world.stored(&tenure(1).name("a")), [1, 2, 3]);
    assert!(node.world.ended(a));
}

#[test]
fn a_lost_partition_acknowledges_nothing_any_more() {
    let mut node = Node::new();
    let hold = hold(1, None);
    hold.reached(Some(Ticket(0)));
    node.has(Ok(&hold));
    let mut a = node.client(replicated("a"));
    node.world.send(a, &messages(1..=3));
    node.world.log.commit_all();
    assert_eq!(
        node.world.frames(&mut a),
        [welcome(Level::Replicated, None)]
    );
    hold.ends(Ending::Over);
    node.has(Err(None));
    assert_eq!(node.world.frames(&mut a), [refusal(4, Reason::Stopping)]);
    assert!(node.world.ended(a));
}
