//! Blocking commands on the simulated network: who is served, when, and what ends a wait.

use std::time::Duration;

use crate::common::{World, on_every_shape};
use tidewire::sim::PlainState;

#[test]
fn a_push_serves_the_one_that_waits_longest() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut first, mut second, mut pusher) =
            (world.client(), world.client_of(1), world.client());
        world.check(&mut first, "BLPOP a b 0", "");
        world.check(&mut second, "BLPOP b 0", "");
        world.check(&mut pusher, "RPUSH b 1 2 3", ":3|");
        assert_eq!(world.answer(&mut first), "*2|$1|b|$1|1|");
        assert_eq!(world.answer(&mut second), "*2|$1|b|$1|2|");
        world.check(&mut pusher, "LRANGE b 0 -1", "*1|$1|3|");
        world.check(&mut first, "BLPOP a b 0", "*2|$1|b|$1|3|");
    });
}

#[test]
fn commands_behind_wait_too_and_the_time_is_kept() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.send(&c, "BLPOP a 1");
        world.send(&c, "PING");
        assert_eq!(world.answer(&mut c), "");
        world.sim.run_for(Duration::from_millis(900));
        assert_eq!(world.answer(&mut c), "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|+PONG|");
        world.check(&mut c, "BLMOVE a b LEFT LEFT 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
        world.check(&mut c, "BRPOPLPUSH a b 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
        world.check(&mut c, "BZPOPMIN a 0.1", "");
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.answer(&mut c), "*-1|");
    });
}

#[test]
fn in_one_pipeline() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        for line in ["SET x 1", "BLPOP a 0", "INCR x", "BLPOP a 0", "INCR x"] {
            world.send(&c, line);
        }
        assert_eq!(world.answer(&mut c), "+OK|");
        world.check(&mut other, "LPUSH a v", ":1|");
        assert_eq!(world.answer(&mut c), "*2|$1|a|$1|v|:2|");
        world.check(&mut other, "LPUSH a w", ":1|");
        assert_eq!(world.answer(&mut c), "*2|$1|a|$1|w|:3|");
    });
}

#[test]
fn a_transaction_serves_when_it_is_over_and_never_waits() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        world.check(&mut c, "BLPOP a 0", "");
        world.check(&mut other, "MULTI", "+OK|");
        world.check(&mut other, "BLPOP nothing 0", "+QUEUED|");
        world.check(&mut other, "BLMOVE nothing b LEFT LEFT 0", "+QUEUED|");
        world.check(&mut other, "LPUSH a 1", "+QUEUED|");
        world.check(&mut other, "LPUSH a 2", "+QUEUED|");
        world.check(&mut other, "EXEC", "*4|*-1|$-1|:1|:2|");
        assert_eq!(world.answer(&mut c), "*2|$1|a|$1|2|");
        world.check(&mut other, "LRANGE a 0 -1", "*1|$1|1|");
    });
}

#[test]
fn clients_are_unblocked_by_others() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut other) = (world.client(), world.client_of(1));
        let id = world.ask(&mut c, "CLIENT ID");
        let id = id.trim_matches([':', '|']);
        world.check(&mut other, &format!("CLIENT UNBLOCK {id}"), ":0|");
        world.check(&mut c, "BLPOP a 0", "");
        assert!(
            world
                .ask(&mut other, "INFO clients")
                .contains("blocked_clients:1|")
        );
        world.check(&mut other, &format!("CLIENT UNBLOCK {id}"), ":1|");
        assert_eq!(world.answer(&mut c), "*-1|");
        world.check(&mut c, "BLPOP a 0", "");
        world.check(&mut other, &format!("CLIENT UNBLOCK {id} ERROR"), ":1|");
        assert_eq!(
            world.answer(&mut c),
            "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"
        );
        world.check(&mut c, "PING", "+PONG|");
    });
}

#[test]
fn nothing_is_spent_on_those_who_have_gone() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut gone, mut half, mut killed, mut other) = (
            world.client(),
            world.client_of(1),
            world.client(),
            world.client(),
        );
        for c in [&mut gone, &mut half, &mut killed] {
            world.check(c, "BLPOP a 0", "");
        }
        let list = world.ask(&mut other, "CLIENT LIST");
        assert_eq!(list.matches("flags=b").count(), 3, "{list}");
        world.sim.close(gone.peer, true);
        world.sim.finish(half.peer);
        world.check(&mut other, "CLIENT KILL TYPE normal SKIPME yes", ":1|");
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(world.sim.state(half.peer), PlainState::Ended);
        world.check(&mut other, "LPUSH a 1", ":1|");
        world.check(&mut other, "LLEN a", ":1|");
    });
}
