//! Services from closures, for the simple cases: all connections alike, or no state at all.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::protocol::connection::{Cx, Protocol};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::service::Service;
use crate::reach::mailbox::LoopHandle;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;

/// A service whose connections `make` makes. The state of such connections for each loop is the
/// default.
///
/// ```
/// use tidewire::{Cx, Input, Next, Protocol, service_fn};
///
/// /// Counts what one connection has sent.
/// struct Count(usize);
///
/// impl Protocol for Count {
///     type Local = ();
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         self.0 += input.len();
///         input.consume(input.len());
///         Next::More
///     }
///
///     fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
///         cx.link.write(format!("{}\n", self.0).as_bytes());
///         cx.link.finish();
///     }
/// }
///
/// let service = service_fn(|_peer| Count(0));
/// let got = tidewire::sim::chunking::collect(service, b"seven b", &[2, 3], true);
/// assert_eq!(got.output, b"7\n");
/// ```
pub fn service_fn<P, F>(make: F) -> ServiceFn<P, F>
where
    P: Protocol,
    P::Local: Default,
    F: Fn(&Peer) -> P + Send + Sync + 'static,
{
    ServiceFn {
        make,
        makes: PhantomData,
    }
}

/// See [`service_fn`].
///
/// ```
/// use tidewire::{Protocol, ServiceFn, service_fn};
///
/// /// A service whose connections are all made alike.
/// fn each_made<P>(make: fn() -> P) -> ServiceFn<P, impl Fn(&tidewire::Peer) -> P>
/// where
///     P: Protocol<Local = ()>,
/// {
///     service_fn(move |_| make())
/// }
/// ```
pub struct ServiceFn<P, F> {
    make: F,
    makes: PhantomData<fn() -> P>,
}

impl<P, F> fmt::Debug for ServiceFn<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceFn({})", std::any::type_name::<P>())
    }
}

impl<P, F> Service for ServiceFn<P, F>
where
    P: Protocol,
    P::Local: Default,
    F: Fn(&Peer) -> P + Send + Sync + 'static,
{
    type Conn = P;

    fn on_loop(&self, _: LoopHandle<P::Message>) -> P::Local {
        P::Local::default()
    }

    fn accept(&self, from: &Peer, _: &mut P::Local) -> Result<P, Refusal> {
        Ok((self.make)(from))
    }
}

/// A service that is one function of the input: its connections have no state except the bytes that
/// they leave unconsumed. Echo, whole:
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Builder, StartError, on_input};
///
/// fn main() -> Result<(), StartError> {
///     let echo = on_input(|input, link| link.forward_all(input));
///     let running = Builder::new().serve("127.0.0.1:0", echo).start()?;
///     println!("echo on {}", running.addrs()[0]);
///     std::thread::sleep(Duration::from_millis(1)); // or as long as it is to run
///     running.stop(Duration::from_secs(10));
///     Ok(())
/// }
/// ```
pub fn on_input<F>(f: F) -> OnInput<F>
where
    F: Fn(&mut Input<'_>, &mut Link<'_>) -> Next + Send + Sync + 'static,
{
    OnInput(Arc::new(f))
}

/// See [`on_input`].
///
/// ```
/// use tidewire::{Input, Link, Next, OnInput, on_input};
///
/// /// Takes everything and says nothing.
/// fn discard() -> OnInput<impl Fn(&mut Input<'_>, &mut Link<'_>) -> Next + Send + Sync + 'static> {
///     on_input(|input, _| {
///         input.consume(input.len());
///         Next::More
///     })
/// }
/// # assert_eq!(tidewire::sim::chunking::collect(discard(), b"hello", &[2], true).output, b"");
/// ```
pub struct OnInput<F>(Arc<F>);

/// A connection of [`OnInput`].
///
/// ```
/// use tidewire::{Input, Link, Next, OnInputConn, Service, on_input};
///
/// /// The connections that `on_input` makes.
/// fn connections<S, F>(_: &S)
/// where
///     S: Service<Conn = OnInputConn<F>>,
///     F: Fn(&mut Input<'_>, &mut Link<'_>) -> Next + Send + Sync + 'static,
/// {
/// }
///
/// connections(&on_input(|input, link| link.forward_all(input)));
/// ```
pub struct OnInputConn<F>(Arc<F>);

impl<F> fmt::Debug for OnInput<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInput")
    }
}

impl<F> fmt::Debug for OnInputConn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInputConn")
    }
}

impl<F> Service for OnInput<F>
where
    F: Fn(&mut Input<'_>, &mut Link<'_>) -> Next + Send + Sync + 'static,
{
    type Conn = OnInputConn<F>;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<OnInputConn<F>, Refusal> {
        Ok(OnInputConn(self.0.clone()))
    }
}

impl<F> Protocol for OnInputConn<F>
where
    F: Fn(&mut Input<'_>, &mut Link<'_>) -> Next + Send + Sync + 'static,
{
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        (self.0)(input, &mut cx.link)
    }
}
