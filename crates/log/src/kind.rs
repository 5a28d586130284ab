//! The kind of a log: messages or keys.

use std::fmt;

/// The kind of a log: the meaning of its records. The kind stands in the header of every segment
/// since version 0.3; a log of one kind is not opened as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Messages of producers, for readers.
    Messages,
    /// Changes of the keys of a key-value store.
    Keys,
}

impl Kind {
    /// In a segment's header; 0 there is a log of before, which does not say it.
    pub(crate) fn code(this: Option<Kind>) -> u32 {
        match this {
            None => 0,
            Some(Kind::Messages) => 1,
            Some(Kind::Keys) => 2,
        }
    }

    /// Whether this version does not know the code.
    pub(crate) fn is_later(code: u32) -> bool {
        code != 0 && Kind::of(code).is_none()
    }

    pub(crate) fn of(code: u32) -> Option<Kind> {
        let all = [Kind::Messages, Kind::Keys];
        all.into_iter().find(|&kind| Kind::code(Some(kind)) == code)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Messages => "messages",
            Kind::Keys => "keys",
        })
    }
}
