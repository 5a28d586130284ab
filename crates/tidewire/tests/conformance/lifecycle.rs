//! How connections begin and end.

use std::io::ErrorKind;
use std::time::Duration;

use tidewire::{Closed, Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::probe::{Context, Role};
use crate::record::Event;
use crate::roles::{Echo, Receives, Sink, noise};
use crate::variant::Variant;
use crate::world::{self, Moment};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(peer_closes_in_order),
        case!(peer_resets),
        case!(finish_flushes_before_it_ends),
        case!(finish_spares_replies_from_late_input),
        case!(finish_is_the_last_word),
        case!(abort_resets_and_is_the_last_word),
        case!(reasons_of_the_protocol_are_kept),
        case!(finish_in_opened),
        case!(abort_in_opened),
        case!(linger_limit_ends_a_silent_peer),
        case!(linger_limit_ends_a_peer_that_does_not_read),
        case!(linger_limit_ends_a_peer_that_sends_and_does_not_read),
        case!(finish_gives_a_slow_reader_all_there_is),
        case!(slow_reader_of_a_large_kernel_buffer_is_not_cut),
        case!(short_connections_one_after_another),
    ]
}

fn peer_closes_in_order(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    let seen = server.record.lock().of(0);
    let want = [
        Event::Opened,
        Event::PeerFinished(0),
        Event::Closed(Closed::Finished),
    ];
    assert_eq!(seen, want);
    let counters = server.stop();
    assert_eq!(
        (counters.accepted, counters.bytes_in, counters.bytes_out),
        (1, 1, 1)
    );
    assert_eq!(counters.closed_for(Closed::Finished), 1);
}

fn peer_resets(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    client.reset();
    assert_eq!(server.record.why_closed(0), Closed::Reset);
    assert_eq!(server.stop().closed_for(Closed::Reset), 1);
}

fn finish_flushes_before_it_ends(v: Variant) {
    let reply = noise(1, 3 << 20);
    let all = reply.clone();
    let server = Setup::on(v).start(move || {
        let reply = reply.clone();
        Receives(move |input: &mut Input<'_>, cx: &mut Context<'_>| {
            input.consume(input.len());
            cx.link.write(&reply);
            cx.link.finish();
            Next::More
        })
    });
    let mut client = server.connect();
    client.send(b"?");
    assert!(client.rest() == all, "all of the reply, then the end");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

/// A close with input unread would reset the connection and take the replies with it.
fn finish_spares_replies_from_late_input(v: Variant) {
    let reply = noise(2, 300_000);
    let all = reply.clone();
    let server = Setup::on(v).start(move || {
        let reply = reply.clone();
        Receives(move |_: &mut Input<'_>, cx: &mut Context<'_>| {
            cx.link.write(&reply);
            cx.link.finish();
            Next::More
        })
    });
    let mut client = server.connect();
    client.send(&noise(3, 4 << 20));
    assert!(client.rest() == all);
    client.send(b"even now");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn finish_is_the_last_word(v: Variant) {
    let server = Setup::on(v).start(|| {
        Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
            input.consume(1);
            cx.link.write(b"bye");
            cx.link.set_timer_after(Duration::from_millis(1));
            cx.link.finish();
            cx.link.write(b"too late");
            cx.link.set_timer_after(Duration::from_millis(1));
            cx.link.pause();
            Next::AfterDrain
        })
    });
    let mut client = server.connect();
    client.send(b"12");
    client.expect(b"bye");
    client.expect_end();
    client.send(b"3");
    client.finish();
    server.record.why_closed(0);
    let want = [Event::Opened, Event::Closed(Closed::Finished)];
    assert_eq!(server.record.lock().of(0), want);
    assert_eq!(server.record.calls(), 1);
    server.stop();
}

fn abort_resets_and_is_the_last_word(v: Variant) {
    let server = Setup::on(v).start(|| {
        Receives(|_: &mut Input<'_>, cx: &mut Context<'_>| {
            cx.link.write(b"dropped");
            cx.link.abort();
            cx.link.write(b"too late");
            cx.link.finish();
            Next::More
        })
    });
    let mut client = server.connect();
    client.send(b"12");
    client.expect_reset();
    assert_eq!(server.record.why_closed(0), Closed::Aborted);
    assert_eq!(server.record.lock().of(0).len(), 2);
    server.stop();
}

fn reasons_of_the_protocol_are_kept(v: Variant) {
    let server = Setup::on(v).start(|| {
        Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
            match input.bytes()[0] {
                b'f' => cx.link.finish_because("had enough"),
                _ => cx.link.abort_because("nonsense"),
            }
            Next::More
        })
    });
    let mut polite = server.connect();
    polite.send(b"f");
    polite.expect_end();
    drop(polite);
    assert_eq!(
        server.record.why_closed(0),
        Closed::ByProtocol("had enough")
    );
    let mut rude = server.connect();
    rude.send(b"?");
    rude.expect_reset();
    assert_eq!(server.record.why_closed(1), Closed::ByProtocol("nonsense"));
    let counters = server.stop();
    assert_eq!(counters.closed_for(Closed::ByProtocol("")), 2);
    for why in ["had enough", "nonsense"] {
        assert_eq!(counters.closed_because(why), 1, "{why}");
    }
}

/// Says `hello` and ends, or is cut, before anything was received.
struct EndsAtOnce {
    aborts: bool,
}

impl Role for EndsAtOnce {
    fn opened(&mut self, cx: &mut Context<'_>) {
        cx.link.write(b"hello");
        if self.aborts {
            cx.link.abort();
        } else {
            cx.link.finish();
        }
    }
    fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Next {
        Next::More
    }
}

fn finish_in_opened(v: Variant) {
    let server = Setup::on(v).start(|| EndsAtOnce { aborts: false });
    let mut client = server.connect();
    client.expect(b"hello");
    client.expect_end();
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn abort_in_opened(v: Variant) {
    let server = Setup::on(v).start(|| EndsAtOnce { aborts: true });
    Client::connect_to_be_reset(server.addr());
    assert_eq!(server.record.why_closed(0), Closed::Aborted);
    server.stop();
}

fn linger_limit_ends_a_silent_peer(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.linger = Duration::from_millis(50))
        .start(|| EndsAtOnce { aborts: false });
    let mut client = server.connect();
    client.expect(b"hello");
    client.expect_end();
    assert_eq!(server.record.why_closed(0), Closed::LingerExpired);
    server.stop();
}

fn linger_limit_ends_a_peer_that_does_not_read(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.linger = Duration::from_millis(50))
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                input.consume(input.len());
                cx.link.write(&vec![7; 32 << 20]);
                cx.link.finish();
                Next::More
            })
        });
    let mut client = server.connect();
    client.send(b"?");
    assert_eq!(server.record.why_closed(0), Closed::LingerExpired);
    client.expect_reset();
    let counters = server.stop();
    assert_eq!(counters.cut_unsent, 1);
    let written = 32 << 20;
    assert_eq!(counters.bytes_out + counters.bytes_cut, written);
}

/// What it sends is discarded; it is no reason to wait for it to read.
fn linger_limit_ends_a_peer_that_sends_and_does_not_read(v: Variant) {
    let server = Setup::on(v)
        .limits(|l| l.linger = Duration::from_millis(200))
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                input.consume(input.len());
                cx.link.write(&vec![7; 32 << 20]);
                cx.link.finish();
                Next::More
            })
        });
    let client = server.connect();
    let sender = world::spawn(move || {
        let mut client = client;
        while std::io::Write::write_all(&mut client, b"more").is_ok() {
            world::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(server.record.why_closed(0), Closed::LingerExpired);
    sender.join().expect("cut");
    server.stop();
}

/// The reader takes several times the linger limit, and never stands still for as long as that.
fn finish_gives_a_slow_reader_all_there_is(v: Variant) {
    const ALL: usize = 3 << 20;
    let linger = Duration::from_secs(1);
    let server = Setup::on(v)
        .small_buffers()
        .limits(|l| l.linger = linger)
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                input.consume(input.len());
                cx.link.write(&vec![7; ALL]);
                cx.link.finish();
                Next::More
            })
        });
    let mut client = server.connect();
    client.small_buffer(32 << 10);
    client.send(b"?");
    let began = Moment::now();
    let mut got = 0;
    while began.elapsed() < linger * 5 / 2 {
        got += client.take(16 << 10).len();
        world::sleep(Duration::from_millis(25));
        assert!(got < ALL, "the reader is too fast for this test");
    }
    got += client.rest().len();
    assert_eq!(got, ALL);
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    assert_eq!(server.stop().cut_unsent, 0);
}

/// The kernel takes more of us only once a third of its buffer is free, which this reader needs longer for
/// than the limits are: what it takes from that buffer counts, whether the connection is open or finished.
fn slow_reader_of_a_large_kernel_buffer_is_not_cut(v: Variant) {
    // Where the machine itself has kept the readers from reading, they may rightly have been cut.
    const TRIES: usize = 20;
    assert!(
        (0..TRIES).any(|_| reads_slowly(v)),
        "this machine is too busy for a reader that never stands still"
    );
}

/// A client that reads slowly and never stands still, unless the machine has it do so.
struct Slow {
    client: Client,
    got: usize,
    /// The most that it may stand still.
    still: Duration,
    last: Moment,
    is_late: bool,
    is_cut: bool,
}

impl Slow {
    /// Reads something, if there is anything more. Fails if it is cut though it was never late.
    fn read(&mut self) {
        let read = std::io::Read::read(&mut self.client, &mut [0; 8 << 10]);
        self.is_late |= self.last.elapsed() >= self.still;
        self.last = Moment::now();
        match read {
            Ok(n) => {
                assert!(n > 0, "an end after {} bytes", self.got);
                self.got += n;
            }
            Err(e) => {
                let excused = self.is_late && e.kind() == ErrorKind::ConnectionReset;
                assert!(excused, "{e} after {} bytes", self.got);
                self.is_cut = true;
            }
        }
    }

    fn read_to(&mut self, bytes: usize) {
        while self.got < bytes && !self.is_cut {
            self.read();
        }
    }
}

/// Whether the readers could read as slowly as they were to, and no slower.
fn reads_slowly(v: Variant) -> bool {
    const ALL: usize = 8 << 20;
    /// Bytes a second. The kernel wants nothing for four of them then.
    const RATE: usize = 320_000;
    let limit = Duration::from_secs(1);
    let server = Setup::on(v)
        .limits(|l| (l.linger, l.write, l.idle) = (limit, Some(limit), Some(limit)))
        .start(|| {
            Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
                let finishes = input.bytes() == b"f";
                input.consume(input.len());
                cx.link.write(&vec![7; ALL]);
                if finishes {
                    cx.link.finish();
                }
                Next::More
            })
        });
    let mut clients = [b"f", b"o"].map(|word| {
        let mut client = server.connect();
        client.small_buffer(32 << 10);
        client.send(word);
        Slow {
            client,
            got: 0,
            // Half of it is too near to the limit: the loop may look late, too.
            still: limit / 4,
            last: Moment::now(),
            is_late: false,
            is_cut: false,
        }
    });
    // By the clock, so that a busy machine does not make them slower on the whole.
    let began = Moment::now();
    while began.elapsed() < limit * 7 / 2 && clients.iter().all(|c| !c.is_cut) {
        let due = began.elapsed().as_millis() as usize * RATE / 1000;
        clients.iter_mut().for_each(|c| c.read_to(due.min(ALL)));
        world::sleep(Duration::from_millis(25));
    }
    clients.iter_mut().for_each(|c| c.read_to(ALL));
    if clients.iter().any(|c| c.is_cut) {
        server.cut();
        return false;
    }
    drop(clients);
    let counters = server.stop();
    assert_eq!(
        (counters.cut_unsent, counters.closed_for(Closed::Stalled)),
        (0, 0)
    );
    true
}

fn short_connections_one_after_another(v: Variant) {
    let server = Setup::on(v).start(|| Sink);
    for _ in 0..300 {
        server.connect().send(b"x");
    }
    server.record.until("300 ends", |r| r.closed() == 300);
    let counters = server.stop();
    assert_eq!((counters.accepted, counters.bytes_in), (300, 300));
    assert_eq!(counters.closed_for(Closed::Finished), 300);
}
