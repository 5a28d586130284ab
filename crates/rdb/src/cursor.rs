//! Bytes from which lengths, strings and numbers are taken, and why they cannot be.

/// Longest string: bytes.
const STRING_MAX: usize = 512 << 20;
/// Bytes that an element takes besides its own.
const ELEMENT: usize = 32;

/// Why no value could be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// More bytes are needed.
    Short,
    Bad(&'static str),
    Unsupported(&'static str, Vec<u8>),
    Version(u32),
}

/// Bytes from which things are taken.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether no more bytes follow.
    all: bool,
    /// Bytes that what is taken may still take in memory: a file of some megabytes can say gigabytes.
    left: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn of_some(bytes: &'a [u8], left: usize) -> Cursor<'a> {
        Cursor {
            bytes,
            at: 0,
            all: false,
            left,
        }
    }

    pub(crate) fn of_all(bytes: &'a [u8], left: usize) -> Cursor<'a> {
        Cursor {
            all: true,
            ..Cursor::of_some(bytes, left)
        }
    }

    /// Counts a string of so many bytes.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        let left = self.left.checked_sub(bytes.saturating_add(ELEMENT));
        self.left = left.ok_or(Fault::Bad("a key that takes more memory than it may"))?;
        Ok(())
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        let taken = self.bytes[self.at..].get(..n).ok_or(if self.all {
            Fault::Bad("a packed collection that ends too early")
        } else {
            Fault::Short
        })?;
        self.at += n;
        Ok(taken)
    }

    /// `done`, if all was taken.
    pub(crate) fn end<T>(&self, done: T) -> Result<T, Fault> {
        if self.at == self.bytes.len() {
            Ok(done)
        } else {
            Err(Fault::Bad("bytes behind the end of a packed collection"))
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u32_le(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u32_be(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    /// An integer of so many bytes, at most eight.
    pub(crate) fn signed_le(&mut self, size: usize) -> Result<i64, Fault> {
        let mut wide = [0; 8];
        wide[8 - size..].copy_from_slice(self.take(size)?);
        Ok(i64::from_le_bytes(wide) >> (64 - 8 * size))
    }

    /// A length, or the number of a special encoding.
    fn length_or_special(&mut self) -> Result<Result<usize, u8>, Fault> {
        let head = self.byte()?;
        let low = usize::from(head & 0x3f);
        let wide = match head >> 6 {
            0 => return Ok(Ok(low)),
            1 => return Ok(Ok(low << 8 | usize::from(self.byte()?))),
            3 => return Ok(Err(head & 0x3f)),
            _ if head == 0x80 => u64::from(self.u32_be()?),
            _ if head == 0x81 => u64::from_be_bytes(self.array()?),
            _ => return Err(Fault::Bad("a length of an unknown kind")),
        };
        let length = usize::try_from(wide).map_err(|_| Fault::Bad("a length without bounds"))?;
        Ok(Ok(length))
    }

    pub(crate) fn length(&mut self) -> Result<usize, Fault> {
        self.length_or_special()?
            .map_err(|_| Fault::Bad("a string where a length should be"))
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>, Fault> {
        let bounded = |length: usize| {
            let too_long = Fault::Bad("a string of more than 512 MiB");
            Some(length).filter(|&n| n <= STRING_MAX).ok_or(too_long)
        };
        Ok(match self.length_or_special()? {
            Ok(length) => {
                self.charge(bounded(length)?)?;
                self.take(length)?.to_vec()
            }
            Err(power @ 0..3) => {
                self.charge(0)?;
                self.signed_le(1 << power)?.to_string().into()
            }
            Err(3) => {
                let (short, long) = (bounded(self.length()?)?, bounded(self.length()?)?);
                self.charge(long)?;
                lzf(self.take(short)?, long)?
            }
            Err(_) => return Err(Fault::Bad("a string of an unknown encoding")),
        })
    }

    pub(crate) fn strings(&mut self, count: usize) -> Result<Vec<Vec<u8>>, Fault> {
        // Each element has at least one byte.
        let most = (self.bytes.len() - self.at).min(self.left / ELEMENT);
        let mut all = Vec::with_capacity(count.min(most));
        for _ in 0..count {
            all.push(self.string()?);
        }
        Ok(all)
    }

    /// The elements of a string that is a packed collection, which `read` takes apart.
    pub(crate) fn packed(&mut self, read: Packed) -> Result<Vec<Vec<u8>>, Fault> {
        let before = self.left;
        let packed = self.string()?;
        let all = read(&packed, self.left)?;
        // The packed form is gone when its elements are there.
        self.left = before;
        all.iter()
            .try_for_each(|element| self.charge(element.len()))?;
        Ok(all)
    }

    /// A score as text, the old way.
    pub(crate) fn score_text(&mut self) -> Result<f64, Fault> {
        let length = match self.byte()? {
            253 => return Err(Fault::Bad("a score that is no number")),
            254 => return Ok(f64::INFINITY),
            255 => return Ok(f64::NEG_INFINITY),
            length => length.into(),
        };
        score(self.take(length)?)
    }
}

/// Takes a packed collection apart, which may take so many bytes then.
type Packed = fn(&[u8], usize) -> Result<Vec<Vec<u8>>, Fault>;

/// A score that is written as text.
pub(crate) fn score(text: &[u8]) -> Result<f64, Fault> {
    let text = std::str::from_utf8(text).ok();
    let score = text.and_then(|text| text.parse::<f64>().ok());
    score
        .filter(|score| !score.is_nan())
        .ok_or(Fault::Bad("a score that is no number"))
}

/// A string that LZF has made shorter, `len` bytes when it is long again.
pub(crate) fn lzf(bytes: &[u8], len: usize) -> Result<Vec<u8>, Fault> {
    const BAD: Fault = Fault::Bad("a compressed string that cannot be restored");
    // No run gives more than 264 bytes for three.
    if len > bytes.len().saturating_mul(264) {
        return Err(BAD);
    }
    let mut out: Vec<u8> = Vec::with_capacity(len);
    let mut rest = bytes;
    let next = |rest: &mut &[u8]| rest.split_off_first().map(|&byte| usize::from(byte));
    while let Some(control) = next(&mut rest) {
        if control < 0x20 {
            out.extend_from_slice(rest.split_off(..=control).ok_or(BAD)?);
        } else {
            let mut run = control >> 5;
            if run == 7 {
                run += next(&mut rest).ok_or(BAD)?;
            }
            let back = (control & 0x1f) << 8 | next(&mut rest).ok_or(BAD)?;
            let from = out.len().checked_sub(back + 1).ok_or(BAD)?;
            let run = from..from + run + 2;
            if run.end <= out.len() {
                out.extend_from_within(run);
            } else {
                // A copy may reach into its own output.
                run.for_each(|at| out.push(out[at]));
            }
        }
        if out.len() > len {
            return Err(BAD);
        }
    }
    if out.len() == len { Ok(out) } else { Err(BAD) }
}
