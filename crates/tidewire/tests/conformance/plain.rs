//! A server that keeps no record, so that only the toolkit's memory is measured.

use std::time::Duration;

use tidewire::{
    Cx, Input, Limits, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Running, Service,
};

use crate::variant::Variant;

/// One connection: echoes.
struct Plain;

impl Protocol for Plain {
    type Local = ();
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Plain>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

struct PlainService;

impl Service for PlainService {
    type Conn = Plain;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Plain, Refusal> {
        Ok(Plain)
    }
}

pub(crate) fn server(v: Variant) -> Running {
    let mut builder = v.builder();
    let limits = Limits {
        idle: Some(Duration::from_secs(600)),
        ..Limits::default()
    };
    let service = builder.service_with(PlainService, limits);
    builder.listen(service, Listen::at(([127, 0, 0, 1], 0)));
    builder.start().expect("the server starts")
}
