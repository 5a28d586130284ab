//! The queue against a model of it.

use super::*;
use proptest::prelude::*;

fn drain(out: &mut Output, blocks: &mut Blocks, step: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); 8];
        let n = out.slices(&mut slices);
        let piece: Vec<u8> = slices[..n]
            .iter()
            .flat_map(|s| s.iter().copied())
            .take(step)
            .collect();
        assert!(!piece.is_empty());
        got.extend_from_slice(&piece);
        let sent = piece.len();
        out.advance(sent, blocks);
    }
    got
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_in_order(
        writes in proptest::collection::vec((0usize..70_000, 0u8..4), 0..12),
        step in 1usize..100_000,
    ) {
        let (mut out, mut blocks) = (Output::default(), Blocks::default());
        let mut want = Vec::new();
        for (i, (len, kind)) in writes.into_iter().enumerate() {
            let bytes = vec![i as u8 + 1; len];
            want.extend_from_slice(&bytes);
            match kind {
                0 | 1 => out.write(&bytes, &mut blocks),
                2 => out.push_chunk(Chunk::copy_from(&bytes)),
                _ => out.push_shared(Bytes::from(bytes)),
            }
            prop_assert_eq!(out.len(), want.len());
        }
        prop_assert_eq!(drain(&mut out, &mut blocks, step), want);
        prop_assert_eq!(out.rest.capacity(), 0);
    }
}

#[test]
fn a_small_write_is_never_split() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    for _ in 0..20_000 {
        out.write(&[1; 12], &mut blocks);
    }
    for segment in out.first.iter().chain(&out.rest) {
        assert_eq!(segment.bytes().len() % 12, 0);
    }
}

#[test]
fn blocks_are_reused() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    out.write(b"x", &mut blocks);
    let at = out.single().unwrap().as_ptr();
    out.clear(&mut blocks);
    out.write(b"y", &mut blocks);
    assert_eq!(out.single().unwrap().as_ptr(), at);
    assert_eq!(
        out.write_with(8, &mut blocks, |b| {
            b[0] = b'z';
            1
        }),
        1
    );
    assert_eq!(out.single().unwrap(), b"yz");
}

/// What may happen to a queue with marks.
#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Share(usize),
    Hold(u64),
    Release(u64),
    /// The kernel takes this many bytes, if so many may be sent.
    Send(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..9000).prop_map(Step::Write),
        (0usize..9000).prop_map(Step::Share),
        (0u64..40).prop_map(Step::Hold),
        (0u64..40).prop_map(Step::Release),
        (0usize..30_000).prop_map(Step::Send),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn what_waits_for_a_mark_leaves_when_it_is_released(steps in steps()) {
        let (mut out, mut blocks) = (Output::default(), Blocks::default());
        // Each byte with the mark it waits for.
        let mut model: VecDeque<(u8, u64)> = VecDeque::new();
        let (mut mark, mut released, mut next) = (0, 0, 0u8);
        for step in steps {
            match step {
                Step::Write(n) | Step::Share(n) => {
                    let bytes: Vec<u8> = (0..n).map(|i| (i as u8).wrapping_add(next)).collect();
                    next = next.wrapping_add(7);
                    model.extend(bytes.iter().map(|&b| (b, mark)));
                    match step {
                        Step::Write(_) => out.write(&bytes, &mut blocks),
                        _ => out.push_shared(Bytes::from(bytes)),
                    }
                }
                Step::Hold(m) => {
                    out.hold(m);
                    mark = mark.max(m);
                }
                Step::Release(upto) => {
                    out.holds().release(upto);
                    released = released.max(upto);
                }
                Step::Send(n) => {
                    let mut slices = [IoSlice::new(&[]); 64];
                    let count = out.slices(&mut slices);
                    let sent: Vec<u8> =
                        slices[..count].iter().flat_map(|s| s.iter().copied()).take(n).collect();
                    if let Some(single) = out.single() {
                        prop_assert!(count <= 1 && single.len() == slices[..count].iter().map(|s| s.len()).sum::<usize>());
                    }
                    let wanted: Vec<u8> =
                        model.drain(..sent.len()).inspect(|b| assert!(b.1 <= released)).map(|b| b.0).collect();
                    prop_assert_eq!(&sent, &wanted);
                    out.advance(sent.len(), &mut blocks);
                }
            }
            let sendable = model.iter().take_while(|b| b.1 <= released).count();
            prop_assert_eq!(out.sendable(), sendable);
            prop_assert_eq!(out.may_send(), sendable > 0);
            prop_assert_eq!(out.len(), model.len());
        }
    }
}

#[test]
fn marks_cost_one_pair_for_each_that_is_waited_for() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    for mark in 1..=1000 {
        for _ in 0..10 {
            out.hold(mark);
        }
        // Nothing is written behind odd ones.
        if mark % 2 == 0 {
            out.hold(3);
            out.write(b"x", &mut blocks);
        }
    }
    assert_eq!(out.holds().len(), 500);
    out.holds().release(999);
    assert_eq!((out.sendable(), out.holds().len()), (499, 1));
    out.holds().release(1000);
    assert_eq!(out.sendable(), 500);
}
