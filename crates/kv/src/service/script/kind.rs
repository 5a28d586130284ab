//! The commands that run scripts.

/// Which of the commands that run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(super) by: By,
    pub(crate) read_only: bool,
}

/// The kind of the first argument: a text, a hash or a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Text,
    Hash,
    Function,
}

impl Kind {
    /// The kind of the command of this name.
    pub(crate) fn of(name: &str) -> Option<Kind> {
        let (by, read_only) = match name {
            "eval" => (By::Text, false),
            "evalsha" => (By::Hash, false),
            "fcall" => (By::Function, false),
            "eval_ro" => (By::Text, true),
            "evalsha_ro" => (By::Hash, true),
            "fcall_ro" => (By::Function, true),
            _ => return None,
        };
        Some(Kind { by, read_only })
    }
}
