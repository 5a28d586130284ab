//! Libraries of functions on the simulated network, in transactions and between loops, and what they may not.

use crate::common::{World, on_every_shape};

const LIBRARY: &str = "#!lua name=lib\n\
    local calls = 0\n\
    redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)\n\
    redis.register_function{function_name='look', callback=function(keys) calls = calls + 1 return {redis.call('get', keys[1]), calls} end, \
    flags={'no-writes'}, description='looks'}";

#[test]
fn a_library_is_loaded_called_replaced_and_removed() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let mut other = world.client_of(1);
        assert_eq!(
            world.ask_args(&mut c, &["FUNCTION", "LOAD", LIBRARY]),
            "$3|lib|"
        );
        assert_eq!(
            world.ask_args(&mut c, &["FUNCTION", "LOAD", LIBRARY]),
            "-ERR Library 'lib' already exists|"
        );
        assert_eq!(
            world.ask_args(&mut c, &["FUNCTION", "LOAD", "REPLACE", LIBRARY]),
            "$3|lib|"
        );
        world.check(&mut other, "FCALL put 1 k v", "+OK|");
        world.check(&mut c, "FCALL_RO look 1 k", "*2|$1|v|:1|");
        world.check(&mut c, "FCALL LOOK 1 k", "*2|$1|v|:2|");
        world.check(
            &mut c,
            "FCALL_RO put 1 k w",
            "-ERR Can not execute a script with write flag using *_ro command.|",
        );
        world.check(&mut c, "FCALL nothing 0", "-ERR Function not found|");
        world.check(
            &mut c,
            "FCALL put",
            "-ERR wrong number of arguments for 'fcall' command|",
        );
        world.check(&mut c, "FCALL put x 1", "-ERR Bad number of keys provided|");
        world.check(
            &mut c,
            "FCALL put -1 1",
            "-ERR Number of keys can't be negative|",
        );
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "FCALL put 1 k w", "+QUEUED|");
        world.check(&mut c, "FUNCTION DELETE lib", "+QUEUED|");
        world.check(&mut c, "FCALL put 1 k w", "+QUEUED|");
        world.check(&mut c, "EXEC", "*3|+OK|+OK|-ERR Function not found|");
        world.check(&mut other, "FCALL put 1 k w", "-ERR Function not found|");
        world.check(&mut other, "FUNCTION DELETE lib", "-ERR Library not found|");
        world.check(&mut other, "GET k", "$1|w|");
        let stats = "*4|$14|running_script|$-1|$7|engines|*2|$3|LUA|*4|$15|libraries_count|:0|$15|functions_count|:0|";
        world.check(&mut other, "FUNCTION STATS", stats);
    });
}

#[test]
fn what_is_dumped_is_restored_by_the_policy() {
    let mut world = World::new();
    let mut c = world.client();
    world.ask_args(&mut c, &["FUNCTION", "LOAD", LIBRARY]);
    let other = "#!lua name=other\nredis.register_function('one', function() return 1 end)";
    world.ask_args(&mut c, &["FUNCTION", "LOAD", other]);
    let listed = world.ask(&mut c, "FUNCTION LIST LIBRARYNAME o* WITHCODE");
    assert_eq!(
        listed,
        format!(
            "*1|*8|$12|library_name|$5|other|$6|engine|$3|LUA|$9|functions|*1|*6|$4|name|$3|one|\
             $11|description|$-1|$5|flags|*0|$12|library_code|${}|{other}|",
            other.len()
        )
    );
    let before = world.sim.received(c.peer).len();
    world.sim.send(c.peer, b"FUNCTION DUMP\r\n");
    let _ = world.answer(&mut c);
    let dumped = world.sim.received(c.peer)[before..].to_vec();
    let head = dumped.iter().position(|b| *b == b'\n').unwrap() + 1;
    let dump = dumped[head..dumped.len() - 2].to_vec();
    let restore = |world: &mut World, c: &mut crate::common::Client, policy: &str, dump: &[u8]| {
        let mut bytes = format!(
            "*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n${}\r\n",
            dump.len()
        )
        .into_bytes();
        bytes.extend_from_slice(dump);
        bytes.extend_from_slice(format!("\r\n${}\r\n{policy}\r\n", policy.len()).as_bytes());
        world.sim.send(c.peer, &bytes);
        world.answer(c)
    };
    let there = "-ERR Library lib already exists|";
    assert_eq!(restore(&mut world, &mut c, "APPEND", &dump), there);
    assert_eq!(restore(&mut world, &mut c, "REPLACE", &dump), "+OK|");
    world.check(&mut c, "FUNCTION DELETE lib", "+OK|");
    assert_eq!(restore(&mut world, &mut c, "FLUSH", &dump), "+OK|");
    world.check(&mut c, "FCALL one 0", ":1|");
    world.check(&mut c, "FUNCTION FLUSH", "+OK|");
    assert_eq!(restore(&mut world, &mut c, "APPEND", &dump), "+OK|");
    world.check(&mut c, "FCALL one 0", ":1|");
    let wrong = "-ERR DUMP payload version or checksum are wrong|";
    for at in 0..dump.len() {
        let mut bad = dump.clone();
        bad[at] ^= 0x20;
        assert_eq!(restore(&mut world, &mut c, "REPLACE", &bad), wrong, "{at}");
    }
    world.check(&mut c, "FCALL one 0", ":1|");
}

#[test]
fn a_library_that_is_none_is_refused_and_leaves_nothing() {
    let mut world = World::new();
    let mut c = world.client();
    for (text, error) in [
        ("return 1", "Missing library metadata"),
        ("#!lua name=x", "Invalid library metadata"),
        ("#!lua\nreturn 1", "Library name was not given"),
        ("#!js name=x\nreturn 1", "Engine 'js' not found"),
        (
            "#!lua name=x foo=1\nreturn 1",
            "Invalid metadata value given: foo=1",
        ),
        (
            "#!lua name=a-b\nreturn 1",
            "Library names can only contain letters",
        ),
        ("#!lua name=x\nreturn 1", "No functions registered"),
        ("#!lua name=x\nreturn 1 +", "Error compiling function: "),
        (
            "#!lua name=x\nredis.call('set', 'k', 'v')",
            "Error registering functions: ",
        ),
        (
            "#!lua name=x\nredis.register_function('f', 1)",
            "Error registering functions: ",
        ),
        (
            "#!lua name=x\nredis.register_function('', function() end)",
            "Error registering functions: ",
        ),
        ("#!lua name=x\nfoo = 1", "Error registering functions: "),
        (
            "#!lua name=x\nredis.register_function{function_name='f', callback=function() end, flags={'no'}}",
            "Error registering functions: ",
        ),
        (
            "#!lua name=x\nfor i = 1, 2 do redis.register_function('f', function() end) end",
            "Error registering functions: ",
        ),
        ("#!lua name=x\nwhile true do end", "FUNCTION LOAD timeout"),
        (
            "#!lua name=x\nwhile true do pcall(function() while true do end end) end",
            "FUNCTION LOAD timeout",
        ),
        ("#!lua name=x\n\u{1b}Lua", "Error compiling function: "),
    ] {
        let answer = world.ask_args(&mut c, &["FUNCTION", "LOAD", text]);
        assert!(
            answer.starts_with(&format!("-ERR {error}")),
            "{text}: {answer}"
        );
        world.check(&mut c, "FUNCTION LIST", "*0|");
        world.check(&mut c, "EXISTS k", ":0|");
    }
}

#[test]
fn functions_find_only_what_is_for_them_and_leave_nothing_for_scripts() {
    let mut world = World::new();
    let mut c = world.client();
    let library = "#!lua name=x\nredis.register_function('f', function(keys, args) return loadstring(args[1])() end)";
    assert_eq!(
        world.ask_args(&mut c, &["FUNCTION", "LOAD", library]),
        "$1|x|"
    );
    for (text, answer) in [
        ("return type(redis.call)", "$8|function|"),
        ("return tostring(rawget(_G, 'KEYS'))", "$3|nil|"),
        (
            "return redis.register_function('g', function() end)",
            "-ERR redis.register_function can only be called on FUNCTION LOAD command",
        ),
        ("foo = 1", "-"),
        ("_G.foo = 1", "-"),
        ("rawset(_G, 'foo', 1)", "-"),
        ("string.foo = 1", "-"),
        ("redis.call = nil", "-"),
        ("setmetatable(_G, {})", "-"),
        ("getmetatable('').__index.foo = 1", "-"),
        ("return io", "-"),
        ("return tostring(getmetatable(_G))", "$5|false|"),
    ] {
        let got = world.ask_args(&mut c, &["FCALL", "f", "0", text]);
        assert!(got.starts_with(answer), "{text}: {got}");
    }
    let script = "return {tostring(rawget(_G, 'foo')), tostring(string.foo), redis.call('echo', 'here'), tostring(redis.register_function)}";
    assert_eq!(
        world.ask_args(&mut c, &["EVAL", script, "0"]),
        "*4|$3|nil|$3|nil|$4|here|$3|nil|"
    );
}
