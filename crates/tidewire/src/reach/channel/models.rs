//! Every order in which places are taken, promised and given, checked by loom.

use loom::thread;

use super::*;
use crate::reach::nudges::Nudges;
use crate::reach::waker::Waker;
use crate::reach::waker::models::run;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// A loop with one connection, as far as it is told things.
fn nudge() -> (Arc<Waker>, Arc<Nudges>, Nudge) {
    let waker = Arc::new(Waker::new());
    let nudges = Arc::new(Nudges::new(waker.clone()));
    let nudge = Nudge::new(nudges.clone(), 1, 2);
    (waker, nudges, nudge)
}

/// Two senders send one item each through one place, on threads that wait; the receiver's loop takes what it is told of.
#[test]
fn who_waits_on_a_thread_is_told_and_so_is_the_receiver() {
    model(|| {
        let (sender, mut receiver) = bounded(1);
        let (waker, nudges, nudge) = nudge();
        lock(&receiver.shared.queue).receiver.nudge = Some(nudge);
        let senders = [1, 2].map(|n| {
            let mut sender = sender.clone();
            thread::spawn(move || sender.send(n).is_ok())
        });
        drop(sender);
        let mut taken = 0;
        run(&waker, || {
            if nudges.take().is_some_and(|due| !due.names.is_empty()) {
                while let Some(n) = receiver.take() {
                    taken += n;
                }
            }
            taken == 3
        });
        for each in senders {
            assert!(each.join().unwrap());
        }
        assert!(receiver.is_over());
    });
}

/// A connection that found no room is told when another thread takes, or goes.
#[test]
fn a_connection_that_waits_is_told() {
    for goes in [false, true] {
        model(move || {
            let (mut sender, mut receiver) = bounded(1);
            let (waker, nudges, nudge) = nudge();
            sender.nudge = Some(nudge);
            assert!(sender.try_send(1).is_ok());
            let other = thread::spawn(move || match goes {
                true => drop(receiver),
                false => {
                    assert_eq!(receiver.take(), Some(1));
                    std::mem::forget(receiver);
                }
            });
            let mut next = sender.try_send(2);
            // Where the other sender was quicker, none has to be told.
            if matches!(next, Err(SendError::NoRoom(_))) {
                run(&waker, || {
                    let told = nudges.take().is_some_and(|due| !due.names.is_empty());
                    if told {
                        next = sender.try_send(2);
                    }
                    told
                });
            }
            assert!(!matches!(next, Err(SendError::NoRoom(_))), "told in vain");
            assert!(goes || next.is_ok());
            other.join().unwrap();
        });
    }
}

/// A place that is promised to one that goes is promised to the next.
#[test]
fn a_promise_is_passed_on() {
    model(|| {
        let (mut sender, mut receiver) = bounded(1);
        assert!(sender.send(0).is_ok());
        let (waker, nudges, nudge) = nudge();
        let mut goes = sender.clone();
        assert!(goes.offer(1, true).is_err());
        let mut stays = sender.clone();
        stays.nudge = Some(nudge);
        assert!(stays.try_send(2).is_err());
        let other = thread::spawn(move || drop(goes));
        assert_eq!(receiver.take(), Some(0));
        let mut is_sent = false;
        run(&waker, || {
            if nudges.take().is_some_and(|due| !due.names.is_empty()) {
                is_sent = stays.try_send(2).is_ok();
            }
            is_sent
        });
        other.join().unwrap();
        assert_eq!(receiver.take(), Some(2));
    });
}
