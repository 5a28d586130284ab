use std::time::Duration;

use super::{Faults, Injected};
use crate::sim::chunking;
use crate::sim::tests::services::{Echo, Sums};
use crate::sim::{Conditions, PlainState, Shape, Sim, for_each_seed};
use crate::{Layered, Limits};

const LONG: Duration = Duration::from_secs(60);

/// All that leaves bytes as they are.
fn harmless(seed: u64) -> Faults {
    let delay = Duration::from_micros(1)..=Duration::from_millis(5);
    Faults::none(seed).delays(3, delay).splits(2, 7).window(40)
}

#[test]
fn what_is_delayed_and_split_is_whole_in_the_end() {
    let mut sums = Vec::new();
    for n in 1..60u8 {
        sums.extend_from_slice(&u32::from(n).to_le_bytes());
        sums.extend(0..n);
    }
    let plain = chunking::collect(Sums, &sums, &[], true);
    let wrapped = || Layered::new(harmless(7), Sums);
    assert_eq!(chunking::collect(wrapped(), &sums, &[], true), plain);
    chunking::assert_invisible(wrapped, &sums, true, |got| got.clone(), 60);
    // Layers around layers.
    let twice = || Layered::new(harmless(7), wrapped());
    assert_eq!(chunking::collect(twice(), &sums, &[], true), plain);
}

/// An echo behind faults, and a peer that sends to it. What came back, and how it ended.
fn echo(seed: u64, faults: &Faults, input: &[u8]) -> (Vec<u8>, PlainState, u64) {
    let shapes = [Shape::Readiness, Shape::Completion, Shape::Threads];
    let mut sim = Sim::under(seed, Conditions::calm());
    let on = sim.shape(shapes[(seed % 3) as usize]).add_loop();
    let service = Layered::new(faults.clone(), Echo);
    let service = sim.service(on, service, Limits::default());
    let at = sim.listen(service);
    let peer = sim.plain(at);
    for piece in input.chunks(100) {
        sim.send(peer, piece);
        sim.run_for(Duration::from_millis(1));
    }
    sim.finish(peer);
    sim.run_for(LONG);
    (
        sim.received(peer).to_vec(),
        sim.state(peer),
        sim.trace_hash(),
    )
}

#[test]
fn a_seed_is_a_run_and_each_fault_happens() {
    let input: Vec<u8> = (0..6000u32).map(|n| n as u8).collect();
    let sum = std::sync::Mutex::new(Injected::default());
    for_each_seed(100, |seed| {
        let faults = Faults::usual(seed);
        let (got, end, hash) = echo(seed, &faults, &input);
        let injected = faults.injected();
        let whole = got == input && end == PlainState::Ended;
        if !input.starts_with(&got) || whole == (injected.cut + injected.refused > 0) {
            return Err(format!("{} bytes, {end:?}: {injected:?}", got.len()));
        }
        if echo(seed, &Faults::usual(seed), &input).2 != hash {
            return Err("the same seed is another run".to_owned());
        }
        let mut all = sum.lock().unwrap();
        *all = Injected {
            refused: all.refused + injected.refused,
            cut: all.cut + injected.cut,
            delays: all.delays + injected.delays,
            splits: all.splits + injected.splits,
            flips: all.flips + injected.flips,
        };
        Ok(())
    });
    let sum = sum.into_inner().unwrap();
    println!("{sum:?}");
    assert!(sum.refused > 0 && sum.cut > 0 && sum.delays > 0 && sum.splits > 0);
    assert_eq!(sum.flips, 0);
}

#[test]
fn bits_are_turned_over_where_that_is_asked() {
    for seed in 0..20 {
        let faults = Faults::none(seed).splits(1, 50).flips(4);
        let input = [0; 3000];
        let (got, ..) = echo(seed, &faults, &input);
        assert_eq!(got.len(), input.len());
        let over: u32 = got.iter().map(|byte| byte.count_ones()).sum();
        let flips = faults.injected().flips;
        // One bit may have been turned back.
        assert!(
            flips > 0 && u64::from(over) <= flips && (flips - u64::from(over)).is_multiple_of(2)
        );
    }
}

/// A line of so many bytes at a time is as narrow as it says.
#[test]
fn a_window_takes_its_time() {
    let tick = Duration::from_millis(10);
    let faults = Faults::none(1).window(100).delays(0, tick..=tick);
    let mut sim = Sim::under(1, Conditions::calm());
    let at = sim.serve(Layered::new(faults, Echo), Limits::default());
    let peer = sim.plain(at);
    sim.send(peer, &[7; 1000]);
    sim.run_for(tick * 5);
    let got = sim.received(peer).len();
    assert!((300..=600).contains(&got), "{got}");
    sim.run_for(tick * 20);
    assert_eq!(sim.received(peer).len(), 1000);
}
