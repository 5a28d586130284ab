//! The bounded resend buffer: every message between the moment it gets its id and the moment it is
//! acknowledged.
//!
//! Messages lie back to back in pieces, in the form in which they are sent. Handed-out messages and
//! the others are whole pieces: a piece in which the border falls is cut in two. So handing out
//! messages is a cheap clone of shared bytes, and going back to an earlier message moves the border.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::classic::HEADER;
use crate::native::codec::message_header;

/// Messages are gathered in allocations of this size, and handed out in pieces of at most that.
const PIECE: usize = 128 << 10;
/// Number of allocations that are kept for later messages when their content is acknowledged, 8
/// MiB: memory that is given back and taken again is cleared by the system each time. When nothing
/// is left, fewer.
const KEPT: usize = 64;
const KEPT_IDLE: usize = 2;

/// How much may be handed out without being acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// Messages, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub messages: u64,
    /// Bytes of the messages, headers included.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    fn take(&mut self, other: Amount) {
        self.messages -= other.messages;
        self.bytes -= other.bytes;
    }
}

/// Whole messages back to back, at least one.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    first_id: u64,
    last_id: u64,
    count: u64,
    /// The length of each message, if all messages have the same length.
    stride: Option<usize>,
}

impl Piece {
    fn amount(&self) -> Amount {
        Amount {
            messages: self.count,
            bytes: self.bytes.len() as u64,
        }
    }

    /// The first messages, as many as `fits` says yes to, given how many there are before a message,
    /// their bytes with it, and its id; in all, and bytes.
    fn prefix(&self, mut fits: impl FnMut(u64, usize, u64) -> bool) -> (u64, usize, u64) {
        let (mut count, mut len, mut last) = (0, 0, 0);
        while count < self.count {
            let rest = &self.bytes[len..];
            let id = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes"));
            let size = u32::from_le_bytes(rest[8..HEADER].try_into().expect("4 bytes"));
            let end = len + HEADER + size as usize;
            if !fits(count, end, id) {
                break;
            }
            (count, len, last) = (count + 1, end, id);
        }
        (count, len, last)
    }

    /// How many messages have an id up to `id`, their bytes, and the last of these ids.
    fn up_to(&self, id: u64) -> (u64, usize, u64) {
        if id >= self.last_id {
            return (self.count, self.bytes.len(), self.last_id);
        }
        match self.stride {
            // Without a gap, the place of an id is known.
            Some(stride) if self.last_id - self.first_id == self.count - 1 => {
                let count = (id + 1).saturating_sub(self.first_id);
                (count, count as usize * stride, id)
            }
            _ => self.prefix(|_, _, this| this <= id),
        }
    }

    /// How many messages go into a window, their bytes, and the last of their ids.
    fn within(&self, window: Window) -> (u64, usize, u64) {
        if self.count <= window.messages && self.bytes.len() as u64 <= window.bytes {
            return (self.count, self.bytes.len(), self.last_id);
        }
        self.prefix(|before, end, _| before < window.messages && end as u64 <= window.bytes)
    }

    /// Cuts off the first `count` messages, `len` bytes of which the last one's id is `last`;
    /// neither part may be empty.
    fn split(&mut self, (count, len, last): (u64, usize, u64)) -> Piece {
        let bytes = self.bytes.split_to(len);
        let front = Piece {
            bytes,
            first_id: self.first_id,
            last_id: last,
            count,
            stride: self.stride,
        };
        self.drop_front(count);
        front
    }

    /// Corrects the figures after the bytes of the first `count` messages have gone.
    fn drop_front(&mut self, count: u64) {
        self.count -= count;
        self.first_id = u64::from_le_bytes(self.bytes[..8].try_into().expect("8 bytes"));
    }
}

/// The module's comment describes the type.
#[derive(Debug)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
    /// Pieces at the front that were handed out.
    out: usize,
    /// Messages and bytes that are in flight.
    in_flight: Amount,
    /// Messages added since the last piece was closed: a piece but for its bytes.
    open: BytesMut,
    open_first: u64,
    open_last: u64,
    open_count: u64,
    open_stride: Option<usize>,
    /// Buffers of pieces that were acknowledged, empty.
    kept: Vec<BytesMut>,
    all: Amount,
    most: Amount,
}

impl Outbox {
    pub(super) fn new(most: Amount) -> Outbox {
        Outbox {
            pieces: VecDeque::new(),
            out: 0,
            in_flight: Amount::default(),
            open: BytesMut::new(),
            open_first: 0,
            open_last: 0,
            open_count: 0,
            open_stride: None,
            kept: Vec::new(),
            all: Amount::default(),
            most,
        }
    }

    /// Whether a message with a payload of `len` bytes may be added. An empty outbox takes any.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.all.messages == 0
            || (self.all.messages < self.most.messages
                && self.all.bytes + (HEADER + len) as u64 <= self.most.bytes)
    }

    /// Adds a message; its id must be above all earlier ids.
    #[inline]
    pub(super) fn push(&mut self, id: u64, payload: &[u8]) {
        let len = HEADER + payload.len();
        if self.open.len() + len > self.open.capacity() {
            self.grow(len);
        }
        self.open
            .extend_from_slice(&message_header(id, payload.len() as u32));
        self.open.extend_from_slice(payload);
        if self.open_count == 0 {
            (self.open_first, self.open_stride) = (id, Some(len));
        } else if self.open_stride != Some(len) {
            self.open_stride = None;
        }
        self.open_last = id;
        self.open_count += 1;
        self.all.messages += 1;
        self.all.bytes += len as u64;
    }

    /// Makes room for a message of `len` bytes.
    #[cold]
    fn grow(&mut self, len: usize) {
        self.close();
        if len <= PIECE
            && let Some(kept) = self.kept.pop()
        {
            self.open = kept;
            return;
        }
        // Takes the old allocation again if all of it has been acknowledged.
        self.open.reserve(PIECE.max(len));
    }

    /// Keeps the memory of an acknowledged piece for reuse, if no other buffer shares a part of it.
    fn keep(&mut self, piece: Piece) {
        if self.kept.len() < KEPT
            && let Ok(mut bytes) = piece.bytes.try_into_mut()
        {
            bytes.clear();
            if (PIECE..=2 * PIECE).contains(&bytes.capacity()) {
                self.kept.push(bytes);
            }
        }
    }

    /// Makes a piece of the messages gathered.
    fn close(&mut self) {
        if self.open_count > 0 {
            self.pieces.push_back(Piece {
                bytes: self.open.split().freeze(),
                first_id: self.open_first,
                last_id: self.open_last,
                count: std::mem::take(&mut self.open_count),
                stride: self.open_stride,
            });
        }
    }

    /// The next messages to write, with the id of the last one; as many as fit into the window
    /// beside the messages in flight. If nothing is in flight, one message is returned, whatever
    /// its size.
    pub(super) fn next(&mut self, window: Window) -> Option<(Bytes, u64)> {
        if self.out == self.pieces.len() {
            self.close();
        }
        let piece = self.pieces.get_mut(self.out)?;
        let left = Window {
            messages: window.messages.saturating_sub(self.in_flight.messages),
            bytes: window.bytes.saturating_sub(self.in_flight.bytes),
        };
        let mut some = piece.within(left);
        if some.0 == 0 {
            if self.in_flight.messages > 0 {
                return None;
            }
            some = piece.prefix(|before, _, _| before == 0);
        }
        if some.0 < piece.count {
            let front = piece.split(some);
            self.pieces.insert(self.out, front);
        }
        let piece = &self.pieces[self.out];
        self.out += 1;
        self.in_flight.add(piece.amount());
        Some((piece.bytes.clone(), piece.last_id))
    }

    /// Forgets all messages with ids up to `id`; answers how many and how large they were.
    pub(super) fn acknowledged(&mut self, id: u64) -> Amount {
        let mut gone = Amount::default();
        if self.pieces.back().is_none_or(|piece| piece.last_id <= id) {
            self.close();
        }
        while let Some(piece) = self.pieces.front()
            && piece.last_id <= id
        {
            let amount = piece.amount();
            gone.add(amount);
            if self.out > 0 {
                self.out -= 1;
                self.in_flight.take(amount);
            }
            if let Some(piece) = self.pieces.pop_front() {
                self.keep(piece);
            }
        }
        if let Some(piece) = self.pieces.front_mut()
            && piece.first_id <= id
        {
            let (messages, len, _) = piece.up_to(id);
            let amount = Amount {
                messages,
                bytes: len as u64,
            };
            gone.add(amount);
            if self.out > 0 {
                self.in_flight.take(amount);
            }
            piece.bytes.advance(len);
            piece.drop_front(messages);
        }
        self.all.take(gone);
        if self.all.messages == 0 {
            self.kept.truncate(KEPT_IDLE);
        }
        gone
    }

    /// Hands out again from the first message with an id of `id` or above.
    pub(super) fn rewind(&mut self, id: u64) {
        while self.out > 0 && self.pieces[self.out - 1].last_id >= id {
            self.out -= 1;
            let piece = &mut self.pieces[self.out];
            self.in_flight.take(piece.amount());
            if piece.first_id < id {
                let before = piece.up_to(id - 1);
                let front = piece.split(before);
                self.in_flight.add(front.amount());
                self.pieces.insert(self.out, front);
                self.out += 1;
                break;
            }
        }
    }

    /// The first message that is kept.
    pub(super) fn first_id(&self) -> Option<u64> {
        let open = (self.open_count > 0).then_some(self.open_first);
        self.pieces.front().map(|piece| piece.first_id).or(open)
    }

    /// Messages that are not acknowledged.
    pub(super) fn held(&self) -> Amount {
        self.all
    }

    /// Messages that were handed out and are not acknowledged.
    pub(super) fn in_flight(&self) -> Amount {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOMY: Window = Window {
        messages: u64::MAX,
        bytes: u64::MAX,
    };

    fn outbox() -> Outbox {
        Outbox::new(Amount {
            messages: 1000,
            bytes: 100_000,
        })
    }

    #[test]
    fn memory_of_what_is_acknowledged_is_used_again() {
        let mut outbox = Outbox::new(Amount {
            messages: 1 << 20,
            bytes: 1 << 30,
        });
        let payload = vec![1; 10_000];
        let mut places = std::collections::BTreeSet::new();
        for id in 1..=20_000 {
            outbox.push(id, &payload);
            while let Some((bytes, _)) = outbox.next(ROOMY) {
                // At most 13 messages are in a piece.
                places.insert(bytes.as_ptr() as usize / PIECE);
            }
            if id % 100 == 0 {
                outbox.acknowledged(id - 50);
            }
        }
        assert!(places.len() < 200, "{} of 200 MB", places.len());
        outbox.acknowledged(20_000);
        assert!(outbox.kept.len() <= KEPT_IDLE);
        assert_eq!(outbox.held(), Amount::default());
    }

    fn ids(mut bytes: &[u8]) -> Vec<u64> {
        let mut ids = Vec::new();
        while !bytes.is_empty() {
            ids.push(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
            let size = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            bytes = &bytes[12 + size as usize..];
        }
        ids
    }

    #[test]
    fn what_is_not_acknowledged_comes_again_after_a_rewind() {
        let mut outbox = outbox();
        for id in 1..=10 {
            outbox.push(id, b"hello");
        }
        let (bytes, last) = outbox.next(ROOMY).unwrap();
        assert_eq!((ids(&bytes), last), ((1..=10).collect(), 10));
        assert_eq!(outbox.next(ROOMY), None);
        assert_eq!(outbox.acknowledged(3).messages, 3);
        outbox.rewind(6);
        assert_eq!(outbox.in_flight().messages, 2);
        assert_eq!(ids(&outbox.next(ROOMY).unwrap().0), [6, 7, 8, 9, 10]);
        outbox.rewind(0);
        assert_eq!(outbox.in_flight(), Amount::default());
        assert_eq!(ids(&outbox.next(ROOMY).unwrap().0), [4, 5]);
        assert_eq!(ids(&outbox.next(ROOMY).unwrap().0), [6, 7, 8, 9, 10]);
    }

    #[test]
    fn one_message_goes_however_small_the_window() {
        let mut outbox = outbox();
        outbox.push(1, &[7; 500]);
        outbox.push(2, &[7; 500]);
        let small = Window {
            messages: 9,
            bytes: 10,
        };
        assert_eq!(ids(&outbox.next(small).unwrap().0), [1]);
        assert_eq!(outbox.next(small), None);
        outbox.acknowledged(1);
        assert_eq!(ids(&outbox.next(small).unwrap().0), [2]);
    }

    #[test]
    fn it_is_bounded_but_takes_one_large_message() {
        let mut outbox = outbox();
        assert!(outbox.has_room(1 << 20));
        outbox.push(1, &vec![0; 1 << 20]);
        assert!(!outbox.has_room(0));
        outbox.acknowledged(1);
        assert!(outbox.has_room(0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { gap: u64, len: usize },
        Next { messages: u64, bytes: u64 },
        Acknowledge(u64),
        Rewind(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..3u64, prop_oneof![Just(5), 0..40usize])
                .prop_map(|(gap, len)| Step::Push { gap, len }),
            2 => (0..20u64, 0..300u64)
                .prop_map(|(messages, bytes)| Step::Next { messages, bytes }),
            1 => (0..10u64).prop_map(Step::Acknowledge),
            1 => (0..10u64).prop_map(Step::Rewind),
        ]
    }

    proptest! {
        /// Against a plain list of messages.
        #[test]
        fn it_does_what_a_list_does(steps in proptest::collection::vec(step(), 1..200)) {
            let mut outbox = outbox();
            let (mut list, mut out, mut id) = (Vec::<(u64, usize)>::new(), 0, 0);
            for step in steps {
                match step {
                    Step::Push { gap, len } => {
                        id += gap;
                        outbox.push(id, &vec![id as u8; len]);
                        list.push((id, len + HEADER));
                    }
                    Step::Next { messages, bytes } => {
                        let got = outbox.next(Window { messages, bytes });
                        let flying: usize = list[..out].iter().map(|m| m.1).sum();
                        if let Some((taken, last)) = got {
                            let taken_ids = ids(&taken);
                            let want: Vec<u64> = list[out..][..taken_ids.len()].iter().map(|m| m.0).collect();
                            prop_assert_eq!(&taken_ids, &want);
                            prop_assert_eq!(Some(&last), want.last());
                            let lone = out == 0 && want.len() == 1;
                            out += want.len();
                            prop_assert!(lone || (out as u64 <= messages && (flying + taken.len()) as u64 <= bytes));
                        } else if let Some(next) = list.get(out) {
                            prop_assert!(out as u64 + 1 > messages || (flying + next.1) as u64 > bytes);
                            prop_assert!(out > 0);
                        }
                    }
                    Step::Acknowledge(ahead) => {
                        let up_to = list.first().map_or(0, |m| m.0) + ahead;
                        let n = list.iter().take_while(|m| m.0 <= up_to).count();
                        prop_assert_eq!(outbox.acknowledged(up_to).messages, n as u64);
                        list.drain(..n);
                        out = out.saturating_sub(n);
                    }
                    Step::Rewind(ahead) => {
                        let to = list.first().map_or(0, |m| m.0) + ahead;
                        outbox.rewind(to);
                        out = out.min(list.iter().take_while(|m| m.0 < to).count());
                    }
                }
                let bytes = |list: &[(u64, usize)]| list.iter().map(|m| m.1 as u64).sum::<u64>();
                prop_assert_eq!(outbox.held(), Amount { messages: list.len() as u64, bytes: bytes(&list) });
                prop_assert_eq!(outbox.in_flight(), Amount { messages: out as u64, bytes: bytes(&list[..out]) });
                prop_assert_eq!(outbox.first_id(), list.first().map(|m| m.0));
            }
        }
    }
}
