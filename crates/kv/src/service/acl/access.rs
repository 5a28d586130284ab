//! How a command uses the keys and channels that it names: reads, writes, both.

use crate::service::key_flags;
use crate::service::table::Entry;

/// Reads the value of a key, or tells of it.
pub(super) const READS: u8 = 1;
/// The command changes a key, adds one or removes one.
pub(super) const WRITES: u8 = 2;

/// How a call uses its first key, and its other keys.
pub(super) fn of(entry: &Entry, args: &[&[u8]]) -> (u8, u8) {
    let (first, others) = key_flags::of_call(entry, args);
    (of_flags(first), of_flags(others))
}

/// The result is neither reading nor writing for a key of which only the existence or size is told:
/// any right to it will do.
fn of_flags(flags: &[&str]) -> u8 {
    let each = flags.iter().map(|flag| match *flag {
        "access" => READS,
        "insert" | "update" | "delete" => WRITES,
        _ => 0,
    });
    each.fold(0, |all, flag| all | flag)
}

/// Shows the channels that a call publishes to or subscribes to, and whether each is a pattern.
pub(super) fn each_channel<'a>(
    entry: &Entry,
    args: &[&'a [u8]],
    mut show: impl FnMut(&'a [u8], bool),
) {
    match entry.name {
        "publish" | "spublish" => {
            if let Some(channel) = args.get(1) {
                show(channel, false);
            }
        }
        "subscribe" | "ssubscribe" => args[1..].iter().for_each(|channel| show(channel, false)),
        "psubscribe" => args[1..].iter().for_each(|pattern| show(pattern, true)),
        _ => {}
    }
}
