//! How a server is given many of a thing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a reply may take of a server that is fifty times as slow.
const PATIENCE: Duration = Duration::from_secs(120);
/// Commands that are sent before replies are read: what they answer fits into the kernel's buffers.
const AT_ONCE: u64 = 200;

/// A connection to a Redis-compatible server.
pub(super) struct Redis {
    socket: TcpStream,
    asked: u64,
}

impl Redis {
    pub(super) fn connect(addr: SocketAddr) -> io::Result<Redis> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Redis { socket, asked: 0 })
    }

    /// Sends a command, each word of which has no blanks.
    pub(super) fn send(&mut self, command: &str) -> io::Result<()> {
        self.socket.write_all(&encoded(command))
    }

    /// Sends so many commands, and waits until all of them are answered.
    pub(super) fn all(&mut self, n: u64, command: impl Fn(u64) -> String) -> io::Result<()> {
        let mut from = 0;
        while from < n {
            let to = n.min(from + AT_ONCE);
            let mut bytes = Vec::new();
            for number in from..to {
                bytes.extend(encoded(&command(number)));
            }
            self.socket.write_all(&bytes)?;
            self.settle()?;
            from = to;
        }
        Ok(())
    }

    /// Sends so many commands in one go, and then waits.
    pub(super) fn at_once(&mut self, n: u64, command: impl Fn(u64) -> String) -> io::Result<()> {
        let bytes: Vec<u8> = (0..n)
            .flat_map(|number| encoded(&command(number)))
            .collect();
        self.socket.write_all(&bytes)?;
        self.settle()
    }

    /// Waits until everything is answered: a PING says what its reply holds.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.asked += 1;
        let mark = format!("answered-{}-", self.asked);
        self.send(&format!("PING {mark}"))?;
        self.until(mark.as_bytes())
    }

    /// Reads until this has come.
    pub(super) fn until(&mut self, mark: &[u8]) -> io::Result<()> {
        let (mut tail, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let n = self.socket.read(&mut bytes)?;
            if n == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
            tail.extend_from_slice(&bytes[..n]);
            if let Some(at) = find(&tail, b"-ERR ") {
                let line = String::from_utf8_lossy(&tail[at..]);
                return Err(io::Error::other(
                    line.lines().next().unwrap_or("an error").to_owned(),
                ));
            }
            if find(&tail, mark).is_some() {
                return Ok(());
            }
            let kept = tail.len().saturating_sub(mark.len().max(64));
            tail.drain(..kept);
        }
    }

    /// Asks again and again until the reply has this in it.
    pub(super) fn ask_until(&mut self, command: &str, wanted: &str) -> io::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.send(command)?;
            let mut line = String::new();
            BufReader::with_capacity(1, &self.socket).read_line(&mut line)?;
            if line.trim() == wanted {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(io::Error::other(format!(
            "{command} does not come to {wanted}"
        )))
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}

fn encoded(command: &str) -> Vec<u8> {
    let words: Vec<&str> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        // A no-break space stands for a blank within a word.
        let word = word.replace('\u{a0}', " ");
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Many connections, each of which has a message echoed, and all of which stay.
pub(super) fn echoes(addr: SocketAddr, n: u64) -> io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..n {
        let mut socket = TcpStream::connect(addr)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"x")?;
        socket.read_exact(&mut [0])?;
        all.push(socket);
    }
    Ok(())
}

/// Sends requests to a web server, and checks the end of its replies.
pub(super) fn web(addr: SocketAddr, request: &str, replies: u64) -> io::Result<()> {
    let mut socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(socket);
    for _ in 0..replies {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
            if line.starts_with("HTTP/1.1 ") && !line.starts_with("HTTP/1.1 200") {
                return Err(io::Error::other(line.trim().to_owned()));
            }
            if let Some(of) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = of.trim().parse().map_err(io::Error::other)?;
            }
            if line == "\r\n" {
                break;
            }
        }
        io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
    }
    Ok(())
}
