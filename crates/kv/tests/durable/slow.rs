//! What clients are told of waits for a commit.

use std::time::Duration;

use tidewire_log::Policy;

use crate::by_hand::World;
use crate::wire::command;

#[test]
fn waits_for_a_commit_are_events_of_latency() {
    let mut w = World::new(Policy::Sync);
    assert_eq!(
        w.ask(0, &["CONFIG SET latency-monitor-threshold 3000"]),
        "+OK|"
    );
    // A reply is there within a second or two.
    assert_eq!(w.ask(0, &["SET a 1"]), "+OK|");
    assert_eq!(w.ask(0, &["LATENCY LATEST"]), "*0|");
    w.send(0, &command("SET a 2"));
    w.sim.run_for(Duration::from_secs(7));
    assert_eq!(w.heard(0), "");
    assert_eq!(w.answered(0), "+OK|");
    let told = w.ask(1, &["LATENCY LATEST"]);
    assert!(told.starts_with("*1|*4|$6|commit|:"), "{told}");
    let longest: u64 = told
        .trim_end_matches('|')
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((7000..9000).contains(&longest), "{told}");
}
