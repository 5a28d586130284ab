//! Patterns as in file names: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before anything.
//!
//! A pattern is taken apart once and then held against many texts. What is between two stars is
//! looked for from left to right, never going back: a pattern of `p` bytes costs a text of `t` bytes
//! a few steps a byte if its pieces are plain, at most 64 if they are short, and `p / 64` otherwise.
//! It is kept in about as many bytes as it has, as a server may be told a great many of them: what a
//! long piece needs beside itself is made when a text is long enough for it.

mod code;
mod search;

use code::{Builder, Op, Ops};

/// A pattern.
#[derive(Debug)]
pub struct Glob {
    /// See [`code`].
    code: Box<[u8]>,
    /// Where what is behind the last star begins, if there is a star; and how many bytes of a text it stands for.
    tail: Option<(u32, u32)>,
    /// The length of the shortest text that may match.
    shortest: u32,
}

/// Longest pattern that is taken; bytes.
pub const LONGEST: usize = 64 << 10;

/// Whether all of `text` matches, for a pattern that is used once; false if it is too long.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    Glob::new(pattern).is_some_and(|glob| glob.matches(text))
}

impl Glob {
    /// Takes a pattern apart; `None` if it is longer than [`LONGEST`].
    #[must_use]
    pub fn new(pattern: &[u8]) -> Option<Glob> {
        (pattern.len() <= LONGEST).then(|| Glob::parse(pattern))
    }

    fn parse(pattern: &[u8]) -> Glob {
        let mut built = Builder::default();
        let (mut rest, mut tail, mut shortest) = (pattern, None, 0);
        while let [first, behind @ ..] = rest {
            rest = behind;
            match (first, behind) {
                (b'*', _) => {
                    tail = Some((built.star(), shortest));
                    continue;
                }
                (b'?', _) => built.any(),
                (b'[', _) => rest = &behind[class(behind, &mut built)..],
                (b'\\', [escaped, after @ ..]) => {
                    rest = after;
                    built.byte(*escaped);
                }
                _ => built.byte(*first),
            }
            shortest += 1;
        }
        Glob {
            code: built.finish(),
            tail: tail.map(|(at, before)| (at, shortest - before)),
            shortest,
        }
    }

    /// The bytes that every text begins with that matches, as far as they stand together.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        match Ops(&self.code).next() {
            Some(Op::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// Bytes of memory beside itself.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.code.len()
    }

    /// Whether all of `text` matches. An empty text matches an empty pattern only: not even a star,
    /// as in Redis.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.run(text, &mut 0)
    }

    fn run(&self, text: &[u8], steps: &mut u64) -> bool {
        let shortest = self.shortest as usize;
        if text.len() < shortest || text.is_empty() && self.tail.is_some() {
            return false;
        }
        let Some((tail_at, tail_len)) = self.tail else {
            return text.len() == shortest && here(&self.code, text, steps).is_some();
        };
        let (front, tail) = self.code.split_at(tail_at as usize);
        let (mut rest, end) = text.split_at(text.len() - tail_len as usize);
        let mut pieces = Pieces(front);
        let head = pieces.next().unwrap_or_default();
        match here(head, rest, steps) {
            Some(len) if here(tail, end, steps).is_some() => rest = &rest[len..],
            _ => return false,
        }
        // Stars side by side are one.
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            match search::find(piece, rest, steps) {
                Some(end) => rest = &rest[end..],
                None => return false,
            }
        }
        true
    }
}

/// The pieces of a code each of which has a star behind it.
struct Pieces<'a>(&'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut ops = Ops(self.0);
        let mut len = 0;
        while let Some(op) = ops.next() {
            let left = ops.0;
            if let Op::Star = op {
                let piece = &self.0[..len];
                self.0 = left;
                return Some(piece);
            }
            len = self.0.len() - left.len();
        }
        None
    }
}

/// How many bytes at the beginning of `text` a piece stands for; `None` if it is something else.
fn here(piece: &[u8], text: &[u8], steps: &mut u64) -> Option<usize> {
    let mut rest = text;
    for op in Ops(piece) {
        *steps += 1;
        match op {
            Op::Bytes(bytes) => {
                let same = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                *steps += same as u64;
                if same < bytes.len() {
                    return None;
                }
                rest = &rest[same..];
            }
            op => {
                let (first, behind) = rest.split_first()?;
                if !op.has(*first) {
                    return None;
                }
                rest = behind;
            }
        }
    }
    Some(text.len() - rest.len())
}

/// A set from behind its bracket on; its length. One that is not closed ends with the pattern.
fn class(pattern: &[u8], built: &mut Builder) -> usize {
    let (negated, mut at) = match pattern.first() {
        Some(b'^') => (true, 1),
        _ => (false, 0),
    };
    let mut bits = [0u64; 4];
    let mut add = |byte: u8| bits[usize::from(byte / 64)] |= 1 << (byte % 64);
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                add(*escaped);
                at += 2;
            }
            [from, b'-', to, ..] => {
                (*from.min(to)..=*from.max(to)).for_each(&mut add);
                at += 3;
            }
            [member, ..] => {
                add(*member);
                at += 1;
            }
        }
    }
    if negated {
        bits.iter_mut().for_each(|word| *word = !*word);
    }
    built.class(&bits);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            // As in Redis.
            ("*", "", false),
            ("**", "", false),
            ("**", "a", true),
            ("a**", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b", "xaxb", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "aab", false),
            ("a*a", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[\\]]", "]", true),
            ("[a-]]", "`", true),
            ("[]", "]", false),
            ("a[", "ab", false),
            ("a[^", "ab", true),
            ("*[a-c]?*z", "xxbyz", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    /// The definition, going back at every star.
    fn simple(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                simple(rest, text) || !text.is_empty() && simple(pattern, &text[1..])
            }
            ([b'?', rest @ ..], [_, more @ ..]) => simple(rest, more),
            ([b'[', rest @ ..], [byte, more @ ..]) => {
                let mut built = Builder::default();
                let len = class(rest, &mut built);
                let code = built.finish();
                let is_member = Ops(&code).next().is_some_and(|op| op.has(*byte));
                is_member && simple(&rest[len..], more)
            }
            ([first, rest @ ..], [byte, more @ ..]) => first == byte && simple(rest, more),
            _ => false,
        }
    }

    #[test]
    fn the_same_as_by_definition() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut found = 0;
        for _ in 0..20_000 {
            let parts = ["a", "b", "*", "?", "[ab]", "[^b]", "ab", "aab"];
            let mut pattern = String::new();
            for _ in 0..rng.usize(..7) {
                pattern.push_str(rng.choice(parts).unwrap());
            }
            let text: String = (0..1 + rng.usize(..9))
                .map(|_| if rng.bool() { 'a' } else { 'b' })
                .collect();
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let expected = simple(pattern, text);
            found += usize::from(expected);
            assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn no_pattern_costs_its_length_for_every_byte_of_the_text() {
        const LEN: usize = 50_000;
        let text = vec![b'a'; LEN];
        let repeated = |part: &str| part.repeat(LEN / part.len());
        for (pattern, most_a_byte) in [
            (format!("*{}b", repeated("a")), 3),
            (format!("{}b", repeated("*a")), 3),
            (format!("*{}b*", repeated("a")[..LEN / 2].to_owned()), 3),
            (format!("*{}b*", repeated("*a?")), 64),
            (format!("*{}b*", repeated("?a")), 64),
            (
                format!("*{}b*", repeated("?a")[..LEN / 2].to_owned()),
                LEN as u64 / 64,
            ),
            (format!("*[{}]b*", repeated("a")), 3),
            (repeated("[*"), 3),
        ] {
            let glob = Glob::new(pattern.as_bytes()).unwrap();
            let mut steps = 0;
            assert!(!glob.run(&text, &mut steps));
            assert!(
                steps <= LEN as u64 * (most_a_byte + 1),
                "{steps} for {}",
                &pattern[..20]
            );
        }
        // A text that is too short is not looked at.
        let mut steps = 0;
        assert!(!Glob::new(&text).unwrap().run(b"key", &mut steps));
        assert_eq!(steps, 0);
        assert!(Glob::new(&vec![b'a'; LONGEST + 1]).is_none());
    }

    #[test]
    fn long_pieces_are_found_where_they_are() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let piece: Vec<u8> = (0..65 + rng.usize(..100))
                .map(|_| rng.u8(b'a'..b'c'))
                .collect();
            let mut pattern = piece.clone();
            pattern[rng.usize(..64)] = b'?';
            let around = |rng: &mut fastrand::Rng| -> Vec<u8> {
                (0..rng.usize(..90)).map(|_| rng.u8(b'a'..b'c')).collect()
            };
            let text = [around(&mut rng), piece.clone(), around(&mut rng)].concat();
            for pattern in [&pattern, &piece] {
                let pattern = [b"*".as_slice(), pattern, b"*"].concat();
                assert!(matches(&pattern, &text));
                let without = [&text[..text.len() / 2], b"c", &text[text.len() / 2..]].concat();
                assert_eq!(matches(&pattern, &without), simple_star(&pattern, &without));
            }
        }
    }

    #[test]
    fn a_pattern_takes_little_more_memory_than_its_text() {
        for part in [
            "a",
            "?",
            "*",
            "a?",
            "ab?",
            "[ab]",
            "[ac]",
            "[^a]",
            "[^ac]",
            "[]",
            "*a",
            "[a",
            "[ac]*",
            "\\a?",
            "[acegikmoqsuwyACEGIKMOQSUWY02468]",
        ] {
            let pattern = part.repeat(LONGEST / part.len());
            let glob = Glob::new(pattern.as_bytes()).unwrap();
            assert!(
                glob.memory() <= 2 * pattern.len(),
                "{part}: {}",
                glob.memory()
            );
        }
    }

    #[test]
    fn the_beginning_of_all_that_matches() {
        for (pattern, prefix) in [
            ("", ""),
            ("abc", "abc"),
            ("ab*c", "ab"),
            ("a[b]c?d", "abc"),
            ("a\\*b[cd]", "a*b"),
            ("*a", ""),
            ("[^a]b", ""),
        ] {
            let glob = Glob::new(pattern.as_bytes()).unwrap();
            assert_eq!(glob.prefix(), prefix.as_bytes(), "{pattern}");
        }
    }

    /// The definition for `*piece*`.
    fn simple_star(pattern: &[u8], text: &[u8]) -> bool {
        let piece = &pattern[1..pattern.len() - 1];
        text.windows(piece.len()).any(|window| {
            let mut pairs = piece.iter().zip(window);
            pairs.all(|(token, byte)| *token == b'?' || token == byte)
        })
    }
}
