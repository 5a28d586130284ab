//! Small collections in one string: listpacks, ziplists and sets of integers.

use crate::cursor::{Cursor, Fault};

type Elements = Vec<Vec<u8>>;

fn integer(n: i64) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// The elements of a listpack, which may take so many bytes.
pub(crate) fn listpack(bytes: &[u8], left: usize) -> Result<Elements, Fault> {
    let mut cursor = Cursor::of_all(bytes, left);
    if cursor.u32_le()? as usize != bytes.len() {
        return Err(Fault::Bad("a listpack of another size than it says"));
    }
    cursor.take(2)?;
    let mut all = Vec::new();
    loop {
        let start = cursor.at();
        let head = cursor.byte()?;
        let element = match head {
            0xff => break,
            0..0x80 => integer(head.into()),
            0x80..0xc0 => cursor.take(usize::from(head & 0x3f))?.to_vec(),
            0xc0..0xe0 => {
                let n = i64::from(head & 0x1f) << 8 | i64::from(cursor.byte()?);
                integer(n << 51 >> 51)
            }
            0xe0..0xf0 => {
                let n = usize::from(head & 0x0f) << 8 | usize::from(cursor.byte()?);
                cursor.take(n)?.to_vec()
            }
            0xf0 => {
                let n = cursor.u32_le()? as usize;
                cursor.take(n)?.to_vec()
            }
            0xf1 => integer(cursor.signed_le(2)?),
            0xf2 => integer(cursor.signed_le(3)?),
            0xf3 => integer(cursor.signed_le(4)?),
            0xf4 => integer(cursor.signed_le(8)?),
            _ => return Err(Fault::Bad("an element of a listpack of an unknown kind")),
        };
        let size = cursor.at() - start;
        let back = match size {
            0..0x80 => 1,
            0x80..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            0x20_0000..0x1000_0000 => 4,
            _ => 5,
        };
        cursor.take(back)?;
        cursor.charge(element.len())?;
        all.push(element);
    }
    cursor.end(all)
}

/// A listpack in the making.
#[derive(Default)]
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    elements: usize,
}

impl ListpackWriter {
    /// Appends an element, made of `head` and `rest`, and its length, which is read backwards.
    fn element(&mut self, head: &[u8], rest: &[u8]) {
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(rest);
        let size = head.len() + rest.len();
        // Seven bits a byte, the highest first; the highest bit says that more stand in front.
        let bytes = match size {
            0..0x80 => 1,
            0x80..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            0x20_0000..0x1000_0000 => 4,
            _ => 5,
        };
        for at in (0..bytes).rev() {
            let more = if at + 1 < bytes { 0x80 } else { 0 };
            self.bytes.push((size >> (7 * at)) as u8 & 0x7f | more);
        }
        self.elements += 1;
    }

    pub(crate) fn number(&mut self, n: i64) {
        match n {
            0..0x80 => self.element(&[n as u8], &[]),
            _ if i16::try_from(n).is_ok() => self.element(&[0xf1], &(n as i16).to_le_bytes()),
            _ if i32::try_from(n).is_ok() => self.element(&[0xf3], &(n as i32).to_le_bytes()),
            _ => self.element(&[0xf4], &n.to_le_bytes()),
        }
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        let n = text.len();
        match n {
            0..0x40 => self.element(&[0x80 | n as u8], text),
            0x40..0x1000 => self.element(&[0xe0 | (n >> 8) as u8, n as u8], text),
            _ => {
                let size = (n as u32).to_le_bytes();
                self.element(&[0xf0, size[0], size[1], size[2], size[3]], text);
            }
        }
    }

    /// The finished listpack.
    pub(crate) fn end(self) -> Vec<u8> {
        let size = (self.bytes.len() + 7) as u32;
        let elements = self.elements.min(0xffff) as u16;
        let head = [&size.to_le_bytes()[..], &elements.to_le_bytes()];
        [&head.concat()[..], &self.bytes, &[0xff]].concat()
    }
}

/// The elements of a ziplist.
pub(crate) fn ziplist(bytes: &[u8], left: usize) -> Result<Elements, Fault> {
    let mut cursor = Cursor::of_all(bytes, left);
    if cursor.u32_le()? as usize != bytes.len() {
        return Err(Fault::Bad("a ziplist of another size than it says"));
    }
    cursor.take(6)?;
    let mut all = Vec::new();
    loop {
        match cursor.byte()? {
            0xff => return cursor.end(all),
            0xfe => drop(cursor.take(4)?),
            _ => {}
        }
        let head = cursor.byte()?;
        let element = match head {
            0..0x40 => cursor.take(head.into())?.to_vec(),
            0x40..0x80 => {
                let n = usize::from(head & 0x3f) << 8 | usize::from(cursor.byte()?);
                cursor.take(n)?.to_vec()
            }
            0x80 => {
                let n = cursor.u32_be()? as usize;
                cursor.take(n)?.to_vec()
            }
            0xc0 => integer(cursor.signed_le(2)?),
            0xd0 => integer(cursor.signed_le(4)?),
            0xe0 => integer(cursor.signed_le(8)?),
            0xf0 => integer(cursor.signed_le(3)?),
            0xfe => integer(cursor.signed_le(1)?),
            0xf1..=0xfd => integer(i64::from(head & 0x0f) - 1),
            _ => return Err(Fault::Bad("an element of a ziplist of an unknown kind")),
        };
        cursor.charge(element.len())?;
        all.push(element);
    }
}

/// The members of a set of integers.
pub(crate) fn intset(bytes: &[u8], left: usize) -> Result<Elements, Fault> {
    let mut cursor = Cursor::of_all(bytes, left);
    let (size, count) = (cursor.u32_le()? as usize, cursor.u32_le()? as usize);
    if !matches!(size, 2 | 4 | 8) || bytes.len() - 8 != size.saturating_mul(count) {
        return Err(Fault::Bad("a set of integers of another size than it says"));
    }
    (0..count)
        .map(|_| {
            cursor.charge(0)?;
            cursor.signed_le(size).map(integer)
        })
        .collect()
}
