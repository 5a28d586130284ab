//! Bodies that come and go in pieces.

use crate::data::Data;
use crate::headers::Headers;
use crate::reply::Reply;

/// One request whose body, or whose reply's body, is streamed. The handler makes an exchange with
/// [`Response::stream`](crate::Response::stream) or [`Response::exchange`](crate::Response::exchange).
/// The exchange is dropped when the reply has ended or the connection has closed.
///
/// Backpressure works in both directions. While [`Reply::full`] is true, the client takes nothing:
/// an exchange then writes no more, and leaves the rest of its [`Data`], so that the loop stops
/// reading from the client. The exchange is called again when there is room.
///
/// ```
/// use tidewire_http::{Body, Data, Done, Exchange, Handler, Headers, Http, Length, Reply, Request, Response};
/// use tidewire_http::testing;
///
/// /// Answers with the length of the request's body, which is nowhere kept.
/// struct Measured(u64);
///
/// impl Exchange for Measured {
///     fn data(&mut self, data: &mut Data<'_, '_>, _: &mut Reply<'_>) {
///         self.0 += data.len() as u64;
///         data.consume(data.len());
///     }
///
///     fn end(&mut self, _: Headers<'_>, reply: &mut Reply<'_>) {
///         let text = format!("{} bytes", self.0);
///         reply.head(200, &[("content-type", "text/plain")], Length::Known(text.len() as u64));
///         reply.write(text.as_bytes());
///         reply.end();
///     }
/// }
///
/// struct Measures;
///
/// impl Handler for Measures {
///     fn body(&self, _: &Request<'_>) -> Body {
///         Body::Stream
///     }
///
///     fn handle(&self, _: &Request<'_>, response: Response<'_>) -> Done {
///         response.exchange(Measured(0))
///     }
/// }
///
/// let asked = b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
/// assert_eq!(testing::exchange(Http::new(Measures), asked).text(), "5 bytes");
/// ```
pub trait Exchange: 'static {
    /// A piece of the request's body. Bytes that are left unconsumed are offered again when output
    /// has drained. So an exchange may leave bytes only while [`Reply::full`] is true; otherwise the
    /// connection is aborted. Default: drops it.
    fn data(&mut self, data: &mut Data<'_, '_>, reply: &mut Reply<'_>) {
        let _ = reply;
        data.consume(data.len());
    }

    /// The request's body has ended, at once if there is none. Default: does nothing.
    fn end(&mut self, trailers: Headers<'_>, reply: &mut Reply<'_>) {
        let _ = (trailers, reply);
    }

    /// There is room for output: called once when the exchange begins, and each time that output had
    /// been full and has drained. Default: does nothing.
    fn room(&mut self, reply: &mut Reply<'_>) {
        let _ = reply;
    }
}
