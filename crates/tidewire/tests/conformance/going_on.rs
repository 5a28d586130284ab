//! A reply that is longer than a link takes goes on when output has drained, also where no input is left, and is whole before
//! the peer's end is told.

use std::sync::Arc;
use std::time::Duration;

use tidewire::{Closed, Input, Layered, Limits, Next, Peer, Service};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::{Loops, host};
use crate::layers::{Inverts, inverted};
use crate::probe::{Context, Probes, Role};
use crate::record::Record;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_reply_goes_on_when_output_has_drained),
        case!(a_reply_is_whole_before_the_end_is_told),
        case!(a_reply_goes_on_inside_a_layer),
        case!(a_reply_is_whole_at_a_stop),
        case!(a_reply_inside_a_layer_is_whole_at_a_stop),
    ]
}

const WHOLE: usize = 2 << 20;

/// Answers whatever comes, as much at a time as its link takes; in `writable` too, or only when it is called again.
struct Long {
    left: usize,
    in_writable: bool,
}

impl Long {
    fn go_on(&mut self, cx: &mut Context<'_>) -> Next {
        while self.left > 0 && !cx.link.full() {
            cx.link.write(&[7; 1 << 10]);
            self.left -= 1 << 10;
        }
        match self.left {
            0 => Next::More,
            _ => Next::AfterDrain,
        }
    }
}

impl Role for Long {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if !input.is_empty() {
            input.consume(input.len());
            self.left = WHOLE;
        }
        self.go_on(cx)
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        if self.in_writable {
            self.go_on(cx);
        }
    }
}

fn long(in_writable: bool) -> Long {
    Long {
        left: 0,
        in_writable,
    }
}

fn takes_all(client: &mut Client, byte: u8) {
    assert!(client.take(WHOLE).iter().all(|&b| b == byte));
}

fn a_reply_goes_on_when_output_has_drained(v: Variant) {
    for in_writable in [false, true] {
        let server = Setup::on(v)
            .small_buffers()
            .start(move || long(in_writable));
        let mut client = server.connect();
        client.send(b"go");
        takes_all(&mut client, 7);
        // The protocol waits for more then, and not for room.
        client.send(b"go");
        takes_all(&mut client, 7);
        drop(client);
        assert_eq!(server.record.why_closed(0), Closed::Finished);
        server.stop();
    }
}

fn a_reply_is_whole_before_the_end_is_told(v: Variant) {
    for in_writable in [false, true] {
        let server = Setup::on(v)
            .small_buffers()
            .start(move || long(in_writable));
        let mut client = server.connect();
        client.send(b"go");
        client.finish();
        takes_all(&mut client, 7);
        client.expect_end();
        assert_eq!(server.record.why_closed(0), Closed::Finished);
        server.stop();
    }
}

fn long_inside_a_layer(v: Variant, in_writable: bool) -> (Loops<impl Service>, Arc<Record>) {
    let record = Arc::<Record>::default();
    let probes = Probes {
        record: record.clone(),
        make: Box::new(move |_: &Peer| Ok(Box::new(long(in_writable)) as Box<dyn Role>)),
        woken: None,
        keep_handles: false,
    };
    let loops = host(v, Layered::new(Inverts, probes), Limits::default());
    (loops, record)
}

/// A stop is told to a protocol that goes on with a reply when it waits for more, and not before.
fn a_reply_is_whole_at_a_stop(v: Variant) {
    for in_writable in [false, true] {
        let server = Setup::on(v)
            .small_buffers()
            .start(move || long(in_writable));
        let mut client = server.connect();
        client.send(b"go");
        server.until("a full pipe", |c| c.output_pauses > 0);
        let reader = world::spawn(move || client.rest());
        server.stop();
        let back = reader.join().expect("the reader");
        assert_eq!(back.len(), WHOLE, "in writable: {in_writable}");
    }
}

fn a_reply_inside_a_layer_is_whole_at_a_stop(v: Variant) {
    for in_writable in [false, true] {
        let (loops, record) = long_inside_a_layer(v, in_writable);
        let mut client = loops.connect();
        client.send(&inverted(b"go"));
        let begun = client.take(1);
        let reader = world::spawn(move || client.rest());
        loops.stop(Duration::from_secs(10));
        let back = begun.len() + reader.join().expect("the reader").len();
        assert_eq!(back, WHOLE, "in writable: {in_writable}");
        record.check();
    }
}

fn a_reply_goes_on_inside_a_layer(v: Variant) {
    for (in_writable, finishes) in [(false, false), (false, true), (true, true)] {
        let (loops, record) = long_inside_a_layer(v, in_writable);
        let mut client = loops.connect();
        client.send(&inverted(b"go"));
        if finishes {
            client.finish();
        }
        takes_all(&mut client, !7);
        if finishes {
            client.expect_end();
        }
        drop(client);
        record.until("the end", |r| r.closed() == 1);
        loops.stop(Duration::from_secs(10));
        record.check();
    }
}
