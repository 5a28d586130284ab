//! The library's own functions beside C's, in the same process: C's functions get small inputs
//! only, as nothing bounds them.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Write;

use mlua::{Lua, LuaOptions, StdLib, Table, Value as Lua51};

use crate::{Answer, Call, Ended, Fcall, Host, NotLoaded, Run, Stop, Value, Verdict, Vm};

/// Answers nothing.
struct Nobody;

impl Host for Nobody {
    fn call(&mut self, _: Call<'_>) -> Result<Value<'_>, Stop> {
        Ok(Value::Nil)
    }

    fn log(&mut self, _: u8, _: &[u8]) {}
}

/// Writes down what all functions make of each text and pattern of ARGV, errors without their place.
const COMPARED: &str = r#"
local function told(ok, ...)
  local all = { tostring(ok) }
  for at = 1, select('#', ...) do
    local value = select(at, ...)
    all[#all + 1] = type(value) .. ':' .. tostring(value)
  end
  local text = table.concat(all, ',')
  return (text:gsub('[%w_]+:%d+: ', ''))
end
local out = {}
for at = 1, #ARGV, 4 do
  local s, p, by, init = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local n = 0
  out[#out + 1] = told(pcall(string.find, s, p, init))
  out[#out + 1] = told(pcall(string.find, s, p, init, true))
  out[#out + 1] = told(pcall(string.match, s, p, init))
  out[#out + 1] = told(pcall(function()
    local all = {}
    for a, b, c in string.gmatch(s, p) do
      all[#all + 1] = tostring(a) .. '/' .. tostring(b) .. '/' .. tostring(c)
    end
    return table.concat(all, ';')
  end))
  out[#out + 1] = told(pcall(string.gsub, s, p, by))
  out[#out + 1] = told(pcall(string.gsub, s, p, by, init))
  out[#out + 1] = told(pcall(string.gsub, s, p, function(a, b)
    n = n + 1
    if n % 3 == 0 then return nil end
    return b or a
  end))
  out[#out + 1] = told(pcall(string.gsub, s, p, { a = 'A', [''] = 7, [1] = false, b = 1.5 }))
end
return table.concat(out, '\n')
"#;

/// What a script answers here.
fn ours(vm: &Vm, name: &str, text: &str, args: &[&[u8]]) -> String {
    let run = Run {
        name,
        text: text.as_bytes(),
        keys: &[],
        args,
        leash: None,
    };
    match vm.run(run, &mut Nobody) {
        Ended::Done(Answer::Bulk(text)) => text.escape_ascii().to_string(),
        other => panic!("{other:?}"),
    }
}

/// What it answers with C's functions.
fn theirs(lua: &Lua, text: &str, args: &[&[u8]]) -> String {
    let all = lua.create_table().unwrap();
    for (at, arg) in args.iter().enumerate() {
        all.raw_set(at + 1, lua.create_string(arg).unwrap())
            .unwrap();
    }
    lua.globals().raw_set("ARGV", all).unwrap();
    let chunk = lua.load(text).set_name("@user_script");
    match chunk.eval::<Lua51>().unwrap() {
        Lua51::String(text) => text.as_bytes().escape_ascii().to_string(),
        other => panic!("{other:?}"),
    }
}

fn both() -> (Vm, Lua) {
    let vm = Vm::new(64 << 20, || Verdict::Go).unwrap();
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::default()).unwrap();
    (vm, lua)
}

fn pick<'a>(chance: &mut fastrand::Rng, all: &[&'a [u8]]) -> &'a [u8] {
    all[chance.usize(..all.len())]
}

fn pattern(chance: &mut fastrand::Rng) -> Vec<u8> {
    const ITEMS: &[&[u8]] = &[
        b"a", b"b", b"c", b".", b"%a", b"%d", b"%s", b"%W", b"%p", b"%x", b"%z", b"%.", b"[ab]",
        b"[^a]", b"[%d_]", b"[a-c]", b"[]]", b"[^]a]", b"[a-]", b"[", b"]", b"%", b"(", b")",
        b"()", b"(", b")", b"%1", b"%2", b"%0", b"%b()", b"%bab", b"%f[%w]", b"%f[^a]", b"%f",
        b"%b", b"^", b"$", b"-", b"*", b"+", b"?", b"\0", b"\xe4", b"%u", b"[%a-z]", b"[c-a]",
        b"%f[%z]", b"x",
    ];
    const SIGNS: &[&[u8]] = &[b"", b"", b"", b"*", b"+", b"-", b"?"];
    let mut pattern = Vec::new();
    if chance.u8(..8) == 0 {
        pattern.push(b'^');
    }
    for _ in 0..chance.usize(..7) {
        pattern.extend_from_slice(pick(chance, ITEMS));
        pattern.extend_from_slice(pick(chance, SIGNS));
    }
    if chance.u8(..8) == 0 {
        pattern.push(b'$');
    }
    pattern
}

fn text(chance: &mut fastrand::Rng) -> Vec<u8> {
    const BYTES: &[u8] = b"aaabbbcc((()))ab12_ .]-\0\xe4XY";
    let n = chance.usize(..14);
    (0..n).map(|_| BYTES[chance.usize(..BYTES.len())]).collect()
}

/// Compares so many texts and patterns.
fn compare(count: usize, seed: u64) {
    const TOGETHER: usize = 50;
    const BY: &[&[u8]] = &[b"", b"x", b"%0", b"<%1>", b"%2%1", b"%%", b"%", b"%a%0\0"];
    let (vm, lua) = both();
    let mut chance = fastrand::Rng::with_seed(seed);
    for _ in 0..count.div_ceil(TOGETHER) {
        let mut args = Vec::new();
        for _ in 0..TOGETHER {
            args.extend([
                text(&mut chance),
                pattern(&mut chance),
                pick(&mut chance, BY).to_vec(),
                chance.i32(-9..15).to_string().into_bytes(),
            ]);
        }
        let args: Vec<&[u8]> = args.iter().map(|arg| &arg[..]).collect();
        let (ours, theirs) = (
            ours(&vm, "compared", COMPARED, &args),
            theirs(&lua, COMPARED, &args),
        );
        if ours != theirs {
            let mut lines = ours.split("\\n").zip(theirs.split("\\n")).enumerate();
            let (at, (ours, theirs)) = lines.find(|(_, (a, b))| a != b).unwrap();
            let of = &args[at / 8 * 4..][..4];
            let mut told = String::new();
            for arg in of {
                let _ = write!(told, " \"{}\"", arg.escape_ascii());
            }
            panic!(
                "seed {seed}, function {} of{told}:\nours   {ours}\ntheirs {theirs}",
                at % 8
            );
        }
    }
}

#[test]
fn patterns_match_as_in_c() {
    compare(20_000, fastrand::u64(..));
}

/// `cargo test -p tidewire-lua --lib a_million_patterns -- --ignored`
#[test]
#[ignore = "takes a minute"]
fn a_million_patterns() {
    compare(1_000_000, fastrand::u64(..));
}

/// What all functions about tables make of ARGV, which are numbers.
const TABLES: &str = r#"
local function told(ok, ...)
  local all = { tostring(ok) }
  for at = 1, select('#', ...) do all[#all + 1] = tostring((select(at, ...))) end
  -- Where C is called by pcall it does not know its own name.
  return (table.concat(all, ','):gsub('[%w_]+:%d+: ', ''):gsub("to '[%w?]+'", "to 'f'"))
end
local function numbers()
  local all = {}
  for at = 2, #ARGV do all[at - 1] = tonumber(ARGV[at]) end
  return all
end
local by, out = tonumber(ARGV[1]), {}
local function add(...) out[#out + 1] = told(...) end
local log
local function noted(less)
  return function(a, b)
    log[#log + 1] = tostring(a) .. '<' .. tostring(b)
    return less(a, b)
  end
end
for _, less in ipairs{
  function(a, b) return a < b end, function(a, b) return b < a end,
  function(a, b) return a % 3 < b % 3 end, function() return false end,
  function(a, b) return a <= b end, function() return true end,
} do
  local t = numbers()
  log = {}
  add(pcall(table.sort, t, noted(less)))
  add(true, table.concat(t, ' '))
  add(true, table.concat(log, ' '))
end
local t = numbers()
add(pcall(table.sort, t))
add(true, table.concat(t, ' '))
t = numbers()
for at = 1, #t do t[at] = tostring(t[at]) end
add(pcall(table.sort, t))
add(true, table.concat(t, ' '))
t[#t + 1] = 1
add(pcall(table.sort, t))
add(pcall(table.sort, { {}, {} }))
add(pcall(table.sort, { true, false }))
add(pcall(table.sort, t, 1))
t = numbers()
add(pcall(table.insert, t, by, 'new'))
add(pcall(table.remove, t, by))
add(pcall(table.remove, t, 1))
add(pcall(table.insert, t, 'end'))
add(true, table.concat(t, ' '))
add(true, table.maxn(t))
add(pcall(table.concat, t, ', ', by, #t))
add(pcall(table.concat, t, ', ', 1, by))
add(pcall(table.concat, t, '-', by))
add(pcall(table.foreachi, t, function(at, value) if at == by then return value end end))
add(pcall(table.foreach, t, function(at, value) if at == by then return value end end))
add(pcall(string.rep, 'ab', by))
add(pcall(string.rep, by, 2))
add(pcall(string.upper, by))
return table.concat(out, '\n')
"#;

#[test]
fn table_functions_do_as_in_c() {
    let (vm, lua) = both();
    let seed = fastrand::u64(..);
    let mut chance = fastrand::Rng::with_seed(seed);
    for _ in 0..1000 {
        let n = chance.usize(..40);
        let mut args = vec![chance.i32(-2..45).to_string().into_bytes()];
        args.extend((0..n).map(|_| chance.i32(-20..20).to_string().into_bytes()));
        let args: Vec<&[u8]> = args.iter().map(|arg| &arg[..]).collect();
        let (ours, theirs) = (
            ours(&vm, "tables", TABLES, &args),
            theirs(&lua, TABLES, &args),
        );
        let mut lines = ours.split("\\n").zip(theirs.split("\\n"));
        if let Some((a, b)) = lines.find(|(a, b)| a != b) {
            panic!("seed {seed}, {n} numbers:\nours   {a}\ntheirs {b}");
        }
    }
}

/// What C makes of positions, in a table that is short and in one that is so long that the library's own functions are asked.
const POSITIONS: &str = r#"
local out = {}
for at = 1, #ARGV do
  for _, text in ipairs{ false, true } do
    local position = text and ARGV[at] or tonumber(ARGV[at])
    for _, n in ipairs{ 0, 3, 5000 } do
      local t = {}
      for at = 1, n do t[at] = at end
      -- C moves all that is behind: not here with what is far off.
      local whole = tonumber(position)
      local far = n == 0 and -3000 or 1 - 3 * n
      whole = (whole < 0 and math.ceil(whole) or math.floor(whole)) % 2^32
      if whole >= 2^31 then whole = whole - 2^32 end
      if whole >= far then
        out[#out + 1] = tostring(pcall(table.insert, t, position, 'new'))
      end
      for _, key in ipairs{ -1, 0, 1, 2, 3, 4, 5, 6, 4999, 5000, 5001, whole } do
        out[#out + 1] = tostring(t[key])
      end
      out[#out + 1] = tostring((select(2, pcall(table.remove, t, position)))) .. #t
      for _, key in ipairs{ -1, 0, 1, 2, 3, 4, 5, 6, 4999, 5000, 5001, whole } do
        out[#out + 1] = tostring(t[key])
      end
      local ok, joined = pcall(table.concat, t, ',', position, 3)
      out[#out + 1] = tostring(ok) .. (ok and joined or '')
      ok, joined = pcall(table.concat, t, ',', 1, position)
      out[#out + 1] = tostring(ok) .. (ok and joined or '')
    end
  end
end
return table.concat(out, '\n')
"#;

#[test]
fn positions_are_read_as_by_c() {
    let (vm, lua) = both();
    let all: Vec<String> = [
        "0",
        "1",
        "2.9",
        "-0.9",
        "-1",
        "-1.5",
        "3.5",
        "5000.5",
        "4294967296",
        "4294967297.5",
        "-4294967294",
        "8589934595",
        "1099511627777",
        "-1099511627775.5",
        "2147483648",
        "2147483650",
        "0x3",
        " 2 ",
        "2e0",
    ]
    .map(str::to_owned)
    .to_vec();
    for position in &all {
        let args: &[&[u8]] = &[position.as_bytes()];
        let (ours, theirs) = (
            ours(&vm, "positions", POSITIONS, args),
            theirs(&lua, POSITIONS, args),
        );
        let mut lines = ours.split("\\n").zip(theirs.split("\\n")).enumerate();
        if let Some((at, (a, b))) = lines.find(|(_, (a, b))| a != b) {
            panic!("{position}, line {at}:\nours   {a}\ntheirs {b}");
        }
    }
}

/// Runs a script that is to stop when it was looked at so often.
fn stopped_after(looks: u32, text: &str) -> Ended {
    let left = std::cell::Cell::new(looks);
    let watch = move || {
        left.set(left.get().saturating_sub(1));
        match left.get() {
            0 => Verdict::Stop(Stop("ended".into())),
            _ => Verdict::Go,
        }
    };
    let vm = Vm::new(64 << 20, watch).unwrap();
    let run = Run {
        name: "endless",
        text: text.as_bytes(),
        keys: &[],
        args: &[],
        leash: None,
    };
    vm.run(run, &mut Nobody)
}

/// Each script runs practically for ever, if nothing stops it.
const ENDLESS: &[&str] = &[
    "return string.find(string.rep('a', 20000), '.-.-.-.-b')",
    "return string.match(string.rep('a', 20000), '(.*)(.*)(.*)(.*)b')",
    "for a in string.gmatch(string.rep('a', 20000), '.-.-.-.-b') do end",
    "return string.gsub(string.rep('a', 20000), '.-.-.-.-b', '')",
    "return string.gsub(string.rep('a', 20000), '.-.-.-.-b', {})",
    "return string.gsub(string.rep('a', 20000), '.-.-.-.-b', tostring)",
    "return string.find(string.rep('(', 1e6), string.rep('.-', 3) .. '%b()x')",
    "return string.find(string.rep('a', 1e6), '(a*)%1%1b')",
    "return string.find(string.rep('a', 1e6), '[' .. string.rep('b', 1e6) .. ']-x')",
    "return table.insert({}, -2147483647, 1)",
    "return table.insert({}, -2147483647.5, 1)",
    "return table.insert({}, '-2147483647', 1)",
    "return table.insert({}, '-0x7fffffff', 1)",
    "return table.insert({}, 2147483649, 1)",
    "return table.insert({}, -2^62 - 2^31, 1)",
    "local t = {} for at = 29, 0, -1 do t[2^at] = 'x' end return table.remove(t, 1.5)",
    "local t = {} for at = 29, 0, -1 do t[2^at] = 'x' end return table.remove(t, '1')",
    "return cjson.encode((function() local t = {} for _ = 1, 100 do t = {t, t} end return t end)())",
    "return cmsgpack.pack((function() local t = {} for _ = 1, 16 do local u = {} for at = 1, 40 do u[at] = t end t = u end return t end)())",
    "local t = {} for at = 1, 1e6 do t[at] = at % 7 end while true do table.sort(t, function() return false end) end",
    "while true do collectgarbage() end",
    "local s = string.rep('a', 1e7) while true do pcall(string.upper, s) end",
    "local s = string.rep('a', 1e7) for _ in string.upper, s do end",
    "local s = string.rep('a', 2e7) while true do local _ = s .. 'b' end",
    "local s = string.rep('1', 3e7) while true do local _ = pcall(tonumber, s) end",
    "local t = {} for at = 1, 1e6 do t[at] = 'x' end while true do pcall(table.concat, t, 'y') end",
    "while true do pcall(loadstring, string.rep('x = 1 ', 1e6)) end",
];

#[test]
fn whatever_a_script_does_it_hears_that_it_is_to_stop() {
    for text in ENDLESS {
        println!("{text}");
        let ended = stopped_after(30, text);
        assert_eq!(ended, Ended::Stopped(Stop("ended".into())), "{text}");
    }
}

/// Each catches its errors, and has no memory left.
const GREEDY: &[&str] = &[
    "local t = {} while true do pcall(function() t[#t + 1] = {} end) end",
    "local t = {} while true do xpcall(function() t[#t + 1] = {} end, function() return 1 end) end",
    "local t, s = {}, string.rep('a', 1e6) while true do pcall(function() t[#t + 1] = s .. #t end) end",
    "local s = string.rep('a', 4e7) while true do pcall(string.rep, s, 2) end",
    "local s = string.rep('a', 4e7) while true do pcall(string.upper, s) end",
    "local s = string.rep('a', 4e7) while true do pcall(string.gsub, s, '.', 'bcd') end",
    "local s = string.rep('a', 4e7) while true do pcall(cjson.encode, {s, s, s}) end",
    "local t = {} while true do coroutine.resume(coroutine.create(function() t[#t + 1] = {} end)) end",
    "local s = 'a' while true do pcall(function() s = s .. s end) end",
];

#[test]
fn one_without_memory_fails_whatever_it_catches() {
    for text in GREEDY {
        println!("{text}");
        let ended = stopped_after(u32::MAX, text);
        let is_told = match &ended {
            Ended::Failed(line) => line.windows(17).any(|words| words == b"not enough memory"),
            _ => false,
        };
        assert!(is_told, "{text}: {ended:?}");
    }
}

/// The script asked for too much once, and has enough.
#[test]
fn one_with_memory_may_go_on() {
    let text = "local ok, why = pcall(string.rep, 'a', 2^30) return tostring(ok) .. why";
    let answer = Ended::Done(Answer::Bulk(b"falsenot enough memory".to_vec()));
    assert_eq!(stopped_after(u32::MAX, text), answer);
}

#[test]
fn a_pattern_of_any_length_overflows_no_stack() {
    for text in [
        "return string.find(string.rep('a', 100000), string.rep('a?', 100000))",
        "return string.find(string.rep('a', 100000), string.rep('a-', 100000))",
        "return string.gsub(string.rep('a', 100000), string.rep('a*', 100000), 'x')",
    ] {
        match stopped_after(u32::MAX, text) {
            Ended::Failed(line) => {
                let line = String::from_utf8_lossy(&line);
                assert!(line.contains("pattern too complex"), "{text}: {line}");
            }
            other => assert!(matches!(other, Ended::Done(_)), "{text}: {other:?}"),
        }
    }
}

/// What an interpreter keeps between scripts: each value by the way to it, and what it is. The tables that scripts see are
/// looked through, past their metatables, as no script can.
fn kept(vm: &Vm) -> BTreeMap<String, String> {
    fn told(value: &Lua51) -> String {
        match value {
            Lua51::Table(_) | Lua51::Function(_) => format!("{:?}", value.to_pointer()),
            other => format!("{other:?}"),
        }
    }
    fn walk(
        path: &str,
        table: &Table,
        seen: &mut Vec<*const c_void>,
        all: &mut BTreeMap<String, String>,
    ) {
        if seen.contains(&table.to_pointer()) {
            return;
        }
        seen.push(table.to_pointer());
        let meta = table
            .metatable()
            .map(|meta| ("<meta>".to_owned(), Lua51::Table(meta)));
        let fields = table.pairs::<Lua51, Lua51>().map(|pair| {
            let (key, value) = pair.unwrap();
            let key = match &key {
                Lua51::String(name) => name.to_string_lossy(),
                other => told(other),
            };
            (key, value)
        });
        for (key, value) in fields.chain(meta) {
            // These are the script's own.
            if matches!(&key[..], "KEYS" | "ARGV") {
                continue;
            }
            let path = format!("{path}.{key}");
            all.insert(path.clone(), told(&value));
            if let Lua51::Table(table) = value {
                walk(&path, &table, seen, all);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk("", vm.globals(), &mut Vec::new(), &mut all);
    all
}

#[track_caller]
fn unchanged(before: &BTreeMap<String, String>, vm: &Vm, what: &str) {
    let after = kept(vm);
    let of = |way: &String| (before.get(way), after.get(way));
    let ways = before.keys().chain(after.keys());
    let changed = ways.filter(|way| before.get(*way) != after.get(*way));
    let changed: Vec<_> = changed.map(|way| (way, of(way))).collect();
    assert!(changed.is_empty(), "{what}: {changed:?}");
}

/// The names of all that a script finds: `string`, `string.rep`, `_G`.
fn reachable(vm: &Vm) -> Vec<String> {
    let behind = |table: &Table| -> Option<Table> { table.metatable()?.raw_get("__index").ok() };
    let named = |table: &Table| -> Vec<(String, Lua51)> {
        let pairs = table.pairs::<String, Lua51>();
        pairs.map(|pair| pair.unwrap()).collect()
    };
    let mut all = Vec::new();
    for (name, value) in named(&behind(vm.globals()).unwrap()) {
        if let Lua51::Table(library) = &value
            && name != "_G"
        {
            let inner = named(&behind(library).unwrap());
            all.extend(inner.iter().map(|(inner, _)| format!("{name}.{inner}")));
        }
        all.push(name);
    }
    all.sort();
    all
}

/// Writes into all that it can reach from the value of a name: the value, its metatable, and what it gives when it is called.
const WRITES: &str = r#"
local evil = function() end
local fields = {}
for at = 1, #ARGV do fields[at] = string.match(ARGV[at], '[%w_]+$') end
local value = _G
for field in string.gmatch(ARGV[1], '[^.]+') do value = value[field] end
local function write(value, depth)
  if depth == 0 then return end
  pcall(function() value.evil = evil end)
  pcall(rawset, value, 'evil', evil)
  pcall(setmetatable, value, { __index = evil })
  pcall(table.insert, value, evil)
  pcall(table.insert, value, 1, evil)
  pcall(table.sort, value)
  pcall(table.remove, value)
  local ok, meta = pcall(getmetatable, value)
  if ok then write(meta, depth - 1) end
  if type(value) == 'table' then
    local keys = {}
    for key in pairs(value) do keys[#keys + 1] = key end
    for _, key in ipairs(keys) do
      if key ~= 'KEYS' and key ~= 'ARGV' then
        local old = rawget(value, key)
        pcall(function() value[key] = evil end)
        if old ~= value then write(old, depth - 1) end
      end
    end
    for _, field in ipairs(fields) do pcall(function() value[field] = evil end) end
  elseif type(value) == 'function' then
    for _, args in ipairs{ {}, { '' }, { 1 }, { {} }, { _G }, { string }, { 'x', 'y' }, { _G, 'a' }, { redis, evil }, { evil, redis } } do
      local results = { pcall(value, unpack(args)) }
      for at = 2, #results do write(results[at], depth - 1) end
    end
  end
end
write(value, 4)
return redis.error_reply('x').err
"#;

#[test]
fn what_a_script_writes_into_is_its_own() {
    let vm = Vm::new(64 << 20, || Verdict::Go).unwrap();
    let before = kept(&vm);
    let names = reachable(&vm);
    let is_there = |name: &str| names.iter().any(|other| other == name);
    for name in [
        "_G",
        "cjson.new",
        "redis.call",
        "string.gsub",
        "cmsgpack.pack",
        "bit.band",
    ] {
        assert!(is_there(name), "{name}: {names:?}");
        assert!(before.len() > names.len(), "{before:?}");
    }
    for first in 0..names.len() {
        let mut args: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        args.swap(0, first);
        let name = &names[first];
        assert_eq!(ours(&vm, "writes", WRITES, &args), "ERR x", "{name}");
        unchanged(&before, &vm, name);
    }
}

#[test]
fn what_a_script_raises_is_not_written_into() {
    let vm = Vm::new(64 << 20, || Verdict::Go).unwrap();
    let before = kept(&vm);
    for (at, name) in reachable(&vm).iter().enumerate() {
        for text in [
            format!("error({name})"),
            format!("\nlocal t = setmetatable({{}}, {{__index = {name}}}) error(t, 0)"),
            format!("coroutine.wrap(function() error({name}, 2) end)()"),
            format!("return pcall(error, {name})"),
        ] {
            let run = Run {
                name: &format!("raises {at} {text}"),
                text: text.as_bytes(),
                keys: &[],
                args: &[],
                leash: None,
            };
            let ended = vm.run(run, &mut Nobody);
            let is_caught = text.starts_with("return pcall");
            assert_eq!(
                matches!(ended, Ended::Done(_)),
                is_caught,
                "{text}: {ended:?}"
            );
            unchanged(&before, &vm, &text);
        }
    }
    // The place is told of a table of the script's own, and what the table says.
    let run = Run {
        name: "own",
        text: b"\nerror({err = 'MY error'})",
        keys: &[],
        args: &[],
        leash: None,
    };
    let told = "MY error script: own, on @user_script:2.";
    assert_eq!(vm.run(run, &mut Nobody), Ended::Failed(told.into()));
    let run = Run {
        name: "own with a metatable",
        text: b"\nerror(setmetatable({err = 'MY error'}, {}))",
        keys: &[],
        args: &[],
        leash: None,
    };
    let told = "MY error script: own with a metatable, on @user_script:2.";
    assert_eq!(vm.run(run, &mut Nobody), Ended::Failed(told.into()));
}

/// A library is no way to the globals of scripts, whatever it removes of its own.
#[test]
fn a_library_reaches_nothing_of_scripts() {
    let vm = Vm::new(64 << 20, || Verdict::Go).unwrap();
    let before = kept(&vm);
    let text = b"_G = nil redis.register_function('f', function() \
        return tostring(pcall(function() _G.KEYS = 'theirs' return _G.KEYS end)) .. tostring(pcall(function() return KEYS end)) end)";
    let registered = vm.load(1, text, None);
    // `_G` is the library's own, and is not written to while it is loaded either, or the library may do without.
    if registered.is_ok() {
        let call = Fcall {
            library: 1,
            text,
            function: "f",
            keys: &[],
            args: &[],
            leash: None,
        };
        match vm.call(call, &mut Nobody) {
            Ended::Done(Answer::Bulk(text)) => assert_eq!(text, b"falsefalse"),
            other => panic!("{other:?}"),
        }
    }
    for text in ["error(redis)", "error(_G)", "error(string)"] {
        assert!(vm.load(2, text.as_bytes(), None).is_err());
    }
    unchanged(&before, &vm, "a library");
}

/// Answers with as many texts as the argument says.
struct Many(Vec<Vec<u8>>);

impl Host for Many {
    fn call(&mut self, call: Call<'_>) -> Result<Value<'_>, Stop> {
        let text = std::str::from_utf8(call.args[1]).unwrap();
        let texts = 0..text.parse::<usize>().unwrap();
        self.0 = texts.map(|n| format!("text {n}").into_bytes()).collect();
        let all: Vec<Value<'_>> = self.0.iter().map(|text| Value::Bulk(text)).collect();
        Ok(Value::Map(vec![(Value::Bulk(b"all"), Value::Array(all))]))
    }

    fn log(&mut self, _: u8, _: &[u8]) {}
}

/// Where texts collide each costs as much as there are: what is made of many is looked at on the way.
#[test]
fn arguments_replies_and_decoded_values_are_looked_at_while_they_are_made() {
    const MANY: usize = 3_200;
    let texts: Vec<Vec<u8>> = (0..MANY).map(|n| format!("arg {n}").into_bytes()).collect();
    let args: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
    let many = format!("{MANY}").into_bytes();
    let json = format!("[{}1]", "1,".repeat(MANY)).into_bytes();
    for (what, text, args) in [
        ("arguments", "return 1", &args[..]),
        (
            "a reply",
            "return redis.call('x', ARGV[1]) and 1",
            &[&many[..]],
        ),
        (
            "JSON",
            "return #cjson.decode(ARGV[1]) > 0 and 1",
            &[&json[..]],
        ),
    ] {
        let looks = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = looks.clone();
        let watch = move || {
            seen.set(seen.get() + 1);
            Verdict::Go
        };
        let vm = Vm::new(64 << 20, watch).unwrap();
        let run = Run {
            name: what,
            text: text.as_bytes(),
            keys: &[],
            args,
            leash: None,
        };
        let ended = vm.run(run, &mut Many(Vec::new()));
        assert_eq!(ended, Ended::Done(Answer::Integer(1)), "{what}");
        assert!(looks.get() >= MANY as u32 / 128, "{what}: {}", looks.get());
    }
}

#[test]
fn a_script_on_a_leash_ends_where_it_needs_more_whoever_catches_that() {
    const LEASH: usize = 256 << 10;
    const LARGE: &[&str] = &[
        "local t = {} for i = 1, 100000 do t[i .. ''] = i end return 1",
        "return {pcall(function() local t = {} for i = 1, 100000 do t[i] = i end end)}",
        "return xpcall(function() return string.rep('a', 1e6) end, function(e) return 1 end)",
        "return coroutine.resume(coroutine.create(function() return string.rep('a', 1e6) end))",
        "while true do pcall(string.rep, 'a', 1e6) end",
        "return redis.call('x', '20000')",
        "return #cjson.decode('[' .. string.rep('\"abcdefgh\",', 20000) .. '1]')",
    ];
    let vm = Vm::new(64 << 20, || Verdict::Go).unwrap();
    let run = |text: &str, args: &[&[u8]], leash| {
        let run = Run {
            name: text,
            text: text.as_bytes(),
            keys: &[],
            args,
            leash,
        };
        vm.run(run, &mut Many(Vec::new()))
    };
    for text in LARGE {
        assert_eq!(run(text, &[], Some(LEASH)), Ended::Outgrown, "{text}");
    }
    // The bytes of arguments and of replies of few values count for nothing, and what is small is done.
    let large = vec![b'a'; 1 << 20];
    let done = Ended::Done(Answer::Integer(1));
    for text in ["return #ARGV", "return redis.call('x', '200') and 1"] {
        assert_eq!(run(text, &[&large], Some(LEASH)), done, "{text}");
    }
    // Without one, or behind one.
    let text = LARGE[0];
    assert_eq!(run(text, &[], None), done);
    let library = b"local t = {} for i = 1, 100000 do t[i] = i end redis.register_function('f', function() end)";
    assert_eq!(vm.load(1, library, Some(LEASH)), Err(NotLoaded::Outgrown));
    assert!(!vm.has_library(1));
    assert_eq!(vm.load(1, library, None).unwrap().len(), 1);
    // A host that releases the leash lets the script take all memory.
    struct Releases(crate::Leash);
    impl Host for Releases {
        fn call(&mut self, _: Call<'_>) -> Result<Value<'_>, Stop> {
            self.0.release();
            Ok(Value::Nil)
        }

        fn log(&mut self, _: u8, _: &[u8]) {}
    }
    let text = "redis.call('x') local t = {} for i = 1, 100000 do t[i .. ''] = i end return 1";
    let run = Run {
        name: text,
        text: text.as_bytes(),
        keys: &[],
        args: &[],
        leash: Some(LEASH),
    };
    assert_eq!(vm.run(run, &mut Releases(vm.leash())), done);
}
