//! The coarse clock that says when a key was last used: 24 bits of quarter seconds.
//!
//! The clock wraps after 49 days; a key that was unused for longer looks younger than it is.

/// Milliseconds of a tick.
const TICK_MS: u64 = 256;
/// The clock's values.
const TURN: u32 = 1 << 24;

/// The clock at a time in milliseconds since 1970.
#[inline]
pub(crate) fn at(now_ms: u64) -> u32 {
    (now_ms / TICK_MS) as u32 % TURN
}

/// Milliseconds from `then` to `now`, to the tick.
#[inline]
pub(crate) fn idle_ms(then: u32, now: u32) -> u64 {
    u64::from(now.wrapping_sub(then) % TURN) * TICK_MS
}

/// The clock some seconds before; as long ago as can be told at most.
pub(crate) fn before(now: u32, seconds: u64) -> u32 {
    // Rounded up: no fewer seconds than these are told.
    let ticks = (seconds.saturating_mul(1000).div_ceil(TICK_MS)).min(u64::from(TURN) - 1);
    now.wrapping_sub(ticks as u32) % TURN
}
