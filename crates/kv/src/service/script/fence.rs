//! Decides which effects the thread of a script may still have.
//!
//! A thread may be long within one instruction of Lua, where nothing reaches it. A script that is ended then is *fenced
//! off*: its thread goes on, and whatever it comes back with reaches neither the store nor a client.

use std::sync::atomic::{AtomicU8, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// The thread does something for the script: runs a command, begins it, or ends it.
const AT_HOST: u8 = 0;
/// The thread is within the interpreter, and has no lock.
const IN_LUA: u8 = 1;
/// The script was ended, and its thread has not come back.
const CUT: u8 = 2;

/// Decides between the thread that comes back and the one that ends its script.
#[derive(Debug)]
pub(super) struct Fence(AtomicU8);

impl Fence {
    /// The fence of a thread that is at the host.
    pub(super) fn new() -> Fence {
        Fence(AtomicU8::new(AT_HOST))
    }

    /// The thread goes into the interpreter; it has no lock.
    pub(super) fn go_in(&self) {
        let _ = self.0.compare_exchange(AT_HOST, IN_LUA, AcqRel, Relaxed);
    }

    /// The thread comes back from the interpreter; false if its script was ended meanwhile, and nothing more is its own.
    #[must_use]
    pub(super) fn come_back(&self) -> bool {
        let before = self.0.compare_exchange(IN_LUA, AT_HOST, AcqRel, Acquire);
        before != Err(CUT)
    }

    /// Ends the script; false if its thread is at the host, where it does not stay long.
    #[must_use]
    pub(super) fn cut(&self) -> bool {
        let before = self.0.compare_exchange(IN_LUA, CUT, AcqRel, Acquire);
        before.is_ok()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.0.load(Acquire) == CUT
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "it tests two threads")]
mod tests {
    use super::*;

    #[test]
    fn a_thread_comes_back_or_its_script_is_ended() {
        let fence = Fence::new();
        assert!(!fence.cut(), "the thread is at the host");
        fence.go_in();
        assert!(fence.come_back());
        assert!(fence.come_back(), "it was there already");
        fence.go_in();
        assert!(fence.cut() && !fence.cut());
        assert!(fence.is_cut());
        assert!(!fence.come_back());
        fence.go_in();
        assert!(!fence.come_back(), "nothing brings it back");
    }

    #[test]
    fn of_two_threads_one_has_the_script() {
        for _ in 0..2_000 {
            let fence = Fence::new();
            fence.go_in();
            let came_back = std::thread::scope(|scope| {
                let came_back = scope.spawn(|| fence.come_back());
                let cut = fence.cut();
                (came_back.join().unwrap(), cut)
            });
            assert_ne!(came_back.0, came_back.1, "either, and not both");
        }
    }
}
