//! Comparisons of made-up runs, of which the truth is known.

use super::*;
use crate::random::SplitMix64;
use crate::stats::Bootstrap;
use proptest::prelude::*;
use std::convert::Infallible;

/// Runs in which B is `factor` times A, on a machine whose speed wanders.
fn recording(schedule: &Schedule, factor: f64, noise: f64) -> Recording {
    let mut state = 12345u64;
    run(schedule, |turn| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let jitter = ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 2.0 * noise;
        let side = if turn.side == Side::B { factor } else { 1.0 };
        let value = 1000.0 * side * (1.0 + jitter);
        Ok::<_, Infallible>(Sample::new().higher("requests_per_second", value))
    })
    .unwrap()
}

fn verdict(rounds: usize, factor: f64, noise: f64) -> Verdict {
    compare(&Schedule::new(rounds), factor, noise).metrics[0].verdict
}

fn compare(schedule: &Schedule, factor: f64, noise: f64) -> Comparison {
    recording(schedule, factor, noise)
        .compare(
            "epoll",
            "uring",
            &Bootstrap {
                resamples: 500,
                ..Bootstrap::default()
            },
        )
        .unwrap()
}

#[test]
fn a_clear_difference_is_shown_with_its_direction() {
    let comparison = compare(&Schedule::new(12), 1.5, 0.02);
    let metric = comparison.metric("requests_per_second").unwrap();
    assert_eq!(metric.verdict, Verdict::Different);
    let sentence = metric.sentence();
    assert!(sentence.contains("higher, better"), "{sentence}");
    assert!((metric.ratio.unwrap().value - 1.5).abs() < 0.05);
    assert!(metric.control_reach().unwrap() < 1.05);
}

#[test]
fn a_difference_like_the_controls_means_nothing() {
    // All of B's runs are 2 % faster, but the control wanders by much more.
    let schedule = Schedule::new(12);
    let recording = run(&schedule, |turn| {
        let value = match turn.side {
            Side::A => 100.0,
            Side::B => 102.0,
            Side::Control => 100.0 + if turn.round % 2 == 0 { 9.0 } else { -9.0 },
        };
        Ok::<_, Infallible>(Sample::new().lower("cpu_ns", value))
    });
    let comparison = recording
        .unwrap()
        .compare("a", "b", &Bootstrap::default())
        .unwrap();
    assert_eq!(comparison.metrics[0].verdict, Verdict::WithinControl);
    assert!(comparison.metrics[0].sentence().contains("means nothing"));
}

#[test]
fn equal_sides_show_no_difference() {
    assert_eq!(verdict(30, 1.0, 0.1), Verdict::NoDifference);
}

#[test]
fn too_few_rounds_are_said_to_be_too_few() {
    assert_eq!(verdict(5, 2.0, 0.01), Verdict::TooFewRounds);
    assert_eq!(verdict(6, 2.0, 0.01), Verdict::Different);
}

#[test]
fn without_control_the_verdict_says_so() {
    let comparison = compare(&Schedule::new(12).without_control(), 0.5, 0.02);
    assert_eq!(
        comparison.metrics[0].verdict,
        Verdict::DifferentUncontrolled
    );
    assert!(
        comparison.metrics[0]
            .sentence()
            .contains("lower, worse; no control")
    );
    assert_eq!(comparison.metrics[0].control_ratio, None);
    assert!(comparison.recording.runs_of(Side::Control).is_empty());
}

#[test]
fn a_measured_zero_has_no_ratio() {
    assert_eq!(verdict(12, 0.0, 0.01), Verdict::NoRatio);
}

#[test]
fn warm_up_runs_are_dropped() {
    let recording = run(&Schedule::new(6).warm_up(2), |turn| {
        let value = if turn.warm_up { 1e6 } else { 1.0 };
        Ok::<_, Infallible>(Sample::new().lower("ns", value))
    })
    .unwrap();
    for side in [Side::A, Side::B, Side::Control] {
        let values: Vec<_> = recording
            .runs_of(side)
            .iter()
            .map(|s| s.value("ns"))
            .collect();
        assert_eq!(values, vec![Some(1.0); 6]);
    }
}

#[test]
fn the_first_failed_run_ends_the_comparison() {
    let mut runs = 0;
    let failed = run(&Schedule::new(6).warm_up(1), |turn| {
        runs += 1;
        if turn.round == 1 && turn.side == Side::B {
            return Err(std::io::Error::other("connection lost"));
        }
        Ok(Sample::new().lower("ns", 1.0))
    })
    .unwrap_err();
    assert_eq!(runs, 9);
    assert_eq!(failed.to_string(), "run of side B in round 1 failed");
    assert_eq!(failed.source.to_string(), "connection lost");
}

#[test]
fn a_missing_or_unusable_metric_is_an_error() {
    let missing = run(&Schedule::new(6), |turn| {
        let sample = Sample::new().lower("ns", 1.0);
        Ok::<_, Infallible>(match (turn.side, turn.round) {
            (Side::Control, 3) => Sample::new(),
            _ => sample,
        })
    });
    assert_eq!(
        missing.unwrap().compare("a", "b", &Bootstrap::default()),
        Err(CompareError::Missing {
            metric: "ns".to_owned(),
            side: Side::Control,
            round: 3
        })
    );
    let unusable = run(&Schedule::new(6), |turn| {
        let value = if turn.side == Side::Control {
            f64::NAN
        } else {
            1.0
        };
        Ok::<_, Infallible>(Sample::new().lower("ns", value))
    });
    let err = unusable
        .unwrap()
        .compare("a", "b", &Bootstrap::default())
        .unwrap_err();
    assert!(matches!(
        err,
        CompareError::Unusable {
            side: Side::Control,
            ..
        }
    ));
}

#[test]
fn equal_notes_are_counted_by_side() {
    let recording = run(&Schedule::new(6), |turn| {
        let sample = Sample::new().lower("ns", 1.0);
        Ok::<_, Infallible>(match turn.side {
            Side::B if turn.round < 4 => sample.note("server not saturated"),
            _ => sample,
        })
    });
    let comparison = recording
        .unwrap()
        .compare("a", "b", &Bootstrap::default())
        .unwrap();
    assert_eq!(
        comparison.notes,
        [Note {
            side: Side::B,
            text: "server not saturated".to_owned(),
            runs: 4
        }]
    );
    let text = comparison.to_string();
    assert!(
        text.contains("note on 4 of 6 runs of B: server not saturated"),
        "{text}"
    );
}

#[test]
fn the_table_lines_up_and_shows_every_metric() {
    let text = compare(&Schedule::new(12), 1.5, 0.02).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "A = epoll, B = uring");
    assert!(lines[1].starts_with("12 rounds interleaved, with an A/A control, 1 warm-up"));
    assert_eq!(lines[2].len(), lines[3].len());
    assert!(lines[3].starts_with("requests_per_second"));
    assert!(lines[4].starts_with("requests_per_second: B is "));
}

#[test]
fn the_json_holds_verdict_and_every_run() {
    let json = serde_json::to_value(compare(&Schedule::new(6), 1.5, 0.02)).unwrap();
    let metric = &json["metrics"][0];
    assert_eq!(metric["name"], "requests_per_second");
    assert_eq!(metric["better"], "higher");
    assert_eq!(metric["verdict"], "different");
    assert!(metric["sentence"].as_str().unwrap().starts_with("B is"));
    assert!(metric["ratio"]["low"].as_f64().unwrap() > 1.0);
    for side in ["a", "b", "control"] {
        let runs = json["recording"]["samples"][side].as_array().unwrap();
        assert_eq!(runs.len(), 6);
        assert!(runs[0]["requests_per_second"].as_f64().unwrap() > 900.0);
    }
    assert_eq!(json["recording"]["schedule"]["control"], true);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_difference_is_shown_where_the_control_behaves_as_badly(
        runs in prop::collection::vec((0.5..2.0f64, 0.5..2.0f64), 6..20),
    ) {
        // B and the control measure the very same, so B must never be called different.
        let recording = run(&Schedule::new(runs.len()).warm_up(0), |turn| {
            let (a, other) = runs[turn.round];
            let value = if turn.side == Side::A { a } else { other };
            Ok::<_, Infallible>(Sample::new().lower("ns", value))
        });
        let bootstrap = Bootstrap { resamples: 100, ..Bootstrap::default() };
        let comparison = recording.unwrap().compare("a", "b", &bootstrap).unwrap();
        prop_assert_ne!(comparison.metrics[0].verdict, Verdict::Different);
    }
}

/// Comparisons of servers of which B costs `factor` times as much, on a machine whose noise lasts from run to run
/// (correlation 0.8, standard deviation 6 %) and which now and then is slow for a while; how many of `trials` claim a
/// difference.
fn claims(trials: u64, rounds: usize, factor: f64) -> usize {
    let schedule = Schedule::new(rounds).warm_up(0);
    let bootstrap = Bootstrap {
        resamples: 300,
        ..Bootstrap::default()
    };
    let claimed = |seed: u64| {
        let mut random = SplitMix64::new(seed);
        let mut bell = move || (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
        let (mut noise, mut slow) = (0.0, 0.0);
        let recording = run(&schedule, |turn| -> Result<Sample, Infallible> {
            noise = 0.8 * noise + 0.036 * bell();
            slow = if bell() > 2.0 { 0.3 } else { 0.7 * slow };
            let cost = if turn.side == Side::B { factor } else { 1.0 };
            Ok(Sample::new().lower("cost", cost * f64::exp(noise + slow)))
        });
        let compared = recording.unwrap().compare("a", "b", &bootstrap).unwrap();
        compared.metrics[0].verdict == Verdict::Different
    };
    (1..=trials).filter(|seed| claimed(*seed)).count()
}

#[test]
fn equal_servers_are_seldom_told_apart_however_long_the_noise_lasts() {
    // Intervals are at 95 %, so one in twenty is what is promised; the control makes it fewer than one in a hundred: 13.
    let claims = claims(2_000, 20, 1.0);
    assert!(claims <= 20, "{claims} of 2000");
}

#[test]
fn servers_that_differ_by_more_than_the_noise_are_told_apart() {
    let claims = claims(100, 20, 1.25);
    assert!(claims >= 95, "{claims} of 100");
}
