//! Echo on mio: one thread, one poll, one buffer for all, sent from where it was received.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

struct Conn {
    stream: TcpStream,
    /// Received and not yet taken by the kernel.
    unsent: Vec<u8>,
}

fn main() -> std::io::Result<()> {
    let listener = echo_peers::listen();
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut conns = HashMap::new();
    let mut next = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match poll.poll(&mut events, None) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let both = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(next), both)?;
                    let unsent = Vec::new();
                    conns.insert(Token(next), Conn { stream, unsent });
                    next += 1;
                }
            } else if let Some(conn) = conns.get_mut(&event.token())
                && !conn.ready(&mut buffer)
            {
                conns.remove(&event.token());
            }
        }
    }
}

impl Conn {
    /// Whether it goes on.
    fn ready(&mut self, buffer: &mut [u8]) -> bool {
        loop {
            if !self.unsent.is_empty() {
                match self.stream.write(&self.unsent) {
                    Ok(n) => drop(self.unsent.drain(..n)),
                    Err(e) => return e.kind() == ErrorKind::WouldBlock,
                }
                continue;
            }
            let n = match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            };
            match self.stream.write(&buffer[..n]) {
                Ok(sent) => self.unsent.extend_from_slice(&buffer[sent..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(&buffer[..n]);
                }
                Err(_) => return false,
            }
        }
    }
}
