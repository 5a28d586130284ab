//! A stream as parts, and from the parts that were written down.
//!
//! `docs/formats/kv-snapshot.md` draws the parts.

use super::block::Block;
use super::number::{take, take_id, take_text};
use super::part::{ABOUT, BLOCK, CONSUMER, GROUP, block_piece};
use super::telling::Telling;
use super::{Pending, Stream, StreamId};

impl Stream {
    /// Writes all parts, each with its length; returns how many.
    pub(crate) fn put_parts(&self, to: &mut Vec<u8>) -> usize {
        let mut pieces = Vec::new();
        Telling::new(&self.entries, self.groups.as_ref()).thaw(usize::MAX, &mut pieces);
        self.entries
            .each_block(|block| pieces.push(block_piece(block)));
        for piece in &pieces {
            to.extend_from_slice(&piece.bytes);
        }
        pieces.iter().map(|piece| piece.count).sum()
    }

    /// Adds a part of a snapshot, in any order; false if the bytes are no such part, or the part is
    /// there already.
    pub(crate) fn put_part(&mut self, mut bytes: &[u8]) -> bool {
        let done = match bytes.split_first() {
            Some((&kind, rest)) => {
                bytes = rest;
                self.take_part(kind, &mut bytes)
            }
            None => None,
        };
        done.is_some() && bytes.is_empty()
    }

    fn take_part(&mut self, kind: u8, bytes: &mut &[u8]) -> Option<()> {
        match kind {
            ABOUT => {
                let (last, max_deleted) = (take_id(bytes)?, take_id(bytes)?);
                self.entries.last_id = self.entries.last_id.max(last);
                (self.entries.max_deleted, self.entries.added) = (max_deleted, take(bytes)?);
            }
            BLOCK => {
                let block = Block::read(bytes)?;
                self.entries.put_block(block).then_some(())?;
            }
            GROUP => {
                let name = take_text(bytes)?;
                let (last, read) = (take_id(bytes)?, take(bytes)?.checked_sub(1));
                self.create_group(name, StreamId::MIN, None);
                self.change_group(name, |_, group| group.set(last, read))?;
            }
            CONSUMER => {
                let (group, name) = (take_text(bytes)?, take_text(bytes)?);
                let (seen_ms, active_ms) = (take(bytes)?, take(bytes)?.checked_sub(1));
                // A consumer's item may come in front of its group.
                self.create_group(group, StreamId::MIN, None);
                self.change_group(group, |_, group| {
                    let (number, _) = group.enter(name, seen_ms);
                    group.note(number, seen_ms, false);
                    if let Some(active_ms) = active_ms {
                        group.note(number, active_ms, true);
                        group.note(number, seen_ms, false);
                    }
                    for _ in 0..take(bytes)? {
                        let pending = Pending {
                            id: take_id(bytes)?,
                            delivered_ms: take(bytes)?,
                            count: take(bytes)?,
                            consumer: number,
                        };
                        if group.pending_of(pending.id).is_some() {
                            return None;
                        }
                        group.assign(pending);
                    }
                    Some(())
                })??;
            }
            _ => return None,
        }
        Some(())
    }
}
