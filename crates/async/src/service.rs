//! A service whose connections are futures.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use tidewire::{Conns, LoopHandle, Origin, Peer, Refusal, Service, Turn};

use crate::shared::Shared;
use crate::stream::Stream;
use crate::task::{self, Task, Woken};

/// A service that runs `f` for each connection, accepted or dialled.
///
/// ```
/// use futures_util::{AsyncReadExt, AsyncWriteExt};
/// use tidewire::{Builder, Listen};
/// use tidewire_async::Stream;
///
/// async fn shout(mut stream: Stream) {
///     let mut buffer = [0; 1024];
///     while let Ok(n @ 1..) = stream.read(&mut buffer).await {
///         buffer[..n].make_ascii_uppercase();
///         let _ = stream.write_all(&buffer[..n]).await;
///     }
/// }
///
/// let mut builder = Builder::new();
/// let service = builder.service(tidewire_async::serve(shout));
/// builder.listen(service, Listen::at("127.0.0.1:0"));
/// let running = builder.start()?;
/// # use std::io::{Read, Write};
/// # let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
/// # client.write_all(b"hello")?;
/// # let mut back = [0; 5];
/// # client.read_exact(&mut back)?;
/// # assert_eq!(&back, b"HELLO");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve<F, R>(f: F) -> Serve<F>
where
    F: Fn(Stream) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + 'static,
{
    Serve(f)
}

/// A service of futures: [`serve`].
///
/// ```
/// use std::future::Future;
/// use futures_util::AsyncWriteExt;
/// use tidewire_async::{Serve, Stream, serve};
///
/// /// A service of a function that is given along with what it needs.
/// fn greeting(word: &'static str) -> Serve<impl Fn(Stream) -> std::pin::Pin<Box<dyn Future<Output = ()>>> + Send + Sync + 'static> {
///     serve(move |mut stream: Stream| {
///         let answer: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
///             let _ = stream.write_all(word.as_bytes()).await;
///         });
///         answer
///     })
/// }
/// # let mut sim = tidewire::sim::Sim::new(1);
/// # let addr = sim.serve(greeting("hello"), Default::default());
/// # let peer = sim.plain(addr);
/// # sim.run_for(std::time::Duration::from_secs(5));
/// # assert_eq!(sim.received(peer), b"hello");
/// ```
pub struct Serve<F>(F);

impl<F> fmt::Debug for Serve<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Serve")
    }
}

impl<F, R> Service for Serve<F>
where
    F: Fn(Stream) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + 'static,
{
    type Conn = Task;

    fn on_loop(&self, at: LoopHandle<()>) -> Arc<Woken> {
        Woken::new(at)
    }

    fn accept(&self, from: &Peer, local: &mut Arc<Woken>) -> Result<Task, Refusal> {
        let shared = Shared::new(from.clone());
        if let Origin::Dialled(token) = from.origin
            && let Some(asked) = local.asked(token)
        {
            return Ok(Task::lent(shared, asked));
        }
        let stream = Stream {
            shared: shared.clone(),
            _lease: None,
        };
        Ok(Task::new(shared, Box::pin((self.0)(stream))))
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, Task>) {
        if let Some(asked) = turn.local.asked(token) {
            let error = io::Error::new(error.kind(), error.to_string());
            asked.settle(Err(error));
        }
    }

    fn woken(&self, local: &mut Arc<Woken>, all: &mut Conns<'_, Task>) {
        for id in local.take() {
            // If the connection is gone, its future is gone too.
            all.with(id, local, task::poll_woken);
        }
    }
}
