//! Scripts on the simulated network: what they answer, what they may not, and that nothing of them stays.

use crate::common::{Client, World, on_every_shape};

impl World {
    /// Runs a script without keys.
    fn eval(&mut self, client: &mut Client, script: &str) -> String {
        self.ask_args(client, &["EVAL", script, "0"])
    }

    pub(crate) fn ask_args(&mut self, client: &mut Client, args: &[&str]) -> String {
        let mut bytes = format!("*{}\r\n", args.len());
        for arg in args {
            bytes += &format!("${}\r\n{arg}\r\n", arg.len());
        }
        self.sim.send(client.peer, bytes.as_bytes());
        self.answer(client)
    }
}

#[test]
fn a_script_answers_and_changes_keys() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        assert_eq!(world.eval(&mut c, "return 1"), ":1|");
        let set = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])";
        assert_eq!(
            world.ask_args(&mut c, &["EVAL", set, "1", "k", "v"]),
            "$1|v|"
        );
        world.check(&mut c, "GET k", "$1|v|");
        let hash = world.ask_args(&mut c, &["SCRIPT", "LOAD", set]);
        let hash = hash.trim_start_matches("$40|").trim_end_matches('|');
        assert_eq!(
            world.ask_args(&mut c, &["EVALSHA", hash, "1", "k", "w"]),
            "$1|w|"
        );
        let mut other = world.client_of(1);
        assert_eq!(
            world.ask_args(&mut other, &["EVALSHA", hash, "1", "k", "x"]),
            "$1|x|"
        );
        world.check(&mut c, "SCRIPT FLUSH", "+OK|");
        assert_eq!(
            world.ask_args(&mut other, &["EVALSHA", hash, "1", "k", "x"]),
            "-NOSCRIPT No matching script. Please use EVAL.|"
        );
    });
}

/// A new server, and the answer to a script that means no good; the server serves on.
#[track_caller]
fn attack(script: &str) -> String {
    attack_within(script, 50)
}

/// The script is stopped after this many milliseconds of real time.
#[track_caller]
fn attack_within(script: &str, limit_ms: u64) -> String {
    println!("{script}");
    let mut world = World::new();
    let mut c = world.client();
    let limit = format!("CONFIG SET busy-reply-threshold {limit_ms}");
    world.check(&mut c, &limit, "+OK|");
    world.check(&mut c, "CONFIG SET script-memory-limit 8mb", "+OK|");
    let answer = world.eval(&mut c, script);
    let mut other = world.client_of(1);
    world.check(&mut other, "SET k v", "+OK|");
    assert_eq!(
        world.eval(&mut c, "return 'alive'"),
        "$5|alive|",
        "{script}"
    );
    answer
}

const SLOW: &str = "-ERR Error running script: it took longer than busy-reply-threshold";

#[test]
fn a_loop_without_end_is_ended_whatever_it_catches() {
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() while true do pcall(f2 or function() while true do end end) end end \
         while true do pcall(f) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local co = coroutine.wrap(function() while true do end end) co()",
        "while true do local co = coroutine.create(function() while true do end end) \
         coroutine.resume(co) end",
        "while true do coroutine.wrap(function() coroutine.yield() end)() end",
        "while true do redis.pcall('get', 'k') end",
        "while true do pcall(string.rep, 'x', 2^30) end",
        "while true do pcall(error) end",
        "local s = string.rep('', 2^31 - 1) while true do end",
        "while true do loadstring('return 1') end",
    ] {
        let answer = attack(script);
        assert!(answer.starts_with(SLOW), "{script}: {answer}");
    }
}

#[test]
fn memory_of_scripts_is_bounded() {
    for script in [
        "local t = {} while true do t[#t + 1] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 2^30)",
        "return #string.rep(string.rep('x', 2^20), 2^12)",
        "local t = {} for i = 1, 2^20 do t[i] = 'x' .. i end local s = table.concat(t) return #(s:rep(100))",
        "local function f(...) return f(1, ...) end return f()",
        "return cjson.encode(string.rep('\\1', 2^22))",
        "local t = {} for i = 1, 30 do t = {t, t} end return cjson.encode(t)",
        "local t = {} for i = 1, 30 do t = {t, t} end return t",
        "local t = {} for i = 1, 30 do t = {t, t} end return {map = {a = t}}",
        "local t = {} t[1] = t return cjson.encode(t)",
        "local f = function() end for i = 1, 2^22 do f = coroutine.wrap(f) end",
        "return struct.pack(string.rep('i32', 2^20), 1)",
        "return {unpack({}, 1, 2^31 - 1)}",
        "return {unpack({}, -2^31, 2^31 - 1)}",
        "return {unpack({}, 1, 1e300)}",
        "return {unpack({}, '-2147483648', '2147483647')}",
        "return {unpack({1, 2, 3}, -2147483648)}",
        "return {unpack({}, 0/0, 1)}",
        "return string.rep('x', '1e12')",
        "return string.rep(1, 1e12)",
        "return {struct.unpack(string.rep('b', 2^20), string.rep('x', 2^20))}",
        "return {cmsgpack.unpack(string.rep('\\1', 2^20))}",
        "return {('x'):rep(2^20):byte(1, -1)}",
    ] {
        let answer = attack(script);
        assert!(answer.starts_with("-ERR"), "{script}: {answer}");
    }
}

#[test]
fn what_nests_deep_is_refused_or_cut() {
    for script in [
        "return cjson.decode(string.rep('[', 2^20))",
        "return cjson.decode(string.rep('{\"a\":', 2^16))",
        "local t = {} for i = 1, 2^16 do t = {t} end return cjson.encode(t)",
        "return cmsgpack.unpack(string.rep('\\145', 2^20))",
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
        "return loadstring(string.rep('(', 2^16))()",
        "return loadstring('return ' .. string.rep('{', 2^16))()",
        "local function f() return 1 + f() end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end return t.x",
        "local function f() return pcall(f) and 1 end f() error('end')",
        "local function f() local ok, e = pcall(f) if not ok then error(e, 0) end end f() error('end')",
        "return string.find(string.rep('a', 2^18), string.rep('(a', 40))",
        "local function f() return (string.gsub('x', '.', f)) end return f()",
        "local t = setmetatable({}, {__index = function(t) return (string.gsub('x', '.', t)) end}) return t.x",
    ] {
        let answer = attack(script);
        assert!(answer.starts_with("-ERR"), "{script}: {answer}");
    }
    // The script ends by itself: the limit of time is out of the way, however slow the machine is.
    let deep = attack_within(
        "local t = {} for i = 1, 2^14 do t = {t} end return t",
        600_000,
    );
    assert!(deep.contains("-ERR reached lua stack limit"), "{deep:.60}");
    let _ = attack("local t = {} t[1] = t return t");
    let _ = attack("local t = {} for i = 1, 2^14 do t = {t} end return cmsgpack.pack(t)");
    let _ = attack("return bit.tohex(65535, -2147483648)");
}

#[test]
fn scripts_find_only_what_is_for_them() {
    for (name, there) in [
        ("io", false),
        ("debug", false),
        ("package", false),
        ("require", false),
        ("module", false),
        ("dofile", false),
        ("loadfile", false),
        ("getfenv", false),
        ("setfenv", false),
        ("newproxy", false),
        ("print", false),
        ("os", true),
        ("bit", true),
    ] {
        let mut world = World::new();
        let mut c = world.client();
        let answer = world.eval(&mut c, &format!("return type({name})"));
        assert_eq!(answer.starts_with('$'), there, "{name}: {answer}");
    }
    let mut world = World::new();
    let mut c = world.client();
    for (script, answer) in [
        (
            "return {type(os.clock()), os.execute == nil, os.exit == nil, os.getenv == nil}",
            "*4|$6|number|:1|:1|:1|",
        ),
        ("return string.dump == nil", ":1|"),
        ("return tostring(loadstring('\u{1b}Lua'))", "$3|nil|"),
        (
            "return tostring(load(function() return nil end) ~= nil)",
            "$4|true|",
        ),
        ("return tostring(getmetatable(''))", "$5|false|"),
        ("return tostring(getmetatable(_G))", "$5|false|"),
        ("return type(collectgarbage('stop'))", "$6|number|"),
    ] {
        assert_eq!(world.eval(&mut c, script), answer, "{script}");
    }
}

#[test]
fn nothing_of_a_script_stays_for_the_next() {
    let mut world = World::new();
    let mut c = world.client();
    for script in [
        "foo = 1",
        "_G.foo = 1",
        "rawset(_G, 'foo', 1)",
        "setmetatable(_G, {__index = function() return 1 end})",
        "loadstring('foo = 1')()",
        "string.foo = 1",
        "rawset(string, 'foo', 1)",
        "getmetatable('').__index.foo = 1",
        "getmetatable('').foo = 1",
        "table.insert(_G, 1) table.insert(string, 1)",
        "table.insert(_G, 1, 1)",
        "table.insert(string, 1, 1)",
        "table.insert(redis, 1)",
        "string = nil",
        "redis, cjson = nil, nil",
        "KEYS, ARGV = nil, nil",
        "table.sort(KEYS) table.remove(_G) table.remove(string)",
        "redis.call = nil",
        "redis.foo = 1",
        "rawset(redis, 'foo', 1)",
        "cjson.encode_max_depth(1) cjson.encode_sparse_array(true)",
        "KEYS.foo = 1 ARGV[1] = 2",
        "getmetatable(_G).__index = nil",
        "coroutine.wrap(function() foo = 1 end)()",
        "for k in pairs(_G) do _G[k] = nil end",
        "redis.setresp(3)",
        "math.randomseed(5)",
    ] {
        let _ = world.eval(&mut c, script);
        let all = "return {tostring(rawget(_G, 'foo')), tostring(string.foo), tostring(redis.foo), \
                   tostring(('').foo), tostring(rawget(_G, 1)), tostring(string[1]), cjson.encode({{{1}}}), \
                   redis.call('echo', 'here'), #KEYS, #ARGV, type(redis.call('get', 'none'))}";
        let answer = world.eval(&mut c, all);
        let nothing =
            "*11|$3|nil|$3|nil|$3|nil|$3|nil|$3|nil|$3|nil|$7|[[[1]]]|$4|here|:0|:0|$7|boolean|";
        assert_eq!(answer, nothing, "{script}");
    }
}

#[test]
fn scripts_stand_in_transactions_and_end_watches() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let mut other = world.client_of(1);
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "SET k 1", "+QUEUED|");
        let incr = "return redis.call('incr', 'undeclared') + redis.call('incr', 'k')";
        assert_eq!(world.eval(&mut c, incr), "+QUEUED|");
        world.check(
            &mut c,
            "EVAL nonsense",
            "-ERR wrong number of arguments for 'eval' command|",
        );
        world.check(
            &mut c,
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.|",
        );
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "SET k 1", "+QUEUED|");
        assert_eq!(world.eval(&mut c, incr), "+QUEUED|");
        world.check(&mut c, "EXEC", "*2|+OK|:3|");
        world.check(&mut c, "WATCH k", "+OK|");
        assert_eq!(world.eval(&mut other, incr), ":5|");
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "PING", "+QUEUED|");
        world.check(&mut c, "EXEC", "*-1|");
        world.send(&c, "BLPOP q 0");
        assert_eq!(world.answer(&mut c), "");
        assert_eq!(
            world.eval(&mut other, "return redis.call('rpush', 'q', 'x')"),
            ":1|"
        );
        assert_eq!(world.answer(&mut c), "*2|$1|q|$1|x|");
        assert_eq!(
            world.eval(&mut c, "return redis.call('blpop', 'q', 0)"),
            "$-1|"
        );
        world.check(
            &mut c,
            "SCRIPT KILL",
            "-NOTBUSY No scripts in execution right now.|",
        );
        world.check(&mut c, "COMMAND GETKEYS EVAL x 2 a b c", "*2|$1|a|$1|b|");
    });
}

#[test]
fn what_a_script_publishes_is_bounded() {
    on_every_shape(|| {
        let mut world = World::new();
        let (mut c, mut listener) = (world.client(), world.client_of(1));
        world.check(&mut c, "CONFIG SET script-memory-limit 1mb", "+OK|");
        world.ask(&mut listener, "SUBSCRIBE ch");
        let script = "for n = 1, 100 do local r = redis.pcall('publish', 'ch', string.rep('x', 50000)) \
                      if type(r) == 'table' and r.err then return {n, r.err} end end";
        let answer = world.eval(&mut c, script);
        let refused =
            "*2|:21|$89|ERR what the script publishes takes more than the memory of scripts";
        assert!(answer.starts_with(refused), "{answer}");
        assert_eq!(world.answer(&mut listener).matches("|message|").count(), 20);
        let stats = world.ask(&mut c, "INFO memory");
        assert!(stats.contains("scripts_out_of_memory:1"), "{stats}");
        // The next one has its own.
        let one = "return redis.call('publish', 'ch', string.rep('x', 50000))";
        assert_eq!(world.eval(&mut c, one), ":1|");
    });
}
