//! `bit`: operations on the bits of numbers, in 32 bits with a sign.

use mlua::{Lua, Value};

use crate::args::{Args, Outcome};
use crate::library::Function;

pub(crate) const FUNCTIONS: &[(&str, Function)] = &[
    ("tobit", |_, args| one(bits(args, 0, "tobit")?)),
    ("bnot", |_, args| one(!bits(args, 0, "bnot")?)),
    ("bswap", |_, args| one(bits(args, 0, "bswap")?.swap_bytes())),
    ("band", |_, args| fold(args, "band", |a, b| a & b)),
    ("bor", |_, args| fold(args, "bor", |a, b| a | b)),
    ("bxor", |_, args| fold(args, "bxor", |a, b| a ^ b)),
    ("lshift", |_, args| shift(args, "lshift", |a, n| a << n)),
    ("rshift", |_, args| shift(args, "rshift", |a, n| a >> n)),
    ("arshift", |_, args| {
        shift(args, "arshift", |a, n| (a as i32 >> n) as u32)
    }),
    ("rol", |_, args| shift(args, "rol", u32::rotate_left)),
    ("ror", |_, args| shift(args, "ror", u32::rotate_right)),
    ("tohex", tohex),
];

/// Any number as 32 bits: rounded to the nearest, of two the even one, and cut.
fn bits(args: &Args, at: usize, function: &str) -> Result<u32, Box<str>> {
    let x = args.number(at, function)?;
    // The number lands in the lowest bits of a double's mantissa.
    Ok((x + 6_755_399_441_055_744.0).to_bits() as u32)
}

fn one(n: u32) -> Outcome {
    Ok(vec![Value::Number(f64::from(n as i32))])
}

fn fold(args: &Args, function: &str, f: fn(u32, u32) -> u32) -> Outcome {
    let mut all = bits(args, 0, function)?;
    for at in 1..args.len() {
        all = f(all, bits(args, at, function)?);
    }
    one(all)
}

fn shift(args: &Args, function: &str, f: fn(u32, u32) -> u32) -> Outcome {
    let n = bits(args, 0, function)?;
    one(f(n, bits(args, 1, function)? & 31))
}

fn tohex(lua: &Lua, args: &Args) -> Outcome {
    let n = bits(args, 0, "tohex")?;
    let digits = match args.get(1) {
        Value::Nil => 8,
        _ => bits(args, 1, "tohex")? as i32,
    };
    // Upper case for a negative number; `unsigned_abs` as the least has no opposite.
    let kept = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 {
        format!("{n:08X}")
    } else {
        format!("{n:08x}")
    };
    let text = lua.create_string(&text[8 - kept..]);
    Ok(vec![Value::String(text.map_err(crate::args::no_memory)?)])
}
