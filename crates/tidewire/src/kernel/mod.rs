//! The kernel below the drivers: traits that are the seam for simulation, and what this machine's
//! kernel does behind them.
//!
//! * [`calls`]: system calls, as a trait; [`linux`] passes them on.
//! * [`queues`]: a ring, as a trait; [`uring`] is io_uring's.
//! * [`accept`]: accepting one connection, and what its errors mean.
//! * [`clock`]: the time, real or virtual.
//! * [`descriptor`]: what passes between loops.
//! * [`sys`], [`connect`], [`handshakes`]: calls that have no safe wrapper, or take more than one.

pub(crate) mod accept;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod descriptor;
pub(crate) mod handshakes;
pub(crate) mod linux;
pub(crate) mod queues;
pub(crate) mod sys;
pub(crate) mod uring;
