//! The functions of `string` that look for something or may take long; the others are Lua's own.

use std::rc::Rc;

use mlua::{Lua, Result as LuaResult, Table, Value};

use crate::args::{Args, NO_MEMORY, Outcome, no_memory};
use crate::effort::Effort;
use crate::library::wrapped;
use crate::pattern::{Capture, Fault, Found, Matcher, is_plain};
use crate::state::{State, Stopped};

/// The functions. Functions that call back into Lua have their loops in the
/// prelude.
pub(crate) fn functions(lua: &Lua, state: &Rc<State>) -> LuaResult<Table> {
    let table = lua.create_table()?;
    type Run = fn(&Lua, &Args, &State) -> Outcome;
    let all: &[(&str, Run)] = &[
        ("find", |lua, args, state| find(lua, args, state, true)),
        ("match", |lua, args, state| find(lua, args, state, false)),
        ("seek", seek),
        ("gsub", gsub),
        ("rep", rep),
    ];
    for &(name, run) in all {
        let of = state.clone();
        let function = wrapped(lua, state, move |lua, args| run(lua, args, &of))?;
        table.raw_set(name, function)?;
    }
    Ok(table)
}

impl From<Fault> for Box<str> {
    fn from(fault: Fault) -> Box<str> {
        match fault {
            Fault::Pattern(why) => why.into(),
            Fault::Stopped => Stopped.into(),
        }
    }
}

fn string(lua: &Lua, bytes: &[u8]) -> Result<Value, Box<str>> {
    lua.create_string(bytes)
        .map(Value::String)
        .map_err(no_memory)
}

/// A place in a text as C counts it: behind its end for a negative one.
fn place(at: i64, len: usize) -> usize {
    let at = if at < 0 { at + len as i64 + 1 } else { at };
    usize::try_from(at - 1).unwrap_or(0).min(len)
}

/// A place or a number of bytes, as Lua has it.
fn number(n: usize) -> Value {
    Value::Number(n as f64)
}

/// Appends the captures of a match; the whole match where there is none, if that is wanted.
fn put_captures(
    lua: &Lua,
    values: &mut Vec<Value>,
    (matcher, text): (&Matcher<'_>, &[u8]),
    found: Found,
    whole: bool,
) -> Result<(), Box<str>> {
    let count = match matcher.captures() {
        0 => usize::from(whole),
        count => count,
    };
    for at in 0..count {
        values.push(value_of(lua, text, matcher.capture(at, found)?)?);
    }
    Ok(())
}

fn value_of(lua: &Lua, text: &[u8], capture: Capture) -> Result<Value, Box<str>> {
    match capture {
        Capture::Text(start, end) => string(lua, &text[start..end]),
        Capture::Position(at) | Capture::Open(at) => Ok(number(at + 1)),
    }
}

/// `find` and `match`.
fn find(lua: &Lua, args: &Args, state: &State, finds: bool) -> Outcome {
    let name = if finds { "find" } else { "match" };
    let (text, pattern) = (args.text(0, name)?, args.text(1, name)?);
    let from = place(args.integer_or(2, name, 1)?, text.len());
    let asked = !matches!(args.get(3), Value::Nil | Value::Boolean(false));
    if finds && (asked || is_plain(&pattern)) {
        // The search takes linear time.
        let at = memchr::memmem::find(&text[from..], &pattern);
        return Ok(match at {
            Some(at) => vec![number(from + at + 1), number(from + at + pattern.len())],
            None => vec![Value::Nil],
        });
    }
    let mut matcher = Matcher::new(&text, &pattern);
    let Some(found) = matcher.find(from, true, &mut Effort::of(state))? else {
        return Ok(vec![Value::Nil]);
    };
    let mut values = Vec::new();
    if finds {
        values.extend([number(found.start + 1), number(found.end)]);
    }
    put_captures(lua, &mut values, (&matcher, &text), found, !finds)?;
    Ok(values)
}

/// A step of `gmatch`, and of `gsub` with a function or a table: the next match at or behind a place from 0. Gives where it
/// begins and ends, from 0, and its captures.
fn seek(lua: &Lua, args: &Args, state: &State) -> Outcome {
    let (text, pattern) = (args.text(0, "gsub")?, args.text(1, "gsub")?);
    let from = args.integer_or(2, "gsub", 0)?;
    let anchors = matches!(args.get(3), Value::Boolean(true));
    let from = usize::try_from(from).unwrap_or(0);
    let mut matcher = Matcher::new(&text, &pattern);
    let Some(found) = matcher.find(from, anchors, &mut Effort::of(state))? else {
        return Ok(Vec::new());
    };
    let mut values = vec![number(found.start), number(found.end)];
    if matches!(args.get(4), Value::Boolean(true)) {
        // A table is asked for the first, and the others are not looked at.
        values.push(value_of(lua, &text, matcher.capture(0, found)?)?);
    } else {
        put_captures(lua, &mut values, (&matcher, &text), found, true)?;
    }
    Ok(values)
}

/// `gsub` with a text.
fn gsub(lua: &Lua, args: &Args, state: &State) -> Outcome {
    let (text, pattern) = (args.text(0, "gsub")?, args.text(1, "gsub")?);
    let by = args.text(2, "gsub")?;
    let most = args.integer_or(3, "gsub", text.len() as i64 + 1)?;
    let mut matcher = Matcher::new(&text, &pattern);
    let anchored = matcher.is_anchored();
    let mut effort = Effort::of(state);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0_i64);
    while count < most {
        let Some(found) = matcher.find(at, true, &mut effort)? else {
            break;
        };
        count += 1;
        out.extend_from_slice(&text[at..found.start]);
        put_replacement(&mut out, &by, (&matcher, &text), found, &mut effort)?;
        at = found.end;
        if found.end == found.start {
            // Nothing twice at one place.
            let Some(byte) = text.get(at) else { break };
            out.push(*byte);
            at += 1;
        }
        check_room(out.len() + (text.len() - at), state)?;
        effort.spend((out.len() / 64).min(64) as u64)?;
        if anchored {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
    check_room(out.len(), state)?;
    Ok(vec![string(lua, &out)?, Value::Number(count as f64)])
}

/// Appends what stands for a match.
fn put_replacement(
    out: &mut Vec<u8>,
    by: &[u8],
    (matcher, text): (&Matcher<'_>, &[u8]),
    found: Found,
    effort: &mut Effort<'_>,
) -> Result<(), Box<str>> {
    effort.spend(by.len() as u64 / 16)?;
    let mut bytes = by.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        // C reads the zero behind the end.
        match bytes.next().copied().unwrap_or(0) {
            b'0' => out.extend_from_slice(&text[found.start..found.end]),
            digit @ b'1'..=b'9' => match matcher.capture(usize::from(digit - b'1'), found)? {
                Capture::Text(start, end) => {
                    effort.spend((end - start) as u64 / 16)?;
                    out.extend_from_slice(&text[start..end]);
                }
                Capture::Position(at) | Capture::Open(at) => {
                    out.extend_from_slice((at + 1).to_string().as_bytes());
                }
            },
            other => out.push(other),
        }
    }
    Ok(())
}

fn check_room(bytes: usize, state: &State) -> Result<(), Box<str>> {
    if bytes > state.memory_max.get() {
        return Err(NO_MEMORY.into());
    }
    Ok(())
}

/// `rep`.
fn rep(lua: &Lua, args: &Args, state: &State) -> Outcome {
    let text = args.text(0, "rep")?;
    let times = args.number(1, "rep")?;
    if text.is_empty() || times.is_nan() || times < 1.0 {
        return Ok(vec![string(lua, b"")?]);
    }
    // Building a text that does not fit takes long before it fails.
    let most = state.memory_max.get() as f64;
    if text.len() as f64 * times.trunc() > most {
        return Err(NO_MEMORY.into());
    }
    Ok(vec![string(lua, &text.repeat(times as usize))?])
}
