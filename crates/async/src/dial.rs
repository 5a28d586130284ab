//! Connections that a future dials, on the loop of its own.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidewire::Dial;

use crate::shared::{Ending, Shared};
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

impl Dialling {
    pub(crate) fn new(by: Shared, dial: Dial) -> Dialling {
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
                let other = |(_, asked): &(Dial, Arc<Asked>)| !Arc::ptr_eq(asked, &self.asked);
                self.by.lock().dials.retain(other);
            }
        }
    }
}

/// What a dial comes to, for the future that waits for it.
#[derive(Default)]
pub(crate) struct Asked(Mutex<Asking>);

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

    pub(crate) fn name(&self, token: u64) {
        self.lock().token = Some(token);
    }

    /// The dial has become a connection, or has failed.
    pub(crate) fn settle(&self, result: io::Result<Shared>) {
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
        _lease: Some(Arc::new(Lease { of, by })),
    }
}

/// Ends a dialled connection when its last stream is dropped.
pub(crate) struct Lease {
    of: Shared,
    by: Shared,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Who had dialled and was cut passes that on.
        let by = self.by.lock();
        let is_cut = by
            .broken
            .is_some_and(|kind| kind != io::ErrorKind::BrokenPipe);
        drop(by);
        let how = if is_cut {
            Ending::Abort
        } else {
            Ending::Finish
        };
        self.of.change(|state| state.end(how));
    }
}
