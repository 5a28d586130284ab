//! Commands that took long, the newest first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::holdings::arguments_memory;

/// Arguments and bytes of each that are kept.
const ARGS_MAX: usize = 32;
const ARG_MAX: usize = 128;

/// One slow command.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    pub(crate) at_s: u64,
    pub(crate) took_us: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) addr: String,
    pub(crate) name: Vec<u8>,
}

impl Slow {
    /// Bytes of memory.
    fn bytes(&self) -> usize {
        size_of::<Slow>() + self.addr.len() + self.name.len() + arguments_memory(&self.args)
    }
}

#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    next_id: u64,
    pub(crate) entries: VecDeque<Slow>,
}

impl SlowLog {
    /// Keeps a command; the oldest goes when there are more than `most`.
    #[cold]
    pub(crate) fn add(&self, mut slow: Slow, most: usize) {
        let mut kept = self.kept();
        slow.id = kept.next_id;
        kept.next_id += 1;
        kept.entries.push_front(slow);
        kept.entries.truncate(most);
    }

    /// Bytes of memory of all kept entries. Goes through all of it.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().entries.iter().map(Slow::bytes).sum()
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arguments in the form that the log keeps: not too many, not too long.
pub(crate) fn shortened(args: &[&[u8]]) -> Vec<Vec<u8>> {
    let fits = args.len() <= ARGS_MAX;
    let whole = if fits { args.len() } else { ARGS_MAX - 1 };
    let mut kept: Vec<Vec<u8>> = args[..whole].iter().map(|arg| shortened_arg(arg)).collect();
    if !fits {
        kept.push(format!("... ({} more arguments)", args.len() - whole).into_bytes());
    }
    kept
}

fn shortened_arg(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_MAX {
        return arg.to_vec();
    }
    let mut kept = arg[..ARG_MAX].to_vec();
    kept.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_MAX).as_bytes());
    kept
}
