//! Echo: what goes in comes out, however it is cut and however slowly it is taken.

use tidewire::sim::chunking::{self, Feed};
use tidewire::{Closed, Limits};
use tidewire_echo::Echo;

/// The first bytes choose the split and the pace; the rest must come back.
pub fn echo(input: &[u8]) {
    let Some((&[split, window, low, high], stream)) = input.split_first_chunk() else {
        return;
    };
    let limits = Limits {
        output_low: low.into(),
        output_high: 1 + usize::from(low) + usize::from(high),
        ..Limits::default()
    };
    let got = Feed::new(stream)
        .splits(&chunking::splits(split.into(), stream.len()))
        .window(1 + usize::from(window))
        .limits(limits)
        .run(Echo);
    assert_eq!(got.output, stream);
    assert_eq!(got.closed, Some(Closed::Finished));
}
