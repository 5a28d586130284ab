//! What services have counted, under the names of metrics.

use std::collections::BTreeMap;

use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::{ack as acks, http as web, ingest as ingested};
use tidewire_ingest::{classic, native};

use super::log::STREAMS_SHOWN;

/// Adds the counts of `ingest`.
pub(crate) fn ingest(counters: &native::Counters, to: &mut Snapshot) {
    counters.each(|name, n| {
        if let Some(reason) = name.strip_prefix("refused_") {
            return to.add(&ingested::REFUSED, &[reason], n);
        }
        if let Some(limit) = name.strip_prefix("paused_by_") {
            return to.add(&ingested::PAUSES, &[limit], n);
        }
        let metric = match name {
            "producers" => &ingested::PRODUCERS,
            "forgotten" => &ingested::FORGOTTEN,
            "readers" => &ingested::READERS,
            "fenced" => &ingested::FENCED,
            "messages" => &ingested::MESSAGES,
            "payload_bytes" => &ingested::PAYLOAD_BYTES,
            "batches" => &ingested::BATCHES,
            "acks" => &ingested::ACKS,
            "keepalives" => &ingested::KEEPALIVES,
            "duplicates" => &ingested::DUPLICATES,
            "dropped" => &ingested::DROPPED,
            "adopted" => &ingested::ADOPTED,
            "adopted_ids" => &ingested::ADOPTED_IDS,
            "truncated" => &ingested::TRUNCATED,
            "hello_timeouts" => &ingested::HELLO_TIMEOUTS,
            "reads" => &ingested::READS,
            "read_batches" => &ingested::READ_BATCHES,
            "read_messages" => &ingested::READ_MESSAGES,
            "read_bytes" => &ingested::READ_BYTES,
            "cursors" => &ingested::CURSORS,
            "administrators" => &ingested::ADMINISTRATORS,
            "stream_changes" => &ingested::STREAM_CHANGES,
            // A test sees to it that there is none.
            _ => return,
        };
        to.add(metric, &[], n);
    });
}

/// Adds how far behind the connected readers of `ingest` are.
pub(crate) fn readers(service: &native::IngestService, to: &mut Snapshot) {
    let mut farthest = BTreeMap::new();
    for reader in service.reading() {
        let least = farthest.entry(reader.stream).or_insert(reader.position);
        *least = reader.position.min(*least);
    }
    for (stream, position) in farthest.iter().take(STREAMS_SHOWN) {
        let next = service.range(stream).map_or(0, |range| range.next);
        let lag = next.saturating_sub(*position);
        to.add(&ingested::READER_LAG, &[stream], lag);
    }
}

/// Adds the counts of a mode of `ack`.
pub(crate) fn ack(mode: &str, counters: &classic::Counters, to: &mut Snapshot) {
    counters.each(|name, n| {
        if let Some(limit) = name.strip_prefix("paused_by_") {
            return to.add(&acks::PAUSES, &[mode, limit], n);
        }
        let metric = match name {
            "messages" => &acks::MESSAGES,
            "payload_bytes" => &acks::PAYLOAD_BYTES,
            "acks" => &acks::ACKS,
            "oversized" => &acks::OVERSIZED,
            "truncated" => &acks::TRUNCATED,
            "refused_by_log" => &acks::REFUSED_BY_LOG,
            // A test sees to it that there is none.
            _ => return,
        };
        to.add(metric, &[mode], n);
    });
}

/// Adds the counts of `http`.
pub(crate) fn http(counters: &tidewire_http::Counters, gathering: usize, to: &mut Snapshot) {
    to.add(&web::GATHERING_BYTES, &[], gathering as u64);
    to.add(&web::REQUESTS, &[], counters.requests);
    for (status, n) in [
        ("2xx", counters.replies_2xx),
        ("3xx", counters.replies_3xx),
        ("4xx", counters.replies_4xx),
        ("5xx", counters.replies_5xx),
    ] {
        to.add(&web::REPLIES, &[status], n);
    }
    for (reason, n) in [
        ("malformed", counters.malformed),
        ("too_large", counters.too_large),
        ("too_slow", counters.too_slow),
        ("overloaded", counters.overloaded),
    ] {
        to.add(&web::REFUSED, &[reason], n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(snapshot: &Snapshot) -> usize {
        snapshot.families().map(|(_, samples)| samples.len()).sum()
    }

    #[test]
    fn every_counter_has_a_metric() {
        let (mut of_ingest, mut of_ack) = (Snapshot::default(), Snapshot::default());
        let (mut ingested, mut acked) = (0, 0);
        let (counters, classic) = (native::Counters::default(), classic::Counters::default());
        counters.each(|_, _| ingested += 1);
        classic.each(|_, _| acked += 1);
        ingest(&counters, &mut of_ingest);
        ack("sync", &classic, &mut of_ack);
        assert_eq!(
            samples(&of_ingest),
            ingested,
            "{}",
            of_ingest.to_prometheus()
        );
        assert_eq!(samples(&of_ack), acked, "{}", of_ack.to_prometheus());
    }
}
