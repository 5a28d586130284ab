//! The form of a line: text for people, logfmt or JSON for machines. In the last two, numbers are numbers, and what
//! is counted under names of its own (a field called `counters`) is as well.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::thread::LocalKey;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::stamp;

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// `name=value` pairs.
    Logfmt,
    /// A JSON object a line.
    Json,
}

/// Writes events as lines.
pub(super) struct Lines {
    format: LogFormat,
    text: Format<Full>,
}

impl Lines {
    pub(super) fn new(format: LogFormat) -> Lines {
        Lines {
            format,
            text: Format::default(),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.format == LogFormat::Text {
            return self.text.format_event(ctx, out, event);
        }
        let meta = event.metadata();
        with_kept(&LINE, |line| {
            let mut pairs = Pairs::new(self.format == LogFormat::Json, line);
            stamp::now(|now| pairs.plain("timestamp", now));
            pairs.plain("level", level(*meta.level()));
            pairs.text("target", meta.target());
            event.record(&mut pairs);
            pairs.finish()?;
            line.push('\n');
            out.write_str(line)
        })
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The pairs of one line, written as they are visited.
struct Pairs<'a> {
    json: bool,
    first: bool,
    out: &'a mut String,
    done: fmt::Result,
}

impl<'a> Pairs<'a> {
    fn new(json: bool, out: &'a mut String) -> Pairs<'a> {
        let done = if json { out.write_char('{') } else { Ok(()) };
        Pairs {
            json,
            first: true,
            out,
            done,
        }
    }

    fn finish(self) -> fmt::Result {
        self.done?;
        match self.json {
            true => self.out.write_char('}'),
            false => Ok(()),
        }
    }

    fn attempt(&mut self, write: impl FnOnce(&mut String) -> fmt::Result) {
        if self.done.is_ok() {
            self.done = write(self.out);
        }
    }

    /// Writes the name in front of a value.
    fn name(&mut self, name: &str) {
        let (json, first) = (self.json, std::mem::take(&mut self.first));
        self.attempt(|out| match (json, first) {
            (true, true) => quoted(out, name).and_then(|()| out.write_str(":")),
            (true, false) => {
                out.write_str(",")?;
                quoted(out, name)?;
                out.write_str(":")
            }
            (false, first) => {
                if !first {
                    out.write_str(" ")?;
                }
                let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
                let is_usual = |b: u8| b.is_ascii_alphanumeric() | (b == b'_');
                match name.bytes().all(is_usual) {
                    true => out.write_str(name)?,
                    false => name
                        .chars()
                        .try_for_each(|c| out.write_char(if allowed(c) { c } else { '_' }))?,
                }
                out.write_str("=")
            }
        });
    }

    /// A value that needs no escaping.
    fn plain(&mut self, name: &str, value: &str) {
        let quote = if self.json { "\"" } else { "" };
        self.name(name);
        self.attempt(|out| {
            out.write_str(quote)?;
            out.write_str(value)?;
            out.write_str(quote)
        });
    }

    fn number(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        self.attempt(|out| write!(out, "{value}"));
    }

    fn text(&mut self, name: &str, value: &str) {
        let bare = !self.json && is_bare(value);
        self.name(name);
        self.attempt(|out| match bare {
            true => out.write_str(value),
            false => quoted(out, value),
        });
    }

    /// Formats a `Counters` value: in JSON as an object of numbers, in logfmt as pairs like all
    /// other pairs.
    fn counters(&mut self, name: &str, shown: &str) {
        let pairs = || shown.split(' ').filter_map(|pair| pair.split_once('='));
        if self.json {
            self.name(name);
            let outer = std::mem::replace(&mut self.first, true);
            self.attempt(|out| out.write_char('{'));
            pairs().for_each(|(name, n)| self.number(name, n));
            self.attempt(|out| out.write_char('}'));
            self.first = outer;
        } else {
            pairs().for_each(|(name, n)| self.number(name, n));
        }
    }
}

/// Whether this is `name=number` pairs with a blank in between, as the counters of all services are shown.
fn is_counters(text: &str) -> bool {
    let is_pair = |pair: &str| {
        pair.split_once('=').is_some_and(|(name, n)| {
            !name.is_empty() && n.parse::<u64>().is_ok() && !n.starts_with('+')
        })
    };
    text.split(' ').all(is_pair)
}

/// Whether logfmt takes this without quotes.
fn is_bare(text: &str) -> bool {
    // Most texts are recognised as plain without a search for single characters.
    let plain = |b: u8| b.is_ascii_graphic() & (b != b'"') & (b != b'=') & (b != b'\\');
    if text.bytes().all(plain) {
        return !text.is_empty();
    }
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '=' | '\\');
    !text.is_empty() && !text.contains(odd)
}

/// Writes a text in quotes, escaped as in JSON.
fn quoted(out: &mut String, text: &str) -> fmt::Result {
    let special = |c: char| c.is_control() || matches!(c, '"' | '\\');
    out.write_char('"')?;
    let mut rest = text;
    let plain = |b: u8| (b' '..=b'~').contains(&b) & (b != b'"') & (b != b'\\');
    let may_be_special = !text.bytes().all(plain);
    while may_be_special && let Some(at) = rest.find(special) {
        out.write_str(&rest[..at])?;
        let c = rest[at..].chars().next().expect("found");
        rest = &rest[at + c.len_utf8()..];
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            // Characters that move a terminal's cursor are controls, though JSON allows them.
            c => write!(out, "\\u{:04x}", u32::from(c))?,
        }
    }
    out.write_str(rest)?;
    out.write_char('"')
}

thread_local! {
    /// Memory for a value before it is known whether the value needs quotes, and for the line. The memory is kept, so
    /// that nothing is allocated for a line.
    static SHOWN: Cell<String> = const { Cell::new(String::new()) };
    static LINE: Cell<String> = const { Cell::new(String::new()) };
}

/// Bytes of each that are kept.
const KEPT: usize = 4096;

/// Calls `f` with an empty string that the thread keeps for reuse. A line logged while another is
/// formatted has a string of its own.
fn with_kept<R>(kept: &'static LocalKey<Cell<String>>, f: impl FnOnce(&mut String) -> R) -> R {
    // A thread that ends has no string any more.
    let mut text = kept.try_with(Cell::take).unwrap_or_default();
    text.clear();
    let result = f(&mut text);
    if text.capacity() <= KEPT {
        let _ = kept.try_with(|kept| kept.set(text));
    }
    result
}

impl Visit for Pairs<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        with_kept(&SHOWN, |shown| {
            // Fails only where the value's own does; what there is of it says more than nothing.
            let _ = write!(shown, "{value:?}");
            if field.name() == "counters" && is_counters(shown) {
                self.counters(field.name(), shown);
            } else {
                self.text(field.name(), shown);
            }
        });
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field.name(), value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.number(field.name(), value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.number(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON knows no others.
        if value.is_finite() {
            self.number(field.name(), value);
        } else {
            self.plain(field.name(), &value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let theirs = kept.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .event_format(Lines::new(format))
            .with_writer(move || theirs.clone());
        let all = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(all, log);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn odd() {
        tracing::warn!(
            n = 7_u64,
            below = -3_i64,
            share = 0.5,
            none = f64::NAN,
            yes = true,
            peer = %"127.0.0.1:9",
            empty = "",
            text = "a \"b\" = c\\d\n\u{1b}[31m",
            counters = %"accepted=3 closed_finished=1",
            "it is \u{e4}rgerlich"
        );
    }

    #[test]
    fn json_is_json_with_numbers() {
        let line = logged(LogFormat::Json, odd);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let json: serde_json::Value = serde_json::from_str(&line).expect(&line);
        assert_eq!(json["level"], "warn");
        assert_eq!(json["message"], "it is \u{e4}rgerlich");
        assert_eq!(json["n"], 7);
        assert_eq!(json["below"], -3);
        assert_eq!(json["share"], 0.5);
        assert_eq!(json["none"], "NaN");
        assert_eq!(json["yes"], true);
        assert_eq!(json["peer"], "127.0.0.1:9");
        assert_eq!(json["text"], "a \"b\" = c\\d\n\u{1b}[31m");
        assert_eq!(json["counters"]["accepted"], 3);
        assert_eq!(json["counters"]["closed_finished"], 1);
        assert!(json["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn logfmt_quotes_what_needs_it() {
        let line = logged(LogFormat::Logfmt, odd);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
        let (_, rest) = line.trim_end().split_once(" level=").unwrap();
        assert_eq!(
            rest.split_once(" n=").unwrap().1,
            "7 below=-3 share=0.5 none=NaN yes=true peer=127.0.0.1:9 empty=\"\" \
             text=\"a \\\"b\\\" = c\\\\d\\n\\u001b[31m\" accepted=3 closed_finished=1"
        );
        assert!(rest.starts_with("warn target=tidewire::logging::line::tests message=\"it is"));
    }

    #[test]
    fn what_only_looks_like_counters_stays_a_text() {
        for (text, counters) in [
            ("a=1 b=2", true),
            ("a=1", true),
            ("", false),
            ("a=1  b=2", false),
            ("a=-1", false),
            ("a=+1", false),
            ("=1", false),
            ("a=1 \"", false),
        ] {
            assert_eq!(is_counters(text), counters, "{text:?}");
        }
    }
}
