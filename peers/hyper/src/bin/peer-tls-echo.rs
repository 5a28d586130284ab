//! Echo over TLS on tokio's single-threaded runtime. Arguments: the address, a certificate, its key.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

async fn echo(tls: TlsAcceptor, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut bytes = vec![0; 16 << 10];
    loop {
        let n = stream.read(&mut bytes).await?;
        if n == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&bytes[..n]).await?;
        stream.flush().await?;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [addr, certificate, key] = &args[..] else {
        return Err(std::io::Error::other(
            "usage: peer-tls-echo ADDR CERTIFICATE KEY",
        ));
    };
    let tls = peer_hyper::acceptor(certificate, key)?;
    let listener = TcpListener::bind(addr).await?;
    println!("listening service=echo addr={}", listener.local_addr()?);
    let connections = LocalSet::new();
    let accepting = connections.run_until(async {
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(echo(tls.clone(), stream));
        }
    });
    accepting.await
}
