//! The lab: what it takes to load a server and to compare two of them honestly.
//!
//! The idea to keep in mind: on a busy machine a figure alone means nothing, so a
//! result is a ratio from interleaved runs, shown with its interval and with a control
//! that compares one side with itself.

#![forbid(unsafe_code)]

pub mod abba;
pub mod child;
pub mod environment;
pub mod histogram;
pub mod meter;
pub mod procfs;
pub mod report;
pub mod stats;
pub mod workload;
