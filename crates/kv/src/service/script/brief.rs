//! Finds out whether the text of a script bounds the script's work.
//!
//! One that has written cannot be ended, nor begin anew elsewhere: half of what it does would stay, or be done twice. So one
//! writes on a loop only where each of its instructions runs at most once, and none of them takes long: it has no loop, it
//! calls nothing but what is known to be quick, and its text is short. All others write on the thread for scripts.

/// Bytes of the longest text that is looked at.
const TEXT_MAX: usize = 4 << 10;
/// Texts that may be joined: each join may double the text.
const JOINS_MAX: usize = 16;

/// Values behind a command that writes, of which each may be a long text.
const TEXTS_MAX: usize = 16;

/// Functions that may be called by this name, with the text in front of the name.
const CALLED: &[&str] = &[
    "redis.call",
    "redis.pcall",
    "redis.error_reply",
    "redis.status_reply",
    "redis.register_function",
    "redis.sha1hex",
    "redis.log",
    "redis.setresp",
    "server.call",
    "server.pcall",
    "math.abs",
    "math.ceil",
    "math.floor",
    "math.max",
    "math.min",
    "error",
    "tonumber",
    "tostring",
    "type",
    "unpack",
];

/// Words behind which a parenthesis is no call.
const NO_CALL: &[&str] = &[
    "and", "or", "not", "if", "elseif", "return", "function", "then", "else", "do", "in", "local",
];

/// Words that repeat code, or call a function without its name.
const NEVER: &[&str] = &[
    "for",
    "while",
    "repeat",
    "setmetatable",
    "getmetatable",
    "loadstring",
    "load",
    "pcall",
    "xpcall",
    "coroutine",
];

/// Commands that write nothing, and whose replies are a value or a few.
const READS_ONE: &[&str] = &[
    "bitcount",
    "bitpos",
    "dbsize",
    "echo",
    "exists",
    "expiretime",
    "geodist",
    "get",
    "getbit",
    "getrange",
    "hexists",
    "hget",
    "hlen",
    "hstrlen",
    "lindex",
    "llen",
    "pexpiretime",
    "pfcount",
    "ping",
    "pttl",
    "scard",
    "sismember",
    "strlen",
    "substr",
    "time",
    "ttl",
    "type",
    "xlen",
    "zcard",
    "zcount",
    "zlexcount",
    "zrank",
    "zrevrank",
    "zscore",
];

/// Commands that may write, and whose replies are a value or a few.
const WRITES_ONE: &[&str] = &[
    "append",
    "bitop",
    "copy",
    "decr",
    "decrby",
    "del",
    "expire",
    "expireat",
    "geoadd",
    "geosearchstore",
    "getdel",
    "getex",
    "getset",
    "hdel",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hset",
    "hsetnx",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "lmove",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "move",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "pfmerge",
    "psetex",
    "publish",
    "rename",
    "renamenx",
    "rpoplpush",
    "rpush",
    "rpushx",
    "sadd",
    "sdiffstore",
    "select",
    "set",
    "setbit",
    "setex",
    "setnx",
    "setrange",
    "sinterstore",
    "smove",
    "spublish",
    "srem",
    "sunionstore",
    "touch",
    "unlink",
    "xack",
    "xadd",
    "xdel",
    "xtrim",
    "zadd",
    "zdiffstore",
    "zincrby",
    "zinterstore",
    "zrangestore",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "zunionstore",
];

/// Of these commands those whose replies are numbers, or short.
const GIVES_NUMBERS: &[&str] = &[
    "append",
    "bitcount",
    "bitop",
    "bitpos",
    "copy",
    "dbsize",
    "decr",
    "decrby",
    "del",
    "exists",
    "expire",
    "expireat",
    "expiretime",
    "geoadd",
    "geodist",
    "getbit",
    "hdel",
    "hexists",
    "hincrby",
    "hincrbyfloat",
    "hlen",
    "hmset",
    "hset",
    "hsetnx",
    "hstrlen",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "llen",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pexpiretime",
    "pfadd",
    "pfcount",
    "psetex",
    "pttl",
    "publish",
    "rename",
    "rpush",
    "rpushx",
    "sadd",
    "scard",
    "select",
    "setbit",
    "setex",
    "setnx",
    "setrange",
    "sismember",
    "smove",
    "srem",
    "strlen",
    "time",
    "touch",
    "ttl",
    "type",
    "unlink",
    "xack",
    "xadd",
    "xdel",
    "xlen",
    "xtrim",
    "zadd",
    "zcard",
    "zcount",
    "zincrby",
    "zlexcount",
    "zrank",
    "zrem",
    "zrevrank",
    "zscore",
];

/// Commands whose reply is a value or two, unless they are asked for a number of them.
const POPS: &[&str] = &["lpop", "rpop", "spop", "srandmember", "zpopmax", "zpopmin"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Sign(u8),
    Join,
}

/// Whether a script of this text runs each of its instructions at most once, and none that takes long.
pub(super) fn is_brief(text: &[u8]) -> bool {
    if text.len() > TEXT_MAX {
        return false;
    }
    let Some(tokens) = std::str::from_utf8(text).ok().and_then(tokens) else {
        return false;
    };
    let joins = tokens.iter().filter(|token| **token == Token::Join).count();
    let known = |at: usize| match (tokens.get(at), at.checked_sub(1)) {
        (Some(Token::Word(word)), before) if is_field(&tokens, at) => {
            let of = before.and_then(|at| at.checked_sub(1));
            match (tokens[at - 1], of.map(|at| tokens[at])) {
                (Token::Sign(b'.'), Some(Token::Word(of))) => {
                    let is_whole = of.len() + word.len() + 1;
                    let of_another = at >= 3 && is_field(&tokens, at - 2);
                    !of_another
                        && CALLED.iter().any(|name| {
                            name.len() == is_whole
                                && name
                                    .strip_prefix(of)
                                    .and_then(|rest| rest.strip_prefix('.'))
                                    == Some(word)
                        })
                }
                _ => false,
            }
        }
        (Some(Token::Word(word)), _) => CALLED.contains(word) || NO_CALL.contains(word),
        // A parenthesis within an expression; behind a value it would call that.
        (Some(Token::Sign(sign)), _) => !matches!(sign, b')' | b']' | b'}'),
        (Some(Token::Join), _) => true,
        (Some(Token::Text(_)), _) | (None, _) => false,
    };
    // A function by a name of its own: what stands between the two words.
    let declares = |at: usize| {
        let names = tokens[..=at].iter().rev();
        let words = names.take_while(|token| {
            matches!(token, Token::Word(word) if *word != "function")
                || matches!(token, Token::Sign(b'.' | b':'))
        });
        let count = words.count();
        count > 0 && at.checked_sub(count).map(|at| tokens[at]) == Some(Token::Word("function"))
    };
    joins <= JOINS_MAX
        && replies_are_short(&tokens, false)
        && tokens.iter().enumerate().all(|(at, token)| match token {
            Token::Word(word) => {
                is_field(&tokens, at) || !NEVER.contains(word) && !renames(&tokens, at)
            }
            Token::Sign(b'(') => at == 0 || known(at - 1) || declares(at - 1),
            // `f"text"` and `f{}` are calls.
            Token::Text(_) | Token::Sign(b'{') => match at.checked_sub(1).map(|at| tokens[at]) {
                Some(Token::Word(word)) => {
                    NO_CALL.contains(&word) || (known(at - 1) && word != "unpack")
                }
                Some(Token::Sign(sign)) => !matches!(sign, b')' | b']' | b'}'),
                Some(Token::Text(_)) => false,
                Some(Token::Join) | None => true,
            },
            _ => true,
        })
}

/// Whether each command behind one that may write has a reply of a few values, which are quickly made for Lua. What stands
/// behind it in the text runs behind it.
///
/// Behind a command that writes nothing is hashed, and few values are taken that may be long texts.
fn replies_are_short(tokens: &[Token<'_>], mut wrote: bool) -> bool {
    let mut texts = 0;
    for at in 3..tokens.len() {
        if wrote && tokens[at - 1] == Token::Word("sha1hex") {
            return false;
        }
        let is_call = matches!(
            tokens[at - 3..at],
            [
                Token::Word("redis" | "server"),
                Token::Sign(b'.'),
                Token::Word("call" | "pcall")
            ]
        );
        if !is_call {
            continue;
        }
        let name = match (tokens[at], tokens.get(at + 1)) {
            (Token::Sign(b'('), Some(Token::Text(name))) => name,
            (Token::Text(name), _) => name,
            _ => "",
        };
        let name = name.to_ascii_lowercase();
        let reads_one = READS_ONE.contains(&&*name);
        let has_one = reads_one
            || WRITES_ONE.contains(&&*name)
            || POPS.contains(&&*name) && pops_one(&tokens[at..]);
        texts += usize::from(wrote && !GIVES_NUMBERS.contains(&&*name));
        if wrote && !has_one || texts > TEXTS_MAX {
            return false;
        }
        wrote |= !reads_one;
    }
    true
}

/// Whether a call, from its parenthesis on, has one key and no other argument.
fn pops_one(tokens: &[Token<'_>]) -> bool {
    let (mut depth, mut commas) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign(b'(' | b'[' | b'{') => depth += 1,
            Token::Sign(b')' | b']' | b'}') => depth -= 1,
            Token::Sign(b',') if depth == 1 => {
                commas += 1;
                let may_be_many = matches!(
                    tokens.get(at + 1),
                    Some(Token::Word("unpack") | Token::Sign(b'v'))
                );
                if may_be_many {
                    return false;
                }
            }
            _ => {}
        }
        if depth == 0 {
            return commas == 1;
        }
    }
    false
}

/// Whether all commands of a script have replies of a few values, by its text: then one that is [brief](is_brief) takes no
/// time to speak of, whatever the keys have.
pub(super) fn has_short_replies(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() <= TEXT_MAX);
    text.and_then(tokens)
        .is_some_and(|tokens| replies_are_short(&tokens, true))
}

/// Whether the reply of a command is a few values, whatever its keys have.
pub(super) fn has_short_reply(args: &[&[u8]]) -> bool {
    let is = |name: &&str| args[0].eq_ignore_ascii_case(name.as_bytes());
    READS_ONE.iter().any(is) || WRITES_ONE.iter().any(is) || POPS.iter().any(is) && args.len() <= 2
}

/// Whether the word there is a field of what stands before it.
fn is_field(tokens: &[Token<'_>], at: usize) -> bool {
    at > 0 && matches!(tokens[at - 1], Token::Sign(b'.' | b':'))
}

/// Whether something that may be called gets another meaning there: it is assigned to, declared, or a parameter.
fn renames(tokens: &[Token<'_>], at: usize) -> bool {
    let Token::Word(word) = tokens[at] else {
        return false;
    };
    let is_called = |name: &&str| name.split('.').next() == Some(word);
    if !CALLED.iter().any(is_called) {
        return false;
    }
    let before = at.checked_sub(1).map(|at| tokens[at]);
    // Nothing but a use of it is followed by these, unless it is declared.
    let is_used = matches!(tokens.get(at + 1), Some(Token::Sign(b'(' | b'.' | b'{')));
    !is_used || matches!(before, Some(Token::Word("local" | "function")))
}

/// The parts of a text; `None` if it is not clear what they are.
fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &text.get(at..)?;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'-' if rest.starts_with("--") => {
                // A comment of several lines is not worth reading.
                if rest.starts_with("--[") {
                    return None;
                }
                at += rest.find('\n').unwrap_or(rest.len());
            }
            b'"' | b'\'' => {
                let mut end = at + 1;
                loop {
                    match *bytes.get(end)? {
                        b'\\' => end += 2,
                        b'\n' => return None,
                        end_of if end_of == byte => break,
                        _ => end += 1,
                    }
                }
                all.push(Token::Text(text.get(at + 1..end)?));
                at = end + 1;
            }
            b'[' if rest.starts_with("[[") || rest.starts_with("[=") => return None,
            b'.' if rest.starts_with("...") => {
                all.push(Token::Sign(b'v'));
                at += 3;
            }
            b'.' if rest.starts_with("..") => {
                all.push(Token::Join);
                at += 2;
            }
            b'0'..=b'9' => {
                let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'.';
                at += bytes[at..].iter().take_while(|b| is_part(b)).count();
                all.push(Token::Sign(b'0'));
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let len = bytes[at..].iter().take_while(|b| is_part(b)).count();
                all.push(Token::Word(&text[at..at + len]));
                at += len;
            }
            byte if byte.is_ascii() => {
                all.push(Token::Sign(byte));
                at += 1;
            }
            _ => return None,
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::{has_short_replies, is_brief};

    #[test]
    fn some_have_short_replies_only() {
        for (text, yes) in [
            ("return redis.call('get', KEYS[1])", true),
            ("return 1", true),
            (
                "local v = redis.call('rpop', KEYS[1]) redis.call('lpush', KEYS[2], v) return v",
                true,
            ),
            ("return redis.call('lrange', KEYS[1], 0, -1)", false),
            ("return redis.call(ARGV[1], KEYS[1])", false),
            ("return redis.call('rpop', KEYS[1], 5)", false),
            ("--[[ a ]] return 1", false),
        ] {
            assert_eq!(has_short_replies(text.as_bytes()), yes, "{text}");
        }
    }

    #[test]
    fn what_runs_each_instruction_once_is_brief() {
        for text in [
            "return 1",
            "return redis.call('set', KEYS[1], ARGV[1])",
            "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end",
            "local n = redis.call('incr', KEYS[1]) if tonumber(n) == 1 then redis.call('expire', KEYS[1], ARGV[1]) end return n",
            "-- counts\nlocal t = redis.call('time') return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)",
            "return redis.call('set', 'a' .. KEYS[1], (1 + 2) * 3)",
            "return redis.call('zadd', KEYS[1], unpack(ARGV))",
            "redis.register_function('f', function(keys, args) return redis.call('set', keys[1], args[1]) end)",
            "local function f(keys, args) return redis.call('get', keys[1]) end redis.register_function('f', f)",
            "redis.register_function{function_name='f', callback=function(keys) return redis.call('get', keys[1]) end}",
            "return {redis.call('get', 'a'), {1, 2}, #KEYS}",
            "return {err = 'x'}",
            "local h = redis.sha1hex(ARGV[1]) return redis.call('set', h, 1)",
            "return redis.error_reply('MY ERROR')",
            "local l = redis.call('lrange', KEYS[1], 0, 9) redis.call('ltrim', KEYS[1], 10, -1) return l",
            "redis.call('SET', KEYS[1], 1) return redis.call('RPOP', KEYS[2])",
            "local v = redis.call('lpop', KEYS[1], ARGV[1]) redis.call('incr', 'n') return v",
        ] {
            assert!(is_brief(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_may_go_round_is_not_nor_what_calls_something_unknown() {
        for text in [
            "for at = 1, 10 do redis.call('incr', 'a') end",
            "while true do end",
            "repeat until false",
            "local function f() return f() end redis.call('incr', 'a') return f()",
            "local f f = function() f() end f()",
            "local t = {} t.f = function() t.f() end t.f()",
            "local t = {} t.f = function() t.f() end t:f()",
            "local t = {} t['f'] = function() t['f']() end t['f']()",
            "redis.call('set', 'a', string.rep('a', 1e7))",
            "redis.call('set', 'a', ('a'):rep(1e7))",
            "local s = 'rep' redis.call('set', 'a', ('a')[s]('a', 1e7))",
            "local redis = {} function redis.call() redis.call() end redis.call()",
            "local redis = {call = function() end} redis.call()",
            "local tostring = function(x) return tostring(x) end tostring(1)",
            "local function tostring() tostring() end tostring()",
            "local f = function(tostring) return tostring(1) end redis.call('x', f)",
            "local f = function(a, tostring) return tostring(1) end",
            "local t = {} t.redis = {} t.redis.call()",
            "pcall(function() end)",
            "local x = (function() end)()",
            "local s = f'x'",
            "local s = f{1}",
            "collectgarbage()",
            "return cjson.decode(ARGV[1])",
            "local s = 'a' s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s s=s..s",
            "--[[ a ]] return 1",
            "return [[a]]",
            "return 'a",
            "redis.call('set', 'a', 1) return redis.call('lrange', KEYS[1], 0, -1)",
            "redis.call('set', 'a', 1) return redis.call(ARGV[1], KEYS[1])",
            "redis.call(ARGV[1], KEYS[1]) return redis.call(ARGV[1], KEYS[1])",
            "redis.call('lpop', KEYS[1], 9) return redis.pcall('lpop', KEYS[1], ARGV[1])",
            "redis.call('set', 'a', 1) return redis.call('rpop', KEYS[1], unpack(ARGV))",
            "redis.call('set', 'a', 1) return redis.call('mget', unpack(KEYS))",
            "redis.call('incr', 'a') return redis.sha1hex(ARGV[1])",
            "redis.call('incr', 'a') redis.sha1hex 'x'",
        ] {
            assert!(!is_brief(text.as_bytes()), "{text}");
        }
        assert!(!is_brief("return 1 ".repeat(1000).as_bytes()));
        let reads = |count| {
            let text = "redis.call('get', 'a') redis.call('incr', 'n') ".repeat(count);
            is_brief(text.as_bytes())
        };
        assert!(reads(10) && !reads(30), "each may have a long text");
    }
}
