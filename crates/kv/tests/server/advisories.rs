//! What was published against the Lua of Redis, each by its number: the script that did harm there does none here.
//! What answers beside the errors that are named is not looked at; that the server serves on is.

use crate::common::World;

/// A new server and what it answers to hostile scripts; it serves on, and another script is none the wiser.
#[track_caller]
fn attack(scripts: &[&str]) -> Vec<String> {
    let mut world = World::new();
    let mut c = world.client();
    world.check(&mut c, "CONFIG SET busy-reply-threshold 200", "+OK|");
    world.check(&mut c, "CONFIG SET script-memory-limit 8mb", "+OK|");
    let mut answers = Vec::new();
    for script in scripts {
        println!("{script:.200}");
        answers.push(world.ask_args(&mut c, &["EVAL", script, "0"]));
        let mut other = world.client_of(1);
        world.check(&mut other, "SET k v", "+OK|");
        let alive =
            "collectgarbage() collectgarbage() return redis.call('get', 'k') .. #('x'):rep(3)";
        let answer = world.ask_args(&mut c, &["EVAL", alive, "0"]);
        assert_eq!(answer, "$2|v3|", "{script}");
    }
    answers
}

#[track_caller]
fn refused(scripts: &[&str]) {
    for (script, answer) in scripts.iter().zip(attack(scripts)) {
        assert!(answer.starts_with("-ERR"), "{script}: {answer}");
    }
}

/// A function with many fixed and variable arguments wrote beyond the interpreter's stack.
#[test]
fn cve_2014_5461() {
    let names: Vec<String> = (0..60).map(|n| format!("a{n}")).collect();
    let deep = format!(
        "local function f({}, ...) local d = ... if not d or d == 0 then return 1 end return 1 + f({}, d - 1) end \
         return f({}, 100)",
        names.join(", "),
        names.join(", "),
        vec!["1"; 60].join(", ")
    );
    let without = format!(
        "local function f({}, ...) return select('#', ...) end for i = 1, 1000 do f() coroutine.wrap(f)() end return 1",
        names.join(", ")
    );
    attack(&[&deep, &without]);
}

/// Bytecode read and wrote any memory.
#[test]
fn cve_2015_4335() {
    let answers = attack(&[
        "return tostring(loadstring('\u{1b}LuaQ\\0\\1\\4\\8\\4\\8\\0'))",
        "return tostring(loadstring(string.char(27) .. 'Lua'))",
        "local n = 0 return tostring(load(function() n = n + 1 return ({string.char(27), 'LuaQ'})[n] end))",
        "return tostring(string.dump)",
        "return tostring(('').dump)",
    ]);
    assert!(
        answers.iter().all(|answer| answer == "$3|nil|"),
        "{answers:?}"
    );
    refused(&["\u{1b}LuaQ"]);
}

/// `cmsgpack` and `struct` wrote beyond the stack and read beyond their input; `cjson` and `cmsgpack` beyond the heap.
#[test]
fn cve_2018_11218_and_2018_11219_and_2022_24834() {
    attack(&[
        "return cmsgpack.pack(unpack({1, 2, 3, 4, 5}, 1, 5))",
        "local t = {} for i = 1, 7000 do t[i] = i end return #cmsgpack.pack(unpack(t))",
        "local t = {} for i = 1, 7000 do t[i] = i end return select('#', cmsgpack.unpack(cmsgpack.pack(unpack(t))))",
        "return {cmsgpack.unpack(('\\220\\255\\255'):rep(1000))}",
        "return {cmsgpack.unpack('\\219\\255\\255\\255\\255')}",
        "return {cmsgpack.unpack_limit(cmsgpack.pack({1, 2, 3}), 1, -1)}",
        "return {cmsgpack.unpack_one('\\1\\2\\3', 2147483647)}",
        "return {cmsgpack.unpack_one('\\1\\2\\3', -2147483648)}",
        "return {struct.unpack('c0', '\\255')}",
        "return {struct.unpack('Bc0', '\\255x')}",
        "return {struct.unpack('I4c0', '\\255\\255\\255\\255x')}",
        "return {struct.unpack('i4', 'xxxx', 2147483647)}",
        "return {struct.unpack('i4', 'xxxx', -2147483648)}",
        "return #cjson.encode({('\\\\'):rep(2^20)})",
        "return cjson.encode({[('x'):rep(2^20)] = ('\\1'):rep(2^18)})",
        "cjson.encode_keep_buffer(false) return #cjson.encode(('\\127'):rep(2^20))",
        "cjson.encode_number_precision(14) return cjson.encode({1e308, -1e308, 2^53})",
        "return cjson.encode_number_precision(2^31)",
        "return cjson.decode('[' .. ('9'):rep(2^20) .. ']')",
    ]);
}

/// A size in a format of `struct` was an int that came round.
#[test]
fn cve_2020_14147() {
    refused(&[
        "return struct.pack('>I2147483648', '10')",
        "return struct.pack('>I4294967295', '10')",
        "return struct.unpack('>I2147483648', '10')",
        "return struct.pack('i' .. ('9'):rep(1000), 1)",
        "return struct.unpack('c2147483648', 'x')",
        "return struct.size('!2147483648 i4')",
    ]);
}

/// What nests deep in an answer, in a reply or in JSON went beyond the interpreter's stack.
#[test]
fn cve_2021_32626() {
    attack(&[
        "local t = {} for i = 1, 100000 do t = {t} end return t",
        "local t = {} for i = 1, 100000 do t = {map = {a = t}} end redis.setresp(3) return t",
        "local t = {} for i = 1, 100000 do t = {set = {[t] = true}} end redis.setresp(3) return t",
        "local a = {} for i = 1, 7900 do a[i] = 'x' end return redis.call('echo', unpack(a))",
        "local a = {} for i = 1, 7900 do a[i] = 'x' end return redis.call(unpack(a))",
        "local a = {'rpush', 'l'} for i = 3, 7000 do a[i] = 'x' end redis.call(unpack(a)) return #redis.call('lrange', 'l', 0, -1)",
        "local f = redis.pcall for i = 1, 20000 do local g = f f = function(...) return g(...) end end return f('get', 'k')",
        "local t = {} for i = 1, 100000 do t = setmetatable({}, {__index = t}) end return t.x",
        "local t = {} for i = 1, 100000 do t = setmetatable({}, {__index = t, __call = t}) end return t()",
        "local s = ('('):rep(190) .. '1' .. (')'):rep(190) return loadstring('return ' .. s)()",
    ]);
}

/// Any connected client could speak to a debugger: there is none.
#[test]
fn cve_2021_32672() {
    let mut world = World::new();
    let mut c = world.client();
    let answer = world.ask(&mut c, "SCRIPT DEBUG YES");
    assert!(answer.starts_with("-ERR"), "{answer}");
}

/// Debian's package left `package` where scripts found it.
#[test]
fn cve_2022_0543() {
    refused(&[
        "return package.loadlib('liblua5.1.so.0', 'luaopen_io')",
        "return io.popen('id')",
        "return debug.getregistry()",
        "return require('os')",
        "return os.execute('id')",
        "return module",
    ]);
}

/// What one script left behind ran with the rights of the next: of tables, of globals, of the metatables of all strings,
/// numbers, functions and nothing.
#[test]
fn cve_2022_24735_and_2025_46818() {
    // What is made for one run may be changed by it.
    attack(&[
        "redis.call = function() return 'mine' end",
        "redis.pcall = nil",
        "_G.redis = {}",
        "KEYS = nil",
    ]);
    refused(&[
        "string.rep = function() return 'mine' end",
        "getmetatable('').__index = function() return 'mine' end",
        "getmetatable('').__index.rep = function() return 'mine' end",
        "getmetatable(1).__index = 1",
        "getmetatable(nil).__index = 1",
        "getmetatable(true).__call = 1",
        "getmetatable(print).__call = 1",
        "getmetatable(function() end).__index = 1",
        "getmetatable(coroutine.create(function() end)).__index = 1",
        "getmetatable(cjson.null).__index = 1",
        "setmetatable('', {__index = {rep = 1}})",
        "setmetatable(_G, {__index = function() return 'mine' end})",
        "rawset(redis, 'call', 1) rawset(string, 'rep', 1) error('end')",
        "local e = getmetatable(_G).__index e.tostring = 1",
        "setfenv(1, {})",
        "getfenv(0).redis = nil",
        "table.insert(string, 1, 'x') error('end')",
    ]);
}

/// Texts that are no scripts.
#[test]
fn cve_2022_24736() {
    let long = format!(
        "local {} = 1",
        (0..300)
            .map(|n| format!("a{n}"))
            .collect::<Vec<_>>()
            .join(",")
    );
    let consts: String = (0..70_000).map(|n| format!("'{n}',")).collect();
    let many = format!("return #{{{consts}}}");
    let upvalues: String = (0..100).map(|n| format!("local u{n} = {n} ")).collect();
    let used: String = (0..100).map(|n| format!("u{n} + ")).collect();
    let upvalues = format!("{upvalues} return function() return {used} 1 end");
    attack(&[
        "",
        "\n",
        "--",
        "--[[",
        "--[==[ ]=]",
        "return",
        "return return",
        "return (",
        "'",
        "\"\\",
        "[[",
        "[=[",
        "goto x",
        "break",
        "function",
        "for",
        "local function",
        "a.b:c = 1",
        "return ...",
        "\0",
        "return 1\0garbage",
        "#!",
        "#!lua",
        "#!lua\n",
        "#!lua flags=\n",
        "return {f = function(self) end}:f()",
        "x = = 1",
        "::a::",
        &long,
        &many,
        &upvalues,
    ]);
}

/// The least number of digits had no opposite.
#[test]
fn cve_2024_31449() {
    let answers = attack(&[
        "return bit.tohex(65535, -2147483648)",
        "return bit.tohex(65535, -2147483647)",
    ]);
    assert_eq!(answers, ["$8|0000FFFF|"; 2]);
}

/// The collector and what it finalises: scripts have neither finalisers nor its settings.
#[test]
fn cve_2024_46981() {
    let answers = attack(&[
        "local t = setmetatable({}, {__gc = function() redis.call('set', 'k', 'gc') end}) t = nil collectgarbage() return 1",
        "local co = coroutine.wrap(function() collectgarbage() coroutine.yield(1) end) co() co = nil collectgarbage() return 1",
        "for i = 1, 100 do local co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co) end collectgarbage() return 1",
        "local t = setmetatable({}, {__mode = 'kv'}) for i = 1, 1000 do t[{}] = {} end collectgarbage() return 1",
        "collectgarbage('setpause', 0) collectgarbage('setstepmul', 1e9) collectgarbage('stop') return 1",
    ]);
    assert_eq!(answers, [":1|"; 5]);
    refused(&["newproxy(true)"]);
}

/// The parser read the name of a chunk that the collector had taken.
#[test]
fn cve_2025_49844() {
    attack(&[
        "for i = 1, 300 do local f = loadstring('collectgarbage() return ' .. i, ('name'):rep(50) .. i) collectgarbage() f() end return 1",
        "local n = 0 local f = load(function() n = n + 1 collectgarbage() return ({'return ', '{', '1', '}'})[n] end, ('x'):rep(100)) collectgarbage() return #f()",
        "local t = {} for i = 1, 2000 do t[i] = ('s'):rep(100) .. i end local f = loadstring('local function g() error() end return g', '=' .. t[7]) t = nil collectgarbage() return {pcall(f())}",
        "return {pcall(loadstring('error()', ('y'):rep(5000)))}",
        "return tostring(loadstring('x x', ('z'):rep(5000)))",
    ]);
}

/// The number of results came round.
#[test]
fn cve_2025_46817() {
    refused(&[
        "return {unpack({1, 2, 3}, -2, 2147483647)}",
        "return {unpack({}, 0, 2147483647)}",
        "return {unpack({}, -2147483648, 2147483647)}",
        "return {unpack({}, -2147483648, 0)}",
        "return {unpack({}, 2147483646, 1e10)}",
        "return {unpack({}, -1e308, 1e308)}",
    ]);
    let empty = attack(&[
        "return {unpack({}, 5, 1)}",
        "return {unpack({1}, 2147483647, 2147483646)}",
    ]);
    assert_eq!(empty, ["*0|"; 2]);
}

/// A long bracket that did not end was read beyond the text.
#[test]
fn cve_2025_46819() {
    let equals = "=".repeat(1 << 20);
    let texts = [
        format!("return [{equals}"),
        format!("return [{equals}["),
        format!("return [{equals}[x]{equals}"),
        format!("--[{equals}"),
        format!("return [{equals}[]{}]", &equals[1..]),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let answers = attack(&texts);
    assert_eq!(answers[3], "$-1|");
    for (at, answer) in answers.iter().enumerate().filter(|(at, _)| *at != 3) {
        assert!(answer.starts_with("-ERR"), "{at}: {answer:.100}");
    }
    attack(&[
        "return loadstring('return [' .. ('='):rep(2^20))",
        "return loadstring('return [' .. ('='):rep(2^20) .. '[x]' .. ('='):rep(2^20) .. ']')()",
    ]);
}
