//! A command as a user writes it, and the reply that it has to have.
//!
//! The idea: a template is cut into words and pieces once. The values that fill a template follow from a key, so a
//! reply can be compared with the same pieces.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use super::fault::Fault;
use super::kv_reply::{self, Kind, Reply};
use super::kv_wire::Front;

/// Most words of a template, and most bytes of its text.
const WORDS_MAX: usize = 1_000;
const TEXT_MAX: usize = 1 << 20;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Key,
    Value,
    Number,
}

/// The values that fill a template.
#[derive(Clone, Copy)]
pub(super) struct Filling<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) number: u64,
}

type Word = Vec<Piece>;

/// A command with places for keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    shown: String,
    words: Vec<Word>,
    want: Want,
}

/// What a command does to the key that it names, as far as its reply shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A reply that is larger than any before it about the load's key.
    GrowsKey,
    /// A reply that is larger than any before it: the command always names one key.
    GrowsOne,
    /// The command only reads.
    None,
    /// The command may take away.
    Unknown,
}

impl Effect {
    pub(super) fn grows(self) -> bool {
        matches!(self, Effect::GrowsKey | Effect::GrowsOne)
    }
}

/// Commands that only read.
const READS: &[&str] = &[
    "EXISTS", "GET", "GETRANGE", "HGET", "HGETALL", "HLEN", "LINDEX", "LLEN", "LRANGE", "MGET",
    "PING", "STRLEN", "TTL", "TYPE",
];

/// What every reply has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Want {
    /// A reply of the first one's kind, or nothing.
    LikeTheFirst,
    /// Whatever is no error.
    Any,
    /// The reply must be one of these.
    OneOf(Vec<(Kind, Option<Word>)>),
}

impl Template {
    /// Reads a command, and what its reply has to be: without one, any kind but an error, and one
    /// kind for all.
    ///
    /// A command is words with blanks between; quotes hold words with blanks together. `{key}` is the key as text,
    /// `{n}` its number, `{value}` its value; `{{` and `}}` are braces. A reply is `any`, or kinds with `|` between:
    /// `status`, `error`, `integer`, `bulk`, `nil`, `array`, `map`, `double`, `boolean`; behind a colon may stand what
    /// the first four must be, with the same places.
    ///
    /// # Errors
    /// The fault of the command, in words.
    pub fn parse(command: &str, reply: Option<&str>) -> Result<Template, String> {
        if command.len() > TEXT_MAX {
            return Err(format!("a command has at most {TEXT_MAX} bytes"));
        }
        let words = split(command)?;
        if words.is_empty() || words.len() > WORDS_MAX {
            return Err(format!("a command has 1 to {WORDS_MAX} words"));
        }
        Ok(Template {
            shown: command.trim().to_owned(),
            words: words
                .iter()
                .map(|word| pieces(word))
                .collect::<Result<_, _>>()?,
            want: want(reply)?,
        })
    }

    /// The command that hands a Lua script to a server, and the hexadecimal digest by which EVALSHA then calls it, which
    /// the server has to answer.
    pub fn script_load(script: &str) -> (Template, String) {
        let digest = Sha1::digest(script.as_bytes());
        let sha: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = |text: &str| vec![Piece::Text(text.as_bytes().to_vec())];
        let load = Template {
            shown: "SCRIPT LOAD".to_owned(),
            words: ["SCRIPT", "LOAD", script].map(text).into(),
            want: Want::OneOf(vec![(Kind::Bulk, Some(text(&sha)))]),
        };
        (load, sha)
    }

    /// The command as text, to be shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether the template has a place for a key or its number.
    pub fn has_key(&self) -> bool {
        let mut all = self.words.iter().flatten();
        all.any(|piece| matches!(piece, Piece::Key | Piece::Number))
    }

    /// What it does to the key that it names.
    pub(super) fn effect(&self) -> Effect {
        let text = |word: &Word| match &word[..] {
            [Piece::Text(text)] => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        let Some(name) = self.words.first().and_then(text) else {
            return Effect::Unknown;
        };
        let name = name.to_ascii_uppercase();
        let [_, key, rest @ ..] = &self.words[..] else {
            return match READS.contains(&&*name) {
                true => Effect::None,
                false => Effect::Unknown,
            };
        };
        let is_positive =
            |word: &Word| text(word).is_some_and(|text| text.parse::<i64>().is_ok_and(|n| n > 0));
        let grows = match (&*name, rest) {
            ("INCR", []) | ("LPUSH" | "RPUSH", [_, ..]) => true,
            // What is appended is not empty.
            ("APPEND", [word]) => text(word).is_some_and(|text| !text.is_empty()),
            ("INCRBY", [by]) | ("HINCRBY", [_, by]) => is_positive(by),
            _ => false,
        };
        // A field of a hash is one that all commands name.
        let is_one = |word: &Word| text(word).is_some();
        match grows {
            true if name == "HINCRBY" && !rest.first().is_some_and(is_one) => Effect::Unknown,
            true if is_one(key) => Effect::GrowsOne,
            true => Effect::GrowsKey,
            false if READS.contains(&&*name) => Effect::None,
            false => Effect::Unknown,
        }
    }

    pub(super) fn put(&self, with: Filling<'_>, to: &mut Vec<u8>) {
        put(to, format_args!("*{}\r\n", self.words.len()));
        for word in &self.words {
            let mut len = 0;
            each(word, with, |bytes| len += bytes.len());
            put(to, format_args!("${len}\r\n"));
            each(word, with, |bytes| to.extend_from_slice(bytes));
            to.extend_from_slice(b"\r\n");
        }
    }

    /// Whether `bytes` begin with a reply that it may have. `first` is the kind of the first reply of the run.
    pub(super) fn check(&self, bytes: &[u8], with: Filling<'_>, first: &OnceLock<Kind>) -> Front {
        let wrong = |why: &str| {
            let shown = kv_reply::shown(bytes) + why;
            Front::Wrong(shown, Fault::WrongReply)
        };
        let reply = match kv_reply::read(bytes) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Front::Partial,
            Err(why) => return wrong(&format!(" ({why})")),
        };
        let good = match &self.want {
            Want::Any => reply.kind != Kind::Error,
            // A missing key is answered with nil, whatever the replies for other keys are.
            Want::LikeTheFirst if reply.kind == Kind::Nil => true,
            Want::LikeTheFirst => {
                reply.kind != Kind::Error && *first.get_or_init(|| reply.kind) == reply.kind
            }
            Want::OneOf(all) => return one_of(all, bytes, &reply, with),
        };
        match good {
            true => front(&reply),
            false => wrong(""),
        }
    }
}

/// The kind of a good reply: with a value, without one, or neither.
fn front(reply: &Reply<'_>) -> Front {
    match reply.kind {
        Kind::Nil => Front::Nothing(reply.len),
        // An aggregate of four bytes has no elements: `*0` and the end of the line.
        Kind::Array | Kind::Map if reply.len == 4 => Front::Nothing(reply.len),
        Kind::Bulk | Kind::Array | Kind::Map => Front::Found(reply.len),
        Kind::Status | Kind::Error | Kind::Integer | Kind::Double | Kind::Boolean => {
            Front::Good(reply.len)
        }
    }
}

/// Whether a reply is one of the wanted ones; if only its content is wrong, by how much decides its
/// fault.
fn one_of(
    all: &[(Kind, Option<Word>)],
    bytes: &[u8],
    reply: &Reply<'_>,
    with: Filling<'_>,
) -> Front {
    let mut fault = Fault::WrongReply;
    for (_, content) in all.iter().filter(|(kind, _)| *kind == reply.kind) {
        let Some(word) = content else {
            return front(reply);
        };
        let mut wanted = Vec::new();
        each(word, with, |bytes| wanted.extend_from_slice(bytes));
        if reply.content == wanted {
            return front(reply);
        }
        if reply.content.len() == wanted.len() {
            fault = Fault::of_difference(reply.content, &wanted);
        }
    }
    Front::Wrong(kv_reply::shown(bytes), fault)
}

fn each(word: &Word, with: Filling<'_>, mut take: impl FnMut(&[u8])) {
    for piece in word {
        match piece {
            Piece::Text(text) => take(text),
            Piece::Key => take(with.key),
            Piece::Value => take(with.value),
            Piece::Number => {
                // At most twenty digits.
                let (mut digits, mut at, mut rest) = ([0; 20], 20, with.number);
                loop {
                    at -= 1;
                    digits[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                    if rest == 0 {
                        break take(&digits[at..]);
                    }
                }
            }
        }
    }
}

fn put(to: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    to.write_fmt(text).expect("memory takes all");
}

/// Splits a text into words at blanks; a quoted part belongs to one word.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(format!("{text:?} has a quote that is not closed"));
    }
    words.extend(word);
    Ok(words)
}

fn pieces(word: &str) -> Result<Word, String> {
    let (mut all, mut text, mut rest) = (Vec::new(), Vec::new(), word);
    while let Some(at) = rest.find(['{', '}']) {
        text.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            text.push(rest.as_bytes()[0]);
            rest = after;
            continue;
        }
        let places = [
            ("{key}", Piece::Key),
            ("{value}", Piece::Value),
            ("{n}", Piece::Number),
        ];
        let place = places
            .into_iter()
            .find_map(|(name, piece)| Some((rest.strip_prefix(name)?, piece)));
        let Some((after, piece)) = place else {
            return Err(format!(
                "{word:?}: places are {{key}}, {{value}} and {{n}}; a brace is written twice"
            ));
        };
        if !text.is_empty() {
            all.push(Piece::Text(std::mem::take(&mut text)));
        }
        all.push(piece);
        rest = after;
    }
    text.extend_from_slice(rest.as_bytes());
    if !text.is_empty() {
        all.push(Piece::Text(text));
    }
    Ok(all)
}

fn want(reply: Option<&str>) -> Result<Want, String> {
    let all = match reply {
        None => return Ok(Want::LikeTheFirst),
        Some("any") => return Ok(Want::Any),
        Some(all) => all,
    };
    let one = |text: &str| {
        let (name, content) = match text.split_once(':') {
            Some((name, content)) => (name, Some(content)),
            None => (text, None),
        };
        let kind = Kind::named(name)
            .ok_or_else(|| format!("{name:?} is no kind of reply: any, or {}", Kind::names()))?;
        if content.is_some() && !kind.has_content() {
            return Err(format!(
                "{text:?}: only status, error, integer and bulk have a content"
            ));
        }
        Ok((kind, content.map(pieces).transpose()?))
    };
    all.split('|')
        .map(one)
        .collect::<Result<_, _>>()
        .map(Want::OneOf)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH: Filling<'_> = Filling {
        key: b"key:07",
        value: b"abc",
        number: 7,
    };

    fn sent(command: &str) -> String {
        let mut out = Vec::new();
        Template::parse(command, None).unwrap().put(WITH, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn check(reply: Option<&str>, bytes: &str) -> String {
        let template = Template::parse("X", reply).unwrap();
        match template.check(bytes.as_bytes(), WITH, &OnceLock::new()) {
            Front::Partial => "partial".into(),
            Front::Good(n) | Front::Found(n) | Front::Nothing(n) => format!("good {n}"),
            Front::Wrong(_, fault) => fault.to_string(),
        }
    }

    #[test]
    fn places_are_filled_wherever_they_stand() {
        assert_eq!(
            sent("HSET h:{key} f {value}"),
            "*4\r\n$4\r\nHSET\r\n$8\r\nh:key:07\r\n$1\r\nf\r\n$3\r\nabc\r\n"
        );
        assert_eq!(sent("{n}{value}{n}"), "*1\r\n$5\r\n7abc7\r\n");
        assert_eq!(
            sent("EVAL \"return {{KEYS[1]}}\" 1 ''"),
            "*4\r\n$4\r\nEVAL\r\n$16\r\nreturn {KEYS[1]}\r\n$1\r\n1\r\n$0\r\n\r\n"
        );
    }

    #[test]
    fn nonsense_is_refused_with_a_word() {
        for bad in ["", "  ", "GET {k}", "GET {key", "GET key}", "GET 'a"] {
            assert!(Template::parse(bad, None).is_err(), "{bad}");
        }
        for bad in ["", "text", "bulk|", "nil:x", "array:1", "bulk:{x}"] {
            assert!(Template::parse("GET", Some(bad)).is_err(), "{bad}");
        }
        assert!(!Template::parse("PING", None).unwrap().has_key());
        assert!(Template::parse("INCR c:{n}", None).unwrap().has_key());
    }

    #[test]
    fn a_script_is_called_by_its_digest() {
        let (load, sha) = Template::script_load("return 1");
        assert_eq!(sha, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        let reply = format!("$40\r\n{sha}\r\n");
        let check = |reply: &str| load.check(reply.as_bytes(), WITH, &OnceLock::new());
        assert!(matches!(check(&reply), Front::Found(47)));
        assert!(matches!(
            check("-ERR unknown command\r\n"),
            Front::Wrong(..)
        ));
    }

    #[test]
    fn replies_are_held_against_what_was_said() {
        for (want, bytes, found) in [
            (Some("any"), "*2\r\n:1\r\n+x\r\n", "good 12"),
            (Some("any"), "-ERR\r\n", "wrong reply"),
            (Some("integer"), ":12\r\n", "good 5"),
            (Some("integer"), "+OK\r\n", "wrong reply"),
            (Some("integer:7"), ":7\r\n", "good 4"),
            (Some("integer:{n}"), ":8\r\n", "wrong reply"),
            (Some("nil|bulk:{value}"), "$3\r\nabc\r\n", "good 9"),
            (Some("nil|bulk:{value}"), "$-1\r\n", "good 5"),
            (Some("nil|bulk:{value}"), "_\r\n", "good 3"),
            (Some("bulk:{value}"), "$-1\r\n", "wrong reply"),
            (Some("bulk:{value}"), "$3\r\nabd\r\n", "flipped byte"),
            (Some("bulk:{value}"), "$4\r\nabcd\r\n", "wrong reply"),
            (Some("error"), "-ERR no\r\n", "good 9"),
            (None, "-ERR no\r\n", "wrong reply"),
            (None, "$-1\r\n", "good 5"),
        ] {
            assert_eq!(check(want, bytes), found, "{want:?} {bytes:?}");
            for end in 1..bytes.len() {
                if found.starts_with("good") {
                    assert_eq!(check(want, &bytes[..end]), "partial", "{want:?} {bytes:?}");
                }
            }
        }
    }

    #[test]
    fn without_a_word_all_replies_are_of_the_kind_of_the_first() {
        let template = Template::parse("HSET {key} f {value}", None).unwrap();
        let first = OnceLock::new();
        let good = |bytes: &str| {
            matches!(
                template.check(bytes.as_bytes(), WITH, &first),
                Front::Good(_) | Front::Found(_) | Front::Nothing(_)
            )
        };
        assert!(good("$-1\r\n") && good(":1\r\n") && good(":0\r\n") && good("$-1\r\n"));
        assert!(!good("+OK\r\n"));
    }
}
