//! The split of the input into chunks carries no meaning, whatever the pace of the peer.

use proptest::prelude::*;
use tidewire::Closed;
use tidewire::sim::chunking;
use tidewire_echo::{Discard, Echo};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn echo_returns_the_bytes_however_they_are_cut(
        input in proptest::collection::vec(any::<u8>(), 0..5_000),
    ) {
        let whole = chunking::collect(Echo, &input, &[], true);
        prop_assert_eq!(&whole.output, &input);
        prop_assert_eq!(whole.closed, Some(Closed::Finished));
        chunking::assert_invisible(|| Echo, &input, true, Clone::clone, 10);
    }
}

#[test]
fn more_than_the_output_may_hold_comes_back_whole() {
    let input: Vec<u8> = (0..3_000_000u32).map(|i| (i >> 3) as u8).collect();
    let slow = chunking::Feed::new(&input).window(1 << 10).run(Echo);
    assert!(
        slow.output == input,
        "{} bytes came back",
        slow.output.len()
    );
    assert_eq!(slow.closed, Some(Closed::Finished));
}

#[test]
fn discard_says_nothing() {
    let got = chunking::collect(Discard, &[7; 200_000], &[1, 2, 3], true);
    assert_eq!(got.output, b"");
    assert_eq!(got.closed, Some(Closed::Finished));
}
