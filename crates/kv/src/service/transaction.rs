//! The commands that a connection has queued for EXEC, and the keys that it watches.

use std::collections::HashSet;

use super::table::{Entry, table};
use crate::store::{Store, Watch};

/// A connection's queued commands and watched keys. Exists from the first MULTI or WATCH to the
/// next EXEC or DISCARD.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// MULTI was called.
    pub(super) open: bool,
    /// A command could not be queued: EXEC will refuse.
    pub(super) failed: bool,
    queue: Queue,
    pub(super) watches: Vec<Watch>,
    /// The databases and keys of `watches`.
    pub(super) watched: HashSet<(u16, Box<[u8]>)>,
    /// Bytes of memory of the queued commands and the watched keys.
    pub(super) held: usize,
}

/// The error of EXEC while a script takes long.
pub(super) const ABORTED_BUSY: &str = "EXECABORT Transaction discarded because of: BUSY Redis is busy \
    running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Commands that are queued, in blocks that stay where they are: one list would be copied each time it has grown to twice
/// its size, and half of it be empty.
#[derive(Debug, Default)]
struct Queue {
    /// The last one is not full.
    blocks: Vec<Block>,
    commands: u32,
}

/// Some commands, one behind the other.
#[derive(Debug, Default)]
struct Block {
    commands: Vec<Queued>,
    /// The arguments.
    text: Vec<u8>,
    /// The end of each argument in the block.
    ends: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    id: u16,
    /// The command's arguments end before this one of `ends`.
    args_end: u32,
}

/// A block with so many bytes gets no more.
const BLOCK: usize = 64 << 10;

/// Bytes that a command takes in a transaction.
pub(super) fn queued_memory(args: &[&[u8]]) -> usize {
    let args_bytes: usize = args.iter().map(|arg| arg.len() + size_of::<u32>()).sum();
    args_bytes + size_of::<Queued>()
}

impl Block {
    fn bytes(&self) -> usize {
        self.text.len()
            + self.ends.len() * size_of::<u32>()
            + self.commands.len() * size_of::<Queued>()
    }

    /// Gives back memory that the block does not use.
    fn close(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.commands.shrink_to_fit();
    }
}

impl Queue {
    fn push(&mut self, id: u16, args: &[&[u8]]) {
        let fits = |block: &Block| {
            block.commands.is_empty() || block.bytes() + queued_memory(args) <= BLOCK
        };
        if !self.blocks.last().is_some_and(fits) {
            if let Some(full) = self.blocks.last_mut() {
                full.close();
            }
            self.blocks.push(Block::default());
        }
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        let bytes: usize = args.iter().map(|arg| arg.len()).sum();
        if bytes > BLOCK {
            block.text.reserve_exact(bytes);
        }
        if args.len() > BLOCK / size_of::<u32>() {
            block.ends.reserve_exact(args.len());
        }
        for arg in args {
            block.text.extend_from_slice(arg);
            block.ends.push(block.text.len() as u32);
        }
        block.commands.push(Queued {
            id,
            args_end: block.ends.len() as u32,
        });
        self.commands += 1;
    }
}

impl Transaction {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// EXEC will refuse: the queued commands need not be kept.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        self.queue = Queue::default();
    }

    /// Queues a command.
    pub(super) fn push(&mut self, id: u16, args: &[&[u8]]) {
        self.queue.push(id, args);
    }

    /// How many commands are queued.
    pub(super) fn len(&self) -> u32 {
        self.queue.commands
    }

    /// Stops watching.
    pub(crate) fn forget(self, store: &Store) {
        for watch in self.watches {
            store.unwatch(watch);
        }
    }

    /// Whether one of the commands calls a function, or is about functions.
    pub(super) fn asks_for_functions(&self) -> bool {
        let mut all = self.queue.blocks.iter().flat_map(|block| &block.commands);
        all.any(|queued| {
            let name = table().entry(queued.id).name;
            matches!(name, "fcall" | "fcall_ro" | "function")
        })
    }

    /// The queued commands, with their arguments among `args`, the arguments of all of them.
    pub(super) fn commands<'x>(
        &self,
        args: &'x [&'x [u8]],
    ) -> Vec<(&'static Entry, &'x [&'x [u8]])> {
        let mut commands = Vec::with_capacity(self.queue.commands as usize);
        let mut rest = args;
        for block in &self.queue.blocks {
            let (of_block, behind) = rest.split_at(block.ends.len());
            rest = behind;
            let mut from = 0;
            for queued in &block.commands {
                let these = &of_block[from..queued.args_end as usize];
                from = queued.args_end as usize;
                commands.push((table().entry(queued.id), these));
            }
        }
        commands
    }

    pub(super) fn args(&self) -> Vec<&[u8]> {
        let count = self.queue.blocks.iter().map(|block| block.ends.len());
        let mut args = Vec::with_capacity(count.sum());
        for block in &self.queue.blocks {
            let mut start = 0;
            for &end in &block.ends {
                args.push(&block.text[start..end as usize]);
                start = end as usize;
            }
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands of all lengths come back as they were queued, and take what is said of them and little more.
    #[test]
    fn what_is_queued_takes_what_is_said() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let lens: [usize; 6] = [0, 4, 100, 5_000, BLOCK, 3 * BLOCK];
        for longest in 1..=lens.len() {
            let mut transaction = Transaction::default();
            let (mut queued, mut said) = (Vec::new(), 0);
            while said < 4 << 20 {
                let len = |chance: &mut fastrand::Rng| lens[chance.usize(..longest)];
                let many = chance.usize(1..5);
                let args: Vec<Vec<u8>> = (0..many).map(|_| vec![b'a'; len(&mut chance)]).collect();
                let words: Vec<&[u8]> = args.iter().map(|arg| &arg[..]).collect();
                let id = chance.u16(..100);
                transaction.push(id, &words);
                said += queued_memory(&words);
                queued.push((id, args));
            }
            assert_eq!(transaction.len() as usize, queued.len());
            let args = transaction.args();
            let commands = transaction.commands(&args);
            assert_eq!(commands.len(), queued.len());
            for ((entry, args), (id, expected)) in commands.iter().zip(&queued) {
                assert!(std::ptr::eq(*entry, table().entry(*id)), "seed {seed}");
                assert_eq!(*args, &expected[..], "seed {seed}");
            }
            let held = transaction.queue.blocks.iter().map(|block| {
                size_of::<Block>()
                    + block.text.capacity()
                    + block.ends.capacity() * size_of::<u32>()
                    + block.commands.capacity() * size_of::<Queued>()
            });
            let held: usize = held.sum();
            assert!(
                held <= said + said / 10,
                "{held} bytes for {said}, seed {seed}"
            );
        }
    }
}
