//! A client of the key-value server that speaks in plain words.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::common::{PATIENCE, Running, addr};

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Line(String),
    Int(i64),
    Bulk(Option<String>),
    Array(Vec<Reply>),
}

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> io::Result<Client> {
        let socket = TcpStream::connect(addr)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(Client(BufReader::new(socket)))
    }

    pub(crate) fn send(&mut self, lines: &[String]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            write!(bytes, "*{}\r\n", words.len())?;
            for word in words {
                write!(bytes, "${}\r\n{word}\r\n", word.len())?;
            }
        }
        self.0.get_mut().write_all(&bytes)
    }

    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = line[1..].trim_end().to_owned();
        let number = || text.parse::<i64>().map_err(io::Error::other);
        Ok(match line.as_bytes()[0] {
            b':' => Reply::Int(number()?),
            b'$' => match usize::try_from(number()?) {
                Err(_) => Reply::Bulk(None),
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(len);
                    Reply::Bulk(Some(String::from_utf8(bytes).map_err(io::Error::other)?))
                }
            },
            b'*' => {
                let elements = (0..number()?.max(0)).map(|_| self.reply());
                Reply::Array(elements.collect::<io::Result<_>>()?)
            }
            _ => Reply::Line(text),
        })
    }

    pub(crate) fn ask(&mut self, line: &str) -> io::Result<Reply> {
        self.send(&[line.to_owned()])?;
        self.reply()
    }

    pub(crate) fn list(&mut self, key: &str) -> io::Result<Vec<String>> {
        match self.ask(&format!("LRANGE {key} 0 -1"))? {
            Reply::Array(elements) => Ok(elements.into_iter().map(text).collect()),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(Some(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// A server with both ports, which makes snapshots nearly all the time; and where its ports are: of the Redis
/// protocol, and the binary one.
pub(crate) fn serve(
    engine: &str,
    durability: &str,
    data: &Path,
) -> (Running, SocketAddr, SocketAddr) {
    let data = data.to_string_lossy();
    let mut args = vec![
        "serve",
        "kv",
        "--listen",
        "kv/resp=0",
        "--listen",
        "kv/binary=0",
        "--engine",
        engine,
        "--workers",
        "2",
        "--durability",
        durability,
        "--data",
        &data,
    ];
    if durability != "none" {
        args.extend(["--kv-snapshot-growth", "4KiB"]);
    }
    let mut server = Running::start(&args);
    let (one, other) = (server.line(), server.line());
    assert!(one.contains(&format!(" durability={durability}")), "{one}");
    let (resp, binary) = if one.contains("mode=resp") {
        (one, other)
    } else {
        (other, one)
    };
    let ports = (addr(&resp), addr(&binary));
    (server, ports.0, ports.1)
}
