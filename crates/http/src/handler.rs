//! The trait of types that answer requests.

use crate::request::Request;
use crate::response::{Done, Response};

/// Answers requests: one for all connections on all loops, so shared state lives in it. A closure
/// `Fn(&Request, Response) -> Done` is one, and so is a [`Router`](crate::Router).
///
/// The handler is called on a loop, and while it runs, the loop's other connections wait: answer a
/// slow request [later](Response::later), from another thread. A handler that panics loses its
/// connection only.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use tidewire_http::{Done, Handler, Http, Request, Response, testing};
///
/// /// Counts its visitors.
/// #[derive(Default)]
/// struct Counter(AtomicU64);
///
/// impl Handler for Counter {
///     fn handle(&self, _: &Request<'_>, response: Response<'_>) -> Done {
///         response.text(&(self.0.fetch_add(1, Relaxed) + 1).to_string())
///     }
/// }
///
/// let got = testing::exchange(Http::new(Counter::default()), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
/// assert_eq!(got.text(), "1");
/// ```
pub trait Handler: Send + Sync + 'static {
    /// How this request's body is to be taken; asked once its head is there, if it has a body. A
    /// client that waits for `100 Continue` is told to go on unless this says [`Body::Ignore`].
    /// Default: [`Body::Gather`].
    fn body(&self, request: &Request<'_>) -> Body {
        let _ = request;
        Body::Gather
    }

    /// Answers a request: when its body is complete, if bodies are gathered, else when its head is
    /// there.
    fn handle(&self, request: &Request<'_>, response: Response<'_>) -> Done;
}

/// How a request's body is taken.
///
/// ```
/// use tidewire_http::{Body, Done, Handler, Request, Response};
///
/// struct Guarded;
///
/// impl Handler for Guarded {
///     fn body(&self, request: &Request<'_>) -> Body {
///         match request.header("authorization") {
///             Some(_) => Body::Gather,
///             None => Body::Ignore, // so no client sends much in vain
///         }
///     }
///
///     fn handle(&self, request: &Request<'_>, response: Response<'_>) -> Done {
///         match request.header("authorization") {
///             Some(_) => response.text("welcome"),
///             None => response.error(401, "who are you?"),
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The handler is called when all of it is there, up to [`Settings::body`](crate::Settings::body).
    Gather,
    /// The handler is called at once, and its [`Exchange`](crate::Exchange) gets the pieces.
    Stream,
    /// The handler is called at once, and the body is discarded: up to 64 KiB are read and
    /// dropped; behind a longer one the connection is closed after the reply.
    Ignore,
}

impl<F> Handler for F
where
    F: Fn(&Request<'_>, Response<'_>) -> Done + Send + Sync + 'static,
{
    fn handle(&self, request: &Request<'_>, response: Response<'_>) -> Done {
        self(request, response)
    }
}
