//! TLS for the client that asks admin listeners, with the TLS client of all commands: so the flags mean the same
//! everywhere, and a certificate error has the same words.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidewire_tls::{TlsClient, TlsStream};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects over TLS.
#[derive(Debug)]
pub(super) struct Secured(pub(super) TlsClient);

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    stream: TlsStream,
    buffers: LazyBuffers,
}

impl Connector<()> for Secured {
    type Out = Stream;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Stream>, Error> {
        let host = details.uri.host().ok_or(Error::HostNotFound)?;
        // The brackets around an IPv6 address belong to the URL.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let within = left(details.timeout)?;
        let mut last = Error::HostNotFound;
        for at in details.addrs.iter() {
            let connected = TcpStream::connect_timeout(at, within)
                .and_then(|socket| self.0.connect(socket, host, within));
            match connected {
                Ok(stream) => {
                    let config = details.config;
                    let sizes = (config.input_buffer_size(), config.output_buffer_size());
                    let buffers = LazyBuffers::new(sizes.0, sizes.1);
                    return Ok(Some(Stream { stream, buffers }));
                }
                Err(e) => last = Error::Io(e),
            }
        }
        Err(last)
    }
}

impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let within = left(timeout)?;
        self.stream.socket().set_write_timeout(Some(within))?;
        let written = self.stream.write_all(&self.buffers.output()[..amount]);
        written
            .and_then(|()| self.stream.flush())
            .map_err(|e| late(e, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let within = left(timeout)?;
        self.stream.socket().set_read_timeout(Some(within))?;
        let read = self.stream.read(self.buffers.input_append_buf());
        let read = read.map_err(|e| late(e, timeout))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    /// Whether the next question may go this way is not looked at: one connection for each is cheap enough here.
    fn is_open(&mut self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// The remaining time.
fn left(timeout: NextTimeout) -> Result<Duration, Error> {
    match *timeout.after {
        Duration::ZERO => Err(Error::Timeout(timeout.reason)),
        left => Ok(left),
    }
}

fn late(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}
