//! The limits of the service http.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire_http::Settings as HttpSettings;

use crate::exit::Failure;
use crate::size::Size;
use crate::span::Span;

/// Settings of http.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct HttpOptions {
    /// Longest request line; a longer one is answered 414 [default: 8KiB]
    #[arg(
        id = "http-request-line",
        long = "http-request-line",
        value_name = "SIZE"
    )]
    pub(crate) request_line: Option<Size>,

    /// Request line and header fields together; more are answered 431 [default: 16KiB]
    #[arg(id = "http-head", long = "http-head", value_name = "SIZE")]
    pub(crate) head: Option<Size>,

    /// Header fields of a request, at most 128; more are answered 431 [default: 64]
    #[arg(id = "http-headers", long = "http-headers", value_name = "N")]
    pub(crate) headers: Option<usize>,

    /// Largest body that is gathered before it is looked at; a larger one is answered 413
    /// [default: 1MiB]
    #[arg(id = "http-body", long = "http-body", value_name = "SIZE")]
    pub(crate) body: Option<Size>,

    /// Bodies that are being gathered, all connections together; more are answered 503 [default: 64MiB]
    #[arg(id = "http-bodies", long = "http-bodies", value_name = "SIZE")]
    pub(crate) bodies: Option<Size>,

    /// Largest body that is streamed, as /echo does; a larger one is answered 413 [default: 1GiB]
    #[arg(id = "http-streamed", long = "http-streamed", value_name = "SIZE")]
    pub(crate) streamed: Option<Size>,
}

/// Longer than any connection lives.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

impl HttpOptions {
    /// What the service is given. `whole_request` is how long a head may take, and a body.
    pub(crate) fn settings(&self, whole_request: Option<Span>) -> Result<HttpSettings, Failure> {
        let mut own = HttpSettings::default();
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        if let Some(head) = self.head {
            own.head_bytes = within("head", bytes(head), 64..=1 << 20)?;
            own.request_line = own.request_line.min(own.head_bytes);
        }
        if let Some(line) = self.request_line {
            own.request_line = within("request-line", bytes(line), 16..=own.head_bytes)?;
        }
        if let Some(headers) = self.headers {
            own.headers = within("headers", headers, 1..=128)?;
        }
        own.body = self.body.map_or(own.body, |size| size.0);
        own.gathered = self.bodies.map_or(own.gathered, bytes);
        own.streamed = self.streamed.map_or(own.streamed, |size| size.0);
        if let Some(within) = whole_request {
            let within = within.limit().unwrap_or(FOR_EVER);
            (own.head_timeout, own.body_timeout) = (within, within);
        }
        Ok(own)
    }
}

fn within(name: &str, value: usize, range: RangeInclusive<usize>) -> Result<usize, Failure> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (first, last) = range.into_inner();
    Err(Failure::usage(format!(
        "--http-{name} {value}: {first} to {last}"
    )))
}

/// As `/config` shows them.
pub(crate) fn shown(settings: &HttpSettings) -> Value {
    json!({
        "request-line": settings.request_line,
        "head": settings.head_bytes,
        "headers": settings.headers,
        "body": settings.body,
        "bodies": settings.gathered,
        "streamed": settings.streamed,
    })
}

/// How long a head may take, and a body; `None` for ever.
pub(crate) fn times(settings: &HttpSettings) -> [Option<Duration>; 2] {
    let times = [settings.head_timeout, settings.body_timeout];
    times.map(|time| Some(time).filter(|time| *time < FOR_EVER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::sources::in_file;

    #[test]
    fn limits_are_those_asked_for_or_refused() {
        let read = |text: &str| {
            let options = in_file(&format!("[http]\n{text}")).unwrap();
            options.http.settings(None).map_err(|e| e.message)
        };
        assert_eq!(read(""), Ok(HttpSettings::default()));
        let own =
            read("head = '2KiB'\nheaders = 10\nbody = 100\nbodies = '1MiB'\nstreamed = 7").unwrap();
        assert_eq!(
            (own.head_bytes, own.request_line, own.headers),
            (2048, 2048, 10)
        );
        assert_eq!((own.body, own.gathered, own.streamed), (100, 1 << 20, 7));
        for (text, said) in [
            ("headers = 129", "--http-headers 129"),
            ("headers = 0", "1 to 128"),
            ("head = 63", "--http-head 63"),
            ("request-line = '17KiB'", "16 to 16384"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
