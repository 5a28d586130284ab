//! A running server can be looked at: what is counted for which service, how late loops answer, where they are stuck.

use std::time::Duration;

use tidewire::{Input, Link, LoopView, Next, Observer, Running, on_input};

use crate::case::{Case, case};
use crate::client::Client;
use crate::process::eventually;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(services_are_counted_apart),
        case!(a_stuck_loop_is_told_of_with_service_and_callback),
        case!(loops_say_how_late_they_answer),
    ]
}

/// Two services of the same kind.
fn start(
    v: Variant,
    on: impl Fn(&mut Input<'_>, &mut Link<'_>) -> Next + Clone + Send + Sync + 'static,
) -> Running {
    let mut builder = v.builder();
    let one = builder.service(on_input(on.clone()));
    let two = builder.service(on_input(on));
    builder.name(one, "one").name(two, "two");
    builder.listen(one, "127.0.0.1:0");
    builder.listen(two, "127.0.0.1:0");
    builder.watch(Duration::from_millis(20));
    builder.start().expect("the server starts")
}

fn echo(running: &Running, which: usize, bytes: &[u8]) -> Client {
    let addr = running.addrs()[which].tcp().expect("it is TCP");
    let mut client = Client::connect(addr);
    client.send(bytes);
    client.expect(bytes);
    client
}

fn sum(observer: &Observer, of: impl Fn(&LoopView) -> u64) -> u64 {
    observer.loops().iter().map(of).sum()
}

fn services_are_counted_apart(v: Variant) {
    let running = start(v, |input, link| link.forward_all(input));
    let observer = running.observer();
    let names: Vec<&str> = observer.services().iter().map(|name| &**name).collect();
    assert_eq!(names, ["one", "two"]);
    let kept = echo(&running, 0, b"hello");
    for _ in 0..3 {
        drop(echo(&running, 1, b"you"));
    }
    eventually("the second service's connections are closed", || {
        sum(&observer, |of| of.services[1].closed_total()) == 3
    });
    for (n, accepted, open, bytes) in [(0, 1, 1, 5), (1, 3, 0, 9)] {
        assert_eq!(sum(&observer, |of| of.services[n].accepted), accepted);
        assert_eq!(sum(&observer, |of| of.services[n].open), open);
        assert_eq!(sum(&observer, |of| of.services[n].bytes_in), bytes);
        assert_eq!(sum(&observer, |of| of.services[n].bytes_out), bytes);
    }
    let all = running.counters();
    assert_eq!((all.accepted, all.open, all.bytes_in), (4, 1, 14));
    drop(kept);
    running.stop(Duration::from_secs(30));
    assert_eq!(
        sum(&observer, |of| of.services[0].closed_total()),
        1,
        "it is seen after the end"
    );
}

fn a_stuck_loop_is_told_of_with_service_and_callback(v: Variant) {
    let running = start(v, |input, link| {
        std::thread::sleep(Duration::from_millis(100));
        link.forward_all(input)
    });
    let observer = running.observer();
    eventually("a stall is seen", || {
        drop(echo(&running, 1, b"hello"));
        let stalls = observer.stalls();
        let found = stalls
            .iter()
            .find(|s| (&*s.service, s.callback) == ("two", "received"));
        found.is_some_and(|stall| stall.count > 0 && stall.time >= Duration::from_millis(20))
    });
    let stalls = observer.stalls();
    assert!(
        stalls.iter().all(|stall| &*stall.service != "one"),
        "{stalls:?}"
    );
    running.stop(Duration::from_secs(30));
}

fn loops_say_how_late_they_answer(v: Variant) {
    let running = start(v, |input, link| link.forward_all(input));
    let observer = running.observer();
    eventually("every loop has answered", || {
        let loops = observer.loops();
        !loops.is_empty() && loops.iter().all(|of| of.lag.parts.iter().sum::<u64>() > 0)
    });
    assert!(observer.loops().iter().all(|of| of.thread.is_some()));
    running.stop(Duration::from_secs(30));
}
