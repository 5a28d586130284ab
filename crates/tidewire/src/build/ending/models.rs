//! Every order in which loops end and a thread waits for that, checked by loom.

use loom::thread;

use super::*;

#[test]
fn a_waiter_is_told_the_first_failure() {
    loom::model(|| {
        let waiter = Waiter::default();
        let loops = ["a", "b"].map(|name| {
            waiter.begin();
            let theirs = waiter.clone();
            thread::spawn(move || theirs.run(name, || Err(io::Error::other("out of order"))))
        });
        let first = waiter.wait().unwrap_err();
        for each in loops {
            each.join().unwrap();
        }
        assert_eq!(waiter.wait(), Err(first));
    });
}

#[test]
fn a_waiter_is_told_one_failure_among_orderly_ends() {
    loom::model(|| {
        let waiter = Waiter::default();
        let loops = [false, true].map(|fails| {
            waiter.begin();
            let theirs = waiter.clone();
            let end = move || match fails {
                true => Err(io::Error::other("out of order")),
                false => Ok(()),
            };
            thread::spawn(move || theirs.run("a", end))
        });
        assert!(waiter.wait().is_err());
        for each in loops {
            each.join().unwrap();
        }
    });
}

#[test]
fn a_waiter_is_told_when_all_have_ended() {
    loom::model(|| {
        let waiter = Waiter::default();
        let loops = ["a", "b"].map(|name| {
            waiter.begin();
            let theirs = waiter.clone();
            thread::spawn(move || theirs.run(name, || Ok(())))
        });
        assert_eq!(waiter.wait(), Ok(()));
        assert_eq!(lock(&waiter.0.standing).running, 0);
        for each in loops {
            each.join().unwrap();
        }
    });
}
