//! The key-value services: the parsers against plain ones, and commands that must neither panic nor
//! answer with anything that is not a reply.

use std::sync::Arc;

use tidewire::sim::chunking::{self, Feed};
use tidewire::{Closed, Limits};
use tidewire_kv::binary;
use tidewire_kv::number::parse_integer;
use tidewire_kv::resp::{Bounds, Parser, Step};
use tidewire_kv::service::{BinaryService, RespService, Settings};
use tidewire_kv::store::Store;

/// Largest argument that the codec is allowed here.
const BULK_MAX: usize = 1000;

/// How a stream ended, as far as the plain parser tells ends apart.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Unfinished,
    Wrong,
}

/// The commands of a stream of arrays, found in the plainest way; `None` if there is a line.
fn plain(stream: &[u8]) -> Option<(Vec<Vec<&[u8]>>, End)> {
    let (mut commands, mut at) = (Vec::new(), 0);
    let line = |at: usize| -> Result<(i64, usize), End> {
        let Some(len) = stream[at..].iter().position(|&b| b == b'\r') else {
            return Err(End::Unfinished);
        };
        if at + len + 1 >= stream.len() {
            return Err(End::Unfinished);
        }
        let number = parse_integer(&stream[at..at + len]).ok_or(End::Wrong)?;
        Ok((number, at + len + 2))
    };
    let command = |at: &mut usize| -> Result<Vec<&[u8]>, End> {
        let (count, mut next) = line(*at + 1)?;
        if count > 1 << 20 {
            return Err(End::Wrong);
        }
        let mut args = Vec::new();
        for _ in 0..count.max(0) {
            match stream.get(next) {
                None => return Err(End::Unfinished),
                Some(b'$') => {}
                Some(_) => return Err(End::Wrong),
            }
            let (len, start) = line(next + 1)?;
            let len = usize::try_from(len).map_err(|_| End::Wrong)?;
            if len > BULK_MAX {
                return Err(End::Wrong);
            }
            if start + len + 2 > stream.len() {
                return Err(End::Unfinished);
            }
            args.push(&stream[start..start + len]);
            next = start + len + 2;
        }
        *at = next;
        Ok(args)
    };
    loop {
        match stream.get(at) {
            None => return Some((commands, End::Unfinished)),
            Some(b'*') => {}
            Some(_) => return None,
        }
        match command(&mut at) {
            Ok(args) if args.is_empty() => {}
            Ok(args) => commands.push(args),
            Err(end) => return Some((commands, end)),
        }
    }
}

/// Parses the input in pieces; arrays must come out as a plain parser finds them, and whatever it
/// is, the pieces must not show.
pub fn resp_codec(input: &[u8]) {
    let Some((&piece, stream)) = input.split_first() else {
        return;
    };
    let whole = parse(stream, usize::MAX);
    assert_eq!(parse(stream, usize::from(piece).max(1)), whole);
    if let Some((commands, end)) = plain(stream) {
        assert_eq!(whole.0, commands);
        assert_eq!(whole.1, end);
    }
}

fn parse(stream: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, End) {
    let bounds = Bounds {
        bulk_max: BULK_MAX,
        ..Bounds::default()
    };
    let (mut parser, mut commands) = (Parser::default(), Vec::new());
    let (mut start, mut end, mut needed) = (0, 0, 0);
    loop {
        let mut args = Vec::new();
        let input = &stream[start..end];
        if input.len() >= needed {
            needed = 0;
            match parser.next(input, &mut args, &bounds) {
                Step::Command { len } => {
                    commands.push(args.iter().map(|arg| arg.to_vec()).collect());
                    start += len;
                    continue;
                }
                Step::Inline { words, len } => {
                    commands.push(words);
                    start += len;
                    continue;
                }
                Step::Nothing { len } => {
                    start += len;
                    continue;
                }
                Step::Error(_) => return (commands, End::Wrong),
                Step::Needs(n) => {
                    assert!(n > input.len() && n <= (2 * input.len()).max(1));
                    needed = n;
                }
            }
        }
        if end == stream.len() {
            return (commands, End::Unfinished);
        }
        end = end.saturating_add(piece).min(stream.len());
    }
}

/// Feeds the input to the binary service in some split, at some pace; the answers must be a map's,
/// and the connection must end as it should.
pub fn kv_binary(input: &[u8]) {
    let Some((&[split, pace], stream)) = input.split_first_chunk() else {
        return;
    };
    let (mut map, mut expected, mut rest) = (std::collections::HashMap::new(), Vec::new(), stream);
    let end = loop {
        match binary::parse(rest) {
            binary::Step::Request(request, len) => {
                let value = match request {
                    binary::Request::Read { key } => map.get(key).copied().unwrap_or_default(),
                    binary::Request::Write { key, value } => {
                        map.insert(key, value);
                        value
                    }
                };
                binary::encode_response(value, &mut expected);
                rest = &rest[len..];
            }
            binary::Step::Needs(_) => break Closed::Finished,
            binary::Step::Bad(fault) => break Closed::ByProtocol(fault.reason()),
        }
    };
    let splits = chunking::splits(split.into(), stream.len());
    let got = Feed::new(stream)
        .splits(&splits)
        .window(1 + usize::from(pace))
        .limits(Limits {
            output_low: 10,
            output_high: 300,
            ..BinaryService::limits()
        })
        .run(BinaryService::open(Arc::new(Store::new(
            tidewire_kv::store::Settings::default(),
        ))));
    assert_eq!(got.output, expected);
    assert_eq!(got.closed, Some(end));
}

/// Runs the input as commands, in some split; there must be no panic, and nothing but whole
/// replies must come out.
pub fn kv_execute(input: &[u8]) {
    let Some((&[split, pace], stream)) = input.split_first_chunk() else {
        return;
    };
    // The client that feeds it is on another host.
    let settings = Settings {
        protected: false,
        ..Settings::default()
    };
    let limits = Limits {
        output_low: 100,
        output_high: 1000,
        ..settings.limits()
    };
    let splits = chunking::splits(split.into(), stream.len());
    let got = Feed::new(stream)
        .splits(&splits)
        .window(1 + 4 * usize::from(pace))
        .limits(limits)
        .run(RespService::new(
            Arc::new(Store::new(tidewire_kv::store::Settings::default())),
            settings,
        ));
    assert_ne!(got.closed, Some(Closed::Panicked));
    let mut rest = &got.output[..];
    while !rest.is_empty() {
        rest = reply(rest, DEPTH);
    }
}

/// Each function of the library that a script can give texts to, many times over: whatever the texts are, none may end the
/// process, and the script that comes after it is answered.
const EACH_FUNCTION: &[u8] = b"
local a, b, n = KEYS[1], KEYS[2], tonumber(ARGV[1]) or #KEYS[1]
local long, pattern = a:rep(200), b:rep(300)
local deep = a
for _ = 1, 200 do deep = {deep, [b] = a} end
for _, f in ipairs{
  string.find, string.match, string.gsub, string.rep, string.format, string.byte, string.sub, string.upper, string.reverse,
  cjson.decode, cmsgpack.unpack, cmsgpack.unpack_one, struct.pack, struct.unpack, struct.size, bit.tohex, redis.sha1hex,
  loadstring, tonumber, table.concat, table.sort, table.insert, unpack, cjson.encode, cmsgpack.pack, redis.call, redis.log,
} do
  pcall(f, a, b, n)
  pcall(f, long, b, n)
  pcall(f, a, pattern, n)
  pcall(f, long, pattern, a)
  pcall(f, b, long, function(c) return a:gsub(b, f) end)
  pcall(f, {a, b, n}, b, n)
  pcall(f, deep, n, a)
  pcall(f, {b, a, {}}, f)
end
local function each(s, p) for c in s:gmatch(p) do n = c end end
pcall(each, long, b)
return {tostring(n)}";

/// Runs the input as a script, as a library of functions and as a payload of libraries, and gives it to [each
/// function](EACH_FUNCTION): there must be no panic and no end of the process, the server serves on, and nothing but
/// whole replies comes out. The first bytes are its keys and arguments.
///
/// An hour of it had one report of 1,428 bytes in 48 allocations that were not given back, inside of mlua. It does not grow with the
/// scripts that are run: an interpreter made and dropped for each of 90,000 runs of the corpus and of scripts that run out of memory, of
/// stack and of time kept no byte, by a counting allocator. The input is not known.
pub fn kv_scripts(input: &[u8]) {
    let Some((&[kind, len], rest)) = input.split_first_chunk() else {
        return;
    };
    let (args, text) = rest.split_at(usize::from(len).min(rest.len()));
    let (one, other) = args.split_at(args.len() / 2);
    let library = [b"#!lua name=lib\n", text].concat();
    let mut stream = Vec::new();
    let mut put = |args: &[&[u8]]| {
        stream.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            stream.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            stream.extend_from_slice(arg);
            stream.extend_from_slice(b"\r\n");
        }
    };
    // So that one without end ends soon.
    put(&[b"CONFIG", b"SET", b"busy-reply-threshold", b"20"]);
    put(&[b"CONFIG", b"SET", b"script-memory-limit", b"1mb"]);
    if kind & 1 == 1 {
        put(&[b"HELLO", b"3"]);
    }
    put(&[b"RPUSH", b"l", one, other, b"1"]);
    match kind >> 1 & 3 {
        0 => put(&[b"EVAL", text, b"1", one, other]),
        1 => put(&[b"EVAL_RO", text, b"1", one, other]),
        2 => {
            put(&[b"FUNCTION", b"LOAD", &library]);
            put(&[b"FCALL", b"f", b"1", one, other]);
            put(&[b"FUNCTION", b"LIST", b"WITHCODE"]);
        }
        _ => put(&[b"FUNCTION", b"RESTORE", text, b"REPLACE"]),
    }
    if kind >> 3 & 1 == 1 {
        put(&[b"EVAL", EACH_FUNCTION, b"2", one, text, other]);
        put(&[b"EVAL", EACH_FUNCTION, b"2", text, one, other]);
    }
    put(&[
        b"EVAL",
        b"return {redis.call('get', KEYS[1]), ARGV}",
        b"1",
        b"none",
        one,
    ]);
    put(&[b"ECHO", b"the end"]);
    let settings = Settings {
        protected: false,
        ..Settings::default()
    };
    let limits = settings.limits();
    let got = Feed::new(&stream).limits(limits).run(RespService::new(
        Arc::new(Store::new(tidewire_kv::store::Settings::default())),
        settings,
    ));
    assert_ne!(got.closed, Some(Closed::Panicked));
    let mut rest = &got.output[..];
    while !rest.is_empty() {
        rest = reply(rest, DEPTH_OF_SCRIPTS);
    }
    assert!(got.output.ends_with(b"$7\r\nthe end\r\n"));
}

/// Deepest that replies of commands nest, and what scripts answer.
const DEPTH: usize = 10;
const DEPTH_OF_SCRIPTS: usize = 110;

/// Steps over one reply.
fn reply(bytes: &[u8], depth: usize) -> &[u8] {
    assert!(depth > 0, "replies do not nest so deep");
    let end = bytes.windows(2).position(|w| w == b"\r\n").expect("a line");
    let (line, rest) = (&bytes[1..end], &bytes[end + 2..]);
    let count = || parse_integer(line).expect("a length");
    let several = |n: i64| (0..n).fold(rest, |rest, _| reply(rest, depth - 1));
    match bytes[0] {
        b'+' | b'-' | b'_' | b',' | b'#' | b'(' => rest,
        b':' => {
            count();
            rest
        }
        b'$' | b'=' => match count() {
            -1 => rest,
            n => rest[n as usize..].strip_prefix(b"\r\n").expect("an end"),
        },
        b'*' | b'~' | b'>' => several(count()),
        b'%' => several(2 * count()),
        other => panic!("not a reply: {}", char::from(other)),
    }
}
