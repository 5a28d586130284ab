//! A client of a classic port that takes no acknowledgement, in virtual time: when it is cut, and by which limit.

use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::{Conditions, Sim};
use tidewire::{Closed, Limits};
use tidewire_ingest::Counted;
use tidewire_ingest::classic::{ByteOrder, Classic, ClassicService, Mode};

const SECOND: Duration = Duration::from_secs(1);

/// Seconds from when the last byte moves to when the connection is closed for this, if it is.
fn seconds_to(why: Closed, mode: Mode, limits: impl FnOnce(Limits) -> Limits) -> Option<u64> {
    let mut sim = Sim::under(1, Conditions::calm());
    let at = sim.add_loop();
    let classic = Classic::preset(mode);
    let limits = limits(classic.limits());
    let service = Arc::new(ClassicService::new(classic, Counted::default()));
    let service = sim.service(at, service, limits);
    let to = sim.listen(service);
    let client = sim.plain(&to);
    sim.reading(client, false);
    let size = match classic.order {
        ByteOrder::Big => 1u32.to_be_bytes(),
        ByteOrder::Little => 1u32.to_le_bytes(),
    };
    let message = [&[0; 8][..], &size, b"x"].concat();
    sim.send(client, &message.repeat(1 << 20));
    // Until everything between the two is full: both sides' buffers, and the output up to its mark.
    let mut moved = sim.now();
    let mut before = 0;
    loop {
        sim.run_for(SECOND / 100);
        let counters = sim.counters(at);
        let bytes = counters.bytes_in + counters.bytes_out;
        if bytes == before {
            break;
        }
        (before, moved) = (bytes, sim.now());
    }
    let closed = sim.run_until(100 * SECOND, |sim| sim.counters(at).closed_for(why) == 1);
    closed.then(|| (sim.now().since(moved).as_millis() as u64 + 500) / 1000)
}

fn write(seconds: u64) -> impl FnOnce(Limits) -> Limits {
    let write = (seconds > 0).then_some(Duration::from_secs(seconds));
    move |own| Limits { write, ..own }
}

#[test]
fn a_producer_that_reads_nothing_is_cut_by_the_shorter_limit() {
    let mode = Mode::RequestReply;
    // `--write-stall 1s`; its default, and none, where the service's own idle limit of five seconds comes first.
    // What the kernel has is looked at before, so each may come a quarter later.
    for (stall, seconds) in [(1, 1), (60, 5), (0, 5)] {
        let took = seconds_to(Closed::Stalled, mode, write(stall));
        let (least, most) = (seconds, seconds + u64::div_ceil(seconds, 4));
        let told = took.is_some_and(|took| (least..=most).contains(&took));
        assert!(told, "--write-stall {stall}: {took:?}");
    }
}

/// Acknowledgements of many messages are so few that what lies between the two hardly ever fills:
/// nothing waits, so no client is late, whether it reads or not.
#[test]
fn a_producer_that_is_owed_little_is_not_late() {
    for mode in [Mode::Throttled, Mode::HeadRest, Mode::Sync, Mode::Async] {
        let took = seconds_to(Closed::Stalled, mode, write(1));
        assert_eq!(took, None, "{mode:?}");
    }
}
