//! What has to be done although no command asks for it: expiring keys, measuring the rate.
//!
//! The work is a step that is given the time, bounded each time; a thread takes it in a server, and
//! a test takes it when it likes.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::resp_service::RespService;

/// A thread that takes [`RespService::tick`] as often as it wants to be, until it is dropped.
#[derive(Debug)]
pub struct Ticker {
    /// Nothing is sent; that it is gone is the sign to stop.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no thread to give.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is not a protocol: it drives what is driven by the time"
    )]
    pub fn start(service: RespService) -> io::Result<Ticker> {
        let (alive, gone) = mpsc::channel::<()>();
        let run = move || {
            let mut pause = Duration::ZERO;
            while gone.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH);
                pause = service.tick(wall.unwrap_or_default());
            }
        };
        let thread = std::thread::Builder::new()
            .name("kv-ticker".to_string())
            .spawn(run)?;
        Ok(Ticker {
            alive: Some(alive),
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say if it panicked: that was reported when it happened.
            let _ = thread.join();
        }
    }
}
