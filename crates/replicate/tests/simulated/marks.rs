//! A home whose marks have gone, by their age or with their topic, while its records are there.

use std::time::Duration;

use tidewire_log::Selection;
use tidewire_log::disk::sim::SimDisk;
use tidewire_replicate::{Held, Mistakes};

use crate::home::Cluster;
use crate::node::{Carriage, Node};
use crate::seeds::{Verdict, all, ensure, some};

/// Carries a few messages, has the marks go, and goes on in another process.
fn gone(seed: u64, mistakes: Mistakes) -> Verdict {
    let cluster = Cluster::new(seed);
    cluster.state().is_kind = true;
    let carriage = Carriage {
        bytes: 200,
        record: 60,
        streams: Selection::of([""; 0]).expect("names of streams"),
        mistakes,
    };
    let mut now = Duration::from_secs(1);
    let mut node = Node::new(SimDisk::new(seed));
    node.start(1, &cluster, &carriage);
    let mut turn = |node: &mut Node| {
        for _ in 0..200 {
            now += Duration::from_millis(20);
            node.write(now);
            node.carry(now);
            while cluster.state().deliver() {}
        }
    };
    turn(&mut node);
    let (id, _) = node.welcome("s0", "p0").expect("it is open");
    let sent = node.append("s0", id, 1..=5 + seed % 5, Duration::from_secs(1));
    sent.expect("room");
    turn(&mut node);
    let at_home = cluster.state().records.len();
    ensure(at_home > 0, || "nothing has come home".into())?;
    node.end(false);
    cluster.state().held = Held {
        has_records: true,
        ..Held::default()
    };
    node.start(2, &cluster, &carriage);
    turn(&mut node);
    let found = cluster.state().records.len();
    ensure(found == at_home, || {
        format!("{found} records are at home of {at_home}: they were carried twice")
    })?;
    ensure(!node.progress().replicates, || {
        "the level is promised".into()
    })
}

#[test]
fn nothing_is_carried_twice_when_the_marks_have_gone() {
    let name = "marks::nothing_is_carried_twice_when_the_marks_have_gone";
    all(name, 50, |seed| gone(seed, Mistakes::default()));
}

#[test]
fn marks_that_are_believed_although_the_log_remembers_more_are_found() {
    let mistakes = Mistakes {
        trust_marks: true,
        ..Mistakes::default()
    };
    some(50, |seed| gone(seed, mistakes));
}
