//! A SOCKS5 proxy (RFC 1928) for clients that need no password: it connects to addresses and to hosts by their names.
//!
//! ```text
//! cargo run --example socks5
//! curl --socks5-hostname 127.0.0.1:PORT http://example.org/
//! ```

use std::io::ErrorKind;
use std::time::Duration;

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use tidewire::relay::{Front, relay};
use tidewire::{Builder, Dial, Input, Link, Target};

/// What a client says before its connection is passed on: which methods it knows, then where to connect.
#[derive(Default)]
struct Socks {
    is_greeted: bool,
}

/// The end of a reply: no address is told.
const NOWHERE: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// What a request asks for, and its length; `None` if there is more to come, or the code of a refusal.
fn request(bytes: &[u8]) -> Result<Option<(Target, usize)>, u8> {
    let [version, command, _, kind, first, ..] = *bytes else {
        return Ok(None);
    };
    let len = match (version, command, kind) {
        (5, 1, 1) => 4,
        (5, 1, 3) => 1 + usize::from(first),
        (5, 1, 4) => 16,
        (5, 1, _) => return Err(8), // a kind of address that is not known
        _ => return Err(7),         // a command that is not known
    };
    let Some([host @ .., high, low]) = bytes.get(4..6 + len) else {
        return Ok(None);
    };
    let port = u16::from_be_bytes([*high, *low]);
    let target = match *host {
        [a, b, c, d] if kind == 1 => Target::from(([a, b, c, d], port)),
        [_, ref name @ ..] if kind == 3 => {
            let name = str::from_utf8(name).map_err(|_| 4)?;
            Target::host(name, port).map_err(|_| 4)?
        }
        _ => Target::from((<[u8; 16]>::try_from(host).map_err(|_| 1)?, port)),
    };
    Ok(Some((target, 6 + len)))
}

impl Front for Socks {
    fn received(&mut self, input: &mut Input<'_>, link: &mut Link<'_>) -> Option<Dial> {
        if !self.is_greeted {
            let &[5, n, ..] = input.bytes() else {
                if !b"\x05".starts_with(input.bytes()) {
                    link.abort_because("not SOCKS5");
                }
                return None;
            };
            let methods = input.bytes().get(2..2 + usize::from(n))?;
            let answer = if methods.contains(&0) { 0 } else { 0xff };
            input.consume(2 + usize::from(n));
            link.write(&[5, answer]);
            self.is_greeted = true;
        }
        match request(input.bytes()) {
            Ok(found) => {
                let (target, len) = found?;
                input.consume(len);
                Some(Dial::to(target))
            }
            Err(code) => {
                link.write(&[&[5, code], &NOWHERE[..]].concat());
                link.finish();
                None
            }
        }
    }

    fn joined(&mut self, link: &mut Link<'_>) {
        link.write(&[&[5, 0], &NOWHERE[..]].concat());
    }

    fn failed(&mut self, error: ErrorKind, link: &mut Link<'_>) {
        let code = if error == ErrorKind::ConnectionRefused {
            5
        } else {
            4
        };
        link.write(&[&[5, code], &NOWHERE[..]].concat());
        link.finish();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let running = builder
        .serve("127.0.0.1:0", relay(|_| Socks::default()))
        .start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    Signals::new(TERM_SIGNALS)?.forever().next();
    println!("{}", running.stop(Duration::from_secs(5)));
    Ok(())
}
