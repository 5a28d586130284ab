//! One connection's layer: records outside, plaintext inside.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::Connection;
use tidewire::{Around, Input, Layer, Link, Next, Service, Throttle};

use crate::boundary::Boundary;
use crate::words;

/// How long a handshake may take unless something else is set.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Least time between two log lines about handshakes that failed.
pub(crate) const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// Why a connection is closed whose peer ended the stream without TLS's farewell, as in
/// [`Closed::ByProtocol`](tidewire::Closed::ByProtocol).
pub const CUT: &str = "the stream ended without TLS's farewell";
/// Plaintext that is encrypted ahead of what the connection takes; bytes.
const AHEAD: usize = 64 << 10;

/// TLS on one connection.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let (chain, key) = (chain.as_bytes(), key.as_bytes());
/// use tidewire::{Origin, Peer, Wrap};
/// use tidewire_tls::{Certificate, Records, Server};
///
/// let tls = Server::new(Certificate::from_pem(chain, key)?).build()?;
/// let peer = Peer::new(([127, 0, 0, 1], 4000), Origin::Accepted(0));
/// let layer: Option<Records> = tls.wrap(&peer).expect("accepted connections are a server's");
/// assert!(layer.is_some());
/// # Ok::<(), tidewire_tls::TlsError>(())
/// ```
pub struct Records {
    /// Boxed, because it is large and a connection's slot is not.
    tls: Box<Connection>,
    deadline: Duration,
    /// Where the record ends that is being read.
    boundary: Boundary,
    /// Bytes that the protocol inside has answered and that must be encrypted before the next record is read; `None` while
    /// nothing has asked for this record.
    owed: Option<usize>,
    /// Plaintext that waits in rustls, bytes; more if it is not known.
    waiting: usize,
    /// The peer's farewell is behind that.
    ends: bool,
    /// Throttle of log lines about refused peers; servers only.
    failures: Option<Arc<Throttle>>,
    /// The peer has closed its side, or has cut the stream, and the inner protocol was told.
    told_end: bool,
    /// The stream is over without the peer's farewell.
    is_cut: bool,
    /// Whether this side has sent its close_notify.
    said_farewell: bool,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({:?})", self.tls.protocol_version())
    }
}

/// Lets rustls write to a link.
struct Outwards<'a, 'b>(&'a mut Link<'b>);

impl Write for Outwards<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        pieces.iter().for_each(|piece| self.0.write(piece));
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Records {
    pub(crate) fn new(mut tls: Connection, deadline: Duration) -> Records {
        tls.set_buffer_limit(Some(AHEAD));
        Records {
            tls: Box::new(tls),
            deadline,
            boundary: Boundary::default(),
            owed: None,
            waiting: 0,
            ends: false,
            failures: None,
            told_end: false,
            is_cut: false,
            said_farewell: false,
        }
    }

    /// Logs peers that are not let in.
    pub(crate) fn logging(mut self, failures: Arc<Throttle>) -> Records {
        self.failures = Some(failures);
        self
    }

    /// Logs why a peer is refused: the operator has no other source for the reason. A peer can have
    /// this said as often as it can connect.
    fn log_failure<S: Service>(&self, why: &str, at: &mut Around<'_, '_, S, Self>) {
        let Some(failures) = self.failures.as_ref().filter(|_| !at.is_accepted()) else {
            return;
        };
        let now = at.link().now();
        if let Some(held_back) = failures.pass(now) {
            let peer = &at.peer().endpoint;
            tracing::warn!(%peer, reason = why, held_back, "a TLS handshake failed");
        }
    }

    /// Whether answers to earlier records must leave before the next record is read: where that one is broken, rustls
    /// queues an alert and encrypts nothing behind it. Not where output was queued already as the last record was read: a
    /// protocol that writes without an end would read one record for each queue that it sends.
    fn owes_answers<S: Service>(&mut self, at: &Around<'_, '_, S, Self>) -> bool {
        self.boundary.is_between() && *self.owed.get_or_insert_with(|| at.output_len()) > 0
    }

    /// Reads a record, or a part of one; how many bytes that took. Never two: what the protocol inside answers to the
    /// first is encrypted before rustls sees the second.
    fn records_in(&mut self, input: &mut Input<'_>) -> Result<usize, rustls::Error> {
        let record = &input.bytes()[..self.boundary.next(input.bytes())];
        if record.is_empty() {
            // rustls would take zero bytes for the end of the stream, and report an error at every call.
            return Ok(0);
        }
        let mut rest = record;
        // Refuses while enough plaintext waits inside.
        let _ = self.tls.read_tls(&mut rest);
        let took = record.len() - rest.len();
        self.boundary.pass(&record[..took]);
        input.consume(took);
        self.waiting = usize::MAX;
        let state = self.tls.process_new_packets()?;
        self.waiting = state.plaintext_bytes_to_read();
        self.ends = state.peer_has_closed();
        Ok(took)
    }

    /// The inner service is asked once the peer's identity is known.
    fn accept<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        if at.is_accepted() || self.tls.is_handshaking() || at.link().is_closing() {
            return;
        }
        let peer = at.peer().clone();
        let mut identity = peer.identity().clone();
        if let Connection::Server(tls) = &*self.tls {
            identity.server_name = tls.server_name().map(Into::into);
        }
        identity.alpn = self.tls.alpn_protocol().map(Into::into);
        let shown = self.tls.peer_certificates().unwrap_or_default();
        identity.certificates = shown.iter().map(|c| c.as_ref().into()).collect();
        // A refusal closes by itself.
        let _ = at.accept(peer.with_identity(identity));
    }

    fn plaintext_in<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) -> bool {
        let mut some = false;
        while at.wants_input() && (self.waiting > 0 || self.ends && !self.told_end) {
            let mut reader = self.tls.reader();
            match reader.fill_buf() {
                Ok([]) => {
                    self.waiting = 0;
                    if self.told_end {
                        break;
                    }
                    self.told_end = true;
                    at.peer_finished();
                    return true;
                }
                Ok(plain) => {
                    let took = plain.len();
                    at.received(plain);
                    reader.consume(took);
                    self.waiting = self.waiting.saturating_sub(took);
                    some = true;
                }
                // No record is there now.
                Err(_) => self.waiting = 0,
            }
        }
        if self.is_cut && self.waiting == 0 && !self.told_end {
            self.told_end = true;
            // An attacker may have cut the stream short: the end is not the peer's
            // word.
            at.cut_short(CUT);
            return true;
        }
        some
    }

    fn plaintext_out<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) -> bool {
        let tls = &mut self.tls;
        // Less than all when rustls has enough: its records go out first.
        let took = at.take_output(|_, plain| tls.writer().write(plain).unwrap_or(0));
        if let Some(owed) = &mut self.owed {
            *owed = owed.saturating_sub(took);
        }
        took > 0
    }

    fn records_out<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut Outwards(at.link())).is_err() {
                break;
            }
        }
    }

    fn fail<S: Service>(&mut self, error: &rustls::Error, at: &mut Around<'_, '_, S, Self>) {
        let why = words::why(error);
        tracing::debug!(peer = %at.peer().endpoint, %error, "{why}");
        self.log_failure(why, at);
        self.records_out(at); // the alert
        at.link().finish_because(why);
    }
}

impl Layer for Records {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.link().set_timer_after(self.deadline);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        while !at.link().is_closing() && (!at.is_accepted() || at.wants_input()) {
            if self.waiting > 0 && at.is_accepted() {
                self.pump(at);
                continue;
            }
            if !input.is_empty() && self.owes_answers(at) {
                return Next::AfterDrain;
            }
            self.owed = (at.output_len() > 0).then_some(0);
            match self.records_in(input) {
                Ok(0) => break,
                Ok(_) => self.pump(at),
                Err(e) => {
                    // Records that came whole before the end count.
                    self.pump(at);
                    self.fail(&e, at);
                    break;
                }
            }
        }
        Next::More
    }

    /// Moves as many bytes as possible: plaintext in, plaintext out, records out.
    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        self.accept(at);
        loop {
            let moved = self.plaintext_in(at) | self.plaintext_out(at);
            self.records_out(at);
            if !moved {
                break;
            }
        }
        if at.is_done() && !self.said_farewell {
            self.said_farewell = true;
            self.tls.send_close_notify();
            self.records_out(at);
        }
    }

    fn peer_finished<S: Service>(&mut self, _: usize, at: &mut Around<'_, '_, S, Self>) {
        self.is_cut = !self.ends;
        self.pump(at);
        if !at.is_accepted() {
            at.link()
                .abort_because("the peer ended within the TLS handshake");
        }
    }

    fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let why = "the TLS handshake took too long";
        self.log_failure(why, at);
        at.link().abort_because(why);
    }
}
