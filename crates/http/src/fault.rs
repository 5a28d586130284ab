//! The reason why a request is refused.

/// Why a request is refused: the status that says so, and a word for the body of the reply, the log
/// and the closing reason. The connection is closed behind it: where the next request would begin
/// is no longer certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
}

impl Fault {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Fault {
        Fault { status, reason }
    }

    /// 400.
    pub(crate) const fn bad(reason: &'static str) -> Fault {
        Fault::new(400, reason)
    }
}
