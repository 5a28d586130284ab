//! Facts about a command that are known before it runs.

use super::parse::parse_integer;

/// Properties of a command, as bits.
pub type Flags = u8;

/// The command changes no key.
pub const READ: Flags = 1;
/// The command may change keys.
pub const WRITE: Flags = 2;
/// The command may need more memory: refused when memory is short.
pub const MEMORY: Flags = 4;
/// The command's time does not depend on how much there is.
pub const FAST: Flags = 8;
/// Like `FAST`, for a command that clients do not see as fast. The command touches only the keys
/// and arguments of its call.
pub const BRIEF: Flags = 16;
/// The effect of the command is not bounded by its arguments: the command [reserves](crate::commands::Ctx::reserve) more
/// room when it knows how much.
pub const UNBOUNDED: Flags = 32;
/// Subcommands that create something may need more memory; others may give some back, and are not
/// refused.
pub const CREATES: Flags = 64;
/// The command removes, or has something removed later, and makes nothing longer: on a full disk it
/// may use what is held for that.
pub const REMOVES: Flags = 128;

/// The facts about a command on keys.
pub struct Signature {
    /// Name of the command in lower case.
    pub name: &'static str,
    /// The number of the command's arguments including the name; negative for at least that many.
    pub arity: i16,
    /// The properties of the command.
    pub flags: Flags,
    /// The places of the command's keys among its arguments.
    pub keys: Keys,
}

/// Where the keys of a command are among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The command uses no keys.
    None,
    /// The command may use any key there is.
    All,
    /// The command walks through the keys by itself, with the lock of one shard at a time: its
    /// result is no snapshot of one moment, unless the command runs in a transaction.
    Walk,
    /// The first argument and the one behind STORE; any key if others are named by patterns, as SORT
    /// does it.
    Sort,
    /// The first argument, and the one behind STORE or STOREDIST, which may stand from here on.
    GeoStore(u8),
    /// The first half of the arguments behind STREAMS, as XREAD has them.
    Streams,
    /// From one argument to another, in steps.
    Range {
        /// The place of the first key.
        first: u8,
        /// The last; counted from the end if negative.
        last: i8,
        /// The distance from one key to the next.
        step: u8,
    },
    /// As many keys as the preceding argument says.
    Counted {
        /// The argument with the number.
        at: u8,
        /// The first argument is a key as well.
        first: bool,
    },
}

impl Keys {
    /// One key: the first argument.
    pub const ONE: Keys = Keys::Range {
        first: 1,
        last: 1,
        step: 1,
    };
    /// Two keys: the first two arguments.
    pub const TWO: Keys = Keys::Range {
        first: 1,
        last: 2,
        step: 1,
    };
    /// All arguments.
    pub const REST: Keys = Keys::Range {
        first: 1,
        last: -1,
        step: 1,
    };
    /// All but the last argument.
    pub const ALL_BUT_LAST: Keys = Keys::Range {
        first: 1,
        last: -2,
        step: 1,
    };
    /// The second argument.
    pub const SECOND: Keys = Keys::Range {
        first: 2,
        last: 2,
        step: 1,
    };

    /// Calls `key` for each key; false if the command may use any key.
    #[inline]
    pub fn each<'x>(&self, args: &[&'x [u8]], mut key: impl FnMut(&'x [u8])) -> bool {
        match *self {
            Keys::None => {}
            Keys::Walk => {}
            Keys::All => return false,
            Keys::Sort => return each_of_sort(args, key),
            Keys::GeoStore(from) => {
                args.get(1).into_iter().for_each(|arg| key(arg));
                stored_places(args, from.into()).for_each(key);
            }
            Keys::Streams => streams(args).iter().for_each(|arg| key(arg)),
            Keys::Range { first, last, step } => {
                let first = usize::from(first);
                let last = if last < 0 {
                    args.len().saturating_sub(usize::from(last.unsigned_abs()))
                } else {
                    last as usize
                };
                let mut at = first;
                while at <= last && at < args.len() {
                    key(args[at]);
                    at += usize::from(step);
                }
            }
            Keys::Counted { at, first } => {
                if first && args.len() > 1 {
                    key(args[1]);
                }
                let at = usize::from(at);
                let n = args.get(at).and_then(|arg| parse_integer(arg)).unwrap_or(0);
                // A wrong number is an error before any key is used.
                let n = usize::try_from(n).unwrap_or(0);
                args.iter().skip(at + 1).take(n).for_each(|arg| key(arg));
            }
        }
        true
    }
}

/// The keys of XREAD and XREADGROUP; none if it is wrong, which is an error before any is used.
fn streams<'a, 'x>(args: &'a [&'x [u8]]) -> &'a [&'x [u8]] {
    let mut rest = args.get(1..).unwrap_or_default();
    while let [option, behind @ ..] = rest {
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        let arguments = match () {
            () if is("streams") && behind.len() % 2 == 0 => return &behind[..behind.len() / 2],
            () if is("noack") => 0,
            () if is("block") || is("count") => 1,
            () if is("group") => 2,
            () => break,
        };
        rest = behind.get(arguments..).unwrap_or_default();
    }
    &[]
}

/// The key behind STORE or STOREDIST. If there are several, the last one counts; the others are not
/// used.
fn stored_places<'a, 'x>(
    args: &'a [&'x [u8]],
    from: usize,
) -> impl Iterator<Item = &'x [u8]> + use<'a, 'x> {
    let mut rest = args.get(from..).unwrap_or_default();
    let mut into = None;
    while let [option, behind @ ..] = rest {
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        rest = behind;
        if let [key, behind @ ..] = behind
            && (is("store") || is("storedist"))
        {
            (into, rest) = (Some(*key), behind);
        }
    }
    into.into_iter()
}

/// The keys of SORT; false if its patterns may name any.
fn each_of_sort<'x>(args: &[&'x [u8]], mut key: impl FnMut(&'x [u8])) -> bool {
    let Some((first, mut rest)) = args.get(1..).and_then(<[_]>::split_first) else {
        return true;
    };
    key(first);
    let (mut into, mut known) = (None, true);
    while let [option, behind @ ..] = rest {
        let word = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        let arguments = match behind {
            [_, _, ..] if word("limit") => 2,
            [destination, ..] if word("store") => {
                into = Some(*destination);
                1
            }
            [pattern, ..] if word("by") || word("get") => {
                known &= !pattern.contains(&b'*');
                1
            }
            _ => 0,
        };
        rest = &behind[arguments..];
    }
    into.into_iter().for_each(key);
    known
}

impl Signature {
    /// Whether the command may have this many arguments, its name included.
    #[must_use]
    pub fn takes(&self, n: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            n >= least
        } else {
            n == least
        }
    }

    /// Whether the command may change keys.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// Whether the command's effect is not bounded by its arguments.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.flags & UNBOUNDED != 0
    }

    /// Whether the command makes no value longer, and may free memory, given these arguments.
    #[inline]
    #[must_use]
    pub fn removes(&self, args: &[&[u8]]) -> bool {
        self.flags & (REMOVES | CREATES) != 0 && (self.flags & REMOVES != 0 || !creates(args))
    }

    /// Whether the command may need more memory, given these arguments.
    #[inline]
    #[must_use]
    pub fn needs_memory(&self, args: &[&[u8]]) -> bool {
        self.flags & (MEMORY | CREATES) != 0 && (self.flags & MEMORY != 0 || creates(args))
    }
}

/// Whether the subcommand begins so.
#[cold]
fn creates(args: &[&[u8]]) -> bool {
    let sub = args.get(1).and_then(|sub| sub.first_chunk::<6>());
    sub.is_some_and(|sub| sub.eq_ignore_ascii_case(b"create"))
}

impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signature({})", self.name)
    }
}
