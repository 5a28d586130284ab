//! The sparse form: runs of registers with the same value, one after another, all 16,384.
//!
//! ```text
//! 00nnnnnn            n + 1 registers of zero
//! 01nnnnnn nnnnnnnn   the same, up to 16,384 of them
//! 1vvvvvnn            n + 1 registers of v + 1
//! ```

use std::fmt;

use super::layout::{HEADER, REGISTERS, Wrong};

/// The greatest value that the sparse form can hold.
const VALUE_MAX: u8 = 32;
/// Most registers of a run, of a value and of zeros in one byte.
const VALUES_MAX: usize = 4;
const ZEROS_MAX: usize = 64;
/// How many runs, from the one in front of the change on, are checked for runs that can be joined.
const NEAR: usize = 5;

/// The result of raising a register.
pub(super) enum Fitted {
    /// The register was that high.
    Same,
    Raised,
    /// The value, or all of it, is too large for this form; nothing was changed.
    TooLarge,
}

/// Registers that have one value.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) value: u8,
    pub(super) len: usize,
    /// Bytes that the sparse form takes.
    size: usize,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.size) {
            (0, 1) => write!(f, "z:{}", self.len),
            (0, _) => write!(f, "Z:{}", self.len),
            (value, _) => write!(f, "v:{value},{}", self.len),
        }
    }
}

impl Run {
    fn read(bytes: &[u8]) -> Result<Option<Run>, Wrong> {
        let run = |value, len, size| Ok(Some(Run { value, len, size }));
        match *bytes {
            [] => Ok(None),
            [head, ..] if head & 0x80 != 0 => {
                run((head >> 2 & 0x1f) + 1, usize::from(head & 3) + 1, 1)
            }
            [head, ..] if head & 0x40 == 0 => run(0, usize::from(head) + 1, 1),
            [head, low, ..] => {
                let len = usize::from(head & 0x3f) << 8 | usize::from(low);
                run(0, len + 1, 2)
            }
            [_] => Err(Wrong::Corrupt),
        }
    }
}

/// The runs of a body.
pub(super) fn runs(mut body: &[u8]) -> impl Iterator<Item = Result<Run, Wrong>> {
    std::iter::from_fn(move || {
        let run = Run::read(body).transpose()?;
        body = run.as_ref().map_or(&[], |run| &body[run.size..]);
        Some(run)
    })
}

pub(super) fn put_zeros(to: &mut Vec<u8>, len: usize) {
    debug_assert!(len <= REGISTERS);
    match len {
        0 => {}
        1..=ZEROS_MAX => to.push((len - 1) as u8),
        _ => to.extend_from_slice(&((len - 1) as u16 | 0x4000).to_be_bytes()),
    }
}

fn put_values(to: &mut Vec<u8>, value: u8, len: usize) {
    if len > 0 {
        to.push(0x80 | (value - 1) << 2 | (len - 1) as u8);
    }
}

/// Raises a register.
///
/// # Errors
/// The runs end before the register.
pub(super) fn raise(
    hll: &mut Vec<u8>,
    index: usize,
    to: u8,
    size_max: usize,
) -> Result<Fitted, Wrong> {
    if to > VALUE_MAX {
        return Ok(Fitted::TooLarge);
    }
    let (mut at, mut first, mut before) = (HEADER, 0, None);
    let run = loop {
        let run = Run::read(&hll[at..])?.ok_or(Wrong::Corrupt)?;
        if index < first + run.len {
            break run;
        }
        before = Some(at);
        (at, first) = (at + run.size, first + run.len);
    };
    if run.value >= to {
        return Ok(Fitted::Same);
    }
    // The run is split in three: the part before the register, the register, the part behind it.
    let (head, tail) = (index - first, first + run.len - 1 - index);
    let mut parts = Vec::with_capacity(5);
    let same = |parts: &mut Vec<u8>, len| match run.value {
        0 => put_zeros(parts, len),
        value => put_values(parts, value, len),
    };
    same(&mut parts, head);
    put_values(&mut parts, to, 1);
    same(&mut parts, tail);
    if parts.len() > run.size && hll.len() + parts.len() - run.size > size_max {
        return Ok(Fitted::TooLarge);
    }
    hll.splice(at..at + run.size, parts);
    join(hll, before.unwrap_or(HEADER))?;
    Ok(Fitted::Raised)
}

/// Joins neighbouring runs of equal value, near the change.
fn join(hll: &mut Vec<u8>, mut at: usize) -> Result<(), Wrong> {
    for _ in 0..NEAR {
        let Some(run) = Run::read(&hll[at..])? else {
            break;
        };
        if run.value > 0
            && let Some(next) = Run::read(&hll[at + 1..])?
            && next.value == run.value
            && run.len + next.len <= VALUES_MAX
        {
            let mut joined = Vec::with_capacity(1);
            put_values(&mut joined, run.value, run.len + next.len);
            hll.splice(at..at + 2, joined);
        } else {
            at += run.size;
        }
    }
    Ok(())
}
