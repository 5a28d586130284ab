//! Patterns as in file names: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before anything.
//!
//! A pattern is taken apart once and then held against many texts. What is between two stars is
//! looked for from left to right, never going back: a pattern of `p` bytes costs a text of `t` bytes
//! a few steps a byte if its pieces are plain, at most 64 if they are short, and `p / 64` otherwise.

mod search;

use search::Piece;

/// A pattern.
#[derive(Debug)]
pub struct Glob {
    /// What is before the first star; all if there is none.
    head: Vec<Token>,
    /// What is between two stars each.
    middle: Vec<Piece>,
    /// What is behind the last star, if there is one.
    tail: Option<Vec<Token>>,
    /// The length of the shortest text that may match.
    shortest: usize,
}

/// What stands for one byte.
#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    Any,
    /// Those whose bits are set.
    Class(Box<[u64; 4]>),
}

impl Token {
    fn has(&self, byte: u8) -> bool {
        match self {
            Token::Byte(own) => *own == byte,
            Token::Any => true,
            Token::Class(bits) => bits[usize::from(byte / 64)] >> (byte % 64) & 1 == 1,
        }
    }
}

/// Longest pattern that is taken; bytes. It is prepared in up to some 40 times its length of memory.
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
        let (mut pieces, mut piece, mut rest) = (Vec::new(), Vec::new(), pattern);
        let mut shortest = 0;
        while let [first, behind @ ..] = rest {
            let token = match (first, behind) {
                (b'*', _) => {
                    pieces.push(std::mem::take(&mut piece));
                    rest = behind;
                    continue;
                }
                (b'?', _) => Token::Any,
                (b'[', _) => {
                    let (class, len) = class(behind);
                    rest = &behind[len..];
                    piece.push(class);
                    shortest += 1;
                    continue;
                }
                (b'\\', [escaped, after @ ..]) => {
                    rest = after;
                    piece.push(Token::Byte(*escaped));
                    shortest += 1;
                    continue;
                }
                _ => Token::Byte(*first),
            };
            piece.push(token);
            shortest += 1;
            rest = behind;
        }
        if pieces.is_empty() {
            return Glob {
                head: piece,
                middle: Vec::new(),
                tail: None,
                shortest,
            };
        }
        let mut pieces = pieces.into_iter();
        let head = pieces.next().unwrap_or_default();
        Glob {
            head,
            // Stars side by side are one.
            middle: pieces.filter(|p| !p.is_empty()).map(Piece::new).collect(),
            tail: Some(piece),
            shortest,
        }
    }

    /// Whether all of `text` matches. An empty text matches an empty pattern only: not even a star,
    /// as in Redis.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.run(text, &mut 0)
    }

    fn run(&self, text: &[u8], steps: &mut u64) -> bool {
        if text.len() < self.shortest || text.is_empty() && self.tail.is_some() {
            return false;
        }
        let Some(tail) = &self.tail else {
            return text.len() == self.shortest && here(&self.head, text, steps);
        };
        let (start, rest) = text.split_at(self.head.len());
        let (mut rest, end) = rest.split_at(rest.len() - tail.len());
        if !here(&self.head, start, steps) || !here(tail, end, steps) {
            return false;
        }
        for piece in &self.middle {
            match piece.find(rest, steps) {
                Some(end) => rest = &rest[end..],
                None => return false,
            }
        }
        true
    }
}

/// Whether each token has its byte.
fn here(tokens: &[Token], text: &[u8], steps: &mut u64) -> bool {
    let same = tokens
        .iter()
        .zip(text)
        .take_while(|(token, byte)| token.has(**byte));
    let n = same.count();
    *steps += n as u64 + 1;
    n == tokens.len()
}

/// A set from behind its bracket on, and its length. One that is not closed ends with the pattern.
fn class(pattern: &[u8]) -> (Token, usize) {
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
    (Token::Class(Box::new(bits)), at)
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
                let (class, len) = class(rest);
                class.has(*byte) && simple(&rest[len..], more)
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

    /// The definition for `*piece*`.
    fn simple_star(pattern: &[u8], text: &[u8]) -> bool {
        let piece = &pattern[1..pattern.len() - 1];
        text.windows(piece.len()).any(|window| {
            let mut pairs = piece.iter().zip(window);
            pairs.all(|(token, byte)| *token == b'?' || token == byte)
        })
    }
}
