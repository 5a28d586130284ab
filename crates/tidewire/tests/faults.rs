//! Faults and traces in front of a service on every engine that works here: bytes come back as they are, and what
//! went over the connections is told.

#[path = "shared/every_engine.rs"]
mod every_engine;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use every_engine::on_every_engine;
use tidewire::fault::Faults;
use tidewire::trace::Tracer;
use tidewire::{Layered, Limits, Listen, on_input};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_delayed_and_split_comes_back_whole() {
    let words = Shared::default();
    let delay = Duration::from_micros(100)..=Duration::from_millis(2);
    let faults = Faults::none(7).delays(8, delay).splits(2, 900).window(4000);
    on_every_engine(
        |builder| {
            words.0.lock().unwrap().clear();
            let echo = on_input(|input, link| link.forward_all(input));
            let tracer = Tracer::named("echo").words(words.clone());
            let service = Layered::new(tracer, Layered::new(faults.clone(), echo));
            let service = builder.service_with(service, Limits::default());
            builder.listen(service, Listen::at("127.0.0.1:0"));
        },
        |running| {
            let addr = running.addrs()[0].tcp().unwrap();
            let input: Vec<u8> = (0..50_000u32).map(|n| (n / 7) as u8).collect();
            let mut socket = TcpStream::connect(addr).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.set_write_timeout(Some(PATIENCE)).unwrap();
            let mut writer = socket.try_clone().unwrap();
            let mut got = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(&input).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                socket.read_to_end(&mut got).unwrap();
            });
            assert!(got == input, "{} bytes came back", got.len());
            running.stop(PATIENCE);
            let words = String::from_utf8(words.0.lock().unwrap().clone()).unwrap();
            let lines: Vec<&str> = words.lines().collect();
            assert!(
                lines[0].contains("echo accepts client 0, from 127.0.0.1:"),
                "{}",
                lines[0]
            );
            let last = lines[lines.len() - 1];
            assert!(
                last.ends_with("echo and client 0 are done: finished"),
                "{last}"
            );
            let injected = faults.injected();
            assert!(injected.delays > 0 && injected.splits > 0, "{injected:?}");
        },
    );
}
