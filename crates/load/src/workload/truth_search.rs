//! Known truth of searches: servers on the simulated clock of which queueing theory says what they hold.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use super::arrivals::{Arrivals, Rate, Spacing};
use super::truth::found;
use crate::random::SplitMix64;
use crate::search::{Probe, Search, knee};

/// Room for whatever waits: nothing is held back by the generator.
const ROOM: u32 = 1_000_000;

fn open(per_second: f64, spacing: Spacing, seed: u64) -> Arrivals {
    Arrivals::Open(Rate {
        spacing,
        seed,
        ..Rate::constant(per_second)
    })
}

/// A server that handles one message after another, each for the time that `service` gives.
fn queue(
    service: impl FnMut() -> Duration + Send + 'static,
) -> impl Fn(Duration, u64) -> Duration + Send + Sync + 'static {
    let state = Mutex::new((Duration::ZERO, service));
    move |now, _| {
        let (busy_until, service) = &mut *state.lock().unwrap();
        *busy_until = now.max(*busy_until) + service();
        *busy_until
    }
}

/// Time that is served exponentially, so many a second on average.
fn exponential(per_second: f64, seed: u64) -> impl FnMut() -> Duration + Send + 'static {
    let mut random = SplitMix64::new(seed);
    move || Duration::from_secs_f64(-(1.0 - random.uniform()).ln() / per_second)
}

#[test]
fn a_server_of_a_millisecond_each_holds_a_thousand_a_second() {
    let search = Search {
        from: 100.0,
        searches: 1,
        ..Search::new("p99<5ms".parse().unwrap())
    };
    let probe = |rate: f64| {
        let arrivals = open(rate, Spacing::Constant, 1);
        let served = queue(|| Duration::from_millis(1));
        let of = found(1, ROOM, arrivals, Duration::from_secs(5), served);
        Ok::<_, Infallible>(Probe {
            achieved: of.answered as f64 / 5.0,
            latency_ns: of.intended.map(|all| all.p99_ns),
        })
    };
    let held = search.run(probe).unwrap().unwrap();
    assert!((970.0..=1_001.0).contains(&held.rate), "{held:?}");
}

#[test]
fn a_queue_of_chance_holds_what_its_exponential_tail_says() {
    // M/M/1: times in the system are exponential with the rate that is left over, mu - lambda. So p99 is
    // ln(100) / (mu - lambda), and 10 ms are held up to lambda = mu - ln(100) / 10 ms.
    let mu = 2_000.0;
    let wanted = mu - 100f64.ln() / 0.0101;
    let mut seed = 0;
    let search = Search {
        from: 500.0,
        confirmations: 1,
        ..Search::new("p99<10.2ms".parse().unwrap())
    };
    let probe = |rate: f64| {
        seed += 1;
        let arrivals = open(rate, Spacing::Poisson, seed);
        let served = queue(exponential(mu, 1_000 + seed));
        let of = found(1, ROOM, arrivals, Duration::from_secs(8), served);
        Ok::<_, Infallible>(Probe {
            achieved: of.answered as f64 / 8.0,
            latency_ns: of.intended.map(|all| all.p99_ns),
        })
    };
    let held = search.run(probe).unwrap().unwrap();
    let off = held.between.value / wanted;
    assert!((0.93..=1.07).contains(&off), "{held:?}, not {wanted}");
    assert!(held.rate <= held.between.high, "{held:?}");
}

#[test]
fn latency_over_rate_is_what_theory_says_and_bends_where_it_says() {
    // M/D/1: the mean time in the system is s + rho s / 2 (1 - rho), and rate by latency is largest at
    // rho = 2 - sqrt(2).
    let service = 1e-3;
    let network = 100e-6;
    let mut curve = Vec::new();
    for step in 1u32..=9 {
        let rho = f64::from(step) / 10.0;
        let arrivals = open(rho / service, Spacing::Poisson, u64::from(step));
        let served = queue(|| Duration::from_millis(1));
        let of = found(1, ROOM, arrivals, Duration::from_secs(60), served);
        let mean = of.intended.unwrap().mean_ns / 1e9;
        let wanted = service + rho * service / (2.0 * (1.0 - rho)) + network;
        // Timers are late by up to two ticks of 65 us; the mean of a queue near its capacity takes long to settle.
        let off = mean - wanted;
        assert!(
            (-0.1 * wanted..0.1 * wanted + 131e-6).contains(&off),
            "{rho}: {mean}, not {wanted}"
        );
        curve.push((rho, mean));
    }
    let knee = knee(&curve).unwrap();
    assert!((0.5..=0.7).contains(&knee), "{knee}: {curve:?}");
}
