//! The key-value load: pipelines of reads and writes with random keys, in one of two formats.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use tidewire::Link;

use super::client::Driver;
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::flight::Flight;
use super::generator::Watch;
use super::kv_growth::Growth;
use super::kv_keys::{KeyChoice, Picker, unit};
use super::kv_load::KvLoad;
use super::kv_mix::{Firsts, Mix};
use super::kv_null::AllSet;
use super::kv_template::Filling;
use super::kv_values::ValueSizes;
use super::kv_wire::Front;
use super::load::{Baseline, Load, Scripted, Workload};
use super::null::Replies;
use super::pattern::Pattern;
use super::stage::Desk;
use crate::numbers::grouped;

impl Load for KvLoad {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn mode(&self) -> Option<&'static str> {
        Some(self.wire.mode())
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "commands"
    }

    fn described(&self) -> String {
        let values = match self.size {
            ValueSizes::Fixed(size) => format!("{size} bytes"),
            ValueSizes::Range(least, most) => format!("{least} to {most} bytes"),
            ValueSizes::Weighted(all) => {
                format!("{} lengths to {} bytes", all.len(), self.size.most())
            }
        };
        let choice = match self.choice {
            KeyChoice::Zipf { theta } => format!(", zipf {theta}"),
            KeyChoice::Uniform | KeyChoice::InTurn => String::new(),
        };
        let what = match self.command {
            Some(mix) => format!("{:?}", mix.shown()),
            None => format!("{:.0} % reads", self.reads * 100.0),
        };
        format!(
            "kv/{} with {} keys of {} bytes{choice}, values of {values}, {what}, {} in a pipeline",
            self.wire.mode(),
            grouped(self.keys as f64),
            self.key_size,
            self.pipeline
        )
    }

    fn is_lock_step(&self) -> bool {
        self.pipeline == 1
    }

    fn is_filled(&self) -> bool {
        self.filled
    }

    fn counted(&self) -> Option<Scripted> {
        let own = Workload::of(*self);
        Some(Scripted::rounds(own, self.pipeline, self.key_size))
    }

    fn baseline(&self) -> Baseline {
        match self.command {
            None => Baseline::Null(Replies::Made(Box::new(AllSet {
                load: *self,
                pattern: Box::new(Pattern::new()),
            }))),
            Some(_) => Baseline::Unknown("only the server knows the reply to --command"),
        }
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        let firsts = Arc::new(load.command.map(Mix::firsts).unwrap_or_default());
        execution.go(false, watch, move |connection| {
            let part = (connection, dealt.connections);
            let flight = dealt.flight(connection);
            Kv::new(load, dealt.count(connection), part, flight, &firsts)
        })
    }
}

/// A command, and the key that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Command {
    what: What,
    key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Get,
    Set,
    /// A command that the user gave, by its number.
    Own(u8),
}

/// One connection of the load.
pub(super) struct Kv {
    load: KvLoad,
    /// Commands still to be sent; `u64::MAX` has no end.
    left: u64,
    /// Commands that wait for a reply.
    waiting: VecDeque<Command>,
    flight: Flight,
    random: Random,
    picker: Picker,
    firsts: Arc<Firsts>,
    /// What tells whether replies rise that have to.
    growth: Option<Growth>,
    buffer: Vec<u8>,
    /// A part of a reply has come.
    in_a_reply: bool,
}

impl Kv {
    pub(super) fn new(
        load: KvLoad,
        count: u64,
        (connection, connections): (u64, usize),
        flight: Flight,
        firsts: &Arc<Firsts>,
    ) -> Kv {
        Kv {
            load,
            left: count,
            waiting: VecDeque::new(),
            flight,
            // Never zero, and different for each connection.
            random: Random((connection + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            picker: Picker::new(load.choice, load.keys, connection, connections),
            firsts: firsts.clone(),
            growth: load
                .command
                .and_then(|mix| Growth::of(mix, load.keys, connections)),
            buffer: Vec::new(),
            in_a_reply: false,
        }
    }

    fn command(&mut self) -> Command {
        let random = &mut self.random;
        let key = self.picker.pick(self.load.keys, &mut || random.next());
        let what = match self.load.command {
            Some(mix) => What::Own(mix.draw(unit(random.next()))),
            None if unit(random.next()) < self.load.reads => What::Get,
            None => What::Set,
        };
        Command { what, key }
    }

    fn put(&mut self, command: Command, pattern: &Pattern) {
        let mut key = [0; u8::MAX as usize];
        let key = self.load.key(command.key, &mut key);
        let value = self.load.value(pattern, command.key);
        match (command.what, self.load.command) {
            (What::Own(number), Some(mix)) => {
                let template = mix.template(number);
                template.put(filling(key, value, command.key), &mut self.buffer);
            }
            (What::Get, _) => self.load.wire.put_read(key, &mut self.buffer),
            (What::Set | What::Own(_), _) => {
                self.load.wire.put_write(key, value, &mut self.buffer);
            }
        }
    }

    /// Whether `bytes` begin with the reply to a command.
    fn check(&self, bytes: &[u8], command: Command, pattern: &Pattern) -> Front {
        let value = self.load.value(pattern, command.key);
        match (command.what, self.load.command) {
            (What::Own(number), Some(mix)) => {
                let mut key = [0; u8::MAX as usize];
                let key = self.load.key(command.key, &mut key);
                let first = &self.firsts[usize::from(number)];
                let with = filling(key, value, command.key);
                mix.template(number).check(bytes, with, first)
            }
            (What::Get, _) => self.load.wire.check_read(bytes, value),
            (What::Set | What::Own(_), _) => self.load.wire.check_write(bytes, value),
        }
    }

    /// Whether a reply is larger than the one before it about its key, where it has to be.
    fn rises(&mut self, command: Command, reply: &[u8]) -> Option<bool> {
        let growth = self.growth.as_mut()?;
        match command.what {
            What::Own(number) => growth.rises(number, command.key, reply),
            What::Get | What::Set => None,
        }
    }

    fn name(&self, command: Command) -> &str {
        match (command.what, self.load.command) {
            (What::Own(number), Some(mix)) => mix.template(number).shown(),
            (What::Get, _) => "GET",
            (What::Set | What::Own(_), _) => "SET",
        }
    }
}

fn filling<'a>(key: &'a [u8], value: &'a [u8], number: u64) -> Filling<'a> {
    Filling { key, value, number }
}

/// Marsaglia's xorshift with a multiplication.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
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
        let (mut answered, mut hits, mut misses) = (0, 0, 0);
        while at < bytes.len() {
            let Some(&command) = self.waiting.front() else {
                let what = format!("{} bytes that were not asked for", bytes.len() - at);
                return Err(Fault::ReplyBeforeRequest.because(what));
            };
            let front = self.check(&bytes[at..], command, &desk.stage.pattern);
            match front {
                Front::Partial => break,
                Front::Good(n) => {
                    match self.rises(command, &bytes[at..at + n]) {
                        Some(true) => hits += 1,
                        Some(false) => misses += 1,
                        None => {}
                    }
                    at += n;
                }
                Front::Found(n) => (at, hits) = (at + n, hits + 1),
                Front::Nothing(n) => (at, misses) = (at + n, misses + 1),
                Front::Wrong(shown, fault) => {
                    let name = self.name(command);
                    let key = command.key;
                    let what = format!("{name} of key {key} was answered by {shown:?}");
                    return Err(fault.because(what));
                }
            }
            self.waiting.pop_front();
            answered += 1;
        }
        if answered > 0 {
            desk.count(answered, at as u64);
            if hits + misses > 0 {
                desk.read(hits, misses);
            }
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

    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        let lost = self.waiting.len() as u64;
        self.waiting.clear();
        self.flight.forget();
        self.in_a_reply = false;
        Some(lost)
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
    use super::super::kv_wire::Wire;
    use super::*;

    const LOAD: KvLoad = KvLoad {
        wire: Wire::Resp,
        key_size: 17,
        keys: 10,
        size: ValueSizes::Fixed(3),
        pipeline: 4,
        reads: 0.5,
        choice: KeyChoice::Uniform,
        command: None,
        filled: false,
    };

    #[test]
    fn every_connection_fills_its_own_part_of_the_keys() {
        let mut seen = Vec::new();
        for connection in 0..3 {
            let mine = if connection == 0 { 4 } else { 3 };
            let mut kv = Kv::new(
                LOAD.fill(),
                mine,
                (connection, 3),
                Flight::new(None),
                &Arc::default(),
            );
            seen.extend((0..mine).map(|_| kv.command().key));
        }
        assert_eq!(seen, (0..10).collect::<Vec<u64>>());
    }
}
