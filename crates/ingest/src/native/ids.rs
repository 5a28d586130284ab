//! The rules for ids: which messages are new, which were taken before, and where there is a gap.
//!
//! Nearly every batch continues the mark without a gap. The parser checks that while it looks at
//! each message anyway, with a comparison that nothing waits for. Only if the check fails are the
//! messages looked at one by one.

use crate::classic::{Batch, HEADER, Parser};

/// The ids that a producer has sent, and what it promised about later ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    /// The highest id taken.
    pub(super) mark: Option<u64>,
    /// The first id of a producer without a mark.
    pub(super) first: u64,
    /// Ids rise, with gaps.
    pub(super) sparse: bool,
}

/// The messages at the start of some bytes that are to be treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// New ones: so many bytes and messages, the ids of the first and of the last.
    New(Run),
    /// Messages taken before.
    Duplicates(Run),
    /// An id that is not allowed here: there is a gap before it, or it is below the first.
    Unexpected,
}

/// Messages that lie one behind another in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) len: usize,
    pub(super) count: usize,
    pub(super) first: u64,
    pub(super) last: u64,
}

#[inline(always)]
fn id_of(frame: &[u8]) -> u64 {
    let id = frame.first_chunk().copied();
    u64::from_le_bytes(id.unwrap_or_default())
}

impl Ids {
    /// The next id, or with sparse ids the lowest that may be next; `None` if no id may follow.
    pub(super) fn next(&self) -> Option<u64> {
        match self.mark {
            Some(mark) => mark.checked_add(1),
            None => Some(self.first),
        }
    }

    /// The whole messages at the start of `bytes`, and their run of ids if all of them are new.
    #[inline]
    pub(super) fn parse<'a>(&self, parser: &Parser, bytes: &'a [u8]) -> (Batch<'a>, Option<Run>) {
        let (batch, as_promised) = if self.sparse {
            self.parse_rising(parser, bytes)
        } else {
            self.parse_dense(parser, bytes)
        };
        let run = (as_promised && batch.messages() > 0).then(|| Run {
            len: batch.bytes().len(),
            count: batch.messages(),
            first: id_of(batch.bytes()),
            last: batch.last_id().map_or(0, u64::from_le_bytes),
        });
        (batch, run)
    }

    fn parse_dense<'a>(&self, parser: &Parser, bytes: &'a [u8]) -> (Batch<'a>, bool) {
        let first = self.next();
        let mut next = first.unwrap_or(0);
        let mut differing = 0;
        let batch = parser.parse_with(bytes, usize::MAX, |frame| {
            differing |= id_of(frame) ^ next;
            next = next.wrapping_add(1);
        });
        let more = (batch.messages() as u64).saturating_sub(1);
        let fits = first.is_some_and(|first| first.checked_add(more).is_some());
        (batch, differing == 0 && fits)
    }

    fn parse_rising<'a>(&self, parser: &Parser, bytes: &'a [u8]) -> (Batch<'a>, bool) {
        let lowest = self.next();
        let mut at_least = lowest.unwrap_or(0);
        // After the highest id that there is, nothing rises.
        let mut rising = lowest.is_some();
        let batch = parser.parse_with(bytes, usize::MAX, |frame| {
            let id = id_of(frame);
            rising &= id >= at_least && id < u64::MAX;
            at_least = id.wrapping_add(1);
        });
        (batch, rising)
    }

    /// The first part of `bytes`, which are whole messages, at least one.
    pub(super) fn part(&self, bytes: &[u8]) -> Part {
        let mut ids = *self;
        let first = id_of(bytes);
        let Some(new) = ids.is_new(first) else {
            return Part::Unexpected;
        };
        let mut run = Run {
            len: 0,
            count: 0,
            first,
            last: first,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let id = id_of(rest);
            if ids.is_new(id) != Some(new) {
                break;
            }
            if new {
                ids.mark = Some(id);
            }
            let len = frame_len(rest);
            rest = rest.get(len..).unwrap_or_default();
            run.len += len;
            run.count += 1;
            run.last = if new { id } else { run.last.max(id) };
        }
        if new {
            Part::New(run)
        } else {
            Part::Duplicates(run)
        }
    }

    /// Whether a message is new; `None` if it may not come.
    fn is_new(&self, id: u64) -> Option<bool> {
        if self.mark.is_some_and(|mark| id <= mark) {
            return Some(false);
        }
        let next = self.next()?;
        (id == next || self.sparse && id > next).then_some(true)
    }
}

/// The length of the whole message at the start of some bytes.
pub(super) fn frame_len(bytes: &[u8]) -> usize {
    let size = bytes.get(8..HEADER).and_then(|size| size.try_into().ok());
    HEADER + size.map_or(0, u32::from_le_bytes) as usize
}

/// The first `count` of whole messages: how many bytes they take, and the id of the last one.
pub(super) fn first_of(bytes: &[u8], count: usize) -> (usize, u64) {
    let (mut len, mut last) = (0, 0);
    for _ in 0..count {
        let rest = bytes.get(len..).unwrap_or_default();
        last = id_of(rest);
        len += frame_len(rest);
    }
    (len, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::codec;

    fn stream(ids: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &id in ids {
            let size = (id % 5) as u32;
            bytes.extend_from_slice(&codec::message_header(id, size));
            bytes.resize(bytes.len() + size as usize, b'x');
        }
        bytes
    }

    /// The kinds of all of `ids`, part by part.
    fn parts(mut ids: Ids, stream: &[u8]) -> Vec<(Part, usize)> {
        let mut all = Vec::new();
        let mut rest = stream;
        while !rest.is_empty() {
            let part = ids.part(rest);
            let run = match part {
                Part::New(run) => {
                    ids.mark = Some(run.last);
                    run
                }
                Part::Duplicates(run) => run,
                Part::Unexpected => {
                    all.push((part, 0));
                    break;
                }
            };
            all.push((part, run.count));
            rest = &rest[run.len..];
        }
        all
    }

    /// The two ways agree: what the parser finds whole is one new part.
    fn check(ids: Ids, list: &[u64], counts: &[(char, usize)]) {
        let bytes = stream(list);
        let (batch, run) = ids.parse(&codec::parser(100), &bytes);
        assert_eq!(batch.messages(), list.len());
        let found = parts(ids, &bytes);
        let names: Vec<(char, usize)> = found
            .iter()
            .map(|(part, n)| match part {
                Part::New(_) => ('n', *n),
                Part::Duplicates(_) => ('d', *n),
                Part::Unexpected => ('x', 0),
            })
            .collect();
        assert_eq!(names, counts, "{ids:?} {list:?}");
        let max = list.last() == Some(&u64::MAX) && ids.sparse;
        match &found[..] {
            [(Part::New(whole), _)] if !max => assert_eq!(run, Some(*whole), "{list:?}"),
            _ => assert_eq!(run, None, "{ids:?} {list:?}"),
        }
    }

    #[test]
    fn dense_ids_continue_the_mark() {
        let ids = |mark, first| Ids {
            mark,
            first,
            sparse: false,
        };
        let max = u64::MAX;
        check(ids(None, 7), &[7, 8, 9], &[('n', 3)]);
        check(ids(None, 7), &[6, 7], &[('x', 0)]);
        check(ids(None, 7), &[8], &[('x', 0)]);
        check(ids(None, max), &[max], &[('n', 1)]);
        check(ids(None, max), &[max, 0], &[('n', 1), ('d', 1)]);
        check(ids(Some(max), 0), &[max, 3], &[('d', 2)]);
        check(ids(Some(9), 0), &[10, 11], &[('n', 2)]);
        check(ids(Some(9), 0), &[8, 9, 10, 11], &[('d', 2), ('n', 2)]);
        check(ids(Some(9), 0), &[10, 12], &[('n', 1), ('x', 0)]);
        check(
            ids(Some(9), 0),
            &[10, 10, 11],
            &[('n', 1), ('d', 1), ('n', 1)],
        );
        check(ids(Some(9), 0), &[10, 12, 11], &[('n', 1), ('x', 0)]);
        check(ids(Some(9), 0), &[5, 3, 4], &[('d', 3)]);
        // First, last and count would do.
        check(
            ids(Some(9), 0),
            &[10, 10, 12],
            &[('n', 1), ('d', 1), ('x', 0)],
        );
    }

    #[test]
    fn sparse_ids_rise() {
        let ids = |mark, first| Ids {
            mark,
            first,
            sparse: true,
        };
        let max = u64::MAX;
        check(ids(None, 7), &[7, 9, 100], &[('n', 3)]);
        check(ids(None, 7), &[8], &[('n', 1)]);
        check(ids(None, 7), &[6, 7], &[('x', 0)]);
        check(ids(Some(9), 0), &[12, 20], &[('n', 2)]);
        check(
            ids(Some(9), 0),
            &[3, 9, 12, 11, 13],
            &[('d', 2), ('n', 1), ('d', 1), ('n', 1)],
        );
        check(ids(Some(9), 0), &[12, max], &[('n', 2)]);
        check(ids(Some(9), 0), &[max, max, 0], &[('n', 1), ('d', 2)]);
        check(ids(Some(max), 0), &[max, 1], &[('d', 2)]);
    }
}
