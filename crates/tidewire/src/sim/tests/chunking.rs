//! What the chunking helper feeds, and that it tells protocols that show their chunks.

use std::time::Duration;

use proptest::prelude::*;

use super::services::{Echo, SLEEP, Sleepy, Sums};
use crate::sim::chunking::{self, Feed, collect};
use crate::{
    Closed, Cx, Input, Limits, LoopHandle, Next, Peer, Protocol, Refusal, Service, service_fn,
};

fn frames(bodies: &[Vec<u8>]) -> Vec<u8> {
    let frame = |b: &Vec<u8>| [&(b.len() as u32).to_le_bytes(), &b[..]].concat();
    bodies.iter().flat_map(frame).collect()
}

fn low_marks() -> Limits {
    Limits {
        output_low: 3,
        output_high: 50,
        ..Limits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn echo_returns_its_input(
        input in proptest::collection::vec(any::<u8>(), 0..5000),
        seed: u64,
        window in 1usize..3000,
    ) {
        let splits = chunking::splits(seed, input.len());
        prop_assert_eq!(splits.iter().sum::<usize>(), input.len());
        let got = Feed::new(&input).splits(&splits).window(window).limits(low_marks()).run(Echo);
        prop_assert_eq!(got.output, input);
        prop_assert_eq!(got.closed, Some(Closed::Finished));
    }

    #[test]
    fn frames_mean_the_same_in_any_pieces(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..60),
        half_close: bool,
    ) {
        let input = frames(&bodies);
        chunking::assert_invisible(|| Sums, &input, half_close, Clone::clone, 12);
    }
}

#[test]
fn a_large_input_goes_through_whole() {
    let input = vec![7; 3_000_000];
    assert_eq!(collect(Echo, &input, &[], true).output, input);
}

#[test]
fn the_end_is_told() {
    let mut input = frames(&[vec![1, 2]]);
    let open = collect(Sums, &input, &[], false);
    assert_eq!((open.output.len(), open.closed), (8, None));
    input.extend_from_slice(&[0; 4]);
    assert_eq!(
        collect(Sums, &input, &[5], false).closed,
        Some(Closed::Finished)
    );
    let too_long = collect(Sums, &[0xff; 9], &[3, 3], true);
    assert_eq!(too_long.closed, Some(Closed::ByProtocol("frame too long")));
}

#[test]
fn time_passes_where_it_is_told_to() {
    let feed = Feed::new(b"abc").half_close(false);
    assert_eq!(feed.clone().run(Sleepy).output, b"");
    assert_eq!(feed.clone().after(SLEEP * 3 / 2).run(Sleepy).output, b".");
    assert_eq!(feed.after(SLEEP * 40).run(Sleepy).output, b"...");
    // Pieces wait until the connection reads again.
    let got = Feed::new(b"abc").splits(&[1, 1]).run(Sleepy);
    assert_eq!(
        (got.output, got.closed),
        (b"...".to_vec(), Some(Closed::Finished))
    );
}

#[test]
fn a_connection_that_never_reads_is_given_up() {
    let feed = Feed::new(b"abc").splits(&[1]);
    let got = feed.patience(Duration::from_millis(5)).run(Sleepy);
    assert_eq!((got.output, got.closed), (Vec::new(), None));
}

/// Answers each call of `received` with one byte: what must not be.
#[derive(Clone)]
struct Leaky;

impl Service for Leaky {
    type Conn = Leaky;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Leaky, Refusal> {
        Ok(Leaky)
    }
}

impl Protocol for Leaky {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        input.consume(input.len());
        cx.link.write(b"!");
        Next::More
    }
}

#[test]
#[should_panic(expected = "the split shows")]
fn a_protocol_that_shows_its_chunks_is_caught() {
    chunking::assert_invisible(|| Leaky, b"some input", true, Clone::clone, 20);
}

/// Answers whatever comes with a million bytes, as much at a time as its link takes.
struct Long {
    left: usize,
    how: Goes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    /// Returns [`Next::AfterDrain`], and goes on when it is called again.
    On,
    /// Goes on in `writable` too.
    OnInWritable,
    /// Takes it that it is called when there is room.
    Astray,
}

impl Long {
    fn go_on(&mut self, cx: &mut Cx<'_, Self>) -> Next {
        while self.left > 0 && !cx.link.full() {
            cx.link.write(&[7; 1000]);
            self.left -= 1000;
        }
        match self.left {
            1.. if self.how != Goes::Astray => Next::AfterDrain,
            _ => Next::More,
        }
    }
}

impl Protocol for Long {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if !input.is_empty() {
            input.consume(input.len());
            self.left = 1_000_000;
        }
        self.go_on(cx)
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        if self.how == Goes::OnInWritable {
            self.go_on(cx);
        }
    }
}

#[test]
fn a_reply_goes_on_when_output_has_drained() {
    for how in [Goes::On, Goes::OnInWritable] {
        for (window, half_close) in [
            (usize::MAX, false),
            (usize::MAX, true),
            (999, false),
            (999, true),
        ] {
            let got = Feed::new(b"?")
                .window(window)
                .half_close(half_close)
                .run(service_fn(move |_| Long { left: 0, how }));
            assert_eq!(
                got.output.len(),
                1_000_000,
                "{how:?}, {window}, {half_close}"
            );
            let closed = half_close.then_some(Closed::Finished);
            assert_eq!(got.closed, closed, "{how:?}, {window}");
        }
    }
}

#[test]
fn a_service_that_asks_to_go_on_hides_chunks() {
    let long = || {
        service_fn(|_| Long {
            left: 0,
            how: Goes::On,
        })
    };
    chunking::assert_invisible(long, b"?", true, |got| got.output.len(), 4);
}

#[test]
#[should_panic(expected = "a full link shows")]
fn a_service_that_goes_astray_is_found() {
    let long = || {
        service_fn(|_| Long {
            left: 0,
            how: Goes::Astray,
        })
    };
    chunking::assert_invisible(long, b"?", true, |got| got.output.len(), 1);
}

#[test]
fn what_is_shown_is_text() {
    let got = collect(Echo, b"GET /\r\n", &[], false);
    assert_eq!(
        format!("{got:?}"),
        r#"Collected { output: b"GET /\r\n", closed: None }"#
    );
    let feed = format!("{:?}", Feed::new(&[7; 3000]));
    assert!(
        feed.contains(r"\x07") && feed.contains("and 1000 bytes"),
        "{feed}"
    );
}
