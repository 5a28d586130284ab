//! Asynchronous acknowledgements on mio: one thread, one poll, and a list of connections in the order in which
//! their acknowledgements are due.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use echo_peers::{CHUNKS, DELAY, Messages, Unacknowledged};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

struct Conn {
    stream: TcpStream,
    messages: Messages,
    owed: Unacknowledged,
    /// When what is owed is to be acknowledged, and whether the connection stands in the list.
    due: Instant,
    listed: bool,
    /// Not yet taken by the kernel.
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
    let mut conns: HashMap<Token, Conn> = HashMap::new();
    let mut list: VecDeque<(Instant, Token)> = VecDeque::new();
    let mut next = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let wait = list
            .front()
            .map(|(due, _)| due.saturating_duration_since(Instant::now()));
        match poll.poll(&mut events, wait) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        let now = Instant::now();
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let both = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(next), both)?;
                    let conn = Conn {
                        stream,
                        messages: Messages::default(),
                        owed: Unacknowledged::default(),
                        due: now,
                        listed: false,
                        unsent: Vec::new(),
                    };
                    conns.insert(Token(next), conn);
                    next += 1;
                }
            } else if let Some(conn) = conns.get_mut(&event.token()) {
                if !conn.ready(&mut buffer, now) {
                    conns.remove(&event.token());
                } else if conn.owed.chunks > 0 && !conn.listed {
                    conn.listed = true;
                    list.push_back((conn.due, event.token()));
                }
            }
        }
        while let Some(&(due, token)) = list.front()
            && due <= now
        {
            list.pop_front();
            let Some(conn) = conns.get_mut(&token) else {
                continue;
            };
            conn.listed = conn.owed.chunks > 0 && conn.due > now;
            if conn.listed {
                // Chunks have come since it was listed.
                list.push_back((conn.due, token));
            } else if conn.owed.chunks > 0 && !conn.acknowledge() {
                conns.remove(&token);
            }
        }
    }
}

impl Conn {
    /// Whether it goes on.
    fn ready(&mut self, buffer: &mut [u8], now: Instant) -> bool {
        if !self.flush() {
            return false;
        }
        loop {
            let n = match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            };
            self.messages.take(&buffer[..n], &mut self.owed);
            self.due = now + DELAY;
            if self.owed.chunks >= CHUNKS && !self.acknowledge() {
                return false;
            }
        }
    }

    fn acknowledge(&mut self) -> bool {
        self.unsent.extend_from_slice(&self.owed.acknowledge());
        self.flush()
    }

    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}
