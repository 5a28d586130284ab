//! Connections that a future dials, on the loop of its own.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidewire::Dial;

use crate::lease::Lease;
use crate::shared::{Asks, Ending, Shared};
use crate::stream::Stream;

/// A dial under way: [`Stream::dial`]. Dropping it gives the dial up.
///
/// ```
/// use std::pin::pin;
/// use std::time::Duration;
/// use futures_util::future::{Either, select};
/// use tidewire::Dial;
/// use tidewire_async::{Dialling, Stream, serve};
///
/// /// Waits for a server, but not for long.
/// async fn patient(client: Stream) {
///     let dialling: Dialling = client.dial(Dial::to("192.0.2.1:7").attempts(100));
///     let sleep = client.clock().sleep(Duration::from_secs(1));
///     if let Either::Left((Ok(server), _)) = select(pin!(dialling), sleep).await {
///         let _ = tidewire_async::relay(&client, &server).await;
///     }
/// }
/// # use tidewire::{Limits, sim::{Conditions, PlainState, Sim}};
/// # let mut sim = Sim::under(1, Conditions::calm());
/// # let addr = sim.serve(serve(patient), Limits::default());
/// # let peer = sim.plain(addr);
/// # sim.run_for(Duration::from_secs(3));
/// # assert_eq!(sim.state(peer), PlainState::Ended);
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Dialling {
    by: Shared,
    dial: Option<Dial>,
    asked: Arc<Asked>,
}

impl fmt::Debug for Dialling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialling").field(&self.dial).finish()
    }
}

impl Stream {
    /// Makes another connection, on this one's loop: to an address, or to a host by its name. Dropping the future gives that up,
    /// and so does the end of this connection. The connection that is made ends when its stream and all clones were
    /// dropped: in order, or with a reset if this connection has failed.
    ///
    /// ```
    /// use tidewire::{Dial, Endpoint};
    /// use tidewire_async::{Stream, relay, serve};
    ///
    /// /// Goes between a client and a server.
    /// async fn proxy(client: Stream, to: Endpoint) {
    ///     match client.dial(Dial::to(to)).await {
    ///         Ok(server) => drop(relay(&client, &server).await),
    ///         Err(_) => client.abort(),
    ///     }
    /// }
    /// # use tidewire::{Limits, on_input, sim::{Conditions, Sim}};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let echo = sim.serve(on_input(|input, link| link.forward_all(input)), Limits::default());
    /// # let addr = sim.serve(serve(move |client| proxy(client, echo.clone())), Limits::default());
    /// # let peer = sim.plain(addr);
    /// # sim.send(peer, b"hello");
    /// # sim.finish(peer);
    /// # sim.run_for(std::time::Duration::from_secs(5));
    /// # assert_eq!(sim.received(peer), b"hello");
    /// ```
    pub fn dial(&self, dial: Dial) -> Dialling {
        Dialling::new(self.shared.clone(), dial)
    }
}

impl Dialling {
    fn new(by: Shared, dial: Dial) -> Dialling {
        Dialling {
            by,
            dial: Some(dial),
            asked: Arc::default(),
        }
    }
}

impl Future for Dialling {
    type Output = io::Result<Stream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let mut asked = self.asked.lock();
        if let Some(result) = asked.result.take() {
            drop(asked);
            let by = self.by.clone();
            return Poll::Ready(result.map(|shared| leased(shared, by)));
        }
        let before = asked.waker.replace(cx.waker().clone());
        drop(asked);
        drop(before);
        if let Some(dial) = self.dial.take() {
            let asked = self.asked.clone();
            self.by.change(|state| state.dials.push((dial, asked)));
        }
        Poll::Pending
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        let mut asked = self.asked.lock();
        asked.is_given_up = true;
        let (result, token) = (asked.result.take(), asked.token);
        let _waker = asked.waker.take();
        drop(asked);
        match (result, token) {
            (Some(Ok(shared)), _) => drop(leased(shared, self.by.clone())),
            (Some(Err(_)), _) => {}
            (None, Some(token)) => self.by.change(|state| state.given_up.push(token)),
            (None, None) => {
                let ours = Arc::as_ptr(&self.asked).cast::<()>();
                let other = |asked: &Arc<dyn Asks>| Arc::as_ptr(asked).cast::<()>() != ours;
                self.by.lock().dials.retain(|(_, asked)| other(asked));
            }
        }
    }
}

/// What a dial comes to, for the future that waits for it.
#[derive(Default)]
struct Asked(Mutex<Asking>);

#[derive(Default)]
struct Asking {
    /// Once the dial was made.
    token: Option<u64>,
    result: Option<io::Result<Shared>>,
    waker: Option<Waker>,
    is_given_up: bool,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Asking> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asks for Asked {
    fn name(&self, token: u64) {
        self.lock().token = Some(token);
    }

    fn settle(&self, result: io::Result<Shared>) {
        let mut asked = self.lock();
        if asked.is_given_up {
            drop(asked);
            if let Ok(shared) = result {
                shared.change(|state| state.end(Ending::Abort));
            }
            return;
        }
        asked.result = Some(result);
        let waker = asked.waker.take();
        drop(asked);
        waker.into_iter().for_each(Waker::wake);
    }
}

fn leased(shared: Shared, by: Shared) -> Stream {
    let of = shared.clone();
    Stream {
        shared,
        _lease: Some(Arc::new(Lease::new(of, by))),
    }
}
