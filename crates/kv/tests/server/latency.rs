//! LATENCY and MEMORY: what is told of times and bytes.

use crate::common::World;

#[test]
fn what_takes_long_is_kept() {
    let mut world = World::new();
    let mut c = world.client();
    let w = &mut world;
    w.check(&mut c, "LATENCY LATEST", "*0|");
    w.check(&mut c, "LATENCY HISTORY command", "*0|");
    w.check(&mut c, "LATENCY RESET", ":0|");
    w.check(
        &mut c,
        "LATENCY GRAPH command",
        "-ERR No samples available for event 'command'|",
    );
    let nothing = w.ask(&mut c, "LATENCY DOCTOR");
    assert!(nothing.contains("latency-monitor-threshold"), "{nothing}");
    w.check(&mut c, "CONFIG SET latency-monitor-threshold 1", "+OK|");
    w.check(
        &mut c,
        "CONFIG GET latency-monitor-threshold",
        "*2|$25|latency-monitor-threshold|$1|1|",
    );
    w.check(&mut c, "CONFIG SET latency-monitor-threshold 0", "+OK|");
    let wrong = w.ask(&mut c, "LATENCY FOO");
    assert!(wrong.starts_with("-ERR unknown subcommand"), "{wrong}");
    let wrong = w.ask(&mut c, "LATENCY HISTORY");
    assert!(
        wrong.starts_with("-ERR wrong number of arguments"),
        "{wrong}"
    );
}

#[test]
fn calls_are_told_by_how_long_they_took() {
    let mut world = World::new();
    let mut c = world.client();
    let w = &mut world;
    w.ask(&mut c, "CONFIG SET latency-monitor-threshold 1000");
    for _ in 0..3 {
        w.ask(&mut c, "SET k 1");
    }
    let told = w.ask(&mut c, "LATENCY HISTOGRAM set none");
    assert!(
        told.starts_with("*2|$3|set|*4|$5|calls|:3|$14|histogram_usec|*"),
        "{told}"
    );
    let info = w.ask(&mut c, "INFO latencystats");
    assert!(info.contains("latency_percentiles_usec_set:p50="), "{info}");
    assert!(info.contains(",p99.9="), "{info}");
    w.check(
        &mut c,
        "CONFIG SET latency-tracking-info-percentiles 90",
        "+OK|",
    );
    let info = w.ask(&mut c, "INFO latencystats");
    assert!(
        info.contains("latency_percentiles_usec_set:p90=") && !info.contains("p50"),
        "{info}"
    );
    w.check(&mut c, "CONFIG RESETSTAT", "+OK|");
    w.check(&mut c, "LATENCY HISTOGRAM set", "*0|");
    w.ask(&mut c, "CONFIG SET latency-tracking no");
    w.ask(&mut c, "SET k 1");
    w.check(&mut c, "LATENCY HISTOGRAM set", "*0|");
}

#[test]
fn memory_is_told_of_everywhere_it_is_asked() {
    let mut world = World::new();
    let mut c = world.client();
    let w = &mut world;
    w.ask(&mut c, "SET k 1");
    let stats = w.ask(&mut c, "MEMORY STATS");
    for name in [
        "peak.allocated",
        "keys.count|:1|",
        "db.0",
        "dataset.percentage",
        "fragmentation.bytes",
    ] {
        assert!(stats.contains(name), "{name}: {stats}");
    }
    w.check(&mut c, "MEMORY PURGE", "+OK|");
    for sub in ["DOCTOR", "MALLOC-STATS"] {
        let told = w.ask(&mut c, &format!("MEMORY {sub}"));
        assert!(told.starts_with('$'), "{sub}: {told}");
    }
    // Between other commands of a transaction it is answered in its place.
    for line in [
        "MULTI",
        "SET a 1",
        "MEMORY PURGE",
        "MEMORY USAGE none",
        "GET a",
    ] {
        w.ask(&mut c, line);
    }
    w.check(&mut c, "EXEC", "*4|+OK|+OK|$-1|$1|1|");
    let refused = w.ask(&mut c, "EVAL return(redis.call('memory','stats')) 0");
    assert!(refused.contains("not allowed from script"), "{refused}");
    let wrong = w.ask(&mut c, "MEMORY STATS x");
    assert!(wrong.starts_with("-ERR wrong number"), "{wrong}");
    // Behind another in one batch, whose lock is held.
    for _ in 0..2 {
        w.send(&c, "SET k 2");
        w.send(&c, "MEMORY STATS");
    }
    let all = w.answer(&mut c);
    assert_eq!(all.matches("keys.count|:2|").count(), 2, "{all}");
}
