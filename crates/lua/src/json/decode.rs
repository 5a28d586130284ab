//! JSON as values of Lua. An object or an array becomes a table, null a light userdata.

use mlua::{LightUserData, Lua, Value};

use super::config::JsonConfig;
use crate::args::no_memory;
use crate::effort::Effort;

/// The value of a text.
pub(super) fn decode(
    lua: &Lua,
    text: &[u8],
    config: &JsonConfig,
    effort: Effort<'_>,
) -> Result<Value, Box<str>> {
    if let [a, b, ..] = text
        && (*a == 0 || *b == 0)
    {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut decoder = Decoder {
        lua,
        text,
        at: 0,
        config,
        effort,
    };
    let token = decoder.next();
    let value = decoder.value(token, 0)?;
    match decoder.next() {
        (Token::End, _) => Ok(value),
        token => Err(expected("the end", &token)),
    }
}

/// The kind of the token, and where it begins.
type At = (Token, usize);

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

struct Decoder<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    config: &'a JsonConfig,
    effort: Effort<'a>,
}

fn expected(what: &str, (token, at): &At) -> Box<str> {
    let found = match token {
        Token::ObjectBegin => "T_OBJ_BEGIN",
        Token::ObjectEnd => "T_OBJ_END",
        Token::ArrayBegin => "T_ARR_BEGIN",
        Token::ArrayEnd => "T_ARR_END",
        Token::Text(_) => "T_STRING",
        Token::Number(_) => "T_NUMBER",
        Token::Boolean(_) => "T_BOOLEAN",
        Token::Null => "T_NULL",
        Token::Colon => "T_COLON",
        Token::Comma => "T_COMMA",
        Token::End => "T_END",
        Token::Wrong(why) => why,
    };
    let at = at + 1;
    format!("Expected {what} but found {found} at character {at}").into()
}

impl Decoder<'_> {
    fn value(&mut self, token: At, depth: i64) -> Result<Value, Box<str>> {
        /// Steps that a value costs.
        const EACH: u64 = 200;
        self.effort.spend(EACH)?;
        match token.0 {
            Token::Text(text) => {
                let text = self.lua.create_string(text).map_err(no_memory)?;
                Ok(Value::String(text))
            }
            Token::Number(x) => Ok(Value::Number(x)),
            Token::Boolean(yes) => Ok(Value::Boolean(yes)),
            Token::Null => Ok(Value::LightUserData(LightUserData(std::ptr::null_mut()))),
            Token::ObjectBegin => self.object(depth + 1),
            Token::ArrayBegin => self.array(depth + 1),
            _ => Err(expected("value", &token)),
        }
    }

    fn deeper(&self, depth: i64) -> Result<(), Box<str>> {
        if depth > self.config.decode_depth {
            let at = self.at;
            return Err(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            )
            .into());
        }
        Ok(())
    }

    fn object(&mut self, depth: i64) -> Result<Value, Box<str>> {
        self.deeper(depth)?;
        let table = self.lua.create_table().map_err(no_memory)?;
        let mut token = self.next();
        if matches!(token.0, Token::ObjectEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::Text(key) = token.0 else {
                return Err(expected("object key string", &token));
            };
            let key = self.lua.create_string(key).map_err(no_memory)?;
            token = self.next();
            if !matches!(token.0, Token::Colon) {
                return Err(expected("colon", &token));
            }
            token = self.next();
            let value = self.value(token, depth)?;
            table.raw_set(key, value).map_err(no_memory)?;
            token = self.next();
            match token.0 {
                Token::ObjectEnd => return Ok(Value::Table(table)),
                Token::Comma => token = self.next(),
                _ => return Err(expected("comma or object end", &token)),
            }
        }
    }

    fn array(&mut self, depth: i64) -> Result<Value, Box<str>> {
        self.deeper(depth)?;
        let table = self.lua.create_table().map_err(no_memory)?;
        let mut token = self.next();
        if matches!(token.0, Token::ArrayEnd) {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            let value = self.value(token, depth)?;
            table.raw_set(index, value).map_err(no_memory)?;
            token = self.next();
            match token.0 {
                Token::ArrayEnd => break,
                Token::Comma => token = self.next(),
                _ => return Err(expected("comma or array end", &token)),
            }
        }
        Ok(Value::Table(table))
    }

    fn next(&mut self) -> At {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        let begin = self.at;
        let Some(&byte) = self.text.get(begin) else {
            return (Token::End, begin);
        };
        let single = match byte {
            b'{' => Some(Token::ObjectBegin),
            b'}' => Some(Token::ObjectEnd),
            b'[' => Some(Token::ArrayBegin),
            b']' => Some(Token::ArrayEnd),
            b':' => Some(Token::Colon),
            b',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = single {
            self.at += 1;
            return (token, begin);
        }
        if byte == b'"' {
            return match self.string() {
                Ok(text) => (Token::Text(text), begin),
                Err(wrong) => (Token::Wrong(wrong), self.at),
            };
        }
        for (word, token) in [
            ("true", Token::Boolean(true)),
            ("false", Token::Boolean(false)),
            ("null", Token::Null),
        ] {
            if self.text[begin..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return (token, begin);
            }
        }
        if matches!(
            byte,
            b'-' | b'+' | b'.' | b'0'..=b'9' | b'i' | b'I' | b'n' | b'N'
        ) {
            return match self.number() {
                Some(x) => (Token::Number(x), begin),
                None if matches!(byte, b'-' | b'0'..=b'9') => {
                    (Token::Wrong("invalid number"), begin)
                }
                None => (Token::Wrong("invalid token"), begin),
            };
        }
        (Token::Wrong("invalid token"), begin)
    }

    fn number(&mut self) -> Option<f64> {
        let rest = &self.text[self.at..];
        let (negative, unsigned) = match rest {
            [b'-', unsigned @ ..] => (true, unsigned),
            _ => (false, rest),
        };
        let signed = |x: f64| if negative { -x } else { x };
        let sign = rest.len() - unsigned.len();
        if self.config.decode_invalid {
            for (word, x) in [
                ("infinity", f64::INFINITY),
                ("inf", f64::INFINITY),
                ("nan", f64::NAN),
            ] {
                let begins = unsigned.get(..word.len());
                if begins.is_some_and(|begins| begins.eq_ignore_ascii_case(word.as_bytes())) {
                    self.at += sign + word.len();
                    return Some(signed(x));
                }
            }
            if let [b'0', b'x' | b'X', digits @ ..] = unsigned {
                let n = digits.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                let text = std::str::from_utf8(&digits[..n]).ok()?;
                let x = u64::from_str_radix(text, 16).ok()?;
                self.at += sign + 2 + n;
                return Some(signed(x as f64));
            }
        } else if let [b'0', b'0'..=b'9', ..] | [b'0', b'x' | b'X', ..] = unsigned {
            return None;
        }
        let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let mut n = unsigned.iter().take_while(is_part).count();
        // The longest beginning that is a number, as strtod takes it. A number is short.
        n = n.min(1000);
        while n > 0 {
            let text = std::str::from_utf8(&unsigned[..n]).ok()?;
            if let Ok(x) = text.parse::<f64>() {
                self.at += sign + n;
                return Some(signed(x));
            }
            n -= 1;
        }
        None
    }

    /// A string behind its quote.
    fn string(&mut self) -> Result<Vec<u8>, &'static str> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\'));
            let Some(plain) = plain else {
                self.at = self.text.len();
                return Err("unexpected end of string");
            };
            text.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Ok(text);
            }
            let escaped = match self.text.get(self.at) {
                Some(b'"') => b'"',
                Some(b'\\') => b'\\',
                Some(b'/') => b'/',
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'u') => {
                    let letter = self.unicode().ok_or_else(|| {
                        self.at -= 1;
                        "invalid unicode escape code"
                    })?;
                    let mut utf8 = [0; 4];
                    text.extend_from_slice(letter.encode_utf8(&mut utf8).as_bytes());
                    continue;
                }
                _ => {
                    self.at -= 1;
                    return Err("invalid escape code");
                }
            };
            text.push(escaped);
            self.at += 1;
        }
    }

    /// The letter of `uXXXX`, or of two of them that are one.
    fn unicode(&mut self) -> Option<char> {
        let code = |at: usize| {
            let digits = self.text.get(at..at + 4)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let first = code(self.at + 1)?;
        if !(0xd800..0xe000).contains(&first) {
            self.at += 5;
            return char::from_u32(first);
        }
        let (true, Some(b"\\u")) = (first < 0xdc00, self.text.get(self.at + 5..self.at + 7)) else {
            return None;
        };
        let second = code(self.at + 7).filter(|n| (0xdc00..0xe000).contains(n))?;
        self.at += 11;
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
    }
}
