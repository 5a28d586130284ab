//! Open files, and the numbers by which programs know them.
//!
//! As in Linux, a number is an entry of a table, the lowest free one first, and so is used again at
//! once. The file lives for as long as a number or an operation of a ring refers to it.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::sim::net::End;
use crate::vocabulary::endpoint::Endpoint;

/// Numbers below this are taken, as they are in most processes.
const FIRST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) u32);

/// One end of a stream.
pub(super) struct Stream {
    pub(super) end: End,
    pub(super) peer: Endpoint,
    /// The outcome of the attempt is not there yet.
    pub(super) connecting: bool,
    /// The pending error, until a program takes it.
    pub(super) error: Option<Errno>,
    /// No data gets through any more.
    pub(super) broken: bool,
    pub(super) reset_on_close: bool,
    /// Whether our side has shut down its output.
    pub(super) shut: bool,
    pub(super) nonblocking: bool,
}

pub(super) struct Listener {
    pub(super) at: Endpoint,
    pub(super) backlog: VecDeque<(End, Endpoint)>,
    /// Whether a program has shut the socket down.
    pub(super) broken: bool,
    /// The listener lets no client begin to connect.
    pub(super) filters: bool,
}

/// The events that an epoll descriptor has to report.
#[derive(Default)]
pub(super) struct Epoll {
    pub(super) ready: Vec<FileId>,
}

/// The timer's time in virtual nanoseconds, and whether it has passed.
#[derive(Default)]
pub(super) struct Timer {
    pub(super) at: Option<u64>,
    pub(super) rung: bool,
}

pub(super) enum What {
    Stream(Stream),
    Listener(Listener),
    Event { readable: bool },
    Epoll(Epoll),
    Timer(Timer),
}

/// The object that has to be notified when an event happens on a file.
pub(super) struct Watcher {
    pub(super) epoll: FileId,
    pub(super) token: u64,
    pub(super) flags: i32,
    /// Whether the file is among the ready ones.
    pub(super) queued: bool,
}

pub(super) struct File {
    pub(super) what: What,
    pub(super) generation: u32,
    /// Numbers and operations that refer to it.
    holders: u32,
    pub(super) watchers: Vec<Watcher>,
    /// Operations that wait: of which ring, and which.
    pub(super) waits: Vec<(usize, u64)>,
}

#[derive(Default)]
pub(super) struct Files {
    numbers: Vec<Option<FileId>>,
    all: Vec<Option<File>>,
    free: Vec<u32>,
    generation: u32,
}

impl Files {
    pub(super) fn open(&mut self, what: What) -> RawFd {
        self.generation += 1;
        let file = File {
            what,
            generation: self.generation,
            holders: 1,
            watchers: Vec::new(),
            waits: Vec::new(),
        };
        let id = match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = Some(file);
                FileId(at)
            }
            None => {
                self.all.push(Some(file));
                FileId(self.all.len() as u32 - 1)
            }
        };
        self.name(id)
    }

    /// Another number for a file.
    pub(super) fn name(&mut self, id: FileId) -> RawFd {
        let number = match self.numbers.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.numbers.push(None);
                self.numbers.len() - 1
            }
        };
        self.numbers[number] = Some(id);
        (number + FIRST) as RawFd
    }

    pub(super) fn id(&self, number: RawFd) -> Option<FileId> {
        let at = usize::try_from(number).ok()?.checked_sub(FIRST)?;
        *self.numbers.get(at)?
    }

    /// Forgets a number; returns the file that it named.
    pub(super) fn forget(&mut self, number: RawFd) -> Option<FileId> {
        let id = self.id(number)?;
        self.numbers[number as usize - FIRST] = None;
        Some(id)
    }

    pub(super) fn hold(&mut self, id: FileId) {
        self.get(id).holders += 1;
    }

    /// Drops one reference; returns the file, if that was the last one.
    pub(super) fn release(&mut self, id: FileId) -> Option<File> {
        let file = self.get(id);
        file.holders -= 1;
        if file.holders > 0 {
            return None;
        }
        self.free.push(id.0);
        self.all[id.0 as usize].take()
    }

    pub(super) fn get(&mut self, id: FileId) -> &mut File {
        let file = &mut self.all[id.0 as usize];
        file.as_mut().expect("whatever has the id holds the file")
    }

    pub(super) fn find(&mut self, id: FileId) -> Option<&mut File> {
        self.all.get_mut(id.0 as usize)?.as_mut()
    }

    /// An epoll descriptor was closed; the files that it watched may live on.
    pub(super) fn unwatched_by(&mut self, epoll: FileId) {
        for file in self.all.iter_mut().flatten() {
            file.watchers.retain(|watcher| watcher.epoll != epoll);
        }
    }

    /// Numbers in use.
    pub(super) fn open_numbers(&self) -> impl Iterator<Item = RawFd> {
        let used = self.numbers.iter().enumerate();
        used.filter(|(_, id)| id.is_some())
            .map(|(n, _)| (n + FIRST) as RawFd)
    }
}
