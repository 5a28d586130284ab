//! A server under strace: system calls, name by name.
//!
//! The idea: strace writes a line for each call and flushes it, so a reading is the length of its file while the server rests.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::counter::{CountError, Counter, Threads, version};
use crate::child::Launch;

/// The counter of one server.
#[derive(Debug)]
pub struct Strace {
    file: PathBuf,
    /// The file was read up to here.
    at: u64,
}

/// Which strace is there.
///
/// # Errors
/// [`CountError::Missing`].
pub fn installed() -> Result<String, CountError> {
    version("strace", "system calls", "-V")
}

impl Strace {
    /// A counter that keeps its file in this directory.
    pub fn new(dir: &Path) -> Strace {
        Strace {
            file: dir.join("calls"),
            at: 0,
        }
    }

    /// Has a server run under strace. The process that is started is the server; strace looks on from
    /// elsewhere.
    pub fn launch(&self, server: Launch) -> Launch {
        let args = ["-D", "-f", "-qq", "-s", "0", "-o"].map(OsString::from);
        let args = args.into_iter().chain([self.file.clone().into()]);
        server.under("strace", args)
    }
}

impl Counter for Strace {
    fn begin(&mut self) -> Result<(), CountError> {
        Ok(())
    }

    fn is_done(&mut self, _: Duration) -> Result<bool, CountError> {
        Ok(true)
    }

    fn take(&mut self) -> Result<Threads, CountError> {
        let new = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.file)?;
            file.seek(SeekFrom::Start(self.at))?;
            let mut new = Vec::new();
            file.read_to_end(&mut new)?;
            Ok(new)
        };
        let new = new().map_err(|source| CountError::Read {
            path: self.file.clone(),
            source,
        })?;
        self.at += new.len() as u64;
        Ok(calls(&String::from_utf8_lossy(&new)))
    }
}

/// The calls in a piece of what strace writes with `-f -o`. A call that another thread's interrupts stands in two
/// lines, the second of which begins with `<...`.
fn calls(text: &str) -> Threads {
    let mut threads = Threads::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let is_name = |name: &&str| {
            let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !name.is_empty() && name.chars().all(letters)
        };
        let name = call.trim_start().split_once('(').map(|(name, _)| name);
        if let Some(name) = name.filter(is_name)
            && thread.bytes().all(|byte| byte.is_ascii_digit())
        {
            threads.entry(thread.to_owned()).or_default().add(name, 1.0);
        }
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_once_and_signals_and_ends_are_not() {
        let text = "12 recvfrom(5, \"\"..., 4096, 0, NULL, NULL) = 64\n12 epoll_wait(3,  <unfinished ...>\n\
            13 futex(0x7f, FUTEX_WAIT (x), 1) = -1 EAGAIN\n12 <... epoll_wait resumed>[], 8, 5) = 1\n\
            12 --- SIGCONT {si_signo=SIGCONT} ---\n12 sendto(5, \"\"..., 64) = 64\n13 +++ exited with 0 +++\n12 recvf";
        let threads = calls(text);
        assert_eq!(threads["13"].dearest(), [("futex", 1.0)]);
        let one = [("epoll_wait", 1.0), ("recvfrom", 1.0), ("sendto", 1.0)];
        assert_eq!(threads["12"].dearest(), one);
    }
}
