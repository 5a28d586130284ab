//! `cjson`: JSON to values of Lua and back.

pub(crate) mod config;
mod decode;
mod encode;

use std::rc::Rc;

use mlua::{Lua, Result as LuaResult, Table, Value};

use crate::args::{Args, Outcome, no_memory};
use crate::effort::Effort;
use crate::json::config::{DEPTH_MAX, Invalid, JsonConfig};
use crate::library::wrapped;
use crate::state::State;

/// The functions; texts have at most `most` bytes.
pub(crate) fn functions(lua: &Lua, state: &Rc<State>) -> LuaResult<Table> {
    let table = lua.create_table()?;
    let (config, most) = (&state.json, state.memory_max.get());
    let with = |run: fn(&Lua, &Args, &mut JsonConfig, usize) -> Outcome| {
        let config = config.clone();
        wrapped(lua, state, move |lua, args| {
            run(lua, args, &mut config.borrow_mut(), most)
        })
    };
    let of = state.clone();
    table.raw_set(
        "encode",
        wrapped(lua, state, move |lua, args| {
            if args.len() != 1 {
                return Err("bad argument #1 to 'encode' (expected 1 argument)".into());
            }
            let text = encode::encode(&args.get(0), &of.json.borrow(), most, Effort::of(&of))?;
            Ok(vec![Value::String(
                lua.create_string(text).map_err(no_memory)?,
            )])
        })?,
    )?;
    let of = state.clone();
    table.raw_set(
        "decode",
        wrapped(lua, state, move |lua, args| {
            if args.len() != 1 {
                return Err("bad argument #1 to 'decode' (expected 1 argument)".into());
            }
            let text = args.text(0, "decode")?;
            decode::decode(lua, &text, &of.json.borrow(), Effort::of(&of)).map(|value| vec![value])
        })?,
    )?;
    let depth = |name: &'static str, which: fn(&mut JsonConfig) -> &mut i64| {
        let config = config.clone();
        wrapped(lua, state, move |_, args| {
            let mut config = config.borrow_mut();
            integer(args, 0, name, 1, DEPTH_MAX, which(&mut config))
        })
    };
    table.raw_set(
        "encode_max_depth",
        depth("encode_max_depth", |c| &mut c.encode_depth)?,
    )?;
    table.raw_set(
        "decode_max_depth",
        depth("decode_max_depth", |c| &mut c.decode_depth)?,
    )?;
    table.raw_set(
        "encode_number_precision",
        with(|_, args, config, _| {
            integer(
                args,
                0,
                "encode_number_precision",
                1,
                17,
                &mut config.precision,
            )
        })?,
    )?;
    table.raw_set(
        "encode_keep_buffer",
        with(|_, args, config, _| {
            switch(args, 0, "encode_keep_buffer", &mut config.keep_buffer)?;
            Ok(vec![Value::Boolean(config.keep_buffer)])
        })?,
    )?;
    table.raw_set("encode_invalid_numbers", with(invalid_numbers)?)?;
    table.raw_set(
        "decode_invalid_numbers",
        with(|_, args, config, _| {
            switch(
                args,
                0,
                "decode_invalid_numbers",
                &mut config.decode_invalid,
            )?;
            Ok(vec![Value::Boolean(config.decode_invalid)])
        })?,
    )?;
    table.raw_set("encode_sparse_array", with(sparse_array)?)?;
    Ok(table)
}

fn invalid_numbers(lua: &Lua, args: &Args, config: &mut JsonConfig, _: usize) -> Outcome {
    match args.get(0) {
        Value::Nil => {}
        Value::Boolean(yes) => {
            config.encode_invalid = if yes {
                Invalid::Written
            } else {
                Invalid::Refused
            };
        }
        Value::String(text) if text.as_bytes() == b"null" => config.encode_invalid = Invalid::Null,
        _ => return Err("bad argument #1 to 'encode_invalid_numbers' (invalid option)".into()),
    }
    Ok(vec![match config.encode_invalid {
        Invalid::Refused => Value::Boolean(false),
        Invalid::Written => Value::Boolean(true),
        Invalid::Null => Value::String(lua.create_string("null").map_err(no_memory)?),
    }])
}

fn sparse_array(_: &Lua, args: &Args, config: &mut JsonConfig, _: usize) -> Outcome {
    const NAME: &str = "encode_sparse_array";
    switch(args, 0, NAME, &mut config.sparse_convert)?;
    integer(
        args,
        1,
        NAME,
        0,
        i64::from(i32::MAX),
        &mut config.sparse_ratio,
    )?;
    integer(
        args,
        2,
        NAME,
        0,
        i64::from(i32::MAX),
        &mut config.sparse_safe,
    )?;
    Ok(vec![
        Value::Boolean(config.sparse_convert),
        Value::Number(config.sparse_ratio as f64),
        Value::Number(config.sparse_safe as f64),
    ])
}

/// Sets a number if one is given; returns the present number.
fn integer(
    args: &Args,
    at: usize,
    name: &str,
    least: i64,
    most: i64,
    setting: &mut i64,
) -> Outcome {
    let n = args.integer_or(at, name, *setting)?;
    if !(least..=most).contains(&n) {
        let at = at + 1;
        return Err(format!(
            "bad argument #{at} to '{name}' (expected integer between {least} and {most})"
        )
        .into());
    }
    *setting = n;
    Ok(vec![Value::Number(n as f64)])
}

/// Sets a switch if a value is given.
fn switch(args: &Args, at: usize, name: &str, setting: &mut bool) -> Result<(), Box<str>> {
    match args.get(at) {
        Value::Nil => {}
        Value::Boolean(yes) => *setting = yes,
        _ => {
            let at = at + 1;
            return Err(format!("bad argument #{at} to '{name}' (invalid option)").into());
        }
    }
    Ok(())
}
