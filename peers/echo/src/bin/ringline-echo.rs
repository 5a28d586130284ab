//! Echo on ringline: one worker, its data callback and its sends that wait for nothing.

use ringline::{AsyncEventHandler, ConfigBuilder, ConnCtx, ParseResult, RinglineBuilder};

struct Echo;

impl AsyncEventHandler for Echo {
    fn on_accept(&self, conn: ConnCtx) -> impl Future<Output = ()> + 'static {
        async move {
            loop {
                let consumed = conn
                    .with_data(|data| {
                        let _ = conn.send_nowait(data);
                        ParseResult::Consumed(data.len())
                    })
                    .await;
                if consumed == 0 {
                    return;
                }
            }
        }
    }

    fn create_for_worker(_: usize) -> Self {
        Echo
    }
}

fn main() {
    // The library binds by itself, so the port has to be found before.
    let addr = match echo_peers::wanted() {
        addr if addr.port() == 0 => {
            let free = std::net::TcpListener::bind(addr).expect("an address to listen on");
            free.local_addr().expect("it is bound")
        }
        addr => addr,
    };
    let config = ConfigBuilder::new().workers(1).tcp_nodelay(true).build();
    let launched = RinglineBuilder::new(config.expect("a configuration that is meant"))
        .bind(addr)
        .launch::<Echo>();
    let (_shutdown, workers) = launched.expect("ringline runs here");
    echo_peers::say(addr);
    for worker in workers {
        worker.join().expect("no panic").expect("no error");
    }
}
