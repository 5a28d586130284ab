//! The calls of the simulated kernel and its answers: a hash of all of them, and the words if wanted.

use std::fmt::Write;
use std::os::fd::RawFd;

#[derive(Default)]
pub(crate) struct Log {
    hash: u64,
    calls: u64,
    /// The loop whose turn it is.
    who: u32,
    words: Option<String>,
}

#[cfg(test)]
impl Log {
    /// Keeps events in words from here on.
    pub(crate) fn keep_words(&mut self) {
        self.words.get_or_insert_default();
    }

    /// The events in words, since words are kept.
    pub(crate) fn words(&self) -> &str {
        self.words.as_deref().unwrap_or_default()
    }

    /// The hash of all calls and answers: equal for equal ones.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// How many calls there have been.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Sets the loop whose turn it is from here on, by its number.
    pub(crate) fn turn_of(&mut self, who: u32) {
        self.who = who;
        self.mix(u64::from(who));
    }
}

impl Log {
    pub(super) fn call(&mut self, now: u64, call: &'static str, number: RawFd, result: i64) {
        self.calls += 1;
        let mut name = [0; 8];
        for (to, from) in name.iter_mut().zip(call.as_bytes()) {
            *to = *from;
        }
        for word in [now, u64::from_le_bytes(name), number as u64, result as u64] {
            self.mix(word);
        }
        let who = self.who;
        self.say(|| {
            let (ms, ns) = (now / 1_000_000, now % 1_000_000);
            let result = match result {
                // Other results are sets of bits, of which the highest may be the sign.
                -4095..0 => rustix::io::Errno::from_raw_os_error(-result as i32).to_string(),
                n => n.to_string(),
            };
            format!("{ms:6}.{ns:06} ms  loop {who}  {call} of {number}: {result}")
        });
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(words) = &mut self.words {
            let _ = writeln!(words, "{}", what());
        }
    }

    fn mix(&mut self, word: u64) {
        let h = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = h ^ (h >> 29);
    }
}

/// Bytes as a result: no error, whatever they are (FNV-1a).
pub(super) fn hash_of(bytes: &[u8]) -> i64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 1) as i64
}
