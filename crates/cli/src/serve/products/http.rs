//! Small web endpoints.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire::Limits;
use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::http as metrics;
use tidewire_http::demo::{self, Burns};
use tidewire_http::{Http, Router, Settings as HttpSettings};
use tidewire_pool::Pool;

use crate::exit::Failure;
use crate::serve::listeners::kind::{Kind, Mode, Service};
use crate::serve::listeners::limits::never_is_0;
use crate::serve::product::{Entry, Frame, Plan, Product, Serving};
use crate::serve::settings::defaults::{secs, with_default};
use crate::serve::settings::frame::Settings;
use crate::size::Size;
use crate::span::Span;

static SERVICE: Service = Service {
    is_http: true,
    ..Service::new(
        "http",
        &[Mode {
            name: None,
            ports: &[8080],
        }],
    )
};

pub(super) static ENTRY: Entry = Entry {
    defaults: || {
        let own = HttpSettings::default();
        let (head, body) = (secs(own.head_timeout), secs(own.body_timeout));
        vec![(
            "whole_request",
            format!("http {head} for a head, {body} for a body"),
        )]
    },
    ..Entry::of::<HttpOptions>(&SERVICE, "HTTP")
};

/// Settings of http.
#[derive(Debug, clap::Args)]
struct HttpOptions {
    /// Longest request line.
    #[arg(id = "http-request-line", long = "http-request-line", value_name = "SIZE",
          help = with_default("Longest request line; a longer one is answered 414",
                              Size(HttpSettings::default().request_line as u64)))]
    request_line: Option<Size>,

    /// Request line and header fields together; more are answered 431
    #[arg(id = "http-head", long = "http-head", value_name = "SIZE",
          default_value_t = Size(HttpSettings::default().head_bytes as u64))]
    head: Size,

    /// Header fields of a request, at most 128; more are answered 431
    #[arg(id = "http-headers", long = "http-headers", value_name = "N", default_value_t = HttpSettings::default().headers)]
    headers: usize,

    /// Largest body that is gathered before it is looked at; a larger one is answered 413
    #[arg(id = "http-body", long = "http-body", value_name = "SIZE", default_value_t = Size(HttpSettings::default().body))]
    body: Size,

    /// Bodies that are being gathered, all connections together; more are answered 503
    #[arg(id = "http-bodies", long = "http-bodies", value_name = "SIZE", default_value_t = Size(HttpSettings::default().gathered as u64))]
    bodies: Size,

    /// Largest body that is streamed, as /echo does; a larger one is answered 413
    #[arg(id = "http-streamed", long = "http-streamed", value_name = "SIZE", default_value_t = Size(HttpSettings::default().streamed))]
    streamed: Size,

    /// The checked settings.
    #[arg(skip)]
    plan: HttpSettings,
}

/// Longer than any connection lives.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

impl HttpOptions {
    /// The settings that the HTTP service gets. `whole_request` is how long a head may take, and a
    /// body.
    fn settings(&self, whole_request: Option<Span>) -> Result<HttpSettings, Failure> {
        let mut own = HttpSettings::default();
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        own.head_bytes = within("head", bytes(self.head), 64..=1 << 20)?;
        own.request_line = own.request_line.min(own.head_bytes);
        if let Some(line) = self.request_line {
            own.request_line = within("request-line", bytes(line), 16..=own.head_bytes)?;
        }
        own.headers = within("headers", self.headers, 1..=128)?;
        own.body = self.body.0;
        own.gathered = bytes(self.bodies);
        own.streamed = self.streamed.0;
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

impl Product for HttpOptions {
    fn complete(&mut self, settings: &Settings) -> Result<(), Failure> {
        self.plan = self.settings(settings.deadlines.said_of_requests(SERVICE.kind(0)))?;
        Ok(())
    }

    fn limits(&self, kind: Kind, settings: &Settings) -> Limits {
        Limits {
            // HTTP has times of its own for heads and bodies, and a reply for late clients.
            request: None,
            ..settings.changed(kind, self.plan.limits())
        }
    }

    fn show_limits(&self, _: Kind, _: &Settings, shown: &mut Value) {
        let times = [self.plan.head_timeout, self.plan.body_timeout];
        let times = times.map(|time| Some(time).filter(|time| *time < FOR_EVER));
        let [head, body] = times.map(never_is_0);
        shown["whole-request"] = json!({ "head": head, "body": body });
    }

    fn shown(&self, plan: &Plan) -> Value {
        let own = &self.plan;
        match plan.serves(&SERVICE) {
            false => Value::Null,
            true => json!({
                "request-line": own.request_line,
            }),
        }
    }

    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure> {
        let kind = SERVICE.kind(0);
        let pool = Pool::new(&tidewire_pool::Settings::default())
            .map_err(|e| Failure::failed(format!("cannot start the workers of http: {e}")))?;
        let burns = match frame.plan.is_open(kind) {
            true => Burns::ForEverybody,
            false => Burns::ForTrusted,
        };
        let service = Http::with(self.plan.clone(), demo::router(pool, burns));
        frame.add(kind, service.clone());
        Ok(Box::new(Web(service)))
    }
}

struct Web(Http<Router>);

impl Serving for Web {
    fn collect(&self, to: &mut Snapshot) {
        let counters = self.0.counters();
        to.add(&metrics::GATHERING_BYTES, &[], self.0.gathering() as u64);
        to.add(&metrics::REQUESTS, &[], counters.requests);
        for (status, n) in [
            ("2xx", counters.replies_2xx),
            ("3xx", counters.replies_3xx),
            ("4xx", counters.replies_4xx),
            ("5xx", counters.replies_5xx),
        ] {
            to.add(&metrics::REPLIES, &[status], n);
        }
        for (reason, n) in [
            ("malformed", counters.malformed),
            ("too_large", counters.too_large),
            ("too_slow", counters.too_slow),
            ("overloaded", counters.overloaded),
        ] {
            to.add(&metrics::REFUSED, &[reason], n);
        }
    }

    fn log(&self) {
        let counters = self.0.counters();
        if counters != Default::default() {
            tracing::info!(%counters, "http");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::sources::product_in_file;

    #[test]
    fn limits_are_those_asked_for_or_refused() {
        let read = |text: &str| {
            let options = product_in_file::<HttpOptions>(&format!("[http]\n{text}"));
            options.unwrap().settings(None).map_err(|e| e.message)
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
