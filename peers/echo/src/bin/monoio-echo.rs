//! Echo on monoio: a task for each connection, on one thread, with its io_uring driver.

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpListener;

#[monoio::main(driver = "io_uring")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::from_std(echo_peers::listen())?;
    loop {
        let (mut socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        monoio::spawn(async move {
            let mut buffer = Vec::with_capacity(64 * 1024);
            loop {
                let (read, received) = socket.read(buffer).await;
                if !matches!(read, Ok(1..)) {
                    return;
                }
                let (written, sent) = socket.write_all(received).await;
                if written.is_err() {
                    return;
                }
                buffer = sent;
                buffer.clear();
            }
        });
    }
}
