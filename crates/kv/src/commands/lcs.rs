//! LCS: the longest text that two strings have in common, perhaps with gaps.

use super::parse::{integer, is};
use super::strings::LONGEST;
use super::{Ctx, Done, Error, Keys, READ, Spec};
use crate::store::ValueRef;

pub(crate) const SPECS: &[Spec] = &[Spec::new("lcs", -3, READ, Keys::TWO, lcs)];

#[derive(Default)]
struct Options {
    indices: bool,
    only_length: bool,
    with_lengths: bool,
    shortest: i64,
}

impl Options {
    fn parse(args: &[&[u8]]) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match () {
                () if is(arg, "idx") => options.indices = true,
                () if is(arg, "len") => options.only_length = true,
                () if is(arg, "withmatchlen") => options.with_lengths = true,
                () if is(arg, "minmatchlen") => {
                    options.shortest = integer(args.next().ok_or(Error::SYNTAX)?)?;
                }
                () => return Err(Error::SYNTAX),
            }
        }
        if options.indices && options.only_length {
            return Err(Error::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// For each pair of prefixes of two texts, the length of their longest common subsequence.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    /// Takes time and memory as the product of the lengths, four bytes for each: that is bounded as one
    /// string is.
    fn new(a: &[u8], b: &[u8]) -> Result<Table, Error> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(width);
        let cells = cells.filter(|&cells| cells <= LONGEST / size_of::<u32>());
        let cells = cells.ok_or(Error::new(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ))?;
        let mut cells = vec![0; cells];
        for (i, x) in a.iter().enumerate() {
            let (above, row) = cells[i * width..].split_at_mut(width);
            for (j, y) in b.iter().enumerate() {
                row[j + 1] = if x == y {
                    above[j] + 1
                } else {
                    above[j + 1].max(row[j])
                };
            }
        }
        Ok(Table { cells, width })
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

/// A piece that both texts have, by the places of its first byte, and its length.
struct Piece {
    a: usize,
    b: usize,
    len: usize,
}

/// The pieces of the common text, from the last to the first.
fn pieces(a: &[u8], b: &[u8], table: &Table) -> Vec<Piece> {
    let (mut pieces, mut open) = (Vec::<Piece>::new(), false);
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            match pieces.last_mut().filter(|_| open) {
                Some(piece) => (piece.a, piece.b, piece.len) = (i, j, piece.len + 1),
                None => pieces.push(Piece { a: i, b: j, len: 1 }),
            }
            open = true;
        } else {
            open = false;
            if table.at(i - 1, j) > table.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
    pieces
}

fn lcs(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    for key in &args[1..3] {
        // Counts hits and uses.
        ctx.db.value(key);
    }
    let text = |key| match ctx.db.peek_value(key) {
        None => Ok(&[][..]),
        Some(ValueRef::Str(s)) => Ok(s),
        Some(_) => Err(Error::new(
            "ERR The specified keys must contain string values",
        )),
    };
    let (a, b) = (text(args[1])?, text(args[2])?);
    let options = Options::parse(&args[3..])?;
    let table = Table::new(a, b)?;
    let len = table.at(a.len(), b.len());
    if options.only_length {
        ctx.reply.integer(len.into());
        return Ok(());
    }
    let pieces = pieces(a, b, &table);
    if !options.indices {
        let pieces = pieces.iter().rev();
        let common: Vec<&[u8]> = pieces.map(|piece| &a[piece.a..][..piece.len]).collect();
        ctx.reply.bulk(&common.concat());
        return Ok(());
    }
    let long = |piece: &&Piece| piece.len as i64 >= options.shortest;
    ctx.reply.map(2);
    ctx.reply.bulk(b"matches");
    ctx.reply.array(pieces.iter().filter(long).count());
    for piece in pieces.iter().filter(long) {
        ctx.reply.array(2 + usize::from(options.with_lengths));
        for from in [piece.a, piece.b] {
            ctx.reply.array(2);
            ctx.reply.integer(from as i64);
            ctx.reply.integer((from + piece.len - 1) as i64);
        }
        if options.with_lengths {
            ctx.reply.integer(piece.len as i64);
        }
    }
    ctx.reply.bulk(b"len");
    ctx.reply.integer(len.into());
    Ok(())
}
