//! The service: a handler and its settings, for all loops.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidewire::{LoopHandle, Peer, Refusal, Service, Throttle};

use crate::conn::HttpConn;
use crate::counters::{Counters, Totals};
use crate::handler::Handler;
use crate::later::Message;
use crate::local::{HttpLocal, Shared};
use crate::settings::Settings;
use crate::wire::Wire;

/// Least time between two log lines about refused requests.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Serves HTTP/1.1 (and 1.0): a [`Service`] for a [`Builder`](tidewire::Builder), on any engine, bare
/// or inside a layer such as TLS. A clone is another handle on the same service.
///
/// ```
/// use std::time::Duration;
/// use tidewire_http::{Http, Router};
///
/// let router = Router::new().get("/", |_, response| response.text("Hello, World!"));
/// let app = Http::new(router);
/// let mut builder = tidewire::Builder::new();
/// let id = builder.service_with(app.clone(), app.limits());
/// builder.listen(id, tidewire::Listen::at("127.0.0.1:0"));
/// let running = builder.start()?;
/// running.stop(Duration::from_secs(1));
/// # Ok::<(), tidewire::StartError>(())
/// ```
pub struct Http<H> {
    shared: Arc<Shared<H>>,
}

/// The reply for connections that are turned away. (A Date may be left out of a 503: RFC 9110,
/// section 6.6.1.)
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 43\r\n\
    Retry-After: 5\r\nConnection: close\r\n\r\nno room for more connections at the moment\n";

impl<H: Handler> Http<H> {
    /// Answers requests by `handler`, with default settings.
    #[must_use]
    pub fn new(handler: H) -> Http<H>
    where
        H: Handler,
    {
        Http::with(Settings::default(), handler)
    }

    /// Answers requests by `handler`. Settings that cannot be meant are moved into their range.
    #[must_use]
    pub fn with(settings: Settings, handler: H) -> Http<H> {
        Http {
            shared: Arc::new(Shared {
                handler,
                settings: settings.checked(),
                refusals: Throttle::new(BETWEEN_LINES),
                gathered: AtomicUsize::new(0),
                totals: Totals::default(),
            }),
        }
    }

    /// The limits to give the builder: [`Settings::limits`].
    #[must_use]
    pub fn limits(&self) -> tidewire::Limits {
        self.shared.settings.limits()
    }

    /// The counters at this moment.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.totals.sum()
    }

    /// Bytes of bodies that are being gathered now, on all loops: what is compared with
    /// [`Settings::gathered`].
    ///
    /// ```
    /// # use std::io::Write;
    /// # use std::time::{Duration, Instant};
    /// use tidewire_http::{Http, Router};
    ///
    /// let app = Http::new(Router::new().post("/", |_, response| response.empty()));
    /// let running = tidewire::Builder::new().serve("127.0.0.1:0", app.clone()).start()?;
    /// let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
    /// client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf ")?;
    /// # let began = Instant::now();
    /// while app.gathering() != 5 {
    ///     # assert!(began.elapsed() < Duration::from_secs(20));
    ///     std::thread::yield_now();
    /// }
    /// running.stop(Duration::ZERO);
    /// assert_eq!(app.gathering(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn gathering(&self) -> usize {
        self.shared.gathered.load(Relaxed)
    }

    /// The handler.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.shared.handler
    }
}

impl<H: Handler> Service for Http<H> {
    type Conn = HttpConn<H>;

    fn on_loop(&self, _: LoopHandle<Message>) -> HttpLocal<H> {
        let counts = self.shared.totals.start();
        HttpLocal {
            shared: self.shared.clone(),
            wire: Wire::new(counts.clone()),
            counts,
        }
    }

    fn accept(&self, _: &Peer, _: &mut HttpLocal<H>) -> Result<HttpConn<H>, Refusal> {
        Ok(HttpConn::new())
    }

    fn refusal_reply(&self, why: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
        why.is_temporary().then_some(Cow::Borrowed(FULL))
    }

    fn loop_ended(&self, local: HttpLocal<H>) {
        self.shared.totals.end(&local.counts);
    }
}

impl<H> Clone for Http<H> {
    fn clone(&self) -> Http<H> {
        Http {
            shared: self.shared.clone(),
        }
    }
}

impl<H> fmt::Debug for Http<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http({:?})", self.shared.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::FULL;

    #[test]
    fn the_words_of_a_refusal_are_as_long_as_they_say() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}
