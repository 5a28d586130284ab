//! Roles that many cases need.

use tidewire::{Input, Next};

use crate::probe::{Context, Role};

/// Sends back what it gets, as fast as the peer takes it.
pub(crate) struct Echo;

impl Role for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        echo(input, cx)
    }
}

pub(crate) fn echo(input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
    if cx.link.full() {
        return Next::AfterDrain;
    }
    let n = input.len();
    cx.link.forward(input, n);
    Next::More
}

/// Takes what it gets.
pub(crate) struct Sink;

impl Role for Sink {
    fn received(&mut self, input: &mut Input<'_>, _: &mut Context<'_>) -> Next {
        input.consume(input.len());
        Next::More
    }
}

/// A role that is all in one function.
pub(crate) struct Receives<F>(pub(crate) F);

impl<F: FnMut(&mut Input<'_>, &mut Context<'_>) -> Next + 'static> Role for Receives<F> {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        (self.0)(input, cx)
    }
}

/// Answers each byte of a request with `factor` copies of it, asking `full` between requests.
pub(crate) struct Amplify(pub(crate) usize);

impl Role for Amplify {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        while let Some(&byte) = input.bytes().first() {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            cx.link.write(&vec![byte; self.0]);
            input.consume(1);
        }
        Next::More
    }
}

/// Answers with 2 MB and, like a publisher, does not ask whether there is room.
pub(crate) struct Publishes;

impl Role for Publishes {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        input.consume(input.len());
        for _ in 0..2000 {
            cx.link.write(&[1; 1000]);
        }
        Next::More
    }
}

/// `n` bytes that look random and differ with `seed`.
pub(crate) fn noise(seed: u64, n: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..n).map(|_| rng.next() as u8).collect()
}

/// A small generator of numbers that look random, equal for equal seeds.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }
}
