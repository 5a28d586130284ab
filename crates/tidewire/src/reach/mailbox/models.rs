//! Every order in which mail is left and taken, checked by loom.

use loom::thread;

use super::*;
use crate::reach::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::reach::waker::models::run;

fn mail() -> Arc<Mail<u32>> {
    Arc::new(Mail::new(Arc::new(Waker::new()), 0))
}

fn handle(mail: &Arc<Mail<u32>>, index: u32) -> Handle<u32> {
    let generation = 1;
    Handle::new(ConnId::new(index, generation), mail.clone())
}

/// Like `loom::model`, with a bound on how often a thread is interrupted that three threads need to
/// end within a minute.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

#[test]
fn signals_become_one_call_and_none_is_lost() {
    model(|| {
        let mail = mail();
        let work = Arc::new(AtomicUsize::new(0));
        let signallers = [1, 2].map(|bit| {
            let (at, work) = (LoopHandle::new(mail.clone()), work.clone());
            thread::spawn(move || {
                // What is done before a signal is seen by the call that it causes.
                work.fetch_or(bit, Relaxed);
                at.signal();
            })
        });
        let (mut calls, mut seen) = (0, 0);
        run(&mail.waker, || {
            if mail.take().signalled {
                calls += 1;
                seen = work.load(Relaxed);
            }
            seen == 3
        });
        for each in signallers {
            each.join().unwrap();
        }
        assert!(calls == 1 || calls == 2);
    });
}

#[test]
fn the_last_place_is_given_once_and_a_reserved_one_is_kept() {
    model(|| {
        let mail = mail();
        let permit = handle(&mail, 1).reserve().unwrap();
        lock(&mail.queue).best_effort = POSTS_MAX - 1;
        let posters = [2, 3].map(|n| {
            let handle = handle(&mail, n);
            thread::spawn(move || handle.try_post(n).is_ok())
        });
        permit.post(1);
        let posted = posters.map(|p| p.join().unwrap());
        assert!(posted[0] != posted[1]);
        assert!(mail.waker.take_pending());
        let posts = mail.take().posts;
        let mut posts: Vec<_> = posts.into_iter().map(|(_, n)| n).collect();
        posts.sort_unstable();
        assert_eq!(posts, [1, if posted[0] { 2 } else { 3 }]);
        let q = lock(&mail.queue);
        assert_eq!((q.best_effort, q.reserved, q.reserved_queued), (0, 0, 0));
    });
}

#[test]
fn what_is_posted_while_the_loop_takes_comes_once() {
    model(|| {
        let mail = mail();
        let permit = handle(&mail, 1).reserve().unwrap();
        let reserved = thread::spawn(move || permit.post(1));
        let best_effort = {
            let handle = handle(&mail, 2);
            thread::spawn(move || {
                handle.try_post(2).unwrap();
                handle.abort();
            })
        };
        let (mut posts, mut closes) = (Vec::new(), 0);
        run(&mail.waker, || {
            let batch = mail.take();
            posts.extend(batch.posts.into_iter().map(|(_, n)| n));
            closes += batch.closes.len();
            posts.len() == 2 && closes == 1
        });
        reserved.join().unwrap();
        best_effort.join().unwrap();
        posts.sort_unstable();
        assert_eq!(posts, [1, 2]);
        let rest = mail.take();
        assert!(rest.posts.is_empty() && rest.closes.is_empty());
        let q = lock(&mail.queue);
        assert_eq!((q.best_effort, q.reserved, q.reserved_queued), (0, 0, 0));
    });
}

#[test]
fn a_permit_dropped_gives_its_place_back() {
    model(|| {
        let mail = mail();
        lock(&mail.queue).reserved = RESERVED_MAX - 1;
        let dropped = {
            let handle = handle(&mail, 1);
            thread::spawn(move || handle.reserve().map(drop).is_ok())
        };
        let posted = {
            let handle = handle(&mail, 2);
            thread::spawn(move || handle.reserve().map(|permit| permit.post(2)).is_ok())
        };
        // The loop takes meanwhile.
        let early = mail.take().posts.len();
        let (dropped, posted) = (dropped.join().unwrap(), posted.join().unwrap());
        assert!(dropped || posted, "there is a place for one");
        let late = mail.take().posts.len();
        assert_eq!(early + late, usize::from(posted));
        assert_eq!(lock(&mail.queue).reserved, RESERVED_MAX - 1);
        assert!(handle(&mail, 3).reserve().is_ok());
    });
}
