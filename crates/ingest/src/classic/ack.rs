//! Acknowledgements: how they are written, gathered on the way out, and checked by their receiver.

use crate::classic::codec::ID;

/// The bytes of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckForm {
    /// `id[8]`.
    IdOnly,
    /// `id[8] | skipped: u32`, least significant byte first.
    IdAndSkipped,
}

impl AckForm {
    /// Bytes of one acknowledgement.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no acknowledgement is empty")]
    pub const fn len(self) -> usize {
        match self {
            AckForm::IdOnly => ID,
            AckForm::IdAndSkipped => ID + 4,
        }
    }

    /// Reads one acknowledgement; the id alone stands for one message.
    ///
    /// # Panics
    /// Panics if `bytes` are not exactly [`len`](AckForm::len).
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Ack {
        assert_eq!(bytes.len(), self.len(), "not one acknowledgement");
        let (id, skipped) = bytes.split_at(ID);
        Ack {
            id: id.try_into().expect("split at the length of an id"),
            skipped: skipped.try_into().map_or(0, u32::from_le_bytes),
        }
    }
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The id of the message that the acknowledgement names, as it was received.
    pub id: [u8; 8],
    /// How many earlier messages the acknowledgement covers besides the message that it names. Not
    /// sent in the form [`AckForm::IdOnly`].
    pub skipped: u32,
}

impl Ack {
    /// Has `send` called with the bytes, in one piece.
    #[inline]
    pub fn encode(self, form: AckForm, send: impl FnOnce(&[u8])) {
        match form {
            AckForm::IdOnly => send(&self.id),
            AckForm::IdAndSkipped => {
                let mut bytes = [0; ID + 4];
                bytes[..ID].copy_from_slice(&self.id);
                bytes[ID..].copy_from_slice(&self.skipped.to_le_bytes());
                send(&bytes);
            }
        }
    }
}

/// Messages that are to be acknowledged together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    messages: u64,
    last_id: [u8; 8],
}

/// Messages that one acknowledgement can cover: the message that it names, and the largest number
/// that fits into `skipped`.
const COVERED_MAX: u64 = u32::MAX as u64 + 1;

impl Pending {
    /// Adds `messages` (at least one, fewer than 2^32), the last of which has the id `last_id`.
    /// Returns an acknowledgement that must be sent now, if one acknowledgement cannot cover all
    /// pending messages.
    #[inline]
    pub(crate) fn add(&mut self, messages: usize, last_id: [u8; 8]) -> Option<Ack> {
        let messages = messages as u64;
        let overflow = if self.messages + messages > COVERED_MAX {
            self.take()
        } else {
            None
        };
        self.messages += messages;
        self.last_id = last_id;
        overflow
    }

    /// The acknowledgement of all there are.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Ack> {
        let skipped = std::mem::take(&mut self.messages).checked_sub(1)?;
        Some(Ack {
            id: self.last_id,
            skipped: u32::try_from(skipped).unwrap_or(u32::MAX),
        })
    }
}

/// Checks the acknowledgements that one connection gets, if its message ids count up from a first
/// id as 64-bit numbers in the byte order of this machine: `previous id + skipped + 1 == id`.
///
/// ```
/// use tidewire_ingest::classic::{AckForm, Chain};
///
/// let mut chain = Chain::new(AckForm::IdAndSkipped);
/// let mut bytes = 4u64.to_ne_bytes().to_vec();
/// bytes.extend_from_slice(&4u32.to_le_bytes());
/// assert_eq!(chain.check(&bytes), Ok(12));
/// assert_eq!(chain.acknowledged(), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    form: AckForm,
    first: u64,
    next: u64,
}

/// An acknowledgement that does not continue the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server acknowledged {id} and {skipped} messages before it, but message {expected} was next"
)]
pub struct ChainError {
    /// The id acknowledged.
    pub id: u64,
    /// Messages that the acknowledgement covers besides the named one.
    pub skipped: u32,
    /// The first message not acknowledged before.
    pub expected: u64,
}

impl Chain {
    /// Nothing is acknowledged; ids count up from 0.
    #[must_use]
    pub fn new(form: AckForm) -> Chain {
        Chain::starting_at(form, 0)
    }

    /// Nothing is acknowledged; ids count up from `first`.
    #[must_use]
    pub fn starting_at(form: AckForm, first: u64) -> Chain {
        Chain {
            form,
            first,
            next: first,
        }
    }

    /// Checks the whole acknowledgements at the start of `bytes`. Returns how many bytes of the
    /// input are whole acknowledgements; the rest is less than one.
    ///
    /// # Errors
    /// The first [`ChainError`]; the chain of acknowledgements ends before it.
    pub fn check(&mut self, bytes: &[u8]) -> Result<usize, ChainError> {
        let whole = bytes.chunks_exact(self.form.len());
        let taken = bytes.len() - whole.remainder().len();
        for bytes in whole {
            let ack = self.form.decode(bytes);
            let id = u64::from_ne_bytes(ack.id);
            if self.next.wrapping_add(u64::from(ack.skipped)) != id {
                return Err(ChainError {
                    id,
                    skipped: ack.skipped,
                    expected: self.next,
                });
            }
            self.next = id.wrapping_add(1);
        }
        Ok(taken)
    }

    /// Messages acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.next.wrapping_sub(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> [u8; 8] {
        n.to_ne_bytes()
    }

    #[test]
    fn one_acknowledgement_covers_all_that_is_pending() {
        let mut pending = Pending::default();
        assert_eq!(pending.take(), None);
        assert_eq!(pending.add(3, id(2)), None);
        assert_eq!(pending.add(1, id(3)), None);
        let ack = pending.take().unwrap();
        assert_eq!((ack.id, ack.skipped), (id(3), 3));
        assert_eq!(pending.take(), None);
    }

    #[test]
    fn what_one_cannot_say_is_split_over_several() {
        let (mut pending, mut chain) = (Pending::default(), Chain::new(AckForm::IdAndSkipped));
        let mut acks = Vec::new();
        let step = u64::from(u32::MAX);
        for batch in 1..=3 {
            acks.extend(pending.add(step as usize, id(batch * step - 1)));
        }
        assert_eq!(pending.add(1, id(3 * step)), None, "exactly 2^32 fit");
        acks.extend(pending.add(1, id(3 * step + 1)));
        acks.extend(pending.take());
        assert_eq!(acks.len(), 4);
        assert_eq!(acks[2].skipped, u32::MAX);
        for ack in acks {
            ack.encode(AckForm::IdAndSkipped, |bytes| {
                assert_eq!(chain.check(bytes), Ok(12));
            });
        }
        assert_eq!(chain.acknowledged(), 3 * step + 2);
    }

    #[test]
    fn the_chain_finds_gaps_and_repeats() {
        for (wrong, skipped) in [(6, 0), (4, 0), (5, 1), (7, 1)] {
            let mut chain = Chain::new(AckForm::IdAndSkipped);
            let mut bytes = Vec::new();
            for (n, skipped) in [(4, 4), (wrong, skipped)] {
                Ack { id: id(n), skipped }.encode(chain.form, |b| bytes.extend_from_slice(b));
            }
            let error = chain.check(&bytes).unwrap_err();
            assert_eq!((error.id, error.expected), (wrong, 5));
        }
        let mut chain = Chain::starting_at(AckForm::IdOnly, 10);
        assert_eq!(chain.check(&id(10)), Ok(8));
        assert_eq!(chain.check(&id(11)[..7]), Ok(0));
        assert!(chain.check(&id(12)).is_err());
        assert_eq!(chain.acknowledged(), 1);
    }
}
