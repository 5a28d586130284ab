//! Every command by its name: commands about keys, and commands about connections and the server.

use std::sync::OnceLock;

use super::records::{NONE, Record};
use super::script::Kind;
// Tests of single files have no service.
#[cfg(test)]
use super::registry::install as fill;
use crate::commands::subcommands::{self, Subcommands};
use crate::commands::{self, BRIEF, Error, FAST, Keys, Spec};
use crate::number::parse_integer;

/// A command that is about the connection or the server.
pub(crate) struct SessionSpec {
    pub(crate) name: &'static str,
    /// As for commands on keys: the number of words with the name; negative is a minimum.
    pub(crate) arity: i16,
    pub(crate) when: When,
    pub(crate) subcommands: Subcommands,
}

/// The states of a connection in which a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Queued by MULTI; not among messages in RESP2.
    Usual,
    /// Allowed among messages in RESP2, too.
    Subscribed,
    /// Allowed before authentication; queued by MULTI.
    First,
    /// Allowed before authentication, and never queued.
    Always,
    /// The command is never queued.
    Transaction,
    /// The command is refused between MULTI and EXEC.
    Alone,
}

/// Commands of these that need the keys or the log, and are refused while the store is being
/// recovered. As in Redis, PING is one of them: with it a client finds out whether it is served.
const NEED_KEYS: &[&str] = &[
    "ping",
    "watch",
    "eval",
    "evalsha",
    "eval_ro",
    "evalsha_ro",
    "script",
    "save",
    "bgsave",
    "bgrewriteaof",
    "wait",
    "waitaof",
];

/// Where the keys stand that a script is given.
pub(super) const SCRIPT_KEYS: Keys = Keys::Counted {
    at: 2,
    first: false,
};

/// A command in the table.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) arity: i16,
    pub(crate) id: u16,
    /// See [`folded`]; 0 if the name is longer, or has something else than letters in it.
    folded: u64,
    /// The subcommands; none for a subcommand itself.
    subcommands: Subcommands,
    needs_keys: bool,
    /// The facts that COMMAND shows of the command.
    pub(super) record: &'static Record,
    pub(crate) what: What,
}

/// The subject of a command: keys, or the connection and the server.
#[derive(Clone, Copy)]
pub(crate) enum What {
    /// Keys.
    Data(&'static Spec),
    /// The connection or the server.
    Session(&'static SessionSpec),
}

impl Entry {
    /// Whether the command may have this many arguments, its name included.
    #[inline]
    pub(crate) fn takes(&self, n: usize) -> bool {
        if self.arity >= 0 {
            n == self.arity as usize
        } else {
            n >= self.arity.unsigned_abs() as usize
        }
    }

    /// Whether the time of the command does not depend on the size of its data, as clients are
    /// told.
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self.what, What::Data(spec) if spec.flags & FAST != 0)
    }

    /// Whether the command is fast, also where clients are not told so.
    #[inline]
    pub(crate) fn is_brief(&self) -> bool {
        matches!(self.what, What::Data(spec) if spec.flags & (FAST | BRIEF) != 0)
    }

    /// Checks the subcommand of a call that has enough arguments.
    #[inline]
    pub(crate) fn check_subcommand(&self, args: &[&[u8]]) -> Result<(), Error> {
        if self.subcommands.is_empty() || args.len() < 2 {
            return Ok(());
        }
        subcommands::check(self.name, self.subcommands, args).map(|_| ())
    }

    /// Whether the command's replies are messages about subscriptions.
    pub(crate) fn confirms(&self) -> bool {
        matches!(self.what, What::Session(spec) if spec.name.ends_with("subscribe"))
    }

    pub(crate) fn subcommands(&self) -> Subcommands {
        self.subcommands
    }

    /// Whether the command cannot run before all keys are loaded.
    pub(crate) fn needs_keys(&self) -> bool {
        self.needs_keys
    }

    /// Whether the command has subcommands.
    pub(crate) fn has_subcommands(&self) -> bool {
        !self.subcommands.is_empty()
    }
}

impl Entry {
    /// The keys among the arguments of a call.
    pub(crate) fn keys<'a>(&self, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut keys = Vec::new();
        match self.what {
            What::Data(spec) => {
                spec.keys.each(args, |key| keys.push(key));
            }
            What::Session(_) if self.name == "watch" => keys.extend(&args[1..]),
            What::Session(_) if self.runs_script() => {
                SCRIPT_KEYS.each(args, |key| keys.push(key));
            }
            What::Session(_) => {}
        }
        keys
    }

    /// Whether the command runs a script.
    pub(crate) fn runs_script(&self) -> bool {
        Kind::of(self.name).is_some()
    }

    /// Whether a call says how many keys it has, and has no such number of them.
    pub(crate) fn counts_wrong_keys(&self, args: &[&[u8]]) -> bool {
        let keys = match self.what {
            What::Data(spec) => spec.keys,
            What::Session(_) if self.runs_script() => SCRIPT_KEYS,
            What::Session(_) => return false,
        };
        let Keys::Counted { at, .. } = keys else {
            return false;
        };
        let at = usize::from(at);
        let least = i64::from(!self.runs_script());
        let behind = args.len().saturating_sub(at + 1) as i64;
        let said = args.get(at).and_then(|arg| parse_integer(arg));
        said.is_none_or(|n| n < least || n > behind)
    }

    /// Whether calls of the command may name keys.
    pub(crate) fn may_have_keys(&self) -> bool {
        match self.what {
            What::Data(spec) => !matches!(spec.keys, Keys::None | Keys::All | Keys::Walk),
            What::Session(_) => self.name == "watch" || self.runs_script(),
        }
    }
}

/// Longest name there may be.
const NAME_MAX: usize = 32;
/// A power of two, several times the number of commands.
const SLOTS: usize = 2048;

/// The table.
pub(crate) struct Table {
    entries: Vec<Entry>,
    /// Entries' numbers plus one, where their names hash to, or behind.
    slots: Box<[u16; SLOTS]>,
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// The table of all commands. Each service installs it before it serves.
#[inline]
pub(crate) fn table() -> &'static Table {
    fill();
    TABLE.get().expect("installed")
}

/// Fills the table from all commands about keys, and from these. The first call counts.
pub(super) fn install(session: impl Iterator<Item = &'static SessionSpec>) -> &'static Table {
    TABLE.get_or_init(|| Table::new(session))
}

#[cfg(not(test))]
#[inline]
fn fill() {}

impl Table {
    fn new(session: impl Iterator<Item = &'static SessionSpec>) -> Table {
        let data = commands::all().map(|spec| (spec.name, spec.arity, What::Data(spec)));
        let session = session.map(|spec| (spec.name, spec.arity, What::Session(spec)));
        let mut table = Table {
            entries: Vec::new(),
            slots: Box::new([0; SLOTS]),
        };
        for (name, arity, what) in data.chain(session) {
            let id = table.entries.len() as u16;
            table.entries.push(Entry {
                name,
                arity,
                id,
                folded: match name.bytes().all(|b| b.is_ascii_alphabetic()) {
                    true => folded(name.as_bytes()),
                    false => 0,
                },
                subcommands: match what {
                    What::Session(spec) => spec.subcommands,
                    What::Data(spec) => match spec.name {
                        "object" => commands::keys::OBJECT,
                        "memory" => commands::keys::MEMORY_COMMANDS,
                        "xgroup" => commands::streams::XGROUP,
                        "xinfo" => commands::streams::XINFO,
                        _ => &[],
                    },
                },
                needs_keys: match what {
                    What::Session(spec) => NEED_KEYS.contains(&spec.name),
                    What::Data(_) => true,
                },
                record: Record::of(name).unwrap_or(&NONE),
                what,
            });
            let mut at = hash(name.as_bytes(), folded(name.as_bytes()));
            while table.slots[at] != 0 {
                at = (at + 1) % SLOTS;
            }
            table.slots[at] = id + 1;
        }
        table
    }

    /// The command of this name, in any case.
    #[inline]
    pub(crate) fn find(&'static self, name: &[u8]) -> Option<&'static Entry> {
        if name.len() > NAME_MAX || name.is_empty() {
            return None;
        }
        let folded = folded(name);
        let mut at = hash(name, folded);
        loop {
            let entry = &self.entries[usize::from(self.slots[at].checked_sub(1)?)];
            if entry.name.len() == name.len() {
                let is_it = match entry.folded {
                    0 => entry.name.as_bytes().eq_ignore_ascii_case(name),
                    letters => letters == folded,
                };
                if is_it {
                    return Some(entry);
                }
            }
            at = (at + 1) % SLOTS;
        }
    }

    pub(crate) fn all(&'static self) -> &'static [Entry] {
        &self.entries
    }

    pub(crate) fn entry(&'static self, id: u16) -> &'static Entry {
        &self.entries[usize::from(id)]
    }

    pub(crate) fn name(&self, id: u16) -> &'static str {
        self.entries[usize::from(id)].name
    }
}

/// A name of up to 8 bytes in one number, equal for upper and lower case; 0 for a longer one. Names
/// of equal length are equal if their numbers are equal and one of them consists of letters.
#[inline]
fn folded(name: &[u8]) -> u64 {
    let bytes = match name.len() {
        1 => u64::from(name[0]),
        2 | 3 => {
            let first = u16::from_le_bytes([name[0], name[1]]);
            u64::from(first) | u64::from(name[name.len() - 1]) << 16
        }
        4..=8 => {
            let half = |at| {
                name[at..]
                    .first_chunk()
                    .map_or(0, |four| u32::from_le_bytes(*four))
            };
            u64::from(half(0)) | u64::from(half(name.len() - 4)) << 32
        }
        _ => 0,
    };
    bytes & 0xdfdf_dfdf_dfdf_dfdf
}

/// A hash that is equal for upper and lower case letters.
#[inline]
fn hash(name: &[u8], folded: u64) -> usize {
    let mut h = folded ^ name.len() as u64;
    if name.len() > 8 {
        for &b in name {
            h = (h ^ u64::from(b & 0xdf)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    (h.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_nothing_else_is() {
        for entry in table().all() {
            let upper = entry.name.to_ascii_uppercase();
            for name in [entry.name, &upper] {
                let found = table().find(name.as_bytes()).expect(name);
                assert_eq!(found.id, entry.id);
            }
            // Characters that are not letters and differ in the bit that separates upper from lower
            // case.
            for at in (0..upper.len()).filter(|&at| !upper.as_bytes()[at].is_ascii_alphabetic()) {
                let mut name = upper.clone().into_bytes();
                name[at] ^= 0x20;
                assert!(table().find(&name).is_none(), "{name:?}");
            }
            for cut in 0..upper.len() {
                let found = table().find(&upper.as_bytes()[..cut]);
                assert!(found.is_none_or(|found| found.name.len() == cut));
            }
        }
        for name in [
            "",
            "g",
            "gett",
            "qet",
            "get\0",
            "g\u{5}t",
            "no-such-command",
        ] {
            assert!(table().find(name.as_bytes()).is_none(), "{name:?}");
        }
    }
}
