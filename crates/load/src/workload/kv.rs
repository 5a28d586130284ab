//! The key-value load: pipelines of reads and writes with random keys, in one of two formats.
//!
//! The idea: a key's value is a slice of the pattern that begins at a place given by the key, so
//! whatever is read can be checked without remembering what was written: it is either missing or
//! exactly that.

use std::collections::VecDeque;

use serde::Serialize;
use tidewire::Link;

use super::client::Driver;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::kv_wire::{Front, Wire};
use super::pattern::Pattern;
use super::stage::Desk;

/// Commands on keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvLoad {
    /// How the commands are written.
    pub wire: Wire,
    /// How many keys there are, at least 1.
    pub keys: u64,
    /// Bytes of a key, 17 to 255.
    pub key_size: usize,
    /// Bytes of a value, 1 to 8,192; in the binary protocol at most 255.
    pub size: usize,
    /// Commands sent together, at least 1; the next ones follow when all are answered. By the clock,
    /// most commands in flight.
    pub pipeline: u32,
    /// The share of GET, 0 to 1; the others are SET.
    pub reads: f64,
    /// Whether keys are taken in turn, each connection having a part of them, rather than at random.
    pub in_turn: bool,
}

impl KvLoad {
    /// The load that sets every key once. To be run for [`KvLoad::keys`] commands.
    #[must_use]
    pub fn fill(self) -> KvLoad {
        KvLoad {
            pipeline: 128,
            reads: 0.0,
            in_turn: true,
            ..self
        }
    }
}

/// In a command's number: it is a GET.
const GET: u64 = 1 << 63;

/// One connection of it.
pub(super) struct Kv {
    load: KvLoad,
    /// Commands still to be sent; `u64::MAX` has no end.
    left: u64,
    /// Commands that wait for a reply: the key's number, marked if it is a GET.
    waiting: VecDeque<u64>,
    flight: Flight,
    random: u64,
    /// The next key, if they are taken in turn.
    next: u64,
    buffer: Vec<u8>,
    /// A part of a reply has come.
    in_a_reply: bool,
}

impl Kv {
    pub(super) fn new(
        load: KvLoad,
        count: u64,
        connection: u64,
        connections: usize,
        flight: Flight,
    ) -> Kv {
        Kv {
            load,
            left: count,
            waiting: VecDeque::new(),
            flight,
            // Never zero, and different for each connection.
            random: (connection + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next: load.keys / connections as u64 * connection
                + (load.keys % connections as u64).min(connection),
            buffer: Vec::new(),
            in_a_reply: false,
        }
    }

    /// Marsaglia's xorshift with a multiplication.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn command(&mut self) -> u64 {
        let key = if self.load.in_turn {
            let key = self.next % self.load.keys;
            self.next += 1;
            key
        } else {
            // The upper half of a product is as good as a remainder and needs no division.
            ((u128::from(self.random()) * u128::from(self.load.keys)) >> 64) as u64
        };
        let share = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        if share < self.load.reads {
            key | GET
        } else {
            key
        }
    }

    fn put(&mut self, command: u64, pattern: &Pattern) {
        // `key:` and the number, with as many zeros in front as it takes.
        let mut key = [b'0'; u8::MAX as usize];
        let key = &mut key[..self.load.key_size];
        key[..4].copy_from_slice(b"key:");
        let mut rest = command & !GET;
        for place in key[4..].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if command & GET != 0 {
            self.load.wire.put_read(key, &mut self.buffer);
        } else {
            let value = value(pattern, command, self.load.size);
            self.load.wire.put_write(key, value, &mut self.buffer);
        }
    }
}

fn value(pattern: &Pattern, key: u64, size: usize) -> &[u8] {
    pattern.slice((key & !GET).wrapping_mul(977), size)
}

impl Driver for Kv {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        let waiting = self.waiting.len() as u64;
        let room = match self.flight.is_paced() {
            true => u64::from(self.load.pipeline) - waiting,
            false if waiting == 0 => self.load.pipeline.into(),
            false => 0,
        };
        let commands = self.flight.take(room.min(self.left), link, desk);
        if commands == 0 {
            return;
        }
        if self.left != u64::MAX {
            self.left -= commands;
        }
        for _ in 0..commands {
            let command = self.command();
            self.put(command, &desk.stage.pattern);
            self.waiting.push_back(command);
        }
        link.write(&self.buffer);
        self.buffer.clear();
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        let mut at = 0;
        let mut answered = 0;
        while at < bytes.len() {
            let Some(&command) = self.waiting.front() else {
                let what = format!("{} bytes that nobody asked for", bytes.len() - at);
                return Err(Fault::ReplyBeforeRequest.because(what));
            };
            let want = value(&desk.stage.pattern, command, self.load.size);
            let front = if command & GET == 0 {
                self.load.wire.check_write(&bytes[at..], want)
            } else {
                self.load.wire.check_read(&bytes[at..], want)
            };
            match front {
                Front::Partial => break,
                Front::Good(n) => at += n,
                Front::Wrong(shown, fault) => {
                    let name = if command & GET == 0 { "SET" } else { "GET" };
                    let key = command & !GET;
                    let what = format!("{name} of key {key} was answered by {shown:?}");
                    return Err(fault.because(what));
                }
            }
            self.waiting.pop_front();
            answered += 1;
        }
        if answered > 0 {
            desk.count(answered, at as u64);
            self.flight.answered(answered, link, desk);
            self.send(link, desk);
        }
        self.in_a_reply = at < bytes.len();
        Ok(at)
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.flight.end(self.left, link, desk);
        self.left = 0;
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.waiting.is_empty()
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn is_in_a_reply(&self) -> bool {
        self.in_a_reply
    }

    fn owed(&self) -> String {
        format!(
            "{} of {} commands unanswered",
            self.waiting.len(),
            self.load.pipeline
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: KvLoad = KvLoad {
        wire: Wire::Resp,
        key_size: 17,
        keys: 10,
        size: 3,
        pipeline: 4,
        reads: 0.5,
        in_turn: false,
    };

    #[test]
    fn every_connection_fills_its_own_part_of_the_keys() {
        let mut seen = Vec::new();
        for connection in 0..3 {
            let mine = if connection == 0 { 4 } else { 3 };
            let mut kv = Kv::new(LOAD.fill(), mine, connection, 3, Flight::new(None));
            seen.extend((0..mine).map(|_| kv.command()));
        }
        assert_eq!(seen, (0..10).collect::<Vec<u64>>());
    }
}
