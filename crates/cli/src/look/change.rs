//! The changes of metrics between two pages of the admin listener.

use std::collections::BTreeMap;

use tidewire_admin::Page;

/// Turns the labels of a value into a subject and an event.
type Told<'a> = &'a dyn Fn(&BTreeMap<String, String>) -> Option<(String, String)>;

/// A page, and an earlier one of the same server to compare it with.
pub(super) struct Change<'a> {
    pub(super) now: &'a Page,
    before: Option<&'a Page>,
}

impl<'a> Change<'a> {
    /// An earlier page of another process says nothing.
    pub(super) fn new(now: &'a Page, before: Option<&'a Page>) -> Change<'a> {
        let same = |before: &&Page| {
            before.pid == now.pid
                && before.uptime_seconds < now.uptime_seconds
                && before.time < now.time
        };
        Change {
            now,
            before: before.filter(same),
        }
    }

    /// The sum of the values of a metric with these labels.
    pub(super) fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        self.now.sum(metric, labels)
    }

    /// By how much a metric grows in a second.
    pub(super) fn rate(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let before = self.before?;
        let more = self.now.sum(metric, labels) - before.sum(metric, labels);
        Some((more / (self.now.time - before.time)).max(0.0))
    }

    /// The values of a label, and what belongs to each.
    pub(super) fn by(&self, metric: &str, label: &str) -> BTreeMap<&'a str, f64> {
        let mut all = BTreeMap::new();
        for point in self.now.metrics.get(metric).into_iter().flatten() {
            if let Some(value) = point.labels.get(label) {
                *all.entry(value.as_str()).or_default() += point.value;
            }
        }
        all
    }

    /// How late loops answered: at most this for such a share of the times; since the server's start if there is
    /// no page before.
    pub(super) fn lag(&self, share: f64, labels: &[(&str, &str)]) -> Option<f64> {
        self.within("tidewire_loop_lag_seconds", share, labels)
    }

    /// A quantile of a histogram: at most this in such a share of the times, which are counted as
    /// in [`lag`](Change::lag).
    pub(super) fn within(&self, metric: &str, share: f64, labels: &[(&str, &str)]) -> Option<f64> {
        let mut buckets: Vec<(Option<f64>, f64)> = Vec::new();
        for (page, sign) in [(Some(self.now), 1.0), (self.before, -1.0)] {
            let Some(page) = page else { continue };
            for point in page.points(metric, labels) {
                for bucket in point.buckets.iter().flatten() {
                    let n = sign * bucket.count as f64;
                    match buckets.iter_mut().find(|(le, _)| *le == bucket.le) {
                        Some((_, sum)) => *sum += n,
                        None => buckets.push((bucket.le, n)),
                    }
                }
            }
        }
        let order = |le: Option<f64>| le.unwrap_or(f64::INFINITY);
        buckets.sort_by(|a, b| order(a.0).total_cmp(&order(b.0)));
        let total: f64 = buckets.iter().map(|(_, n)| n).sum();
        if total <= 0.0 {
            return None;
        }
        let (mut left, mut below) = (share * total, 0.0);
        for (le, n) in buckets {
            if n > 0.0 && left <= n {
                return Some(le.map_or(below, |le| below + (le - below) * (left / n)));
            }
            left -= n;
            below = le.unwrap_or(below);
        }
        Some(below)
    }

    /// The share of reads of keys that exist; of the time between the pages, or of all time.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        let grown = |metric| {
            let before = self.before.map_or(0.0, |before| before.sum(metric, &[]));
            (self.now.sum(metric, &[]) - before).max(0.0)
        };
        let (hits, misses) = (
            grown("tidewire_kv_hits_total"),
            grown("tidewire_kv_misses_total"),
        );
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// Every limit that has taken effect: what, where, how often; the most frequent first.
    pub(super) fn limits(&self) -> Vec<(String, String, f64)> {
        let mut all = Vec::new();
        let mut add = |metric: &str, what: Told<'_>| {
            for point in self.now.metrics.get(metric).into_iter().flatten() {
                if let (true, Some((what, place))) = (point.value > 0.0, what(&point.labels)) {
                    all.push((what, place, point.value));
                }
            }
        };
        let get = |labels: &BTreeMap<String, String>, name: &str| {
            labels.get(name).cloned().unwrap_or_default()
        };
        add("tidewire_limit_reached_total", &|l| {
            Some((format!("held back: {}", get(l, "limit")), get(l, "loop")))
        });
        add("tidewire_connections_refused_total", &|l| {
            Some((format!("refused: {}", get(l, "reason")), get(l, "service")))
        });
        add("tidewire_connections_closed_total", &|l| {
            let reason = get(l, "reason");
            is_limit(&reason).then(|| (format!("closed: {reason}"), get(l, "service")))
        });
        add("tidewire_ingest_pauses_total", &|l| {
            Some((format!("held back: {}", get(l, "limit")), "ingest".into()))
        });
        add("tidewire_ingest_refused_total", &|l| {
            Some((format!("refused: {}", get(l, "reason")), "ingest".into()))
        });
        add("tidewire_ack_pauses_total", &|l| {
            Some((
                format!("held back: {}", get(l, "limit")),
                format!("ack/{}", get(l, "mode")),
            ))
        });
        add("tidewire_kv_changes_refused_total", &|_| {
            Some(("refused: disk full".into(), "kv".into()))
        });
        add("tidewire_kv_clients_cut_total", &|l| {
            Some((format!("cut: {}", get(l, "reason")), "kv/resp".into()))
        });
        add("tidewire_kv_evicted_keys_total", &|_| {
            Some(("keys evicted".into(), "kv".into()))
        });
        add("tidewire_http_refused_total", &|l| {
            Some((format!("refused: {}", get(l, "reason")), "http".into()))
        });
        add("tidewire_loop_stalls_total", &|l| {
            let place = format!("{}, {}", get(l, "service"), get(l, "callback"));
            Some((format!("stuck in {place}"), get(l, "loop")))
        });
        add("tidewire_logging_dropped_lines_total", &|_| {
            Some(("lines not logged".into(), "logging".into()))
        });
        all.sort_by(|a, b| b.2.total_cmp(&a.2));
        all
    }

    /// Why connections were closed: reason, service, how many; the most frequent first.
    pub(super) fn closed(&self) -> Vec<(&'a str, &'a str, f64)> {
        let mut all = Vec::new();
        for metric in [
            "tidewire_connections_closed_total",
            "tidewire_connections_closed_by_protocol_total",
        ] {
            for point in self.now.metrics.get(metric).into_iter().flatten() {
                let label = |name| point.labels.get(name).map_or("", String::as_str);
                if point.value > 0.0 && label("reason") != "by_protocol" {
                    all.push((label("reason"), label("service"), point.value));
                }
            }
        }
        all.sort_by(|a, b| b.2.total_cmp(&a.2));
        all
    }
}

fn is_limit(reason: &str) -> bool {
    let ends = ["_limit", "_timeout", "_expired", "_deadline", "_late"];
    matches!(reason, "idle" | "stalled" | "lifetime")
        || ends.iter().any(|end| reason.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rates_are_between_pages_of_one_process() {
        let one = page(
            r#"{"pid":1,"time":10,"uptime_seconds":5,"metrics":{"m":[{"labels":{},"value":100}]}}"#,
        );
        let two = page(
            r#"{"pid":1,"time":12,"uptime_seconds":7,"metrics":{"m":[{"labels":{},"value":300}]}}"#,
        );
        let other = page(
            r#"{"pid":2,"time":14,"uptime_seconds":1,"metrics":{"m":[{"labels":{},"value":3}]}}"#,
        );
        assert_eq!(Change::new(&two, Some(&one)).rate("m", &[]), Some(100.0));
        assert_eq!(Change::new(&two, None).rate("m", &[]), None);
        assert_eq!(Change::new(&other, Some(&two)).rate("m", &[]), None);
        assert_eq!(Change::new(&two, Some(&two)).rate("m", &[]), None);
    }

    /// Each reason that the toolkit knows is a limit's or is none; new ones are to be thought about here.
    #[test]
    fn limits_are_told_from_other_reasons() {
        let counters = tidewire::Counters::default();
        let others = [
            "finished",
            "aborted",
            "by_protocol",
            "reset",
            "panicked",
            "stopped",
            "failed",
            "refused",
        ];
        let mut limits = Vec::new();
        for (reason, _) in counters.each_closed() {
            assert_ne!(is_limit(reason), others.contains(&reason), "{reason}");
            limits.extend(is_limit(reason).then_some(reason));
        }
        for reason in ["first_byte_late", "request_late", "lifetime"] {
            assert!(limits.contains(&reason), "{reason}");
        }
    }

    #[test]
    fn lateness_lies_within_its_bucket() {
        let at = |time: f64, a: u64, b: u64, c: u64| {
            page(&format!(
                r#"{{"time":{time},"uptime_seconds":{time},"metrics":{{"tidewire_loop_lag_seconds":[{{"labels":{{"loop":"l"}},
                "value":1,"buckets":[{{"le":0.001,"count":{a}}},{{"le":0.01,"count":{b}}},{{"le":null,"count":{c}}}]}}]}}}}"#
            ))
        };
        let (one, two) = (at(1.0, 1000, 0, 0), at(2.0, 1090, 10, 0));
        let change = Change::new(&two, Some(&one));
        let half = change.lag(0.5, &[]).unwrap();
        assert!(half > 0.0 && half < 0.001, "{half}");
        let late = change.lag(0.99, &[]).unwrap();
        assert!(late > 0.001 && late <= 0.01, "{late}");
        let beyond = at(3.0, 0, 0, 5);
        assert_eq!(Change::new(&beyond, None).lag(0.99, &[]), Some(0.01));
        assert_eq!(
            Change::new(&two, Some(&one)).lag(0.5, &[("loop", "other")]),
            None
        );
    }
}
