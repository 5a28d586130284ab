//! A SOCKS5 proxy (RFC 1928) for clients that need no password, as an `async fn`: hosts by their names, half-closes and resets passed on.
//!
//! ```text
//! cargo run --example socks5_async
//! curl --socks5-hostname 127.0.0.1:PORT http://example.org/
//! ```

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use futures_util::{AsyncReadExt, AsyncWriteExt};
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use tidewire::{Builder, Dial, Target};
use tidewire_async::{Stream, relay, serve};

/// Reads a client's greeting and its request: where to connect, or the code to refuse it with.
async fn hear(client: &mut Stream) -> io::Result<Result<Target, u8>> {
    let mut head = [0; 4];
    client.read_exact(&mut head[..2]).await?;
    if head[0] != 5 {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut methods = vec![0; head[1].into()];
    client.read_exact(&mut methods).await?;
    let answer = if methods.contains(&0) { 0 } else { 0xff };
    client.write_all(&[5, answer]).await?;
    client.read_exact(&mut head).await?;
    let mut len = [if head[3] == 1 { 4 } else { 16 }];
    match head {
        [5, 1, _, 1 | 4] => {}
        [5, 1, _, 3] => client.read_exact(&mut len).await?,
        [5, 1, ..] => return Ok(Err(8)), // a kind of address that is not known
        _ => return Ok(Err(7)),          // a command that is not known
    }
    let (mut host, mut port) = (vec![0; len[0].into()], [0; 2]);
    client.read_exact(&mut host).await?;
    client.read_exact(&mut port).await?;
    let host = match head[3] {
        1 => Ipv4Addr::from([host[0], host[1], host[2], host[3]]).to_string(),
        4 => host
            .first_chunk::<16>()
            .map_or(String::new(), |ip| Ipv6Addr::from(*ip).to_string()),
        _ => String::from_utf8_lossy(&host).into_owned(),
    };
    Ok(Target::host(&host, u16::from_be_bytes(port)).map_err(|_| 4))
}

async fn proxy(mut client: Stream) -> io::Result<()> {
    let server = match hear(&mut client).await? {
        Ok(target) => client.dial(Dial::to(target)).await.map_err(|e| e.kind()),
        Err(code) => return client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await,
    };
    let code = match server {
        Ok(_) => 0,
        Err(ErrorKind::ConnectionRefused) => 5,
        Err(_) => 4,
    };
    client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    relay(&client, &server?).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let mut builder = Builder::new();
    let socks = serve(|client| async { drop(proxy(client).await) });
    let running = builder
        .engine(engine.parse()?)
        .serve("127.0.0.1:0", socks)
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
