//! Lua's patterns, matched without recursion: what C would keep on its stack stands in a list of choices, which has a bound,
//! and every step counts, so that a script can be stopped in the middle of a match.
//!
//! The results equal the results of Lua 5.1's own functions, oddities included: a pattern ends at
//! its first zero byte.

use crate::effort::Effort;
use crate::state::Stopped;

/// Captures of one pattern.
const CAPTURES: usize = 32;
/// Choices that may be open at once. C keeps each on its stack, and overflows long before.
const CHOICES: usize = 1 << 16;
/// The characters that make a pattern more than a text.
const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pattern is wrong.
    Pattern(&'static str),
    /// The script is to stop.
    Stopped,
}

impl From<Stopped> for Fault {
    fn from(_: Stopped) -> Fault {
        Fault::Stopped
    }
}

/// The content of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// The bytes from here to there.
    Text(usize, usize),
    /// A place in the text, from 0.
    Position(usize),
    /// The capture has begun here.
    Open(usize),
}

/// The place of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A choice to try, or to take back, when the rest of the pattern does not match.
enum Choice {
    /// One repetition less, down to `least`.
    Fewer {
        at: usize,
        least: usize,
        then: usize,
    },
    /// One repetition of the item from `item` to `then` more.
    More { at: usize, item: usize, then: usize },
    /// The match goes on without the item.
    Without { at: usize, then: usize },
    /// The last capture has not begun.
    Unopened,
    /// This capture, which began there, has not ended.
    Unclosed { capture: usize, start: usize },
}

/// A pattern and the text that it is looked for in.
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES],
    level: usize,
    choices: Vec<Choice>,
}

/// Whether the first bytes up to a zero are nothing but text.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    let seen = pattern.iter().take_while(|b| **b != 0);
    !seen.into_iter().any(|b| SPECIALS.contains(b))
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(text: &'a [u8], pattern: &'a [u8]) -> Matcher<'a> {
        Matcher {
            text,
            pattern,
            captures: [Capture::Open(0); CAPTURES],
            level: 0,
            choices: Vec::new(),
        }
    }

    /// The first match at `from` or behind it. Where `anchors`, a pattern that begins with `^` matches at `from` alone.
    pub(crate) fn find(
        &mut self,
        from: usize,
        anchors: bool,
        effort: &mut Effort<'_>,
    ) -> Result<Option<Found>, Fault> {
        let anchored = anchors && self.is_anchored();
        for start in from..=self.text.len() {
            if let Some(end) = self.match_at(start, usize::from(anchored), effort)? {
                return Ok(Some(Found { start, end }));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    pub(crate) fn is_anchored(&self) -> bool {
        self.pattern.first() == Some(&b'^')
    }

    /// How many captures the last match has.
    pub(crate) fn captures(&self) -> usize {
        self.level
    }

    /// A capture of the last match, counted from 0; the whole match where a pattern has none.
    pub(crate) fn capture(&self, at: usize, whole: Found) -> Result<Capture, Fault> {
        if at < self.level {
            return match self.captures[at] {
                Capture::Open(_) => Err(Fault::Pattern("unfinished capture")),
                capture => Ok(capture),
            };
        }
        if at > 0 {
            return Err(Fault::Pattern("invalid capture index"));
        }
        Ok(Capture::Text(whole.start, whole.end))
    }

    /// A byte of the pattern; 0 behind its end.
    fn p(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    /// Where the match of the pattern's rest ends that begins at `at`.
    fn match_at(
        &mut self,
        at: usize,
        pattern_from: usize,
        effort: &mut Effort<'_>,
    ) -> Result<Option<usize>, Fault> {
        self.level = 0;
        self.choices.clear();
        let (mut s, mut p) = (at, pattern_from);
        loop {
            effort.spend(1)?;
            let next = match self.step(s, p, effort)? {
                Step::Matched => return Ok(Some(s)),
                Step::Next(s, p) => Some((s, p)),
                Step::Failed => self.back(effort)?,
            };
            match next {
                Some(next) => (s, p) = next,
                None => return Ok(None),
            }
        }
    }

    /// Matches one item.
    fn step(&mut self, s: usize, p: usize, effort: &mut Effort<'_>) -> Result<Step, Fault> {
        match self.p(p) {
            b'(' if self.p(p + 1) == b')' => self.open(Capture::Position(s), s, p + 2),
            b'(' => self.open(Capture::Open(s), s, p + 1),
            b')' => self.close(s, p + 1),
            b'%' if self.p(p + 1) == b'b' => self.balanced(s, p + 2, effort),
            b'%' if self.p(p + 1) == b'f' => self.frontier(s, p + 2, effort),
            b'%' if self.p(p + 1).is_ascii_digit() => self.again(s, p, effort),
            0 => Ok(Step::Matched),
            b'$' if self.p(p + 1) == 0 => Ok(if s == self.text.len() {
                Step::Matched
            } else {
                Step::Failed
            }),
            _ => self.item(s, p, effort),
        }
    }

    /// A single class, and how often.
    fn item(&mut self, s: usize, p: usize, effort: &mut Effort<'_>) -> Result<Step, Fault> {
        let end = self.class_end(p, effort)?;
        // A set is looked through for each byte.
        let cost = (end - p) as u64;
        let matches = self.is_single(s, p, end);
        match self.p(end) {
            b'?' if matches => {
                let then = end + 1;
                self.choose(Choice::Without { at: s, then })?;
                Ok(Step::Next(s + 1, then))
            }
            b'?' => Ok(Step::Next(s, end + 1)),
            b'+' if !matches => Ok(Step::Failed),
            sign @ (b'*' | b'+') => {
                let least = s + usize::from(sign == b'+');
                let mut most = least;
                while self.is_single(most, p, end) {
                    effort.spend(cost)?;
                    most += 1;
                }
                let then = end + 1;
                if most > least {
                    let at = most - 1;
                    self.choose(Choice::Fewer { at, least, then })?;
                }
                Ok(Step::Next(most, then))
            }
            b'-' => {
                self.choose(Choice::More {
                    at: s,
                    item: p,
                    then: end,
                })?;
                Ok(Step::Next(s, end + 1))
            }
            _ if matches => Ok(Step::Next(s + 1, end)),
            _ => Ok(Step::Failed),
        }
    }

    /// Goes on with the last choice that has something left; none if nothing has.
    fn back(&mut self, effort: &mut Effort<'_>) -> Result<Option<(usize, usize)>, Fault> {
        while let Some(choice) = self.choices.pop() {
            effort.spend(1)?;
            match choice {
                Choice::Fewer { at, least, then } => {
                    if at > least {
                        let at = at - 1;
                        self.choices.push(Choice::Fewer { at, least, then });
                    }
                    return Ok(Some((at, then)));
                }
                Choice::More { at, item, then } => {
                    effort.spend((then - item) as u64)?;
                    if self.is_single(at, item, then) {
                        let at = at + 1;
                        self.choices.push(Choice::More { at, item, then });
                        return Ok(Some((at, then + 1)));
                    }
                }
                Choice::Without { at, then } => return Ok(Some((at, then))),
                Choice::Unopened => self.level -= 1,
                Choice::Unclosed { capture, start } => {
                    self.captures[capture] = Capture::Open(start);
                }
            }
        }
        Ok(None)
    }

    fn choose(&mut self, choice: Choice) -> Result<(), Fault> {
        if self.choices.len() >= CHOICES {
            return Err(Fault::Pattern("pattern too complex"));
        }
        self.choices.push(choice);
        Ok(())
    }

    fn open(&mut self, capture: Capture, s: usize, p: usize) -> Result<Step, Fault> {
        if self.level >= CAPTURES {
            return Err(Fault::Pattern("too many captures"));
        }
        self.captures[self.level] = capture;
        self.level += 1;
        self.choose(Choice::Unopened)?;
        Ok(Step::Next(s, p))
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Step, Fault> {
        let open = self.captures[..self.level].iter().enumerate().rev();
        let last = open.into_iter().find_map(|(at, capture)| match capture {
            Capture::Open(start) => Some((at, *start)),
            _ => None,
        });
        let (capture, start) = last.ok_or(Fault::Pattern("invalid pattern capture"))?;
        self.captures[capture] = Capture::Text(start, s);
        self.choose(Choice::Unclosed { capture, start })?;
        Ok(Step::Next(s, p))
    }

    /// `%1` and so on: matches the content of a capture once more.
    fn again(&mut self, s: usize, p: usize, effort: &mut Effort<'_>) -> Result<Step, Fault> {
        const BAD: Fault = Fault::Pattern("invalid capture index");
        let at = usize::from(self.p(p + 1)).checked_sub(usize::from(b'1'));
        let captures = &self.captures[..self.level];
        match at.and_then(|at| captures.get(at)).ok_or(BAD)? {
            Capture::Open(_) => Err(BAD),
            Capture::Position(_) => Ok(Step::Failed),
            &Capture::Text(start, end) => {
                effort.spend((end - start) as u64 / 16)?;
                Ok(if self.text[s..].starts_with(&self.text[start..end]) {
                    Step::Next(s + (end - start), p + 2)
                } else {
                    Step::Failed
                })
            }
        }
    }

    /// `%bxy`: from an x to the y that closes it. `p` is where the two stand.
    fn balanced(&mut self, s: usize, p: usize, effort: &mut Effort<'_>) -> Result<Step, Fault> {
        let (open, close) = (self.p(p), self.p(p + 1));
        if open == 0 || close == 0 {
            return Err(Fault::Pattern("unbalanced pattern"));
        }
        if self.text.get(s) != Some(&open) {
            return Ok(Step::Failed);
        }
        let mut depth = 1_usize;
        for (at, &byte) in self.text.iter().enumerate().skip(s + 1) {
            effort.spend(1)?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Step::Next(at + 1, p + 2));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(Step::Failed)
    }

    /// `%f[set]`: between a byte that is not in the set and one that is.
    fn frontier(&mut self, s: usize, p: usize, effort: &mut Effort<'_>) -> Result<Step, Fault> {
        if self.p(p) != b'[' {
            return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p, effort)?;
        let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
        let here = self.text.get(s).copied().unwrap_or(0);
        if self.is_in_set(before, p, end - 1) || !self.is_in_set(here, p, end - 1) {
            return Ok(Step::Failed);
        }
        Ok(Step::Next(s, end))
    }

    /// Where the class ends that begins at `p`.
    fn class_end(&self, p: usize, effort: &mut Effort<'_>) -> Result<usize, Fault> {
        match self.p(p) {
            b'%' if self.p(p + 1) == 0 => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.p(at) == b'^' {
                    at += 1;
                }
                loop {
                    effort.spend(1)?;
                    match self.p(at) {
                        0 => return Err(Fault::Pattern("malformed pattern (missing ']')")),
                        b'%' if self.p(at + 1) != 0 => at += 2,
                        _ => at += 1,
                    }
                    if self.p(at) == b']' {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte of the text at `s` is of the class from `p` to `end`.
    fn is_single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.p(p) {
            b'.' => true,
            b'%' => is_of_class(byte, self.p(p + 1)),
            b'[' => self.is_in_set(byte, p, end - 1),
            other => other == byte,
        }
    }

    /// Whether a byte is in the set whose brackets stand at `p` and `end`.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let inverted = self.p(p + 1) == b'^';
        let mut at = p + 1 + usize::from(inverted);
        while at < end {
            if self.p(at) == b'%' {
                if is_of_class(byte, self.p(at + 1)) {
                    return !inverted;
                }
                at += 2;
            } else if self.p(at + 1) == b'-' && at + 2 < end {
                if (self.p(at)..=self.p(at + 2)).contains(&byte) {
                    return !inverted;
                }
                at += 3;
            } else {
                if self.p(at) == byte {
                    return !inverted;
                }
                at += 1;
            }
        }
        inverted
    }
}

/// The result of one item.
enum Step {
    /// The pattern is at its end.
    Matched,
    /// The text and the pattern go on here.
    Next(usize, usize),
    Failed,
}

/// Whether a byte is of the class with this letter.
fn is_of_class(byte: u8, letter: u8) -> bool {
    let is = match letter.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte == b' ' || (b'\t'..=b'\r').contains(&byte),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return letter == byte,
    };
    is == letter.is_ascii_lowercase()
}
