//! Bytes come back as they were sent, in the pieces in which they arrived: some clients insist on
//! reading a whole message at once.

use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};

/// Makes connections that send back what they get.
///
/// All input of one call is queued as one piece. While output is full nothing is read, so a peer
/// that does not take its echoes holds at most the output high mark and one chunk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

/// One echoing connection. The connection has no state: bytes to echo are in the output.
#[derive(Debug)]
pub struct EchoConn(());

impl Service for Echo {
    type Conn = EchoConn;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<EchoConn, Refusal> {
        Ok(EchoConn(()))
    }
}

impl Protocol for EchoConn {
    type Local = ();
    type Message = ();

    #[inline]
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        cx.link.forward_all(input)
    }
}
