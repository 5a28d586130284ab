//! A part of what is written down of a stream, and that of a block.

use super::block::Block;
use super::number::put_text;
use crate::types::frozen::Piece;

pub(super) const ABOUT: u8 = 1;
pub(super) const BLOCK: u8 = 2;
pub(super) const GROUP: u8 = 3;
pub(super) const CONSUMER: u8 = 4;

/// A part, as it stands in an item.
pub(super) fn part(to: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = vec![kind];
    write(&mut bytes);
    put_text(to, &bytes);
}

pub(super) fn block_piece(block: &Block) -> Piece {
    let mut piece = Piece::new(0);
    part(&mut piece.bytes, BLOCK, |to| block.write(to));
    piece.count = 1;
    piece
}
