//! Bytes are received and dropped.

use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};

/// Makes connections that drop what they get and send nothing. The loops count the bytes; nothing
/// else is counted here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

/// One discarding connection.
#[derive(Debug)]
pub struct DiscardConn(());

impl Service for Discard {
    type Conn = DiscardConn;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<DiscardConn, Refusal> {
        Ok(DiscardConn(()))
    }
}

impl Protocol for DiscardConn {
    type Local = ();
    type Message = ();

    #[inline]
    fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
        input.consume(input.len());
        Next::More
    }
}
