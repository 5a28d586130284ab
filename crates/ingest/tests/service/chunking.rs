//! On the simulated loop: the split of the input carries no meaning, and each policy keeps its
//! word, to the millisecond.

use std::time::Duration;

use crate::common::{acknowledged, dialects, messages, server};
use crate::worked::{Worked, worked};
use proptest::prelude::*;
use tidewire::sim::chunking::{self, Collected, Feed};
use tidewire::{Closed, Limits};
use tidewire_ingest::classic::{AckPolicy, Classic, HEADER, Mode};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What acknowledgements mean: how many messages they cover, in a chain without a gap.
fn meaning(classic: &Classic) -> impl Fn(&Collected) -> (u64, Option<Closed>) {
    |got| (acknowledged(classic, &got.output), got.closed)
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let one = prop_oneof![3 => Just(5), 2 => Just(0), 2 => 0..40usize, 1 => 0..3000usize];
    // Runs of equal sizes are parsed in a way of their own.
    let runs = (one, prop_oneof![Just(1), 1..20usize]);
    proptest::collection::vec(runs, 0..25).prop_map(|runs| {
        runs.into_iter()
            .flat_map(|(size, n)| vec![size; n])
            .collect()
    })
}

#[test]
fn the_page_shows_what_is_spoken() {
    let page = worked(include_str!("../../../../docs/formats/classic.md"));
    let mut shown = Vec::new();
    for Worked { names, sent, heard } in page {
        for name in names {
            let mode: Mode = name.parse().unwrap();
            let got = chunking::collect(server(Classic::preset(mode)), &sent, &[], true);
            assert_eq!(got.output, heard, "{name}");
            shown.push(mode);
        }
    }
    assert_eq!(shown, Mode::ALL);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_split_does_not_show(sizes in sizes(), cut in 0..40usize) {
        for classic in dialects() {
            let whole = messages(&classic, sizes.iter().copied());
            // Some streams end within a message.
            let cut = cut.saturating_sub(20).min(whole.len());
            let mut end = 0;
            let complete = sizes.iter().take_while(|&size| {
                end += HEADER + size;
                end <= whole.len() - cut
            }).count();
            let stream = &whole[..whole.len() - cut];
            let all = chunking::collect(server(classic), stream, &[], true);
            prop_assert_eq!(meaning(&classic)(&all), (complete as u64, Some(Closed::Finished)));
            chunking::assert_invisible(|| server(classic), stream, true, meaning(&classic), 6);
        }
    }

    #[test]
    fn nor_does_the_time_between_pieces(
        sizes in sizes(), seed in 0..1000u64, pause in 0..8u64, window in 1..200usize,
    ) {
        for classic in dialects() {
            let stream = messages(&classic, sizes.iter().copied());
            let splits = chunking::splits(seed, stream.len().min(500));
            let got = Feed::new(&stream)
                .splits(&splits)
                .pause(ms(pause))
                .window(window)
                .limits(classic.limits())
                .run(server(classic));
            let all = (sizes.len() as u64, Some(Closed::Finished));
            prop_assert_eq!(meaning(&classic)(&got), all, "{:?}", classic);
        }
    }
}

#[test]
fn a_request_may_be_cut_anywhere() {
    for classic in dialects() {
        let stream = messages(&classic, [5, 0, 0, 3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1, 0]);
        for pause in [Duration::ZERO, ms(6)] {
            for first in 0..=stream.len() {
                for second in [1, 7, stream.len() / 2] {
                    let feed = Feed::new(&stream).pause(pause).limits(classic.limits());
                    let got = feed.splits(&[first, second]).run(server(classic));
                    assert_eq!(
                        meaning(&classic)(&got),
                        (16, Some(Closed::Finished)),
                        "{first}"
                    );
                }
            }
            let bytewise = vec![1; stream.len()];
            let got = Feed::new(&stream)
                .splits(&bytewise)
                .pause(pause)
                .run(server(classic));
            assert_eq!(meaning(&classic)(&got), (16, Some(Closed::Finished)));
        }
    }
}

#[test]
fn an_empty_payload_is_a_message() {
    for classic in dialects() {
        let service = server(classic);
        let got = chunking::collect(service.clone(), &messages(&classic, [0; 7]), &[], true);
        assert_eq!(acknowledged(&classic, &got.output), 7, "{classic:?}");
        let counters = service.counters();
        assert_eq!((counters.messages, counters.payload_bytes), (7, 0));
    }
}

#[test]
fn ids_are_opaque() {
    let classic = Classic::preset(Mode::RequestReply);
    let got = chunking::collect(
        server(classic),
        b"\xff\0same!!\0\0\0\0\xff\0same!!\0\0\0\x01x",
        &[],
        true,
    );
    assert_eq!(got.output, b"\xff\0same!!\xff\0same!!");
}

#[test]
fn a_payload_above_the_limit_ends_the_connection_after_what_was_owed() {
    for mut classic in dialects() {
        classic.payload_max = 1000;
        let mut stream = messages(&classic, [5, 1000, 0]);
        stream.extend(messages(&classic, [1001, 5]));
        for splits in [&[][..], &[17], &[1100, 1]] {
            let service = server(classic);
            let feed = Feed::new(&stream).splits(splits).limits(classic.limits());
            let got = feed.run(service.clone());
            assert_eq!(
                meaning(&classic)(&got),
                (3, Some(Closed::ByProtocol("payload too large"))),
                "{classic:?} {splits:?}"
            );
            let counters = service.counters();
            assert_eq!((counters.messages, counters.oversized), (3, 1));
        }
    }
}

#[test]
fn a_payload_at_the_limit_is_taken_whatever_follows_it() {
    for mut classic in dialects() {
        classic.payload_max = 3 << 20;
        let sizes = [5, 3 << 20, 0, 5, 5, 5, 5, 5, 5, 5, 3 << 20, 5];
        let stream = messages(&classic, sizes);
        for splits in [vec![], vec![18], chunking::splits(4, 5000)] {
            let feed = Feed::new(&stream)
                .splits(&splits)
                .limits(classic.limits())
                .window(1);
            let got = feed.run(server(classic));
            assert_eq!(
                meaning(&classic)(&got),
                (12, Some(Closed::Finished)),
                "{classic:?}"
            );
        }
    }
}

#[test]
fn stopping_within_a_message_is_counted() {
    let classic = Classic::preset(Mode::Sync);
    let (service, stream) = (server(classic), messages(&classic, [5, 5]));
    let got = chunking::collect(service.clone(), &stream[..33], &[], true);
    assert_eq!(acknowledged(&classic, &got.output), 1);
    assert_eq!(service.counters().truncated, 1);
    assert_eq!(
        service.counters().to_string(),
        "messages=1 payload_bytes=5 acks=1 truncated=1"
    );
}

#[test]
fn silence_flushes_what_is_pending() {
    for policy in [
        AckPolicy::Every {
            interval: ms(3_600_000),
        },
        AckPolicy::EveryChunks {
            n: 1000,
            or_idle: ms(3_600_000),
        },
    ] {
        let classic = Classic {
            policy,
            ..Classic::preset(Mode::Throttled)
        };
        let stream = messages(&classic, [5, 5, 5]);
        let feed = Feed::new(&stream).splits(&[20]).limits(classic.limits());
        let waiting = feed
            .clone()
            .half_close(false)
            .after(ms(4_900))
            .run(server(classic));
        assert_eq!((waiting.output, waiting.closed), (vec![], None));
        let got = feed.half_close(false).after(ms(5_100)).run(server(classic));
        assert_eq!(
            meaning(&classic)(&got),
            (3, Some(Closed::Idle)),
            "{policy:?}"
        );
    }
}

/// The ids acknowledged, one for each acknowledgement, when `pieces` messages came one by one.
fn named(classic: Classic, pieces: usize, pause: Duration, after: Duration) -> Vec<u64> {
    let stream = messages(&classic, vec![5; pieces]);
    let got = Feed::new(&stream)
        .splits(&vec![17; pieces])
        .pause(pause)
        .after(after)
        .half_close(false)
        .run(server(classic));
    acknowledged(&classic, &got.output);
    let acks = got.output.chunks_exact(classic.form.len());
    acks.map(|ack| u64::from_ne_bytes(classic.form.decode(ack).id))
        .collect()
}

#[test]
fn sync_acknowledges_each_chunk() {
    let classic = Classic::preset(Mode::Sync);
    assert_eq!(
        named(classic, 5, Duration::ZERO, Duration::ZERO),
        [0, 1, 2, 3, 4]
    );
}

#[test]
fn async_acknowledges_the_22nd_chunk_or_after_5_ms() {
    let classic = Classic::preset(Mode::Async);
    assert_eq!(named(classic, 21, Duration::ZERO, ms(4)), []);
    assert_eq!(named(classic, 50, Duration::ZERO, ms(4)), [21, 43]);
    assert_eq!(named(classic, 50, Duration::ZERO, ms(6)), [21, 43, 49]);
    // The pause counts from the last chunk, not from the first.
    assert_eq!(named(classic, 5, ms(4), ms(4)), []);
    assert_eq!(named(classic, 3, ms(6), ms(6)), [0, 1, 2]);
}

#[test]
fn throttled_acknowledges_by_a_clock_that_runs_from_connect() {
    for mode in [Mode::Throttled, Mode::HeadRest] {
        let classic = Classic::preset(mode);
        assert_eq!(named(classic, 4, ms(1), Duration::ZERO), []);
        // Messages at 2, 4, .. 12 ms; ticks at 5, 10, 15 ms.
        assert_eq!(named(classic, 6, ms(2), Duration::ZERO), [1, 3]);
        assert_eq!(named(classic, 6, ms(2), ms(4)), [1, 3, 5]);
        // One at 12 ms: the next tick is 3 ms away, and none comes for nothing.
        assert_eq!(named(classic, 1, ms(12), ms(4)), [0]);
        assert_eq!(named(classic, 1, ms(12), ms(60)), [0]);
    }
}

#[test]
fn cumulative_acknowledgements_merge_while_the_client_does_not_read() {
    for mode in [Mode::Throttled, Mode::Sync, Mode::Async] {
        let classic = Classic::preset(mode);
        let (service, stream) = (server(classic), messages(&classic, vec![5; 20_000]));
        let splits = vec![17; 20_000];
        // Nothing is taken from the server before everything is sent.
        let limits = Limits {
            idle: None,
            ..classic.limits()
        };
        let feed = Feed::new(&stream)
            .splits(&splits)
            .window(1)
            .limits(limits)
            .pause(ms(1));
        let got = feed.run(service.clone());
        assert_eq!(
            meaning(&classic)(&got),
            (20_000, Some(Closed::Finished)),
            "{mode}"
        );
        assert!(
            service.counters().acks < 2500,
            "{mode}: {}",
            service.counters()
        );
    }
}

#[test]
fn what_was_held_back_is_acknowledged_as_soon_as_the_client_reads() {
    for policy in [
        AckPolicy::EachChunk,
        AckPolicy::EveryChunks {
            n: 2,
            or_idle: ms(3_600_000),
        },
        AckPolicy::Every { interval: ms(1) },
    ] {
        let classic = Classic {
            policy,
            ..Classic::preset(Mode::Sync)
        };
        let stream = messages(&classic, vec![5; 1000]);
        let splits = vec![17; 1000];
        // Nothing comes after the last message that could bring about an acknowledgement.
        let feed = Feed::new(&stream).splits(&splits).half_close(false);
        let limits = Limits {
            idle: None,
            ..classic.limits()
        };
        let got = feed
            .window(1)
            .pause(ms(1))
            .after(ms(1))
            .limits(limits)
            .run(server(classic));
        assert_eq!(meaning(&classic)(&got), (1000, None), "{policy:?}");
    }
}
