//! The time in the form that begins a line: `2026-01-31T23:59:59.123456Z`. Days and hours are worked out once a second.

use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Length of a stamp up to the second, without fractions: `2026-01-31T23:59:59`.
const WHOLE: usize = 19;
const LEN: usize = WHOLE + 8;

#[derive(Clone, Copy)]
struct Stamp {
    /// The second of the cached text, since 1970; `u64::MAX` before the first.
    second: u64,
    text: [u8; LEN],
}

thread_local! {
    static LAST: Cell<Stamp> = const { Cell::new(Stamp { second: u64::MAX, text: [0; LEN] }) };
}

/// Calls `f` with the present time in words.
pub(super) fn now(f: impl FnOnce(&str)) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut stamp = LAST.get();
    stamp.set(since.unwrap_or_default());
    LAST.set(stamp);
    f(stamp.text());
}

impl Stamp {
    fn set(&mut self, since: Duration) {
        if since.as_secs() != self.second {
            self.second = since.as_secs();
            let mut whole = String::new();
            // Years beyond 9999 make this an error.
            let _ = write!(
                whole,
                "{}",
                humantime::format_rfc3339_micros(UNIX_EPOCH + since)
            );
            match whole.as_bytes().try_into() {
                Ok(text) => self.text = text,
                Err(_) => self.text.fill(b'?'),
            }
        }
        let mut micros = since.subsec_micros();
        for digit in self.text[WHOLE + 1..LEN - 1].iter_mut().rev() {
            *digit = b'0' + (micros % 10) as u8;
            micros /= 10;
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_whole_calculation_gives() {
        let mut stamp = LAST.get();
        let hour = 3_600_000_000_u64;
        let times = (0..5000).map(|i| i * 7 * hour + i * 333_333);
        // Times within a second, over its end, and back.
        let close = [
            0, 1, 999_999, 1_000_000, 1_000_001, 999_998, 59_999_999, 60_000_000,
        ];
        for micros in close.into_iter().chain(times) {
            let since = Duration::from_micros(micros);
            stamp.set(since);
            let want = humantime::format_rfc3339_micros(UNIX_EPOCH + since);
            assert_eq!(stamp.text(), want.to_string());
        }
    }
}
