//! `cmsgpack`: MessagePack to values of Lua and back.

use std::rc::Rc;

use mlua::{Lua, Result as LuaResult, Table, Value};

use crate::args::{Args, NO_MEMORY, Outcome, as_number, no_memory};
use crate::effort::Effort;
use crate::library::wrapped;
use crate::number::whole;
use crate::state::State;

/// The functions.
pub(crate) fn functions(lua: &Lua, state: &Rc<State>) -> LuaResult<Table> {
    type Run = fn(&Lua, &Args, &State) -> Outcome;
    let all: &[(&str, Run)] = &[
        ("pack", pack),
        ("unpack", |lua, args, state| unpack(lua, args, 0, 0, state)),
        ("unpack_one", |lua, args, state| {
            let from = args.integer_or(1, "unpack_one", 0)?;
            unpack(lua, args, 1, from, state)
        }),
        ("unpack_limit", |lua, args, state| {
            let limit = args.integer_or(1, "unpack_limit", 0)?;
            let from = args.integer_or(2, "unpack_limit", 0)?;
            unpack(lua, args, limit, from, state)
        }),
    ];
    let table = lua.create_table()?;
    for &(name, run) in all {
        let of = state.clone();
        table.raw_set(
            name,
            wrapped(lua, state, move |lua, args| run(lua, args, &of))?,
        )?;
    }
    Ok(table)
}

/// Steps that a value costs.
const EACH: u64 = 100;

/// Deepest nesting that is written; below it stands nil, as in the library of this name.
const DEPTH: usize = 16;
/// Deepest nesting that is read.
const DEPTH_READ: usize = 100;
/// Values that may be unpacked at once: more would not fit on the interpreter's stack.
const VALUES: usize = 7900;

/// `pack`; the result has at most as many bytes as scripts have memory.
fn pack(lua: &Lua, args: &Args, state: &State) -> Outcome {
    if args.len() == 0 {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut packer = Packer {
        bytes: Vec::new(),
        most: state.memory_max.get(),
        effort: Effort::of(state),
    };
    for at in 0..args.len() {
        packer.value(&args.get(at), 0)?;
    }
    let bytes = lua.create_string(packer.bytes).map_err(no_memory)?;
    Ok(vec![Value::String(bytes)])
}

struct Packer<'s> {
    bytes: Vec<u8>,
    most: usize,
    effort: Effort<'s>,
}

impl Packer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Box<str>> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(NO_MEMORY.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Box<str>> {
        self.effort.spend(EACH)?;
        match value {
            Value::Boolean(yes) => self.put(&[if *yes { 0xc3 } else { 0xc2 }]),
            Value::Integer(_) | Value::Number(_) => {
                self.number(as_number(value).unwrap_or_default())
            }
            Value::String(text) => {
                let text = text.as_bytes();
                self.head(text.len(), 0xa0, 32, Some(0xd9), 0xda)?;
                self.put(&text)
            }
            Value::Table(table) if depth < DEPTH => self.table(table, depth),
            _ => self.put(&[0xc0]),
        }
    }

    /// The head of something of `n` parts: in one byte below `few`, else with a length of its own. The
    /// kinds of two and four bytes follow each other.
    fn head(
        &mut self,
        n: usize,
        small: u8,
        few: usize,
        one: Option<u8>,
        two: u8,
    ) -> Result<(), Box<str>> {
        match (n, one) {
            (n, _) if n < few => self.put(&[small | n as u8]),
            (n, Some(one)) if n <= 0xff => self.put(&[one, n as u8]),
            (n, _) if n <= 0xffff => {
                self.put(&[two])?;
                self.put(&(n as u16).to_be_bytes())
            }
            (n, _) => {
                self.put(&[two + 1])?;
                self.put(&(n as u32).to_be_bytes())
            }
        }
    }

    fn number(&mut self, x: f64) -> Result<(), Box<str>> {
        let Some(n) = whole(x) else {
            return if f64::from(x as f32) == x {
                self.put(&[0xca])?;
                self.put(&(x as f32).to_be_bytes())
            } else {
                self.put(&[0xcb])?;
                self.put(&x.to_be_bytes())
            };
        };
        match n {
            0..=127 => self.put(&[n as u8]),
            128..=0xff => self.put(&[0xcc, n as u8]),
            0x100..=0xffff => {
                self.put(&[0xcd])?;
                self.put(&(n as u16).to_be_bytes())
            }
            0x1_0000..=0xffff_ffff => {
                self.put(&[0xce])?;
                self.put(&(n as u32).to_be_bytes())
            }
            0x1_0000_0000.. => {
                self.put(&[0xcf])?;
                self.put(&n.to_be_bytes())
            }
            -32..0 => self.put(&[n as i8 as u8]),
            -128..-32 => self.put(&[0xd0, n as i8 as u8]),
            -0x8000..-128 => {
                self.put(&[0xd1])?;
                self.put(&(n as i16).to_be_bytes())
            }
            -0x8000_0000..-0x8000 => {
                self.put(&[0xd2])?;
                self.put(&(n as i32).to_be_bytes())
            }
            _ => {
                self.put(&[0xd3])?;
                self.put(&n.to_be_bytes())
            }
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), Box<str>> {
        if let Some(n) = array_len(table, &mut self.effort)? {
            self.head(n, 0x90, 16, None, 0xdc)?;
            for at in 1..=n {
                let value = table.raw_get::<Value>(at).unwrap_or(Value::Nil);
                self.value(&value, depth + 1)?;
            }
            return Ok(());
        }
        let mut n = 0;
        for _ in table.pairs::<Value, Value>() {
            self.effort.spend(EACH)?;
            n += 1;
        }
        self.head(n, 0x80, 16, None, 0xde)?;
        for pair in table.pairs::<Value, Value>() {
            let Ok((key, value)) = pair else { break };
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }
}

/// How many elements a table has whose keys are 1, 2, 3 and so on; an empty one is a map.
fn array_len(table: &Table, effort: &mut Effort<'_>) -> Result<Option<usize>, Box<str>> {
    let (mut count, mut most) = (0_usize, 0.0_f64);
    for pair in table.pairs::<Value, Value>() {
        effort.spend(EACH)?;
        let Ok((key, _)) = pair else { break };
        let index = match key {
            Value::Integer(_) | Value::Number(_) => as_number(&key).unwrap_or_default(),
            _ => return Ok(None),
        };
        if index < 1.0 || index.fract() != 0.0 {
            return Ok(None);
        }
        count += 1;
        most = most.max(index);
    }
    Ok((count > 0 && most == count as f64).then_some(count))
}

fn unpack(lua: &Lua, args: &Args, limit: i64, from: i64, state: &State) -> Outcome {
    let bytes = args.text(0, "unpack")?;
    let paged = limit != 0 || from != 0;
    if limit < 0 || from < 0 {
        return Err(format!(
            "Invalid request to unpack with offset of {from} and limit of {}.",
            bytes.len()
        )
        .into());
    }
    let len = bytes.len();
    let mut rest = usize::try_from(from)
        .ok()
        .and_then(|from| bytes.get(from..))
        .ok_or_else(|| format!("Start offset {from} greater than input length {len}."))?;
    let most = if limit > 0 {
        limit as usize
    } else {
        usize::MAX
    };
    let mut values = Vec::new();
    let mut reader = Unpacker {
        lua,
        effort: Effort::of(state),
    };
    while !rest.is_empty() && values.len() < most {
        if values.len() >= VALUES {
            return Err("too many results to unpack".into());
        }
        let (value, behind) = reader.read(rest, DEPTH_READ)?;
        values.push(value);
        rest = behind;
    }
    if paged {
        let next = if rest.is_empty() {
            -1.0
        } else {
            (bytes.len() - rest.len()) as f64
        };
        values.insert(0, Value::Number(next));
    }
    Ok(values)
}

const MISSING: &str = "Missing bytes in input.";
const BAD: &str = "Bad data format in input.";

fn take(bytes: &[u8], n: usize) -> Result<(&[u8], &[u8]), Box<str>> {
    Ok(bytes.split_at_checked(n).ok_or(MISSING)?)
}

/// A number of `n` bytes, the highest first.
fn unsigned(bytes: &[u8], n: usize) -> Result<(u64, &[u8]), Box<str>> {
    let (number, rest) = take(bytes, n)?;
    let number = number.iter().fold(0, |n, b| (n << 8) | u64::from(*b));
    Ok((number, rest))
}

/// Reads values.
struct Unpacker<'l> {
    lua: &'l Lua,
    effort: Effort<'l>,
}

impl Unpacker<'_> {
    fn read<'a>(&mut self, bytes: &'a [u8], depth: usize) -> Result<(Value, &'a [u8]), Box<str>> {
        self.effort.spend(EACH)?;
        let (&kind, rest) = bytes.split_first().ok_or(MISSING)?;
        let number = |x: f64, rest| Ok((Value::Number(x), rest));
        match kind {
            0x00..=0x7f => number(kind.into(), rest),
            0xe0..=0xff => number((kind as i8).into(), rest),
            0x80..=0x8f => self.map(rest, usize::from(kind & 0xf), depth),
            0x90..=0x9f => self.array(rest, usize::from(kind & 0xf), depth),
            0xa0..=0xbf => self.text(rest, usize::from(kind & 0x1f)),
            0xc0 => Ok((Value::Nil, rest)),
            0xc2 => Ok((Value::Boolean(false), rest)),
            0xc3 => Ok((Value::Boolean(true), rest)),
            0xca => {
                let (n, rest) = unsigned(rest, 4)?;
                number(f32::from_bits(n as u32).into(), rest)
            }
            0xcb => {
                let (n, rest) = unsigned(rest, 8)?;
                number(f64::from_bits(n), rest)
            }
            0xcc..=0xcf => {
                let (n, rest) = unsigned(rest, 1 << (kind - 0xcc))?;
                number(n as f64, rest)
            }
            0xd0..=0xd3 => {
                let width = 1 << (kind - 0xd0);
                let (n, rest) = unsigned(rest, width)?;
                let unused = 64 - 8 * width as u32;
                number((((n << unused) as i64) >> unused) as f64, rest)
            }
            0xc4..=0xc6 => {
                let (n, rest) = unsigned(rest, 1 << (kind - 0xc4))?;
                self.text(rest, n as usize)
            }
            0xd9..=0xdb => {
                let (n, rest) = unsigned(rest, 1 << (kind - 0xd9))?;
                self.text(rest, n as usize)
            }
            0xdc | 0xdd => {
                let (n, rest) = unsigned(rest, 2 << (kind - 0xdc))?;
                self.array(rest, n as usize, depth)
            }
            0xde | 0xdf => {
                let (n, rest) = unsigned(rest, 2 << (kind - 0xde))?;
                self.map(rest, n as usize, depth)
            }
            _ => Err(BAD.into()),
        }
    }

    fn text<'a>(&self, bytes: &'a [u8], n: usize) -> Result<(Value, &'a [u8]), Box<str>> {
        let (text, rest) = take(bytes, n)?;
        let text = self.lua.create_string(text).map_err(no_memory)?;
        Ok((Value::String(text), rest))
    }

    fn array<'a>(
        &mut self,
        mut rest: &'a [u8],
        n: usize,
        depth: usize,
    ) -> Result<(Value, &'a [u8]), Box<str>> {
        let depth = depth.checked_sub(1).ok_or(BAD)?;
        let table = self.lua.create_table().map_err(no_memory)?;
        for at in 1..=n {
            let (value, behind) = self.read(rest, depth)?;
            table.raw_set(at, value).map_err(no_memory)?;
            rest = behind;
        }
        Ok((Value::Table(table), rest))
    }

    fn map<'a>(
        &mut self,
        mut rest: &'a [u8],
        n: usize,
        depth: usize,
    ) -> Result<(Value, &'a [u8]), Box<str>> {
        let depth = depth.checked_sub(1).ok_or(BAD)?;
        let table = self.lua.create_table().map_err(no_memory)?;
        for _ in 0..n {
            let (key, behind) = self.read(rest, depth)?;
            let (value, behind) = self.read(behind, depth)?;
            let is_key = match &key {
                Value::Nil => false,
                Value::Number(x) => !x.is_nan(),
                _ => true,
            };
            if is_key {
                table.raw_set(key, value).map_err(no_memory)?;
            }
            rest = behind;
        }
        Ok((Value::Table(table), rest))
    }
}
