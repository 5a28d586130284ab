//! `struct`: numbers and strings as bytes, by a format, and back.

use mlua::{Lua, Value};

use crate::args::{Args, Outcome, as_number, no_memory};
use crate::library::Function;

pub(crate) const FUNCTIONS: &[(&str, Function)] =
    &[("pack", pack), ("unpack", unpack), ("size", size)];

/// Widest whole number, and largest alignment, in bytes.
const WIDEST: usize = 32;

#[derive(Clone, Copy)]
enum Kind {
    Padding,
    Signed,
    Unsigned,
    Chars,
    Zero,
    Float,
    Double,
    /// Spaces, and what sets how the rest is read.
    Nothing,
}

struct Format<'a> {
    rest: &'a [u8],
    little: bool,
    align: usize,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8]) -> Format<'a> {
        Format {
            rest: format,
            little: cfg!(target_endian = "little"),
            align: 1,
        }
    }

    /// The number at the beginning of the rest.
    fn count(&mut self) -> Result<Option<usize>, Box<str>> {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(None);
        }
        let mut n: usize = 0;
        for digit in &self.rest[..digits] {
            n = n
                .checked_mul(10)
                .and_then(|n| n.checked_add(usize::from(digit - b'0')))
                .filter(|n| *n <= i32::MAX as usize)
                .ok_or("integral size overflow")?;
        }
        self.rest = &self.rest[digits..];
        Ok(Some(n))
    }

    /// The next item: its kind, its size, and the bytes left out before it, at so many bytes.
    fn next(&mut self, at: usize) -> Option<Result<(Kind, usize, usize), Box<str>>> {
        let (&letter, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(self.option(letter, at))
    }

    fn option(&mut self, letter: u8, at: usize) -> Result<(Kind, usize, usize), Box<str>> {
        let (kind, size) = match letter {
            b'b' => (Kind::Signed, 1),
            b'B' => (Kind::Unsigned, 1),
            b'h' => (Kind::Signed, 2),
            b'H' => (Kind::Unsigned, 2),
            b'l' => (Kind::Signed, 8),
            b'L' | b'T' => (Kind::Unsigned, 8),
            b'i' | b'I' => {
                let size = self.count()?.unwrap_or(4);
                if size > WIDEST || size == 0 {
                    return Err(
                        format!("integral size {size} is larger than limit of {WIDEST}").into(),
                    );
                }
                let kind = if letter == b'i' {
                    Kind::Signed
                } else {
                    Kind::Unsigned
                };
                (kind, size)
            }
            b'f' => (Kind::Float, 4),
            b'd' | b'n' => (Kind::Double, 8),
            b'x' => (Kind::Padding, 1),
            b'c' => (Kind::Chars, self.count()?.unwrap_or(1)),
            b's' => (Kind::Zero, 0),
            b' ' => (Kind::Nothing, 0),
            b'<' => {
                self.little = true;
                (Kind::Nothing, 0)
            }
            b'>' => {
                self.little = false;
                (Kind::Nothing, 0)
            }
            b'!' => {
                let align = self.count()?.unwrap_or(8);
                if align == 0 || !align.is_power_of_two() || align > WIDEST {
                    return Err("alignment is not a power of 2".into());
                }
                self.align = align;
                (Kind::Nothing, 0)
            }
            other => {
                return Err(format!("invalid format option '{}'", char::from(other)).into());
            }
        };
        let aligned = match kind {
            Kind::Chars | Kind::Padding | Kind::Zero | Kind::Nothing => 1,
            _ => size.min(self.align),
        };
        let skipped = match at % aligned.max(1) {
            _ if !aligned.is_power_of_two() => 0,
            0 => 0,
            over => aligned - over,
        };
        Ok((kind, size, skipped))
    }
}

/// An error of the format, the first argument; what is wrong with a size is told by itself.
fn in_format(function: &str, why: &str) -> Box<str> {
    if why.contains("size ") && !why.contains("fixed") || why.starts_with("alignment") {
        return why.into();
    }
    format!("bad argument #1 to '{function}' ({why})").into()
}

fn pack(lua: &Lua, args: &Args) -> Outcome {
    let format = args.bytes(0, "pack")?;
    let mut format = Format::new(&format);
    let (mut bytes, mut arg) = (Vec::new(), 1);
    while let Some(option) = format.next(bytes.len()) {
        let (kind, size, skipped) = option.map_err(|why| in_format("pack", &why))?;
        bytes.resize(bytes.len() + skipped, 0);
        match kind {
            Kind::Nothing => {}
            Kind::Padding => bytes.push(0),
            Kind::Signed | Kind::Unsigned => {
                let x = args.number(arg, "pack")?;
                arg += 1;
                // Negative numbers wrap, as their bits do in C.
                let n = if x < 0.0 { x as i64 as u64 } else { x as u64 };
                let fill = if x < 0.0 { 0xff } else { 0 };
                put(&mut bytes, &n.to_le_bytes(), size, fill, format.little);
            }
            Kind::Float => {
                let x = args.number(arg, "pack")? as f32;
                arg += 1;
                put(&mut bytes, &x.to_le_bytes(), 4, 0, format.little);
            }
            Kind::Double => {
                let x = args.number(arg, "pack")?;
                arg += 1;
                put(&mut bytes, &x.to_le_bytes(), 8, 0, format.little);
            }
            Kind::Chars | Kind::Zero => {
                let text = args.bytes(arg, "pack")?;
                arg += 1;
                let size = match kind {
                    Kind::Chars if size > 0 => size,
                    _ => text.len(),
                };
                let text = text.get(..size).ok_or_else(|| {
                    let at = arg + 1;
                    format!("bad argument #{at} to 'pack' (string too short)")
                })?;
                bytes.extend_from_slice(text);
                if matches!(kind, Kind::Zero) {
                    bytes.push(0);
                }
            }
        }
    }
    Ok(vec![Value::String(
        lua.create_string(bytes).map_err(no_memory)?,
    )])
}

/// Appends a number of `size` bytes, whose lowest are given.
fn put(bytes: &mut Vec<u8>, low: &[u8], size: usize, fill: u8, little: bool) {
    let start = bytes.len();
    bytes.extend_from_slice(&low[..size.min(low.len())]);
    bytes.resize(start + size, fill);
    if !little {
        bytes[start..].reverse();
    }
}

fn unpack(lua: &Lua, args: &Args) -> Outcome {
    let format = args.bytes(0, "unpack")?;
    let data = args.bytes(1, "unpack")?;
    let from = args.integer_or(2, "unpack", 1)?;
    let mut at = usize::try_from(from - 1)
        .map_err(|_| "bad argument #3 to 'unpack' (offset must be 1 or greater)")?;
    let mut format = Format::new(&format);
    let mut values = Vec::new();
    while let Some(option) = format.next(at) {
        let (kind, mut size, skipped) = option.map_err(|why| in_format("unpack", &why))?;
        at = at.saturating_add(skipped);
        let short = || Box::<str>::from("bad argument #2 to 'unpack' (data string too short)");
        let rest = data.get(at..).ok_or_else(short)?;
        if rest.len() < size {
            return Err(short());
        }
        // More would not fit on the interpreter's stack.
        if values.len() >= 7900 {
            return Err("too many results to unpack".into());
        }
        match kind {
            Kind::Nothing | Kind::Padding => {}
            Kind::Signed | Kind::Unsigned => {
                let n = number(&rest[..size], format.little);
                values.push(Value::Number(match kind {
                    Kind::Unsigned => n as f64,
                    _ if size < 8 => (((n << (64 - 8 * size)) as i64) >> (64 - 8 * size)) as f64,
                    _ => n as i64 as f64,
                }));
            }
            Kind::Float => {
                let n = number(&rest[..4], format.little) as u32;
                values.push(Value::Number(f32::from_bits(n).into()));
            }
            Kind::Double => {
                let n = number(&rest[..8], format.little);
                values.push(Value::Number(f64::from_bits(n)));
            }
            Kind::Chars => {
                if size == 0 {
                    let last = values.pop();
                    let last = last
                        .as_ref()
                        .and_then(as_number)
                        .ok_or("format 'c0' needs a previous size")?;
                    size = last as usize;
                    if last < 0.0 || size > rest.len() {
                        return Err(short());
                    }
                }
                let text = lua.create_string(&rest[..size]).map_err(no_memory)?;
                values.push(Value::String(text));
            }
            Kind::Zero => {
                let len = rest
                    .iter()
                    .position(|b| *b == 0)
                    .ok_or("unfinished string in data")?;
                size = len + 1;
                let text = lua.create_string(&rest[..len]).map_err(no_memory)?;
                values.push(Value::String(text));
            }
        }
        at += size;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

/// The lowest eight bytes of a number.
fn number(bytes: &[u8], little: bool) -> u64 {
    let mut n = 0;
    let add = |n: u64, b: &u8| (n << 8) | u64::from(*b);
    if little {
        n = bytes.iter().rev().fold(n, add);
    } else {
        n = bytes.iter().fold(n, add);
    }
    n
}

fn size(_: &Lua, args: &Args) -> Outcome {
    let format = args.bytes(0, "size")?;
    let mut format = Format::new(&format);
    let mut total: usize = 0;
    while let Some(option) = format.next(total) {
        let (kind, size, skipped) = option.map_err(|why| in_format("size", &why))?;
        match kind {
            Kind::Zero => return Err(in_format("size", "option 's' has no fixed size")),
            Kind::Chars if size == 0 => {
                return Err(in_format("size", "option 'c0' has no fixed size"));
            }
            _ => {}
        }
        total = total
            .checked_add(size + skipped)
            .filter(|n| *n <= i32::MAX as usize)
            .ok_or("format too large")?;
    }
    Ok(vec![Value::Number(total as f64)])
}
