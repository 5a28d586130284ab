//! A snapshot in Prometheus's text format, version 0.0.4.

use std::fmt::Write;

use crate::metric::{Kind, Metric};
use crate::snapshot::{Sample, Snapshot, Value};

impl Snapshot {
    /// The media type of [`to_prometheus`](Snapshot::to_prometheus).
    pub const PROMETHEUS: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// The page that Prometheus scrapes.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut out = String::with_capacity(16 << 10);
        for (metric, samples) in self.families() {
            let (name, kind) = (metric.name, metric.kind.name());
            out.push_str("# HELP ");
            out.push_str(name);
            out.push(' ');
            escape(&mut out, metric.help.trim(), false);
            // Writing to a string cannot fail, here and below.
            let _ = write!(out, "\n# TYPE {name} {kind}\n");
            for sample in samples {
                write_sample(&mut out, metric, sample);
            }
        }
        out
    }
}

fn write_sample(out: &mut String, metric: &Metric, sample: &Sample) {
    let name = metric.name;
    let Value::Histogram { buckets, sum } = &sample.value else {
        return write_line(out, (name, ""), metric, sample, None, &sample.value);
    };
    let Kind::Histogram(bounds) = metric.kind else {
        return;
    };
    let mut count = 0;
    for (i, n) in buckets.iter().enumerate() {
        count += n;
        let bound = bounds.get(i).map_or("+Inf".to_owned(), f64::to_string);
        let count = Value::Count(count);
        write_line(out, (name, "_bucket"), metric, sample, Some(&bound), &count);
    }
    write_line(
        out,
        (name, "_sum"),
        metric,
        sample,
        None,
        &Value::Number(*sum),
    );
    write_line(
        out,
        (name, "_count"),
        metric,
        sample,
        None,
        &Value::Count(count),
    );
}

fn write_line(
    out: &mut String,
    (name, suffix): (&str, &str),
    metric: &Metric,
    sample: &Sample,
    bound: Option<&str>,
    value: &Value,
) {
    out.push_str(name);
    out.push_str(suffix);
    let labels = metric.labels.iter().copied();
    let values = sample.labels.iter().map(String::as_str);
    let pairs = labels.zip(values).chain(bound.map(|bound| ("le", bound)));
    let mut between = '{';
    for (label, value) in pairs {
        out.push(between);
        out.push_str(label);
        out.push_str("=\"");
        escape(out, value, true);
        out.push('"');
        between = ',';
    }
    if between == ',' {
        out.push('}');
    }
    let _ = match value {
        Value::Count(n) => writeln!(out, " {n}"),
        Value::Number(n) if n.is_infinite() => {
            writeln!(out, " {}", if *n > 0.0 { "+Inf" } else { "-Inf" })
        }
        Value::Number(n) => writeln!(out, " {n}"),
        Value::Histogram { .. } => unreachable!("written line by line"),
    };
}

fn escape(out: &mut String, text: &str, in_quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if in_quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ODD: Metric = Metric {
        name: "odd_seconds",
        kind: Kind::Histogram(&[0.001, 1.0]),
        labels: &["name"],
        help: "Help with a \\ in it.",
    };

    #[test]
    fn histograms_are_cumulative_and_labels_escaped() {
        let mut snapshot = Snapshot::default();
        let buckets = vec![2, 1, 4];
        let value = Value::Histogram { buckets, sum: 9.5 };
        snapshot.add(&ODD, &["a \"b\"\\\n"], value.clone());
        assert_eq!(
            snapshot.to_prometheus(),
            "# HELP odd_seconds Help with a \\\\ in it.\n# TYPE odd_seconds histogram\n\
             odd_seconds_bucket{name=\"a \\\"b\\\"\\\\\\n\",le=\"0.001\"} 2\n\
             odd_seconds_bucket{name=\"a \\\"b\\\"\\\\\\n\",le=\"1\"} 3\n\
             odd_seconds_bucket{name=\"a \\\"b\\\"\\\\\\n\",le=\"+Inf\"} 7\n\
             odd_seconds_sum{name=\"a \\\"b\\\"\\\\\\n\"} 9.5\n\
             odd_seconds_count{name=\"a \\\"b\\\"\\\\\\n\"} 7\n"
        );
        snapshot.add(&ODD, &["a \"b\"\\\n"], value);
        assert!(snapshot.to_prometheus().contains("le=\"+Inf\"} 14\n"));
    }
}
