//! A set of rights: commands, keys and channels that go together.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::access::{self, READS, WRITES};
use super::category::{self, Categories};
use super::denied::Denied;
use super::leaves::leaves;
use crate::commands::Keys;
use crate::service::table::{Entry, What};
use crate::types::glob::{self, Glob};

/// The reason why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Syntax,
    Unknown,
    KeysGivenAlready,
    ChannelsGivenAlready,
    FirstArgumentOfSubcommand,
    PatternTooLong,
    TooManyPatterns,
}

/// Memory that the patterns of one selector may take, at most some twice as much as that: their texts, and so many for each;
/// bytes. A user has up to 1,024 selectors.
const PATTERNS_MAX: usize = 1 << 20;
const PATTERN_COST: usize = 64;

/// A pattern of keys, and what may be done with keys that match.
#[derive(Clone, Debug)]
struct KeyPattern {
    text: Box<[u8]>,
    glob: Arc<Glob>,
    may: u8,
}

#[derive(Clone, Debug)]
struct ChannelPattern {
    text: Box<[u8]>,
    glob: Arc<Glob>,
}

/// A set of rights. A new selector has no rights.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    /// A bit for each command and subcommand.
    may: Vec<u64>,
    /// Commands that do not exist yet are meant too: `+@all` was the beginning.
    all_commands: bool,
    /// First arguments with which commands may be run that otherwise may not, by the number of the command.
    first_args: BTreeMap<usize, Vec<Box<[u8]>>>,
    /// The rules about commands behind the first, in their order.
    rules: Vec<String>,
    keys: Vec<KeyPattern>,
    all_keys: bool,
    channels: Vec<ChannelPattern>,
    all_channels: bool,
}

impl Selector {
    /// Everything.
    pub(super) fn all() -> Selector {
        let mut all = Selector::default();
        for rule in ["+@all", "~*", "&*"] {
            all.apply(rule.as_bytes()).expect("these are rules");
        }
        all
    }

    /// A selector without rights, or with all channels and nothing else.
    pub(super) fn with_channels(all_channels: bool) -> Selector {
        Selector {
            all_channels,
            ..Selector::default()
        }
    }

    /// Whether the selector forbids nothing.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.all_keys && self.all_channels && (0..leaves().all().len()).all(|leaf| self.has(leaf))
    }

    pub(super) fn all_channels(&self) -> bool {
        self.all_channels
    }

    fn has(&self, leaf: usize) -> bool {
        self.may
            .get(leaf / 64)
            .is_some_and(|word| word >> (leaf % 64) & 1 != 0)
    }

    fn put(&mut self, leaf: usize, may: bool) {
        self.may.resize(leaves().all().len().div_ceil(64), 0);
        let bit = 1 << (leaf % 64);
        if may {
            self.may[leaf / 64] |= bit;
        } else {
            self.may[leaf / 64] &= !bit;
        }
    }

    /// Changes the right to a command with all that it is, or to a subcommand.
    fn change(&mut self, leaf: usize, may: bool) {
        let known = &leaves().all()[leaf];
        let all = match known.sub {
            None => leaves().of(known.entry),
            Some(_) => leaf..leaf + 1,
        };
        self.first_args.remove(&all.start);
        all.for_each(|leaf| self.put(leaf, may));
    }

    /// Gives back what its lists do not use.
    pub(super) fn shrink(&mut self) {
        self.may.shrink_to_fit();
        self.rules.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.channels.shrink_to_fit();
        self.first_args.values_mut().for_each(Vec::shrink_to_fit);
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        /// What an allocation takes beside what was asked for, about.
        const APART: usize = 16;
        /// A node of the map of first arguments.
        const NODE: usize = 400;
        // Each pattern has its text, and is taken apart beside it.
        let pattern = size_of::<Glob>() + 2 * size_of::<usize>() + 3 * APART;
        let keys = self.keys.iter().map(|known| known.text.len());
        let keys = keys.map(|len| size_of::<KeyPattern>() + pattern + 2 * len);
        let channels = self.channels.iter().map(|known| known.text.len());
        let channels = channels.map(|len| size_of::<ChannelPattern>() + pattern + 2 * len);
        let patterns = keys.chain(channels);
        let args = self.first_args.values().flatten();
        let args = args.map(|arg| size_of::<Box<[u8]>>() + APART + arg.len());
        let nodes = self.first_args.len().div_ceil(6) * NODE;
        let rules = self.rules.iter();
        let rules = rules.map(|rule| size_of::<String>() + APART + rule.len());
        let bits = APART + self.may.capacity() * size_of::<u64>() + nodes;
        size_of::<Selector>()
            + bits
            + patterns.sum::<usize>()
            + args.sum::<usize>()
            + rules.sum::<usize>()
    }

    /// Applies a rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        let word = rule.to_ascii_lowercase();
        match &word[..] {
            b"allkeys" | b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.all_or_none(true),
            b"nocommands" | b"-@all" => self.all_or_none(false),
            _ => return self.apply_to_some(rule, &word),
        }
        Ok(())
    }

    fn all_or_none(&mut self, may: bool) {
        self.all_commands = may;
        self.rules.clear();
        self.first_args.clear();
        (0..leaves().all().len()).for_each(|leaf| self.put(leaf, may));
    }

    fn apply_to_some(&mut self, rule: &[u8], word: &[u8]) -> Result<(), Wrong> {
        match rule {
            [b'~', pattern @ ..] => self.add_keys(pattern, READS | WRITES),
            [b'%', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'~');
                let end = end.ok_or(Wrong::Syntax)?;
                let may = rest[..end].iter().try_fold(0, |may, right| {
                    let right = match right.to_ascii_uppercase() {
                        b'R' => READS,
                        b'W' => WRITES,
                        _ => return None,
                    };
                    (may & right == 0).then_some(may | right)
                });
                match may {
                    Some(may) if may != 0 => self.add_keys(&rest[end + 1..], may),
                    _ => Err(Wrong::Syntax),
                }
            }
            [b'&', pattern @ ..] => self.add_channels(pattern),
            [sign @ (b'+' | b'-'), b'@', ..] => {
                let name = &word[2..];
                let category = category::named(name).ok_or(Wrong::Unknown)?;
                self.change_category(category, *sign == b'+');
                self.remember(*sign == b'+', &text(&word[1..]));
                Ok(())
            }
            [b'+', ..] => self.allow(&word[1..]),
            [b'-', ..] => {
                let leaf = leaves().named(&word[1..]).ok_or(Wrong::Unknown)?;
                self.change(leaf, false);
                self.remember(false, &leaves().all()[leaf].name());
                Ok(())
            }
            _ => Err(Wrong::Syntax),
        }
    }

    fn change_category(&mut self, category: Categories, may: bool) {
        for (leaf, known) in leaves().all().iter().enumerate() {
            if known.categories & category != 0 {
                self.change(leaf, may);
            }
        }
    }

    /// Allows a command, a subcommand, or a command with a first argument.
    fn allow(&mut self, name: &[u8]) -> Result<(), Wrong> {
        if let Some(leaf) = leaves().named(name) {
            self.change(leaf, true);
            self.remember(true, &leaves().all()[leaf].name());
            return Ok(());
        }
        let bar = name.iter().rposition(|byte| *byte == b'|');
        let (command, first_arg) = name.split_at(bar.ok_or(Wrong::Unknown)?);
        let leaf = leaves().named(command).ok_or(Wrong::Unknown)?;
        let known = &leaves().all()[leaf];
        match first_arg[1..] {
            _ if known.sub.is_some() => return Err(Wrong::FirstArgumentOfSubcommand),
            [] => return Err(Wrong::Syntax),
            _ if known.entry.has_subcommands() => return Err(Wrong::Unknown),
            ref argument => {
                let known = self.first_args.entry(leaf).or_default();
                if !known.iter().any(|known| **known == *argument) {
                    known.push(argument.into());
                }
            }
        }
        self.remember(true, &text(name));
        Ok(())
    }

    /// Keeps a rule in the place of rules that it overrides.
    fn remember(&mut self, may: bool, name: &str) {
        self.rules.retain(|rule| {
            let rest = rule[1..].strip_prefix(name);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        });
        let sign = if may { '+' } else { '-' };
        self.rules.push(format!("{sign}{name}"));
    }

    fn add_keys(&mut self, pattern: &[u8], may: u8) -> Result<(), Wrong> {
        if self.all_keys {
            return Err(Wrong::KeysGivenAlready);
        }
        let glob = glob_of(pattern)?;
        match self.keys.iter_mut().find(|known| *known.text == *pattern) {
            Some(known) => known.may |= may,
            None => {
                self.make_room(pattern)?;
                self.keys.push(KeyPattern {
                    text: pattern.into(),
                    glob,
                    may,
                });
            }
        }
        Ok(())
    }

    /// Whether there may be one more pattern.
    fn make_room(&self, pattern: &[u8]) -> Result<(), Wrong> {
        let keys = self.keys.iter().map(|known| known.text.len());
        let channels = self.channels.iter().map(|known| known.text.len());
        let all = keys.chain(channels).chain([pattern.len()]);
        match all.map(|len| PATTERN_COST + len).sum::<usize>() <= PATTERNS_MAX {
            true => Ok(()),
            false => Err(Wrong::TooManyPatterns),
        }
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), Wrong> {
        if self.all_channels {
            return Err(Wrong::ChannelsGivenAlready);
        }
        let glob = glob_of(pattern)?;
        if !self.channels.iter().any(|known| *known.text == *pattern) {
            self.make_room(pattern)?;
            self.channels.push(ChannelPattern {
                text: pattern.into(),
                glob,
            });
        }
        Ok(())
    }
}

/// Characters other than spaces, so that a line of rules can be read again.
fn glob_of(pattern: &[u8]) -> Result<Arc<Glob>, Wrong> {
    if pattern
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == 0)
    {
        return Err(Wrong::Syntax);
    }
    if pattern.len() > glob::LONGEST {
        return Err(Wrong::PatternTooLong);
    }
    Glob::new(pattern)
        .map(Arc::new)
        .ok_or(Wrong::PatternTooLong)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Selector {
    /// Whether a call may run.
    pub(super) fn check<'a>(
        &self,
        leaf: usize,
        entry: &Entry,
        args: &[&'a [u8]],
    ) -> Result<(), Denied<'a>> {
        if !self.has(leaf) && !self.has_first_arg(leaf, args) {
            return Err(Denied::Command);
        }
        if !self.all_keys {
            let (first, others) = access::of(entry, args);
            for (at, key) in entry.keys(args).into_iter().enumerate() {
                if !self.may_use(key, if at == 0 { first } else { others }) {
                    return Err(Denied::Key(at, key));
                }
            }
            if let Some(option) = follows_pattern(entry, args)
                && !self.reads_everything()
            {
                return Err(Denied::Pattern(option));
            }
        }
        let mut denied = None;
        if !self.all_channels {
            access::each_channel(entry, args, |channel, is_pattern| {
                if denied.is_none() && !self.may_hear(channel, is_pattern) {
                    denied = Some(channel);
                }
            });
        }
        denied.map_or(Ok(()), |channel| Err(Denied::Channel(channel)))
    }

    fn has_first_arg(&self, leaf: usize, args: &[&[u8]]) -> bool {
        let given = args.get(1).copied().unwrap_or_default();
        self.first_args
            .get(&leaf)
            .is_some_and(|known| known.iter().any(|known| known.eq_ignore_ascii_case(given)))
    }

    pub(super) fn may_use(&self, key: &[u8], access: u8) -> bool {
        let fits = |known: &KeyPattern| known.may & access == access && known.glob.matches(key);
        self.all_keys || self.keys.iter().any(fits)
    }

    fn reads_everything(&self) -> bool {
        let all = |known: &KeyPattern| known.may & READS != 0 && *known.text == *b"*";
        self.all_keys || self.keys.iter().any(all)
    }

    /// A pattern may be subscribed to only with the right to just that one.
    pub(super) fn may_hear(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_channels
            || self.channels.iter().any(|known| match is_pattern {
                true => *known.text == *channel,
                false => known.glob.matches(channel),
            })
    }
}

/// The option of SORT that makes it read keys which no argument names, if there is one.
fn follows_pattern(entry: &Entry, args: &[&[u8]]) -> Option<&'static str> {
    match entry.what {
        What::Data(spec) if spec.keys == Keys::Sort && !spec.keys.each(args, |_| {}) => {
            let is = |arg: &&[u8], word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
            let by = args
                .windows(2)
                .any(|two| is(&two[0], "by") && two[1].contains(&b'*'));
            Some(if by { "BY" } else { "GET" })
        }
        _ => None,
    }
}

impl Selector {
    /// The rules about keys.
    pub(super) fn show_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let each = self.keys.iter().map(|known| {
            let sign: &[u8] = match known.may {
                READS => b"%R~",
                WRITES => b"%W~",
                _ => b"~",
            };
            [sign, &known.text[..]].concat()
        });
        each.collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels.
    pub(super) fn show_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let each = self.channels.iter();
        let each = each.map(|known| [b"&", &known.text[..]].concat());
        each.collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about commands.
    pub(super) fn show_commands(&self) -> String {
        let mut text = String::from(if self.all_commands { "+@all" } else { "-@all" });
        for rule in &self.rules {
            let _ = write!(text, " {rule}");
        }
        text
    }

    /// All rules, which make the same selector of an empty one.
    pub(super) fn show(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        let keys = self.show_keys();
        if !keys.is_empty() {
            parts.push(keys);
        }
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        let channels = self.show_channels();
        if !channels.is_empty() {
            parts.push(channels);
        }
        parts.push(self.show_commands().into_bytes());
        parts.join(&b' ')
    }
}
