//! Taking a store over, step by step, over a home in which nothing goes wrong but what is said; and
//! making way for another owner.

use std::sync::Arc;
use std::time::Duration;

use tidewire_kv::durable::{
    Applier, FollowError, FollowSettings, Follower, Heard, KvLog, Source, Standing,
};
use tidewire_kv::store::Store;
use tidewire_log::Policy;
use tidewire_log::disk::sim::SimDisk;
use tidewire_replicate::{
    Answer, Ask, Held, Home, Owner, Place, Replicator, Settings, Transaction,
};

use crate::disk::{open, settings};
use crate::following::Pair;
use crate::sim_home::{Cluster, SimHome};

/// Milliseconds since 1970.
const THEN: u64 = 1_000;

/// What a home holds, in order, and then nothing.
struct Read(Vec<Heard>);

impl Source for Read {
    fn next(&mut self, _: bool) -> Result<Heard, Arc<str>> {
        Ok(match self.0.is_empty() {
            true => Heard::End,
            false => self.0.remove(0),
        })
    }
}

const TAKER: Owner = Owner { log: 5, session: 6 };

/// A follower of an empty home, which takes it over.
fn taker(cluster: &Cluster) -> (Follower, SimHome) {
    cluster.state().is_kind = true;
    let store = Arc::new(Store::new(settings(1)));
    store.set_effects(Arc::new(KvLog::following(Policy::Sync)));
    let mut follower = Follower::new(Applier::new(store, 0), FollowSettings::default());
    follower.take_over(TAKER);
    (follower, SimHome::new(cluster, 1))
}

fn step(
    follower: &mut Follower,
    home: &mut SimHome,
    read: Vec<Heard>,
    at_s: u64,
) -> Result<(), FollowError> {
    let at = Duration::from_secs(at_s);
    follower
        .step(at, THEN, &mut Read(read), home, &mut || true)
        .map(drop)
}

#[test]
fn a_promotion_without_a_requester_is_cancelled_while_the_home_is_not_claimed() {
    let cluster = Cluster::new(1);
    let (mut follower, mut home) = taker(&cluster);
    for at in 0..1000 {
        step(&mut follower, &mut home, Vec::new(), at).expect("the home is away");
    }
    assert_eq!(
        follower.standing(),
        Standing::TakesOver,
        "it is tried again"
    );
    follower.want(false);
    step(&mut follower, &mut home, Vec::new(), 1000).expect("it is away still");
    assert!(follower.take_called_off() && !follower.take_called_off());
    assert_eq!(follower.standing(), Standing::Follows);
    // The home is there again, and does what it was asked; nothing comes of that.
    for at in 1001..1100 {
        while cluster.state().deliver() {}
        step(&mut follower, &mut home, Vec::new(), at).expect("nothing to take over");
    }
    assert_eq!(cluster.state().held.owner, None);
    assert_eq!(follower.standing(), Standing::Follows);
}

#[test]
fn a_takeover_that_has_claimed_the_home_or_may_have_goes_on() {
    for is_claimed in [true, false] {
        let cluster = Cluster::new(1);
        let (mut follower, mut home) = taker(&cluster);
        step(&mut follower, &mut home, Vec::new(), 0).expect("it looks at the home");
        assert!(cluster.state().deliver());
        step(&mut follower, &mut home, Vec::new(), 0).expect("it opens the home");
        assert!(cluster.state().deliver());
        step(&mut follower, &mut home, Vec::new(), 1).expect("it claims the home");
        follower.want(false);
        if is_claimed {
            assert!(cluster.state().deliver());
            assert_eq!(cluster.state().held.owner, Some(TAKER));
        }
        // The answer is not heard, and the outcome is unknown.
        home = SimHome::new(&cluster, 2);
        let nothing = || vec![Heard::Nothing];
        step(&mut follower, &mut home, nothing(), 100).expect("the answer has not come in time");
        assert_eq!(
            follower.standing(),
            Standing::TakesOver,
            "it may be claimed"
        );
        step(&mut follower, &mut home, nothing(), 101).expect("it opens it again");
        if !is_claimed {
            cluster.state().lose();
            step(&mut follower, &mut home, nothing(), 202).expect("no answer again");
            step(&mut follower, &mut home, nothing(), 203).expect("it opens it again");
        }
        for at in 300..310 {
            while cluster.state().deliver() {}
            step(&mut follower, &mut home, nothing(), at).expect("the home is there");
        }
        let (standing, owner) = match is_claimed {
            true => (Standing::Owns(0), Some(TAKER)),
            false => (Standing::Follows, None),
        };
        assert_eq!(
            (follower.standing(), cluster.state().held.owner),
            (standing, owner)
        );
        assert_eq!(follower.take_called_off(), !is_claimed);
    }
}

/// A home that tells something, and is never to be opened.
struct Shut(Answer, Vec<u64>);

impl Home for Shut {
    fn ask(&mut self, number: u64, ask: Ask) {
        assert!(
            matches!(ask, Ask::Look),
            "{ask:?}: the former owner is fenced"
        );
        self.1.push(number);
    }

    fn answer(&mut self) -> Option<(u64, Answer)> {
        Some((self.1.pop()?, self.0.clone()))
    }
}

#[test]
fn a_home_that_cannot_be_a_stores_or_keeps_no_promise_is_not_fenced() {
    let mut messages = Held::default();
    messages.streams.insert("kv".into(), Place::default());
    messages.streams.insert("app".into(), Place::default());
    for (answer, told) in [
        (Answer::Held(messages), "the home of messages"),
        (Answer::Failed("too few replicas".into()), "too few"),
    ] {
        let (mut follower, _) = taker(&Cluster::new(1));
        let mut home = Shut(answer, Vec::new());
        let refused = (0..1000).find_map(|at| {
            let (at, mut read) = (Duration::from_secs(at), Read(Vec::new()));
            let stepped = follower.step(at, THEN, &mut read, &mut home, &mut || true);
            stepped.expect("it is followed");
            follower.take_refusal()
        });
        assert!(
            refused.as_ref().is_some_and(|why| why.contains(told)),
            "{refused:?}"
        );
        assert_eq!(follower.standing(), Standing::Follows);
    }
}

/// Records that cannot be read are an error as soon as the store turns out to miss one.
#[test]
fn a_record_that_cannot_be_read_is_never_passed_over() {
    let damaged = || Heard::Unreadable("its bytes are others".into());
    for missing in [0, 1, 2] {
        let mut pair = Pair::new();
        for n in ["1", "2", "3"] {
            pair.write(&format!("SET k{n} v"));
        }
        let cluster = Cluster::new(1);
        cluster.state().is_kind = true;
        cluster
            .state()
            .held
            .streams
            .insert("kv".into(), Place { next: 3, print: 0 });
        let applier = Applier::new(pair.store.clone(), 0);
        let mut follower = Follower::new(applier, FollowSettings::default());
        let mut home = SimHome::new(&cluster, 1);
        let mut read: Vec<Heard> = Vec::new();
        for position in 0..3 {
            let mut record = pair.records(position).remove(0);
            (record.count, record.frames) = (1, first(&record.frames));
            read.push(Heard::Record(record));
        }
        read[missing] = damaged();
        // A foreign record is passed over, and logged.
        read.insert(0, damaged());
        let mut found = step(&mut follower, &mut home, read, 0);
        if missing == 2 {
            found
                .as_ref()
                .expect("nothing tells that it was of this store");
            follower.take_over(TAKER);
            for at in 1..20 {
                while cluster.state().deliver() {}
                found = found.and_then(|()| step(&mut follower, &mut home, Vec::new(), at));
            }
        }
        let due = missing as u64;
        assert!(
            matches!(&found, Err(FollowError::Unreadable { due: at, .. }) if *at == due),
            "{missing}: {found:?}"
        );
    }
    let cluster = Cluster::new(1);
    let (mut follower, mut home) = taker(&cluster);
    let found = step(&mut follower, &mut home, vec![Heard::Remade(0, 7)], 0);
    assert!(
        matches!(found, Err(FollowError::Remade { .. })),
        "{found:?}"
    );
    let read = vec![damaged(), Heard::Remade(0, 7)];
    let found = step(&mut follower, &mut home, read, 0);
    assert!(
        matches!(found, Err(FollowError::Unreadable { due: 0, .. })),
        "{found:?}"
    );
}

/// The first of the messages in there.
fn first(frames: &[u8]) -> Vec<u8> {
    let size = u32::from_le_bytes(frames[8..12].try_into().expect("four bytes")) as usize;
    frames[..12 + size].to_vec()
}

/// Otherwise the two would open it from each other again and again.
#[test]
fn an_owner_whose_home_is_opened_by_another_one_leaves_it_the_time_to_claim_it() {
    let owner = open(&SimDisk::new(1), settings(1), Default::default(), THEN).expect("a store");
    let log = owner.embedded.clone();
    let identity = log.identity();
    let settings = Settings {
        needs_all: true,
        ..Settings::default()
    };
    let pause = settings.after_fenced;
    let mut replicator = Replicator::new(log, identity, 1, settings);
    let cluster = Cluster::new(1);
    cluster.state().is_kind = true;
    let mut home = SimHome::new(&cluster, 1);
    let mut drive = |from_ms: u64, ms: u64| {
        for at in from_ms..from_ms + ms {
            replicator.step(Duration::from_millis(at), &mut home);
            while cluster.state().deliver() {}
        }
        replicator.shown().status().transactions
    };
    assert_eq!(drive(0, 100), 1, "it has claimed its home");
    let mut other = SimHome::new(&cluster, 2);
    other.ask(1, Ask::Open);
    assert!(cluster.state().deliver() && other.answer().is_some());
    // The former owner finds out when it carries the next.
    let mut store = owner;
    crate::disk::ask(&store.store, THEN, 0, &[b"SET", b"k", b"v"]);
    crate::disk::settle(&mut store.writer, THEN);
    let pause = pause.as_millis() as u64;
    assert_eq!(drive(200, pause - 100), 1);
    other.ask(2, Ask::Carry(Transaction::new(TAKER)));
    assert!(cluster.state().deliver());
    assert_eq!(
        other.answer().map(|(_, answer)| answer),
        Some(Answer::Committed)
    );
    assert_eq!(drive(200 + pause, pause), 1);
    assert_eq!(cluster.state().held.owner, Some(TAKER));
}

/// An opener that has not claimed the home is waited for, and then the owner goes on.
#[test]
fn an_owner_goes_on_behind_a_server_that_has_not_claimed_its_home() {
    let mut owner = open(&SimDisk::new(1), settings(1), Default::default(), THEN).expect("a store");
    let log = owner.embedded.clone();
    let identity = log.identity();
    let mut replicator = Replicator::new(log, identity, 1, Settings::default());
    let cluster = Cluster::new(1);
    cluster.state().is_kind = true;
    let mut home = SimHome::new(&cluster, 1);
    let mut other = SimHome::new(&cluster, 2);
    for at in 0..20_000 {
        if at == 100 {
            other.ask(1, Ask::Open);
        }
        if at == 200 {
            crate::disk::ask(&owner.store, THEN, 0, &[b"SET", b"k", b"v"]);
            crate::disk::settle(&mut owner.writer, THEN);
        }
        replicator.step(Duration::from_millis(at), &mut home);
        while cluster.state().deliver() {}
    }
    let status = replicator.shown().status();
    assert_eq!((status.home.get("kv"), status.failures), (Some(&1), 1));
}
