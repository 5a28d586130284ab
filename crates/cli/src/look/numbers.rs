//! Numbers for people.

/// A number with a unit of this step, such as `1.5 MiB`.
fn scaled(n: f64, step: f64, units: &[&str]) -> String {
    let mut n = n;
    let mut unit = 0;
    while n.abs() >= step * 0.9995 && unit + 1 < units.len() {
        n /= step;
        unit += 1;
    }
    // Nothing has hundredths of a byte, or of a connection, worth reading.
    let most = match unit {
        0 if step == 1024.0 => 0,
        0 => 1,
        _ => 2,
    };
    let text = trimmed(n, digits(n).min(most));
    match units[unit] {
        "" => text,
        unit if unit.len() == 1 && unit != "B" => format!("{text}{unit}"),
        unit => format!("{text} {unit}"),
    }
}

fn digits(n: f64) -> usize {
    match n.abs() {
        n if n >= 100.0 || n == 0.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    }
}

fn trimmed(n: f64, digits: usize) -> String {
    let text = format!("{n:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

pub(super) fn count(n: f64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T"])
}

pub(super) fn bytes(n: f64) -> String {
    scaled(n, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

pub(super) fn percent(share: f64) -> String {
    format!("{}%", trimmed(share * 100.0, usize::from(share < 0.9995)))
}

/// `3 d 2 h`, `5 min 7 s`.
pub(super) fn span(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match (s / 86400, s / 3600 % 24, s / 60 % 60) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, min) => format!("{min} min {} s", s % 60),
        (0, h, min) => format!("{h} h {min} min"),
        (d, h, _) => format!("{d} d {h} h"),
    }
}

/// `37 µs`, `8.03 ms`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{} ms", trimmed(s * 1e3, digits(s * 1e3))),
        s => format!("{} s", trimmed(s, digits(s))),
    }
}

/// The shown number, or a dash if the number is not known.
pub(super) fn known(n: Option<f64>, show: impl Fn(f64) -> String) -> String {
    n.map_or("-".to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (n, shown) in [
            (0.0, "0"),
            (7.0, "7"),
            (999.0, "999"),
            (1000.0, "1k"),
            (12_345.0, "12.3k"),
            (999_950.0, "1M"),
            (2.5, "2.5"),
            (1.01, "1"),
        ] {
            assert_eq!(count(n), shown);
        }
        for (n, shown) in [
            (0.0, "0 B"),
            (512.0, "512 B"),
            (27.1, "27 B"),
            (1024.0, "1 KiB"),
            (1_572_864.0, "1.5 MiB"),
        ] {
            assert_eq!(bytes(n), shown);
        }
        for (n, shown) in [(0.0, "0%"), (0.125, "12.5%"), (1.0, "100%"), (1.5, "150%")] {
            assert_eq!(percent(n), shown);
        }
        for (n, shown) in [
            (7.0, "7 s"),
            (67.0, "1 min 7 s"),
            (3700.0, "1 h 1 min"),
            (90_000.0, "1 d 1 h"),
        ] {
            assert_eq!(span(n), shown);
        }
        for (n, shown) in [(0.000_037, "37 µs"), (0.008_03, "8.03 ms"), (2.0, "2 s")] {
            assert_eq!(time(n), shown);
        }
        assert_eq!(known(None, count), "-");
    }
}
