//! Every order in which a graceful stop is cut short, checked by loom.

use loom::thread;

use super::*;
use crate::kernel::clock::Clock;
use crate::reach::waker::models::run;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_stop_that_is_cut_short_is_seen_with_its_deadline() {
    let mut model = loom::model::Builder::new();
    // More interruptions than this take minutes.
    model.preemption_bound = Some(2);
    model.check(|| {
        let clock = Arc::new(StopClock::default());
        let waker = Arc::new(Waker::new());
        let stopper = Stopper {
            wakers: vec![waker.clone()],
            clock: clock.clone(),
        };
        let cuts = thread::spawn(move || stopper.stop_now());
        let stops = {
            let (clock, waker) = (clock.clone(), waker.clone());
            // What `Running::stop` does for each loop.
            thread::spawn(move || {
                clock.set(HOUR);
                waker.stop(Stop::Graceful);
            })
        };
        let mut last = Stop::No;
        run(&waker, || {
            let now = waker.stopping();
            assert!(last <= now, "a stop is never taken back");
            assert_ne!(now, Stop::No);
            assert!(clock.deadline() <= Clock::System.monotonic() + HOUR);
            last = now;
            now == Stop::Now
        });
        assert!(clock.deadline() <= Clock::System.monotonic());
        cuts.join().unwrap();
        stops.join().unwrap();
        assert_eq!(waker.stopping(), Stop::Now);
        assert!(clock.deadline() <= Clock::System.monotonic());
    });
}
