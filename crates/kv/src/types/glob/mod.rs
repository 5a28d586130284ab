//! Patterns as in file names: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before anything.
//!
//! A pattern is compiled once, into a code of at most twice the pattern's length, and then matched against many texts.
//! Each piece between two stars is searched from left to right, never going back. A pattern of `p` bytes costs a text
//! of `t` bytes at most 16 steps a byte if its pieces are plain, at most 64 if they are short, and `p / 64` otherwise.
//! The search table of a long piece is made anew for each text that is as long: a few steps for each byte of the piece
//! if it is plain, else one for each different byte of the text.

mod code;
mod search;

use code::{Code, MARKED, Token};

/// A pattern.
#[derive(Debug)]
pub struct Glob {
    /// Units that stand for one byte each, and stars, in order.
    code: Box<[u8]>,
    /// Bytes of the pattern, from the first on, that stand for themselves.
    plain: u32,
    /// The length of the shortest text that may match.
    shortest: u32,
    stars: Option<Stars>,
}

/// Where stars are, if there is one.
#[derive(Clone, Copy, Debug)]
struct Stars {
    /// Where the first and the last one stand in the code.
    first: u32,
    last: u32,
    /// Bytes of a text that are in front of the first, and behind the last one.
    before: u32,
    behind: u32,
}

/// Longest pattern that is taken; bytes. A pattern takes at most twice its length of memory.
pub const LONGEST: usize = 64 << 10;

/// Whether the whole `text` matches, for a pattern that is used once; false if the pattern is too
/// long.
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
        let (mut code, mut rest) = (Vec::with_capacity(pattern.len()), pattern);
        let (mut shortest, mut stars) = (0, None::<Stars>);
        while let [first, behind @ ..] = rest {
            rest = match (first, behind) {
                (b'*', _) => {
                    let at = code.len() as u32;
                    match &mut stars {
                        // Stars side by side are one.
                        Some(stars) if stars.last + MARKED as u32 == at => {}
                        Some(stars) => {
                            code::put_star(&mut code);
                            (stars.last, stars.behind) = (at, 0);
                        }
                        None => {
                            code::put_star(&mut code);
                            stars = Some(Stars {
                                first: at,
                                last: at,
                                before: shortest,
                                behind: 0,
                            });
                        }
                    }
                    rest = behind;
                    continue;
                }
                (b'?', _) => {
                    code::put_any(&mut code);
                    behind
                }
                (b'[', _) => {
                    let (bits, len) = class(behind);
                    code::put_class(&bits, &mut code);
                    &behind[len..]
                }
                (b'\\', [escaped, after @ ..]) => {
                    code::put_byte(*escaped, &mut code);
                    after
                }
                _ => {
                    code::put_byte(*first, &mut code);
                    behind
                }
            };
            shortest += 1;
            if let Some(stars) = &mut stars {
                stars.behind += 1;
            }
        }
        let plain = code::plain(&code).len() as u32;
        Glob {
            code: code.into(),
            plain,
            shortest,
            stars,
        }
    }

    /// Bytes of memory beside itself, without what an allocator adds: at most twice the pattern's length.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.code.len()
    }

    /// The plain bytes at the start of the pattern, with which every matching text begins.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.code[..self.plain as usize]
    }

    /// Whether all of `text` matches. An empty text matches an empty pattern only: not even a star,
    /// as in Redis.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.run(text, &mut 0)
    }

    /// Whether all of `text` matches, and about how many steps that has taken beside the ones
    /// counted before.
    pub(crate) fn matches_counting(&self, text: &[u8], steps: &mut u64) -> bool {
        self.run(text, steps)
    }

    fn run(&self, text: &[u8], steps: &mut u64) -> bool {
        if text.len() < self.shortest as usize || text.is_empty() && self.stars.is_some() {
            return false;
        }
        let plain = self.plain as usize;
        *steps += 1;
        if !text.starts_with(self.prefix()) {
            return false;
        }
        let Some(stars) = self.stars else {
            let is_as_long = text.len() == self.shortest as usize;
            return is_as_long && here(&self.code[plain..], &text[plain..], steps);
        };
        let (start, rest) = text.split_at(stars.before as usize);
        let (mut rest, end) = rest.split_at(rest.len() - stars.behind as usize);
        let (first, last) = (stars.first as usize, stars.last as usize);
        if !here(&self.code[plain..first], &start[plain..], steps)
            || !here(&self.code[last + MARKED..], end, steps)
        {
            return false;
        }
        // The part between the first and the last star, each piece with the star behind it.
        let mut middle = self.code.get(first + MARKED..last + MARKED);
        while let Some(code) = middle.filter(|code| !code.is_empty()) {
            let (piece, len) = piece(code);
            match search::find(piece, len, rest, steps) {
                Some(end) => rest = &rest[end..],
                None => return false,
            }
            middle = code.get(piece.len() + MARKED..);
        }
        true
    }
}

/// The code up to the next star, and how many bytes of a text it stands for.
fn piece(code: &[u8]) -> (&[u8], usize) {
    let mut tokens = Code(code);
    let mut len = 0;
    loop {
        let left = tokens.0.len();
        match tokens.next() {
            None | Some(Token::Star) => return (&code[..code.len() - left], len),
            Some(_) => len += 1,
        }
    }
}

/// Whether each token matches its byte. There are as many bytes as tokens, and no stars.
#[inline]
fn here(code: &[u8], text: &[u8], steps: &mut u64) -> bool {
    *steps += 1;
    let mut tokens = Code(code);
    for byte in text {
        match tokens.next() {
            Some(token) if token.has(*byte) => *steps += 1,
            _ => return false,
        }
    }
    true
}

/// The bytes of a set, as a bit for each, and the length of the set's text behind its bracket. A set without a closing
/// bracket ends with the pattern.
fn class(pattern: &[u8]) -> ([u64; 4], usize) {
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
    (bits, at)
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
                let (bits, len) = class(rest);
                has(&bits, *byte) && simple(&rest[len..], more)
            }
            ([first, rest @ ..], [byte, more @ ..]) => first == byte && simple(rest, more),
            _ => false,
        }
    }

    fn has(bits: &[u64; 4], byte: u8) -> bool {
        bits[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    #[test]
    fn the_same_as_by_definition() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut found = 0;
        for _ in 0..20_000 {
            let parts = [
                "a", "b", "*", "?", "[ab]", "[^b]", "ab", "aab", "\0", "[^ab]", "[\0b]",
            ];
            let mut pattern = String::new();
            for _ in 0..rng.usize(..7) {
                pattern.push_str(rng.choice(parts).unwrap());
            }
            let text: String = (0..1 + rng.usize(..9))
                .map(|_| *rng.choice(&['a', 'a', 'b', 'b', '\0']).unwrap())
                .collect();
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let expected = simple(pattern, text);
            found += usize::from(expected);
            assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
        }
        assert!(found > 1000, "{found}");
    }

    /// Whatever a pattern is made of, as it is kept as long as a client listens, or a user has it.
    #[test]
    fn no_pattern_is_kept_in_more_than_twice_its_length() {
        let odd: String = (b'!'..=b'~')
            .step_by(2)
            .filter(|byte| byte.is_ascii_alphanumeric())
            .map(char::from)
            .collect();
        let classes = [
            "[ab]", "[^a]", "[ac]", "[^ac]", "[a-z]", "[]", "[^]", "[\\]]", "[^aceg]", "[\0]",
            "[^\0]",
        ];
        let class = format!("[{odd}]");
        let negated = format!("[^{odd}]");
        let parts = [
            "a", "*", "*a", "?", "*?", "a?", "\0", "*\0", "\\*", &class, &negated,
        ];
        for part in parts.iter().chain(&classes) {
            let pattern = part.repeat(LONGEST / part.len());
            let glob = Glob::new(pattern.as_bytes()).unwrap();
            let (memory, len) = (glob.memory(), pattern.len());
            assert!(memory <= 2 * len, "{part}: {memory} of {len}");
        }
    }

    #[test]
    fn what_a_pattern_begins_with() {
        for (pattern, expected) in [
            ("", ""),
            ("abc", "abc"),
            ("abc*", "abc"),
            ("a\\*b?c", "a*b"),
            ("*abc", ""),
            ("ab[c]d[ef]", "abcd"),
            ("a\\", "a\\"),
        ] {
            let glob = Glob::new(pattern.as_bytes()).unwrap();
            assert_eq!(glob.prefix(), expected.as_bytes(), "{pattern}");
        }
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

    /// The definition for `*piece*`.
    fn simple_star(pattern: &[u8], text: &[u8]) -> bool {
        let piece = &pattern[1..pattern.len() - 1];
        text.windows(piece.len()).any(|window| {
            let mut pairs = piece.iter().zip(window);
            pairs.all(|(token, byte)| *token == b'?' || token == byte)
        })
    }
}
