//! Keys that have expired go without a command that asks for them: in the simulator, and on every
//! engine while no connection is left.

#![expect(
    clippy::disallowed_methods,
    reason = "these are clients with patience, not protocols"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::sim::{Conditions, Sim};
use tidewire::{Builder, EngineChoice, Listen, StartError};
use tidewire_kv::service::{RespService, Settings};
use tidewire_kv::store::Store;

const PATIENCE: Duration = Duration::from_secs(30);

fn store() -> Arc<Store> {
    Arc::new(Store::new(tidewire_kv::store::Settings::default()))
}

/// Commands that set `n` keys for some milliseconds.
fn sets(n: usize) -> Vec<u8> {
    let set = |i| format!("SET key:{i} value PX 30\r\n");
    (0..n).map(set).collect::<String>().into_bytes()
}

#[test]
fn keys_expire_in_virtual_time() {
    let store = store();
    let settings = Settings {
        protected: false,
        ..Settings::default()
    };
    let limits = settings.limits();
    let mut sim = Sim::under(7, Conditions::calm());
    let addr = sim.serve(RespService::new(store.clone(), settings), limits);
    let peer = sim.plain(addr);
    sim.send(peer, &sets(500));
    sim.run_for(Duration::from_millis(20));
    assert_eq!(store.keyspace(0).keys, 500);
    sim.close(peer, false);
    sim.run_for(Duration::from_secs(5));
    assert_eq!(store.keyspace(0).keys, 0);
}

#[test]
fn keys_expire_while_no_client_is_connected() {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let store = store();
        let settings = Settings::default();
        let limits = settings.limits();
        let mut builder = Builder::new();
        let service = builder.service_with(RespService::new(store.clone(), settings), limits);
        builder.listen(service, Listen::at(([127, 0, 0, 1], 0)));
        builder.engine(engine).loops(2);
        let running = match builder.start() {
            Ok(running) => running,
            Err(e @ StartError::Engine { .. }) => {
                eprintln!("skipped on {engine}: {e}");
                continue;
            }
            Err(e) => panic!("{engine}: {e}"),
        };
        let at = running.addrs()[0].tcp().expect("TCP");
        let mut client = TcpStream::connect(at).expect("connected");
        client.write_all(&sets(500)).expect("written");
        let mut replies = [0; 500 * 5];
        client.read_exact(&mut replies).expect("+OK for each");
        drop(client);
        let end = Instant::now() + PATIENCE;
        while store.keyspace(0).keys > 0 {
            assert!(
                Instant::now() < end,
                "{engine}: keys that nobody wants are left"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        running.stop(PATIENCE);
    }
}
