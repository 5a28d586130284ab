//! A script that is known.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::brief::{has_short_replies, is_brief};
use super::shebang::Flags;

/// A longer text is not compiled on a loop, if there is a thread for scripts; bytes.
pub(super) const TEXT_ON_LOOP: usize = 32 << 10;

/// Bytes that a script takes beside its text, about.
const EACH: usize = 256;

/// A script that is known.
#[derive(Debug)]
pub(super) struct Script {
    /// Hash of the script in hexadecimal digits.
    pub(super) name: String,
    /// The text to compile: a first line for the server is empty in it.
    pub(super) text: Arc<[u8]>,
    pub(super) flags: Flags,
    /// The library to which the function belongs; `text` is the library's text then.
    pub(super) library: Option<u64>,
    /// The script may take long, as far as is known: it runs beside the loops.
    pub(super) slow: AtomicBool,
    /// How often the script has needed more memory than a script on a loop may take.
    outgrown: AtomicU8,
    /// Whether the script's text bounds what it can do, once it was looked at.
    is_brief: OnceLock<bool>,
    has_short_replies: OnceLock<bool>,
}

impl Script {
    /// The name in error texts and for the interpreter; a function has its own name.
    pub(super) fn new(name: String, text: Arc<[u8]>, flags: Flags, library: Option<u64>) -> Script {
        Script {
            name,
            text,
            flags,
            library,
            slow: AtomicBool::new(true),
            outgrown: AtomicU8::new(0),
            is_brief: OnceLock::new(),
            has_short_replies: OnceLock::new(),
        }
    }

    /// Whether the text [bounds](is_brief) the script's work.
    pub(super) fn is_brief(&self) -> bool {
        *self.is_brief.get_or_init(|| is_brief(&self.text))
    }

    /// Whether it may run on a loop that cannot give it away: its text bounds what it can do, and what it is answered.
    pub(super) fn is_bounded(&self) -> bool {
        let has_short_replies = || has_short_replies(&self.text);
        self.is_brief() && *self.has_short_replies.get_or_init(has_short_replies)
    }

    /// Notes that it needs the thread: it takes long, or much memory.
    pub(super) fn note_slow(&self, outgrown: bool) {
        if outgrown {
            let more = |n: u8| n.checked_add(1);
            let _ = self.outgrown.fetch_update(Relaxed, Relaxed, more);
        }
        self.slow.store(true, Relaxed);
    }

    /// Notes how long the script ran beside the loops, and whether it changed something: that
    /// decides whether it runs there again.
    pub(super) fn note_time(&self, took: Duration, wrote: bool) {
        /// A script that takes less runs on the loops from then on: it delays no client there.
        const QUICK: Duration = Duration::from_millis(5);
        // A script that has written could not be ended there.
        /// One that has needed much memory so often stays there.
        const OUTGROWN: u8 = 4;
        let outgrown = self.outgrown.load(Relaxed) >= OUTGROWN;
        let is_long =
            took > QUICK || outgrown || self.text.len() > TEXT_ON_LOOP || wrote && !self.is_brief();
        self.slow.store(is_long, Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len() + EACH
    }
}
