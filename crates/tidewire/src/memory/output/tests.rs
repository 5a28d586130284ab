//! The queue against a model of it.

use super::*;
use proptest::prelude::*;

/// `n`, or a sixteenth for Miri, to which a byte is the work of microseconds.
const fn much(n: usize) -> usize {
    if cfg!(miri) { n / 16 } else { n }
}

/// How long a random sequence gets.
const STEPS_MAX: usize = if cfg!(miri) { 20 } else { 60 };

fn drain(out: &mut Output, blocks: &mut Blocks, step: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); 8];
        let n = out.slices(&mut slices, usize::MAX);
        let piece: Vec<u8> = slices[..n]
            .iter()
            .flat_map(|s| s.iter().copied())
            .take(step)
            .collect();
        assert!(!piece.is_empty());
        got.extend_from_slice(&piece);
        let sent = piece.len();
        out.advance(sent, blocks).unwrap();
    }
    got
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_in_order(
        writes in proptest::collection::vec((0..much(70_000), 0u8..4), 0..12),
        step in 1..much(100_000),
    ) {
        let (mut out, mut blocks) = (Output::default(), Blocks::default());
        let mut want = Vec::new();
        for (i, (len, kind)) in writes.into_iter().enumerate() {
            let bytes = vec![i as u8 + 1; len];
            want.extend_from_slice(&bytes);
            match kind {
                0 | 1 => out.write(&bytes, &mut blocks),
                2 => out.push_piece(Piece::copy_from(&bytes), &mut blocks),
                _ => out.push_shared(Bytes::from(bytes), &mut blocks),
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
    for _ in 0..much(20_000) {
        out.write(&[1; 12], &mut blocks);
    }
    for segment in out.first.iter().chain(&out.rest) {
        assert_eq!(segment.bytes().len() % 12, 0);
    }
}

#[test]
fn a_fill_that_panics_leaves_the_queue_as_it_was() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    for before in [&b""[..], b"whole"] {
        out.write(before, &mut blocks);
        let filled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            out.write_with(64, &mut blocks, |b| {
                b[..4].copy_from_slice(b"half");
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        }));
        assert!(filled.is_err());
        assert_eq!(out.len(), before.len());
    }
    out.write(b" again", &mut blocks);
    assert_eq!(drain(&mut out, &mut blocks, 100), b"whole again");
}

#[test]
fn blocks_are_reused() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    out.write(b"x", &mut blocks);
    let at = out.single().unwrap().as_ptr();
    out.clear(&mut blocks).unwrap();
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
        (0..much(9000)).prop_map(Step::Write),
        (0..much(9000)).prop_map(Step::Share),
        (0u64..40).prop_map(Step::Hold),
        (0u64..40).prop_map(Step::Release),
        (0..much(30_000)).prop_map(Step::Send),
    ];
    proptest::collection::vec(step, 0..STEPS_MAX)
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
                        _ => out.push_shared(Bytes::from(bytes), &mut blocks),
                    }
                }
                Step::Hold(m) => {
                    out.hold(m);
                    mark = mark.max(m);
                }
                Step::Release(upto) => {
                    out.release(upto);
                    released = released.max(upto);
                }
                Step::Send(n) => {
                    let mut slices = [IoSlice::new(&[]); 64];
                    let count = out.slices(&mut slices, usize::MAX);
                    let sent: Vec<u8> =
                        slices[..count].iter().flat_map(|s| s.iter().copied()).take(n).collect();
                    if let Some(single) = out.single() {
                        prop_assert!(count <= 1 && single.len() == slices[..count].iter().map(|s| s.len()).sum::<usize>());
                    }
                    let wanted: Vec<u8> =
                        model.drain(..sent.len()).inspect(|b| assert!(b.1 <= released)).map(|b| b.0).collect();
                    prop_assert_eq!(&sent, &wanted);
                    out.advance(sent.len(), &mut blocks).unwrap();
                }
            }
            let sendable = model.iter().take_while(|b| b.1 <= released).count();
            prop_assert_eq!(out.sendable(), sendable);
            prop_assert_eq!(out.may_send(), sendable > 0);
            prop_assert_eq!(out.len(), model.len());
            prop_assert!(!out.is_empty() || out.footprint() == 0);
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
    assert_eq!(out.holds().unwrap().len(), 500);
    out.release(999);
    assert_eq!((out.sendable(), out.holds().unwrap().len()), (499, 1));
    out.release(1000);
    assert_eq!(out.sendable(), 500);
}

impl Output {
    /// All memory that the queue has, and how much of it is in no bound: room in the block that is
    /// written to, and a block's worth of what is sent of the first segment.
    fn memory(&mut self) -> (usize, usize) {
        let segment = |s: &Segment| match s {
            Segment::Block(b) => b.size(),
            Segment::Piece(p) => p.footprint(),
            Segment::Shared(b) => b.bytes().len(),
        };
        let segments: usize = self.first.iter().chain(&self.rest).map(segment).sum();
        let places = self.rest.capacity() * size_of::<Segment>();
        let loose = match self.last() {
            Some(Segment::Block(b)) => b.room(),
            _ => 0,
        };
        // Places that are kept of a queue that was long once.
        (
            segments + places,
            loose + self.sent.min(LARGE) + PLACES_KEPT * size_of::<Segment>(),
        )
    }
}

/// Eight bytes at a time by an encoder that asks for all the room there is.
#[test]
fn asking_for_much_and_writing_little_takes_little() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    const BYTES: usize = much(31 << 10);
    for _ in 0..BYTES / 8 {
        let n = out.write_with(LARGE, &mut blocks, |space| {
            space[..8].fill(1);
            8
        });
        assert_eq!(n, 8);
    }
    let (memory, _) = out.memory();
    assert!(memory <= 90 << 10, "{memory} bytes for 31 KiB");
    assert_eq!(drain(&mut out, &mut blocks, 10_000), vec![1; BYTES]);
    assert_eq!(out.footprint(), 0);
}

#[test]
fn words_between_shared_pieces_take_little() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    let piece = Bytes::from(vec![2; COPIED + 1]);
    for _ in 0..much(1000) {
        out.write(b"header", &mut blocks);
        out.push_shared(piece.clone(), &mut blocks);
        out.write(b"trailer", &mut blocks);
    }
    let (memory, loose) = out.memory();
    assert!(memory <= 3 * out.len(), "{memory} for {}", out.len());
    assert!(memory <= out.footprint() + loose);
}

#[test]
fn pieces_that_are_cheaper_copied_are_gathered() {
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    for _ in 0..10 {
        out.push_shared(Bytes::from_static(&[1; COPIED]), &mut blocks);
        out.push_piece(Piece::copy_from(&[2; 9]), &mut blocks);
    }
    assert_eq!(out.single().unwrap().len(), 10 * (COPIED + 9));
    out.write_with(100, &mut blocks, |_| 0);
    assert!(out.single().is_some(), "nothing was written");
}

#[test]
fn a_large_piece_counts_until_its_last_byte_is_sent() {
    const PIECE: usize = much(16 << 20);
    for shared in [false, true] {
        let (mut out, mut blocks) = (Output::default(), Blocks::default());
        let bytes = vec![1; PIECE];
        match shared {
            true => out.push_shared(Bytes::from(bytes), &mut blocks),
            false => out.write(&bytes, &mut blocks),
        }
        out.write(b"and more", &mut blocks);
        for sent in [0, LARGE, PIECE / 2, PIECE - 1] {
            out.advance(sent - (PIECE + 8 - out.len()), &mut blocks)
                .unwrap();
            let counted = out.footprint();
            assert!(counted >= PIECE - LARGE, "{counted} bytes after {sent}");
        }
        out.advance(1, &mut blocks).unwrap();
        assert_eq!(out.footprint(), 8);
        // What is no longer than a block does not count once it is sent.
        out.advance(7, &mut blocks).unwrap();
        assert_eq!(out.footprint(), 1);
    }
}

proptest! {
    #[test]
    fn memory_is_bounded_by_what_is_counted(
        writes in proptest::collection::vec(
            (0..much(300_000), 0u8..6, 0..much(400_000)),
            0..STEPS_MAX,
        ),
    ) {
        let (mut out, mut blocks) = (Output::default(), Blocks::default());
        let mut want: VecDeque<u8> = VecDeque::new();
        for (i, (size, kind, send)) in writes.into_iter().enumerate() {
            // Mostly small.
            let len = if i % 3 == 0 { size } else { size % 300 };
            let bytes = vec![i as u8; len];
            want.extend(&bytes);
            match kind {
                0 | 1 => out.write(&bytes, &mut blocks),
                2 => out.push_piece(Piece::copy_from(&bytes), &mut blocks),
                3 => out.push_shared(Bytes::from(bytes), &mut blocks),
                _ => {
                    let len = len.min(LARGE);
                    want.truncate(out.len() + len);
                    out.write_with(LARGE, &mut blocks, |space| {
                        space[..len].copy_from_slice(&bytes[..len]);
                        len
                    });
                }
            }
            let n = if kind == 5 { send.min(out.len()) } else { 0 };
            let sent: Vec<u8> = want.drain(..n).collect();
            let mut slices = [IoSlice::new(&[]); 64];
            let count = out.slices(&mut slices, usize::MAX);
            prop_assert!(slices[..count].iter().flat_map(|s| s.iter()).zip(&sent).all(|(a, b)| a == b));
            out.advance(n, &mut blocks).unwrap();
            prop_assert_eq!(out.len(), want.len());
            let (memory, loose) = out.memory();
            prop_assert!(memory <= out.footprint() + loose);
            prop_assert!(loose <= 2 * LARGE + (4 << 10));
            prop_assert!(!out.is_empty() || out.footprint() == 0);
        }
        out.clear(&mut blocks).unwrap();
        prop_assert_eq!(out.footprint(), 0);
    }
}

#[test]
fn owners_that_panic_are_dropped_one_by_one() {
    struct Bomb;
    impl AsRef<[u8]> for Bomb {
        fn as_ref(&self) -> &[u8] {
            &[7; COPIED + 1]
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let (mut out, mut blocks) = (Output::default(), Blocks::default());
    let bomb = || Bytes::from_owner(Bomb);
    out.push_shared(bomb(), &mut blocks);
    assert_eq!(out.advance(COPIED, &mut blocks), Ok(()));
    assert_eq!(out.advance(1, &mut blocks), Err(OwnerPanicked));
    out.write(b"between", &mut blocks);
    for _ in 0..3 {
        out.push_shared(bomb(), &mut blocks);
    }
    assert_eq!(out.advance(7, &mut blocks), Ok(()));
    let two = 2 * (COPIED + 1);
    assert_eq!(out.advance(two, &mut blocks), Err(OwnerPanicked));
    assert_eq!(out.len(), COPIED + 1);
    out.push_shared(bomb(), &mut blocks);
    assert_eq!(out.clear(&mut blocks), Err(OwnerPanicked));
    assert_eq!((out.len(), out.footprint()), (0, 0));
    // Not even where the queue itself is dropped.
    out.push_shared(bomb(), &mut blocks);
    out.push_shared(bomb(), &mut blocks);
    drop(out);
}
