//! Answers that come from elsewhere.

use std::fmt;

use bytes::Bytes;
use tidewire::Permit;

use crate::fields::push_field;
use crate::wire::FIELDS_MAX;

/// The place that is kept for an answer: can be taken to any thread, and be answered once. If it is
/// dropped instead, the answer is a 500. If the client has gone meanwhile, the answer is dropped.
///
/// ```
/// use std::time::Duration;
/// use tidewire_http::{Answer, Http, Router};
///
/// let router = Router::new().get("/sum", |_, response| {
///     response.later(|later| {
///         std::thread::spawn(move || {
///             let sum: u64 = (1..=1000).sum();
///             later.send(Answer::new(200).text(sum.to_string()));
///         });
///     })
/// });
/// let running = tidewire::Builder::new().serve("127.0.0.1:0", Http::new(router)).start()?;
/// # use std::io::{Read, Write};
/// # let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
/// # client.write_all(b"GET /sum HTTP/1.0\r\n\r\n")?;
/// # let mut reply = String::new();
/// # client.read_to_string(&mut reply)?;
/// # assert!(reply.ends_with("\r\n\r\n500500"), "{reply}");
/// running.stop(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Later {
    pub(crate) permit: Option<Permit<Message>>,
    pub(crate) number: u32,
}

/// A message that is posted to a connection.
pub struct Message {
    pub(crate) number: u32,
    /// `None` if there is none.
    pub(crate) answer: Option<Answer>,
}

/// A whole reply, to be sent by [`Later::send`].
///
/// ```
/// use tidewire_http::{Answer, Later};
///
/// fn refuse(later: Later) {
///     later.send(Answer::new(503).header("retry-after", "1").text("come again"));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<u8>,
    pub(crate) body: Bytes,
    pub(crate) bad: bool,
}

impl Later {
    /// Answers.
    pub fn send(mut self, answer: Answer) {
        self.post(Some(answer));
    }

    fn post(&mut self, answer: Option<Answer>) {
        if let Some(permit) = self.permit.take() {
            permit.post(Message {
                number: self.number,
                answer,
            });
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.post(None);
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({:?})", self.answer)
    }
}

impl Answer {
    /// An answer of this status, without fields or body. Statuses and fields
    /// are as in
    /// [`Response`](crate::Response); others make it a 500.
    #[must_use]
    pub fn new(status: u16) -> Answer {
        Answer {
            status,
            fields: Vec::new(),
            body: Bytes::new(),
            bad: !(200..600).contains(&status),
        }
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Answer {
        let pushed = push_field(&mut self.fields, name, value.as_ref());
        self.bad |= !pushed || self.fields.len() > FIELDS_MAX;
        self
    }

    /// Sets the body of the answer.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Answer {
        self.body = body.into();
        self
    }

    /// Sets a text as the body, as `text/plain; charset=utf-8`.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Answer {
        let answer = self.header("content-type", "text/plain; charset=utf-8");
        answer.body(text.into())
    }
}
