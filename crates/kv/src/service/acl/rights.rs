//! The rights of a user, and the ways in which the user logs in. A value never changes: a new one
//! replaces it.

use super::denied::Denied;
use super::leaves::leaves;
use super::password::Hash;
use super::selector::Selector;
use crate::service::pubsub::Listening;
use crate::service::table::Entry;

/// Rights and passwords of a user.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    /// Whether clients may log in as this user.
    pub(super) on: bool,
    /// Any password will do.
    pub(super) nopass: bool,
    /// The rule about payloads that was given. The rule has no effect, because payloads are always
    /// checked, and is only listed again.
    pub(super) sanitize: Option<bool>,
    pub(super) passwords: Vec<Hash>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
    /// The user may do everything. See [`Rights::settle`].
    unrestricted: bool,
}

impl Rights {
    /// The rights of a new user: none.
    pub(super) fn none(all_channels: bool) -> Rights {
        Rights {
            on: false,
            nopass: false,
            sanitize: None,
            passwords: Vec::new(),
            root: Selector::with_channels(all_channels),
            selectors: Vec::new(),
            unrestricted: false,
        }
    }

    /// The default rights of the user `default`: all, with a password if there is one.
    pub(super) fn of_default(password: Option<&str>) -> Rights {
        let mut rights = Rights {
            on: true,
            root: Selector::all(),
            unrestricted: true,
            ..Rights::none(true)
        };
        rights.set_password(password);
        rights
    }

    /// Has this password and no other; none is any.
    pub(super) fn set_password(&mut self, password: Option<&str>) {
        self.nopass = password.is_none();
        self.passwords = password
            .map(|text| Hash::of(text.as_bytes()))
            .into_iter()
            .collect();
    }

    /// Finishes the rights; to be called behind changes.
    pub(super) fn settle(mut self) -> Rights {
        let unrestricted = self.selectors().any(Selector::is_unrestricted);
        self.root.shrink();
        self.selectors.iter_mut().for_each(Selector::shrink);
        self.selectors.shrink_to_fit();
        Rights {
            unrestricted,
            ..self
        }
    }

    /// Bytes of memory that the rights take, about.
    pub(super) fn bytes(&self) -> usize {
        let passwords = self.passwords.len() * size_of::<Hash>();
        size_of::<Rights>() + passwords + self.selectors().map(Selector::bytes).sum::<usize>()
    }

    /// Whether the rights forbid nothing.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.unrestricted
    }

    /// Whether connections are of this user without a password.
    pub(super) fn is_open(&self) -> bool {
        self.on && self.nopass
    }

    pub(super) fn accepts(&self, given: Hash) -> bool {
        let known = given.is_among(&self.passwords);
        self.on && (self.nopass || known)
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether a call may run, which has enough arguments and a subcommand that there is.
    pub(crate) fn check<'a>(&self, entry: &Entry, args: &[&'a [u8]]) -> Result<(), Denied<'a>> {
        // A user without rights may still become another user, or go.
        if self.unrestricted || matches!(entry.name, "auth" | "hello" | "quit" | "reset") {
            return Ok(());
        }
        let leaf = leaves().called(entry, args);
        let mut closest: Option<Denied<'a>> = None;
        for selector in self.selectors() {
            match selector.check(leaf, entry, args) {
                Ok(()) => return Ok(()),
                Err(denied) if closest.is_none_or(|known| known.rank() < denied.rank()) => {
                    closest = Some(denied);
                }
                Err(_) => {}
            }
        }
        Err(closest.unwrap_or(Denied::Command))
    }

    /// Whether there is any right to this key.
    pub(crate) fn may_know(&self, key: &[u8]) -> bool {
        self.selectors().any(|selector| selector.may_use(key, 0))
    }

    /// Whether a subscription may go on.
    pub(crate) fn may_hear(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors()
            .any(|selector| selector.may_hear(channel, is_pattern))
    }

    /// Whether a client may go on listening to all that it has subscribed to.
    pub(super) fn may_go_on<M>(&self, listening: &Listening<M>) -> bool {
        self.selectors().any(Selector::all_channels)
            || listening.all(|name, is_pattern| self.may_hear(name, is_pattern))
    }
}

/// The name of the command that a call runs, as in `config|get`.
pub(in crate::service) fn name_of_call(entry: &Entry, args: &[&[u8]]) -> String {
    leaves().all()[leaves().called(entry, args)].name()
}

impl Rights {
    /// The words that ACL GETUSER shows.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.on { "on" } else { "off" }];
        flags.extend(self.nopass.then_some("nopass"));
        flags.extend(self.sanitize.map(|yes| match yes {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        }));
        flags
    }

    /// A line that makes this user, as ACL LIST shows it.
    pub(super) fn line(&self, name: &[u8]) -> Vec<u8> {
        let mut line = [b"user ", name].concat();
        let mut add = |part: &[u8]| {
            line.push(b' ');
            line.extend_from_slice(part);
        };
        self.flags().iter().for_each(|flag| add(flag.as_bytes()));
        for password in &self.passwords {
            add(format!("#{}", password.to_hex()).as_bytes());
        }
        add(&self.root.show());
        for selector in &self.selectors {
            add(&[b"(", &selector.show()[..], b")"].concat());
        }
        line
    }
}
