//! Every order in which a loop falls asleep and others wake it, checked by loom.

use loom::thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::kernel::linux::Linux;

/// A loop, reduced to how it sleeps and wakes: looks at what there is until `look` has seen all.
/// One that sleeps through a wake-up never ends, which loom says.
pub(crate) fn run(waker: &Waker, look: impl FnMut() -> bool) {
    run_with(waker, Waker::may_sleep, look);
}

fn run_with(waker: &Waker, may_sleep: fn(&Waker) -> bool, mut look: impl FnMut() -> bool) {
    waker.descriptor(&Linux).unwrap();
    loop {
        if may_sleep(waker) {
            while !rung(waker) {
                thread::yield_now();
            }
        }
        waker.awake();
        if rung(waker) {
            waker.clear_descriptor();
        }
        if waker.take_pending() && look() {
            return;
        }
    }
}

/// Whether a loop that waits for its descriptor would return.
fn rung(waker: &Waker) -> bool {
    let fd = lock(&waker.fd);
    let fd = fd.as_ref().expect("a loop that runs has it");
    let mut fds = [PollFd::new(Linux::look(fd), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

fn dial(token: u64) -> Command {
    Command::Dial {
        service: 0,
        dial: Dial::to(([127, 0, 0, 1], 1)).token(token),
    }
}

/// Two threads send a command each to a loop that goes to sleep by `may_sleep`.
fn commands_reach(may_sleep: fn(&Waker) -> bool) {
    let mut model = loom::model::Builder::new();
    // Enough for any order of two threads and a loop that switches so often, and minutes less.
    model.preemption_bound = Some(3);
    model.check(move || {
        let waker = Arc::new(Waker::new());
        let senders = [1, 2].map(|token| {
            let waker = waker.clone();
            thread::spawn(move || waker.send(dial(token)).unwrap())
        });
        let mut seen = 0;
        run_with(&waker, may_sleep, || {
            seen += waker.commands().len();
            seen == 2
        });
        for each in senders {
            each.join().unwrap();
        }
    });
}

#[test]
fn no_wake_up_is_lost() {
    commands_reach(Waker::may_sleep);
}

/// What the model is for: a loop that looks before it says that it sleeps.
#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn a_loop_that_looks_too_early_sleeps_for_ever() {
    commands_reach(|waker| {
        let idle = !waker.pending.fetch_or(false, SeqCst);
        waker.sleeping.store(idle, Release);
        idle
    });
}

/// What the look is a read-modify-write for: a load may miss what a waker has stored before.
#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn a_loop_that_only_loads_sleeps_for_ever() {
    commands_reach(|waker| {
        waker.sleeping.store(true, Release);
        !waker.pending.load(std::sync::atomic::Ordering::Acquire)
    });
}

/// A loop ends as soon as nothing waits, while it is sent a command.
#[test]
fn a_command_reaches_the_loop_or_its_heir() {
    loom::model(|| {
        let (waker, heir) = (Arc::new(Waker::new()), Arc::new(Waker::new()));
        let sender = {
            let waker = waker.clone();
            thread::spawn(move || waker.send(dial(1)).unwrap())
        };
        let mut seen = 0;
        while !waker.end_if_idle(&heir) {
            seen += waker.commands().len();
            thread::yield_now();
        }
        sender.join().unwrap();
        run_if(seen == 0, &heir);
    });
}

/// A loop that ends whatever waits gives it back; what comes later comes back to its sender.
#[test]
fn an_end_and_a_command_leave_nothing_behind() {
    loom::model(|| {
        let waker = Arc::new(Waker::new());
        let sender = {
            let waker = waker.clone();
            thread::spawn(move || waker.send(dial(1)).is_ok())
        };
        let taken = waker.commands().len() + waker.end(None).len();
        let sent = sender.join().unwrap();
        assert_eq!(taken, usize::from(sent));
    });
}

/// The heir finds the command if it is its to carry out, and none otherwise.
fn run_if(inherited: bool, heir: &Waker) {
    assert_eq!(heir.is_pending(), inherited);
    assert_eq!(heir.commands().len(), usize::from(inherited));
}
