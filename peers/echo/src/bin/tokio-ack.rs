//! Asynchronous acknowledgements on tokio: a task that reads and a task that answers for each connection, a
//! channel between them.

use echo_peers::{CHUNKS, DELAY, Messages, Unacknowledged};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = echo_peers::listen();
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let (mut input, output) = socket.into_split();
        let (tell, told) = mpsc::channel(64);
        tokio::spawn(answer(output, told));
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            let mut messages = Messages::default();
            while let Ok(n @ 1..) = input.read(&mut buffer).await {
                let mut taken = Unacknowledged::default();
                messages.take(&buffer[..n], &mut taken);
                if taken.chunks > 0 && tell.send(taken).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn answer(mut output: OwnedWriteHalf, mut told: mpsc::Receiver<Unacknowledged>) {
    while let Some(mut owed) = told.recv().await {
        while owed.chunks < CHUNKS {
            match timeout(DELAY, told.recv()).await {
                Ok(Some(more)) => owed.add(more),
                Ok(None) | Err(_) => break,
            }
        }
        if output.write_all(&owed.acknowledge()).await.is_err() {
            return;
        }
    }
}
