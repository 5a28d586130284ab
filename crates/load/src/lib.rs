//! The lab's library: loads a server, and compares two servers fairly.
//!
//! The idea to keep in mind: on a busy machine a figure alone means nothing, so a
//! result is a ratio from interleaved runs, shown with its interval and with a control
//! that compares one side with itself.
//!
//! # In five minutes
//!
//! A [`Plan`](workload::Plan) says what is sent and for how long; [`run`](workload::run) carries it out against a running
//! server. `tidewire bench ab` and `tidewire lab` use this crate, with [`abba`] for the order of runs and [`stats`] for
//! intervals.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpListener;
//! use std::thread;
//!
//! use tidewire_load::workload::{
//!     Arrivals, EchoLoad, Extent, Generator, Plan, Target, Workload, run,
//! };
//!
//! // Any server that sends back what it receives.
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let addr = listener.local_addr()?;
//! thread::spawn(move || {
//!     for mut socket in listener.incoming().flatten() {
//!         thread::spawn(move || {
//!             let mut bytes = [0; 4096];
//!             while let Ok(n @ 1..) = socket.read(&mut bytes) {
//!                 if socket.write_all(&bytes[..n]).is_err() {
//!                     return;
//!                 }
//!             }
//!         });
//!     }
//! });
//!
//! let plan = Plan {
//!     // 64 bytes each, eight in flight on each of four connections, each answer followed by the next message.
//!     workload: Workload::of(EchoLoad { size: 64, pipeline: 8, batch: 0 }),
//!     connections: 4,
//!     arrivals: Arrivals::Closed,
//!     extent: Extent::Count(1000),
//! };
//! let target = Target { addr, process: None, cores: 1 };
//! let outcome = run(&plan, &Generator::default(), &target, &mut |_| true)?;
//! assert_eq!(outcome.requests, 1000);
//! assert_eq!(outcome.latency.map(|latency| latency.count), Some(1000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod abba;
pub mod child;
pub mod count;
pub mod duet;
pub mod environment;
pub mod histogram;
pub mod meter;
pub mod numbers;
pub mod owner;
pub mod page;
pub mod preflight;
pub mod procfs;
mod random;
pub mod report;
pub mod search;
pub mod serving;
pub mod stats;
pub mod trust;
pub mod workload;
