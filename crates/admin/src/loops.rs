//! The toolkit's counters, as metrics.

use tidewire::{Counters, LoopView, Observer};

use crate::catalogue::server as metrics;
use crate::process::thread_cpu_seconds;
use crate::snapshot::{Snapshot, Value};

/// Adds the metrics of the loops of a server.
pub(crate) fn collect(observer: &Observer, to: &mut Snapshot) {
    let engine = observer.engine().to_string();
    to.add(&metrics::INFO, &[env!("CARGO_PKG_VERSION"), &engine], 1_u64);
    for of in observer.loops() {
        of_loop(&of, to);
        for (service, counters) in observer.services().iter().zip(&of.services) {
            of_service(service, &of.name, counters, to);
        }
    }
    to.add(&metrics::HELD_BYTES_MAX, &[], observer.memory_max());
    for stall in observer.stalls() {
        let service = if stall.service.is_empty() {
            "none"
        } else {
            &*stall.service
        };
        let labels = [&*stall.name, service, stall.callback];
        to.add(&metrics::LOOP_STALLS, &labels, stall.count);
        to.add(
            &metrics::LOOP_STALLED_SECONDS,
            &labels,
            stall.time.as_secs_f64(),
        );
    }
}

fn of_loop(of: &LoopView, to: &mut Snapshot) {
    let (name, counters) = (&*of.name, &of.counters);
    for (limit, n) in [
        ("output", counters.output_pauses),
        ("turn", counters.turn_pauses),
        ("send", counters.send_pauses),
        ("receive", counters.receive_pauses),
        ("memory", counters.memory_pauses),
        ("buffers", counters.buffers_exhausted),
        ("descriptors", counters.accept_pauses),
        ("dials", counters.dials_refused),
        ("lookups", counters.lookups_refused),
        ("posts", counters.posts_refused),
        ("places", counters.places_refused),
        ("tells", counters.tells_refused),
        ("channels", counters.channels_full),
        ("completions", counters.completions_overflowed),
    ] {
        to.add(&metrics::LIMIT_REACHED, &[name, limit], n);
    }
    let undeliverable = counters.posts_undeliverable + counters.tells_undeliverable;
    for (metric, n) in [
        (&metrics::HELD_BYTES, counters.memory),
        (&metrics::LOOP_RECEIVES, counters.receives),
        (&metrics::LOOP_SENDS, counters.sends),
        (&metrics::LOOP_TURNS, counters.turns),
        (&metrics::LOOP_WAKEUPS, counters.wakeups),
        (&metrics::LOOP_BUSY_POLL_HITS, counters.busy_poll_hits),
        (&metrics::LOOP_UNDELIVERABLE, undeliverable),
        (&metrics::LOOP_PANICS, counters.panics),
    ] {
        to.add(metric, &[name], n);
    }
    let Some(thread) = of.thread else { return };
    if let Some(seconds) = thread_cpu_seconds(thread) {
        to.add(&metrics::LOOP_CPU_SECONDS, &[name], seconds);
    }
    let lag = Value::Histogram {
        buckets: of.lag.parts.to_vec(),
        sum: of.lag.sum.as_secs_f64(),
    };
    to.add(&metrics::LOOP_LAG, &[name], lag);
}

fn of_service(service: &str, name: &str, counters: &Counters, to: &mut Snapshot) {
    for (metric, n) in [
        (&metrics::CONNECTIONS_ACCEPTED, counters.accepted),
        (&metrics::CONNECTIONS_DIALLED, counters.dialled),
        (&metrics::DIAL_FAILURES, counters.dial_failures),
        (&metrics::CONNECTIONS_OPEN, counters.open),
        (&metrics::RECEIVED_BYTES, counters.bytes_in),
        (&metrics::SENT_BYTES, counters.bytes_out),
    ] {
        to.add(metric, &[service, name], n);
    }
    to.add(&metrics::CUT_UNSENT, &[service], counters.cut_unsent);
    to.add(&metrics::CUT_BYTES, &[service], counters.bytes_cut);
    for (reason, n) in counters.each_refused() {
        to.add(&metrics::CONNECTIONS_REFUSED, &[service, reason], n);
    }
    for (reason, n) in counters.each_closed() {
        to.add(&metrics::CONNECTIONS_CLOSED, &[service, reason], n);
    }
    for (reason, n) in &counters.reasons {
        to.add(
            &metrics::CONNECTIONS_CLOSED_BY_PROTOCOL,
            &[service, reason],
            *n,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exported buckets are the toolkit's, in seconds.
    #[test]
    fn the_bounds_are_the_toolkits() {
        let bounds = tidewire::LAG_BOUNDS.map(|bound| bound.as_secs_f64());
        assert_eq!(bounds, metrics::LAG_BOUNDS);
    }
}
