//! What a peer owes, and by when: in virtual time, so to the tick.

use std::time::Duration;

use crate::codec::Lines;
use crate::reactor::lines_of_tests::logged;
use crate::sim::{Conditions, PlainId, PlainState, Shape, Sim, SimService};
use crate::{Closed, Cx, Input, Layered, Limits, Next, Protocol, Service, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// Answers each line with its length; may burn no time and set no timer.
struct Lengths(Lines);

impl Protocol for Lengths {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        loop {
            match self.0.take(input) {
                Ok(Some(line)) if line == b"pause" => return Next::Paused,
                Ok(Some(line)) if line == b"unlimited" => cx.link.set_request_limit(None),
                Ok(Some(line)) if line == b"forever" => cx.link.set_lifetime(None),
                Ok(Some(line)) if line == b"flood" => {
                    cx.link.write(&vec![0; 4 << 20]);
                    return Next::More;
                }
                Ok(Some(line)) => cx.link.write(format!("{}\n", line.len()).as_bytes()),
                Ok(None) => return Next::More,
                Err(_) => {
                    cx.link.abort();
                    return Next::More;
                }
            }
        }
    }
}

fn lengths() -> impl Service<Conn = Lengths> {
    service_fn(|_| Lengths(Lines::new(1 << 20)))
}

fn limits() -> Limits {
    Limits {
        idle: None,
        request: Some(10 * SECOND),
        ..Limits::default()
    }
}

struct Run<S: Service> {
    sim: Sim,
    service: SimService<S>,
    peer: PlainId,
}

fn run<S: Service>(service: S, limits: Limits) -> Run<S> {
    run_under(Conditions::calm(), service, limits)
}

fn run_under<S: Service>(conditions: Conditions, service: S, limits: Limits) -> Run<S> {
    let mut sim = Sim::under(1, conditions);
    let at = sim.add_loop();
    let service = sim.service(at, service, limits);
    let addr = sim.listen(service);
    let peer = sim.plain(addr);
    Run { sim, service, peer }
}

impl<S: Service> Run<S> {
    /// How many seconds it takes, at most 1,000, until the connection is closed for this.
    fn seconds_to(&mut self, why: Closed) -> Option<u64> {
        let start = self.sim.now();
        let at = self.service.at();
        let closed = |sim: &mut Sim| sim.counters(at).closed_for(why) == 1;
        let there = self.sim.run_until(1000 * SECOND, closed);
        there.then(|| self.sim.now().since(start).as_secs())
    }

    /// A byte a second, for so long or until the connection ends.
    fn drip(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if matches!(self.sim.state(self.peer), PlainState::Failed(_)) {
                break;
            }
            self.sim.send(self.peer, &[*byte]);
            self.sim.run_for(SECOND);
        }
    }

    fn closed(&self, why: Closed) -> u64 {
        self.sim.counters(self.service.at()).closed_for(why)
    }
}

#[test]
fn a_request_that_drips_is_cut_and_what_comes_whole_is_not() {
    let mut run = run(lengths(), limits());
    for _ in 0..5 {
        // Nine seconds each.
        run.drip(b"12345678\n");
    }
    assert_eq!(run.sim.received(run.peer), b"8\n8\n8\n8\n8\n");
    run.drip(&[b'x'; 100]);
    assert_eq!(run.closed(Closed::RequestLate), 1);
    assert!(matches!(run.sim.state(run.peer), PlainState::Failed(_)));
    assert!(
        run.sim.now().as_nanos() < 60_000_000_000,
        "after ten seconds"
    );
}

#[test]
fn nothing_is_owed_between_requests_or_while_nothing_is_read() {
    let mut run = run(lengths(), limits());
    run.sim.send(run.peer, b"abc\n");
    assert_eq!(run.seconds_to(Closed::RequestLate), None);
    run.sim.send(run.peer, b"pause\nrest of a");
    assert_eq!(run.seconds_to(Closed::RequestLate), None);
    assert_eq!(run.sim.received(run.peer), b"3\n");
}

#[test]
fn what_has_come_earns_time_by_the_kibibyte() {
    let mut run = run(lengths(), limits());
    run.sim.send(run.peer, &[b'x'; 30 << 10]);
    let took = run.seconds_to(Closed::RequestLate).unwrap();
    assert!((39..=41).contains(&took), "{took}");
}

#[test]
fn a_connection_has_limits_of_its_own() {
    let mut one = run(lengths(), limits());
    one.sim.send(one.peer, b"unlimited\nrest");
    assert_eq!(one.seconds_to(Closed::RequestLate), None);

    let mut other = run(
        lengths(),
        Limits {
            lifetime: Some(5 * SECOND),
            ..limits()
        },
    );
    other.sim.send(other.peer, b"forever\n");
    assert_eq!(other.seconds_to(Closed::Lifetime), None);
}

#[test]
fn a_first_byte_is_awaited_and_any_will_do() {
    let limits = Limits {
        first_byte: Some(3 * SECOND),
        ..limits()
    };
    let mut silent = run(lengths(), limits.clone());
    let took = silent.seconds_to(Closed::FirstByteLate).unwrap();
    assert!((3..=4).contains(&took), "{took}");
    let mut spoke = run(lengths(), limits);
    spoke.sim.send(spoke.peer, b"x\n");
    assert_eq!(spoke.seconds_to(Closed::FirstByteLate), None);
}

#[test]
fn a_peer_that_talks_and_takes_nothing_has_stalled() {
    let mut run = run(
        lengths(),
        Limits {
            write: Some(7 * SECOND),
            ..limits()
        },
    );
    run.sim.reading(run.peer, false);
    run.sim.send(run.peer, b"flood\n");
    for _ in 0..100 {
        run.drip(b"\n");
    }
    assert_eq!(run.closed(Closed::Stalled), 1);
    assert!(run.sim.now().as_nanos() < 20_000_000_000);
}

#[test]
fn a_slow_reader_that_takes_something_has_not_stalled() {
    let mut run = run(
        lengths(),
        Limits {
            write: Some(7 * SECOND),
            ..limits()
        },
    );
    run.sim.send(run.peer, b"flood\n");
    for n in 0..60 {
        run.sim.reading(run.peer, n % 6 == 5);
        let before = run.sim.received(run.peer).len();
        let some = |sim: &mut Sim| sim.received(run.peer).len() > before + (64 << 10);
        if n % 6 == 5 {
            run.sim.run_until(SECOND, some);
        } else {
            run.sim.run_for(SECOND);
        }
    }
    assert_eq!(run.closed(Closed::Stalled), 0);
}

#[test]
fn a_connection_that_has_lived_long_enough_is_asked_and_then_made_to_end() {
    let limits = Limits {
        lifetime: Some(100 * SECOND),
        linger: 4 * SECOND,
        ..limits()
    };
    // The default of `draining` is to finish; the peer closes when it sees that.
    let mut asked = run(lengths(), limits.clone());
    asked.sim.send(asked.peer, b"abc\n");
    asked.sim.run_for(99 * SECOND);
    assert_eq!(asked.sim.counters(asked.service.at()).open, 1);
    asked.sim.run_for(2 * SECOND);
    assert_eq!(asked.sim.state(asked.peer), PlainState::Ended);
    asked.sim.close(asked.peer, false);
    asked.sim.run_for(SECOND);
    assert_eq!(asked.closed(Closed::Lifetime), 1);

    /// Will not go.
    struct Stays;
    impl Protocol for Stays {
        type Local = ();
        type Message = ();
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
            cx.link.forward_all(input)
        }
        fn draining(&mut self, cx: &mut Cx<'_, Self>) {
            cx.link.write(b"no");
        }
    }
    let mut made = run(service_fn(|_| Stays), limits);
    let took = made.seconds_to(Closed::Lifetime).unwrap();
    assert!((104..=105).contains(&took), "{took}");
    assert_eq!(made.sim.received(made.peer), b"no");
}

/// A finished connection has a bound that its peer cannot stretch, whether it finished of itself or because
/// its time was up.
#[test]
fn a_slow_reader_of_a_finished_connection_outlives_nothing() {
    struct Floods;
    impl Protocol for Floods {
        type Local = ();
        type Message = ();
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
            let finishes = input.bytes() == b"finish";
            input.consume(input.len());
            cx.link.write(&vec![0; 16 << 20]);
            if finishes {
                cx.link.finish();
            }
            Next::More
        }
    }
    let outlives = |word: &[u8], lifetime| {
        let limits = Limits {
            lifetime,
            linger: 4 * SECOND,
            ..limits()
        };
        let mut run = run(service_fn(|_| Floods), limits);
        run.sim.send(run.peer, word);
        for second in 0..60 {
            let before = run.sim.received(run.peer).len();
            let some = |sim: &mut Sim| sim.received(run.peer).len() > before + (64 << 10);
            run.sim.reading(run.peer, true);
            run.sim.run_until(SECOND, some);
            run.sim.reading(run.peer, false);
            run.sim.run_for(SECOND);
            let counters = run.sim.counters(run.service.at());
            if counters.open == 0 && second > 0 {
                assert_eq!(counters.closed_for(Closed::Lifetime), 1);
                assert_eq!(counters.cut_unsent, 1);
                return Some(run.sim.now().as_nanos() / 1_000_000_000);
            }
        }
        None
    };
    assert_eq!(outlives(b"finish", None), None, "it takes enough");
    for word in ["finish", "stay"] {
        let ended = outlives(word.as_bytes(), Some(20 * SECOND));
        assert!(
            ended.is_some_and(|t| (24..=26).contains(&t)),
            "{word}: {ended:?}"
        );
    }
}

/// What docs/howto/limits.md says of `linger` without a lifetime: a byte that our kernel takes renews it, however few
/// they are; what the peer sends does not.
#[test]
fn what_our_kernel_takes_renews_the_linger_limit_and_nothing_else_does() {
    /// Answers the first byte with ten thousand.
    struct Answers;
    impl Protocol for Answers {
        type Local = ();
        type Message = ();
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
            input.consume(input.len());
            cx.link.write(&[0; 10_000]);
            cx.link.finish();
            Next::More
        }
    }
    let limits = Limits {
        linger: 4 * SECOND,
        ..limits()
    };
    let tiny = Conditions {
        send_buffer: 1,
        receive_buffer: 1,
        ..Conditions::calm()
    };
    let mut run = run_under(tiny, service_fn(|_| Answers), limits);
    run.sim.reading(run.peer, false);
    run.sim.send(run.peer, b"?");
    for _ in 0..100 {
        let before = run.sim.received(run.peer).len();
        run.sim.reading(run.peer, true);
        let some = |sim: &mut Sim| sim.received(run.peer).len() > before;
        assert!(run.sim.run_until(SECOND, some), "{before} bytes were taken");
        run.sim.reading(run.peer, false);
        run.sim.run_for(3 * SECOND);
    }
    let taken = run.sim.received(run.peer).len();
    assert!((100..1000).contains(&taken), "{taken} bytes in 300 s");
    assert_eq!(run.sim.counters(run.service.at()).open, 1);
    // Twice the limit at most, however much it says.
    for _ in 0..9 {
        run.sim.send(run.peer, b"!");
        run.sim.run_for(SECOND);
    }
    assert_eq!(run.closed(Closed::LingerExpired), 1);
    let counters = run.sim.counters(run.service.at());
    assert_eq!(counters.cut_unsent, 1);
    assert!(counters.bytes_cut > 9_000, "{}", counters.bytes_cut);
}

#[test]
fn of_many_that_end_badly_for_one_reason_a_line_a_second_is_written() {
    // With threads each has a loop of its own.
    for shape in [Shape::Readiness, Shape::Completion, Shape::Threads] {
        let limits = Limits {
            carried: 1 << 16,
            ..limits()
        };
        let told = logged(|| {
            let mut sim = Sim::under(1, Conditions::calm());
            let at = sim.shape(shape).add_loop();
            let service = sim.service(at, lengths(), limits);
            let addr = sim.listen(service);
            for n in 1..=6 {
                let peer = sim.plain(&addr);
                sim.send(peer, &vec![b'x'; 1 << 17]);
                sim.run_for(SECOND / 10);
                let ended = sim.counters(at).closed_for(Closed::CarriedLimit);
                assert_eq!(ended, n, "{shape:?}");
                if n == 5 {
                    sim.run_for(SECOND);
                }
            }
        });
        let ends = told
            .iter()
            .filter(|line| line.contains("connection closed"));
        let held_back: Vec<_> = ends.map(|line| line.rsplit_once(' ').unwrap().1).collect();
        let want = ["held_back=0", "held_back=4"];
        assert_eq!(held_back, want, "{shape:?}: {told:?}");
    }
}

/// Consumes all at once, and says itself when requests begin and end.
struct Pieces;

impl Protocol for Pieces {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        for byte in input.bytes() {
            match byte {
                b'(' => cx.link.request_began(),
                b')' => cx.link.request_ended(),
                _ => {}
            }
        }
        input.consume(input.len());
        Next::More
    }

    /// The protocol's own words.
    fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.write(b"late");
        cx.link.finish();
    }
}

#[test]
fn a_protocol_says_itself_when_a_request_begins_and_what_comes_of_lateness() {
    let mut run = run(service_fn(|_| Pieces), limits());
    run.drip(b"(abc)(def)waiting for a long time(gh)");
    assert_eq!(run.closed(Closed::RequestLate), 0);
    run.drip(b"(and so on, ");
    assert_eq!(run.sim.received(run.peer), b"late");
    run.sim.close(run.peer, false);
    run.sim.run_for(SECOND);
    assert_eq!(run.closed(Closed::RequestLate), 1);
}

#[test]
fn inside_a_layer_it_is_the_same() {
    let limits = Limits {
        first_byte: Some(3 * SECOND),
        lifetime: Some(500 * SECOND),
        ..limits()
    };
    let layered = || {
        let wrap = crate::layer::tests::Invert;
        Layered::with_limits(wrap, lengths(), limits.clone())
    };
    let invert = |bytes: &[u8]| -> Vec<u8> { bytes.iter().map(|b| !b).collect() };
    let mut dripping = run(layered(), limits.clone());
    dripping.drip(&invert(b"1234567\n1234567\nand then it goes on and on"));
    assert_eq!(dripping.closed(Closed::RequestLate), 1);
    let mut silent = run(layered(), limits.clone());
    assert!(silent.seconds_to(Closed::FirstByteLate).is_some());
    let mut unlimited = run(layered(), limits.clone());
    unlimited
        .sim
        .send(unlimited.peer, &invert(b"unlimited\nforever\nrest"));
    assert_eq!(unlimited.seconds_to(Closed::RequestLate), None);
    assert_eq!(unlimited.closed(Closed::Lifetime), 0);
    let mut old = run(layered(), limits.clone());
    old.sim.send(old.peer, &invert(b"abc\n"));
    old.sim.run_for(501 * SECOND);
    old.sim.close(old.peer, false);
    old.sim.run_for(SECOND);
    assert_eq!(old.closed(Closed::Lifetime), 1);
}
