//! A kernel of our own, from a seed and on virtual time: what production drivers call when they are
//! simulated.

mod fd;

pub(crate) use fd::SimFd;
