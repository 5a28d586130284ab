//! The commands of the key-value load, their keys and values.
//!
//! The idea: a key's value is a slice of the pattern that begins at a place given by the key and is as
//! long as the key says, so whatever is read can be checked without remembering what was written: it is
//! either missing or exactly that.

use serde::Serialize;

use super::kv_keys::KeyChoice;
use super::kv_mix::Mix;
use super::kv_values::ValueSizes;
use super::kv_wire::Wire;
use super::pattern::Pattern;

/// Commands on keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvLoad {
    /// How the commands are written.
    pub wire: Wire,
    /// How many keys there are, at least 1.
    pub keys: u64,
    /// Bytes of a key, 17 to 255.
    pub key_size: usize,
    /// Bytes of a value, 1 to 8,192; in the binary protocol at most 255. A key's value is as long for ever.
    pub size: ValueSizes,
    /// Commands sent together, at least 1; the next ones follow when all are answered. By the clock,
    /// most commands in flight.
    pub pipeline: u32,
    /// The share of GET, 0 to 1; the others are SET.
    pub reads: f64,
    /// How a command's key is chosen.
    pub choice: KeyChoice,
    /// Commands of the user's own instead of GET and SET, for [`Wire::Resp`]. Made once for the whole process, so that
    /// loads can be copied.
    pub command: Option<&'static Mix>,
    /// Every key was set before: a read that finds nothing is then one that the server has forgotten.
    #[serde(skip)]
    pub filled: bool,
}

impl KvLoad {
    /// The load that sets every key once. To be run for [`KvLoad::keys`] commands.
    #[must_use]
    pub fn fill(self) -> KvLoad {
        KvLoad {
            pipeline: 128,
            reads: 0.0,
            choice: KeyChoice::InTurn,
            ..self
        }
    }

    /// The key as text: `key:` and the number, with as many zeros in front as it takes.
    pub(super) fn key<'a>(&self, number: u64, room: &'a mut [u8; u8::MAX as usize]) -> &'a [u8] {
        let key = &mut room[..self.key_size];
        key.fill(b'0');
        key[..4].copy_from_slice(b"key:");
        let mut rest = number;
        for place in key[4..].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        key
    }

    pub(super) fn value<'a>(&self, pattern: &'a Pattern, key: u64) -> &'a [u8] {
        pattern.slice(key.wrapping_mul(977), self.size.of(key))
    }
}
