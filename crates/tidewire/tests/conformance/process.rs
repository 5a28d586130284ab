//! Looking at a process from inside: its descriptors, its memory.

use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::client::PATIENCE;
use crate::variant::Variant;
use crate::world;

/// How many connections to open, both ends of which are descriptors of this process if `both`.
pub(crate) fn crowd(v: Variant, both: bool) -> usize {
    let wanted = if v.is_threads() { 1000 } else { 9000 };
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = limit.saturating_sub(200) / if both { 2 } else { 1 };
    let n = wanted.min(usize::try_from(room).unwrap_or(usize::MAX));
    if n < wanted {
        eprintln!("{n} connections instead of {wanted}: the limit on descriptors is {limit}");
    }
    n
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident(pid: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("procfs");
    let line = status
        .lines()
        .find(|l| l.starts_with("VmRSS:"))
        .expect("its size");
    let kib: usize = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    kib << 10
}

/// Resident memory of this process, in bytes, without what its allocator keeps for later.
pub(crate) fn in_use() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes any number, and no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
    resident("self")
}

/// Waits until a condition holds that is not announced.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    if world::is_simulated() {
        let there = world::wait_here(PATIENCE, holds);
        return assert!(there, "waited in vain for: {what}");
    }
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
